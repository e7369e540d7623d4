//! The design of hold, pay, expire and release, checked for every order in which its steps can happen: few claims,
//! few units, few payments, and a network that loses, delays and repeats messages. The rules are the product's own
//! (`order::decide`, `order::place`, `hold`); only stores, network and gateway are said anew, as plainly as can be.
//! See `deploy/docs/simulation.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::{
    collections::BTreeSet,
    hash::{Hash, Hasher},
};

use lockgate_checkout::{
    order::{
        self, EndReason, GateSide, Intake, OrderEvent, OrderRecord, OrderState, Placement, Step, Verdict,
    },
    payment::{Money, Notice, Outcome, PaymentId, PaymentRecord, PaymentState},
};
use lockgate_shared::{
    clock::Timestamp,
    gate::{CommitAnswer, HoldState, ReleaseAnswer},
    ids::{AccountHash, ClaimId},
};
use lockgate_stock_gate::hold;
use stateright::{Checker, Model, Property};

/// What is asked for, and what arrives when a gateway takes the wrong amount.
const PRICE: i64 = 100;
const ODD: i64 = 99;
const DEADLINE_SECONDS: i64 = 50;

/// How many of everything.
#[derive(Clone, Copy, Debug)]
struct Design {
    claims: u8,
    units: u8,
    attempts: u8,
    /// Whether the gateway may take a wrong amount.
    is_odd: bool,
    /// A bug to find: the gate frees units at their deadline, without the order's word.
    frees_at_deadline: bool,
}

/// A payment at the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    Unknown,
    Open,
    Failed,
    Cancelled,
    Paid(i64),
    Refunded(i64),
}

/// A payment in its order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    n: u8,
    state: PaymentState,
    is_started: bool,
    paid: Option<i64>,
}

/// An order, with everything that differs between two of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Row {
    state: OrderState,
    ending: Option<EndReason>,
    gate: GateSide,
    attempts: Vec<Attempt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    hold: Option<HoldState>,
    unit: u8,
    row: Option<Row>,
    bank: Vec<Stage>,
}

impl Hash for Claim {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.hold.map(|state| state as u8), self.unit, &self.row, &self.bank).hash(hasher);
    }
}

/// What was said once and may arrive at any time from then on, any number of times, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    /// The gate's records.
    Claimed(u8),
    Expiring(u8),
    Committed(u8),
    Released(u8),
    /// To the gate.
    Commit(u8),
    Release(u8),
    /// To the gateway.
    Start(u8, u8),
    Cancel(u8, u8),
    Refund(u8, u8),
    /// From the gateway.
    Failed(u8, u8),
    Paid(u8, u8, i64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    is_past_deadline: bool,
    claims: Vec<Claim>,
    sent: BTreeSet<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// A shopper claims.
    Claims(u8),
    /// A shopper wants to pay.
    Pays(u8),
    /// A shopper gives up.
    Cancels(u8),
    /// A shopper finishes on the gateway's page.
    Finishes(u8, u8, Option<i64>),
    /// The deadline of every hold passes.
    TimePasses,
    /// The gate marks a due hold.
    Marks(u8),
    /// Checkout ends an order whose hold is due, whatever it heard.
    Ends(u8),
    /// Checkout takes a step of an order; its answer comes or is lost.
    Takes(u8, usize, bool),
    /// Something that was said arrives.
    Arrives(Message),
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
        claimed_at: Timestamp::from_seconds(0),
        hold_expires_at: Timestamp::from_seconds(DEADLINE_SECONDS),
    }
}

