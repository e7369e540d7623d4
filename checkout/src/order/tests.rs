use lockgate_shared::ids::AccountHash;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::payment::Outcome;

const NOW: i64 = 1_800_000_000;

fn now() -> Timestamp {
    Timestamp::from_seconds(NOW)
}

fn euros(amount: i64) -> Money {
    Money { amount, currency: "EUR".into() }
}

pub(crate) fn claim() -> Placement {
    Placement {
        order: ClaimId::from(Uuid::from_bytes([7; 16])),
        sale: "demo".parse().unwrap(),
        account: AccountHash::from_bytes([1; 16]),
        item: "phone".parse().unwrap(),
        units: vec![4, 5],
        price: euros(998),
        email: None,
        language: None,
        claimed_at: now(),
        hold_expires_at: now().plus_seconds(600),
    }
}

fn payment(n: u8) -> PaymentId {
    PaymentId::from(Uuid::from_bytes([n; 16]))
}

fn news(n: u8, outcome: Outcome) -> OrderEvent {
    OrderEvent::Notified(Notice { payment: payment(n), order: None, outcome })
}

fn paid(n: u8) -> OrderEvent {
    news(n, Outcome::Paid(euros(998)))
}

fn pay(n: u8) -> OrderEvent {
    OrderEvent::Pay { payment: payment(n), terms: Terms::default() }
}

/// The order after `events`, and the kinds of the anomalies on the way.
fn after(events: &[OrderEvent]) -> (OrderRecord, Vec<&'static str>) {
    let mut order = OrderRecord::placed(&claim());
    let mut kinds = Vec::new();
    for event in events {
        let decision = decide(&order, event, now());
        kinds.extend(decision.anomalies.iter().map(|anomaly| anomaly.kind));
        order = decision.after;
    }
    (order, kinds)
}

#[test]
fn a_payment_commits_and_nothing_but_the_gate_is_left_to_tell() {
    let (order, anomalies) = after(&[pay(1), paid(1)]);
    assert_eq!((order.state, order.gate), (OrderState::Paid, GateSide::CommitDue));
    assert_eq!(order.steps(), [Step::Commit]);
    assert!(anomalies.is_empty());
    let done = decide(&order, &OrderEvent::Commit(CommitAnswer::Committed), now()).after;
    assert!(!done.is_unsettled());
}

#[test]
fn m6_an_attempt_is_given_up_or_shown_but_never_both() {
    let started = || OrderEvent::Started { payment: payment(1), redirect_url: "u".into(), reference: None };
    let not_started = OrderEvent::NotStarted { payment: payment(1) };
    let given_up = after(&[pay(1), not_started.clone()]).0;
    assert_eq!(given_up.payments[0].state, PaymentState::Failed);
    assert_eq!(decide(&given_up, &started(), now()).verdict, Verdict::Done, "shown to nobody");
    assert_eq!(decide(&given_up, &pay(2), now()).verdict, Verdict::Start(payment(2)));
    let shown = after(&[pay(1), started(), not_started.clone()]).0;
    assert_eq!(shown.payments[0].state, PaymentState::Open, "shown, so it can be paid until it is cancelled");
    let ending = after(&[pay(1), OrderEvent::Cancel, not_started]).0;
    assert_eq!((ending.state, ending.gate), (OrderState::Cancelled, GateSide::ReleaseDue));
    let lost = decide(&OrderRecord::placed(&claim()), &started(), now());
    assert_eq!(lost.verdict, Verdict::Done, "what is not written down is not shown");
}

#[test]
fn an_open_attempt_is_resumed_and_a_failed_one_makes_room() {
    let order = after(&[pay(1)]).0;
    assert_eq!(decide(&order, &pay(2), now()).verdict, Verdict::Start(payment(1)));
    let url = || "https://pay.example/1".to_owned();
    let started = OrderEvent::Started { payment: payment(1), redirect_url: url(), reference: None };
    let order = decide(&order, &started, now()).after;
    assert_eq!(decide(&order, &pay(2), now()).verdict, Verdict::Resume { redirect_url: url() });
    let order = decide(&order, &news(1, Outcome::Failed), now()).after;
    assert_eq!(decide(&order, &pay(2), now()).verdict, Verdict::Start(payment(2)));
}

