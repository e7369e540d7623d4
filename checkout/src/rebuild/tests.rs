use lockgate_shared::{
    clock::Timestamp,
    gate::{CommitAnswer, ReclaimAnswer, ReleaseAnswer, ledger::Ledger},
    ids::AccountHash,
};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    claim::placement_of_hold,
    order::{self, Intake, OrderEvent},
    payment::{Notice, Outcome, PaymentId},
};

fn id(n: u8) -> ClaimId {
    Uuid::from_bytes([n; 16]).into()
}

fn hold(n: u8, units: &[u32], state: HoldState) -> Hold {
    let quantity = u32::try_from(units.len()).unwrap();
    let wish = Wish { item: "phone".parse().unwrap(), quantity, email: None, language: None };
    let memo = Memo {
        fingerprint: wish.fingerprint(),
        amount: 5,
        currency: "EUR".into(),
        email: None,
        language: None,
        kid: "k1".into(),
    };
    Hold {
        claim: id(n),
        account: AccountHash::from_bytes([n; 16]),
        item: wish.item,
        units: units.to_vec(),
        state,
        claimed_at: Timestamp::from_seconds(100 + i64::from(n)),
        deadline: Timestamp::from_seconds(700 + i64::from(n)),
        memo: memo.to_text(),
    }
}

/// How far an order came.
#[derive(Clone, Copy, Debug)]
enum Came {
    Awaiting,
    Paid,
    Committed,
    Ended,
    Released,
    PaidAfterAll,
    PaidLate,
    Reclaimed,
    Refunded,
}

fn order(hold: &Hold, came: Came) -> OrderRecord {
    let placement = placement_of_hold(&"demo".parse().unwrap(), hold).unwrap();
    let price = placement.price.clone();
    let payment = PaymentId::from(Uuid::from_bytes([3; 16]));
    let paid = OrderEvent::Notified(Notice { payment, order: None, outcome: Outcome::Paid(price) });
    let reclaimed = OrderEvent::Reclaim(ReclaimAnswer::Reclaimed { units: hold.units.clone() });
    let events = match came {
        Came::Awaiting => vec![],
        Came::Paid => vec![paid],
        Came::Committed => vec![paid, OrderEvent::Commit(CommitAnswer::Committed)],
        Came::Ended => vec![OrderEvent::Expire],
        Came::Released => vec![OrderEvent::Expire, OrderEvent::Release(ReleaseAnswer::Released)],
        Came::PaidAfterAll => vec![OrderEvent::Cancel, paid],
        Came::PaidLate => vec![OrderEvent::Expire, paid],
        Came::Reclaimed => vec![OrderEvent::Expire, paid, reclaimed],
        Came::Refunded => vec![
            paid,
            OrderEvent::Commit(CommitAnswer::Committed),
            OrderEvent::Refund { why: "a test".into() },
        ],
    };
    let placed = order::place(None, &Intake::Claimed(placement)).unwrap().after;
    events.iter().fold(placed, |order, event| order::decide(&order, event, Timestamp::default()).after)
}

fn by_claim<T>(all: impl IntoIterator<Item = T>, claim: impl Fn(&T) -> ClaimId) -> BTreeMap<ClaimId, T> {
    all.into_iter().map(|one| (claim(&one), one)).collect()
}

fn run(holds: &[Hold], orders: &[OrderRecord]) -> Rebuilt {
    let (holds, orders) = (holds.to_vec(), orders.to_vec());
    rebuild(&by_claim(holds, |hold| hold.claim), &by_claim(orders, |order| order.id), "k1")
}

fn states(rebuilt: &Rebuilt) -> Vec<HoldState> {
    rebuilt.holds.iter().map(|hold| hold.state).collect()
}

#[test]
fn h10_an_order_without_a_hold_gives_one_and_it_is_what_was_lost() {
    let lost = hold(1, &[4, 5], HoldState::Held);
    let rebuilt = run(&[], &[order(&lost, Came::Awaiting)]);
    assert_eq!(rebuilt.holds, std::slice::from_ref(&lost), "a repeated claim finds the same answer");
    let sold = run(&[], &[order(&lost, Came::Committed)]);
    assert_eq!(states(&sold), [HoldState::Committed]);
    let paid = run(&[], &[order(&lost, Came::Paid)]);
    assert_eq!(states(&paid), [HoldState::Held], "the commit that is due finds it");
    for ended in [Came::Ended, Came::Released, Came::PaidAfterAll] {
        assert_eq!(states(&run(&[], &[order(&lost, ended)])), [HoldState::Released], "{ended:?}");
    }
}

