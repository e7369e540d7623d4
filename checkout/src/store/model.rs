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
    ANOMALIES_PAGE_MAX, AnomalyRecord, DEAD_LETTERS_MAX, DeadLetter, DeadLetters, ItemBooks, Notified,
    ORDERS_PAGE_MAX, OVERDUE_SECONDS, Placed, Store, UNSETTLED_MAX,
    ledger::Ledger,
    office::{Kept, LeaseRow},
    outbox::MemoryOutbox,
};
use crate::{
    order::{Anomaly, Decision, Intake, OrderEvent, OrderRecord, OrderState},
    outbox::Wants,
    payment::{Notice, PaymentId},
};

/// Orders in memory.
#[derive(Debug, Default)]
pub struct ModelStore(Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    ledger: Ledger,
    pub(super) outbox: MemoryOutbox,
    notified: BTreeSet<(String, String)>,
    dead: BTreeMap<(SaleId, String), DeadLetter>,
    /// Each with its sale where it is about a claim that may have no order.
    anomalies: Vec<(Option<SaleId>, ClaimId, Anomaly, Timestamp)>,
    /// Which state of each order the feed has heard of.
    states: BTreeMap<ClaimId, OrderState>,
    changes: Vec<office::Noted>,
    leases: BTreeMap<String, LeaseRow>,
    kept: BTreeMap<SaleId, Kept>,
}

impl State {
    fn found(&mut self, order: ClaimId, anomalies: &[Anomaly], now: Timestamp) {
        self.anomalies.extend(anomalies.iter().map(|anomaly| (None, order, anomaly.clone(), now)));
    }
}

impl ModelStore {
    /// With an outbox for the channels that are set up.
    #[must_use]
    pub fn telling(wants: Wants) -> Self {
        let store = Self::default();
        store.with(|state| state.ledger.wants = wants);
        store
    }

    /// Every order, by id.
    #[must_use]
    pub fn all_orders(&self) -> Vec<OrderRecord> {
        self.with(|state| state.ledger.orders.values().cloned().collect())
    }

    pub(super) fn with<T>(&self, op: impl FnOnce(&mut State) -> T) -> T {
        op(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes orders, and writes the messages that it brings.
    fn change<T>(&self, now: Timestamp, op: impl FnOnce(&mut State) -> T) -> T {
        self.with(|state| {
            let answer = op(state);
            let drafts = std::mem::take(&mut state.ledger.drafts);
            state.outbox.write(drafts, now);
            answer
        })
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
        Ok(self.change(now, |state| {
            let mut buried = Vec::new();
            for letter in dead {
                if state.dead.insert((sale.clone(), letter.event.clone()), letter.clone()).is_none() {
                    buried.push(letter.event.clone());
                }
            }
            let placed = Placed { buried, ..state.ledger.place(batch, now) };
            for (order, anomaly) in &placed.anomalies {
                state.found(*order, std::slice::from_ref(anomaly), now);
            }
            state.note_changes(now);
            placed
        }))
    }

    async fn decide(
        &self,
        order: ClaimId,
        event: &OrderEvent,
        now: Timestamp,
    ) -> Result<Option<Decision>, StoreError> {
        Ok(self.change(now, |state| {
            let decision = state.ledger.decide(order, event, now)?;
            state.found(order, &decision.anomalies, now);
            state.note_changes(now);
            Some(decision)
        }))
    }

    async fn notify(
        &self,
        gateway: &str,
        event: &str,
        notice: &Notice,
        now: Timestamp,
    ) -> Result<Notified, StoreError> {
        Ok(self.change(now, |state| {
            if !state.notified.insert((gateway.to_owned(), event.to_owned())) {
                return Notified::Duplicate;
            }
            let owner = state.ledger.payments.get(&notice.payment).copied().or(notice.order);
            let applied =
                owner.and_then(|id| state.ledger.decide(id, &OrderEvent::Notified(notice.clone()), now));
            state.note_changes(now);
            match applied {
                Some(decision) => {
                    state.found(decision.after.id, &decision.anomalies, now);
                    Notified::Applied(Box::new(decision))
                }
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

    async fn anomalies(&self, sale: &SaleId, after: Option<u64>) -> Result<Vec<AnomalyRecord>, StoreError> {
        Ok(self.with(|state| {
            let numbered = (1_u64..).zip(&state.anomalies);
            let read = |(number, (own, id, anomaly, found_at)): (
                u64,
                &(Option<SaleId>, ClaimId, Anomaly, Timestamp),
            )| {
                let order = state.ledger.orders.get(id);
                own.as_ref().or(order.map(|order| &order.sale)).filter(|of| *of == sale)?;
                Some(AnomalyRecord {
                    number,
                    order: *id,
                    payment: anomaly.payment,
                    kind: anomaly.kind.to_owned(),
                    detail: anomaly.detail.clone(),
                    found_at: *found_at,
                    state: order.map(|order| order.state),
                })
            };
            let rest = numbered.filter(|(number, _)| after.is_none_or(|after| *number > after));
            rest.filter_map(read).take(ANOMALIES_PAGE_MAX).collect()
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
