//! The settings of the payment gateway: which one, and what Stripe needs. Either gateway refuses what only the other has.

use std::net::Ipv4Addr;

use lockgate_checkout::stripe::{self, is_live};

use super::{Config, ConfigProblem, Secret, Setting, http_url, list, put, secret, setting};

const KIND: &str = "use simulated or stripe";
const SECRET_KEY: &str = "give a restricted key (rk_test_…, rk_live_…) or the secret key (sk_test_…, sk_live_…), best as LOCKGATE_STRIPE__SECRET_KEY";
const WEBHOOK_SECRET: &str =
    "give the webhook endpoint's signing secret (whsec_…), best as LOCKGATE_STRIPE__WEBHOOK_SECRET";
const API_URL: &str = "leave it out; only tests and a proxy of your own need another address, with https";
const PAYMENT_METHODS: &str = "give Stripe's names of payment methods, such as [\"card\", \"paypal\"]";

/// Lengths of keys and secrets, in bytes. Stripe's have some dozens.
const KEY_BYTES_MIN: usize = 16;
const KEY_BYTES_MAX: usize = 256;
/// Most payment methods, and the longest name of one.
const METHODS_MAX: usize = 20;
const METHOD_BYTES_MAX: usize = 32;

/// Which gateway takes the money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Simulated,
    Stripe,
}

/// What was written so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    kind: Kind,
    secret_key: Option<Secret>,
    webhook_secret: Option<Secret>,
    webhook_secret_next: Option<Secret>,
    api_url: Option<String>,
    payment_methods: Option<Vec<String>>,
}

/// `gateway.kind`, and settings that begin with `stripe.`.
pub(super) const SETTINGS: &[Setting] = &[
    setting("gateway.kind", KIND, |c, v| put(&mut c.gateway.kind, kind(v))),
    secret("stripe.secret_key", SECRET_KEY, |c, v| {
        let prefixes = ["sk_test_", "rk_test_", "sk_live_", "rk_live_"];
        put(&mut c.gateway.secret_key, key(v, &prefixes).map(Some))
    }),
    secret("stripe.webhook_secret", WEBHOOK_SECRET, |c, v| {
        put(&mut c.gateway.webhook_secret, key(v, &["whsec_"]).map(Some))
    }),
    secret("stripe.webhook_secret_next", WEBHOOK_SECRET, |c, v| {
        put(&mut c.gateway.webhook_secret_next, key(v, &["whsec_"]).map(Some))
    }),
    setting("stripe.api_url", API_URL, |c, v| put(&mut c.gateway.api_url, api_url(v).map(Some))),
    list("stripe.payment_methods", PAYMENT_METHODS, |c, v| {
        put(&mut c.gateway.payment_methods, payment_methods(v).map(Some))
    }),
];

fn kind(text: &str) -> Result<Kind, String> {
    match text {
        "simulated" => Ok(Kind::Simulated),
        "stripe" => Ok(Kind::Stripe),
        other => Err(format!("'{other}' is no gateway that is known here")),
    }
}

fn key(text: &str, prefixes: &[&str]) -> Result<Secret, String> {
    if !prefixes.iter().any(|prefix| text.starts_with(prefix)) {
        return Err(format!("does not begin with {}", prefixes.join(", ")));
    }
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'+' | b'/' | b'='));
    if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&text.len()) || !is_plain {
        return Err(format!("is not {KEY_BYTES_MIN} to {KEY_BYTES_MAX} letters and digits without spaces"));
    }
    Ok(Secret(text.to_owned()))
}

/// The key travels there: in the open only on this machine.
fn api_url(text: &str) -> Result<String, String> {
    let url = http_url(text)?;
    let uri: http::Uri = url.parse().map_err(|_| format!("'{text}' is no http(s) address"))?;
    let host = uri.host().unwrap_or_default();
    let is_here =
        host == "localhost" || host == "[::1]" || host.parse().is_ok_and(|ip: Ipv4Addr| ip.is_loopback());
    if uri.scheme_str() == Some("https") || is_here {
        Ok(url)
    } else {
        Err(format!("'{text}' would carry stripe.secret_key unencrypted; use https"))
    }
}

