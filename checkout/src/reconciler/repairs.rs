//! What is done about differences that stand: asked once more, written down, then done. Every step may be repeated.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use lockgate_shared::{
    clock::Timestamp,
    gate::{FreezeAnswer, FreezeRequest, HoldState},
    ids::{ClaimId, SaleId},
};

use super::{Trouble, Watched};
use crate::{
    app::{App, log_anomaly},
    claim::placement_of_hold,
    gateways::PaymentStatus,
    order::{Anomaly, Intake, OrderEvent, OrderRecord, Placement},
    payment::{Notice, Outcome, PaymentId, PaymentState},
    reconcile::{HoldView, Repair, Standing, of_units},
    store::office::{Lease, Search},
};

/// Repairs begun in one round of a sale.
const REPAIRS_MAX: usize = 64;
/// Attempts the gateway is asked about in one round.
const ASKS_MAX: usize = 32;
/// Seconds until a repair that did not help is tried again, and until the gateway is asked again.
const AGAIN_SECONDS: u64 = 120;

/// What is left of a round's questions to the gateway, and of the time it may take over them: one for all sales, so that a
/// gateway that hangs makes a round no longer the more sales there are.
pub(super) struct Asking {
    left: usize,
    until: Instant,
}

impl Asking {
    pub(super) fn new(longest: Duration) -> Self {
        Self { left: ASKS_MAX, until: Instant::now() + longest }
    }

    /// How long the next question may take, if there may be one.
    fn next(&mut self) -> Option<Duration> {
        let time = self.until.saturating_duration_since(Instant::now());
        self.left = self.left.checked_sub(1).filter(|_| !time.is_zero())?;
        Some(time)
    }
}

/// Repairs what can be repaired safely and answers how many repairs were begun.
pub(super) async fn repair(
    app: &App,
    lease: Lease,
    sale: &SaleId,
    watched: &mut Watched,
    standing: &[Standing],
    asking: &mut Asking,
) -> Result<usize, Trouble> {
    let now = app.now();
    let is_fresh = |at: &Timestamp| now < at.plus_seconds(AGAIN_SECONDS);
    watched.repaired.retain(|_, at| is_fresh(at));
    let in_doubt: BTreeSet<PaymentId> = standing.iter().filter_map(|one| one.finding.payment).collect();
    watched.asked.retain(|payment, _| in_doubt.contains(payment));
    let hand = Hand { app, lease, sale, now };
    let mut done = 0;
    let mut due: Vec<&Standing> = standing.iter().filter(|one| !one.finding.kind.asks_gateway()).collect();
    // Who lost units gives way before whoever has them by now gets an order.
    due.sort_by_key(|one| one.finding.kind.repair() != Some(Repair::EndOrder));
    for one in due {
        let key = (one.finding.kind, one.finding.order);
        let (Some(repair), Some(claim)) = (one.finding.kind.repair(), one.finding.order) else { continue };
        // One rebuild is for all that was lost.
        let is_rebuilt = repair == Repair::RebuildStock
            && watched.repaired.keys().any(|(kind, _)| kind.repair() == Some(Repair::RebuildStock));
        if done >= REPAIRS_MAX || is_rebuilt || watched.repaired.contains_key(&key) {
            continue;
        }
        if hand.mend(claim, repair, one).await? {
            watched.repaired.insert(key, now);
            done += 1;
        }
    }
    done += hand.ask(watched, standing, asking).await?;
    Ok(done)
}

/// What a repair is done with.
struct Hand<'a> {
    app: &'a App,
    lease: Lease,
    sale: &'a SaleId,
    now: Timestamp,
}

