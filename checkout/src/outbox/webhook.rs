//! Signed webhooks to the shop, by the Standard Webhooks scheme.

use std::{net::IpAddr, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, StatusCode, header};
use lockgate_shared::{clock::Timestamp, ids::ClaimId};
use serde::Serialize;

use super::{
    Undelivered,
    message::{Message, MessageKind},
};
use crate::{gateways::webhook, payment::Money};

/// Longest one delivery may take.
const DELIVERY_LIMIT: Duration = Duration::from_secs(15);
/// Longest the shop's host may take to be reached.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Shortest and longest secret, in bytes, as the scheme asks for.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret that signs webhooks.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Vec<u8>);

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hidden")
    }
}

impl WebhookSecret {
    /// Reads `whsec_` and base64 of 24 to 64 random bytes.
    ///
    /// # Errors
    /// What is wrong, without the secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        let coded = text.strip_prefix("whsec_").ok_or("does not begin with whsec_")?;
        let bytes = STANDARD.decode(coded).map_err(|_| "is not base64 after whsec_")?;
        if SECRET_BYTES.contains(&bytes.len()) {
            return Ok(Self(bytes));
        }
        Err(format!("has {} bytes, not {} to {}", bytes.len(), SECRET_BYTES.start(), SECRET_BYTES.end()))
    }
}

/// Where the shop takes webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The address: https, or http on this machine.
    pub url: String,
    /// What signs, each for itself: more than one while secrets are changed.
    pub secrets: Vec<WebhookSecret>,
}

/// The shop's address: https, or http on this machine, because it carries buyers' addresses.
///
/// # Errors
/// What is wrong with it.
pub fn check_webhook_url(text: &str) -> Result<String, String> {
    let wrong = || format!("'{text}' is no https address");
    let uri: http::Uri = text.parse().map_err(|_| wrong())?;
    let authority = uri.authority().ok_or_else(wrong)?;
    if authority.as_str().contains('@') {
        return Err("holds a user; webhooks prove themselves by their signature".into());
    }
    let host = authority.host().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match uri.scheme_str() {
        Some("https") => Ok(text.to_owned()),
        Some("http") if is_here => Ok(text.to_owned()),
        Some("http") => Err(format!("'{text}' would carry buyers' addresses unencrypted")),
        _ => Err(wrong()),
    }
}

/// What the shop reads.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: Timestamp,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    order_id: ClaimId,
    state: &'a str,
    sale: &'a str,
    item: &'a str,
    units: &'a [u32],
    #[serde(skip_serializing_if = "Option::is_none")]
    units_before: Option<&'a [u32]>,
    amount: i64,
    currency: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    refund: Option<&'a Money>,
    claimed_at: Timestamp,
    hold_expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<&'static str>,
    order_url: String,
}

/// Sends webhooks.
pub(crate) struct Hook {
    client: reqwest::Client,
    settings: WebhookSettings,
}

impl Hook {
    pub(crate) fn new(settings: WebhookSettings) -> Result<Self, String> {
        let client = reqwest::Client::builder()
            .timeout(DELIVERY_LIMIT)
            .connect_timeout(CONNECT_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .user_agent("Lockgate")
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, settings })
    }

    /// The body of a message: the same bytes however often it is sent.
    fn body(message: &Message, public_url: &str) -> Result<String, Undelivered> {
        let content = &message.content;
        let tells_refund = matches!(
            message.kind,
            MessageKind::RefundDue | MessageKind::Refunded | MessageKind::PaymentRefunded
        );
        let body = Body {
            kind: message.kind.as_str(),
            timestamp: message.created_at,
            data: Data {
                order_id: message.id.order,
                state: &content.state,
                sale: content.sale.as_str(),
                item: content.item.as_str(),
                units: &content.units,
                units_before: content.units_before.as_deref(),
                amount: content.price.amount,
                currency: &content.price.currency,
                refund: content.money.as_ref().filter(|_| tells_refund),
                claimed_at: content.claimed_at,
                hold_expires_at: content.hold_expires_at,
                email: content.email.as_deref(),
                language: content.language.map(lockgate_shared::language::Language::as_str),
                order_url: format!("{public_url}/orders/{}", message.id.order),
            },
        };
        serde_json::to_string(&body).map_err(|error| Undelivered::for_good(error.to_string()))
    }

    /// Sends a message, signed at `now`.
    pub(crate) async fn send(
        &self,
        message: &Message,
        public_url: &str,
        now: Timestamp,
    ) -> Result<(), Undelivered> {
        let (body, id, at) = (Self::body(message, public_url)?, message.id.to_string(), now.seconds());
        let signature = signatures(&self.settings.secrets, &id, at, body.as_bytes());
        let answer = self
            .client
            .post(&self.settings.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(webhook::ID, &id)
            .header(webhook::TIMESTAMP, at)
            .header(webhook::SIGNATURE, signature)
            .body(body)
            .send()
            .await;
        match answer {
            // What the shop answers beyond its status is not read.
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(judge(answer.status(), answer.headers(), now)),
            Err(error) => {
                // Without its address, which may hold what only the shop should know.
                let error = error.without_url();
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                Err(Undelivered::by_receiver(format!("{error}: {cause}"), None))
            }
        }
    }
}

/// The signatures of a message, one by each secret.
fn signatures(secrets: &[WebhookSecret], id: &str, at_seconds: i64, body: &[u8]) -> String {
    let signed = secrets.iter().map(|secret| webhook::sign(&secret.0, id, at_seconds, body));
    signed.collect::<Vec<_>>().join(" ")
}

fn judge(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Undelivered {
    let problem = format!("the shop answered {}", status.as_u16());
    let asked = headers
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| retry_after_seconds(text, now));
    match status.as_u16() {
        410 => Undelivered::for_good(problem),
        // Answers that any message would get.
        300..=399 | 401 | 403 | 404 | 405 | 408 | 429 | 500.. => Undelivered::by_receiver(problem, asked),
        _ => Undelivered { not_before_seconds: asked, ..Undelivered::for_now(problem) },
    }
}

/// `Retry-After` (RFC 9110, section 10.2.3): seconds, or a date.
fn retry_after_seconds(text: &str, now: Timestamp) -> Option<u64> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(seconds);
    }
    let date = jiff::fmt::rfc2822::parse(text.trim()).ok()?;
    u64::try_from(date.timestamp().as_second() - now.seconds()).ok()
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;
