use lockgate_shared::gate::{CommitAnswer, ReleaseAnswer};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    order::{self, Intake, OrderEvent, Placement},
    payment::{Money, Notice, Outcome, Terms},
    store::ItemBooks,
};

fn now() -> Timestamp {
    Timestamp::from_seconds(1_800_000_000)
}

fn price() -> Money {
    Money { amount: 998, currency: "EUR".into() }
}

fn id(n: u8) -> ClaimId {
    Uuid::from_bytes([n; 16]).into()
}

fn payment() -> PaymentId {
    Uuid::from_bytes([200; 16]).into()
}

fn placed(units: &[u32]) -> OrderRecord {
    let placement = Placement {
        order: id(1),
        sale: "demo".parse().unwrap(),
        account: AccountHash::from_bytes([1; 16]),
        item: "phone".parse().unwrap(),
        units: units.to_vec(),
        price: price(),
        email: None,
        language: None,
        claimed_at: now(),
        hold_expires_at: now().plus_seconds(600),
    };
    order::place(None, &Intake::Claimed(placement)).unwrap().after
}

fn after(order: &OrderRecord, events: &[OrderEvent]) -> OrderRecord {
    events.iter().fold(order.clone(), |order, event| order::decide(&order, event, now()).after)
}

fn paid() -> Vec<OrderEvent> {
    let notice = Notice { payment: payment(), order: None, outcome: Outcome::Paid(price()) };
    vec![OrderEvent::Pay { payment: payment(), terms: Terms::default() }, OrderEvent::Notified(notice)]
}

fn hold(order: &OrderRecord, state: HoldState) -> HoldView {
    HoldView { account: order.account, item: order.item.clone(), units: order.units.clone(), state }
}

fn kind(order: &OrderRecord, state: Option<HoldState>) -> Option<Kind> {
    let hold = state.map(|state| hold(order, state));
    of_units(order.id, hold.as_ref(), Some(order)).map(|finding| finding.kind)
}

#[test]
fn each_way_to_differ_has_its_name() {
    use HoldState::{Committed, Expiring, Held, Released};
    let waits = placed(&[4, 5]);
    let due = after(&waits, &paid());
    let sold = after(&due, &[OrderEvent::Commit(CommitAnswer::Committed)]);
    let ended = after(&waits, &[OrderEvent::Expire]);
    let back = after(&ended, &[OrderEvent::Release(ReleaseAnswer::Released)]);
    let cases = [
        (&waits, Some(Held), None),
        (&waits, Some(Expiring), None),
        (&waits, None, Some(Kind::HoldLost)),
        (&waits, Some(Released), Some(Kind::HoldGone)),
        (&waits, Some(Committed), Some(Kind::SoldUnpaid)),
        (&due, Some(Held), Some(Kind::CommitLate)),
        (&due, Some(Committed), Some(Kind::CommitLate)),
        (&due, Some(Released), Some(Kind::BuyerWithoutUnits)),
        (&sold, Some(Committed), None),
        (&sold, Some(Expiring), Some(Kind::CommitLost)),
        (&sold, Some(Released), Some(Kind::BuyerWithoutUnits)),
        (&sold, None, Some(Kind::HoldLost)),
        (&ended, Some(Expiring), Some(Kind::ReleaseLate)),
        (&ended, Some(Committed), Some(Kind::SoldUnpaid)),
        (&back, Some(Released), None),
        (&back, None, None),
        (&back, Some(Held), Some(Kind::ReleaseLost)),
        (&back, Some(Committed), Some(Kind::SoldUnpaid)),
    ];
    for (order, state, expected) in cases {
        assert_eq!(kind(order, state), expected, "{:?}/{:?} {state:?}", order.state, order.gate);
    }
    let (disputed, _) = order::dispute(&waits);
    assert_eq!(kind(&disputed, Some(Expiring)), Some(Kind::DisputedHold));
    assert_eq!(Kind::DisputedHold.repair(), Some(Repair::RebuildStock), "h1: it would stay for ever");
    let other = HoldView { units: vec![4, 6], ..hold(&waits, Held) };
    assert_eq!(of_units(id(1), Some(&other), Some(&waits)).unwrap().kind, Kind::OtherUnits);
    let alone = of_units(id(1), Some(&hold(&waits, Held)), None).unwrap();
    assert_eq!((alone.kind, alone.units), (Kind::HoldWithoutOrder, 2));
}

#[test]
fn money_and_state_of_an_order_agree_or_it_is_said_how_not() {
    let kinds = |order: &OrderRecord, seconds| {
        let found = of_money(order, now().plus_seconds(seconds));
        found.into_iter().map(|finding| (finding.kind, finding.money)).collect::<Vec<_>>()
    };
    let waits = placed(&[4]);
    let asked = after(&waits, &paid()[..1]);
    assert_eq!(kinds(&asked, 1), []);
    assert_eq!(kinds(&asked, UNHEARD_SECONDS + 1), [(Kind::AttemptUnheard, 0)]);
    let sold = after(&waits, &paid());
    assert_eq!(kinds(&sold, 1_000), []);
    let mut unpaid = sold.clone();
    unpaid.payments.clear();
    assert_eq!(kinds(&unpaid, 1), [(Kind::PaidWithoutMoney, -998)]);
    let mut short = sold.clone();
    short.payments[0].paid = Some(Money { amount: 900, currency: "EUR".into() });
    assert_eq!(kinds(&short, 1), [(Kind::PaidWithoutMoney, -98)]);
    let mut foreign = sold.clone();
    foreign.payments[0].paid = Some(Money { amount: 998, currency: "USD".into() });
    assert_eq!(kinds(&foreign, 1), [(Kind::PaidWithoutMoney, 0)]);
    let mut forgotten = sold.clone();
    forgotten.state = OrderState::Expired;
    assert_eq!(kinds(&forgotten, 1), [(Kind::MoneyWithoutSale, 998)]);
    let mut open = asked;
    open.state = OrderState::Cancelled;
    assert_eq!(kinds(&open, 1), [(Kind::AttemptOpen, 0)]);
    let owed = after(&sold, &[OrderEvent::Commit(CommitAnswer::Released)]);
    assert_eq!(kinds(&owed, 1), [(Kind::RefundLate, 998)]);
}

