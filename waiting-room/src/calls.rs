//! The store calls that shoppers cause by the hundred thousand, shared by those who wait at the same moment.

use std::sync::Arc;

use lockgate_shared::{ids::SaleId, store::StoreError};

use crate::{
    app::AppParts,
    coalesce::Coalescer,
    snapshot::LiveSale,
    store::{EnterAnswer, Entry, Redeemed, Redemption, Store},
};

/// What is under way at the store.
pub(crate) struct Calls {
    entries: Coalescer<Entry, EnterAnswer>,
    redemptions: Coalescer<Redemption, Redeemed>,
}

impl Default for Calls {
    fn default() -> Self {
        Self { entries: Coalescer::new("enter"), redemptions: Coalescer::new("redeem") }
    }
}

impl Calls {
    /// Enters with whoever else enters this lane now. What is missed and numbered is read when the call leaves.
    pub(crate) async fn enter(
        &self,
        parts: &AppParts,
        live: &Arc<LiveSale>,
        sale: &SaleId,
        lane: u16,
        entry: Entry,
    ) -> Result<EnterAnswer, StoreError> {
        let call = || {
            let (store, clock) = (Arc::clone(&parts.store), Arc::clone(&parts.clock));
            let (live, sale) = (Arc::clone(live), sale.clone());
            move |entries: Vec<Entry>| {
                let (store, sale, now) = (Arc::clone(&store), sale.clone(), clock.now());
                let view = live.snapshot().lane_view(lane);
                async move { store.enter(&sale, lane, &entries, view, now).await }
            }
        };
        self.entries.ride(sale, lane, entry, call).await
    }

    /// Redeems with whoever else redeems in this lane now.
    pub(crate) async fn redeem(
        &self,
        store: &Arc<dyn Store>,
        sale: &SaleId,
        lane: u16,
        redemption: Redemption,
    ) -> Result<Redeemed, StoreError> {
        let call = || {
            let (store, sale) = (Arc::clone(store), sale.clone());
            move |redemptions: Vec<Redemption>| {
                let (store, sale) = (Arc::clone(&store), sale.clone());
                async move { store.redeem(&sale, lane, &redemptions).await }
            }
        };
        self.redemptions.ride(sale, lane, redemption, call).await
    }
}
