//! What an allowlist keeps: per lane, keyed hashes of accounts and of the e-mail addresses that go with them.

use lockgate_shared::ids::AccountHash;

/// Bytes kept of a listed account, and of the hash of an address. With 12 of each, one listed account is taken for
/// another with a chance of one in 2^96 per pair, and Redis needs no more memory than for 8.
pub(super) const SHORT_BYTES: usize = 12;

/// A keyed hash of an e-mail address, made for one account: the same address of two accounts has two hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmailHash([u8; SHORT_BYTES]);

impl EmailHash {
    /// The hash with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; SHORT_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; SHORT_BYTES] {
        &self.0
    }
}

/// One line of an allowlist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The account its code stands for.
    pub account: AccountHash,
    /// The address that goes with the code.
    pub email: EmailHash,
}

impl Listed {
    /// What is kept of the account.
    pub(super) fn short_account(&self) -> [u8; SHORT_BYTES] {
        short(self.account)
    }
}

/// What is kept of a listed account.
pub(super) fn short(account: AccountHash) -> [u8; SHORT_BYTES] {
    let mut bytes = [0; SHORT_BYTES];
    bytes.copy_from_slice(&account.as_bytes()[..SHORT_BYTES]);
    bytes
}

/// What an upload came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Codes that are new.
    pub added: u64,
    /// Codes that were there with this address.
    pub unchanged: u64,
    /// Codes that were there with another address, and have this one now.
    pub changed: u64,
}

impl Allowed {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            added: self.added + other.added,
            unchanged: self.unchanged + other.unchanged,
            changed: self.changed + other.changed,
        }
    }

    /// Counts one code, by the address it was there with.
    pub(super) fn count(&mut self, found: Option<[u8; SHORT_BYTES]>, email: EmailHash) {
        match found {
            None => self.added += 1,
            Some(found) if found == email.0 => self.unchanged += 1,
            Some(_) => self.changed += 1,
        }
    }
}
