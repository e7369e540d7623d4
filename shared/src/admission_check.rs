//! The admission token of a request, checked without any store.

use crate::{
    admission_token::AdmissionToken, catalog::StoredSale, clock::Timestamp, credentials, jwt::JwtError,
    keys::KeyRing, problem::Problem,
};
use http::{HeaderMap, StatusCode};

/// The token of a request to `sale`, from `Authorization` or the sale's cookie.
///
/// # Errors
/// 403 `token_missing`, `token_invalid`, `token_expired`, `token_wrong_sale`, `token_revoked`.
pub fn check(
    headers: &HeaderMap,
    sale: &StoredSale,
    ring: &KeyRing,
    now: Timestamp,
) -> Result<AdmissionToken, Problem> {
    let id = &sale.definition.id;
    let name = credentials::token_cookie(id);
    // A header that is no bearer credential is a credential that is not valid: the shopper must go and fetch one.
    let text = credentials::bearer_or_cookie(headers, &name).map_err(|_| invalid())?;
    let text = text.ok_or_else(|| {
        let detail = "Checking out takes an admission token. Wait in line for your turn; the queue page gives you one.";
        Problem::forbidden("token_missing", detail).with("queue_url", queue_path(sale))
    })?;
    let token = AdmissionToken::verify(text, ring, now).map_err(|error| match error {
        JwtError::Expired => over("token_expired", "Your time to check out is over.", sale),
        _ => invalid(),
    })?;
    if token.sale != *id {
        let detail = "This admission token is for another sale. Use the one you were given for this sale.";
        return Err(Problem::forbidden("token_wrong_sale", detail));
    }
    if is_revoked(&token, sale) {
        let detail = "The admissions of this sale were called back.";
        return Err(over("token_revoked", detail, sale));
    }
    Ok(token)
}

/// Whether the sale's epoch was raised after the token was issued.
#[must_use]
pub fn is_revoked(token: &AdmissionToken, sale: &StoredSale) -> bool {
    token.epoch < sale.controls.epoch
}

fn invalid() -> Problem {
    let detail = "This is not a valid admission token. Send it unchanged, as you were given it.";
    Problem::new(StatusCode::FORBIDDEN, "token_invalid", detail)
}

fn over(code: &'static str, what: &str, sale: &StoredSale) -> Problem {
    let detail = format!("{what} Return to the queue page to see what to do next.");
    Problem::forbidden(code, detail).with("queue_url", queue_path(sale))
}

fn queue_path(sale: &StoredSale) -> String {
    format!("/sale/{}/queue", sale.definition.id)
}
