//! The settings of a CAPTCHA. Either none of them is written, or all that have no default.

use std::time::Duration;

use lockgate_waiting_room::{
    CaptchaDoor,
    captcha::{Provider, Settings, TIMEOUT_MS_MAX, WhenUnreachable},
};

use super::{Config, ConfigProblem, Secret, Setting, http_url, put, secret, setting};

/// How long a provider may take without a setting, in milliseconds.
const TIMEOUT_MS: u64 = 2_000;
/// Longest key of either kind, in bytes.
const KEY_BYTES_MAX: usize = 256;

const PROVIDER: &str = "use turnstile or hcaptcha";
const SITE_KEY: &str = "give the site key that the provider shows beside the secret";
const SECRET: &str = "give the provider's secret, best as LOCKGATE_CAPTCHA__SECRET";
const WHEN_UNREACHABLE: &str = "write refuse (nobody new enters while the provider is out of reach) or let_in (everybody does, bots too)";

/// What was written so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    provider: Option<Provider>,
    site_key: Option<String>,
    secret: Option<Secret>,
    verify_url: Option<String>,
    timeout_ms: Option<u64>,
    when_unreachable: Option<WhenUnreachable>,
    send_address: Option<bool>,
}

/// Settings that begin with `captcha.`.
pub(super) const SETTINGS: &[Setting] = &[
    setting("captcha.provider", PROVIDER, |c, v| {
        let provider = Provider::named(v).ok_or_else(|| format!("'{v}' is no provider that is known here"));
        put(&mut c.captcha.provider, provider.map(Some))
    }),
    setting("captcha.site_key", SITE_KEY, |c, v| put(&mut c.captcha.site_key, key(v).map(Some))),
    secret("captcha.secret", SECRET, |c, v| put(&mut c.captcha.secret, key(v).map(|key| Some(Secret(key))))),
    setting("captcha.verify_url", "give an address such as https://proxy.example/siteverify", |c, v| {
        put(&mut c.captcha.verify_url, secret_url(v).map(Some))
    }),
    setting("captcha.timeout_ms", "give milliseconds such as 2000", |c, v| {
        put(&mut c.captcha.timeout_ms, timeout_ms(v).map(Some))
    }),
    setting("captcha.when_unreachable", WHEN_UNREACHABLE, |c, v| {
        put(&mut c.captcha.when_unreachable, when_unreachable(v).map(Some))
    }),
    setting("captcha.send_address", "use true or false", |c, v| {
        let is = v.parse().map_err(|_| format!("'{v}' is neither true nor false"));
        put(&mut c.captcha.send_address, is.map(Some))
    }),
];

fn key(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > KEY_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("is not 1 to {KEY_BYTES_MAX} letters, digits and signs without spaces"));
    }
    Ok(text.to_owned())
}

/// The secret travels there: in the open only on this machine.
fn secret_url(text: &str) -> Result<String, String> {
    let url = http_url(text)?;
    let host = url.strip_prefix("http://").and_then(|rest| rest.split(['/', ':', '?']).next());
    let is_here = host.is_none_or(|host| matches!(host, "localhost" | "127.0.0.1"));
    if is_here { Ok(url) } else { Err(format!("'{text}' would carry captcha.secret unencrypted; use https")) }
}

fn timeout_ms(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(ms) if (1..=TIMEOUT_MS_MAX).contains(&ms) => Ok(ms),
        _ => Err(format!("'{text}' is no whole number between 1 and {TIMEOUT_MS_MAX}")),
    }
}

fn when_unreachable(text: &str) -> Result<WhenUnreachable, String> {
    match text {
        "refuse" => Ok(WhenUnreachable::Refuse),
        "let_in" => Ok(WhenUnreachable::LetIn),
        other => Err(format!("'{other}' is no policy")),
    }
}

