//! The secret with which the content delivery network proves itself: whoever found the origin's address but goes
//! around the network does not have it.

use http::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::problem::Problem;

/// The header that carries it.
pub const ORIGIN_HEADER: HeaderName = HeaderName::from_static("x-lockgate-origin");

/// Shortest origin secret, in characters.
pub const ORIGIN_SECRET_CHARS_MIN: usize = 32;

/// The accepted secrets: one, or two while one takes the other's place. Only their digests are kept.
#[derive(Clone, Default)]
pub struct OriginSecrets {
    digests: Vec<[u8; 32]>,
}

impl OriginSecrets {
    /// Accepts one more secret.
    ///
    /// # Errors
    /// It is too short to be safe, or cannot travel in a header.
    pub fn add(&mut self, secret: &str) -> Result<(), String> {
        if secret.chars().count() < ORIGIN_SECRET_CHARS_MIN {
            return Err(format!("has fewer than {ORIGIN_SECRET_CHARS_MIN} characters"));
        }
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("holds characters that cannot travel in a header".into());
        }
        self.digests.push(Sha256::digest(secret).into());
        Ok(())
    }

    /// Accepts the secrets of `others` too.
    pub fn extend(&mut self, others: &Self) {
        self.digests.extend_from_slice(&others.digests);
    }

    /// Whether there is no secret, so that anybody may call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Lets a request through that carries one of the secrets. All are compared, over digests, in constant time.
    ///
    /// # Errors
    /// 403 `origin_required`.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.is_empty() {
            return Ok(());
        }
        let mut given = headers.get_all(ORIGIN_HEADER).iter();
        let (Some(only), None) = (given.next(), given.next()) else { return Err(origin_required()) };
        let digest: [u8; 32] = Sha256::digest(only.as_bytes()).into();
        let is_known = self.digests.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(&digest));
        if bool::from(is_known) { Ok(()) } else { Err(origin_required()) }
    }
}

impl std::fmt::Debug for OriginSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OriginSecrets({} hidden)", self.digests.len())
    }
}

fn origin_required() -> Problem {
    let detail =
        "This address is reached through the shop's public address only. Use the link you were given.";
    Problem::forbidden("origin_required", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_secret_passes_during_a_rotation_and_nothing_else() {
        let (old, new) = ("o".repeat(32), "n".repeat(40));
        let mut secrets = OriginSecrets::default();
        let with = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(ORIGIN_HEADER, value.parse().unwrap());
            }
            headers
        };
        assert!(secrets.check(&HeaderMap::new()).is_ok(), "without a secret anybody may call");
        secrets.add(&old).unwrap();
        secrets.add(&new).unwrap();
        assert!(secrets.check(&with(&[&old])).is_ok());
        assert!(secrets.check(&with(&[&new])).is_ok());
        for wrong in [vec![], vec!["x"], vec![&old[1..]], vec![old.as_str(), new.as_str()]] {
            assert_eq!(secrets.check(&with(&wrong)).unwrap_err().code, "origin_required", "{wrong:?}");
        }
        assert!(!format!("{secrets:?}").contains("ooo"));
        assert!(secrets.add("short").is_err() && secrets.add(&"ä".repeat(40)).is_err());
    }
}
