//! What the gate keeps: counts, unit numbers, holds, and the events that record them.
//!
//! Each verb is one atomic step in the store. A refusal is an `Ok` value; an error means the store broke or does not
//! hold what it must hold, and then the gate is closed: never "sold out", never a fresh stock.

pub mod model;
pub mod redis;
pub mod sqlite;

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    events::{Abandoned, Event, EventKind},
    gate::{
        ClaimAnswer, ClaimRequest, CommitAnswer, ConcludeAnswer, ConcludeRequest, ForfeitAnswer,
        FreezeAnswer, Hold, HoldState, HoldsPage, ItemStock, ReclaimAnswer, ReleaseAnswer, RestockAnswer,
        RestockRequest, StageAnswer, StageRequest, StockSnapshot,
    },
    ids::{ClaimId, ItemId, SaleId, TokenId},
    limits::CLAIMANTS_MAX,
    store::StoreError,
};
use uuid::Uuid;

use crate::{
    hold::Refusal,
    stock::{Counts, Limits},
};

/// A claim, with what the rules say about it. The store decides what only it can know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What was asked.
    pub request: ClaimRequest,
    /// How long the hold lasts.
    pub hold_seconds: u64,
    /// What the sale allows.
    pub limits: Limits,
    /// Why no hold may be made. A claim made before is answered all the same.
    pub refusal: Option<Refusal>,
}

/// A change of an item's stock, with what the sale's definition says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restocking {
    /// What was asked.
    pub request: RestockRequest,
    /// Whether the definition includes it: it was made before, also where the store has lost its record.
    pub is_defined: bool,
    /// The sale-wide limit, below which the units of all items together are not withdrawn.
    pub total_limit: Option<u32>,
}

/// The gate's store.
#[async_trait]
pub trait Store: Send + Sync {
    /// Takes units, all or none. In this order: a frozen sale is an error; a claim made before gets its hold as it is now; a sale without
    /// stock is an error; then the claim's refusal, whether its admission was given up, the item, sold out, the sale-wide limit, what the account has abandoned
    /// under this admission, the account's limit, its limit on live holds.
    async fn claim(&self, sale: &SaleId, claim: &Claim) -> Result<ClaimAnswer, StoreError>;

    /// Marks a hold sold.
    async fn commit(&self, sale: &SaleId, claim: ClaimId) -> Result<CommitAnswer, StoreError>;

    /// Gives a hold's units back. One that ran out counts as abandoned by the admission it was claimed under, where
    /// the claim came with a limit on those.
    async fn release(&self, sale: &SaleId, claim: ClaimId) -> Result<ReleaseAnswer, StoreError>;

    /// Sells a claim's units to it although it may have been released: a live hold is committed; a released one gets its
    /// own units if all are free, else as many others (returned ones first, lowest first), under the limits on units,
    /// sold at once; one that was committed stands. What was refused stays refused, for the sale's life.
    async fn reclaim(
        &self,
        sale: &SaleId,
        claim: ClaimId,
        limits: &Limits,
    ) -> Result<ReclaimAnswer, StoreError>;

    /// Marks up to `max` due holds as expiring, earliest deadline first. Their units stay held.
    async fn expire(&self, sale: &SaleId, max: usize) -> Result<Vec<ClaimId>, StoreError>;

    /// Remembers an admission as given up, for the sale's life: no claim is made by it any more. What was claimed
    /// before stands. There is one entry per admission that was given up, so no more than were given.
    async fn forfeit(&self, sale: &SaleId, token_id: &TokenId) -> Result<ForfeitAnswer, StoreError>;

    /// Adds units to an item, or withdraws free ones, all or none; once for each id, for the sale's life. What was made
    /// before is answered before anything is checked.
    async fn restock(&self, sale: &SaleId, change: &Restocking) -> Result<RestockAnswer, StoreError>;

    /// Every change of the stock that was made here and can be read, in whatever state the sale is, in any order.
    async fn restocks(&self, sale: &SaleId) -> Result<Vec<RestockRequest>, StoreError>;

    /// The hold a claim made.
    async fn hold(&self, sale: &SaleId, claim: ClaimId) -> Result<Option<Hold>, StoreError>;

    /// All counts, read in one step, under the sale-wide limit `total_limit`.
    async fn stock(&self, sale: &SaleId, total_limit: Option<u32>) -> Result<StockSnapshot, StoreError>;

    /// How often the sale's stock was put there, in whatever state the sale is; `None` where nothing says so.
    async fn generation(&self, sale: &SaleId) -> Result<Option<u64>, StoreError>;

