//! Which sales the gate's answers said are frozen, for whoever rebuilds them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

use crate::ids::SaleId;

/// Sales seen frozen, each with the generation it was seen in. No more than there are sales.
#[derive(Debug, Default)]
pub struct FrozenSales {
    seen: Mutex<BTreeMap<SaleId, u64>>,
    arrived: Notify,
}

impl FrozenSales {
    /// Notes that a sale is frozen.
    pub fn note(&self, sale: &SaleId, generation: u64) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(sale.clone(), generation);
        self.arrived.notify_one();
    }

    /// Waits until a sale was noted, for one waiter.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Takes what was noted.
    #[must_use]
    pub fn take(&self) -> BTreeMap<SaleId, u64> {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
