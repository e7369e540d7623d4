//! Typed identifiers. Each is validated where it enters and cannot be confused with another afterwards.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::limits::{ITEM_ID_BYTES_MAX, SALE_ID_BYTES_MAX, TOKEN_ID_BYTES_MAX};

fn check_length(text: &str, bytes_max: usize) -> Result<(), String> {
    if text.is_empty() || text.len() > bytes_max {
        return Err(format!("must have 1 to {bytes_max} characters, has {}", text.len()));
    }
    Ok(())
}

fn check_name(text: &str, bytes_max: usize) -> Result<(), String> {
    check_length(text, bytes_max)?;
    match text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
        Some(c) => Err(format!("may hold a-z, 0-9 and '-', not {c:?}")),
        None => Ok(()),
    }
}

fn check_base64url(text: &str, bytes_max: usize) -> Result<(), String> {
    check_length(text, bytes_max)?;
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))) {
        Some(c) => Err(format!("may hold letters, digits, '-' and '_', not {c:?}")),
        None => Ok(()),
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $check:ident, $bytes_max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                $check(text, $bytes_max)?;
                Ok(Self(text.into()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

name_type!(
    /// A sale: `a-z`, `0-9`, `-`, at most 64 bytes.
    SaleId,
    check_name,
    SALE_ID_BYTES_MAX
);
name_type!(
    /// An item of a sale: `a-z`, `0-9`, `-`, at most 64 bytes.
    ItemId,
    check_name,
    ITEM_ID_BYTES_MAX
);
name_type!(
    /// The id of an admission token (its `jti`): letters, digits, `-` and `_`, at most 64 bytes.
    TokenId,
    check_base64url,
    TOKEN_ID_BYTES_MAX
);

/// An account as Lockgate knows it: 128 bits, a keyed hash of the shop's name for it (or random for an anonymous
/// shopper). The name itself is never stored. On the wire: 22 characters of base64url.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountHash([u8; 16]);

impl AccountHash {
    /// From its bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The first 64 bits: what the sold-out snapshot keeps per account that holds or bought.
    #[must_use]
    pub fn short(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for AccountHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl FromStr for AccountHash {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| "is not base64url".to_owned())?;
        Ok(Self(bytes.try_into().map_err(|_| "is not 16 bytes long".to_owned())?))
    }
}

impl Serialize for AccountHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AccountHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A claim. One claim makes at most one hold and one order, so the same id names all three.
///
/// It is derived from sale, account and the shopper's idempotency key, so that a repeated request finds its
/// claim without any table. It is not a secret: reading an order takes its access key or the account's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimId(Uuid);

impl ClaimId {
    /// The claim that `key` names for `account` in `sale`: a version 8 UUID (RFC 9562, section 5.8) over
    /// SHA-256 of the three.
    #[must_use]
    pub fn derive(sale: &SaleId, account: &AccountHash, key: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"lockgate-claim-v1\0");
        hash.update(sale.as_str());
        hash.update(b"\0");
        hash.update(account.as_bytes());
        hash.update(key);
        let digest = hash.finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(Uuid::new_v8(bytes))
    }

    /// The UUID.
    #[must_use]
    pub fn uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for ClaimId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl FromStr for ClaimId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        // Only the hyphenated form: one claim has one spelling, in addresses, logs and keys.
        if text.len() != 36 {
            return Err("is not a UUID of 36 characters".to_owned());
        }
        Uuid::try_parse(text).map(Self).map_err(|_| "is not a UUID".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_plain() {
        assert!("phone-drop-2".parse::<SaleId>().is_ok());
        for bad in ["", "Phone", "a b", "../x", "ä", &"a".repeat(65)] {
            assert!(bad.parse::<SaleId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn token_ids_are_bounded_and_plain() {
        assert!("AZaz09-_AZaz09-_AZaz09".parse::<TokenId>().is_ok());
        for bad in ["", "a b", "a|b", "a\nb", "ä", "a+b", "a=", &"a".repeat(65)] {
            assert!(bad.parse::<TokenId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_claim_id_depends_on_all_three_parts() {
        let sale: SaleId = "demo".parse().unwrap();
        let (a, b) = (AccountHash::from_bytes([1; 16]), AccountHash::from_bytes([2; 16]));
        let claim = ClaimId::derive(&sale, &a, "k1");
        assert_eq!(claim, ClaimId::derive(&sale, &a, "k1"));
        assert_ne!(claim, ClaimId::derive(&sale, &b, "k1"));
        assert_ne!(claim, ClaimId::derive(&sale, &a, "k2"));
        assert_ne!(claim, ClaimId::derive(&"demo2".parse().unwrap(), &a, "k1"));
        assert_eq!(claim.to_string().parse::<ClaimId>(), Ok(claim));
    }

    #[test]
    fn an_account_reads_back_and_refuses_trailing_bits() {
        let account = AccountHash::from_bytes([0xff; 16]);
        assert_eq!(account.to_string().parse(), Ok(account));
        // The last character carries 4 unused bits; a decoder that ignores them gives one account two spellings.
        assert!("_____________________x".parse::<AccountHash>().is_err());
    }
}
