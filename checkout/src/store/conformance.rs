//! One behaviour for every store: the same scenarios on the model, SQLite and PostgreSQL.

use std::sync::Arc;

mod late;

use lockgate_shared::{
    gate::{CommitAnswer, ReleaseAnswer},
    ids::AccountHash,
    store::{postgres::connect, sqlite::Sqlite},
    testing::PrivatePostgres,
};
use uuid::Uuid;

use self::late::{
    anomalies_of_a_sale_come_by_pages, m5_a_reclaimed_order_owns_the_units_it_was_given,
    m5_m13_a_reclaimed_unit_that_another_owns_gives_the_money_back,
};
use super::{
    model::ModelStore,
    postgres::{ORDERS_POSTGRES, PostgresStore},
    sqlite::{ORDERS_SQLITE, SqliteStore},
    *,
};
use crate::{
    order::{EndReason, Placement, Refusal, Step, Verdict},
    payment::{Money, Outcome, PaymentState, Terms},
};

pub(super) const NOW: i64 = 1_800_000_000;

pub(super) fn now() -> Timestamp {
    Timestamp::from_seconds(NOW)
}

pub(super) fn sale() -> SaleId {
    "demo".parse().unwrap()
}

pub(super) fn order_id(n: u8) -> ClaimId {
    ClaimId::from(Uuid::from_bytes([n; 16]))
}

pub(super) fn payment_id(n: u8) -> PaymentId {
    PaymentId::from(Uuid::from_bytes([n; 16]))
}

pub(super) fn price() -> Money {
    Money { amount: 998, currency: "EUR".into() }
}

pub(super) fn claim(n: u8, units: &[u32]) -> Placement {
    Placement {
        order: order_id(n),
        sale: sale(),
        account: AccountHash::from_bytes([n; 16]),
        item: "phone".parse().unwrap(),
        units: units.to_vec(),
        price: price(),
        email: n.is_multiple_of(2).then(|| format!("{n}@example.org")),
        language: n.is_multiple_of(4).then_some(lockgate_shared::language::Language::German),
        claimed_at: now(),
        hold_expires_at: now().plus_seconds(600),
    }
}

pub(super) fn notice(payment: u8, order: Option<u8>, outcome: Outcome) -> Notice {
    Notice { payment: payment_id(payment), order: order.map(order_id), outcome }
}

async fn place(store: &dyn Store, batch: &[Intake]) -> Placed {
    store.place(&sale(), batch, &[], now()).await.unwrap()
}

async fn claimed(store: &dyn Store, n: u8, units: &[u32]) -> Placed {
    place(store, &[Intake::Claimed(claim(n, units))]).await
}

async fn decide(store: &dyn Store, n: u8, event: OrderEvent) -> Decision {
    store.decide(order_id(n), &event, now()).await.unwrap().unwrap()
}

async fn order(store: &dyn Store, n: u8) -> OrderRecord {
    store.order(order_id(n)).await.unwrap().unwrap()
}

pub(super) fn terms(payment: u8) -> Terms {
    Terms { description: format!("Thing {payment}"), return_url: format!("https://shop.example/{payment}") }
}

async fn pay(store: &dyn Store, n: u8, payment: u8) -> Verdict {
    let event = OrderEvent::Pay { payment: payment_id(payment), terms: terms(payment) };
    decide(store, n, event).await.verdict
}

async fn m10_a_claim_taken_in_twice_is_one_order(store: &dyn Store) {
    let first = claimed(store, 1, &[4, 5]).await;
    assert_eq!(first.changed, [OrderRecord::placed(&claim(1, &[4, 5]))]);
    assert_eq!(claimed(store, 1, &[4, 5]).await, Placed::default());
    let twice = [Intake::Claimed(claim(2, &[6])), Intake::Claimed(claim(2, &[6]))];
    assert_eq!(place(store, &twice).await.changed.len(), 1);
    assert_eq!(order(store, 1).await, OrderRecord::placed(&claim(1, &[4, 5])));
    assert_eq!(store.order(order_id(3)).await.unwrap(), None);
}

