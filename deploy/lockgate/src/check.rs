//! `lockgate check`: validates a configuration, its key ring and sale files, looks at the store where it can be
//! reached, and starts nothing.

use lockgate_shared::{
    sale,
    store::{
        StoreError,
        redis::{RedisLink, checkup},
    },
};

use crate::{Options, config::Config, exit::Failure, keys, payments, print};

/// Runs `lockgate check`.
///
/// # Errors
/// Every problem found, one a line.
pub fn run(options: &Options) -> Result<(), Failure> {
    let config = options.load()?;
    let mut problems: Vec<String> = Vec::new();
    if let Some(file) = &config.keys_file
        && let Err(failure) = keys::open(file, false)
    {
        problems.push(failure.to_string());
    }
    for path in &options.sale {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Err(error) => problems.push(format!("{name}: cannot be read ({error}); name a sale file")),
            Ok(text) => match sale::parse_toml(&name, &text) {
                Ok(definition) => match payments::prices(&config, &definition) {
                    found if found.is_empty() => {
                        print::line(format_args!("{name}: sale '{}' is sound", definition.id));
                    }
                    found => problems.extend(found.into_iter().map(|problem| format!("{name}: {problem}"))),
                },
                Err(found) => problems.extend(found.iter().map(ToString::to_string)),
            },
        }
    }
    problems.extend(store_problems(&config)?);
    if problems.is_empty() {
        print::line(format_args!("the configuration is sound"));
        Ok(())
    } else {
        Err(Failure::usage(problems.join("\n")))
    }
}

/// What stands against the store; warnings are printed. A configuration is often checked where its store cannot be
/// reached: that is said, and is no problem.
fn store_problems(config: &Config) -> Result<Vec<String>, Failure> {
    let Some(url) = &config.store_url else {
        return Ok(Vec::new());
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::running)?;
    let look = async {
        let link = RedisLink::connect(url.reveal(), &config.store_prefix).await?;
        checkup::look(&link, config.replicas_required).await
    };
    let found: Result<checkup::Findings, StoreError> = runtime.block_on(look);
    match found {
        Ok(found) => {
            for warning in &found.warnings {
                print::note(format_args!("store.url: warning: {warning}"));
            }
            Ok(found.refusals.into_iter().map(|refusal| format!("store.url: {refusal}")).collect())
        }
        Err(error) => {
            print::note(format_args!(
                "store.url: not looked at: {}; check again from where the store can be reached",
                error.causes()
            ));
            Ok(Vec::new())
        }
    }
}