#[test]
fn no_payment_begins_once_the_order_ends() {
    let late = claim().hold_expires_at;
    let order = after(&[]).0;
    assert_eq!(decide(&order, &pay(1), late).verdict, Verdict::Refused(Refusal::Expired));
    let cancelled = after(&[OrderEvent::Cancel]).0;
    assert_eq!(decide(&cancelled, &pay(1), now()).verdict, Verdict::Refused(Refusal::Cancelled));
    let bought = after(&[pay(1), paid(1)]).0;
    assert_eq!(decide(&bought, &pay(2), now()).verdict, Verdict::Refused(Refusal::Paid));
    assert_eq!(decide(&bought, &OrderEvent::Cancel, now()).verdict, Verdict::Refused(Refusal::Paid));
}

#[test]
fn attempts_are_bounded() {
    let mut order = after(&[]).0;
    for n in 1..=u8::try_from(ATTEMPTS_MAX).unwrap() {
        order = decide(&order, &pay(n), now()).after;
        order = decide(&order, &news(n, Outcome::Failed), now()).after;
    }
    let refused = Verdict::Refused(Refusal::TooManyAttempts);
    assert_eq!(decide(&order, &pay(99), now()).verdict, refused);
}

#[test]
fn m4_a_signed_failure_after_success_changes_nothing() {
    let (order, _) = after(&[pay(1), paid(1)]);
    for late in [news(1, Outcome::Failed), news(1, Outcome::Unpayable), paid(1)] {
        assert_eq!(decide(&order, &late, now()).after, order);
    }
}

#[test]
fn m5_a_payment_found_while_the_order_ends_wins_and_one_after_a_cancellation_goes_back_once() {
    let (order, _) = after(&[pay(1), OrderEvent::Expire]);
    assert_eq!(order.steps(), [Step::CancelPayment(payment(1))]);
    let found = decide(&order, &paid(1), now()).after;
    assert_eq!((found.state, found.gate), (OrderState::Paid, GateSide::CommitDue));

    let (late, anomalies) =
        after(&[pay(1), OrderEvent::Cancel, news(1, Outcome::Unpayable), paid(1), paid(1)]);
    assert_eq!(late.state, OrderState::RefundDue);
    assert_eq!(anomalies, ["paid_late"]);
    let refund = Step::Refund { payment: payment(1), money: euros(998) };
    assert_eq!(late.steps(), [Step::Release, refund]);
    let refunded = OrderEvent::Refunded { payment: payment(1) };
    let back = decide(&late, &refunded, now()).after;
    assert_eq!(back.state, OrderState::Refunded);
    assert_eq!(decide(&back, &refunded, now()).after, back);
}

/// Expired and made unpayable, and then paid all the same.
fn paid_late(release: Option<ReleaseAnswer>) -> OrderRecord {
    let ended = after(&[pay(1), OrderEvent::Expire, news(1, Outcome::Unpayable)]).0;
    let ended =
        release.map_or(ended.clone(), |answer| decide(&ended, &OrderEvent::Release(answer), now()).after);
    let late = decide(&ended, &paid(1), now());
    assert_eq!(late.anomalies.iter().map(|anomaly| anomaly.kind).collect::<Vec<_>>(), ["paid_late"]);
    late.after
}

fn reclaimed(units: &[u32]) -> OrderEvent {
    OrderEvent::Reclaim(ReclaimAnswer::Reclaimed { units: units.to_vec() })
}

