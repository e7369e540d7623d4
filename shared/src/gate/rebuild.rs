//! Freezing a sale and rebuilding its stock: the messages.
//!
//! freeze -> read the surviving holds -> stage the rebuilt stock, page by page -> conclude, which replaces the stock and
//! reopens the sale in one step. Any number of processes may do it at once: the first to conclude wins, the others
//! are told that theirs is stale.

use http::Method;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{GateClient, GateError, Hold, ledger::Ledger};
use crate::{
    clock::Timestamp,
    ids::{AccountHash, ItemId, SaleId},
};

/// Closes a sale until its stock is rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreezeRequest {
    /// Freeze only a stock of this generation: what was found suspicious may have been rebuilt since. `None`: whatever
    /// it is.
    pub if_generation: Option<u64>,
    /// Why, for the log.
    pub why: String,
}

/// How a freeze ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum FreezeAnswer {
    /// The sale is frozen, now or before.
    Frozen(Freeze),
    /// It was rebuilt since, and is not frozen.
    Rebuilt {
        /// The generation it has.
        generation: u64,
    },
}

/// A freeze that stands: what a rebuilt stock is staged and concluded under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// Names it.
    pub id: Uuid,
    /// How often the stock was put there, the first time included: 0 for a new sale.
    pub generation: u64,
}

/// Some of the holds a store has, whatever state it is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldsPage {
    /// Those that can be read. One may come twice.
    pub holds: Vec<Hold>,
    /// How many cannot be read.
    pub unreadable: u64,
    /// Where the next page begins; `None` when this is the last.
    pub next: Option<String>,
}

/// What an account has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountLine {
    /// The account.
    pub account: AccountHash,
    /// Units it holds or has bought.
    pub units: u32,
    /// Its holds that are held or expiring.
    pub holds: u32,
}

/// A free unit with a number that somebody may have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnedUnit {
    /// The item's place in the sale file, from 0.
    pub place: u32,
    /// The unit.
    pub unit: u32,
}

/// The counts of an item of a rebuilt stock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemLine {
    /// The item.
    pub item: ItemId,
    /// Units on sale.
    pub stock: u32,
    /// Units nobody has.
    pub available: u32,
    /// Units held.
    pub held: u32,
    /// Units sold.
    pub sold: u32,
    /// The lowest unit number nobody ever had.
    pub next: u32,
    /// The highest unit number on sale.
    pub last: u32,
}

/// A page of a rebuilt stock. Staging a page twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageRequest {
    /// The freeze it is made under.
    pub freeze: Uuid,
    /// Names the rebuilt stock it is a page of.
    pub token: Uuid,
    /// The items in the order of the sale file, as [`ReturnedUnit::place`] counts them.
    pub items: Vec<ItemId>,
    /// Holds, at most [`HOLDS_PAGE_MAX`](crate::limits::HOLDS_PAGE_MAX).
    pub holds: Vec<Hold>,
    /// What accounts have, at most [`LEDGER_PAGE_MAX`](crate::limits::LEDGER_PAGE_MAX).
    pub accounts: Vec<AccountLine>,
    /// Free units, at most as many.
    pub returned: Vec<ReturnedUnit>,
}

/// How staging a page ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum StageAnswer {
    /// It is kept for the conclusion.
    Staged,
    /// The sale is not frozen by this freeze any more.
    Stale,
}

/// Puts a staged stock in the place of the old one and reopens the sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConcludeRequest {
    /// The freeze, with the generation it found.
    pub freeze: Freeze,
    /// Names the rebuilt stock.
    pub token: Uuid,
    /// The items, in the order of the sale file.
    pub items: Vec<ItemLine>,
    /// How many holds were staged.
    pub holds: u64,
    /// How many of them are held: those fall due.
    pub due: u64,
    /// How many accounts were staged.
    pub accounts: u64,
    /// How many free units were staged.
    pub returned: u64,
    /// The latest moment any hold knows of: the sale's time does not go back behind it.
    pub clock: Timestamp,
}

impl ConcludeRequest {
    /// Concludes the upload `token` of `holds` holds and of what was counted from them.
    #[must_use]
    pub fn of(freeze: Freeze, token: Uuid, holds: usize, ledger: &Ledger) -> Self {
        Self {
            freeze,
            token,
            items: ledger.items.clone(),
            holds: holds as u64,
            due: ledger.due,
            accounts: ledger.accounts.len() as u64,
            returned: ledger.returned.len() as u64,
            clock: ledger.clock,
        }
    }
}

/// How a conclusion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ConcludeAnswer {
    /// The sale goes on with the rebuilt stock.
    Reopened {
        /// Its generation.
        generation: u64,
    },
    /// The sale is not frozen by this freeze any more; nothing was replaced.
    Stale,
    /// Pages are missing, lost or out of date; nothing was replaced. Rebuild anew.
    Incomplete,
}

impl GateClient {
    /// Closes a sale until its stock is rebuilt.
    ///
    /// # Errors
    /// As [`GateClient::claim`]; freeze is idempotent, repeat it.
    pub async fn freeze(&self, sale: &SaleId, request: &FreezeRequest) -> Result<FreezeAnswer, GateError> {
        self.call(Method::POST, sale, "/freeze", Some(request)).await
    }

    /// A page of the holds that the store has, in whatever state it is.
    ///
    /// # Errors
    /// As [`GateClient::claim`].
    pub async fn holds(&self, sale: &SaleId, after: Option<&str>) -> Result<HoldsPage, GateError> {
        let path = after.map_or_else(|| "/holds".to_owned(), |after| format!("/holds?after={after}"));
        self.call::<(), _>(Method::GET, sale, &path, None).await
    }

    /// Uploads a page of a rebuilt stock.
    ///
    /// # Errors
    /// As [`GateClient::claim`]; stage is idempotent, repeat it.
    pub async fn stage(&self, sale: &SaleId, request: &StageRequest) -> Result<StageAnswer, GateError> {
        self.call(Method::POST, sale, "/stage", Some(request)).await
    }

    /// Puts the staged stock in the place of the old one and reopens the sale.
    ///
    /// # Errors
    /// As [`GateClient::claim`]. Repeated after it went through it answers `Stale`.
    pub async fn conclude(
        &self,
        sale: &SaleId,
        request: &ConcludeRequest,
    ) -> Result<ConcludeAnswer, GateError> {
        self.call(Method::POST, sale, "/conclude", Some(request)).await
    }
}