async fn an_order_is_paid_and_committed(store: &dyn Store) {
    claimed(store, 1, &[4]).await;
    assert_eq!(pay(store, 1, 7).await, Verdict::Start(payment_id(7)));
    let started = OrderEvent::Started {
        payment: payment_id(7),
        redirect_url: "https://pay.example/7".into(),
        reference: Some("cs_7".into()),
    };
    decide(store, 1, started).await;
    assert!(matches!(pay(store, 1, 8).await, Verdict::Resume { .. }));
    assert_eq!(store.order_of(payment_id(7)).await.unwrap(), Some(order_id(1)));
    assert_eq!(store.order_of(payment_id(8)).await.unwrap(), None);
    let news = notice(7, Some(1), Outcome::Paid(price()));
    let applied = store.notify("g", "e1", &news, now()).await.unwrap();
    assert!(matches!(applied, Notified::Applied(_)));
    let unsettled = store.unsettled(None, now()).await.unwrap();
    assert_eq!(unsettled[0].steps(), [Step::Commit]);
    decide(store, 1, OrderEvent::Commit(CommitAnswer::Committed)).await;
    let paid = order(store, 1).await;
    assert_eq!((paid.state, paid.gate), (OrderState::Paid, GateSide::Committed));
    assert_eq!(paid.payments[0].redirect_url.as_deref(), Some("https://pay.example/7"));
    assert_eq!(paid.payments[0].reference.as_deref(), Some("cs_7"));
    assert_eq!(paid.payments[0].terms, Some(terms(7)), "as it was first asked, not as it was asked again");
    assert_eq!(paid.payments[0].paid, Some(price()));
    assert!(store.unsettled(None, now()).await.unwrap().is_empty());
}

async fn m1_a_notification_before_its_order_waits_for_it(store: &dyn Store) {
    let news = notice(7, Some(1), Outcome::Paid(price()));
    assert_eq!(store.notify("g", "e1", &news, now()).await.unwrap(), Notified::Parked);
    assert_eq!(store.notify("g", "e1", &news, now()).await.unwrap(), Notified::Duplicate);
    let committed = [Intake::Committed(claim(1, &[4]))];
    assert_eq!(place(store, &committed).await, Placed::default());
    let placed = claimed(store, 1, &[4]).await;
    assert_eq!(placed.changed[0].state, OrderState::Paid);
    assert_eq!(order(store, 1).await.state, OrderState::Paid);
    assert_eq!(store.order_of(payment_id(7)).await.unwrap(), Some(order_id(1)));
    assert_eq!(store.notify("g", "e1", &news, now()).await.unwrap(), Notified::Duplicate);
}

async fn m3_a_notification_that_comes_again_is_applied_once(store: &dyn Store) {
    claimed(store, 1, &[4]).await;
    pay(store, 1, 7).await;
    let news = notice(7, Some(1), Outcome::Paid(price()));
    assert!(matches!(store.notify("g", "e1", &news, now()).await.unwrap(), Notified::Applied(_)));
    for _ in 0..4 {
        assert_eq!(store.notify("g", "e1", &news, now()).await.unwrap(), Notified::Duplicate);
    }
    // The same news under another id, or by another gateway, is news again, and changes nothing.
    let before = order(store, 1).await;
    for (gateway, event) in [("g", "e2"), ("h", "e1")] {
        assert!(matches!(store.notify(gateway, event, &news, now()).await.unwrap(), Notified::Applied(_)));
    }
    assert_eq!(order(store, 1).await, before);
}

async fn m4_a_failure_after_success_stays_paid(store: &dyn Store) {
    claimed(store, 1, &[4]).await;
    pay(store, 1, 7).await;
    for (event, outcome) in [("e1", Outcome::Paid(price())), ("e2", Outcome::Failed)] {
        store.notify("g", event, &notice(7, Some(1), outcome), now()).await.unwrap();
    }
    assert_eq!(order(store, 1).await.state, OrderState::Paid);
}

async fn m7_a_payment_that_names_another_order_goes_back(store: &dyn Store) {
    claimed(store, 1, &[4]).await;
    claimed(store, 2, &[5]).await;
    pay(store, 1, 7).await;
    let news = notice(7, Some(2), Outcome::Paid(price()));
    let Notified::Applied(decision) = store.notify("g", "e1", &news, now()).await.unwrap() else {
        panic!("not applied");
    };
    assert_eq!(decision.after.id, order_id(1), "the attempt's own order answers for it");
    assert_eq!(decision.anomalies[0].kind, "wrong_order");
    assert_eq!(order(store, 1).await.payments[0].state, PaymentState::RefundDue);
    assert_eq!(order(store, 2).await, OrderRecord::placed(&claim(2, &[5])));
}

