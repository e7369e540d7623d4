//! PURE: the rules. Each event is one function of the order before it.

use lockgate_shared::{
    clock::Timestamp,
    gate::{CommitAnswer, ReclaimAnswer, ReleaseAnswer},
    ids::ClaimId,
};

use super::{
    ATTEMPTS_MAX, Anomaly, Decision, EndReason, GateSide, Intake, OrderEvent, OrderRecord, OrderState,
    Placement, RECLAIMED, Refusal, UNIT_TAKEN, Verdict,
};
use crate::{
    payment::{self, Notice, PaymentId, PaymentRecord, PaymentState, Terms},
    refund,
};

impl OrderRecord {
    /// Ends an order that began to end, once no attempt can succeed any more.
    fn end_if_unpayable(&mut self) {
        let Some(reason) = self.ending else { return };
        if self.state != OrderState::AwaitingPayment || self.open_payments().next().is_some() {
            return;
        }
        self.state = match reason {
            EndReason::Expire => OrderState::Expired,
            EndReason::Cancel => OrderState::Cancelled,
        };
        if self.gate == GateSide::Held {
            self.gate = GateSide::ReleaseDue;
        }
    }

    /// The gate sold these units to an order that was paid late.
    fn keep_reclaimed(&mut self, units: &[u32]) -> Anomaly {
        let whose = if *units == self.units { "its own units" } else { "other units of the item" };
        let detail = format!("the buyer who paid late has {whose}: {units:?}");
        self.units = units.to_vec();
        self.state = OrderState::Paid;
        self.ending = None;
        self.gate = GateSide::Committed;
        Anomaly { payment: None, kind: RECLAIMED, detail }
    }

    /// A gate that forgot a claim and is asked again may give it other units. The later hold is the one it knows.
    fn claimed_anew(&mut self, claim: &Placement) {
        let is_same = claim.item == self.item && claim.units.len() == self.units.len();
        if is_same && self.gate == GateSide::Held && claim.claimed_at > self.claimed_at {
            self.units.clone_from(&claim.units);
        }
    }

    fn begin_to_end(&mut self, reason: EndReason) {
        self.ending.get_or_insert(reason);
        self.end_if_unpayable();
    }
}

/// Decides `event` for `order` at `now`.
#[must_use]
pub fn decide(order: &OrderRecord, event: &OrderEvent, now: Timestamp) -> Decision {
    let mut after = order.clone();
    let mut anomalies = Vec::new();
    let verdict = match event {
        OrderEvent::Pay { payment, terms } => pay(&mut after, *payment, terms, now),
        OrderEvent::Started { payment, redirect_url, reference } => {
            started(&mut after, *payment, redirect_url, reference.as_deref(), now)
        }
        OrderEvent::NotStarted { payment } => {
            not_started(&mut after, *payment);
            Verdict::Done
        }
        OrderEvent::Notified(notice) => {
            notified(&mut after, notice, now, &mut anomalies);
            Verdict::Done
        }
        OrderEvent::Expire => {
            expire(&mut after);
            Verdict::Done
        }
        OrderEvent::Cancel => cancel(&mut after),
        OrderEvent::CancelFor { why } => {
            let verdict = cancel(&mut after);
            note_act(order, &after, "cancelled_by_operator", why, &mut anomalies);
            verdict
        }
        OrderEvent::Commit(answer) => {
            committed(&mut after, *answer, &mut anomalies);
            Verdict::Done
        }
        OrderEvent::Release(answer) => {
            released(&mut after, *answer, &mut anomalies);
            Verdict::Done
        }
        OrderEvent::Reclaim(answer) => {
            reclaimed(&mut after, answer, &mut anomalies);
            Verdict::Done
        }
        OrderEvent::Refund { why } => {
            let verdict = refund_all(&mut after);
            note_act(order, &after, "refunded_by_operator", why, &mut anomalies);
            verdict
        }
        OrderEvent::GivenBack => {
            given_back(&mut after);
            Verdict::Done
        }
        OrderEvent::Refunded { payment } => {
            refund::refunded(&mut after, *payment);
            Verdict::Done
        }
    };
    Decision { verdict, after, anomalies }
}

