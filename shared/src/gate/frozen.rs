//! Which sales the gate's answers said are frozen, for whoever rebuilds them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

use crate::ids::SaleId;

/// Sales to rebuild, each with the generation it was seen frozen in, or `None`: whatever generation it has, because its
/// stock was found wrong. No more than there are sales.
#[derive(Debug, Default)]
pub struct FrozenSales {
    seen: Mutex<BTreeMap<SaleId, Option<u64>>>,
    arrived: Notify,
}

impl FrozenSales {
    /// Notes that a sale is frozen in `generation`; `None`: its stock is wrong, whatever generation it has.
    pub fn note(&self, sale: &SaleId, generation: Option<u64>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = seen.entry(sale.clone()).or_insert(generation);
        *noted = noted.and(generation);
        drop(seen);
        self.arrived.notify_one();
    }

    /// Waits until a sale was noted, for one waiter.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Takes what was noted of the sales for which `now` is true; the others stay.
    #[must_use]
    pub fn take(&self, mut now: impl FnMut(&SaleId) -> bool) -> BTreeMap<SaleId, Option<u64>> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extract_if(.., |sale, _| now(sale)).collect()
    }
}