async fn m13_a_unit_has_one_live_owner(store: &dyn Store) {
    claimed(store, 1, &[4]).await;
    let second = claimed(store, 2, &[3, 4]).await;
    assert_eq!(second.anomalies[0].1.kind, "unit_taken");
    assert_eq!(second.changed[0].gate, GateSide::Disputed);
    let refused = pay(store, 2, 7).await;
    assert_eq!(refused, Verdict::Refused(Refusal::Cancelled), "before any payment exists");
    // Unit 3 was not taken by the disputed order, and unit 4 is free once the first order ends.
    assert!(claimed(store, 3, &[3]).await.anomalies.is_empty());
    decide(store, 1, OrderEvent::Cancel).await;
    assert!(claimed(store, 4, &[4]).await.anomalies.is_empty());
    let elsewhere = Placement { sale: "other".parse().unwrap(), ..claim(5, &[4]) };
    assert!(place(store, &[Intake::Claimed(elsewhere)]).await.anomalies.is_empty());
}

async fn h1_a_claim_made_anew_at_a_gate_that_forgot_it_has_the_units_of_the_later_hold(store: &dyn Store) {
    claimed(store, 1, &[4]).await;
    let anew = Placement { claimed_at: now().plus_seconds(9), ..claim(1, &[6]) };
    assert_eq!(place(store, &[Intake::Claimed(anew)]).await.changed[0].units, [6]);
    assert!(claimed(store, 2, &[4]).await.anomalies.is_empty(), "4 is another's by now");
    assert_eq!(claimed(store, 3, &[6]).await.anomalies[0].1.kind, "unit_taken");
    // The records overtake each other; the earlier hold comes last.
    let anew = Placement { claimed_at: now().plus_seconds(9), ..claim(5, &[8]) };
    place(store, &[Intake::Claimed(anew)]).await;
    assert_eq!(claimed(store, 5, &[7]).await, Placed::default());
    decide(store, 1, OrderEvent::Cancel).await;
    assert!(claimed(store, 6, &[6, 7]).await.anomalies.is_empty());
}

async fn an_order_ends_when_its_hold_does(store: &dyn Store) {
    claimed(store, 1, &[4]).await;
    pay(store, 1, 7).await;
    place(store, &[Intake::Expiring(claim(1, &[4]))]).await;
    let ending = order(store, 1).await;
    assert_eq!((ending.state, ending.ending), (OrderState::AwaitingPayment, Some(EndReason::Expire)));
    let unsettled = store.unsettled(None, now()).await.unwrap();
    assert_eq!(unsettled[0].steps(), [Step::CancelPayment(payment_id(7))]);
    decide(store, 1, OrderEvent::Notified(notice(7, None, Outcome::Unpayable))).await;
    decide(store, 1, OrderEvent::Release(ReleaseAnswer::Released)).await;
    let ended = order(store, 1).await;
    assert_eq!((ended.state, ended.gate), (OrderState::Expired, GateSide::Released));
    place(store, &[Intake::Released(claim(1, &[4]))]).await;
    assert_eq!(order(store, 1).await, ended);
}

async fn h3_an_end_that_comes_before_its_claim_is_a_tombstone(store: &dyn Store) {
    place(store, &[Intake::Expiring(claim(1, &[4]))]).await;
    assert_eq!(order(store, 1).await.steps(), [Step::Release]);
    assert_eq!(claimed(store, 1, &[4]).await, Placed::default());
    assert!(claimed(store, 2, &[4]).await.anomalies.is_empty(), "it owns nothing");
}

