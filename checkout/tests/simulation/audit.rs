//! The rules, held against the truth behind every seam after each step, and once more when all is quiet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use futures::FutureExt as _;
use lockgate_checkout::{
    order::{GateSide, OrderRecord, OrderState},
    payment::PaymentState,
};
use lockgate_shared::{
    gate::{Hold, HoldState},
    ids::{AccountHash, ClaimId, ItemId},
};
use lockgate_stock_gate::store::Store as _;

use crate::{
    bank::{Entry, Stage},
    house::{PER_ACCOUNT_LIMIT, TOTAL_LIMIT},
    world::{World, lock},
};

/// What a seed did.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub claims: u64,
    pub sold: u64,
    pub released: u64,
    pub charged: u64,
    pub refunded: u64,
    /// Charges that came late.
    pub late: u64,
    /// Of these, those that were kept for units.
    pub reclaimed: u64,
}

pub fn tally(world: &World) -> Tally {
    let holds = world.gate.all_holds(&world.sale);
    let in_state = |state| holds.iter().filter(|hold| hold.state == state).count() as u64;
    let book = lock(&world.book);
    let charged = book.iter().filter(|entry| entry.charged.is_some());
    Tally {
        claims: holds.len() as u64,
        sold: in_state(HoldState::Committed),
        released: in_state(HoldState::Released),
        charged: charged.clone().count() as u64,
        refunded: charged.clone().filter(|entry| entry.stage == Stage::Refunded).count() as u64,
        late: charged.clone().filter(|entry| entry.is_late).count() as u64,
        reclaimed: charged.filter(|entry| entry.is_late && entry.stage == Stage::Paid).count() as u64,
    }
}

struct Truth {
    holds: BTreeMap<ClaimId, Hold>,
    orders: BTreeMap<ClaimId, OrderRecord>,
    book: Vec<Entry>,
}

impl Truth {
    fn of(world: &World) -> Self {
        Self {
            holds: world.gate.all_holds(&world.sale).into_iter().map(|hold| (hold.claim, hold)).collect(),
            orders: world.orders.all_orders().into_iter().map(|order| (order.id, order)).collect(),
            book: lock(&world.book).clone(),
        }
    }
}

/// What must hold at every moment.
pub fn step(world: &World) -> Result<(), String> {
    let truth = Truth::of(world);
    one_order(world, &truth)?;
    // A stock that waits to be rebuilt sells nothing and is whatever is left of it.
    if world.is_closed() {
        return Ok(());
    }
    stock(world, &truth)?;
    owners(world, &truth)?;
    money(world, &truth)?;
    for (claim, units) in world.acknowledged() {
        match truth.holds.get(&claim) {
            Some(hold) if hold.units == units || is_paid_late(world, claim) => {}
            Some(_) => return Err(format!("{} was acknowledged with other units", world.claim(claim))),
            None => return Err(format!("{} was acknowledged and has vanished", world.claim(claim))),
        }
    }
    Ok(())
}

/// Whether the buyer of a claim paid late: then other units of the item may be the claim's.
pub fn is_paid_late(world: &World, claim: ClaimId) -> bool {
    let of = |entry: &Entry| entry.opened.as_ref().is_some_and(|(order, _)| *order == claim);
    lock(&world.book).iter().any(|entry| entry.is_late && of(entry))
}

fn is_live(hold: &Hold) -> bool {
    hold.state != HoldState::Released
}

