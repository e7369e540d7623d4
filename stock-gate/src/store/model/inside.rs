//! What a simulation sees of the store, and does to it.

use std::{collections::HashMap, sync::PoisonError};

use lockgate_shared::{events::Event, gate::Hold, ids::SaleId};

use super::{ModelStore, Sale};

/// What a store held at one moment.
pub struct Copied(HashMap<SaleId, Sale>);

impl ModelStore {
    /// What happened in a sale after its first `count` events, in order.
    #[must_use]
    pub fn events_after(&self, sale: &SaleId, count: usize) -> Vec<Event> {
        let sales = self.sales.lock().unwrap_or_else(PoisonError::into_inner);
        sales.get(sale).and_then(|sale| sale.events.get(count..)).map(<[Event]>::to_vec).unwrap_or_default()
    }

    /// How many events a sale has.
    #[must_use]
    pub fn event_count(&self, sale: &SaleId) -> usize {
        self.sales
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(sale)
            .map_or(0, |sale| sale.events.len())
    }

    /// Every hold of a sale, by claim, in whatever state the sale is.
    #[must_use]
    pub fn all_holds(&self, sale: &SaleId) -> Vec<Hold> {
        let sales = self.sales.lock().unwrap_or_else(PoisonError::into_inner);
        sales.get(sale).map(|sale| sale.holds.values().cloned().collect()).unwrap_or_default()
    }

    /// Whether a sale waits to be rebuilt.
    #[must_use]
    pub fn is_frozen(&self, sale: &SaleId) -> bool {
        let sales = self.sales.lock().unwrap_or_else(PoisonError::into_inner);
        sales.get(sale).is_some_and(|sale| sale.frozen.is_some())
    }

    /// Everything as it is now, for [`ModelStore::set_back`].
    #[must_use]
    pub fn copy(&self) -> Copied {
        Copied(self.sales.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Sets everything back to what it was, as a fail-over to a replica does that lacked the last writes.
    pub fn set_back(&self, to: &Copied) {
        self.sales.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&to.0);
    }
}