/// What a record of the gate makes of an order that is there, or of none. `None`: nothing changes.
///
/// An order that is placed already ended is the tombstone of its claim: the claim's own record, if it comes later,
/// finds it and changes nothing.
#[must_use]
pub fn place(before: Option<&OrderRecord>, intake: &Intake) -> Option<Decision> {
    let Some(before) = before else {
        let ended_as = match intake {
            Intake::Claimed(_) => None,
            Intake::Expiring(_) => Some(GateSide::ReleaseDue),
            Intake::Released(_) => Some(GateSide::Released),
            // Only an order that was there can have had its units committed; one made up could not say who paid.
            Intake::Committed(_) => return None,
        };
        let mut order = OrderRecord::placed(intake.placement());
        if let Some(gate) = ended_as {
            order.state = OrderState::Expired;
            order.ending = Some(EndReason::Expire);
            order.gate = gate;
        }
        return Some(Decision { verdict: Verdict::Done, after: order, anomalies: Vec::new() });
    };
    let (mut after, mut anomalies) = (before.clone(), Vec::new());
    match intake {
        Intake::Claimed(claim) => after.claimed_anew(claim),
        Intake::Expiring(_) => expire(&mut after),
        Intake::Committed(claim) => match after.gate {
            GateSide::CommitDue => after.gate = GateSide::Committed,
            // The answer to the reclaim was lost; its record says which units they are.
            GateSide::ReclaimDue => anomalies.push(after.keep_reclaimed(&claim.units)),
            _ => {}
        },
        Intake::Released(_) => match after.gate {
            GateSide::ReleaseDue => after.gate = GateSide::Released,
            // Nobody but this order may free its units. It ends, and nobody can pay for what is gone.
            GateSide::Held => after.begin_to_end(EndReason::Expire),
            _ => {}
        },
    }
    (after != *before).then_some(Decision { verdict: Verdict::Done, after, anomalies })
}

/// The order of a claim whose units another live order owns: it ends at once, before any payment can exist. One that was
/// paid late and given such units by the gate gives the money back.
#[must_use]
pub fn dispute(order: &OrderRecord) -> (OrderRecord, Anomaly) {
    let mut after = order.clone();
    let detail = if refund::owe_all(&mut after) {
        after.state = OrderState::RefundDue;
        after.ending = Some(EndReason::Expire);
        "another live order owns a unit that was reclaimed for this one; the money goes back, gate not told"
    } else {
        after.state = OrderState::Cancelled;
        after.ending = Some(EndReason::Cancel);
        "another live order owns a unit of this claim; cancelled before any payment, gate not told"
    };
    after.gate = GateSide::Disputed;
    (after, Anomaly { payment: None, kind: UNIT_TAKEN, detail: detail.into() })
}

/// The same, with what is written down of it in `found`: the reclaim that would have given it those units did not come
/// about, so nothing says that the buyer has them.
pub fn dispute_found(order: &OrderRecord, found: &mut Vec<(ClaimId, Anomaly)>) -> OrderRecord {
    found.retain(|(id, anomaly)| *id != order.id || anomaly.kind != RECLAIMED);
    let (disputed, anomaly) = dispute(order);
    found.push((order.id, anomaly));
    disputed
}

fn pay(order: &mut OrderRecord, payment: PaymentId, terms: &Terms, now: Timestamp) -> Verdict {
    if let Some(refusal) = order.refuses_payment(now) {
        return Verdict::Refused(refusal);
    }
    if let Some(open) = order.open_payments().next() {
        return match &open.redirect_url {
            Some(url) => Verdict::Resume { redirect_url: url.clone() },
            None => Verdict::Start(open.id),
        };
    }
    if order.payments.len() >= ATTEMPTS_MAX {
        return Verdict::Refused(Refusal::TooManyAttempts);
    }
    if order.payments.iter().all(|attempt| attempt.id != payment) {
        let terms = Some(terms.clone());
        order.payments.push(PaymentRecord { terms, ..PaymentRecord::open(payment, now) });
    }
    Verdict::Start(payment)
}

