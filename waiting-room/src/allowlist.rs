//! Codes and e-mail addresses as keyed hashes, and **allow**: the upload of a list of them.
//!
//! A code is an account: the account's hash is made of it, so its lane is known and one code has one place. What the
//! list keeps can be compared, not read: both hashes take the key the sale was made with.

use lockgate_shared::{
    allowlist::{Row, normal_code, normal_email},
    catalog::StoredSale,
    ids::AccountHash,
    sale::EntryRule,
    store::StoreError,
};

use crate::{
    app::{App, account_hash, keyed_hash, lane_of},
    store::{Allowed, EmailHash, Listed},
};

/// Stands on every lane's list once one was put there, for no code: a lane in which nobody is listed and one whose
/// list is lost must not look alike.
fn mark() -> Listed {
    Listed { account: AccountHash::from_bytes([0; 16]), email: EmailHash::from_bytes([0; 12]) }
}

/// Codes that one store call takes.
const LINES_PER_CALL: usize = 512;

/// The line of the list that would let `code` in with `email`; `None` for what can stand on no list.
pub(crate) fn listed(key: &[u8; 32], code: &str, email: &str) -> Option<Listed> {
    let (code, email) = (normal_code(code).ok()?, normal_email(email).ok()?);
    Some(hashed(key, code, &email))
}

fn hashed(key: &[u8; 32], code: &str, email: &str) -> Listed {
    let account = account_hash(key, b"allowlist-code\0", code.as_bytes());
    let hash = keyed_hash(key, &[b"allowlist-email\0", account.as_bytes(), email.as_bytes()]);
    let mut bytes = [0; 12];
    bytes.copy_from_slice(&hash[..12]);
    Listed { account, email: EmailHash::from_bytes(bytes) }
}

/// The lines of one upload, by lane, as hashes.
pub(crate) struct Upload<'a> {
    sale: &'a StoredSale,
    lanes: Vec<Vec<Listed>>,
}

impl<'a> Upload<'a> {
    /// An upload for a sale; `None` for a sale that has no allowlist.
    pub(crate) fn new(sale: &'a StoredSale) -> Option<Self> {
        let lanes = vec![Vec::new(); usize::from(sale.definition.lanes)];
        (sale.definition.entry == EntryRule::Allowlist).then_some(Self { sale, lanes })
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, row: &Row) {
        let secrets = &self.sale.secrets;
        let listed = hashed(&secrets.account_key, &row.code, &row.email);
        let lane = lane_of(&secrets.lane_key, listed.account, self.sale.definition.lanes);
        if let Some(lines) = self.lanes.get_mut(usize::from(lane)) {
            lines.push(listed);
        }
    }
}

impl App {
    /// **allow**: puts codes on the sale's allowlist, a bounded number with each store call. Doing it again changes
    /// nothing.
    ///
    /// # Errors
    /// The store broke; some of the codes may be on the list.
    pub(crate) async fn allow(&self, upload: Upload<'_>) -> Result<Allowed, StoreError> {
        let id = &upload.sale.definition.id;
        let mut allowed = Allowed::default();
        for (lane, lines) in (0u16..).zip(&upload.lanes) {
            self.parts.store.allow(id, lane, &[mark()]).await?;
            for lines in lines.chunks(LINES_PER_CALL) {
                allowed = allowed.and(self.parts.store.allow(id, lane, lines).await?);
            }
        }
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_one_account_and_addresses_are_compared_as_people_write_them() {
        let key = [7; 32];
        let ann = listed(&key, "ab-12", "ann@example.org").unwrap();
        assert_eq!(listed(&key, " ab-12 ", "\tANN@Example.org "), Some(ann));
        let other = listed(&key, "ab-12", "bob@example.org").unwrap();
        assert_eq!(other.account, ann.account, "the code alone says who it is");
        assert_ne!(other.email, ann.email);
        let capital = listed(&key, "AB-12", "ann@example.org").unwrap();
        assert_ne!(capital.account, ann.account);
        assert_ne!(capital.email, ann.email, "an address of two codes has two hashes");
        assert_ne!(listed(&[8; 32], "ab-12", "ann@example.org"), Some(ann), "sales have keys of their own");
        for (code, email) in [("", "a@b"), ("abc", "a@b"), ("ab cd", "a@b"), ("ab-12", ""), ("ab-12", "x")] {
            assert_eq!(listed(&key, code, email), None, "{code} {email}");
        }
        assert_eq!(listed(&key, &"c".repeat(100_000), "a@b"), None);
    }
}
