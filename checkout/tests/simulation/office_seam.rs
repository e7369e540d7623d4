//! The back office's side of the orders' database: in good weather, for the reconciler has none of its own.

use async_trait::async_trait;
use lockgate_checkout::{
    Office,
    order::{Anomaly, OrderRecord},
    payment::PaymentId,
    store::office::{Changes, Kept, Lease, Parked, ParkedPlace, Search},
};
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, SaleId},
    store::StoreError,
};

use crate::order_seam::OrderSeam;

#[async_trait]
impl Office for OrderSeam {
    async fn changes(&self, sale: &SaleId, after: u64, limit: usize) -> Result<Changes, StoreError> {
        self.world.orders.changes(sale, after, limit).await
    }
    async fn find(
        &self,
        sale: &SaleId,
        search: &Search,
        after: Option<ClaimId>,
        limit: usize,
    ) -> Result<Vec<OrderRecord>, StoreError> {
        self.world.orders.find(sale, search, after, limit).await
    }
    async fn lease(
        &self,
        name: &'static str,
        holder: &str,
        life_ms: u64,
        now: Timestamp,
    ) -> Result<Option<Lease>, StoreError> {
        self.world.orders.lease(name, holder, life_ms, now).await
    }
    async fn note(
        &self,
        lease: Lease,
        sale: &SaleId,
        order: ClaimId,
        anomaly: &Anomaly,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.world.orders.note(lease, sale, order, anomaly, now).await
    }
    async fn keep(
        &self,
        lease: Lease,
        sale: &SaleId,
        text: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.world.orders.keep(lease, sale, text, now).await
    }
    async fn kept(&self, sale: &SaleId) -> Result<Option<Kept>, StoreError> {
        self.world.orders.kept(sale).await
    }
    async fn parked(&self, before: Timestamp, after: Option<&ParkedPlace>) -> Result<Parked, StoreError> {
        self.world.orders.parked(before, after).await
    }
    async fn strike_off(&self, payment: PaymentId) -> Result<u64, StoreError> {
        self.world.orders.strike_off(payment).await
    }
}
