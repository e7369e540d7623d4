//! The reference: orders in memory, under one lock. Every back end answers like it; nothing survives the process.

mod office;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
    store::StoreError,
};

use super::{
    DEAD_LETTERS_MAX, DeadLetter, DeadLetters, ItemBooks, Notified, ORDERS_PAGE_MAX, OVERDUE_SECONDS, Placed,
    Store, UNSETTLED_MAX,
    ledger::Ledger,
    office::{Kept, LeaseRow, NotedAnomaly},
};
use crate::{
    order::{Decision, Intake, OrderEvent, OrderRecord, OrderState},
    payment::{Notice, PaymentId},
};

/// Orders in memory.
#[derive(Debug, Default)]
pub struct ModelStore(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    ledger: Ledger,
    notified: BTreeSet<(String, String)>,
    dead: BTreeMap<(SaleId, String), DeadLetter>,
    /// Which state of each order the feed has heard of.
    states: BTreeMap<ClaimId, OrderState>,
    changes: Vec<office::Noted>,
    noted: Vec<(Option<SaleId>, NotedAnomaly)>,
    leases: BTreeMap<String, LeaseRow>,
    kept: BTreeMap<SaleId, Kept>,
}

impl ModelStore {
    /// Every order, by id.
    #[must_use]
    pub fn all_orders(&self) -> Vec<OrderRecord> {
        self.with(|state| state.ledger.orders.values().cloned().collect())
    }

    fn with<T>(&self, op: impl FnOnce(&mut State) -> T) -> T {
        op(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Store for ModelStore {
    async fn place(
        &self,
        sale: &SaleId,
        batch: &[Intake],
        dead: &[DeadLetter],
        now: Timestamp,
    ) -> Result<Placed, StoreError> {
        Ok(self.with(|state| {
            for letter in dead {
                state.dead.insert((sale.clone(), letter.event.clone()), letter.clone());
            }
            let placed = state.ledger.place(batch, now);
            state.note_changes(now);
            state.note_anomalies(&placed.anomalies, now);
            placed
        }))
    }

    async fn decide(
        &self,
        order: ClaimId,
        event: &OrderEvent,
        now: Timestamp,
    ) -> Result<Option<Decision>, StoreError> {
        Ok(self.with(|state| {
            let decision = state.ledger.decide(order, event, now);
            state.note_decision(decision.as_ref(), now);
            decision
        }))
    }

    async fn notify(
        &self,
        gateway: &str,
        event: &str,
        notice: &Notice,
        now: Timestamp,
    ) -> Result<Notified, StoreError> {
        Ok(self.with(|state| {
            if !state.notified.insert((gateway.to_owned(), event.to_owned())) {
                return Notified::Duplicate;
            }
            let owner = state.ledger.payments.get(&notice.payment).copied().or(notice.order);
            let applied =
                owner.and_then(|id| state.ledger.decide(id, &OrderEvent::Notified(notice.clone()), now));
            state.note_decision(applied.as_ref(), now);
            match applied {
                Some(decision) => Notified::Applied(Box::new(decision)),
                None => {
                    let place = (now, gateway.to_owned(), event.to_owned());
                    state.ledger.parked.insert(place, notice.clone());
                    Notified::Parked
                }
            }
        }))
    }

    async fn order(&self, order: ClaimId) -> Result<Option<OrderRecord>, StoreError> {
        Ok(self.with(|state| state.ledger.orders.get(&order).cloned()))
    }

    async fn order_of(&self, payment: PaymentId) -> Result<Option<ClaimId>, StoreError> {
        Ok(self.with(|state| state.ledger.payments.get(&payment).copied()))
    }

    async fn unsettled(
        &self,
        after: Option<ClaimId>,
        now: Timestamp,
    ) -> Result<Vec<OrderRecord>, StoreError> {
        let overdue = now.minus_seconds(OVERDUE_SECONDS);
        Ok(self.with(|state| {
            state
                .ledger
                .orders
                .values()
                .filter(|order| after.is_none_or(|after| order.id > after))
                .filter(|order| {
                    let waits = order.state == OrderState::AwaitingPayment && order.ending.is_none();
                    order.is_unsettled() || (waits && order.hold_expires_at < overdue)
                })
                .take(UNSETTLED_MAX)
                .cloned()
                .collect()
        }))
    }

    async fn orders(&self, sale: &SaleId, after: Option<ClaimId>) -> Result<Vec<OrderRecord>, StoreError> {
        Ok(self.with(|state| {
            let own = state.ledger.orders.values().filter(|order| order.sale == *sale);
            own.filter(|order| after.is_none_or(|after| order.id > after))
                .take(ORDERS_PAGE_MAX)
                .cloned()
                .collect()
        }))
    }

    async fn books(&self, sale: &SaleId) -> Result<BTreeMap<ItemId, ItemBooks>, StoreError> {
        Ok(self.with(|state| {
            let mut books: BTreeMap<ItemId, ItemBooks> = BTreeMap::new();
            for order in state.ledger.orders.values().filter(|order| order.sale == *sale) {
                let units = order.units.len() as u64;
                books.entry(order.item.clone()).or_default().count(order.state, order.gate, 1, units);
            }
            books
        }))
    }

    async fn dead_letters(&self, sale: &SaleId) -> Result<DeadLetters, StoreError> {
        Ok(self.with(|state| {
            let mut letters: Vec<DeadLetter> = state
                .dead
                .iter()
                .filter(|((of, _), _)| of == sale)
                .map(|(_, letter)| letter.clone())
                .collect();
            letters.sort_by(|a, b| (a.found_at, &a.event).cmp(&(b.found_at, &b.event)));
            let total = letters.len() as u64;
            letters.truncate(DEAD_LETTERS_MAX);
            DeadLetters { total, letters }
        }))
    }

    async fn clear(&self, sale: &SaleId, event: &str) -> Result<(), StoreError> {
        self.with(|state| state.dead.remove(&(sale.clone(), event.to_owned())));
        Ok(())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