#[test]
fn what_is_under_way_never_stands_and_what_stays_does() {
    let mut watch = Watch::default();
    let waits = placed(&[4]);
    let finding = |order: &OrderRecord, state| of_units(id(1), Some(&hold(order, state)), Some(order));
    let gone: Vec<Finding> = finding(&waits, HoldState::Released).into_iter().collect();
    assert_eq!(watch.round(gone.clone(), now()), []);
    assert_eq!(watch.round(gone.clone(), now()), []);
    assert_eq!(watch.round(Vec::new(), now()), []);
    assert!(watch.is_quiet());
    for _ in 0..2 {
        assert_eq!(watch.round(gone.clone(), now()), []);
    }
    // It says something else: it is another one.
    let sold: Vec<Finding> = finding(&waits, HoldState::Committed).into_iter().collect();
    assert_eq!(watch.round(sold, now()), []);
    for _ in 0..2 {
        assert_eq!(watch.round(gone.clone(), now()), []);
    }
    let later = now().plus_seconds(5);
    assert_eq!(watch.round(gone.clone(), later), [Standing { finding: gone[0].clone(), since: now() }]);
    // What is only late needs time besides.
    let due = after(&waits, &paid());
    let late: Vec<Finding> = finding(&due, HoldState::Held).into_iter().collect();
    for _ in 0..5 {
        assert_eq!(watch.round(late.clone(), now()), []);
    }
    assert_eq!(watch.round(late, now().plus_seconds(LATE_SECONDS)).len(), 1);
}

fn events() -> impl Strategy<Value = OrderEvent> {
    let notice = |outcome| OrderEvent::Notified(Notice { payment: payment(), order: None, outcome });
    prop_oneof![
        Just(OrderEvent::Pay { payment: payment(), terms: Terms::default() }),
        Just(notice(Outcome::Paid(price()))),
        Just(notice(Outcome::Unpayable)),
        Just(notice(Outcome::Failed)),
        Just(OrderEvent::Expire),
        Just(OrderEvent::Cancel),
        Just(OrderEvent::Commit(CommitAnswer::Committed)),
        Just(OrderEvent::Release(ReleaseAnswer::Released)),
        Just(OrderEvent::Refunded { payment: payment() }),
    ]
}

fn states() -> impl Strategy<Value = Option<HoldState>> {
    prop_oneof![
        Just(None),
        Just(Some(HoldState::Held)),
        Just(Some(HoldState::Expiring)),
        Just(Some(HoldState::Committed)),
        Just(Some(HoldState::Released)),
    ]
}

proptest! {
    /// The findings account for the whole difference that the books show: nothing can differ and not be found.
    #[test]
    fn findings_add_up_to_the_difference_of_the_books(
        sequence in prop::collection::vec(events(), 0..8),
        state in states(),
        is_ordered in any::<bool>(),
    ) {
        let order = after(&placed(&[1, 2, 3]), &sequence);
        let order = is_ordered.then_some(order);
        let hold = state.map(|state| hold(&placed(&[1, 2, 3]), state));
        let found = of_units(id(1), hold.as_ref(), order.as_ref());
        let at_gate = hold.filter(HoldView::is_live).map_or(0, |_| 3);
        let mut books = ItemBooks::default();
        if let Some(order) = &order {
            books.count(order.state, order.gate, 1, 3);
        }
        let difference = at_gate - i64::try_from(books.held + books.sold).unwrap();
        prop_assert_eq!(found.as_ref().map_or(0, |finding| finding.units), difference);
    }

    /// No repair frees a unit that can be paid or was paid, and none makes money move.
    #[test]
    fn repairs_are_safe(sequence in prop::collection::vec(events(), 0..8), state in states()) {
        let order = after(&placed(&[1]), &sequence);
        let hold = state.map(|state| hold(&order, state));
        let Some(found) = of_units(id(1), hold.as_ref(), Some(&order)) else { return Ok(()) };
        let is_payable = order.open_payments().next().is_some();
        match found.kind.repair() {
            Some(Repair::ReleaseAgain) => {
                prop_assert!(!order.owns_units(), "an order that owns its units keeps them");
                let next = order::decide(&order, &OrderEvent::Expire, now()).after;
                prop_assert!(!is_payable || next.gate != GateSide::ReleaseDue, "payable: {:?}", next);
            }
            Some(Repair::CommitAgain) => {
                prop_assert_eq!(order.gate, GateSide::Committed);
                let next = order::decide(&order, &OrderEvent::Expire, now()).after;
                prop_assert!(next.gate != GateSide::ReleaseDue && next.state == order.state);
            }
            Some(Repair::EndOrder) => prop_assert_eq!(state, Some(HoldState::Released), "nothing is freed by it"),
            Some(Repair::RebuildStock) => prop_assert_eq!(state, None),
            Some(Repair::PlaceOrder) => prop_assert!(false, "there is an order"),
            Some(Repair::ApplyNotice) | None => {}
        }
    }
}
