//! PURE. A CAPTCHA: somebody else's widget on our page, and their word on whether it was solved.
//!
//! Both providers have the same call, and only what both document of it is relied on: a POST of `secret`, `response`
//! and optionally `remoteip` as a form, answered with JSON `{"success", "error-codes"}`
//! (<https://developers.cloudflare.com/turnstile/get-started/server-side-validation/>, <https://docs.hcaptcha.com/>).
//! The call itself is in [`siteverify`]; what follows from its outcome, in `app/captcha.rs`.

pub mod outage;
pub mod passed;
pub mod siteverify;

use std::{fmt, time::Duration};

use serde::Deserialize;

/// Longest response of a widget, in bytes. Turnstile documents 2048, hCaptcha nothing; whatever is longer is refused
/// without a call.
pub const RESPONSE_BYTES_MAX: usize = 8_192;
/// Longest answer of a provider that is read, in bytes.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Most calls to the provider one process has open at a time.
pub const CALLS_MAX: usize = 512;
/// Most of those for one IPv4 address, or one IPv6 /48; a /64 has a tenth of it.
pub const CALLS_PER_NETWORK_MAX: u32 = 32;
/// Longest a provider may be waited for, in milliseconds.
pub const TIMEOUT_MS_MAX: u64 = 10_000;

const _: () = assert!(
    RESPONSE_BYTES_MAX + lockgate_shared::limits::PROOF_BYTES_MAX + 1_024
        < lockgate_shared::limits::BODY_BYTES_MAX,
    "a response, a proof and a code fit one body"
);
const _: () = assert!(TIMEOUT_MS_MAX < lockgate_shared::limits::REQUEST_SECONDS_MAX * 1_000);

/// Who says whether a person is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Cloudflare Turnstile.
    Turnstile,
    /// hCaptcha.
    HCaptcha,
}

impl Provider {
    /// By its name in the configuration.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "turnstile" => Some(Self::Turnstile),
            "hcaptcha" => Some(Self::HCaptcha),
            _ => None,
        }
    }

    /// Where it verifies.
    #[must_use]
    pub fn verify_url(self) -> &'static str {
        match self {
            Self::Turnstile => "https://challenges.cloudflare.com/turnstile/v0/siteverify",
            Self::HCaptcha => "https://api.hcaptcha.com/siteverify",
        }
    }

    /// The script that shows its widget.
    #[must_use]
    pub fn script(self) -> &'static str {
        match self {
            Self::Turnstile => "https://challenges.cloudflare.com/turnstile/v0/api.js",
            Self::HCaptcha => "https://js.hcaptcha.com/1/api.js?recaptchacompat=off",
        }
    }

    /// The class of the element its script looks for.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Turnstile => "cf-turnstile",
            Self::HCaptcha => "h-captcha",
        }
    }

    /// The sources it documents for a page's policy, and nothing beyond: the page that shows the widget may load
    /// its script, its frame, and what those fetch.
    #[must_use]
    pub fn content_security_policy(self) -> &'static str {
        match self {
            Self::Turnstile => {
                "default-src 'none'; style-src 'self'; script-src 'self' https://challenges.cloudflare.com; \
                 frame-src https://challenges.cloudflare.com; worker-src 'self'; connect-src 'self'; \
                 img-src 'self' data:; base-uri 'none'; frame-ancestors 'self'; form-action 'self'"
            }
            Self::HCaptcha => {
                "default-src 'none'; style-src 'self' https://hcaptcha.com https://*.hcaptcha.com; \
                 script-src 'self' https://hcaptcha.com https://*.hcaptcha.com; \
                 frame-src https://hcaptcha.com https://*.hcaptcha.com; worker-src 'self'; \
                 connect-src 'self' https://hcaptcha.com https://*.hcaptcha.com; img-src 'self' data:; \
                 base-uri 'none'; frame-ancestors 'self'; form-action 'self'"
            }
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Turnstile => "turnstile",
            Self::HCaptcha => "hcaptcha",
        })
    }
}

/// What is done while the provider cannot be reached. There is no default: each is somebody's loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenUnreachable {
    /// Nobody without a ticket enters.
    Refuse,
    /// Everybody enters as if there were no CAPTCHA.
    LetIn,
}

/// How a CAPTCHA is set up.
#[derive(Clone)]
pub struct Settings {
    /// Whose it is.
    pub provider: Provider,
    /// The public key of the widget.
    pub site_key: String,
    /// The secret that goes with it. Never logged: [`fmt::Debug`] hides it.
    pub secret: String,
    /// Where responses are verified.
    pub verify_url: String,
    /// How long the provider may take.
    pub timeout: Duration,
    /// What is done while it cannot be reached.
    pub when_unreachable: WhenUnreachable,
    /// Whether the provider is told the shopper's address.
    pub send_address: bool,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("provider", &self.provider)
            .field("site_key", &self.site_key)
            .field("verify_url", &self.verify_url)
            .finish_non_exhaustive()
    }
}