impl Draft {
    /// What is missing although something was written.
    pub(super) fn problems(&self) -> Vec<ConfigProblem> {
        let Self { provider, site_key, secret, verify_url, timeout_ms, when_unreachable, send_address } =
            self;
        let needed = [
            ("captcha.provider", PROVIDER, provider.is_some()),
            ("captcha.site_key", SITE_KEY, site_key.is_some()),
            ("captcha.secret", SECRET, secret.is_some()),
            ("captcha.when_unreachable", WHEN_UNREACHABLE, when_unreachable.is_some()),
        ];
        let others = verify_url.is_some() || timeout_ms.is_some() || send_address.is_some();
        if !others && needed.iter().all(|(.., is_there)| !is_there) {
            return Vec::new();
        }
        let missing = needed.iter().filter(|(.., is_there)| !is_there);
        missing
            .map(|(key, remedy, _)| ConfigProblem {
                place: "configuration".into(),
                key: (*key).into(),
                problem: "is missing, and has no default".into(),
                remedy: (*remedy).into(),
            })
            .collect()
    }

    fn settings(&self) -> Option<Settings> {
        let provider = self.provider?;
        Some(Settings {
            provider,
            site_key: self.site_key.clone()?,
            secret: self.secret.as_ref()?.reveal().to_owned(),
            verify_url: self.verify_url.clone().unwrap_or_else(|| provider.verify_url().to_owned()),
            timeout: Duration::from_millis(self.timeout_ms.unwrap_or(TIMEOUT_MS)),
            when_unreachable: self.when_unreachable?,
            send_address: self.send_address.unwrap_or(false),
        })
    }
}

impl Config {
    /// The CAPTCHA at the door, where one is set up.
    ///
    /// # Errors
    /// Its HTTP client cannot be built.
    pub fn captcha(&self) -> Result<Option<CaptchaDoor>, String> {
        self.captcha.settings().map(|settings| CaptchaDoor::new(&settings)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;

    fn loaded(file: &str) -> Result<Config, String> {
        load(Some(("f.toml", file)), std::iter::empty(), &[])
            .map_err(|problems| problems.iter().map(|problem| format!("{problem}\n")).collect())
    }

    #[test]
    fn none_is_set_up_unless_written_and_what_is_left_out_has_its_default() {
        assert!(loaded("").unwrap().captcha().unwrap().is_none());
        let config = loaded(
            "[captcha]\nprovider = \"hcaptcha\"\nsite_key = \"site\"\nsecret = \"very-secret\"\n\
             when_unreachable = \"refuse\"\n",
        )
        .unwrap();
        assert!(config.captcha().unwrap().is_some() && !format!("{config:?}").contains("very-secret"));
        let settings = config.captcha.settings().unwrap();
        assert_eq!(settings.verify_url, "https://api.hcaptcha.com/siteverify");
        assert_eq!((settings.timeout.as_millis(), settings.send_address), (2_000, false));
        assert!(!format!("{settings:?}").contains("very-secret"));
    }

    #[test]
    fn the_policy_and_the_keys_must_be_written_and_every_slip_is_named() {
        let told = loaded("[captcha]\nprovider = \"turnstile\"\n").unwrap_err();
        for word in [
            "captcha.site_key: is missing",
            "captcha.secret: is missing",
            "captcha.when_unreachable: is missing",
        ] {
            assert!(told.contains(word), "{word}: {told}");
        }
        assert!(told.contains("refuse (nobody new enters") && told.lines().count() == 3, "{told}");
        let told = loaded(
            "[captcha]\nprovider = \"recaptcha\"\nsecret = \"two words-here\"\nwhen_unreachable = \"open\"\n\
             timeout_ms = 60000\nsend_address = 1\nverify_url = \"ftp://x\"\nsite_key = \"\"\n",
        )
        .unwrap_err();
        for word in
            ["'recaptcha'", "captcha.secret", "'open'", "'60000'", "'1'", "'ftp://x'", "captcha.site_key"]
        {
            assert!(told.contains(word), "{word}: {told}");
        }
        assert!(!told.contains("two words"), "{told}");
    }
}
