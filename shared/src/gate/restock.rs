//! Changing an item's stock while its sale runs: the messages.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ItemStock;
use crate::{ids::ItemId, limits::STOCK_MAX, problem::Problem};

/// A change of an item's stock: all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestockRequest {
    /// Names the change; the same id is the same change for ever.
    pub id: Uuid,
    /// The item.
    pub item: ItemId,
    /// Units to add, or to withdraw where it is negative.
    pub change: i64,
}

impl RestockRequest {
    /// Whether the change is one at all.
    ///
    /// # Errors
    /// 400 `malformed`.
    pub fn check(&self) -> Result<(), Problem> {
        if self.change != 0 && self.change.unsigned_abs() <= u64::from(STOCK_MAX) {
            return Ok(());
        }
        Err(Problem::malformed(format!(
            "'change' is {}; it adds 1 to {STOCK_MAX} units, or withdraws as many (-1 to -{STOCK_MAX}).",
            self.change
        )))
    }
}

/// How a change of an item's stock ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RestockAnswer {
    /// The stock is changed, now or by the same id before.
    Changed {
        /// The item's counts at this moment.
        counts: ItemStock,
        /// Whether the change had been made before.
        replayed: bool,
    },
    /// Too many of the units are held or sold.
    Taken {
        /// The item's counts.
        counts: ItemStock,
        /// Units that stay at least: all that are held or sold, and one.
        least: u32,
    },
    /// There would be more units than one item has.
    TooMany {
        /// The item's counts.
        counts: ItemStock,
        /// Units that one item has at most.
        most: u32,
    },
    /// Fewer units would be left than the sale-wide limit says are sold.
    BelowTotalLimit {
        /// The sale-wide limit.
        limit: u32,
        /// Units all items would have together.
        total: u64,
    },
    /// The sale's stock was changed too often.
    TooManyChanges {
        /// Changes that one sale takes at most.
        most: usize,
    },
    /// The id was used for another change.
    Mismatch,
    /// The sale has no such item.
    NoSuchItem,
}
