//! Operator keys: who may see and who may change a sale.

use std::fmt;

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

/// Who acts, as it is written into the audit log: the role, and the first bytes of the key's hash, which tell keys apart and
/// give none away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    role: Role,
    key_hash: [u8; 4],
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
        };
        write!(f, "{role}-{:08x}", u32::from_be_bytes(self.key_hash))
    }
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

    /// Lets a request through whose bearer key has at least `role`, and answers whose it is.
    ///
    /// # Errors
    /// 401 without a known key, 403 when its role is too low.
    pub fn authorize(&self, headers: &HeaderMap, role: Role) -> Result<Actor, Problem> {
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
            Some(role) => Ok(Actor { role, key_hash: [given[0], given[1], given[2], given[3]] }),
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
        let by = |key: &str| keys.authorize(&with(key), Role::Viewer).unwrap().to_string();
        let hash: String = Sha256::digest(&viewer)[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(by(&viewer), format!("viewer-{hash}"));
        assert!(by(&operator).starts_with("operator-") && !by(&operator).contains("oooo"));
        let code = |headers: &HeaderMap| keys.authorize(headers, Role::Operator).unwrap_err().code;
        assert_eq!(code(&with(&viewer)), "role_too_low");
        assert_eq!(code(&with("x")), "operator_key_invalid");
        assert_eq!(code(&HeaderMap::new()), "operator_key_missing");
    }
}
