//! Standard Webhooks (version 1): a message is signed together with its id and its time.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName};
use lockgate_shared::{clock::Timestamp, keys::HmacSha256};
use subtle::ConstantTimeEq as _;

/// Seconds a message's time may differ from ours.
pub const TOLERANCE_SECONDS: i64 = 300;
/// Longest message id.
const ID_BYTES_MAX: usize = 128;
/// Most signatures one message may carry; more than two are only needed while keys rotate.
const SIGNATURES_MAX: usize = 16;

/// The header with the message's id.
pub const ID: HeaderName = HeaderName::from_static("webhook-id");
/// The header with its time.
pub const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
/// The header with its signatures.
pub const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Why a webhook is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// A header is missing, doubled or not of its form.
    #[error("its headers are not those of a signed webhook")]
    Headers,
    /// Its time is too far from ours.
    #[error("its time is more than {TOLERANCE_SECONDS} s from ours")]
    Time,
    /// No signature matches.
    #[error("its signature does not match")]
    Signature,
    /// It is signed, but cannot be read.
    #[error("its body cannot be read")]
    Body,
}

fn mac(secret: &[u8], id: &str, timestamp: &str, body: &[u8]) -> Option<[u8; 32]> {
    let mut mac = HmacSha256::new_from_slice(secret).ok()?;
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    Some(mac.finalize().into_bytes().into())
}

/// The signature header for a message.
#[must_use]
pub fn sign(secret: &[u8], id: &str, timestamp_seconds: i64, body: &[u8]) -> String {
    let mac = mac(secret, id, &timestamp_seconds.to_string(), body).unwrap_or_default();
    format!("v1,{}", STANDARD.encode(mac))
}

/// Checks a message against any of `secrets` and answers its id.
///
/// # Errors
/// Why it is not accepted.
pub fn verify<'a>(
    secrets: impl IntoIterator<Item = &'a [u8]>,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<String, WebhookError> {
    let (id, timestamp, signatures) =
        (only(headers, &ID)?, only(headers, &TIMESTAMP)?, only(headers, &SIGNATURE)?);
    let is_plain = |b: u8| b.is_ascii_graphic() && b != b'.';
    if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(is_plain) {
        return Err(WebhookError::Headers);
    }
    // Digits only: a sign or a space would be signed as written but read as something else.
    if timestamp.is_empty() || timestamp.len() > 12 || !timestamp.bytes().all(|b| b.is_ascii_digit()) {
        return Err(WebhookError::Headers);
    }
    let at: i64 = timestamp.parse().map_err(|_| WebhookError::Headers)?;
    let given: Vec<Vec<u8>> = signatures
        .split(' ')
        .take(SIGNATURES_MAX)
        .filter_map(|signature| signature.strip_prefix("v1,"))
        .filter_map(|text| STANDARD.decode(text).ok())
        .collect();
    let mut matches = false;
    for secret in secrets {
        let expected = mac(secret, id, timestamp, body).ok_or(WebhookError::Signature)?;
        for signature in &given {
            matches |= bool::from(expected[..].ct_eq(signature));
        }
    }
    if !matches {
        return Err(WebhookError::Signature);
    }
    if (now.seconds() - at).abs() > TOLERANCE_SECONDS {
        return Err(WebhookError::Time);
    }
    Ok(id.to_owned())
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, WebhookError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map_err(|_| WebhookError::Headers),
        _ => Err(WebhookError::Headers),
    }
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;
