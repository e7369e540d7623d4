//! What is where at one moment: orders, holds, the gateway's book, and what was said and may yet arrive.

use std::{
    collections::BTreeSet,
    hash::{Hash, Hasher},
};

use lockgate_checkout::{
    order::{
        self, EndReason, GateSide, Intake, OrderEvent, OrderRecord, OrderState, Placement, Step, Verdict,
    },
    payment::{Money, Notice, Outcome, PaymentId, PaymentRecord, PaymentState, Terms},
};
use lockgate_shared::{
    clock::Timestamp,
    gate::{CommitAnswer, HoldState, ReclaimAnswer, ReleaseAnswer},
    ids::{AccountHash, ClaimId},
};
use lockgate_stock_gate::hold;

use crate::{DEADLINE_SECONDS, PRICE};

/// A payment at the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    Unknown,
    Open,
    Failed,
    /// Made unpayable before it was opened.
    Cancelled,
    /// Made unpayable after it was opened: money that was on its way may yet arrive.
    Closed,
    Paid(i64),
    /// The money arrived after all.
    PaidLate(i64),
    Refunded(i64),
}

/// A payment in its order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    n: u8,
    state: PaymentState,
    is_started: bool,
    paid: Option<i64>,
}

/// An order, with everything that differs between two of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub state: OrderState,
    pub ending: Option<EndReason>,
    pub gate: GateSide,
    pub unit: u8,
    pub attempts: Vec<Attempt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub hold: Option<HoldState>,
    /// The unit that the gate says it has.
    pub unit: u8,
    /// Whether the gate refused to reclaim.
    pub is_refused: bool,
    pub row: Option<Row>,
    pub bank: Vec<Stage>,
}

impl Hash for Claim {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.hold.map(|state| state as u8), self.unit, self.is_refused, &self.row, &self.bank).hash(hasher);
    }
}

/// What was said once and may arrive at any time from then on, any number of times, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// The gate's records, with the unit.
    Claimed(u8, u8),
    Expiring(u8, u8),
    Committed(u8, u8),
    Released(u8, u8),
    /// To the gate.
    Commit(u8),
    Release(u8),
    Reclaim(u8),
    /// To the gateway.
    Start(u8, u8),
    Cancel(u8, u8),
    Refund(u8, u8),
    /// From the gateway.
    Failed(u8, u8),
    Paid(u8, u8, i64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub is_past_deadline: bool,
    pub claims: Vec<Claim>,
    pub sent: BTreeSet<Message>,
}

fn claim_id(claim: u8) -> ClaimId {
    ClaimId::from(uuid::Uuid::from_bytes([claim + 1; 16]))
}

fn payment_id(claim: u8, n: u8) -> PaymentId {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (claim + 1, n + 1);
    PaymentId::from_random(bytes)
}

fn money(amount: i64) -> Money {
    Money { amount, currency: "EUR".to_owned() }
}

fn placement(claim: u8, unit: u8) -> Placement {
    Placement {
        order: claim_id(claim),
        sale: "drop".parse().unwrap(),
        account: AccountHash::from_bytes([claim; 16]),
        item: "phone".parse().unwrap(),
        units: vec![u32::from(unit) + 1],
        price: money(PRICE),
        email: None,
        language: None,
        claimed_at: Timestamp::from_seconds(0),
        hold_expires_at: Timestamp::from_seconds(DEADLINE_SECONDS),
    }
}

impl Row {
    pub fn record(&self, claim: u8) -> OrderRecord {
        let mut record = OrderRecord::placed(&placement(claim, self.unit));
        (record.state, record.ending, record.gate) = (self.state, self.ending, self.gate);
        for attempt in &self.attempts {
            record.payments.push(PaymentRecord {
                state: attempt.state,
                redirect_url: attempt.is_started.then(|| "pay".to_owned()),
                paid: attempt.paid.map(money),
                ..PaymentRecord::open(payment_id(claim, attempt.n), Timestamp::default())
            });
        }
        record
    }

    fn of(record: &OrderRecord) -> Self {
        let attempts = record.payments.iter().map(|payment| Attempt {
            n: payment.id.uuid().as_bytes()[1] - 1,
            state: payment.state,
            is_started: payment.redirect_url.is_some(),
            paid: payment.paid.as_ref().map(|money| money.amount),
        });
        let unit = u8::try_from(record.units[0] - 1).unwrap();
        let attempts = attempts.collect();
        Self { state: record.state, ending: record.ending, gate: record.gate, unit, attempts }
    }
}

