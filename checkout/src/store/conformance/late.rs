//! Money that comes late, and what is written down of it: one behaviour for every back end.

use lockgate_shared::gate::{ReclaimAnswer, ReleaseAnswer};

use super::{claim, claimed, decide, notice, now, order, order_id, pay, payment_id, place, price, sale};
use crate::{
    order::{GateSide, Intake, OrderEvent, OrderState, Step},
    payment::{Money, Outcome},
    store::{ANOMALIES_PAGE_MAX, ItemId, Store},
};

/// An order that expired, was released and is paid late, by attempt `n`.
async fn paid_late(store: &dyn Store, n: u8, units: &[u32]) {
    claimed(store, n, units).await;
    pay(store, n, n).await;
    decide(store, n, OrderEvent::Expire).await;
    decide(store, n, OrderEvent::Notified(notice(n, None, Outcome::Unpayable))).await;
    decide(store, n, OrderEvent::Release(ReleaseAnswer::Released)).await;
    let news = notice(n, Some(n), Outcome::Paid(price()));
    store.notify("g", &format!("late {n}"), &news, now()).await.unwrap();
    assert_eq!(order(store, n).await.gate, GateSide::ReclaimDue);
}

pub(super) async fn m5_a_reclaimed_order_owns_the_units_it_was_given(store: &dyn Store) {
    paid_late(store, 1, &[4]).await;
    paid_late(store, 2, &[5]).await;
    let unsettled = store.unsettled(None, now()).await.unwrap();
    assert!(unsettled.iter().all(|order| order.steps() == [Step::Reclaim]), "{unsettled:?}");
    assert!(claimed(store, 3, &[4]).await.anomalies.is_empty(), "an expired order owns nothing");
    let answer = ReclaimAnswer::Reclaimed { units: vec![7, 8] };
    decide(store, 1, OrderEvent::Reclaim(answer)).await;
    // The other's answer is lost; its record comes.
    place(store, &[Intake::Committed(claim(2, &[9]))]).await;
    for (n, units) in [(1, vec![7, 8]), (2, vec![9])] {
        let bought = order(store, n).await;
        assert_eq!((bought.state, bought.gate), (OrderState::Paid, GateSide::Committed));
        assert_eq!(bought.units, units);
    }
    for (n, unit) in [(4, 8), (5, 9)] {
        assert_eq!(claimed(store, n, &[unit]).await.anomalies[0].1.kind, "unit_taken", "{unit} is owned");
    }
    assert!(claimed(store, 6, &[5]).await.anomalies.is_empty(), "what it had before is not");
    let books = store.books(&sale()).await.unwrap();
    assert_eq!(books[&"phone".parse::<ItemId>().unwrap()].sold, 3);
}

pub(super) async fn m5_m13_a_reclaimed_unit_that_another_owns_gives_the_money_back(store: &dyn Store) {
    for (n, by_record) in [(1, false), (2, true)] {
        paid_late(store, n, &[u32::from(n)]).await;
        claimed(store, n + 2, &[u32::from(n) + 10]).await;
        let units = vec![u32::from(n), u32::from(n) + 10];
        let kinds: Vec<&str> = if by_record {
            let placed = place(store, &[Intake::Committed(claim(n, &units))]).await;
            placed.anomalies.iter().map(|(_, anomaly)| anomaly.kind).collect()
        } else {
            let event = OrderEvent::Reclaim(ReclaimAnswer::Reclaimed { units });
            let decision = decide(store, n, event).await;
            assert_eq!(decision.after, order(store, n).await, "the answer is what was written");
            decision.anomalies.iter().map(|anomaly| anomaly.kind).collect()
        };
        assert_eq!(kinds, ["unit_taken"], "by record: {by_record}: it got none");
        let written = store.anomalies(&sale(), None).await.unwrap();
        let written = written.iter().filter(|found| found.order == order_id(n)).map(|found| &*found.kind);
        assert_eq!(written.collect::<Vec<_>>(), ["paid_late", "unit_taken"], "by record: {by_record}");
        let disputed = order(store, n).await;
        assert_eq!((disputed.state, disputed.gate), (OrderState::RefundDue, GateSide::Disputed));
        assert!(matches!(disputed.steps()[..], [Step::Refund { .. }]));
        assert_eq!(order(store, n + 2).await.state, OrderState::AwaitingPayment);
    }
    assert!(claimed(store, 5, &[1]).await.anomalies.is_empty(), "it owns none of them");
}

pub(super) async fn anomalies_of_a_sale_come_by_pages(store: &dyn Store) {
    claimed(store, 1, &[4]).await;
    let mut foreign = claim(2, &[4]);
    foreign.sale = "other".parse().unwrap();
    let elsewhere = foreign.sale.clone();
    store.place(&elsewhere, &[Intake::Claimed(foreign)], &[], now()).await.unwrap();
    for n in [1, 2] {
        let news = notice(n, Some(n), Outcome::Paid(Money { amount: 1, currency: "EUR".into() }));
        store.notify("g", &format!("e{n}"), &news, now()).await.unwrap();
    }
    // One more than a page, of one kind and of another.
    let many = u8::try_from(ANOMALIES_PAGE_MAX).unwrap();
    let batch: Vec<Intake> = (3..3 + many).map(|n| Intake::Claimed(claim(n, &[4]))).collect();
    place(store, &batch).await;
    let page = store.anomalies(&sale(), None).await.unwrap();
    assert_eq!(page.len(), ANOMALIES_PAGE_MAX);
    assert!(page.is_sorted_by_key(|found| found.number));
    let first = &page[0];
    assert_eq!((first.order, first.payment), (order_id(1), Some(payment_id(1))));
    assert_eq!((first.kind.as_str(), first.found_at), ("wrong_amount", now()));
    assert_eq!(first.state, Some(OrderState::AwaitingPayment));
    assert!(first.detail.ends_with("the money goes back"), "{}", first.detail);
    let rest = store.anomalies(&sale(), page.last().map(|found| found.number)).await.unwrap();
    let kinds: Vec<_> = rest.iter().map(|found| (found.kind.as_str(), found.payment, found.state)).collect();
    assert_eq!(kinds, [("unit_taken", None, Some(OrderState::Cancelled))]);
    assert!(store.anomalies(&sale(), Some(u64::MAX)).await.unwrap().is_empty());
    assert_eq!(store.anomalies(&elsewhere, None).await.unwrap().len(), 1, "each sale its own");
}
