//! The back office goes past the circuit: what operators look at must not close the orders to shoppers, nor be closed
//! with them.

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, SaleId},
    store::StoreError,
};

use super::Guarded;
use crate::{
    order::{Anomaly, OrderRecord},
    payment::PaymentId,
    store::office::{Changes, Kept, Lease, Office, Parked, ParkedPlace, Search},
};

#[async_trait]
impl Office for Guarded {
    async fn changes(&self, sale: &SaleId, after: u64, limit: usize) -> Result<Changes, StoreError> {
        self.store.changes(sale, after, limit).await
    }

    async fn find(
        &self,
        sale: &SaleId,
        search: &Search,
        after: Option<ClaimId>,
        limit: usize,
    ) -> Result<Vec<OrderRecord>, StoreError> {
        self.store.find(sale, search, after, limit).await
    }

    async fn lease(
        &self,
        name: &'static str,
        holder: &str,
        life_ms: u64,
        now: Timestamp,
    ) -> Result<Option<Lease>, StoreError> {
        self.store.lease(name, holder, life_ms, now).await
    }

    async fn note(
        &self,
        lease: Lease,
        sale: &SaleId,
        order: ClaimId,
        anomaly: &Anomaly,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.store.note(lease, sale, order, anomaly, now).await
    }

    async fn keep(
        &self,
        lease: Lease,
        sale: &SaleId,
        text: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.store.keep(lease, sale, text, now).await
    }

    async fn kept(&self, sale: &SaleId) -> Result<Option<Kept>, StoreError> {
        self.store.kept(sale).await
    }

    async fn parked(&self, before: Timestamp, after: Option<&ParkedPlace>) -> Result<Parked, StoreError> {
        self.store.parked(before, after).await
    }

    async fn strike_off(&self, payment: PaymentId) -> Result<u64, StoreError> {
        self.store.strike_off(payment).await
    }
}
