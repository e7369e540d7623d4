//! `lockgate check`: validates a configuration, its key ring and sale files, and starts nothing.

use lockgate_shared::sale;

use crate::{Options, exit::Failure, keys, print};

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
                Ok(definition) => print::line(format_args!("{name}: sale '{}' is sound", definition.id)),
                Err(found) => problems.extend(found.iter().map(ToString::to_string)),
            },
        }
    }
    if problems.is_empty() {
        print::line(format_args!("the configuration is sound"));
        Ok(())
    } else {
        Err(Failure::usage(problems.join("\n")))
    }
}