    /// Closes a sale until its stock is rebuilt, whatever is left of it, and if there never was any: every other verb but those of rebuilding is an
    /// error from then on. A freeze that stands is answered instead of a new one.
    async fn freeze(&self, sale: &SaleId, order: &FreezeOrder) -> Result<FreezeAnswer, StoreError>;

    /// About `max` of the holds that can be read, in whatever state the sale is, from where `after` says.
    async fn holds(&self, sale: &SaleId, after: Option<&str>, max: usize) -> Result<HoldsPage, StoreError>;

    /// Keeps a page of a rebuilt stock beside the old one.
    async fn stage(&self, sale: &SaleId, page: &StageRequest) -> Result<StageAnswer, StoreError>;

    /// Puts a staged stock in the place of the old one, all or nothing, and reopens the sale. What is known of
    /// admissions, given up or abandoned, stays as far as it is there; so do the events.
    async fn conclude(&self, sale: &SaleId, request: &ConcludeRequest) -> Result<ConcludeAnswer, StoreError>;

    /// Whether the store answers.
    async fn ready(&self) -> Result<(), StoreError>;
}

/// A sale is to be closed until its stock is rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreezeOrder {
    /// Names the freeze, if none stands yet.
    pub id: Uuid,
    /// Freeze only a stock of this generation, or one that has none; `None`: whatever it is.
    pub if_generation: Option<u64>,
    /// What its generation is known to be at least, should the store have lost it.
    pub at_least: u64,
    /// Why, for whoever looks into the store.
    pub why: String,
}

/// The store does not hold what it must hold: the gate stays closed for this sale.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stock is not as the gate left it: {0}")]
pub struct Suspicion(pub String);

impl Suspicion {
    /// No stock was ever prepared here, or it is gone.
    #[must_use]
    pub fn no_stock(sale: &SaleId) -> Self {
        Self(format!("'{sale}' has no stock here"))
    }

    /// An item of the sale's definition is not there.
    #[must_use]
    pub fn no_item(item: &ItemId) -> Self {
        Self(format!("the sale's item '{item}' is missing"))
    }

    /// The sale is closed until its stock is rebuilt.
    #[must_use]
    pub fn frozen(sale: &SaleId) -> Self {
        Self(format!("'{sale}' is frozen until its stock is rebuilt"))
    }

    pub(crate) fn at(self, verb: &'static str) -> StoreError {
        StoreError::untouched(verb, self)
    }
}

/// The hold a claim makes at `now` with these units.
fn new_hold(claim: &Claim, units: Vec<u32>, now: Timestamp) -> Hold {
    let request = &claim.request;
    Hold {
        claim: request.claim,
        account: request.account,
        item: request.item.clone(),
        units,
        state: HoldState::Held,
        claimed_at: now,
        deadline: now.plus_seconds(claim.hold_seconds),
        memo: request.memo.clone(),
    }
}

/// The event that records what happened to a hold; the log gives it its id.
fn event(kind: EventKind, hold: &Hold, abandoned: Option<Abandoned>) -> Event {
    Event {
        id: String::new(),
        kind,
        claim: hold.claim,
        account: hold.account,
        item: hold.item.clone(),
        units: hold.units.clone(),
        claimed_at: hold.claimed_at,
        deadline: hold.deadline,
        memo: hold.memo.clone(),
        abandoned,
    }
}

fn item_stock(item: ItemId, counts: &Counts) -> ItemStock {
    ItemStock { item, stock: counts.stock, available: counts.available, held: counts.held, sold: counts.sold }
}

fn snapshot(items: Vec<ItemStock>, total_left: Option<u32>) -> StockSnapshot {
    StockSnapshot { items, total_left, claimants: Vec::new(), too_many_claimants: false }
}

fn list_claimants(snapshot: &mut StockSnapshot, claimants: Vec<u64>) {
    snapshot.too_many_claimants = claimants.len() > CLAIMANTS_MAX;
    if !snapshot.too_many_claimants {
        snapshot.claimants = claimants;
    }
}

/// Whether a snapshot lists the accounts that have claimed: once somebody may be refused by it.
fn lists_claimants(snapshot: &StockSnapshot) -> bool {
    snapshot.items.iter().any(|item| snapshot.sold_out(item))
}

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod conformance_rebuild;
#[cfg(test)]
mod conformance_reclaim;
#[cfg(test)]
mod conformance_restock;
#[cfg(test)]
mod crowd;
#[cfg(test)]
mod random;
#[cfg(test)]
pub(crate) mod testbed;
