use lockgate_shared::{
    clock::Timestamp,
    gate::{CommitAnswer, ReclaimAnswer, ReleaseAnswer},
};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    order::{Intake, OrderEvent, decide, dispute, place, tests::claim},
    payment::{Notice, Outcome, PaymentId, Terms},
};

fn now() -> Timestamp {
    Timestamp::from_seconds(1_800_000_000)
}

fn order(has_address: bool) -> OrderRecord {
    let email = has_address.then(|| "buyer@example.org".to_owned());
    OrderRecord { email, ..OrderRecord::placed(&claim()) }
}

fn payment(n: u8) -> PaymentId {
    PaymentId::from(Uuid::from_bytes([n; 16]))
}

fn news(n: u8, outcome: Outcome) -> OrderEvent {
    OrderEvent::Notified(Notice { payment: payment(n), order: None, outcome })
}

fn paid(n: u8) -> OrderEvent {
    news(n, Outcome::Paid(claim().price))
}

/// Every event, and the messages it brought.
fn told(order: OrderRecord, events: &[OrderEvent], wants: Wants) -> (OrderRecord, Vec<Draft>) {
    let mut order = order;
    let mut drafts = Vec::new();
    for event in events {
        let after = decide(&order, event, now()).after;
        drafts.extend(messages(Some(&order), &after, wants));
        order = after;
    }
    (order, drafts)
}

fn names(drafts: &[Draft]) -> Vec<(&'static str, &'static str)> {
    drafts.iter().map(|draft| (draft.channel.as_str(), draft.kind.as_str())).collect()
}

#[test]
fn m2_a_payment_that_is_told_again_and_again_brings_one_mail_and_one_webhook() {
    let events = [
        OrderEvent::Pay { payment: payment(1), terms: Terms::default() },
        paid(1),
        paid(1),
        news(1, Outcome::Failed),
        paid(1),
    ];
    let (_, drafts) = told(order(true), &events, Wants::ALL);
    assert_eq!(names(&drafts), [("mail", "order.paid"), ("webhook", "order.paid")]);
    assert_eq!(drafts[0].content.state, "paid");
    let (_, drafts) = told(order(false), &events, Wants::ALL);
    assert_eq!(names(&drafts), [("webhook", "order.paid")], "nobody to write to");
}

#[test]
fn an_end_nobody_can_be_told_of_and_nobody_began_to_pay_for_is_nobody_s() {
    let (_, drafts) = told(order(false), &[OrderEvent::Expire], Wants::ALL);
    assert_eq!(names(&drafts), []);
    let (_, drafts) = told(order(true), &[OrderEvent::Expire], Wants::ALL);
    assert_eq!(names(&drafts), [("mail", "order.expired"), ("webhook", "order.expired")]);
    let begun = [
        OrderEvent::Pay { payment: payment(1), terms: Terms::default() },
        OrderEvent::Expire,
        news(1, Outcome::Unpayable),
    ];
    let (_, drafts) = told(order(false), &begun, Wants::ALL);
    assert_eq!(names(&drafts), [("webhook", "order.expired")]);
    let tombstone = place(None, &Intake::Expiring(claim())).unwrap().after;
    assert_eq!(messages(None, &tombstone, Wants::ALL), []);
    assert_eq!(messages(None, &order(true), Wants::ALL), [], "an order that begins is told on the page");
}

#[test]
fn m5_money_that_comes_late_is_told_once_as_it_goes_back() {
    let refused = OrderEvent::Reclaim(ReclaimAnswer::SoldOut);
    let events =
        [OrderEvent::Expire, paid(1), paid(1), refused, OrderEvent::Refunded { payment: payment(1) }];
    let (after, drafts) = told(order(true), &events, Wants::ALL);
    assert_eq!(after.state, OrderState::Refunded);
    assert_eq!(
        names(&drafts),
        [
            ("mail", "order.expired"),
            ("webhook", "order.expired"),
            ("mail", "order.refund_due"),
            ("webhook", "order.refund_due"),
            ("webhook", "order.refunded"),
        ]
    );
    assert_eq!(drafts[2].content.money, Some(claim().price));
    assert_eq!(drafts[4].content.money, Some(claim().price));
}

#[test]
fn m5_late_money_that_gets_other_units_says_which() {
    let expired = told(order(true), &[OrderEvent::Expire], Wants::ALL).0;
    let revived = OrderRecord { state: OrderState::Paid, units: vec![8, 9], ..expired.clone() };
    let drafts = messages(Some(&expired), &revived, Wants::ALL);
    assert_eq!(names(&drafts), [("mail", "order.paid"), ("webhook", "order.paid")]);
    assert_eq!(drafts[0].content.units_before, Some(vec![4, 5]));
    let moved = OrderRecord { units: vec![1, 2], ..revived.clone() };
    let drafts = messages(Some(&revived), &moved, Wants::ALL);
    assert_eq!(names(&drafts), [("mail", "order.units_changed"), ("webhook", "order.units_changed")]);
    let waiting = OrderRecord { units: vec![1, 2], ..order(true) };
    assert_eq!(messages(Some(&order(true)), &waiting, Wants::ALL), [], "nothing was promised yet");
}

