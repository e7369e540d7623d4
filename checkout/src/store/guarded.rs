//! A store behind a circuit: while it is in trouble, shoppers hear so at once instead of waiting for it.
//!
//! Intake, the lists that loops work through and the operators' views go past the circuit: they are few by construction,
//! they wait by themselves, and one record that cannot be stored must not close the orders to everybody. What is decided
//! about an order goes through it, whoever decides: a settler that is refused tries again.

mod office;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use lockgate_shared::{
    circuit::{Circuit, CircuitSettings},
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
    limits::ORDER_CALLS_MAX,
    store::StoreError,
};
use tokio::sync::Semaphore;

use super::{
    AnomalyRecord, DeadLetter, DeadLetters, ItemBooks, Notified, Placed, Store,
    guarded_outbox::OUTBOX_AT_ONCE,
};
use crate::{
    order::{Decision, Intake, OrderEvent, OrderRecord},
    payment::{Notice, PaymentId},
};

const SETTINGS: CircuitSettings = CircuitSettings {
    at_once: ORDER_CALLS_MAX,
    wait: Duration::from_millis(250),
    pause: Duration::from_secs(1),
};
/// Batches that are written at a time, so that intake never takes every connection.
const BATCHES_AT_ONCE: usize = 4;

/// A store behind a circuit.
pub struct Guarded {
    pub(super) store: Arc<dyn Store>,
    circuit: Circuit,
    batches: Semaphore,
    pub(super) outbox: Semaphore,
}

impl Guarded {
    /// Over a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            circuit: Circuit::new("orders", SETTINGS),
            batches: Semaphore::new(BATCHES_AT_ONCE),
            outbox: Semaphore::new(OUTBOX_AT_ONCE),
        }
    }

    async fn through<T>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match self.circuit.call(|_| true, call).await {
            Ok(answer) => answer,
            Err(refused) => Err(StoreError::untouched(verb, refused.to_string())),
        }
    }
}

#[async_trait]
impl Store for Guarded {
    async fn place(
        &self,
        sale: &SaleId,
        batch: &[Intake],
        dead: &[DeadLetter],
        now: Timestamp,
    ) -> Result<Placed, StoreError> {
        let turn = self.batches.acquire().await;
        let _turn = turn.map_err(|error| StoreError::untouched("place", error))?;
        self.store.place(sale, batch, dead, now).await
    }

    async fn decide(
        &self,
        order: ClaimId,
        event: &OrderEvent,
        now: Timestamp,
    ) -> Result<Option<Decision>, StoreError> {
        self.through("decide", self.store.decide(order, event, now)).await
    }

    async fn notify(
        &self,
        gateway: &str,
        event: &str,
        notice: &Notice,
        now: Timestamp,
    ) -> Result<Notified, StoreError> {
        self.through("notify", self.store.notify(gateway, event, notice, now)).await
    }

    async fn order(&self, order: ClaimId) -> Result<Option<OrderRecord>, StoreError> {
        self.through("order", self.store.order(order)).await
    }

    async fn order_of(&self, payment: PaymentId) -> Result<Option<ClaimId>, StoreError> {
        self.through("order of payment", self.store.order_of(payment)).await
    }

    async fn unsettled(
        &self,
        after: Option<ClaimId>,
        now: Timestamp,
    ) -> Result<Vec<OrderRecord>, StoreError> {
        self.store.unsettled(after, now).await
    }

    async fn orders(&self, sale: &SaleId, after: Option<ClaimId>) -> Result<Vec<OrderRecord>, StoreError> {
        self.store.orders(sale, after).await
    }

    async fn books(&self, sale: &SaleId) -> Result<BTreeMap<ItemId, ItemBooks>, StoreError> {
        self.store.books(sale).await
    }

    async fn anomalies(&self, sale: &SaleId, after: Option<u64>) -> Result<Vec<AnomalyRecord>, StoreError> {
        self.store.anomalies(sale, after).await
    }

    async fn dead_letters(&self, sale: &SaleId) -> Result<DeadLetters, StoreError> {
        self.store.dead_letters(sale).await
    }

    async fn clear(&self, sale: &SaleId, event: &str) -> Result<(), StoreError> {
        self.store.clear(sale, event).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.store.ping().await
    }
}
