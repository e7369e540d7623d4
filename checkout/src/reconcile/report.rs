//! PURE: what is told of a comparison.

use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId},
};
use serde::{Deserialize, Serialize};

use super::Standing;
use crate::payment::PaymentId;

/// Differences listed of one sale.
const LISTED_MAX: usize = 100;

/// A difference that stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// What kind, see [`Kind`](super::Kind).
    pub kind: String,
    /// The order or claim.
    pub order: Option<ClaimId>,
    /// The attempt.
    pub payment: Option<PaymentId>,
    /// The item.
    pub item: ItemId,
    /// Units the gate counts, less those the orders count.
    pub units: i64,
    /// Money that payments keep, less what was sold, in minor units.
    pub money: i64,
    /// What each side said.
    pub seen: String,
    /// Since when.
    pub since: Timestamp,
    /// Whether it is repaired by itself; otherwise it is for people.
    pub is_repaired: bool,
}

/// The differences of one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemDifference {
    /// The item.
    pub item: ItemId,
    /// Units about which gate and orders do not agree.
    pub units: u64,
    /// Money about which orders and payments do not agree, in minor units.
    pub money: u64,
    /// How many differences there are.
    pub count: u64,
}

/// What the last comparison of a sale found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciled {
    /// When.
    pub checked_at: Timestamp,
    /// How many differences stand.
    pub differences: u64,
    /// How many more were found that may only have been under way.
    #[serde(default)]
    pub unconfirmed: u64,
    /// Item by item.
    pub items: Vec<ItemDifference>,
    /// The first of them.
    pub listed: Vec<Listed>,
}

impl Reconciled {
    /// What `differences` come to for a sale with these items; `unconfirmed` more do not stand yet.
    #[must_use]
    pub fn of(now: Timestamp, items: &[ItemId], differences: &[Standing], unconfirmed: usize) -> Self {
        let line = |item: &ItemId| {
            let own = differences.iter().map(|one| &one.finding).filter(|finding| finding.item == *item);
            let mut line = ItemDifference { item: item.clone(), units: 0, money: 0, count: 0 };
            for finding in own {
                line.units = line.units.saturating_add(finding.units.unsigned_abs());
                line.money = line.money.saturating_add(finding.money.unsigned_abs());
                line.count += 1;
            }
            line
        };
        Self {
            checked_at: now,
            differences: differences.len() as u64,
            unconfirmed: unconfirmed as u64,
            items: items.iter().map(line).collect(),
            listed: differences.iter().take(LISTED_MAX).map(Listed::from).collect(),
        }
    }

    /// Whether it was made after the sale ended, where that moment is known, and after its orders changed last.
    #[must_use]
    pub fn is_after(&self, ended_at: Option<Timestamp>, changed_at: Option<Timestamp>) -> bool {
        [ended_at, changed_at].into_iter().flatten().all(|moment| self.checked_at >= moment)
    }

    /// Whether it found nothing, neither what stands nor what may be under way.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.differences == 0 && self.unconfirmed == 0
    }
}

impl From<&Standing> for Listed {
    fn from(one: &Standing) -> Self {
        Self {
            kind: one.finding.kind.as_str().to_owned(),
            order: one.finding.order,
            payment: one.finding.payment,
            item: one.finding.item.clone(),
            units: one.finding.units,
            money: one.finding.money,
            seen: one.finding.seen.clone(),
            since: one.since,
            is_repaired: one.finding.kind.repair().is_some(),
        }
    }
}