fn started(
    order: &mut OrderRecord,
    payment: PaymentId,
    redirect_url: &str,
    reference: Option<&str>,
    now: Timestamp,
) -> Verdict {
    let refusal = order.refuses_payment(now);
    let mut is_open = false;
    if let Some(attempt) = order.payments.iter_mut().find(|attempt| attempt.id == payment) {
        is_open = attempt.state == PaymentState::Open;
        attempt.redirect_url.get_or_insert_with(|| redirect_url.to_owned());
        if attempt.reference.is_none() {
            attempt.reference = reference.map(str::to_owned);
        }
    }
    match refusal {
        Some(refusal) => Verdict::Refused(refusal),
        None if is_open => Verdict::Resume { redirect_url: redirect_url.to_owned() },
        // It was given up meanwhile. Nobody is shown where to pay what nobody would make unpayable again.
        None => Verdict::Done,
    }
}

fn not_started(order: &mut OrderRecord, payment: PaymentId) {
    let is_it = |attempt: &&mut PaymentRecord| attempt.id == payment && attempt.redirect_url.is_none();
    if let Some(attempt) = order.payments.iter_mut().find(is_it) {
        attempt.state = attempt.state.max(PaymentState::Failed);
    }
    order.end_if_unpayable();
}

fn expire(order: &mut OrderRecord) {
    match (order.state, order.gate) {
        (OrderState::AwaitingPayment, _) => order.begin_to_end(EndReason::Expire),
        // The gate still holds units that were decided on long ago, so it lost what it was told: tell it again.
        // Also those whose money an operator gave back: their units stay out of the sale.
        (_, GateSide::Committed) => order.gate = GateSide::CommitDue,
        (_, GateSide::Released) if order.open_payments().next().is_none() => {
            order.gate = GateSide::ReleaseDue;
        }
        _ => {}
    }
}

fn cancel(order: &mut OrderRecord) -> Verdict {
    match order.state {
        OrderState::AwaitingPayment => {
            order.begin_to_end(EndReason::Cancel);
            Verdict::Done
        }
        OrderState::Cancelled => Verdict::Done,
        OrderState::Paid => Verdict::Refused(Refusal::Paid),
        OrderState::Expired | OrderState::RefundDue | OrderState::Refunded => match order.ending {
            Some(EndReason::Cancel) => Verdict::Refused(Refusal::Cancelled),
            _ => Verdict::Refused(Refusal::Expired),
        },
    }
}

fn notified(order: &mut OrderRecord, notice: &Notice, now: Timestamp, anomalies: &mut Vec<Anomaly>) {
    let (id, price) = (order.id, order.price.clone());
    let (state, takes) = (order.state, order.takes());
    let attempt = match order.payments.iter_mut().position(|attempt| attempt.id == notice.payment) {
        Some(index) => &mut order.payments[index],
        // The gateway signed for this order, so the attempt exists even if its row was lost.
        None => order.payments.push_mut(PaymentRecord::open(notice.payment, now)),
    };
    let found = payment::apply(attempt, notice, id, &price, takes);
    anomalies.extend(found.anomaly);
    match found.effect {
        payment::Effect::Pays => {
            order.state = OrderState::Paid;
            order.ending = None;
            order.gate = match order.gate {
                GateSide::Disputed => GateSide::Disputed,
                _ => GateSide::CommitDue,
            };
        }
        payment::Effect::PaysLate => order.gate = GateSide::ReclaimDue,
        // Other money of this order may yet buy units.
        payment::Effect::OwesRefund if order.is_reclaiming() => {}
        payment::Effect::OwesRefund
            if matches!(state, OrderState::Expired | OrderState::Cancelled | OrderState::Refunded) =>
        {
            order.state = OrderState::RefundDue;
        }
        payment::Effect::OwesRefund | payment::Effect::Nothing => {}
    }
    order.end_if_unpayable();
}