impl State {
    pub fn now(&self) -> Timestamp {
        Timestamp::from_seconds(if self.is_past_deadline { DEADLINE_SECONDS + 1 } else { 1 })
    }

    pub fn claim(&mut self, claim: u8) -> &mut Claim {
        &mut self.claims[usize::from(claim)]
    }

    pub fn stage(&mut self, claim: u8, n: u8) -> &mut Stage {
        &mut self.claim(claim).bank[usize::from(n)]
    }

    pub fn record(&self, claim: u8) -> Option<OrderRecord> {
        let found = &self.claims[usize::from(claim)];
        found.row.as_ref().map(|row| row.record(claim))
    }

    /// Writes an order, as a store does: a unit that another live order owns makes it a disputed one.
    fn save(&mut self, claim: u8, mut after: OrderRecord) {
        let is_taken = (0..).zip(&self.claims).any(|(other, found)| {
            let other_row = found.row.as_ref().map(|row| row.record(other));
            other != claim && other_row.is_some_and(|row| row.owns_units() && row.units == after.units)
        });
        if after.owns_units() && is_taken {
            after = order::dispute(&after).0;
        }
        self.claim(claim).row = Some(Row::of(&after));
    }

    pub fn decide(&mut self, claim: u8, event: &OrderEvent) -> Option<Verdict> {
        let decision = order::decide(&self.record(claim)?, event, self.now());
        self.save(claim, decision.after);
        Some(decision.verdict)
    }

    pub fn notified(&mut self, claim: u8, n: u8, outcome: Outcome) {
        let notice = Notice { payment: payment_id(claim, n), order: None, outcome };
        self.decide(claim, &OrderEvent::Notified(notice));
    }

    pub fn take_in(&mut self, claim: u8, unit: u8, intake: fn(Placement) -> Intake) {
        let placed = placement(claim, unit);
        if let Some(decision) = order::place(self.record(claim).as_ref(), &intake(placed)) {
            self.save(claim, decision.after);
        }
    }

    pub fn commit(&mut self, claim: u8) -> CommitAnswer {
        let Some(state) = self.claim(claim).hold else { return CommitAnswer::NoSuchClaim };
        match hold::commit(state) {
            hold::Step::Stands(answer) => answer,
            hold::Step::Moves => {
                self.claim(claim).hold = Some(HoldState::Committed);
                let unit = self.claim(claim).unit;
                self.sent.insert(Message::Committed(claim, unit));
                CommitAnswer::Committed
            }
        }
    }

    pub fn release(&mut self, claim: u8) -> ReleaseAnswer {
        let Some(state) = self.claim(claim).hold else { return ReleaseAnswer::NoSuchClaim };
        match hold::release(state) {
            hold::Step::Stands(answer) => answer,
            hold::Step::Moves => {
                self.claim(claim).hold = Some(HoldState::Released);
                let unit = self.claim(claim).unit;
                self.sent.insert(Message::Released(claim, unit));
                ReleaseAnswer::Released
            }
        }
    }

    pub fn reclaim(&mut self, claim: u8, units: u8) -> ReclaimAnswer {
        let found = self.claim(claim).clone();
        let Some(state) = found.hold else { return ReclaimAnswer::NoSuchClaim };
        let unit = match hold::reclaim(state) {
            hold::Reclaim::Stands => found.unit,
            hold::Reclaim::Commits => {
                self.commit(claim);
                found.unit
            }
            hold::Reclaim::Takes => {
                let free = if self.is_free(found.unit) { Some(found.unit) } else { self.free_unit(units) };
                let Some(unit) = free.filter(|_| !found.is_refused) else {
                    self.claim(claim).is_refused = true;
                    return ReclaimAnswer::SoldOut;
                };
                self.claim(claim).unit = unit;
                self.claim(claim).hold = Some(HoldState::Committed);
                self.sent.insert(Message::Committed(claim, unit));
                unit
            }
        };
        ReclaimAnswer::Reclaimed { units: vec![u32::from(unit) + 1] }
    }

    /// The gateway opens an attempt, or says what became of it.
    fn start(&mut self, claim: u8, n: u8) {
        let stage = self.stage(claim, n);
        if *stage == Stage::Unknown {
            *stage = Stage::Open;
        }
    }

    fn cancel(&mut self, claim: u8, n: u8) -> Outcome {
        let stage = self.stage(claim, n);
        if let Stage::Paid(amount) | Stage::PaidLate(amount) | Stage::Refunded(amount) = *stage {
            return Outcome::Paid(money(amount));
        }
        let was_opened = matches!(*stage, Stage::Open | Stage::Closed);
        *stage = if was_opened { Stage::Closed } else { Stage::Cancelled };
        Outcome::Unpayable
    }