#[test]
fn m5_what_the_gate_sold_and_nobody_paid_for_is_free_again_unless_another_has_it() {
    let sold = hold(1, &[4, 5], HoldState::Committed);
    let unpaid = order(&sold, Came::Ended);
    let answer = OrderEvent::Release(ReleaseAnswer::Committed);
    let disputed = order::decide(&unpaid, &answer, Timestamp::default()).after;
    assert_eq!(disputed.gate, GateSide::Disputed);
    let rebuilt = run(std::slice::from_ref(&sold), std::slice::from_ref(&disputed));
    assert_eq!((states(&rebuilt), &rebuilt.given_back[..]), (vec![HoldState::Released], &[id(1)][..]));
    let after = order::decide(&disputed, &OrderEvent::GivenBack, Timestamp::default()).after;
    assert_eq!((after.gate, after.state), (GateSide::Released, OrderState::Expired));
    // Another order has a unit of it.
    let other = hold(2, &[5], HoldState::Held);
    let rebuilt = run(&[sold.clone(), other.clone()], &[disputed.clone(), order(&other, Came::Awaiting)]);
    assert_eq!((states(&rebuilt), rebuilt.given_back.len()), (vec![HoldState::Released, HoldState::Held], 0));
    // Money that is kept keeps the units sold.
    let mut keeps = disputed;
    keeps.payments.clone_from(&order(&sold, Came::Committed).payments);
    let rebuilt = run(&[sold], &[keeps]);
    assert_eq!((states(&rebuilt), rebuilt.given_back.len()), (vec![HoldState::Committed], 0));
    // An order that is in no dispute is none of it.
    let paid = order(&other, Came::Committed);
    assert_eq!(order::decide(&paid, &OrderEvent::GivenBack, Timestamp::default()).after, paid);
}

#[test]
fn h10_a_hold_without_an_order_stays_as_it_is() {
    for state in [HoldState::Held, HoldState::Expiring, HoldState::Committed, HoldState::Released] {
        let survived = hold(1, &[4], state);
        assert_eq!(run(std::slice::from_ref(&survived), &[]).holds, [survived]);
    }
}

#[test]
fn the_order_decides_what_a_hold_of_an_old_copy_says_wrongly() {
    let old = |state| hold(1, &[4], state);
    let asked = |state, came| states(&run(&[old(state)], &[order(&old(state), came)]))[0];
    assert_eq!(asked(HoldState::Held, Came::Committed), HoldState::Committed);
    assert_eq!(asked(HoldState::Held, Came::Released), HoldState::Released);
    assert_eq!(asked(HoldState::Released, Came::Committed), HoldState::Committed);
    for state in [HoldState::Held, HoldState::Expiring] {
        assert_eq!(asked(state, Came::Ended), HoldState::Released, "its release is due, and done by this");
    }
    assert_eq!(asked(HoldState::Committed, Came::Paid), HoldState::Committed);
    assert_eq!(asked(HoldState::Expiring, Came::Awaiting), HoldState::Expiring);
}

#[test]
fn h1_an_order_that_gave_way_has_no_live_hold() {
    for state in [HoldState::Held, HoldState::Expiring, HoldState::Released, HoldState::Committed] {
        let survived = hold(1, &[4], state);
        let (disputed, _) = order::dispute(&order(&survived, Came::Awaiting));
        assert_eq!(states(&run(&[survived], &[disputed])), [HoldState::Released], "{state:?}");
    }
}

#[test]
fn m5_a_reclaim_under_way_keeps_what_the_gate_sold_and_never_a_unit_that_another_order_owns() {
    let (own, others) = (hold(1, &[4], HoldState::Released), hold(1, &[9], HoldState::Committed));
    let late = order(&own, Came::PaidLate);
    assert_eq!(
        run(std::slice::from_ref(&others), std::slice::from_ref(&late)).holds,
        std::slice::from_ref(&others)
    );
    for (state, expected) in [
        (HoldState::Released, HoldState::Released),
        (HoldState::Held, HoldState::Held),
        (HoldState::Expiring, HoldState::Expiring),
    ] {
        let rebuilt = run(&[hold(1, &[4], state)], std::slice::from_ref(&late));
        assert_eq!(states(&rebuilt), [expected]);
    }
    assert_eq!(states(&run(&[], std::slice::from_ref(&late))), [HoldState::Released], "asked for again");
    for came in [Came::Awaiting, Came::Committed] {
        let owner = order(&hold(2, &[9], HoldState::Held), came);
        let rebuilt = run(std::slice::from_ref(&others), &[late.clone(), owner]);
        assert_eq!(rebuilt.holds[0].state, HoldState::Released, "it is given others");
        assert_eq!((rebuilt.displaced.len(), rebuilt.unhoused.len()), (0, 0));
    }
    let mut bought = order(&own, Came::Reclaimed);
    bought.units = vec![9];
    let rebuilt = run(&[own], &[bought]);
    assert_eq!((rebuilt.holds[0].state, &rebuilt.holds[0].units[..]), (HoldState::Committed, &[9][..]));
}

