//! Settings of the shared store beyond its address.

use lockgate_shared::{limits::REPLICAS_REQUIRED_MAX, store::redis::check_url};

use super::{Config, ConfigProblem, Secret, Setting, put, setting, url};

const REPLICAS_REQUIRED: &str =
    "give the number of replicas that must have a claim before it is answered, best all there are";

/// Settings that begin with `store.`, beside address and prefix.
pub(super) const SETTINGS: &[Setting] = &[setting("store.replicas_required", REPLICAS_REQUIRED, |c, v| {
    put(&mut c.replicas_required, replicas(v))
})];

fn replicas(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if count <= REPLICAS_REQUIRED_MAX => Ok(count),
        _ => Err(format!("'{text}' is no whole number between 0 and {REPLICAS_REQUIRED_MAX}")),
    }
}

/// A Redis URL. What is wrong with it is said without it.
pub(super) fn address(text: &str) -> Result<Secret, String> {
    let secret = url(text, &["redis://", "redis+sentinel://", "redis+cluster://", "unix://"])?;
    check_url(text)?;
    Ok(secret)
}

/// What does not fit together although each setting is sound.
pub(super) fn problems(config: &Config) -> Option<ConfigProblem> {
    let count = config.replicas_required;
    (count > 0 && config.store_url.is_none()).then(|| ConfigProblem {
        place: "configuration".into(),
        key: "store.replicas_required".into(),
        problem: format!("is {count}, but the stock is kept in SQLite, which has no replicas"),
        remedy: "name the replicated store in store.url, or leave it out".into(),
    })
}

#[cfg(test)]
mod tests {
    use crate::config::load;

    fn loaded(settings: &[(&str, &str)]) -> Result<super::Config, String> {
        let flags: Vec<(&str, String)> = settings.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        load(None, std::iter::empty(), &flags).map_err(|problems| problems[0].to_string())
    }

    #[test]
    fn replicas_are_a_small_number_and_need_a_store_that_has_some() {
        let sentinels = ("store.url", "redis+sentinel://a:26379,b:26379/main");
        assert_eq!(loaded(&[sentinels, ("store.replicas_required", "2")]).unwrap().replicas_required, 2);
        assert_eq!(loaded(&[sentinels]).unwrap().replicas_required, 0);
        for wrong in ["-1", "17", "all", ""] {
            let problem = loaded(&[sentinels, ("store.replicas_required", wrong)]).unwrap_err();
            assert!(
                problem.contains("between 0 and 16") && problem.contains("best all there are"),
                "{problem}"
            );
        }
        let problem = loaded(&[("store.replicas_required", "1")]).unwrap_err();
        assert!(problem.contains("SQLite") && problem.contains("store.url"), "{problem}");
    }

    #[test]
    fn a_store_url_that_names_too_little_is_refused_without_its_password() {
        let problem = loaded(&[("store.url", "redis+sentinel://shop:hunter22@a:26379")]).unwrap_err();
        assert!(problem.contains("names no master") && !problem.contains("hunter22"), "{problem}");
        let problem = loaded(&[("store.url", "redis://:hunter22@:port")]).unwrap_err();
        assert!(!problem.contains("hunter22"), "{problem}");
    }
}
