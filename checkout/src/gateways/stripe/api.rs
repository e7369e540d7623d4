//! Calls of Stripe's REST API: forms out, JSON back, both bounded. What went wrong is said without the key.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use lockgate_shared::circuit::{Circuit, CircuitSettings};
use serde::{Deserialize, de::DeserializeOwned};

use super::Settings;
use crate::gateways::GatewayError;

/// The version of the API that this is written for. It goes with every call, so that the account's own default, and
/// whatever Stripe releases later, change nothing.
pub const API_VERSION: &str = "2024-06-20";
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Longest time until a connection stands.
const CONNECT_LIMIT: Duration = Duration::from_secs(4);
/// Longest of Stripe's messages that is passed on, in characters.
const MESSAGE_CHARS_MAX: usize = 200;
/// Stripe's own bound is a rate, far above what so many calls at a time come to.
const CIRCUIT: CircuitSettings =
    CircuitSettings { at_once: 64, wait: Duration::from_secs(2), pause: Duration::from_secs(1) };

pub(super) struct Api {
    client: reqwest::Client,
    base: String,
    circuit: Circuit,
}

/// An answer, whatever it says. Only one that says nothing about the call itself (none at all, too many calls, a fault
/// at Stripe's) is an error instead.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// Whether Stripe had answered this very call before and says the same again.
    pub(super) is_replayed: bool,
    body: Vec<u8>,
}

/// Why a call was refused.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Refusal {
    #[serde(default, rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) code: Option<String>,
    #[serde(default)]
    pub(super) param: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Deserialize)]
struct Refused {
    error: Refusal,
}

impl Api {
    pub(super) fn new(settings: &Settings) -> Result<Self, String> {
        let mut key = HeaderValue::try_from(format!("Bearer {}", settings.secret_key))
            .map_err(|_| "the secret key cannot travel in a header".to_owned())?;
        key.set_sensitive(true);
        let headers = HeaderMap::from_iter([
            (header::AUTHORIZATION, key),
            (http::HeaderName::from_static("stripe-version"), HeaderValue::from_static(API_VERSION)),
        ]);
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .timeout(settings.call_limit)
            .connect_timeout(CONNECT_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .build()
            .map_err(|error| error.to_string())?;
        let base = settings.api_url.trim_end_matches('/').to_owned();
        Ok(Self { client, base, circuit: Circuit::new("stripe", CIRCUIT) })
    }

    pub(super) async fn get(&self, verb: &'static str, path: &str) -> Result<Reply, GatewayError> {
        self.send(verb, self.client.get(format!("{}{path}", self.base))).await
    }

    /// `key` makes it one call however often it is made.
    pub(super) async fn post(
        &self,
        verb: &'static str,
        path: &str,
        key: &str,
        form: &[(String, String)],
    ) -> Result<Reply, GatewayError> {
        let request = self.client.post(format!("{}{path}", self.base));
        self.send(verb, request.header("idempotency-key", key).form(form)).await
    }

    async fn send(
        &self,
        verb: &'static str,
        request: reqwest::RequestBuilder,
    ) -> Result<Reply, GatewayError> {
        let failed = |cause: String| GatewayError { verb, cause };
        let answer = self.circuit.call(|_| true, answered(request)).await;
        answer.map_err(|refused| failed(refused.to_string()))?.map_err(failed)
    }
}

async fn answered(request: reqwest::RequestBuilder) -> Result<Reply, String> {
    let mut answer = request.send().await.map_err(|error| words_of(&error).to_owned())?;
    let status = answer.status().as_u16();
    let is_replayed = answer.headers().get("idempotent-replayed").is_some_and(|value| value == "true");
    // What is replayed is what became of the first call, and says nothing about Stripe's health now.
    if status == 429 || (status >= 500 && !is_replayed) {
        return Err(format!("Stripe answered {status}"));
    }
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(|error| words_of(&error).to_owned())? {
        if body.len() + part.len() > ANSWER_BYTES_MAX {
            return Err(format!("the answer is larger than {ANSWER_BYTES_MAX} bytes"));
        }
        body.extend_from_slice(&part);
    }
    Ok(Reply { status, is_replayed, body })
}

fn words_of(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "no answer came in time"
    } else if error.is_connect() {
        "no connection can be made"
    } else {
        "the connection broke"
    }
}

impl Reply {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether Stripe had failed at this very call before. It says so for as long as it remembers the key.
    pub(super) fn is_spent(&self) -> bool {
        self.is_replayed && self.status >= 500
    }

    /// What it holds, if the call was not refused.
    pub(super) fn read<T: DeserializeOwned>(&self, verb: &'static str) -> Result<T, GatewayError> {
        if !self.is_success() {
            return Err(self.refused(verb));
        }
        // Where, not what: it may hold the buyer's address.
        serde_json::from_slice(&self.body).map_err(|error| GatewayError {
            verb,
            cause: format!("the answer cannot be read from its byte {} on", error.column()),
        })
    }

    /// Why the call was refused.
    pub(super) fn refusal(&self) -> Refusal {
        serde_json::from_slice::<Refused>(&self.body).map(|refused| refused.error).unwrap_or_default()
    }

    /// The refusal as an operator reads it. What Stripe says of keys stays out.
    pub(super) fn refused(&self, verb: &'static str) -> GatewayError {
        let refusal = self.refusal();
        let mut cause = format!("Stripe answered {} {}", self.status, refusal.kind);
        for (name, value) in [("code", &refusal.code), ("param", &refusal.param)] {
            if let Some(value) = value {
                cause = format!("{cause}, {name} {value}");
            }
        }
        match refusal.message {
            _ if self.status == 401 => cause.push_str("; check stripe.secret_key"),
            _ if self.status == 403 => cause.push_str("; check what the key in stripe.secret_key may do"),
            Some(message) if !names_a_key(&message) => {
                cause.push_str(": ");
                cause.extend(message.chars().take(MESSAGE_CHARS_MAX));
            }
            _ => {}
        }
        GatewayError { verb, cause }
    }
}

fn names_a_key(message: &str) -> bool {
    ["sk_", "rk_", "pk_", "whsec_"].iter().any(|prefix| message.contains(prefix))
}
