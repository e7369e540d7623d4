//! PURE: which findings stay. Gate, orders and payments are read at different moments; what is merely under way between
//! two of them is gone, or says something else, a round later.

use std::collections::BTreeMap;

use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId},
};

use super::{Finding, Kind};
use crate::payment::PaymentId;

/// Rounds in a row that must find the same.
pub const ROUNDS_MIN: u32 = 3;
/// Findings remembered at most; where there are more, the sale has other troubles.
const FINDINGS_MAX: usize = 10_000;

/// What a finding is told apart by.
type Key = (Kind, Option<ClaimId>, Option<PaymentId>, ItemId);

/// A finding that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What was found, the same again and again.
    pub finding: Finding,
    /// Since when.
    pub since: Timestamp,
}

#[derive(Clone, Debug)]
struct Seen {
    finding: Finding,
    since: Timestamp,
    rounds: u32,
}

/// What was found in a sale, round by round.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    seen: BTreeMap<Key, Seen>,
}

impl Watch {
    /// Takes the findings of one round and answers those that stand.
    pub fn round(&mut self, findings: Vec<Finding>, now: Timestamp) -> Vec<Standing> {
        let mut before = std::mem::take(&mut self.seen);
        for finding in findings.into_iter().take(FINDINGS_MAX) {
            let key = (finding.kind, finding.order, finding.payment, finding.item.clone());
            let seen = match before.remove(&key) {
                Some(seen) if seen.finding == finding => {
                    Seen { rounds: seen.rounds.saturating_add(1), ..seen }
                }
                _ => Seen { finding, since: now, rounds: 1 },
            };
            self.seen.insert(key, seen);
        }
        let stands = |seen: &&Seen| {
            let patience = seen.finding.kind.patience_seconds();
            seen.rounds >= ROUNDS_MIN && seen.since.plus_seconds(patience) <= now
        };
        let standing = self.seen.values().filter(stands);
        standing.map(|seen| Standing { finding: seen.finding.clone(), since: seen.since }).collect()
    }

    /// How many differences the last round found, whether they stand or not.
    #[must_use]
    pub fn differences(&self) -> usize {
        self.seen.values().filter(|seen| seen.finding.kind.is_difference()).count()
    }

    /// Whether the last round found nothing at all.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.seen.is_empty()
    }
}
