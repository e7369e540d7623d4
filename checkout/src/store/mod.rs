//! Where orders are kept.
//!
//! A verb loads the order, lets the pure rule decide ([`crate::order`]), writes what changed and commits, in one
//! transaction. Back ends: [`sqlite`], [`postgres`], and [`model`], which the others answer like. [`Guarded`] puts any of them
//! behind a circuit breaker.

mod fault;
mod guarded;
mod guarded_outbox;
mod ledger;
pub mod model;
mod model_outbox;
pub mod office;
mod outbox;
mod outbox_rows;
pub mod postgres;
mod rows;
pub mod sqlite;

pub(crate) use self::fault::is_of_data;
pub use self::{
    guarded::Guarded,
    office::Office,
    outbox::{
        Attempt, ChannelFigures, DEAD_MESSAGES_MAX, DeadMessage, LEASES_MAX, Leased, MessageState,
        OutboxStore, TRIMMED_MAX,
    },
};

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod conformance_office;
#[cfg(test)]
mod conformance_outbox;
#[cfg(test)]
mod sequences;

use std::collections::BTreeMap;

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
    store::StoreError,
};

use crate::{
    order::{Anomaly, Decision, GateSide, Intake, OrderEvent, OrderRecord, OrderState},
    payment::{Notice, PaymentId},
};

/// Most orders one call of [`Store::unsettled`] answers.
pub const UNSETTLED_MAX: usize = 256;
/// Most orders one call of [`Store::orders`] answers.
pub const ORDERS_PAGE_MAX: usize = 1_000;
/// An order nobody ended although its hold fell due this long ago counts as unsettled: the gate's word was lost.
pub const OVERDUE_SECONDS: u64 = 30;

/// Most dead letters one call of [`Store::dead_letters`] answers.
pub const DEAD_LETTERS_MAX: usize = 1_000;

/// A gate's record that no order can be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its id in the event log.
    pub event: String,
    /// What is wrong with it.
    pub problem: String,
    /// The record itself, as [`lockgate_shared::events::Event::record`] writes it.
    pub record: String,
    /// When it was last tried.
    pub found_at: Timestamp,
}

/// The dead letters of a sale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetters {
    /// How many there are.
    pub total: u64,
    /// The first [`DEAD_LETTERS_MAX`] of them, the longest untried first.
    pub letters: Vec<DeadLetter>,
}

/// Most anomalies one call of [`Store::anomalies`] answers.
pub const ANOMALIES_PAGE_MAX: usize = 200;

/// Something that should not have happened, as it was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnomalyRecord {
    /// Its number among all sales' anomalies, ascending; numbers may be left out.
    pub number: u64,
    /// The order it is about.
    pub order: ClaimId,
    /// The attempt it is about, if one.
    pub payment: Option<PaymentId>,
    /// A stable word for it.
    pub kind: String,
    /// What was found and what was done.
    pub detail: String,
    /// When it was found.
    pub found_at: Timestamp,
    /// Where the order stands by now; `None` for a claim that has none.
    pub state: Option<OrderState>,
}

/// What a batch of the gate's records came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The orders that were made or changed, in the order of the batch.
    pub changed: Vec<OrderRecord>,
    /// What should not have happened.
    pub anomalies: Vec<(ClaimId, Anomaly)>,
    /// Records of the dead letters that were not known before, by their ids, in the order in which they were given.
    pub buried: Vec<String>,
}

/// What became of a signed notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notified {
    /// It was applied to its order.
    Applied(Box<Decision>),
    /// Its order is not there yet; it is kept and applied when the order comes.
    Parked,
    /// It came before.
    Duplicate,
}

/// The orders of one item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemBooks {
    /// Orders by state.
    pub orders: BTreeMap<OrderState, u64>,
    /// Units the gate should hold: of live orders, and of ended ones it was not yet told about.
    pub held: u64,
    /// Units the gate should have sold.
    pub sold: u64,
}

