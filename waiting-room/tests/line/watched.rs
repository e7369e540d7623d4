//! A store that tells what it is asked.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    ids::{AccountHash, SaleId},
    proof_of_work::Proof,
    store::StoreError,
};
use lockgate_waiting_room::store::{
    Advanced, Allowed, Departure, EnterAnswer, Entry, Forfeit, LaneReport, LaneView, Listed, LogsRead, Move,
    Recorded, Redeemed, Redemption, Renewal, Right, Seat, Spent, Store,
};

/// Counts what shoppers cause at the store, and can silence one lane.
pub(crate) struct Watched {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) calls: AtomicUsize,
    pub(crate) silent: Mutex<Option<usize>>,
}

impl Watched {
    fn count(&self) -> &Arc<dyn Store> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        &self.inner
    }
}

#[async_trait]
impl Store for Watched {
    async fn enter(
        &self,
        sale: &SaleId,
        lane: u16,
        entries: &[Entry],
        view: LaneView,
        now: Timestamp,
    ) -> Result<Vec<EnterAnswer>, StoreError> {
        self.count().enter(sale, lane, entries, view, now).await
    }
    async fn allow(&self, sale: &SaleId, lane: u16, listed: &[Listed]) -> Result<Allowed, StoreError> {
        self.inner.allow(sale, lane, listed).await
    }
    async fn redeem(
        &self,
        sale: &SaleId,
        lane: u16,
        redemptions: &[Redemption],
    ) -> Result<Vec<Redeemed>, StoreError> {
        self.count().redeem(sale, lane, redemptions).await
    }
    async fn leave(
        &self,
        sale: &SaleId,
        lane: u16,
        account: AccountHash,
        seq: u64,
        forfeited: Option<&str>,
    ) -> Result<Departure, StoreError> {
        self.count().leave(sale, lane, account, seq, forfeited).await
    }
    async fn seat(&self, sale: &SaleId, lane: u16, account: AccountHash) -> Result<Option<Seat>, StoreError> {
        self.count().seat(sale, lane, account).await
    }
    async fn conclude(&self, sale: &SaleId, lane: u16, accounts: &[AccountHash]) -> Result<u64, StoreError> {
        self.inner.conclude(sale, lane, accounts).await
    }
    async fn forfeit(&self, sale: &SaleId, lane: u16, forfeits: &[Forfeit]) -> Result<u64, StoreError> {
        self.inner.forfeit(sale, lane, forfeits).await
    }
    async fn renew(&self, sale: &SaleId, lane: u16, renewal: &Renewal) -> Result<Option<Right>, StoreError> {
        self.count().renew(sale, lane, renewal).await
    }
    async fn spend(
        &self,
        sale: &SaleId,
        proof: Proof,
        account: AccountHash,
        now: Timestamp,
    ) -> Result<Spent, StoreError> {
        self.count().spend(sale, proof, account, now).await
    }
    async fn survey(&self, sale: &SaleId, read: &[LogsRead], now: Timestamp) -> Vec<Option<LaneReport>> {
        let mut reports = self.inner.survey(sale, read, now).await;
        if let Some(lane) = *self.silent.lock().unwrap() {
            reports[lane] = None;
        }
        reports
    }
    async fn lease(
        &self,
        sale: &SaleId,
        holder: &str,
        lease_ms: u64,
        knows: u64,
    ) -> Result<Option<u64>, StoreError> {
        self.inner.lease(sale, holder, lease_ms, knows).await
    }
    async fn record(&self, sale: &SaleId, rows_from: usize) -> Result<Recorded, StoreError> {
        self.inner.record(sale, rows_from).await
    }
    async fn advance(&self, sale: &SaleId, step: &Move) -> Result<Advanced, StoreError> {
        self.inner.advance(sale, step).await
    }
    async fn fold(&self, sale: &SaleId, fence: u64, rows_first: usize) -> Result<Advanced, StoreError> {
        self.inner.fold(sale, fence, rows_first).await
    }
    async fn ping(&self) -> Result<(), StoreError> {
        self.inner.ping().await
    }
}
