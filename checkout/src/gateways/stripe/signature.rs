//! PURE: the signatures of Stripe's webhooks, scheme `v1`.
//!
//! Source: Stripe's documentation, "Receive Stripe events in your webhook endpoint", part "Verify webhook signatures
//! manually". `Stripe-Signature: t=1492774577,v1=5257a869…,v0=…`: HMAC-SHA256 over time, a full stop and the raw body,
//! in lower-case hex, keyed with the whole text of the endpoint's secret. During the rotation of a secret there are
//! several `v1`; other schemes are not looked at.

use hmac::{KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName};
use lockgate_shared::{clock::Timestamp, keys::HmacSha256};
use subtle::ConstantTimeEq as _;

use crate::gateways::webhook::{TOLERANCE_SECONDS, WebhookError};

/// The header with time and signatures.
pub const SIGNATURE: HeaderName = HeaderName::from_static("stripe-signature");
/// Longest header that is read, in bytes. One signature takes less than a hundred.
const HEADER_BYTES_MAX: usize = 2_048;
/// Most signatures of one message that are looked at.
const SIGNATURES_MAX: usize = 16;

fn mac(secret: &[u8], timestamp: &str, body: &[u8]) -> Option<String> {
    let mut mac = HmacSha256::new_from_slice(secret).ok()?;
    for part in [timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    Some(mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The header's time as it is written, and its signatures.
fn parts(header: &str) -> Option<(&str, Vec<&str>)> {
    let (mut time, mut signatures) = (None, Vec::new());
    for part in header.split(',') {
        match part.split_once('=')? {
            ("t", _) if time.is_some() => return None,
            ("t", text) => time = Some(text),
            ("v1", text) if signatures.len() < SIGNATURES_MAX => signatures.push(text),
            _ => {}
        }
    }
    // Digits only: a sign or a space would be signed as written but read as something else.
    let time = time.filter(|text| {
        !text.is_empty() && text.len() <= 12 && text.bytes().all(|byte| byte.is_ascii_digit())
    })?;
    (!signatures.is_empty()).then_some((time, signatures))
}

/// Checks a message against any of `secrets`.
///
/// # Errors
/// Why it is not accepted.
pub fn verify<'a>(
    secrets: impl IntoIterator<Item = &'a [u8]>,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<(), WebhookError> {
    let mut values = headers.get_all(&SIGNATURE).iter();
    let header = match (values.next(), values.next()) {
        (Some(value), None) if value.len() <= HEADER_BYTES_MAX => value.to_str().ok(),
        _ => None,
    };
    let (time, signatures) = header.and_then(parts).ok_or(WebhookError::Headers)?;
    let at: i64 = time.parse().map_err(|_| WebhookError::Headers)?;
    let mut matches = false;
    for secret in secrets {
        let expected = mac(secret, time, body).ok_or(WebhookError::Signature)?;
        for signature in &signatures {
            matches |= bool::from(expected.as_bytes().ct_eq(signature.as_bytes()));
        }
    }
    if !matches {
        return Err(WebhookError::Signature);
    }
    if (now.seconds() - at).abs() > TOLERANCE_SECONDS {
        return Err(WebhookError::Time);
    }
    Ok(())
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