#[test]
fn m13_of_two_owners_of_one_unit_the_paid_one_keeps_it() {
    let (early, late) = (hold(1, &[4], HoldState::Held), hold(2, &[4], HoldState::Held));
    let rebuilt =
        run(&[early.clone(), late.clone()], &[order(&early, Came::Awaiting), order(&late, Came::Paid)]);
    assert_eq!(states(&rebuilt), [HoldState::Released, HoldState::Held]);
    assert_eq!((rebuilt.displaced, rebuilt.unhoused), (vec![id(1)], vec![]));
    let rebuilt =
        run(&[early.clone(), late.clone()], &[order(&early, Came::Awaiting), order(&late, Came::Awaiting)]);
    assert_eq!(states(&rebuilt), [HoldState::Held, HoldState::Released], "the earlier one");
    assert_eq!(rebuilt.displaced, [id(2)]);
    let rebuilt = run(&[early.clone(), late.clone()], &[order(&late, Came::Awaiting)]);
    assert_eq!(
        states(&rebuilt),
        [HoldState::Released, HoldState::Held],
        "an order before a hold without one"
    );
    let rebuilt =
        run(&[early.clone(), late.clone()], &[order(&early, Came::Ended), order(&late, Came::Awaiting)]);
    assert_eq!(states(&rebuilt), [HoldState::Released, HoldState::Held], "who ended gives way");
    assert_eq!(rebuilt.displaced, []);
    let both = [order(&early, Came::Committed), order(&late, Came::Committed)];
    assert_eq!(run(&[], &both).unhoused, [id(2)], "its money goes back");
}

fn cames() -> impl Strategy<Value = Came> {
    prop_oneof![
        Just(Came::Awaiting),
        Just(Came::Paid),
        Just(Came::Committed),
        Just(Came::Ended),
        Just(Came::Released),
        Just(Came::PaidAfterAll),
        Just(Came::PaidLate),
        Just(Came::Reclaimed),
        Just(Came::Refunded),
    ]
}

proptest! {
    #[test]
    fn any_remains_give_one_owner_for_each_unit_and_no_paid_order_without(
        stock in 1_u32..12,
        parts in prop::collection::vec(
            (prop::collection::btree_set(1_u32..9, 1..4), prop::option::of(0_usize..4), prop::option::of(cames())),
            0..10,
        ),
    ) {
        let states = [HoldState::Held, HoldState::Expiring, HoldState::Committed, HoldState::Released];
        let (mut holds, mut orders) = (Vec::new(), Vec::new());
        for (n, (units, state, came)) in (1_u8..).zip(parts) {
            let units: Vec<u32> = units.into_iter().collect();
            let made = hold(n, &units, states[state.unwrap_or(0)]);
            orders.extend(came.map(|came| order(&made, came)));
            holds.extend(state.map(|_| made));
        }
        let rebuilt = run(&holds, &orders);
        let mut owned = BTreeSet::new();
        for hold in rebuilt.holds.iter().filter(|hold| hold.state != HoldState::Released) {
            for unit in &hold.units {
                prop_assert!(owned.insert(*unit), "unit {} has two owners", unit);
            }
        }
        let claims: BTreeSet<ClaimId> =
            holds.iter().map(|hold| hold.claim).chain(orders.iter().map(|order| order.id)).collect();
        prop_assert!(rebuilt.holds.iter().map(|hold| hold.claim).eq(claims), "every claim is remembered");
        for order in &orders {
            let state = rebuilt.holds.iter().find(|hold| hold.claim == order.id).unwrap().state;
            let is_live = state != HoldState::Released;
            match order.state {
                OrderState::Paid => prop_assert!(is_live != rebuilt.unhoused.contains(&order.id)),
                OrderState::AwaitingPayment => prop_assert!(is_live != rebuilt.displaced.contains(&order.id)),
                // Its units stay sold, or are being reclaimed.
                _ if order.is_reclaiming() || order.gate == GateSide::Committed => {}
                _ => prop_assert!(!is_live),
            }
        }
        let items = [("phone".parse().unwrap(), stock)];
        let line = &Ledger::of(&rebuilt.holds, &items).items[0];
        prop_assert_eq!(line.available + line.held + line.sold, line.stock);
        prop_assert_eq!(line.held + line.sold, u32::try_from(owned.len()).unwrap());
        let again = run(&rebuilt.holds, &orders);
        prop_assert_eq!(again.holds, rebuilt.holds, "idempotent");
    }
}