#[test]
fn m5_a_late_success_is_reclaimed_its_own_units_or_others() {
    for (release, units) in [(None, [4, 5]), (Some(ReleaseAnswer::Released), [1, 9])] {
        let late = paid_late(release);
        assert_eq!((late.state, late.gate), (OrderState::Expired, GateSide::ReclaimDue));
        assert_eq!(late.steps(), [Step::Reclaim], "a release that was due is not sent any more");
        assert!(!late.owns_units());
        assert_eq!(late.refuses_payment(now()), Some(Refusal::Expired));
        let decision = decide(&late, &reclaimed(&units), now());
        assert_eq!(decision.anomalies[0].kind, "reclaimed");
        let bought = decision.after;
        assert_eq!((bought.state, bought.gate), (OrderState::Paid, GateSide::Committed));
        assert_eq!((bought.units.as_slice(), bought.ending), (&units[..], None));
        assert!(!bought.is_unsettled());
        assert_eq!(decide(&bought, &reclaimed(&[7, 8]), now()).after, bought, "once");
        assert_eq!(place(Some(&bought), &Intake::Released(claim())), None, "an old record");
    }
}

#[test]
fn m5_a_late_success_without_units_goes_back_once() {
    let none = [ReclaimAnswer::SoldOut, ReclaimAnswer::LimitReached { limit: 2, taken: 2 }];
    for answer in none {
        let decision = decide(&paid_late(None), &OrderEvent::Reclaim(answer), now());
        assert_eq!(decision.anomalies[0].kind, "not_reclaimed");
        let refund = Step::Refund { payment: payment(1), money: euros(998) };
        assert_eq!((decision.after.state, decision.after.steps()), (OrderState::RefundDue, vec![refund]));
        let back = decide(&decision.after, &OrderEvent::Refunded { payment: payment(1) }, now()).after;
        assert_eq!((back.state, back.gate), (OrderState::Refunded, GateSide::Released));
        for late in [paid(1), reclaimed(&[4, 5]), OrderEvent::Refunded { payment: payment(1) }] {
            assert_eq!(decide(&back, &late, now()).after, back);
        }
    }
    let lost = OrderEvent::Reclaim(ReclaimAnswer::NoSuchClaim);
    assert_eq!(decide(&paid_late(None), &lost, now()).after, paid_late(None), "asked again");
}

#[test]
fn m5_the_record_of_a_reclaim_stands_for_its_lost_answer() {
    let others = Placement { units: vec![1, 9], ..claim() };
    for old in [Intake::Claimed(claim()), Intake::Expiring(claim()), Intake::Released(claim())] {
        assert_eq!(place(Some(&paid_late(None)), &old), None, "{old:?}");
    }
    let placed = place(Some(&paid_late(None)), &Intake::Committed(others)).unwrap();
    assert_eq!(placed.anomalies[0].kind, "reclaimed", "noted as by the answer");
    let bought = placed.after;
    assert_eq!((bought.state, bought.gate), (OrderState::Paid, GateSide::Committed));
    assert_eq!(bought.units, [1, 9]);
    let (disputed, anomaly) = dispute(&bought);
    assert_eq!((disputed.state, disputed.gate), (OrderState::RefundDue, GateSide::Disputed));
    assert!(matches!(disputed.steps()[..], [Step::Refund { .. }]));
    assert_eq!(anomaly.kind, "unit_taken");
}

#[test]
fn m5_only_an_expired_order_is_reclaimed_and_only_for_the_right_money() {
    let unpayable = || news(1, Outcome::Unpayable);
    let (cancelled, kinds) = after(&[pay(1), OrderEvent::Cancel, unpayable(), paid(1)]);
    assert_eq!((cancelled.state, kinds), (OrderState::RefundDue, vec!["paid_late"]));
    let (short, kinds) = after(&[pay(1), OrderEvent::Expire, unpayable(), news(1, Outcome::Paid(euros(1)))]);
    assert_eq!((short.state, kinds), (OrderState::RefundDue, vec!["wrong_amount"]));
    // Money beside the one that counts goes back, whatever the reclaim says.
    for (other, kind) in [(paid(2), "paid_twice"), (news(2, Outcome::Paid(euros(1))), "wrong_amount")] {
        let decision = decide(&paid_late(None), &other, now());
        assert_eq!(decision.anomalies[0].kind, kind);
        assert!(matches!(decision.after.steps()[..], [Step::Reclaim, Step::Refund { .. }]));
        let bought = decide(&decision.after, &reclaimed(&[4, 5]), now()).after;
        assert_eq!(bought.state, OrderState::Paid);
        let sold_out = decide(&decision.after, &OrderEvent::Reclaim(ReclaimAnswer::SoldOut), now()).after;
        assert_eq!(refund::due(&sold_out).count(), 2);
    }
}

