//! PURE. Responses that were solved, and by whom: providers accept each once, so that whoever asks again after an
//! answer of ours was lost would be refused for nothing.

use std::collections::HashSet;

use lockgate_shared::{clock::Timestamp, ids::AccountHash};
use sha2::{Digest as _, Sha256};

/// How long a response is remembered at least, in seconds: the life both providers give it at most.
const LIFE_SECONDS: u64 = 300;
/// Responses remembered before the older half is forgotten early.
const HALF_MAX: usize = 20_000;

/// Solved responses, in two halves that take turns: bounded, and forgotten without a look at each.
#[derive(Debug, Default)]
pub struct Passed {
    young: HashSet<[u8; 16]>,
    old: HashSet<[u8; 16]>,
    turned_at: Timestamp,
}

impl Passed {
    /// Remembers that `account` has solved this.
    pub fn note(&mut self, response: &str, account: AccountHash, now: Timestamp) {
        self.turn(now);
        self.young.insert(name(response, account));
    }

    /// Whether `account` has solved this before.
    pub fn knows(&mut self, response: &str, account: AccountHash, now: Timestamp) -> bool {
        self.turn(now);
        let name = name(response, account);
        self.young.contains(&name) || self.old.contains(&name)
    }

    fn turn(&mut self, now: Timestamp) {
        let age = now.since(self.turned_at).as_secs();
        if age < LIFE_SECONDS && self.young.len() < HALF_MAX {
            return;
        }
        self.old = if age < 2 * LIFE_SECONDS { std::mem::take(&mut self.young) } else { HashSet::new() };
        self.young.clear();
        self.turned_at = now;
    }
}

fn name(response: &str, account: AccountHash) -> [u8; 16] {
    let digest = Sha256::new().chain_update(account.as_bytes()).chain_update(response).finalize();
    std::array::from_fn(|at| digest[at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn account(n: u8) -> AccountHash {
        AccountHash::from_bytes([n; 16])
    }

    proptest! {
        #[test]
        fn a_response_is_known_for_its_life_to_its_own_account_only(start in 0u64..2_000, later in 0u64..2_000) {
            let at = |seconds| Timestamp::from_seconds(1_800_000_000).plus_seconds(seconds);
            let mut passed = Passed::default();
            passed.note("other", account(3), at(0));
            passed.note("r", account(1), at(start));
            let known = passed.knows("r", account(1), at(start + later));
            prop_assert!(known || later >= LIFE_SECONDS);
            prop_assert!(!known || later < 2 * LIFE_SECONDS);
            prop_assert!(!passed.knows("r", account(2), at(start + later)));
            prop_assert!(!passed.knows("s", account(1), at(start + later)));
        }
    }

    #[test]
    fn a_flood_does_not_grow_it() {
        let mut passed = Passed::default();
        let now = Timestamp::from_seconds(1_800_000_000);
        for n in 0..3 * HALF_MAX {
            passed.note(&n.to_string(), account(1), now);
        }
        assert!(passed.young.len() + passed.old.len() <= 2 * HALF_MAX);
        assert!(passed.knows(&(3 * HALF_MAX - 1).to_string(), account(1), now), "the newest are kept");
    }
}