impl Row {
    fn record(&self, claim: u8, unit: u8) -> OrderRecord {
        let mut record = OrderRecord::placed(&placement(claim, unit));
        (record.state, record.ending, record.gate) = (self.state, self.ending, self.gate);
        for attempt in &self.attempts {
            record.payments.push(PaymentRecord {
                id: payment_id(claim, attempt.n),
                state: attempt.state,
                redirect_url: attempt.is_started.then(|| "pay".to_owned()),
                paid: attempt.paid.map(money),
                created_at: Timestamp::default(),
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
        Self { state: record.state, ending: record.ending, gate: record.gate, attempts: attempts.collect() }
    }
}

impl State {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(if self.is_past_deadline { DEADLINE_SECONDS + 1 } else { 1 })
    }

    fn claim(&mut self, claim: u8) -> &mut Claim {
        &mut self.claims[usize::from(claim)]
    }

    fn stage(&mut self, claim: u8, n: u8) -> &mut Stage {
        &mut self.claim(claim).bank[usize::from(n)]
    }

    fn record(&self, claim: u8) -> Option<OrderRecord> {
        let found = &self.claims[usize::from(claim)];
        found.row.as_ref().map(|row| row.record(claim, found.unit))
    }

    /// Writes an order, as a store does: a unit that another live order owns makes it a disputed one.
    fn save(&mut self, claim: u8, mut after: OrderRecord) {
        let is_taken = (0..).zip(&self.claims).any(|(other, found)| {
            let owns = found.row.as_ref().is_some_and(|row| row.record(other, found.unit).owns_units());
            other != claim && owns && found.unit == self.claims[usize::from(claim)].unit
        });
        if after.owns_units() && is_taken {
            after = order::dispute(&after).0;
        }
        self.claim(claim).row = Some(Row::of(&after));
    }

    fn decide(&mut self, claim: u8, event: &OrderEvent) -> Option<Verdict> {
        let decision = order::decide(&self.record(claim)?, event, self.now());
        self.save(claim, decision.after);
        Some(decision.verdict)
    }

    fn notified(&mut self, claim: u8, n: u8, outcome: Outcome) {
        let notice = Notice { payment: payment_id(claim, n), order: None, outcome };
        self.decide(claim, &OrderEvent::Notified(notice));
    }

    fn take_in(&mut self, claim: u8, intake: fn(Placement) -> Intake) {
        let placed = placement(claim, self.claims[usize::from(claim)].unit);
        if let Some(after) = order::place(self.record(claim).as_ref(), &intake(placed)) {
            self.save(claim, after);
        }
    }

    fn commit(&mut self, claim: u8) -> CommitAnswer {
        let Some(state) = self.claim(claim).hold else { return CommitAnswer::NoSuchClaim };
        match hold::commit(state) {
            hold::Step::Stands(answer) => answer,
            hold::Step::Moves => {
                self.claim(claim).hold = Some(HoldState::Committed);
                self.sent.insert(Message::Committed(claim));
                CommitAnswer::Committed
            }
        }
    }

    fn release(&mut self, claim: u8) -> ReleaseAnswer {
        let Some(state) = self.claim(claim).hold else { return ReleaseAnswer::NoSuchClaim };
        match hold::release(state) {
            hold::Step::Stands(answer) => answer,
            hold::Step::Moves => {
                self.claim(claim).hold = Some(HoldState::Released);
                self.sent.insert(Message::Released(claim));
                ReleaseAnswer::Released
            }
        }
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
        if let Stage::Paid(amount) | Stage::Refunded(amount) = *stage {
            return Outcome::Paid(money(amount));
        }
        *stage = Stage::Cancelled;
        Outcome::Unpayable
    }

    fn refund(&mut self, claim: u8, n: u8) {
        let stage = self.stage(claim, n);
        if let Stage::Paid(amount) = *stage {
            *stage = Stage::Refunded(amount);
        }
    }

    /// Pays: the attempt is written first, then the gateway is asked; the answer of a start is the start itself,
    /// seen whenever the shopper asks again.
    fn pay(&mut self, claim: u8, attempts: u8) {
        let made = self.claims[usize::from(claim)].row.as_ref().map_or(0, |row| row.attempts.len());
        let n = u8::try_from(made).unwrap();
        if n >= attempts && self.record(claim).is_some_and(|record| record.open_payments().next().is_none()) {
            return;
        }
        let payment = payment_id(claim, n);
        if let Some(Verdict::Start(payment)) = self.decide(claim, &OrderEvent::Pay { payment }) {
            let n = payment.uuid().as_bytes()[1] - 1;
            self.sent.insert(Message::Start(claim, n));
            match *self.stage(claim, n) {
                Stage::Open => {
                    let event = OrderEvent::Started { payment, redirect_url: "pay".to_owned() };
                    self.decide(claim, &event);
                }
                Stage::Unknown => {}
                Stage::Failed => self.notified(claim, n, Outcome::Failed),
                Stage::Cancelled => self.notified(claim, n, Outcome::Unpayable),
                Stage::Paid(amount) | Stage::Refunded(amount) => {
                    self.notified(claim, n, Outcome::Paid(money(amount)));
                }
            }
        }
    }

    /// Takes one step of an order. It is said once and may arrive again; whether its answer comes is another matter.
    fn take(&mut self, claim: u8, step: &Step, is_answered: bool) {
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

    fn arrive(&mut self, message: Message) {
        match message {
            Message::Claimed(claim) => self.take_in(claim, Intake::Claimed),
            Message::Expiring(claim) => self.take_in(claim, Intake::Expiring),
            Message::Committed(claim) => self.take_in(claim, Intake::Committed),
            Message::Released(claim) => self.take_in(claim, Intake::Released),
            Message::Commit(claim) => drop(self.commit(claim)),
            Message::Release(claim) => drop(self.release(claim)),
            Message::Start(claim, n) => self.start(claim, n),
            Message::Cancel(claim, n) => drop(self.cancel(claim, n)),
            Message::Refund(claim, n) => self.refund(claim, n),
            Message::Failed(claim, n) => self.notified(claim, n, Outcome::Failed),
            Message::Paid(claim, n, amount) => self.notified(claim, n, Outcome::Paid(money(amount))),
        }
    }

    /// The lowest unit nobody has.
    fn free_unit(&self, units: u8) -> Option<u8> {
        let is_live = |claim: &&Claim| claim.hold.is_some_and(|state| state != HoldState::Released);
        (0..units).find(|unit| !self.claims.iter().filter(is_live).any(|claim| claim.unit == *unit))
    }
}

impl Model for Design {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let bank = vec![Stage::Unknown; usize::from(self.attempts)];
        let claim = Claim { hold: None, unit: 0, row: None, bank };
        let claims = vec![claim; usize::from(self.claims)];
        vec![State { is_past_deadline: false, claims, sent: BTreeSet::new() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.is_past_deadline {
            actions.push(Action::TimePasses);
        }
        for claim in 0..self.claims {
            actions.extend([Action::Claims(claim), Action::Pays(claim), Action::Cancels(claim)]);
            actions.extend([Action::Marks(claim), Action::Ends(claim)]);
            for n in 0..self.attempts {
                actions.push(Action::Finishes(claim, n, Some(PRICE)));
                actions.push(Action::Finishes(claim, n, None));
                if self.is_odd {
                    actions.push(Action::Finishes(claim, n, Some(ODD)));
                }
            }
            let steps = state.record(claim).map_or(0, |record| record.steps().len());
            actions.extend(
                (0..steps).flat_map(|n| [Action::Takes(claim, n, true), Action::Takes(claim, n, false)]),
            );
        }
        actions.extend(state.sent.iter().map(|message| Action::Arrives(*message)));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        match action {
            Action::TimePasses => next.is_past_deadline = true,
            Action::Claims(claim) => {
                if next.claim(claim).hold.is_none() && !next.is_past_deadline {
                    next.claim(claim).unit = next.free_unit(self.units)?;
                    next.claim(claim).hold = Some(HoldState::Held);
                    next.sent.insert(Message::Claimed(claim));
                }
            }
            Action::Pays(claim) => next.pay(claim, self.attempts),
            Action::Cancels(claim) => drop(next.decide(claim, &OrderEvent::Cancel)),
            Action::Finishes(claim, n, amount) => {
                if *next.stage(claim, n) == Stage::Open {
                    *next.stage(claim, n) = amount.map_or(Stage::Failed, Stage::Paid);
                    let says = amount.map_or(Message::Failed(claim, n), |paid| Message::Paid(claim, n, paid));
                    next.sent.insert(says);
                }
            }
            Action::Marks(claim) => {
                let deadline = Timestamp::from_seconds(DEADLINE_SECONDS);
                let now = next.now();
                if next.claim(claim).hold.is_some_and(|state| hold::is_due(state, deadline, now)) {
                    next.claim(claim).hold = Some(HoldState::Expiring);
                    next.sent.insert(Message::Expiring(claim));
                    if self.frees_at_deadline {
                        next.release(claim);
                    }
                }
            }
            Action::Ends(claim) => {
                if next.is_past_deadline {
                    let waits = |order: &OrderRecord| {
                        order.state == OrderState::AwaitingPayment && order.ending.is_none()
                    };
                    if next.record(claim).is_some_and(|order| waits(&order)) {
                        next.decide(claim, &OrderEvent::Expire);
                    }
                }
            }
            Action::Takes(claim, n, is_answered) => {
                let step = next.record(claim)?.steps().into_iter().nth(n)?;
                next.take(claim, &step, is_answered);
            }
            Action::Arrives(message) => next.arrive(message),
        }
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one live owner", |_, state| has_one_owner(state)),
            Property::always("no hold freed while payable", |_, state: &State| {
                state.claims.iter().all(|claim| {
                    claim.hold != Some(HoldState::Released) || !claim.bank.contains(&Stage::Open)
                })
            }),
            Property::always("who paid in time keeps the unit", |_, state: &State| {
                state.claims.iter().all(|claim| {
                    claim.hold != Some(HoldState::Released) || !claim.bank.contains(&Stage::Paid(PRICE))
                })
            }),
            Property::always("no charge without an order", |_, state: &State| {
                let is_known = |claim: &Claim| {
                    claim.bank.iter().enumerate().all(|(n, stage)| {
                        matches!(stage, Stage::Unknown | Stage::Cancelled)
                            || claim.row.as_ref().is_some_and(|row| row.attempts.len() > n)
                    })
                };
                state.claims.iter().all(is_known)
            }),
            Property::always("sold means paid", |_, state: &State| {
                state.claims.iter().all(|claim| {
                    let is_paid = claim.row.as_ref().is_some_and(|row| row.state == OrderState::Paid);
                    claim.hold != Some(HoldState::Committed) || is_paid
                })
            }),
            Property::eventually("settled", |_, state| is_settled(state)),
            Property::sometimes("a unit is sold", |_, state: &State| {
                state.claims.iter().any(|claim| claim.hold == Some(HoldState::Committed))
            }),
            Property::sometimes("a unit comes back unpaid", |_, state: &State| {
                state.claims.iter().any(|claim| claim.hold == Some(HoldState::Released))
            }),
            Property::sometimes("a buyer pays while the order ends", |_, state: &State| {
                let ends_paid = |claim: &Claim| {
                    let is_ending = claim.row.as_ref().is_some_and(|row| row.ending.is_some());
                    is_ending && claim.bank.contains(&Stage::Paid(PRICE))
                };
                state.claims.iter().any(ends_paid)
            }),
        ]
    }
}

fn has_one_owner(state: &State) -> bool {
    let (mut holds, mut orders) = (BTreeSet::new(), BTreeSet::new());
    (0..).zip(&state.claims).all(|(n, claim)| {
        let is_live = claim.hold.is_some_and(|hold| hold != HoldState::Released);
        let owns = claim.row.as_ref().is_some_and(|row| row.record(n, claim.unit).owns_units());
        (!is_live || holds.insert(claim.unit)) && (!owns || orders.insert(claim.unit))
    })
}

/// Every claim that was won is sold and paid once, or free with nobody's money kept.
fn is_settled(state: &State) -> bool {
    let is_over = |claim: &Claim| {
        let kept = claim.bank.iter().filter(|stage| matches!(stage, Stage::Paid(_))).count();
        match (claim.hold, &claim.row) {
            (None, None) => state.is_past_deadline,
            (Some(HoldState::Committed), Some(row)) => row.state == OrderState::Paid && kept == 1,
            (Some(HoldState::Released), Some(row)) => {
                row.gate == GateSide::Released && kept == 0 && !claim.bank.contains(&Stage::Open)
            }
            _ => false,
        }
    };
    state.claims.iter().all(is_over)
}

fn check(design: Design) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let started = std::time::Instant::now();
    let checker = design.checker().threads(threads).spawn_bfs().join();
    println!(
        "{design:?}: {} states in {:.1} s",
        checker.unique_state_count(),
        started.elapsed().as_secs_f64()
    );
    checker.assert_properties();
}

const ONE: Design = Design { claims: 1, units: 1, attempts: 2, is_odd: true, frees_at_deadline: false };

#[test]
fn m5_m6_one_claim_with_two_payments_settles_in_every_order_of_steps() {
    check(ONE);
}

#[test]
fn h1_m6_two_claims_for_one_unit_settle_in_every_order_of_steps() {
    check(Design { claims: 2, attempts: 1, ..ONE });
}

#[test]
fn m6_a_gate_that_frees_at_the_deadline_is_found() {
    let checker = Design { frees_at_deadline: true, ..ONE }.checker().spawn_bfs().join();
    let path = checker.assert_any_discovery("no hold freed while payable");
    println!("{path}");
}