#[test]
fn an_operator_gives_money_back_once_and_the_units_stay_sold() {
    let bought = after(&[pay(1), paid(1), OrderEvent::Commit(CommitAnswer::Committed)]).0;
    let decision = decide(&bought, &OrderEvent::Refund { why: "a test".into() }, now());
    assert_eq!(decision.verdict, Verdict::Done);
    let due = decision.after;
    assert_eq!((due.state, due.gate), (OrderState::RefundDue, GateSide::Committed));
    assert_eq!(refund::due(&due).count(), 1);
    assert_eq!(decide(&due, &OrderEvent::Refund { why: "a test".into() }, now()).after, due);
    let back = decide(&due, &OrderEvent::Refunded { payment: payment(1) }, now()).after;
    assert_eq!((back.state, back.gate), (OrderState::Refunded, GateSide::Committed));
    assert_eq!(decide(&back, &OrderEvent::Refund { why: "a test".into() }, now()).after, back);
    // A gate that lost the sale is told again, and one that freed the units meanwhile changes nothing.
    let again = decide(&back, &OrderEvent::Expire, now()).after;
    assert_eq!((again.state, again.steps()), (OrderState::Refunded, vec![Step::Commit]));
    let freed = decide(&again, &OrderEvent::Commit(CommitAnswer::Released), now()).after;
    assert_eq!(
        (freed.state, freed.gate, freed.is_unsettled()),
        (OrderState::Refunded, GateSide::Released, false)
    );
}

#[test]
fn an_operator_gives_nothing_back_where_nothing_was_kept() {
    let refused =
        |order: &OrderRecord| decide(order, &OrderEvent::Refund { why: "a test".into() }, now()).verdict;
    for order in [after(&[]).0, after(&[OrderEvent::Cancel]).0, after(&[OrderEvent::Expire]).0] {
        assert_eq!(refused(&order), Verdict::Refused(Refusal::NotPaid));
    }
    assert_eq!(refused(&paid_late(None)), Verdict::Refused(Refusal::Reclaiming));
}

#[test]
fn m6_units_wait_until_no_payment_can_succeed() {
    for reason in [OrderEvent::Expire, OrderEvent::Cancel] {
        let (order, _) = after(&[pay(1), reason]);
        assert_eq!(order.gate, GateSide::Held);
        let ended = decide(&order, &news(1, Outcome::Unpayable), now()).after;
        assert_eq!(ended.steps(), [Step::Release]);
    }
}

#[test]
fn m7_wrong_amount_currency_or_order_goes_back_and_does_not_pay() {
    let dollars = Money { amount: 998, currency: "USD".into() };
    let foreign = OrderEvent::Notified(Notice {
        payment: payment(1),
        order: Some(ClaimId::from(Uuid::from_bytes([9; 16]))),
        outcome: Outcome::Paid(euros(998)),
    });
    let cases = [
        (news(1, Outcome::Paid(euros(997))), "wrong_amount"),
        (news(1, Outcome::Paid(dollars)), "wrong_amount"),
        (foreign, "wrong_order"),
    ];
    for (event, kind) in cases {
        let (order, anomalies) = after(&[pay(1), event]);
        assert_eq!(anomalies, [kind]);
        assert_eq!(order.state, OrderState::AwaitingPayment, "the buyer may pay properly");
        assert!(matches!(order.steps()[..], [Step::Refund { .. }]));
    }
}

