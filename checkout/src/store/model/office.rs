//! The back office's side of the reference.

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, SaleId},
    store::StoreError,
};

use super::{ModelStore, State};
use crate::{
    order::{Anomaly, OrderRecord},
    payment::PaymentId,
    store::office::{
        Changes, FOUND_PAGE_MAX, Kept, Lease, LeaseRow, Office, OrderChange, PARKED_PAGE_MAX, Parked,
        ParkedNotice, ParkedPlace, Search, is_in_feed,
    },
};

/// A change as it was noted: its order, and what the order was then.
pub(super) type Noted = (ClaimId, OrderRecord, Timestamp);

impl State {
    /// Writes down which orders came into a state that stands in the feed.
    pub(super) fn note_changes(&mut self, now: Timestamp) {
        for (id, order) in &self.ledger.orders {
            let known = self.states.insert(*id, order.state);
            if known != Some(order.state) && is_in_feed(order.state) {
                self.changes.push((*id, order.clone(), now));
            }
        }
    }

    fn is_leased(&self, lease: Lease) -> bool {
        self.leases.get(lease.name).is_some_and(|row| row.fence == lease.fence)
    }
}

fn is_found(state: &State, order: &OrderRecord, search: &Search) -> bool {
    let owns = |unit: &u32| {
        search.item.as_ref().is_some_and(|item| {
            state.ledger.owners.get(&(order.sale.clone(), item.clone(), *unit)) == Some(&order.id)
        })
    };
    let has_email = |email: &String| order.email.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(email));
    search.state.is_none_or(|wanted| order.state == wanted)
        && search.email.as_ref().is_none_or(has_email)
        && search.account.is_none_or(|account| order.account == account)
        && search.item.as_ref().is_none_or(|item| order.item == *item)
        && search.unit.as_ref().is_none_or(owns)
        && search.order.is_none_or(|id| order.id == id)
}

#[async_trait]
impl Office for ModelStore {
    async fn changes(&self, sale: &SaleId, after: u64, limit: usize) -> Result<Changes, StoreError> {
        Ok(self.with(|state| {
            let own: Vec<(u64, &Noted)> =
                (1..).zip(&state.changes).filter(|(_, (_, order, _))| order.sale == *sale).collect();
            let last = own.last().map_or(0, |(position, _)| *position);
            let changes = own.into_iter().filter(|(position, _)| *position > after).take(limit);
            let changes = changes
                .filter_map(|(position, (id, then, at))| {
                    let order = state.ledger.orders.get(id)?.clone();
                    Some(OrderChange {
                        position,
                        state: then.state,
                        units: then.units.clone(),
                        at: *at,
                        order,
                    })
                })
                .collect();
            Changes { changes, last }
        }))
    }

    async fn find(
        &self,
        sale: &SaleId,
        search: &Search,
        after: Option<ClaimId>,
        limit: usize,
    ) -> Result<Vec<OrderRecord>, StoreError> {
        Ok(self.with(|state| {
            let orders = state.ledger.orders.values();
            orders
                .filter(|order| order.sale == *sale && after.is_none_or(|after| order.id > after))
                .filter(|order| is_found(state, order, search))
                .take(limit.min(FOUND_PAGE_MAX))
                .cloned()
                .collect()
        }))
    }

    async fn lease(
        &self,
        name: &'static str,
        holder: &str,
        life_ms: u64,
        now: Timestamp,
    ) -> Result<Option<Lease>, StoreError> {
        Ok(self.with(|state| {
            let row: LeaseRow = state.leases.remove(name).unwrap_or_default();
            let (row, fence) = row.asked(holder, life_ms, now);
            state.leases.insert(name.to_owned(), row);
            fence.map(|fence| Lease { name, fence })
        }))
    }

    async fn note(
        &self,
        lease: Lease,
        sale: &SaleId,
        order: ClaimId,
        anomaly: &Anomaly,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        Ok(self.with(|state| {
            let is_leased = state.is_leased(lease);
            if is_leased {
                state.anomalies.push((Some(sale.clone()), order, anomaly.clone(), now));
            }
            is_leased
        }))
    }

    async fn keep(
        &self,
        lease: Lease,
        sale: &SaleId,
        text: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        Ok(self.with(|state| {
            let is_leased = state.is_leased(lease);
            if is_leased {
                let kept = Kept { fence: lease.fence, text: text.to_owned(), at: now };
                state.kept.insert(sale.clone(), kept);
            }
            is_leased
        }))
    }

    async fn kept(&self, sale: &SaleId) -> Result<Option<Kept>, StoreError> {
        Ok(self.with(|state| state.kept.get(sale).cloned()))
    }

    async fn parked(&self, before: Timestamp, after: Option<&ParkedPlace>) -> Result<Parked, StoreError> {
        Ok(self.with(|state| {
            let waiting = state.ledger.parked.iter();
            let waiting: Vec<_> = waiting
                .filter(|((at, ..), notice)| *at < before && notice.outcome.is_money())
                .map(|(place, notice)| ParkedNotice { place: place.clone(), notice: notice.clone() })
                .collect();
            let total = waiting.len() as u64;
            let page = waiting.into_iter().filter(|one| after.is_none_or(|after| one.place > *after));
            Parked { total, notices: page.take(PARKED_PAGE_MAX).collect() }
        }))
    }

    async fn strike_off(&self, payment: PaymentId) -> Result<u64, StoreError> {
        Ok(self.with(|state| {
            let before = state.ledger.parked.len();
            state.ledger.parked.retain(|_, notice| notice.payment != payment);
            (before - state.ledger.parked.len()) as u64
        }))
    }
}