/// What an operator did is written down with the order, so that it is known whatever becomes of the answer.
fn note_act(
    before: &OrderRecord,
    after: &OrderRecord,
    kind: &'static str,
    why: &str,
    anomalies: &mut Vec<Anomaly>,
) {
    if after != before {
        anomalies.push(Anomaly { payment: None, kind, detail: why.to_owned() });
    }
}

fn committed(order: &mut OrderRecord, answer: CommitAnswer, anomalies: &mut Vec<Anomaly>) {
    if order.gate != GateSide::CommitDue {
        return;
    }
    match answer {
        CommitAnswer::Committed => order.gate = GateSide::Committed,
        CommitAnswer::Released if order.state != OrderState::Paid => order.gate = GateSide::Released,
        CommitAnswer::Released => {
            order.gate = GateSide::Released;
            order.state = OrderState::RefundDue;
            order.ending.get_or_insert(EndReason::Expire);
            refund::owe_all(order);
            anomalies.push(Anomaly {
                payment: None,
                kind: "paid_but_released",
                detail: "the gate had given the units back before the commit; the money goes back".into(),
            });
        }
        // A gate that does not know a paid claim has lost data. The order keeps its units and goes on asking.
        CommitAnswer::NoSuchClaim => {}
    }
}

fn released(order: &mut OrderRecord, answer: ReleaseAnswer, anomalies: &mut Vec<Anomaly>) {
    if order.gate != GateSide::ReleaseDue {
        return;
    }
    match answer {
        ReleaseAnswer::Released | ReleaseAnswer::NoSuchClaim => order.gate = GateSide::Released,
        ReleaseAnswer::Committed => {
            order.gate = GateSide::Disputed;
            anomalies.push(Anomaly {
                payment: None,
                kind: "ended_but_committed",
                detail: "the gate had sold the units of an order that ended unpaid; they stay sold there"
                    .into(),
            });
        }
    }
}

fn given_back(order: &mut OrderRecord) {
    if order.gate == GateSide::Disputed && !order.owns_units() {
        order.gate = GateSide::Released;
    }
}

fn reclaimed(order: &mut OrderRecord, answer: &ReclaimAnswer, anomalies: &mut Vec<Anomaly>) {
    if !order.is_reclaiming() {
        return;
    }
    let why = match answer {
        ReclaimAnswer::Reclaimed { units } => {
            anomalies.push(order.keep_reclaimed(units));
            return;
        }
        // A gate that does not know the claim of an order has lost data. The order keeps the money and goes on asking.
        ReclaimAnswer::NoSuchClaim => return,
        ReclaimAnswer::SoldOut => "no units were left".to_owned(),
        ReclaimAnswer::LimitReached { limit, taken } => {
            format!("the account has {taken} units by now and may have {limit}, so there were none")
        }
    };
    order.gate = GateSide::Released;
    order.state = OrderState::RefundDue;
    refund::owe_all(order);
    let detail = format!("{why} for the buyer who paid late; the money goes back");
    anomalies.push(Anomaly { payment: None, kind: "not_reclaimed", detail });
}

fn refund_all(order: &mut OrderRecord) -> Verdict {
    match order.state {
        _ if order.is_reclaiming() => Verdict::Refused(Refusal::Reclaiming),
        OrderState::Paid => {
            order.state = OrderState::RefundDue;
            order.ending = Some(EndReason::Cancel);
            refund::owe_all(order);
            Verdict::Done
        }
        OrderState::RefundDue | OrderState::Refunded => Verdict::Done,
        OrderState::AwaitingPayment | OrderState::Expired | OrderState::Cancelled => {
            Verdict::Refused(Refusal::NotPaid)
        }
    }
}