impl ItemBooks {
    /// Counts `orders` orders with `units` units together that stand alike.
    pub fn count(&mut self, state: OrderState, gate: GateSide, orders: u64, units: u64) {
        *self.orders.entry(state).or_default() += orders;
        match gate {
            GateSide::Held | GateSide::CommitDue | GateSide::ReleaseDue => self.held += units,
            GateSide::Committed => self.sold += units,
            // Where units are reclaimed the gate may have sold some already, for as long as its answer is under way.
            GateSide::Released | GateSide::ReclaimDue | GateSide::Disputed => {}
        }
    }
}

/// Keeps orders, their payments and what was notified; with every change of an order, the messages it brings (see
/// [`crate::outbox`]).
#[async_trait]
pub trait Store: OutboxStore + Office {
    /// Makes orders of what the gate recorded, all or none of the batch; `dead` is written down with it, over what
    /// was known of the same record.
    /// Notifications that were parked for an order are applied as soon as it is there.
    ///
    /// # Errors
    /// The store broke; repeating the batch is safe.
    async fn place(
        &self,
        sale: &SaleId,
        batch: &[Intake],
        dead: &[DeadLetter],
        now: Timestamp,
    ) -> Result<Placed, StoreError>;

    /// Decides `event` for an order and writes what changed; `None` when there is no such order.
    ///
    /// # Errors
    /// The store broke; repeating the call is safe.
    async fn decide(
        &self,
        order: ClaimId,
        event: &OrderEvent,
        now: Timestamp,
    ) -> Result<Option<Decision>, StoreError>;

    /// Applies a signed notification, once for each event id of `gateway`.
    ///
    /// # Errors
    /// The store broke; repeating the call is safe.
    async fn notify(
        &self,
        gateway: &str,
        event: &str,
        notice: &Notice,
        now: Timestamp,
    ) -> Result<Notified, StoreError>;

    /// One order.
    ///
    /// # Errors
    /// The store broke.
    async fn order(&self, order: ClaimId) -> Result<Option<OrderRecord>, StoreError>;

    /// The order an attempt belongs to.
    ///
    /// # Errors
    /// The store broke.
    async fn order_of(&self, payment: PaymentId) -> Result<Option<ClaimId>, StoreError>;

    /// Up to [`UNSETTLED_MAX`] orders with work left, or overdue at `now`, by id, after `after`.
    ///
    /// # Errors
    /// The store broke.
    async fn unsettled(&self, after: Option<ClaimId>, now: Timestamp)
    -> Result<Vec<OrderRecord>, StoreError>;

    /// Up to [`ORDERS_PAGE_MAX`] orders of a sale, by id, after `after`.
    ///
    /// # Errors
    /// The store broke.
    async fn orders(&self, sale: &SaleId, after: Option<ClaimId>) -> Result<Vec<OrderRecord>, StoreError>;

    /// A sale's orders counted.
    ///
    /// # Errors
    /// The store broke.
    async fn books(&self, sale: &SaleId) -> Result<BTreeMap<ItemId, ItemBooks>, StoreError>;

    /// Up to [`ANOMALIES_PAGE_MAX`] anomalies of a sale's orders, in the order of their numbers, after `after`.
    ///
    /// # Errors
    /// The store broke.
    async fn anomalies(&self, sale: &SaleId, after: Option<u64>) -> Result<Vec<AnomalyRecord>, StoreError>;

    /// The records of a sale that no order could be made of.
    ///
    /// # Errors
    /// The store broke.
    async fn dead_letters(&self, sale: &SaleId) -> Result<DeadLetters, StoreError>;

    /// Strikes a dead letter whose record was taken in after all.
    ///
    /// # Errors
    /// The store broke; repeating the call is safe.
    async fn clear(&self, sale: &SaleId, event: &str) -> Result<(), StoreError>;

    /// Whether the store answers.
    ///
    /// # Errors
    /// It does not.
    async fn ping(&self) -> Result<(), StoreError>;
}