/// What a page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widget {
    /// Whose it is.
    pub provider: Provider,
    /// Its public key.
    pub site_key: String,
}

/// What the provider says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The widget was solved.
    Solved,
    /// It was not, or the response was used before, or has run out.
    Refused,
    /// The provider could not be reached, or says itself that it is out of order: the policy decides.
    Unreachable(String),
    /// An answer that whoever enters might have provoked, or that means a wrong setting. Nobody is let in for it,
    /// whatever the policy.
    Unusable(String),
}

#[derive(Deserialize)]
struct Answer {
    success: bool,
    #[serde(default, rename = "error-codes")]
    error_codes: Vec<String>,
}

/// Codes by which a provider says that our settings are wrong.
const OUR_FAULT: [&str; 4] =
    ["missing-input-secret", "invalid-input-secret", "sitekey-secret-mismatch", "bad-request"];

/// Reads a provider's answer.
#[must_use]
pub fn judge(status: u16, body: &[u8]) -> Judgement {
    match serde_json::from_slice::<Answer>(body) {
        Ok(answer) if answer.success && (200..300).contains(&status) => Judgement::Solved,
        Ok(Answer { success: false, error_codes }) => {
            if error_codes.iter().any(|code| code == "internal-error") {
                return Judgement::Unreachable("it reports internal-error".into());
            }
            match OUR_FAULT.iter().find(|fault| error_codes.iter().any(|code| code == *fault)) {
                Some(fault) => Judgement::Unusable(format!(
                    "it reports {fault}: check captcha.secret and captcha.site_key"
                )),
                None => Judgement::Refused,
            }
        }
        _ if (500..600).contains(&status) => Judgement::Unreachable(format!("it answers {status}")),
        _ => Judgement::Unusable(format!("it answers {status} without a verdict: check captcha.verify_url")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn documented_answers_are_read_as_documented() {
        let solved = br#"{"success":true,"challenge_ts":"2026-12-01T10:00:00Z","hostname":"shop.example","error-codes":[]}"#;
        assert_eq!(judge(200, solved), Judgement::Solved);
        for code in ["timeout-or-duplicate", "invalid-input-response", "already-seen-response", "new-code"] {
            let body = format!(r#"{{"success":false,"error-codes":["{code}"]}}"#);
            assert_eq!(judge(200, body.as_bytes()), Judgement::Refused, "{code}");
        }
        assert_eq!(judge(200, br#"{"success":false}"#), Judgement::Refused);
        let out = br#"{"success":false,"error-codes":["internal-error"]}"#;
        assert!(matches!(judge(200, out), Judgement::Unreachable(_)));
        let wrong = br#"{"success":false,"error-codes":["invalid-input-secret"]}"#;
        assert!(matches!(judge(200, wrong), Judgement::Unusable(why) if why.contains("captcha.secret")));
        assert!(matches!(judge(502, b"<html>"), Judgement::Unreachable(_)));
    }

    #[test]
    fn what_a_caller_could_provoke_is_never_an_outage() {
        for (status, body) in [(403, "<html>blocked"), (404, ""), (429, "slow down"), (302, ""), (200, "[]")]
        {
            assert!(matches!(judge(status, body.as_bytes()), Judgement::Unusable(_)), "{status} {body}");
        }
        assert_eq!(
            judge(400, br#"{"success":false,"error-codes":["invalid-input-response"]}"#),
            Judgement::Refused
        );
        assert!(
            matches!(judge(403, br#"{"success":true}"#), Judgement::Unusable(_)),
            "a success has its status"
        );
    }

    #[test]
    fn only_the_providers_own_sources_are_added_to_the_policy() {
        for provider in [Provider::Turnstile, Provider::HCaptcha] {
            let policy = provider.content_security_policy();
            let script = provider.script().split('/').nth(2).unwrap();
            let parent = script.split_once('.').unwrap().1;
            assert!(policy.contains(script) || policy.contains(&format!("https://*.{parent}")), "{policy}");
            assert!(!policy.contains("unsafe") && policy.starts_with("default-src 'none'"), "{policy}");
            assert_eq!(Provider::named(&provider.to_string()), Some(provider));
        }
    }

    proptest! {
        #[test]
        fn nothing_but_a_clear_yes_is_one(status in 100u16..600, body in "\\PC{0,80}") {
            prop_assume!(!body.contains("success"));
            prop_assert!(!matches!(judge(status, body.as_bytes()), Judgement::Solved | Judgement::Refused));
        }
    }
}
