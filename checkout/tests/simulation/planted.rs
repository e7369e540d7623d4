//! Bugs planted beside the product, to show that the rules find them.

use std::sync::Arc;

use async_trait::async_trait;
use http::HeaderMap;
use lockgate_checkout::{
    Gateway,
    gateways::{CancelOutcome, GatewayError, Notification, PaymentOrder, PaymentStatus, WebhookError},
    payment::Money,
};
use lockgate_shared::{
    clock::Timestamp,
    events::{Backlog, Batch, EventLog, Trim},
    gate::ClaimAnswer,
    ids::SaleId,
    store::StoreError,
};
use lockgate_stock_gate::store::{Claim, Store as _};
use tokio::time::sleep;

use crate::{bank::Bank, log::Log, world::World};

/// Which bug is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// None.
    Nothing,
    /// Units are freed before their payment is unpayable: a cancellation is believed as soon as it is asked for.
    FreeBeforeUnpayable,
    /// A claim checks the sale-wide limit in one step and counts in another.
    CheckThenCount,
    /// The gate's records are acknowledged as they are read, before anything is committed.
    AcknowledgeBeforeCommit,
    /// A claim is answered before it is written.
    AnswerBeforeCommit,
    /// The gate does not know its store's identity, and goes on with one that lost its last writes. Not a bug that must
    /// show: what else disagrees is to be enough.
    UnnoticedFailOver,
}

impl Planted {
    pub fn gateway(self, bank: Bank) -> Arc<dyn Gateway> {
        match self {
            Self::FreeBeforeUnpayable => Arc::new(Hasty(Arc::new(bank))),
            _ => Arc::new(bank),
        }
    }

    pub fn log(self, log: Log) -> Arc<dyn EventLog> {
        match self {
            Self::AcknowledgeBeforeCommit => Arc::new(Careless(log)),
            _ => Arc::new(log),
        }
    }

    /// A claim at the store, as it should be or with a bug.
    pub async fn claim(
        self,
        world: &Arc<World>,
        sale: &SaleId,
        claim: &Claim,
    ) -> Result<ClaimAnswer, StoreError> {
        let gate = &world.gate;
        let is_known = gate.hold(sale, claim.request.claim).await.is_ok_and(|hold| hold.is_some());
        if self == Self::CheckThenCount && !is_known {
            let left = gate.stock(sale, claim.limits.total).await?.total_left;
            if left.is_some_and(|left| left < claim.request.quantity) {
                return Ok(ClaimAnswer::SoldOut { may_return: true });
            }
            sleep(world.between_ms(1, 20)).await;
            let mut unchecked = claim.clone();
            unchecked.limits.total = None;
            return gate.claim(sale, &unchecked).await;
        }
        if self == Self::AnswerBeforeCommit && !is_known {
            let before = gate.copy();
            let answer = gate.claim(sale, claim).await;
            gate.set_back(&before);
            let (world, sale, claim) = (Arc::clone(world), sale.clone(), claim.clone());
            tokio::spawn(async move {
                sleep(world.between_ms(1, 100)).await;
                world.gate.claim(&sale, &claim).await
            });
            return answer;
        }
        gate.claim(sale, claim).await
    }
}

/// A gateway whose cancellations are believed before they are done.
struct Hasty(Arc<Bank>);

#[async_trait]
impl Gateway for Hasty {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    async fn start(&self, order: &PaymentOrder) -> Result<PaymentStatus, GatewayError> {
        self.0.start(order).await
    }

    async fn cancel(&self, order: &PaymentOrder) -> Result<CancelOutcome, GatewayError> {
        let (bank, order) = (Arc::clone(&self.0), order.clone());
        tokio::spawn(async move { while bank.cancel(&order).await.is_err() {} });
        Ok(CancelOutcome::Unpayable)
    }

    async fn state(&self, order: &PaymentOrder) -> Result<PaymentStatus, GatewayError> {
        self.0.state(order).await
    }

    async fn refund(&self, order: &PaymentOrder, money: &Money) -> Result<(), GatewayError> {
        self.0.refund(order, money).await
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<Notification, WebhookError> {
        self.0.verify(headers, body, now)
    }
}

/// A log whose readers acknowledge first and work afterwards.
struct Careless(Log);

#[async_trait]
impl EventLog for Careless {
    async fn read(
        &self,
        sale: &SaleId,
        group: &str,
        consumer: &str,
        max: usize,
    ) -> Result<Batch, StoreError> {
        let batch = self.0.read(sale, group, consumer, max).await?;
        let ids: Vec<String> = batch.events.iter().map(|event| event.id.clone()).collect();
        self.0.acknowledge(sale, group, &ids).await?;
        Ok(batch)
    }

    async fn acknowledge(&self, _: &SaleId, _: &str, _: &[String]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn backlog(&self, sale: &SaleId, group: &str) -> Result<Backlog, StoreError> {
        self.0.backlog(sale, group).await
    }

    async fn trim(&self, sale: &SaleId, groups: &[&str], keep: u64) -> Result<Trim, StoreError> {
        self.0.trim(sale, groups, keep).await
    }

    async fn retire(&self, sale: &SaleId, group: &str, idle_ms: u64) -> Result<u64, StoreError> {
        self.0.retire(sale, group, idle_ms).await
    }

    fn shares_work(&self) -> bool {
        self.0.shares_work()
    }
}
