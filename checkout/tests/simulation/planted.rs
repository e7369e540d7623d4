//! Bugs planted beside the product, to show that the rules find them.

use std::sync::Arc;

use async_trait::async_trait;
use http::HeaderMap;
use lockgate_checkout::{
    Gateway,
    gateways::{CancelOutcome, GatewayError, Notification, PaymentOrder, PaymentStatus, WebhookError},
    payment::{Money, PaymentId},
};
use lockgate_shared::{
    clock::Timestamp,
    events::{Batch, EventLog},
    gate::{ClaimAnswer, CommitAnswer, ForfeitAnswer, Hold, ReleaseAnswer, StockSnapshot},
    ids::{ClaimId, ItemId, SaleId, TokenId},
    store::StoreError,
};
use lockgate_stock_gate::store::{Claim, Prepared, Store};
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

    pub fn gate_store(self, world: &Arc<World>) -> Arc<dyn Store> {
        Arc::new(Stock { world: Arc::clone(world), planted: self })
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

    async fn cancel(&self, payment: PaymentId) -> Result<CancelOutcome, GatewayError> {
        let bank = Arc::clone(&self.0);
        tokio::spawn(async move { while bank.cancel(payment).await.is_err() {} });
        Ok(CancelOutcome::Unpayable)
    }

    async fn state(&self, payment: PaymentId) -> Result<PaymentStatus, GatewayError> {
        self.0.state(payment).await
    }

    async fn refund(&self, payment: PaymentId, money: &Money) -> Result<(), GatewayError> {
        self.0.refund(payment, money).await
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<Notification, WebhookError> {
        self.0.verify(headers, body, now)
    }
}

/// A log whose readers acknowledge first and work afterwards.
struct Careless(Log);

#[async_trait]
impl EventLog for Careless {
    async fn read(&self, sale: &SaleId, group: &str, consumer: &str) -> Result<Batch, StoreError> {
        let batch = self.0.read(sale, group, consumer).await?;
        let ids: Vec<String> = batch.events.iter().map(|event| event.id.clone()).collect();
        self.0.acknowledge(sale, group, &ids).await?;
        Ok(batch)
    }

    async fn acknowledge(&self, _: &SaleId, _: &str, _: &[String]) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The gate's store, as it is or with a bug in its claims.
struct Stock {
    world: Arc<World>,
    planted: Planted,
}

#[async_trait]
impl Store for Stock {
    async fn prepare(&self, sale: &SaleId, items: &[(ItemId, u32)]) -> Result<Prepared, StoreError> {
        self.world.gate.prepare(sale, items).await
    }

    async fn claim(&self, sale: &SaleId, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
        let gate = &self.world.gate;
        let is_known = gate.hold(sale, claim.request.claim).await.is_ok_and(|hold| hold.is_some());
        if self.planted == Planted::CheckThenCount && !is_known {
            let left = gate.stock(sale, claim.limits.total).await?.total_left;
            if left.is_some_and(|left| left < claim.request.quantity) {
                return Ok(ClaimAnswer::SoldOut { may_return: true });
            }
            sleep(self.world.between_ms(1, 20)).await;
            let mut unchecked = claim.clone();
            unchecked.limits.total = None;
            return gate.claim(sale, &unchecked).await;
        }
        if self.planted == Planted::AnswerBeforeCommit && !is_known {
            let before = gate.copy();
            let answer = gate.claim(sale, claim).await;
            gate.set_back(&before);
            let (world, sale, claim) = (Arc::clone(&self.world), sale.clone(), claim.clone());
            tokio::spawn(async move {
                sleep(world.between_ms(1, 100)).await;
                world.gate.claim(&sale, &claim).await
            });
            return answer;
        }
        gate.claim(sale, claim).await
    }

    async fn commit(&self, sale: &SaleId, claim: ClaimId) -> Result<CommitAnswer, StoreError> {
        self.world.gate.commit(sale, claim).await
    }

    async fn release(&self, sale: &SaleId, claim: ClaimId) -> Result<ReleaseAnswer, StoreError> {
        self.world.gate.release(sale, claim).await
    }

    async fn expire(&self, sale: &SaleId, max: usize) -> Result<Vec<ClaimId>, StoreError> {
        self.world.gate.expire(sale, max).await
    }

    async fn forfeit(&self, sale: &SaleId, token_id: &TokenId) -> Result<ForfeitAnswer, StoreError> {
        self.world.gate.forfeit(sale, token_id).await
    }

    async fn hold(&self, sale: &SaleId, claim: ClaimId) -> Result<Option<Hold>, StoreError> {
        self.world.gate.hold(sale, claim).await
    }

    async fn stock(&self, sale: &SaleId, total_limit: Option<u32>) -> Result<StockSnapshot, StoreError> {
        self.world.gate.stock(sale, total_limit).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.world.gate.ready().await
    }
}