#[test]
fn a_second_payment_goes_back_and_the_order_stays_paid() {
    let (order, anomalies) = after(&[pay(1), news(1, Outcome::Failed), pay(2), paid(2), paid(1)]);
    assert_eq!(order.state, OrderState::Paid);
    assert_eq!(anomalies, ["paid_twice"]);
    assert_eq!(order.payments[0].state, PaymentState::RefundDue);
}

#[test]
fn a_commit_that_finds_the_units_gone_gives_the_money_back() {
    let (order, anomalies) = after(&[pay(1), paid(1), OrderEvent::Commit(CommitAnswer::Released)]);
    assert_eq!((order.state, order.gate), (OrderState::RefundDue, GateSide::Released));
    assert_eq!(anomalies, ["paid_but_released"]);
    assert!(matches!(order.steps()[..], [Step::Refund { .. }]));
}

#[test]
fn a_gate_that_forgot_is_told_again() {
    let (order, _) =
        after(&[pay(1), paid(1), OrderEvent::Commit(CommitAnswer::Committed), OrderEvent::Expire]);
    assert_eq!((order.state, order.steps()), (OrderState::Paid, vec![Step::Commit]));
    let (order, _) =
        after(&[OrderEvent::Cancel, OrderEvent::Release(ReleaseAnswer::Released), OrderEvent::Expire]);
    assert_eq!((order.state, order.steps()), (OrderState::Cancelled, vec![Step::Release]));
}

#[test]
fn an_order_placed_ended_is_its_claim_s_tombstone() {
    let ended = place(None, &Intake::Expiring(claim())).unwrap().after;
    assert_eq!((ended.state, ended.gate), (OrderState::Expired, GateSide::ReleaseDue));
    assert_eq!(place(Some(&ended), &Intake::Claimed(claim())), None);
    let freed = place(None, &Intake::Released(claim())).unwrap().after;
    assert_eq!(freed.gate, GateSide::Released);
    assert_eq!(place(None, &Intake::Committed(claim())), None);
    let (disputed, anomaly) = dispute(&OrderRecord::placed(&claim()));
    assert!(!disputed.owns_units() && !disputed.is_unsettled());
    assert_eq!(anomaly.kind, "unit_taken");
    assert_eq!(place(Some(&disputed), &Intake::Expiring(claim())), None, "its units are another's");
}

fn any_reclaim() -> impl Strategy<Value = ReclaimAnswer> {
    prop_oneof![
        2 => prop::collection::vec(1_u32..20, 2).prop_map(|units| ReclaimAnswer::Reclaimed { units }),
        2 => Just(ReclaimAnswer::SoldOut),
        1 => Just(ReclaimAnswer::LimitReached { limit: 2, taken: 2 }),
        1 => Just(ReclaimAnswer::NoSuchClaim),
    ]
}

fn any_event() -> impl Strategy<Value = OrderEvent> {
    let outcome = prop_oneof![
        3 => Just(Outcome::Paid(euros(998))),
        1 => Just(Outcome::Paid(euros(1))),
        2 => Just(Outcome::Failed),
        2 => Just(Outcome::Unpayable),
    ];
    prop_oneof![
        4 => (1_u8..4).prop_map(pay),
        1 => (1_u8..4).prop_map(|n| OrderEvent::Started { payment: payment(n), redirect_url: "u".into(), reference: None }),
        6 => ((1_u8..5), outcome).prop_map(|(n, outcome)| news(n, outcome)),
        2 => Just(OrderEvent::Expire),
        1 => Just(OrderEvent::Cancel),
        2 => Just(OrderEvent::Commit(CommitAnswer::Committed)),
        1 => Just(OrderEvent::Commit(CommitAnswer::Released)),
        1 => Just(OrderEvent::Commit(CommitAnswer::NoSuchClaim)),
        2 => Just(OrderEvent::Release(ReleaseAnswer::Released)),
        2 => any_reclaim().prop_map(OrderEvent::Reclaim),
        1 => Just(OrderEvent::Refund { why: "a test".into() }),
        1 => (1_u8..4).prop_map(|n| OrderEvent::Refunded { payment: payment(n) }),
    ]
}