    fn refund(&mut self, claim: u8, n: u8) {
        let stage = self.stage(claim, n);
        if let Stage::Paid(amount) | Stage::PaidLate(amount) = *stage {
            *stage = Stage::Refunded(amount);
        }
    }

    /// Pays: the attempt is written first, then the gateway is asked; the answer of a start is the start itself,
    /// seen whenever the shopper asks again.
    pub fn pay(&mut self, claim: u8, attempts: u8) {
        let made = self.claims[usize::from(claim)].row.as_ref().map_or(0, |row| row.attempts.len());
        let n = u8::try_from(made).unwrap();
        if n >= attempts && self.record(claim).is_some_and(|record| record.open_payments().next().is_none()) {
            return;
        }
        let payment = payment_id(claim, n);
        let pay = OrderEvent::Pay { payment, terms: Terms::default() };
        if let Some(Verdict::Start(payment)) = self.decide(claim, &pay) {
            let n = payment.uuid().as_bytes()[1] - 1;
            self.sent.insert(Message::Start(claim, n));
            match *self.stage(claim, n) {
                Stage::Open => {
                    let redirect_url = "pay".to_owned();
                    let event = OrderEvent::Started { payment, redirect_url, reference: None };
                    self.decide(claim, &event);
                }
                Stage::Unknown => {}
                Stage::Failed => self.notified(claim, n, Outcome::Failed),
                Stage::Cancelled | Stage::Closed => self.notified(claim, n, Outcome::Unpayable),
                Stage::Paid(amount) | Stage::PaidLate(amount) | Stage::Refunded(amount) => {
                    self.notified(claim, n, Outcome::Paid(money(amount)));
                }
            }
        }
    }

    /// Takes one step of an order. It is said once and may arrive again; whether its answer comes is another matter.
    pub fn take(&mut self, claim: u8, step: &Step, is_answered: bool, units: u8) {
        let number = |payment: &PaymentId| payment.uuid().as_bytes()[1] - 1;
        let event = match step {
            Step::Commit => {
                self.sent.insert(Message::Commit(claim));
                OrderEvent::Commit(self.commit(claim))
            }
            Step::Release => {
                self.sent.insert(Message::Release(claim));
                OrderEvent::Release(self.release(claim))
            }
            Step::Reclaim => {
                self.sent.insert(Message::Reclaim(claim));
                OrderEvent::Reclaim(self.reclaim(claim, units))
            }
            Step::CancelPayment(payment) => {
                self.sent.insert(Message::Cancel(claim, number(payment)));
                let outcome = self.cancel(claim, number(payment));
                OrderEvent::Notified(Notice { payment: *payment, order: None, outcome })
            }
            Step::Refund { payment, .. } => {
                self.sent.insert(Message::Refund(claim, number(payment)));
                self.refund(claim, number(payment));
                OrderEvent::Refunded { payment: *payment }
            }
        };
        if is_answered {
            self.decide(claim, &event);
        }
    }

    pub fn arrive(&mut self, message: Message, units: u8) {
        match message {
            Message::Claimed(claim, unit) => self.take_in(claim, unit, Intake::Claimed),
            Message::Expiring(claim, unit) => self.take_in(claim, unit, Intake::Expiring),
            Message::Committed(claim, unit) => self.take_in(claim, unit, Intake::Committed),
            Message::Released(claim, unit) => self.take_in(claim, unit, Intake::Released),
            Message::Commit(claim) => drop(self.commit(claim)),
            Message::Release(claim) => drop(self.release(claim)),
            Message::Reclaim(claim) => drop(self.reclaim(claim, units)),
            Message::Start(claim, n) => self.start(claim, n),
            Message::Cancel(claim, n) => drop(self.cancel(claim, n)),
            Message::Refund(claim, n) => self.refund(claim, n),
            Message::Failed(claim, n) => self.notified(claim, n, Outcome::Failed),
            Message::Paid(claim, n, amount) => self.notified(claim, n, Outcome::Paid(money(amount))),
        }
    }

    /// The lowest unit nobody has.
    pub fn free_unit(&self, units: u8) -> Option<u8> {
        (0..units).find(|unit| self.is_free(*unit))
    }

    fn is_free(&self, unit: u8) -> bool {
        let is_live = |claim: &&Claim| claim.hold.is_some_and(|state| state != HoldState::Released);
        !self.claims.iter().filter(is_live).any(|claim| claim.unit == unit)
    }
}