fn letter(event: &str, found_at: Timestamp) -> DeadLetter {
    let (problem, record) = ("field 'kind' is unknown".into(), r#"{"kind":"odd"}"#.into());
    DeadLetter { event: event.into(), problem, record, found_at }
}

async fn m11_dead_letters_are_kept_until_they_are_cleared_and_the_rest_flows(store: &dyn Store) {
    let dead = [letter("9-0", now()), letter("10-0", now())];
    let batch = [Intake::Claimed(claim(1, &[4]))];
    for buried in [vec!["9-0", "10-0"], vec![]] {
        assert_eq!(store.place(&sale(), &batch, &dead, now()).await.unwrap().buried, buried, "new ones");
    }
    assert!(store.order(order_id(1)).await.unwrap().is_some());
    let found = store.dead_letters(&sale()).await.unwrap();
    assert_eq!(found, DeadLetters { total: 2, letters: vec![dead[1].clone(), dead[0].clone()] });
    assert_eq!(store.dead_letters(&"other".parse().unwrap()).await.unwrap(), DeadLetters::default());
    // Tried again without success: it goes to the end of the list.
    let again = DeadLetter { problem: "still".into(), ..letter("10-0", now().plus_seconds(1)) };
    store.place(&sale(), &[], std::slice::from_ref(&again), now()).await.unwrap();
    assert_eq!(store.dead_letters(&sale()).await.unwrap().letters, [dead[0].clone(), again.clone()]);
    for _ in 0..2 {
        store.clear(&sale(), "9-0").await.unwrap();
    }
    assert_eq!(store.dead_letters(&sale()).await.unwrap(), DeadLetters { total: 1, letters: vec![again] });
}

async fn a_batch_is_taken_in_one_record_after_the_other(store: &dyn Store) {
    // Notifications wait for two of the orders, one of them for an attempt that the other makes.
    for (event, payment, order) in [("e1", 7, 1), ("e2", 7, 3), ("e3", 8, 3)] {
        let news = notice(payment, Some(order), Outcome::Paid(price()));
        store.notify("g", event, &news, now()).await.unwrap();
    }
    let batch = [
        Intake::Claimed(claim(1, &[1, 2])),
        Intake::Claimed(claim(2, &[2])),
        Intake::Claimed(claim(3, &[3])),
        Intake::Claimed(claim(4, &[4])),
        Intake::Expiring(claim(4, &[4])),
        Intake::Claimed(claim(5, &[4])),
        Intake::Released(claim(6, &[6])),
    ];
    let placed = place(store, &batch).await;
    assert_eq!(placed.changed.len(), 7);
    let kinds: Vec<_> = placed.anomalies.iter().map(|(id, anomaly)| (*id, anomaly.kind)).collect();
    assert_eq!(kinds, [(order_id(2), "unit_taken")]);
    let states = async |n| order(store, n).await.state;
    assert_eq!(states(1).await, OrderState::Paid);
    assert_eq!(states(2).await, OrderState::Cancelled);
    assert_eq!(states(3).await, OrderState::Paid, "its own attempt was paid");
    assert_eq!((states(4).await, states(5).await), (OrderState::Expired, OrderState::AwaitingPayment));
    assert_eq!(states(6).await, OrderState::Expired);
    assert_eq!(place(store, &batch).await.anomalies, [], "once more changes no owner");
    assert_eq!(states(5).await, OrderState::AwaitingPayment);
}

async fn unsettled_orders_come_by_pages_and_overdue_ones_with_them(store: &dyn Store) {
    for n in 1..=4 {
        claimed(store, n, &[u32::from(n)]).await;
    }
    decide(store, 3, OrderEvent::Cancel).await;
    decide(store, 1, OrderEvent::Cancel).await;
    let ids = async |after: Option<u8>, at: Timestamp| {
        let page = store.unsettled(after.map(order_id), at).await.unwrap();
        page.iter().map(|order| order.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(None, now()).await, [order_id(1), order_id(3)]);
    assert_eq!(ids(Some(1), now()).await, [order_id(3)]);
    let late = now().plus_seconds(601 + OVERDUE_SECONDS);
    assert_eq!(ids(None, late).await, [1, 2, 3, 4].map(order_id));
    assert_eq!(ids(Some(3), late).await, [order_id(4)]);
}

async fn books_count_by_item_and_state(store: &dyn Store) {
    claimed(store, 1, &[1, 2]).await;
    claimed(store, 2, &[3]).await;
    claimed(store, 3, &[4]).await;
    decide(store, 2, OrderEvent::Cancel).await;
    pay(store, 3, 7).await;
    decide(store, 3, OrderEvent::Notified(notice(7, None, Outcome::Paid(price())))).await;
    decide(store, 3, OrderEvent::Commit(CommitAnswer::Committed)).await;
    let books = store.books(&sale()).await.unwrap();
    let phone = &books[&"phone".parse::<ItemId>().unwrap()];
    assert_eq!((phone.held, phone.sold), (3, 1), "cancelled, but the gate was not told yet");
    assert_eq!(phone.orders.values().sum::<u64>(), 3);
    assert_eq!(phone.orders[&OrderState::Cancelled], 1);
    assert!(store.books(&"other".parse().unwrap()).await.unwrap().is_empty());
    store.ping().await.unwrap();
}

async fn what_is_not_there_is_not_decided(store: &dyn Store) {
    let nothing = store.decide(order_id(1), &OrderEvent::Cancel, now()).await.unwrap();
    assert_eq!(nothing, None);
}

async fn orders_of_a_sale_come_by_pages(store: &dyn Store) {
    let elsewhere: SaleId = "other".parse().unwrap();
    let numbered = |n: u16| {
        let mut made = claim(1, &[u32::from(n) + 1]);
        let mut bytes = [7; 16];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        made.order = Uuid::from_bytes(bytes).into();
        made
    };
    let many = u16::try_from(ORDERS_PAGE_MAX).unwrap() + 3;
    let batch: Vec<Intake> = (0..many).map(|n| Intake::Claimed(numbered(n))).collect();
    for part in batch.chunks(256) {
        place(store, part).await;
    }
    let mut foreign = claim(9, &[1]);
    foreign.sale = elsewhere.clone();
    store.place(&elsewhere, &[Intake::Claimed(foreign)], &[], now()).await.unwrap();
    let first = store.orders(&sale(), None).await.unwrap();
    assert_eq!(first.len(), ORDERS_PAGE_MAX);
    let rest = store.orders(&sale(), first.last().map(|order| order.id)).await.unwrap();
    assert_eq!(rest.len(), 3);
    let all: Vec<OrderRecord> = first.into_iter().chain(rest).collect();
    let expected: Vec<OrderRecord> = (0..many).map(|n| OrderRecord::placed(&numbered(n))).collect();
    assert_eq!(all, expected);
    assert_eq!(store.orders(&elsewhere, None).await.unwrap().len(), 1);
}

async fn m2_many_at_once_make_one_transition(store: &Arc<dyn Store>) {
    claimed(&**store, 1, &[4]).await;
    pay(&**store, 1, 7).await;
    let tasks: Vec<_> = (0..12)
        .map(|n| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let news = notice(7, Some(1), Outcome::Paid(price()));
                match n % 3 {
                    0 => store.notify("g", "e1", &news, now()).await.map(drop),
                    1 => store.decide(order_id(1), &OrderEvent::Notified(news), now()).await.map(drop),
                    _ => store.place(&sale(), &[Intake::Claimed(claim(1, &[4]))], &[], now()).await.map(drop),
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let paid = order(&**store, 1).await;
    assert_eq!((paid.state, paid.payments.len()), (OrderState::Paid, 1));
}

macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {
        mod on_the_model {
            use super::*;
            $(#[tokio::test] async fn $name() { super::$name(&ModelStore::default()).await; })+
        }
        mod on_sqlite {
            use super::*;
            $(#[tokio::test] async fn $name() {
                let dir = tempfile::tempdir().unwrap();
                super::$name(&sqlite(&dir)).await;
            })+
        }
        mod behind_a_circuit {
            use super::*;
            $(#[tokio::test] async fn $name() {
                super::$name(&Guarded::new(Arc::new(ModelStore::default()))).await;
            })+
        }
        #[tokio::test(flavor = "multi_thread")]
        async fn every_scenario_on_postgres() {
            let server = PrivatePostgres::start().await;
            $(
                println!("{}", stringify!($name));
                $name(&postgres(&server, stringify!($name)).await).await;
            )+
            let store: Arc<dyn Store> = Arc::new(postgres(&server, "at_once").await);
            m2_many_at_once_make_one_transition(&store).await;
        }
    };
}

pub(super) fn sqlite(dir: &tempfile::TempDir) -> SqliteStore {
    SqliteStore::new(Sqlite::open(&dir.path().join("o.db"), &[("orders", ORDERS_SQLITE)]).unwrap())
}

pub(super) async fn postgres(server: &PrivatePostgres, schema: &str) -> PostgresStore {
    let url = server.schema(schema).await;
    PostgresStore::new(connect(&url, &[("orders", ORDERS_POSTGRES)]).await.unwrap())
}

scenarios!(
    m10_a_claim_taken_in_twice_is_one_order,
    an_order_is_paid_and_committed,
    m1_a_notification_before_its_order_waits_for_it,
    m3_a_notification_that_comes_again_is_applied_once,
    m4_a_failure_after_success_stays_paid,
    m7_a_payment_that_names_another_order_goes_back,
    m13_a_unit_has_one_live_owner,
    h1_a_claim_made_anew_at_a_gate_that_forgot_it_has_the_units_of_the_later_hold,
    m5_a_reclaimed_order_owns_the_units_it_was_given,
    m5_m13_a_reclaimed_unit_that_another_owns_gives_the_money_back,
    anomalies_of_a_sale_come_by_pages,
    an_order_ends_when_its_hold_does,
    h3_an_end_that_comes_before_its_claim_is_a_tombstone,
    m11_dead_letters_are_kept_until_they_are_cleared_and_the_rest_flows,
    a_batch_is_taken_in_one_record_after_the_other,
    unsettled_orders_come_by_pages_and_overdue_ones_with_them,
    books_count_by_item_and_state,
    orders_of_a_sale_come_by_pages,
    what_is_not_there_is_not_decided,
);

#[tokio::test(flavor = "multi_thread")]
async fn m2_many_at_once_make_one_transition_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(sqlite(&dir));
    m2_many_at_once_make_one_transition(&store).await;
}