impl Hand<'_> {
    /// Writes a repair down; nobody without the lease does anything.
    async fn note(
        &self,
        claim: ClaimId,
        payment: Option<PaymentId>,
        repair: Repair,
        detail: String,
    ) -> Result<(), Trouble> {
        let anomaly = Anomaly { payment, kind: repair.as_str(), detail };
        if !self.app.store.note(self.lease, self.sale, claim, &anomaly, self.now).await? {
            return Err(Trouble::LeaseLost);
        }
        log_anomaly(claim, &anomaly);
        metrics::counter!("lockgate_reconciler_repairs_total", "kind" => repair.as_str()).increment(1);
        Ok(())
    }

    /// Repairs what gate and order of a claim still show when asked for by itself; answers whether they do.
    async fn mend(&self, claim: ClaimId, repair: Repair, one: &Standing) -> Result<bool, Trouble> {
        let hold = self.app.gate.direct().hold(self.sale, claim).await?;
        let order = self.app.store.order(claim).await?;
        let view = hold.as_ref().map(HoldView::from);
        let found = of_units(claim, view.as_ref(), order.as_ref());
        if found.as_ref().map(|found| (found.kind, &found.seen))
            != Some((one.finding.kind, &one.finding.seen))
        {
            return Ok(false);
        }
        let placement = hold.as_ref().and_then(|hold| placement_of_hold(self.sale, hold).ok());
        let state = hold.as_ref().map(|hold| hold.state);
        let words = |what: &str| format!("{}; {what}", one.finding.seen);
        match (repair, placement, order) {
            (Repair::PlaceOrder, Some(claimed), None) => {
                if self.has_owner(&claimed).await? {
                    return Ok(false);
                }
                self.note(claim, None, repair, words("the order is made from the hold")).await?;
                let record = match state {
                    Some(HoldState::Held) => Intake::Claimed(claimed),
                    _ => Intake::Expiring(claimed),
                };
                self.place(record).await?;
            }
            (Repair::EndOrder, Some(claimed), Some(_)) => {
                self.note(claim, None, repair, words("the order ends, and nobody can pay for it")).await?;
                self.place(Intake::Released(claimed)).await?;
            }
            (Repair::CommitAgain | Repair::ReleaseAgain, _, Some(order)) => {
                self.note(claim, None, repair, words("the gate is told again")).await?;
                self.decide(&order, &OrderEvent::Expire).await?;
            }
            (Repair::RebuildStock, _, Some(_)) => {
                self.note(claim, None, repair, words("the stock is rebuilt")).await?;
                self.rebuild(format!("the order {claim}: {}", one.finding.seen)).await?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether another order owns a unit of this claim: its buyer would be sent away for a difference that may yet be
    /// repaired.
    async fn has_owner(&self, claim: &Placement) -> Result<bool, Trouble> {
        for unit in &claim.units {
            let search = Search { item: Some(claim.item.clone()), unit: Some(*unit), ..Search::default() };
            if !self.app.store.find(self.sale, &search, None, 1).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn place(&self, record: Intake) -> Result<(), Trouble> {
        let placed = self.app.store.place(self.sale, &[record], &[], self.now).await?;
        self.app.placed(&placed);
        Ok(())
    }

    async fn decide(&self, order: &OrderRecord, event: &OrderEvent) -> Result<(), Trouble> {
        if let Some(decision) = self.app.store.decide(order.id, event, self.now).await? {
            for anomaly in &decision.anomalies {
                log_anomaly(order.id, anomaly);
            }
            self.app.work.notify_one();
        }
        Ok(())
    }

    /// Closes the sale for the moment that a rebuild takes.
    async fn rebuild(&self, why: String) -> Result<(), Trouble> {
        let request = FreezeRequest { if_generation: None, why };
        let gate = self.app.gate.direct();
        if let FreezeAnswer::Frozen(freeze) = gate.freeze(self.sale, &request).await? {
            gate.frozen().note(self.sale, Some(freeze.generation));
        }
        Ok(())
    }

    /// Asks the gateway about attempts that look doubtful, and applies what it says of open ones.
    ///
    /// A gateway that does not answer is asked again in a later round, about those first that it was not asked about.
    async fn ask(
        &self,
        watched: &mut Watched,
        standing: &[Standing],
        asking: &mut Asking,
    ) -> Result<usize, Trouble> {
        let is_fresh = |at: &Timestamp| self.now < at.plus_seconds(AGAIN_SECONDS);
        let asks = standing.iter().filter(|one| one.finding.kind.asks_gateway());
        let mut doubts: Vec<_> = asks
            .filter_map(|one| Some((one.finding.payment?, one.finding.order?, one.finding.kind)))
            .collect();
        doubts.retain(|(payment, ..)| !watched.asked.get(payment).is_some_and(is_fresh));
        doubts.sort_by_key(|(payment, ..)| watched.asked.get(payment).copied());
        let mut done = 0;
        for (payment, claim, kind) in doubts {
            let Some(order) = self.app.store.order(claim).await? else { continue };
            let Some(longest) = asking.next() else { break };
            watched.asked.insert(payment, self.now);
            let question = self.app.asked(&order, payment);
            match tokio::time::timeout(longest, self.app.gateway.state(&question)).await {
                Ok(Ok(PaymentStatus::Ended(outcome))) => {
                    done += usize::from(self.hear(claim, payment, outcome).await?);
                }
                Ok(Ok(status)) => {
                    let kind = kind.as_str();
                    tracing::debug!(order = %claim, %payment, kind, ?status, "the gateway says nothing new");
                }
                Ok(Err(error)) => tracing::debug!(%error, "the gateway is asked again later"),
                Err(_) => tracing::debug!(order = %claim, %payment, "the gateway gives no answer for now"),
            }
        }
        Ok(done)
    }

    /// Applies the gateway's word to an attempt that is still open here.
    async fn hear(&self, claim: ClaimId, payment: PaymentId, outcome: Outcome) -> Result<bool, Trouble> {
        let Some(order) = self.app.store.order(claim).await? else { return Ok(false) };
        let is_open = |attempt: &&crate::payment::PaymentRecord| {
            attempt.id == payment && attempt.state == PaymentState::Open
        };
        if order.payments.iter().find(is_open).is_none() {
            return Ok(false);
        }
        let word = match &outcome {
            Outcome::Paid(money) => format!("paid, {money}"),
            Outcome::Failed => "failed".to_owned(),
            Outcome::Unpayable => "unpayable".to_owned(),
            Outcome::RefundFailed => "its refund failed".to_owned(),
        };
        let detail = format!("nobody said so, but the gateway says when asked: {word}; it is applied");
        self.note(claim, Some(payment), Repair::ApplyNotice, detail).await?;
        let notice = Notice { payment, order: None, outcome };
        self.decide(&order, &OrderEvent::Notified(notice)).await?;
        Ok(true)
    }
}
