//! A name for each request, to find it in logs: taken from a trusted proxy, else made here.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header that carries it.
pub const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Lengths a given name may have, in bytes.
const BYTES_MIN: usize = 8;
const BYTES_MAX: usize = 128;

tokio::task_local! {
    /// The name of the request that this task is about; problems carry it to the shopper and to the log.
    pub(super) static REQUEST_ID: HeaderValue;
}

/// The name of the request that is being answered, if one is.
#[must_use]
pub fn current() -> Option<String> {
    REQUEST_ID.try_with(|id| id.to_str().map(str::to_owned).ok()).ok().flatten()
}

/// The name a trusted proxy gave, if it is well-formed: 8 to 128 letters, digits, `-`, `_` or `.`.
pub(super) fn given(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut given = headers.get_all(REQUEST_ID_HEADER).iter();
    let (Some(only), None) = (given.next(), given.next()) else { return None };
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = (BYTES_MIN..=BYTES_MAX).contains(&only.len()) && only.as_bytes().iter().all(plain);
    fits.then(|| only.clone())
}

/// A new name: 128 random bits in hex.
pub(super) fn made() -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut bits = rand::random::<u128>();
    let text: [u8; 32] = std::array::from_fn(|_| {
        let digit = DIGITS[(bits & 15) as usize];
        bits >>= 4;
        digit
    });
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(REQUEST_ID_HEADER, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn only_plain_names_are_taken() {
        assert_eq!(given(&with(&["01J9-abc_DEF.7"])).unwrap(), "01J9-abc_DEF.7");
        for wrong in ["short", "with space x", "<script>alert(1)</script>", "a\tbcdefghi", &"x".repeat(129)] {
            assert!(given(&with(&[wrong])).is_none(), "{wrong}");
        }
        assert!(given(&with(&["abcdefgh", "abcdefgh"])).is_none());
        assert!(given(&HeaderMap::new()).is_none());
    }

    #[test]
    fn made_names_are_well_formed_and_differ() {
        let (one, two) = (made(), made());
        assert_ne!(one, two);
        let headers = HeaderMap::from_iter([(REQUEST_ID_HEADER, one.clone())]);
        assert_eq!(given(&headers), Some(one));
    }
}
