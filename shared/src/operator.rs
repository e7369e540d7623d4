//! Operator keys: who may see and who may change a sale.

use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;

use crate::{credentials, problem::Problem};

/// What a key allows. Each role includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Reads and changes.
    Operator,
}

/// Shortest operator key, in characters.
pub const OPERATOR_KEY_CHARS_MIN: usize = 32;

/// The keys that are accepted. Only their hashes are kept.
#[derive(Clone, Default)]
pub struct OperatorKeys {
    hashes: Vec<(Role, [u8; 32])>,
}

impl OperatorKeys {
    /// Adds a key.
    ///
    /// # Errors
    /// The key is too short to be safe.
    pub fn add(&mut self, role: Role, key: &str) -> Result<(), String> {
        if key.chars().count() < OPERATOR_KEY_CHARS_MIN {
            return Err(format!("has fewer than {OPERATOR_KEY_CHARS_MIN} characters"));
        }
        self.hashes.push((role, Sha256::digest(key).into()));
        Ok(())
    }

    /// Lets a request through whose bearer key has at least `role`.
    ///
    /// # Errors
    /// 401 without a known key, 403 when its role is too low.
    pub fn authorize(&self, headers: &HeaderMap, role: Role) -> Result<(), Problem> {
        let missing = || {
            Problem::new(
                StatusCode::UNAUTHORIZED,
                "operator_key_missing",
                "This address is for operators. Send `Authorization: Bearer <operator key>`.",
            )
        };
        let given: [u8; 32] = Sha256::digest(credentials::bearer(headers)?.ok_or_else(missing)?).into();
        // Every key is compared, so that the time taken tells nothing about which one came close.
        let mut found = None;
        for (has, hash) in &self.hashes {
            if bool::from(hash.ct_eq(&given)) {
                found = found.max(Some(*has));
            }
        }
        match found {
            None => Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "operator_key_invalid",
                "This operator key is not known here. Check LOCKGATE_OPERATOR_KEY.",
            )),
            Some(has) if has < role => Err(Problem::forbidden(
                "role_too_low",
                "This key may look but not change. Use an operator's key.",
            )),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(key: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", format!("Bearer {key}").parse().unwrap());
        headers
    }

    #[test]
    fn roles_and_refusals() {
        let (operator, viewer) = ("o".repeat(32), "v".repeat(32));
        let mut keys = OperatorKeys::default();
        assert!(keys.add(Role::Operator, "short").is_err());
        keys.add(Role::Operator, &operator).unwrap();
        keys.add(Role::Viewer, &viewer).unwrap();
        assert!(keys.authorize(&with(&operator), Role::Operator).is_ok());
        assert!(keys.authorize(&with(&operator), Role::Viewer).is_ok());
        assert!(keys.authorize(&with(&viewer), Role::Viewer).is_ok());
        let code = |headers: &HeaderMap| keys.authorize(headers, Role::Operator).unwrap_err().code;
        assert_eq!(code(&with(&viewer)), "role_too_low");
        assert_eq!(code(&with("x")), "operator_key_invalid");
        assert_eq!(code(&HeaderMap::new()), "operator_key_missing");
    }
}