fn rank(state: OrderState) -> u8 {
    match state {
        OrderState::AwaitingPayment => 0,
        OrderState::Paid | OrderState::Expired | OrderState::Cancelled => 1,
        OrderState::RefundDue | OrderState::Refunded => 2,
    }
}

fn check_step(before: &OrderRecord, after: &OrderRecord) -> Result<(), TestCaseError> {
    prop_assert!(rank(after.state) >= rank(before.state), "states only move forward");
    if rank(before.state) == 1 && rank(after.state) == 1 {
        let is_reclaimed = before.is_reclaiming() && after.state == OrderState::Paid;
        prop_assert!(before.state == after.state || is_reclaimed, "an end is an end");
    }
    for (old, new) in before.payments.iter().zip(&after.payments) {
        prop_assert_eq!(old.id, new.id);
        prop_assert!(new.state >= old.state, "attempts only move forward");
        prop_assert!(old.paid.is_none() || old.paid == new.paid);
    }
    prop_assert!(after.payments.len() >= before.payments.len());
    prop_assert!(after.units == before.units || before.is_reclaiming(), "units change by a reclaim alone");
    Ok(())
}

fn check_order(order: &OrderRecord) -> Result<(), TestCaseError> {
    let has = |state| order.payments.iter().any(|payment| payment.state == state);
    if order.gate == GateSide::ReleaseDue {
        prop_assert!(!has(PaymentState::Open), "units go back while a payment may succeed");
    }
    if matches!(order.gate, GateSide::ReleaseDue | GateSide::Released) {
        prop_assert!(!order.owns_units());
        prop_assert!(!has(PaymentState::Succeeded), "somebody paid for units that went back");
    }
    if order.state == OrderState::Paid {
        prop_assert_eq!(order.payments.iter().filter(|p| p.state == PaymentState::Succeeded).count(), 1);
        prop_assert!(matches!(order.gate, GateSide::CommitDue | GateSide::Committed));
    } else {
        let kept = order.payments.iter().filter(|p| p.state == PaymentState::Succeeded).count();
        prop_assert_eq!(kept, usize::from(order.is_reclaiming()), "money is kept without an order");
    }
    prop_assert_eq!(
        order.state == OrderState::RefundDue,
        has(PaymentState::RefundDue) && rank(order.state) == 2
    );
    for payment in &order.payments {
        prop_assert_eq!(payment.paid.is_some(), payment.state >= PaymentState::Succeeded);
    }
    Ok(())
}

/// Answers every step as a gateway and a gate that work would.
fn settle(mut order: OrderRecord) -> OrderRecord {
    for _ in 0..10 {
        for step in order.steps() {
            let event = match step {
                Step::Commit => OrderEvent::Commit(CommitAnswer::Committed),
                Step::Release => OrderEvent::Release(ReleaseAnswer::Released),
                Step::Reclaim => OrderEvent::Reclaim(ReclaimAnswer::SoldOut),
                Step::Refund { payment, .. } => OrderEvent::Refunded { payment },
                Step::CancelPayment(payment) => {
                    OrderEvent::Notified(Notice { payment, order: None, outcome: Outcome::Unpayable })
                }
            };
            order = decide(&order, &event, now()).after;
        }
    }
    order
}

proptest! {
    #[test]
    fn m6_whatever_happens_no_unit_goes_back_while_payable_and_paid_stays_paid(
        events in prop::collection::vec(any_event(), 0..24)
    ) {
        let mut order = OrderRecord::placed(&claim());
        for event in &events {
            let decision = decide(&order, event, now());
            check_step(&order, &decision.after)?;
            check_order(&decision.after)?;
            order = decision.after;
        }
        let settled = settle(order);
        prop_assert!(settled.steps().is_empty(), "an order that cannot be settled: {settled:?}");
        check_order(&settled)?;
    }
}