fn payment_methods(text: &str) -> Result<Vec<String>, String> {
    let methods: Vec<String> = text.split(',').map(|method| method.trim().to_owned()).collect();
    let is_name = |method: &String| {
        (1..=METHOD_BYTES_MAX).contains(&method.len())
            && method.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    match methods.iter().find(|method| !is_name(method)) {
        Some(method) => Err(format!("'{method}' is no name of a payment method")),
        None if methods.len() > METHODS_MAX => Err(format!("names more than {METHODS_MAX}")),
        None => Ok(methods),
    }
}

fn problem(key: &str, problem: impl Into<String>, remedy: &str) -> ConfigProblem {
    ConfigProblem {
        place: "configuration".into(),
        key: key.into(),
        problem: problem.into(),
        remedy: remedy.into(),
    }
}

/// What does not fit together although each setting is sound.
pub(super) fn problems(config: &Config) -> Vec<ConfigProblem> {
    match config.gateway.kind {
        Kind::Simulated => beside_the_simulated_one(&config.gateway),
        Kind::Stripe => with_stripe(config),
    }
}

/// Pretended payments next to a real gateway's keys are a mistake that gives goods away.
fn beside_the_simulated_one(draft: &Draft) -> Vec<ConfigProblem> {
    let Draft { kind: _, secret_key, webhook_secret, webhook_secret_next, api_url, payment_methods } = draft;
    let written = [
        ("stripe.secret_key", secret_key.is_some()),
        ("stripe.webhook_secret", webhook_secret.is_some()),
        ("stripe.webhook_secret_next", webhook_secret_next.is_some()),
        ("stripe.api_url", api_url.is_some()),
        ("stripe.payment_methods", payment_methods.is_some()),
    ];
    let remedy = "write gateway.kind = \"stripe\" to take real payments, or remove it";
    let stray = written.iter().filter(|(_, is_there)| *is_there);
    stray.map(|(key, _)| problem(key, "is set, but the gateway is the simulated one", remedy)).collect()
}

fn with_stripe(config: &Config) -> Vec<ConfigProblem> {
    let draft = &config.gateway;
    let mut problems = Vec::new();
    let needed = [
        ("stripe.secret_key", SECRET_KEY, draft.secret_key.is_some()),
        ("stripe.webhook_secret", WEBHOOK_SECRET, draft.webhook_secret.is_some()),
    ];
    for (key, remedy, _) in needed.iter().filter(|(.., is_there)| !is_there) {
        problems.push(problem(key, "is missing, and has no default", remedy));
    }
    let simulated = [
        ("gateway.url", config.gateway_url.is_some()),
        ("gateway.webhook_url", config.webhook_url.is_some()),
    ];
    for (key, _) in simulated.iter().filter(|(_, is_there)| *is_there) {
        let remedy = "remove it, or write gateway.kind = \"simulated\"";
        problems.push(problem(key, "belongs to the simulated gateway, but the gateway is Stripe", remedy));
    }
    let remedy = "give public_url = \"https://…\", or use a test key";
    match &config.public_url {
        Some(url) if config.takes_real_money() && !url.starts_with("https://") => {
            problems.push(problem(
                "public_url",
                format!("'{url}' is not https, but the Stripe key is a live one"),
                remedy,
            ));
        }
        None if config.takes_real_money() => {
            problems.push(problem("public_url", "is missing, but the Stripe key is a live one", remedy));
        }
        _ => {}
    }
    problems
}

impl Config {
    /// What Stripe is set up with, if it takes the money.
    pub fn stripe(&self) -> Option<stripe::Settings> {
        let draft = &self.gateway;
        if draft.kind != Kind::Stripe {
            return None;
        }
        let webhook_secrets = [&draft.webhook_secret, &draft.webhook_secret_next];
        Some(stripe::Settings {
            secret_key: draft.secret_key.as_ref()?.reveal().to_owned(),
            webhook_secrets: webhook_secrets.into_iter().flatten().map(|s| s.reveal().to_owned()).collect(),
            api_url: draft.api_url.clone().unwrap_or_else(|| stripe::API_URL.to_owned()),
            payment_methods: draft.payment_methods.clone().unwrap_or_else(|| vec!["card".to_owned()]),
            call_limit: stripe::CALL_LIMIT,
        })
    }

    /// Whether buyers are charged in earnest.
    pub fn takes_real_money(&self) -> bool {
        let key = self.gateway.secret_key.as_ref();
        self.gateway.kind == Kind::Stripe && key.is_some_and(|key| is_live(key.reveal()))
    }
}

/// An example of each setting here, which go together.
#[cfg(test)]
pub(super) const EXAMPLES: [(&str, &str); 6] = [
    ("gateway.kind", "stripe"),
    ("stripe.secret_key", "rk_test_0123456789abcdef"),
    ("stripe.webhook_secret", "whsec_0123456789abcdef"),
    ("stripe.webhook_secret_next", "whsec_fedcba9876543210"),
    ("stripe.api_url", "https://proxy.example"),
    ("stripe.payment_methods", "card,paypal"),
];

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;

    fn loaded(file: &str) -> Result<Config, String> {
        load(Some(("f.toml", file)), std::iter::empty(), &[])
            .map_err(|problems| problems.iter().map(|problem| format!("{problem}\n")).collect())
    }

    fn stripe(key: &str, more: &str) -> String {
        format!(
            "{more}\n[gateway]\nkind = \"stripe\"\n[stripe]\nsecret_key = \"{key}\"\n\
             webhook_secret = \"whsec_0123456789abcdef\"\n"
        )
    }

    const TEST_KEY: &str = "rk_test_0123456789abcdef";
    const LIVE_KEY: &str = "sk_live_0123456789abcdef";

    #[test]
    fn the_simulated_gateway_is_the_one_unless_written() {
        assert!(loaded("").unwrap().stripe().is_none());
        assert!(loaded("[gateway]\nkind = \"simulated\"\n").unwrap().stripe().is_none());
        let config = loaded(&stripe(TEST_KEY, "")).unwrap();
        let settings = config.stripe().unwrap();
        assert_eq!(settings.api_url, "https://api.stripe.com");
        assert_eq!(settings.payment_methods, ["card"]);
        assert!(!config.takes_real_money());
        for shown in [format!("{config:?}"), format!("{settings:?}")] {
            assert!(!shown.contains("0123456789abcdef"), "{shown}");
        }
        let more = format!(
            "{}webhook_secret_next = \"whsec_fedcba9876543210\"\npayment_methods = [\"card\", \"paypal\"]\n\
             api_url = \"http://127.0.0.1:4242/\"\n",
            stripe(TEST_KEY, "")
        );
        let settings = loaded(&more).unwrap().stripe().unwrap();
        assert_eq!(settings.webhook_secrets, ["whsec_0123456789abcdef", "whsec_fedcba9876543210"]);
        assert_eq!(settings.payment_methods, ["card", "paypal"]);
        assert_eq!(settings.api_url, "http://127.0.0.1:4242");
    }

    #[test]
    fn every_setting_accepts_its_example() {
        let flags = EXAMPLES.map(|(key, value)| (key, value.to_owned()));
        let settings = load(None, std::iter::empty(), &flags).unwrap().stripe().unwrap();
        assert_eq!((settings.payment_methods.len(), settings.webhook_secrets.len()), (2, 2));
        assert_eq!(EXAMPLES.map(|(key, _)| key).to_vec(), SETTINGS.iter().map(|s| s.key).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_missing_and_what_belongs_to_the_other_is_named() {
        let told = loaded("[gateway]\nkind = \"stripe\"\nurl = \"http://gateway:8082\"\n").unwrap_err();
        assert_eq!(told.lines().count(), 3, "{told}");
        for word in [
            "stripe.secret_key: is missing",
            "stripe.webhook_secret: is missing",
            "gateway.url: belongs to the simulated gateway",
        ] {
            assert!(told.contains(word), "{word}: {told}");
        }
        let told =
            loaded(&stripe(TEST_KEY, "").replace("kind = \"stripe\"", "kind = \"simulated\"")).unwrap_err();
        assert_eq!(told.lines().count(), 2, "{told}");
        assert!(told.contains("stripe.secret_key: is set, but the gateway is the simulated one"), "{told}");
    }

    #[test]
    fn live_keys_want_https() {
        for (more, word) in
            [("", "is missing"), ("public_url = \"http://shop.example\"", "'http://shop.example'")]
        {
            let told = loaded(&stripe(LIVE_KEY, more)).unwrap_err();
            assert!(told.contains("public_url") && told.contains(word) && told.contains("live"), "{told}");
            assert_eq!(told.lines().count(), 1, "{told}");
        }
        let config = loaded(&stripe(LIVE_KEY, "public_url = \"https://shop.example\"")).unwrap();
        assert!(config.takes_real_money());
    }

    #[test]
    fn every_slip_is_named_and_no_key_shown() {
        let told = loaded(
            "[gateway]\nkind = \"strype\"\n[stripe]\nsecret_key = \"pk_test_very-private-text\"\n\
             webhook_secret = \"whsec_very private text\"\nwebhook_secret_next = \"whsec_\"\n\
             api_url = \"http://api.example\"\npayment_methods = [\"card\", \"Pay Pal\"]\nsecret_kye = \"very-private\"\n",
        )
        .unwrap_err();
        assert_eq!(told.lines().count(), 7, "{told}");
        for word in [
            "'strype'",
            "rk_test_",
            "stripe.webhook_secret:",
            "stripe.webhook_secret_next:",
            "unencrypted",
            "'Pay Pal'",
            "did you mean 'stripe.secret_key'",
        ] {
            assert!(told.contains(word), "{word}: {told}");
        }
        assert!(!told.contains("private"), "{told}");
        for url in [
            "http://127.0.0.1.example",
            "http://localhost.example",
            "http://10.0.0.1",
            "ftp://127.0.0.1",
            "https://a@b",
        ] {
            assert!(api_url(url).is_err(), "{url}");
        }
        for url in [
            "http://127.0.0.1:1",
            "http://127.1.2.3",
            "http://[::1]:8",
            "http://localhost",
            "https://proxy.example",
        ] {
            assert!(api_url(url).is_ok(), "{url}");
        }
    }
}
