//! Where credentials travel: `Authorization: Bearer`, and `__Host-` cookies. Never a query string.

use http::{HeaderMap, HeaderValue, header};

use crate::{
    ids::{ClaimId, SaleId},
    limits::{CREDENTIAL_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX},
    problem::Problem,
};

/// The bearer credential, if the request has one.
///
/// # Errors
/// The header is there but is no bearer credential, is given twice, or is too long.
pub fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    let wrong =
        || Problem::malformed("The Authorization header must be given once, as `Bearer <credential>`.");
    if given.next().is_some() {
        return Err(wrong());
    }
    let text = value.to_str().map_err(|_| wrong())?;
    let (scheme, credential) = text.split_once(' ').ok_or_else(wrong)?;
    let credential = credential.trim_matches(' ');
    if !scheme.eq_ignore_ascii_case("bearer")
        || credential.is_empty()
        || credential.len() > CREDENTIAL_BYTES_MAX
    {
        return Err(wrong());
    }
    Ok(Some(credential))
}

/// The value of the cookie `name`. Where a browser sends several, the first counts (RFC 6265, section 5.4: the
/// most specific comes first).
#[must_use]
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(key, value)| *key == name && value.len() <= CREDENTIAL_BYTES_MAX)
        .map(|(_, value)| value)
}

/// The bearer credential, else the cookie `name`.
///
/// # Errors
/// As [`bearer`].
pub fn bearer_or_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    Ok(bearer(headers)?.or_else(|| cookie(headers, name)))
}

/// The name of the cookie that keeps a sale's ticket.
#[must_use]
pub fn ticket_cookie(sale: &SaleId) -> String {
    format!("__Host-lockgate-ticket-{sale}")
}

/// The name of the cookie that keeps a sale's admission token.
#[must_use]
pub fn token_cookie(sale: &SaleId) -> String {
    format!("__Host-lockgate-token-{sale}")
}

/// The name of the cookie that keeps an order's access key.
#[must_use]
pub fn order_cookie(order: ClaimId) -> String {
    format!("__Host-lockgate-order-{order}")
}

/// A `Set-Cookie` value for a credential: this host only, never readable by scripts, gone after `seconds`.
#[must_use]
pub fn set_cookie(name: &str, value: &str, seconds: u64) -> Option<HeaderValue> {
    let text = format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}");
    HeaderValue::try_from(text).ok()
}

/// The `Idempotency-Key`, if given.
///
/// # Errors
/// It is not 1 to 128 visible ASCII characters, or is given twice.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut given = headers.get_all("idempotency-key").iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    check_idempotency_key(value.as_bytes())?;
    if given.next().is_some() {
        return Err(Problem::malformed("Idempotency-Key is given twice; send it once."));
    }
    value.to_str().map(Some).map_err(|_| Problem::malformed("Idempotency-Key is not visible ASCII."))
}

/// Checks an idempotency key wherever it came from (header or form field).
///
/// # Errors
/// It is not 1 to 128 visible ASCII characters.
pub fn check_idempotency_key(key: &[u8]) -> Result<(), Problem> {
    let visible = key.iter().all(u8::is_ascii_graphic);
    if key.is_empty() || key.len() > IDEMPOTENCY_KEY_BYTES_MAX || !visible {
        return Err(Problem::malformed(format!(
            "Idempotency-Key must be 1 to {IDEMPOTENCY_KEY_BYTES_MAX} visible ASCII characters without spaces, such as a UUID."
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        map
    }

    #[test]
    fn bearer_is_exact_about_its_form() {
        assert_eq!(bearer(&headers(&[("authorization", "bearer  abc ")])).unwrap(), Some("abc"));
        assert_eq!(bearer(&headers(&[])).unwrap(), None);
        for bad in ["Basic abc", "Bearer", "Bearer ", "abc"] {
            assert!(bearer(&headers(&[("authorization", bad)])).is_err(), "{bad}");
        }
        assert!(bearer(&headers(&[("authorization", "Bearer a"), ("authorization", "Bearer b")])).is_err());
    }

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let map = headers(&[("cookie", "xa=1; a=2;b=3"), ("cookie", "c=4; a=5")]);
        assert_eq!(cookie(&map, "a"), Some("2"));
        assert_eq!(cookie(&map, "c"), Some("4"));
        assert_eq!(cookie(&map, "x"), None);
    }

    #[test]
    fn idempotency_keys_are_bounded() {
        assert_eq!(idempotency_key(&headers(&[("idempotency-key", "k-1")])).unwrap(), Some("k-1"));
        for bad in ["", "a b", &"k".repeat(129)] {
            assert!(check_idempotency_key(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(check_idempotency_key("ä".as_bytes()).is_err());
        assert!(idempotency_key(&headers(&[("idempotency-key", "a"), ("idempotency-key", "a")])).is_err());
    }
}