#[test]
fn m7_a_wrong_amount_and_a_second_payment_go_back_and_the_order_stands() {
    let wrong = crate::payment::Money { amount: 1, currency: "EUR".into() };
    let events = [
        news(1, Outcome::Paid(wrong.clone())),
        OrderEvent::Refunded { payment: payment(1) },
        OrderEvent::Expire,
    ];
    let (_, drafts) = told(order(true), &events, Wants::ALL);
    assert_eq!(
        names(&drafts),
        [
            ("mail", "order.refund_due"),
            ("webhook", "payment.refunded"),
            ("mail", "order.expired"),
            ("webhook", "order.expired"),
        ]
    );
    assert_eq!(drafts[2].content.money, Some(wrong), "so nobody reads that nothing was charged");
    let twice = [paid(1), paid(2), OrderEvent::Refunded { payment: payment(2) }];
    let (after, drafts) = told(order(true), &twice, Wants { mail: false, webhook: true });
    assert_eq!(after.state, OrderState::Paid);
    assert_eq!(names(&drafts), [("webhook", "order.paid"), ("webhook", "payment.refunded")]);
}

#[test]
fn giving_up_is_told_to_the_shop_and_m13_a_disputed_order_to_its_buyer() {
    let (_, drafts) = told(order(true), &[OrderEvent::Cancel, OrderEvent::Cancel], Wants::ALL);
    assert_eq!(names(&drafts), [("webhook", "order.cancelled")]);
    let (disputed, _) = dispute(&order(true));
    let drafts = messages(None, &disputed, Wants::ALL);
    assert_eq!(names(&drafts), [("mail", "order.cancelled"), ("webhook", "order.cancelled")]);
}

fn any_event() -> impl Strategy<Value = OrderEvent> {
    let outcome = prop_oneof![
        3 => Just(Outcome::Paid(claim().price)),
        1 => Just(Outcome::Paid(Money { amount: 1, currency: "EUR".into() })),
        1 => Just(Outcome::Failed),
        1 => Just(Outcome::Unpayable),
    ];
    prop_oneof![
        2 => (1_u8..4).prop_map(|n| OrderEvent::Pay { payment: payment(n), terms: Terms::default() }),
        4 => (1_u8..4, outcome).prop_map(|(n, outcome)| news(n, outcome)),
        1 => Just(OrderEvent::Expire),
        1 => Just(OrderEvent::Cancel),
        1 => Just(OrderEvent::Commit(CommitAnswer::Committed)),
        1 => Just(OrderEvent::Commit(CommitAnswer::Released)),
        1 => Just(OrderEvent::Release(ReleaseAnswer::Released)),
        2 => (1_u8..4).prop_map(|n| OrderEvent::Refunded { payment: payment(n) }),
    ]
}

proptest! {
    #[test]
    fn m2_every_transition_is_told_once_and_nothing_else_is(
        events in prop::collection::vec(any_event(), 0..20), has_address: bool
    ) {
        let mut order = order(has_address);
        let (mut mails, mut hooks, mut entries) = (Vec::new(), Vec::new(), 0);
        for event in &events {
            let after = decide(&order, event, now()).after;
            let again = decide(&after, event, now()).after;
            let drafts = messages(Some(&order), &after, Wants::ALL);
            prop_assert_eq!(messages(Some(&order), &after, Wants::default()), vec![]);
            if again == after {
                prop_assert_eq!(messages(Some(&after), &again, Wants::ALL), vec![], "repeated");
            }
            entries += usize::from(after.state != order.state);
            for draft in drafts {
                prop_assert_eq!(&draft.content.state, after.state.as_str());
                if draft.channel == Channel::Mail { mails.push(draft) } else { hooks.push(draft) }
            }
            order = after;
        }
        prop_assert!(has_address || mails.is_empty());
        // Each transition of the order is one webhook; but for the end of what nobody began to pay for.
        let silent = usize::from(!has_address && order.state != OrderState::AwaitingPayment)
            * usize::from(hooks.iter().all(|hook| hook.kind != MessageKind::Expired)
                && matches!(order.ending, Some(crate::order::EndReason::Expire)));
        let of_orders = hooks.iter().filter(|hook| hook.kind != MessageKind::PaymentRefunded).count();
        prop_assert!(of_orders == entries || of_orders + silent == entries, "{} of {}", of_orders, entries);
        // Each attempt whose money goes back is in one mail, and in one webhook once it went.
        let total = |drafts: &[Draft], kinds: &[MessageKind]| -> i64 {
            let of_kind = drafts.iter().filter(|draft| kinds.contains(&draft.kind));
            of_kind.filter_map(|draft| draft.content.money.as_ref()).map(|money| money.amount).sum()
        };
        let owed = |least| -> i64 {
            let of_state = order.payments.iter().filter(|attempt| attempt.state >= least);
            of_state.filter_map(|attempt| attempt.paid.as_ref()).map(|money| money.amount).sum()
        };
        if has_address {
            prop_assert_eq!(total(&mails, &[MessageKind::RefundDue]), owed(PaymentState::RefundDue));
        }
        let went = [MessageKind::Refunded, MessageKind::PaymentRefunded];
        prop_assert_eq!(total(&hooks, &went), owed(PaymentState::Refunded));
    }
}
