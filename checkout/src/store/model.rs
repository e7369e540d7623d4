//! The reference: orders in memory, under one lock. Every back end answers like it; nothing survives the process.

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
    DeadLetter, ItemBooks, Notified, ORDERS_PAGE_MAX, OVERDUE_SECONDS, Placed, Store, UNSETTLED_MAX,
};
use crate::{
    order::{self, Anomaly, Decision, Intake, OrderEvent, OrderRecord, OrderState},
    payment::{Notice, PaymentId},
};

/// Orders in memory.
#[derive(Debug, Default)]
pub struct ModelStore(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    orders: BTreeMap<ClaimId, OrderRecord>,
    owners: BTreeMap<(SaleId, ItemId, u32), ClaimId>,
    payments: BTreeMap<PaymentId, ClaimId>,
    notified: BTreeSet<(String, String)>,
    /// By when, from which gateway and under which id they came: the order in which they are applied.
    parked: BTreeMap<(Timestamp, String, String), Notice>,
    dead: BTreeMap<(SaleId, String), String>,
}

impl State {
    /// Writes an order, with ownership of its units; answers it as written.
    fn save(&mut self, mut after: OrderRecord, anomalies: &mut Vec<(ClaimId, Anomaly)>) -> OrderRecord {
        let key = |unit: &u32| (after.sale.clone(), after.item.clone(), *unit);
        let taken = |unit: &u32| self.owners.get(&key(unit)).is_some_and(|owner| *owner != after.id);
        if after.owns_units() && after.units.iter().any(taken) {
            let (disputed, anomaly) = order::dispute(&after);
            anomalies.push((after.id, anomaly));
            after = disputed;
        }
        for unit in &after.units {
            let key = (after.sale.clone(), after.item.clone(), *unit);
            if after.owns_units() {
                self.owners.insert(key, after.id);
            } else if self.owners.get(&key) == Some(&after.id) {
                self.owners.remove(&key);
            }
        }
        for payment in &after.payments {
            self.payments.insert(payment.id, after.id);
        }
        self.orders.insert(after.id, after.clone());
        after
    }

    fn decide(&mut self, id: ClaimId, event: &OrderEvent, now: Timestamp) -> Option<Decision> {
        let decision = order::decide(self.orders.get(&id)?, event, now);
        self.save(decision.after.clone(), &mut Vec::new());
        Some(decision)
    }
}

impl ModelStore {
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
            let mut placed = Placed::default();
            let mut anomalies_of_parked = Vec::new();
            for letter in dead {
                state
                    .dead
                    .entry((sale.clone(), letter.event.clone()))
                    .or_insert_with(|| letter.problem.clone());
            }
            for intake in batch {
                let id = intake.placement().order;
                let Some(after) = order::place(state.orders.get(&id), intake) else {
                    continue;
                };
                let mut after = state.save(after, &mut placed.anomalies);
                for (_, notice) in
                    state.parked.extract_if(.., |_, notice| notice.order == Some(id)).collect::<Vec<_>>()
                {
                    let owner = state.payments.get(&notice.payment).copied().unwrap_or(id);
                    let Some(decision) = state.decide(owner, &OrderEvent::Notified(notice), now) else {
                        continue;
                    };
                    let found = decision.anomalies.into_iter();
                    anomalies_of_parked.extend(found.map(|anomaly| (owner, anomaly)));
                    if owner == id {
                        after = decision.after;
                    }
                }
                placed.changed.push(after);
            }
            placed.anomalies.extend(anomalies_of_parked);
            placed
        }))
    }

    async fn decide(
        &self,
        order: ClaimId,
        event: &OrderEvent,
        now: Timestamp,
    ) -> Result<Option<Decision>, StoreError> {
        Ok(self.with(|state| state.decide(order, event, now)))
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
            let owner = state.payments.get(&notice.payment).copied().or(notice.order);
            let applied = owner.and_then(|id| state.decide(id, &OrderEvent::Notified(notice.clone()), now));
            match applied {
                Some(decision) => Notified::Applied(Box::new(decision)),
                None => {
                    let place = (now, gateway.to_owned(), event.to_owned());
                    state.parked.insert(place, notice.clone());
                    Notified::Parked
                }
            }
        }))
    }

    async fn order(&self, order: ClaimId) -> Result<Option<OrderRecord>, StoreError> {
        Ok(self.with(|state| state.orders.get(&order).cloned()))
    }

    async fn order_of(&self, payment: PaymentId) -> Result<Option<ClaimId>, StoreError> {
        Ok(self.with(|state| state.payments.get(&payment).copied()))
    }

    async fn unsettled(
        &self,
        after: Option<ClaimId>,
        now: Timestamp,
    ) -> Result<Vec<OrderRecord>, StoreError> {
        let overdue = now.minus_seconds(OVERDUE_SECONDS);
        Ok(self.with(|state| {
            state
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
            let own = state.orders.values().filter(|order| order.sale == *sale);
            own.filter(|order| after.is_none_or(|after| order.id > after))
                .take(ORDERS_PAGE_MAX)
                .cloned()
                .collect()
        }))
    }

    async fn books(&self, sale: &SaleId) -> Result<BTreeMap<ItemId, ItemBooks>, StoreError> {
        Ok(self.with(|state| {
            let mut books: BTreeMap<ItemId, ItemBooks> = BTreeMap::new();
            for order in state.orders.values().filter(|order| order.sale == *sale) {
                let units = order.units.len() as u64;
                books.entry(order.item.clone()).or_default().count(order.state, order.gate, 1, units);
            }
            books
        }))
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
