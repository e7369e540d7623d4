//! What the back office and the reconciler ask of the orders' store.
//!
//! A trait of its own, so that what buyers need stays readable; every [`Store`](super::Store) is one of these too.

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    ids::{AccountHash, ClaimId, ItemId, SaleId},
    store::StoreError,
};

use crate::{
    order::{Anomaly, OrderRecord, OrderState},
    payment::{Notice, PaymentId},
};

/// Most changes one call of [`Office::changes`] answers.
pub const CHANGES_PAGE_MAX: usize = 1_000;
/// Most orders one call of [`Office::find`] answers.
pub const FOUND_PAGE_MAX: usize = 1_000;

/// Most notices one call of [`Office::parked`] answers.
pub const PARKED_PAGE_MAX: usize = 200;

/// Where a notice stands among those that are parked: when it came, from which gateway, under which id.
pub type ParkedPlace = (Timestamp, String, String);

/// A gateway's signed notice about money whose order is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedNotice {
    /// Where it stands.
    pub place: ParkedPlace,
    /// What it says.
    pub notice: Notice,
}

/// Notices about money whose orders are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parked {
    /// How many there are, on whatever page.
    pub total: u64,
    /// A page of them, in the order of their places.
    pub notices: Vec<ParkedNotice>,
}

/// Whether an order that comes into this state stands in the feed.
#[must_use]
pub fn is_in_feed(state: OrderState) -> bool {
    matches!(state, OrderState::Paid | OrderState::RefundDue | OrderState::Refunded)
}

/// An order that became paid, or whose money is to go back or went back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderChange {
    /// Its place in the sale's feed; later changes have higher ones.
    pub position: u64,
    /// The state the order came into.
    pub state: OrderState,
    /// The units it had then.
    pub units: Vec<u32>,
    /// When.
    pub at: Timestamp,
    /// The order as it is now.
    pub order: OrderRecord,
}

/// Some of a sale's changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In the order of their positions.
    pub changes: Vec<OrderChange>,
    /// The highest position there is; 0 before the first.
    pub last: u64,
}

/// What orders are looked for by: all that is given must be so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Where it stands.
    pub state: Option<OrderState>,
    /// Its e-mail address; capital letters A to Z count as small ones.
    pub email: Option<String>,
    /// Whose it is.
    pub account: Option<AccountHash>,
    /// What is bought.
    pub item: Option<ItemId>,
    /// The unit of `item` that it owns now; nothing is found without an item.
    pub unit: Option<u32>,
    /// The order itself.
    pub order: Option<ClaimId>,
}

/// What a lease was given under: what is written under it is refused once somebody else has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What is leased.
    pub name: &'static str,
    /// Rises whenever the lease goes to somebody else.
    pub fence: u64,
}

/// What the reconciler found in a sale last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The fencing number it was written under.
    pub fence: u64,
    /// What was found, as JSON.
    pub text: String,
    /// When.
    pub at: Timestamp,
}

/// The back office's side of the orders' store.
#[async_trait]
pub trait Office: Send + Sync {
    /// Up to `limit` (at most [`CHANGES_PAGE_MAX`]) changes of a sale after the position `after`. A change that becomes
    /// readable later than another always has the higher position, whatever order transactions commit in.
    ///
    /// # Errors
    /// The store broke.
    async fn changes(&self, sale: &SaleId, after: u64, limit: usize) -> Result<Changes, StoreError>;

    /// Up to `limit` (at most [`FOUND_PAGE_MAX`]) orders of a sale that `search` describes, by id, after `after`.
    ///
    /// # Errors
    /// The store broke.
    async fn find(
        &self,
        sale: &SaleId,
        search: &Search,
        after: Option<ClaimId>,
        limit: usize,
    ) -> Result<Vec<OrderRecord>, StoreError>;

    /// Takes or keeps a lease for `life_ms`, by the store's clock where it has one, else by `now`; a life of 0 gives it
    /// back. `None` while somebody else has it.
    ///
    /// # Errors
    /// The store broke; repeating the call is safe.
    async fn lease(
        &self,
        name: &'static str,
        holder: &str,
        life_ms: u64,
        now: Timestamp,
    ) -> Result<Option<Lease>, StoreError>;

    /// Writes an anomaly down, unless somebody else took the lease since; answers whether it is written.
    ///
    /// # Errors
    /// The store broke; repeated, it may stand there twice.
    async fn note(
        &self,
        lease: Lease,
        sale: &SaleId,
        order: ClaimId,
        anomaly: &Anomaly,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Keeps what was found in a sale, over what was found before, unless somebody else took the lease since; answers
    /// whether it is kept.
    ///
    /// # Errors
    /// The store broke; repeating the call is safe.
    async fn keep(&self, lease: Lease, sale: &SaleId, text: &str, now: Timestamp)
    -> Result<bool, StoreError>;

    /// What was found in a sale last.
    ///
    /// # Errors
    /// The store broke.
    async fn kept(&self, sale: &SaleId) -> Result<Option<Kept>, StoreError>;

    /// Up to [`PARKED_PAGE_MAX`] of the notices about money ([`Outcome::is_money`](crate::payment::Outcome::is_money))
    /// that came before `before` and wait for an order, oldest first, after `after`.
    ///
    /// # Errors
    /// The store broke.
    async fn parked(&self, before: Timestamp, after: Option<&ParkedPlace>) -> Result<Parked, StoreError>;

    /// Whatever is parked of an attempt waits no longer, also not for an order that may yet come; answers how many
    /// notices that were.
    ///
    /// # Errors
    /// The store broke; repeating the call is safe.
    async fn strike_off(&self, payment: PaymentId) -> Result<u64, StoreError>;
}

/// A lease as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseRow {
    pub(super) holder: String,
    pub(super) until: Timestamp,
    pub(super) life_ms: u64,
    pub(super) fence: u64,
}

impl LeaseRow {
    /// PURE: the lease after `holder` asked for it, and the fencing number, if it is theirs.
    pub(super) fn asked(mut self, holder: &str, life_ms: u64, now: Timestamp) -> (Self, Option<u64>) {
        let longest = now.plus(std::time::Duration::from_millis(self.life_ms));
        // One that ends later than it could was given before the clock was set back.
        let is_live = self.until > now && self.until <= longest;
        let is_own = self.holder == holder && self.fence > 0;
        if (is_live || life_ms == 0) && !is_own {
            return (self, None);
        }
        if !is_own {
            self.fence += 1;
        }
        holder.clone_into(&mut self.holder);
        self.until = now.plus(std::time::Duration::from_millis(life_ms));
        self.life_ms = life_ms;
        let fence = self.fence;
        (self, Some(fence))
    }
}