/// The counts, against each other and against the holds; one live owner per unit; the limits.
fn stock(world: &World, truth: &Truth) -> Result<(), String> {
    let Some(Ok(counts)) = world.gate.stock(&world.sale, None).now_or_never() else {
        return Ok(());
    };
    let mut owned: BTreeSet<(&ItemId, u32)> = BTreeSet::new();
    let mut of_account: BTreeMap<AccountHash, usize> = BTreeMap::new();
    for hold in truth.holds.values().filter(|hold| is_live(hold)) {
        *of_account.entry(hold.account).or_default() += hold.units.len();
        for unit in &hold.units {
            if !owned.insert((&hold.item, *unit)) {
                return Err(format!("{} {unit} has two live holds", hold.item));
            }
        }
    }
    for item in &counts.items {
        let of = |state| -> usize {
            let in_state = truth.holds.values().filter(|hold| hold.item == item.item && hold.state == state);
            in_state.map(|hold| hold.units.len()).sum()
        };
        let (held, sold) = (of(HoldState::Held) + of(HoldState::Expiring), of(HoldState::Committed));
        if item.available + item.held + item.sold != item.stock {
            return Err(format!("available + held + sold is not stock: {item:?}"));
        }
        if (item.held as usize, item.sold as usize) != (held, sold) {
            return Err(format!("{held} units are held and {sold} sold, counted is {item:?}"));
        }
        if owned.iter().any(|(id, unit)| **id == item.item && !(1..=item.stock).contains(unit)) {
            return Err(format!("a unit of {} is outside 1..{}", item.item, item.stock));
        }
    }
    if owned.len() > TOTAL_LIMIT as usize {
        return Err(format!("{} units are held or sold, the sale allows {TOTAL_LIMIT}", owned.len()));
    }
    match of_account.iter().find(|(_, units)| **units > PER_ACCOUNT_LIMIT as usize) {
        Some((account, units)) => Err(format!("{account} has {units} units of {PER_ACCOUNT_LIMIT}")),
        None => Ok(()),
    }
}

/// One order owns a unit.
fn one_order(world: &World, truth: &Truth) -> Result<(), String> {
    let mut owned: BTreeMap<(&ItemId, u32), ClaimId> = BTreeMap::new();
    for order in truth.orders.values().filter(|order| order.owns_units()) {
        for unit in &order.units {
            if let Some(other) = owned.insert((&order.item, *unit), order.id) {
                let (one, two) = (world.claim(other), world.claim(order.id));
                return Err(format!("{} {unit} belongs to the orders of {one} and {two}", order.item));
            }
        }
    }
    Ok(())
}

/// Sold at the gate means paid; what an order owns is not free there.
fn owners(world: &World, truth: &Truth) -> Result<(), String> {
    for hold in truth.holds.values() {
        let order = truth.orders.get(&hold.claim);
        let name = world.claim(hold.claim);
        match (hold.state, order.map(|order| order.state)) {
            (HoldState::Committed, Some(OrderState::Paid)) => {}
            // What was reclaimed is sold before its order hears of it.
            (HoldState::Committed, Some(_)) if order.is_some_and(OrderRecord::is_reclaiming) => {}
            (HoldState::Committed, state) => return Err(format!("{name} is sold, its order is {state:?}")),
            (HoldState::Released, Some(state @ (OrderState::AwaitingPayment | OrderState::Paid))) => {
                return Err(format!("{name} is free at the gate, its order is {state:?}"));
            }
            (HoldState::Released, None) => return Err(format!("{name} was freed without an order's word")),
            _ => {}
        }
    }
    // An order whose records were on their way during a fail-over has no hold until the next rebuild.
    if world.has_failed_over.load(Ordering::Relaxed) {
        return Ok(());
    }
    match truth.orders.keys().find(|id| !truth.holds.contains_key(id)) {
        Some(stray) => Err(format!("the order of {} has no hold", world.claim(*stray))),
        None => Ok(()),
    }
}

