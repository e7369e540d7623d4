//! PURE: what a batch of the gate's records makes of the orders it touches. The model keeps all orders in one ledger;
//! PostgreSQL loads the part that a batch is about, and writes what changed.

use std::collections::BTreeMap;

use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
};

use super::Placed;
use crate::{
    order::{self, Anomaly, Decision, Intake, OrderEvent, OrderRecord},
    outbox::{self, Draft, Wants},
    payment::{Notice, PaymentId},
};

/// Orders, and what must agree with them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    pub(super) orders: BTreeMap<ClaimId, OrderRecord>,
    /// The live owner of each unit.
    pub(super) owners: BTreeMap<(SaleId, ItemId, u32), ClaimId>,
    pub(super) payments: BTreeMap<PaymentId, ClaimId>,
    /// Notices without an order, by when, from which gateway and under which id they came: the order in which they
    /// are applied.
    pub(super) parked: BTreeMap<(Timestamp, String, String), Notice>,
    pub(super) wants: Wants,
    /// The messages that the changes brought, in their order; whoever writes the changes takes them.
    pub(super) drafts: Vec<(ClaimId, Draft)>,
}

impl Ledger {
    /// Writes an order, with ownership of its units; answers it as written.
    fn save(&mut self, mut after: OrderRecord, anomalies: &mut Vec<(ClaimId, Anomaly)>) -> OrderRecord {
        let key = |unit: &u32| (after.sale.clone(), after.item.clone(), *unit);
        let before = self.orders.get(&after.id).map(|order| order.units.clone()).unwrap_or_default();
        for gone in before.iter().filter(|unit| !after.units.contains(unit)).map(key) {
            if self.owners.get(&gone) == Some(&after.id) {
                self.owners.remove(&gone);
            }
        }
        let taken = |unit: &u32| self.owners.get(&key(unit)).is_some_and(|owner| *owner != after.id);
        if after.owns_units() && after.units.iter().any(taken) {
            after = order::dispute_found(&after, anomalies);
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
        let before = self.orders.insert(after.id, after.clone());
        let drafts = outbox::messages(before.as_ref(), &after, self.wants);
        self.drafts.extend(drafts.into_iter().map(|draft| (after.id, draft)));
        after
    }

    /// Decides an event for an order, if it is there.
    pub(super) fn decide(&mut self, id: ClaimId, event: &OrderEvent, now: Timestamp) -> Option<Decision> {
        let mut decision = order::decide(self.orders.get(&id)?, event, now);
        let mut found: Vec<_> = decision.anomalies.drain(..).map(|anomaly| (id, anomaly)).collect();
        decision.after = self.save(decision.after, &mut found);
        decision.anomalies = found.into_iter().map(|(_, anomaly)| anomaly).collect();
        Some(decision)
    }

    /// Makes orders of a batch, one record after the other.
    pub(super) fn place(&mut self, batch: &[Intake], now: Timestamp) -> Placed {
        let mut placed = Placed::default();
        let mut anomalies_of_parked = Vec::new();
        for intake in batch {
            let id = intake.placement().order;
            let Some(decision) = order::place(self.orders.get(&id), intake) else {
                continue;
            };
            placed.anomalies.extend(decision.anomalies.into_iter().map(|anomaly| (id, anomaly)));
            let mut after = self.save(decision.after, &mut placed.anomalies);
            for (_, notice) in
                self.parked.extract_if(.., |_, notice| notice.order == Some(id)).collect::<Vec<_>>()
            {
                // An attempt that another order made meanwhile is that order's to answer for.
                let owner = self.payments.get(&notice.payment).copied().unwrap_or(id);
                let Some(decision) = self.decide(owner, &OrderEvent::Notified(notice), now) else {
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
    }
}
