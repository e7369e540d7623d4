//! The design of hold, pay, expire and release, checked for every order in which its steps can happen: few claims,
//! few units, few payments, and a network that loses, delays and repeats messages. The rules are the product's own
//! (`order::decide`, `order::place`, `hold`); only stores, network and gateway are said anew, as plainly as can be.
//! See `deploy/docs/simulation.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod state;

use std::collections::{BTreeSet, HashSet};

use lockgate_checkout::order::{GateSide, OrderEvent, OrderRecord, OrderState};
use lockgate_shared::{clock::Timestamp, gate::HoldState};
use lockgate_stock_gate::hold;
use state::{Claim, Message, Stage, State};
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
    /// Whether money may arrive for an attempt that was made unpayable.
    is_late: bool,
    /// A bug to find: the gate frees units at their deadline, without the order's word.
    frees_at_deadline: bool,
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

impl Model for Design {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let bank = vec![Stage::Unknown; usize::from(self.attempts)];
        let claim = Claim { hold: None, unit: 0, is_refused: false, row: None, bank };
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
                    let unit = next.claim(claim).unit;
                    next.sent.insert(Message::Claimed(claim, unit));
                }
            }
            Action::Pays(claim) => next.pay(claim, self.attempts),
            Action::Cancels(claim) => drop(next.decide(claim, &OrderEvent::Cancel)),
            Action::Finishes(claim, n, amount) => {
                let stage = *next.stage(claim, n);
                let is_late = self.is_late && stage == Stage::Closed && amount.is_some();
                if stage == Stage::Open || is_late {
                    let paid = if is_late { Stage::PaidLate } else { Stage::Paid };
                    *next.stage(claim, n) = amount.map_or(Stage::Failed, paid);
                    let says = amount.map_or(Message::Failed(claim, n), |paid| Message::Paid(claim, n, paid));
                    next.sent.insert(says);
                }
            }
            Action::Marks(claim) => {
                let deadline = Timestamp::from_seconds(DEADLINE_SECONDS);
                let now = next.now();
                if next.claim(claim).hold.is_some_and(|state| hold::is_due(state, deadline, now)) {
                    next.claim(claim).hold = Some(HoldState::Expiring);
                    let unit = next.claim(claim).unit;
                    next.sent.insert(Message::Expiring(claim, unit));
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
                next.take(claim, &step, is_answered, self.units);
            }
            Action::Arrives(message) => next.arrive(message, self.units),
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
                    // Where the gate has just reclaimed, its answer or its record is on the way.
                    let is_paid = claim
                        .row
                        .as_ref()
                        .is_some_and(|row| row.state == OrderState::Paid || row.gate == GateSide::ReclaimDue);
                    claim.hold != Some(HoldState::Committed) || is_paid
                })
            }),
            Property::always("money is kept for a unit alone", |_, state: &State| {
                state.claims.iter().all(|claim| {
                    let is_back = claim.bank.iter().any(|stage| matches!(stage, Stage::Refunded(PRICE)));
                    let is_ended = claim.row.as_ref().is_some_and(|row| row.state == OrderState::Refunded);
                    !(is_back && is_ended) || claim.hold != Some(HoldState::Committed)
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
        let owns = claim.row.as_ref().is_some_and(|row| row.record(n).owns_units());
        let of_order = claim.row.as_ref().map(|row| row.unit);
        (!is_live || holds.insert(claim.unit)) && (!owns || orders.insert(of_order))
    })
}

/// Every claim that was won is sold and paid once, or free with nobody's money kept.
fn is_settled(state: &State) -> bool {
    let is_over = |claim: &Claim| {
        let is_kept = |stage: &&Stage| matches!(stage, Stage::Paid(_) | Stage::PaidLate(_));
        let kept = claim.bank.iter().filter(is_kept).count();
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

fn is_reached(design: Design, goal: fn(&State) -> bool) -> bool {
    let (mut known, mut open) = (HashSet::new(), design.init_states());
    while let Some(state) = open.pop() {
        if goal(&state) {
            return true;
        }
        let mut actions = Vec::new();
        design.actions(&state, &mut actions);
        for next in actions.into_iter().filter_map(|action| design.next_state(&state, action)) {
            if known.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    false
}

const ONE: Design =
    Design { claims: 1, units: 1, attempts: 2, is_odd: true, is_late: false, frees_at_deadline: false };

#[test]
fn m5_m6_one_claim_with_two_payments_settles_in_every_order_of_steps() {
    check(ONE);
}

#[test]
fn h1_m6_two_claims_for_one_unit_settle_in_every_order_of_steps() {
    check(Design { claims: 2, attempts: 1, ..ONE });
}

#[test]
fn m5_one_claim_paid_late_is_sold_or_given_back_in_every_order_of_steps() {
    let late = Design { attempts: 1, is_late: true, ..ONE };
    check(late);
    let is_bought = |state: &State| {
        state.claims.iter().any(|claim| {
            let is_late = claim.bank.iter().any(|stage| matches!(stage, Stage::PaidLate(PRICE)));
            is_late && claim.row.as_ref().is_some_and(|row| row.state == OrderState::Paid)
        })
    };
    assert!(is_reached(late, is_bought), "a late payment gets its unit");
}

#[test]
fn m5_h1_two_claims_paid_late_for_one_unit_settle_in_every_order_of_steps() {
    check(Design { claims: 2, attempts: 1, is_odd: false, is_late: true, ..ONE });
}

#[test]
fn m6_a_gate_that_frees_at_the_deadline_is_found() {
    let checker = Design { frees_at_deadline: true, ..ONE }.checker().spawn_bfs().join();
    let path = checker.assert_any_discovery("no hold freed while payable");
    println!("{path}");
}