/// Payments: none without an order; no hold freed while one is payable, or although one was paid.
fn money(world: &World, truth: &Truth) -> Result<(), String> {
    for entry in &truth.book {
        let Some((claim, _)) = &entry.opened else { continue };
        let (claim, name) = (*claim, world.payment(entry.payment));
        let knows = |order: &OrderRecord| order.payments.iter().any(|attempt| attempt.id == entry.payment);
        if !truth.orders.get(&claim).is_some_and(knows) {
            return Err(format!("{name} was opened, but no order knows it"));
        }
        let Some(hold) = truth.holds.get(&claim) else {
            if world.has_failed_over.load(Ordering::Relaxed) {
                continue;
            }
            return Err(format!("{name} was opened for a claim that is not there"));
        };
        if hold.state == HoldState::Released {
            match entry.stage {
                Stage::Open => {
                    return Err(format!("{} is free while {name} can be paid", world.claim(claim)));
                }
                Stage::Paid | Stage::Refunded if entry.is_exact() && !entry.is_late => {
                    return Err(format!("{} is free although {name} was paid in time", world.claim(claim)));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether nothing is left to do.
pub fn is_settled(world: &World) -> bool {
    let truth = Truth::of(world);
    let is_over = |hold: &Hold| {
        let ended = matches!(hold.state, HoldState::Committed | HoldState::Released);
        ended && truth.orders.contains_key(&hold.claim)
    };
    let is_done = |order: &OrderRecord| !order.is_unsettled() && order.state != OrderState::AwaitingPayment;
    // Nobody asks the gateway for money that came late: its message is on the way until it is heard.
    let is_heard = |entry: &Entry| {
        let order = entry.opened.as_ref().and_then(|(claim, _)| truth.orders.get(claim));
        let knows = |order: &OrderRecord| {
            let mut own = order.payments.iter().filter(|attempt| attempt.id == entry.payment);
            own.any(|attempt| attempt.state >= PaymentState::Succeeded)
        };
        !entry.is_late || order.is_some_and(knows)
    };
    truth.holds.values().all(is_over) && truth.orders.values().all(is_done) && truth.book.iter().all(is_heard)
}

/// What must hold once all is quiet.
pub fn end(world: &World) -> Result<(), String> {
    let truth = Truth::of(world);
    for order in truth.orders.values().filter(|order| !truth.holds.contains_key(&order.id)) {
        let of = |entry: &Entry| entry.opened.as_ref().is_some_and(|(claim, _)| *claim == order.id);
        let is_charged = truth.book.iter().any(|entry| of(entry) && entry.stage == Stage::Paid);
        if order.owns_units() || is_charged {
            return Err(format!("{} has an order and no hold", world.claim(order.id)));
        }
    }
    for hold in truth.holds.values() {
        let name = world.claim(hold.claim);
        let Some(order) = truth.orders.get(&hold.claim) else {
            return Err(format!("{name} has no order"));
        };
        let charged = |entry: &&Entry| {
            entry.opened.as_ref().is_some_and(|(claim, _)| *claim == hold.claim) && entry.stage == Stage::Paid
        };
        let kept: Vec<&Entry> = truth.book.iter().filter(charged).collect();
        let stands = (order.state, order.gate, hold.state);
        match stands {
            (OrderState::Paid, GateSide::Committed, HoldState::Committed) => {
                if kept.len() != 1 || !kept[0].is_exact() {
                    return Err(format!("{name} is paid, and its buyer is charged {} times", kept.len()));
                }
            }
            (
                OrderState::Expired | OrderState::Cancelled | OrderState::Refunded,
                GateSide::Released | GateSide::Disputed,
                HoldState::Released,
            ) => {
                if let Some(entry) = kept.first() {
                    let payment = world.payment(entry.payment);
                    return Err(format!("{name} ended, and {payment} was not given back"));
                }
            }
            _ => return Err(format!("{name} is not settled: {stands:?}, {}", open_work(order))),
        }
        let is_loose = |state| matches!(state, PaymentState::Open | PaymentState::RefundDue);
        if order.payments.iter().any(|attempt| is_loose(attempt.state)) {
            return Err(format!("{name} has a payment that is open: {}", open_work(order)));
        }
    }
    Ok(())
}

fn open_work(order: &OrderRecord) -> String {
    format!("{} payments, work left: {}", order.payments.len(), order.steps().len())
}
