//! The back office's side, one behaviour for every store.

use lockgate_shared::{
    clock::{Clock as _, SystemClock},
    gate::{CommitAnswer, ReclaimAnswer, ReleaseAnswer},
    store::postgres::connect,
    testing::{PrivatePostgres, eventually},
};

use super::{
    conformance::{claim, notice, now, order_id, payment_id, postgres, price, sale, sqlite},
    model::ModelStore,
    office::{Lease, Search},
    postgres::{ORDERS_POSTGRES, PostgresStore},
    *,
};
use crate::payment::{Money, Outcome, Terms};

async fn claimed(store: &dyn Store, n: u8, units: &[u32]) {
    store.place(&sale(), &[Intake::Claimed(claim(n, units))], &[], now()).await.unwrap();
}

async fn decide(store: &dyn Store, n: u8, event: OrderEvent) {
    store.decide(order_id(n), &event, now()).await.unwrap().unwrap();
}

/// Order `n` is paid by the attempt of the same number.
async fn paid(store: &dyn Store, n: u8) {
    decide(store, n, OrderEvent::Pay { payment: payment_id(n), terms: Terms::default() }).await;
    decide(store, n, OrderEvent::Notified(notice(n, None, Outcome::Paid(price())))).await;
}

async fn feed(store: &dyn Store, after: u64, limit: usize) -> (Vec<(ClaimId, OrderState)>, u64) {
    let found = store.changes(&sale(), after, limit).await.unwrap();
    assert!(found.changes.windows(2).all(|pair| pair[0].position < pair[1].position));
    let end = found.changes.last().map_or(after, |change| change.position);
    assert!(end <= found.last || found.changes.is_empty());
    (found.changes.iter().map(|change| (change.order.id, change.state)).collect(), end)
}

async fn changes_come_once_in_their_order_and_by_pages(store: &dyn Store) {
    assert_eq!(store.changes(&sale(), 0, 10).await.unwrap(), office::Changes::default());
    for n in 1..=4 {
        claimed(store, n, &[u32::from(n)]).await;
    }
    paid(store, 2).await;
    paid(store, 1).await;
    decide(store, 3, OrderEvent::Cancel).await;
    decide(store, 2, OrderEvent::Commit(CommitAnswer::Released)).await;
    let all = [
        (order_id(2), OrderState::Paid),
        (order_id(1), OrderState::Paid),
        (order_id(2), OrderState::RefundDue),
    ];
    let (first, end) = feed(store, 0, 2).await;
    assert_eq!(first, all[..2]);
    let (rest, end) = feed(store, end, 2).await;
    assert_eq!(rest, all[2..]);
    assert_eq!(feed(store, end, 2).await, (vec![], end), "and no more");
    // What is repeated is no change.
    decide(store, 1, OrderEvent::Notified(notice(1, None, Outcome::Paid(price())))).await;
    decide(store, 1, OrderEvent::Commit(CommitAnswer::Committed)).await;
    assert_eq!(feed(store, end, 2).await, (vec![], end));
    decide(store, 2, OrderEvent::Refunded { payment: payment_id(2) }).await;
    let (later, _) = feed(store, end, 9).await;
    assert_eq!(later, [(order_id(2), OrderState::Refunded)]);
    assert_eq!(feed(store, 0, 9).await.0.len(), 4, "the same from the beginning");
    let other = store.changes(&"other".parse().unwrap(), 0, 10).await.unwrap();
    assert_eq!(other, office::Changes::default());
    let change = &store.changes(&sale(), 0, 1).await.unwrap().changes[0];
    assert_eq!((&change.units[..], change.at, change.order.state), (&[2][..], now(), OrderState::Refunded));
}

async fn orders_paid_as_they_are_placed_stand_in_the_feed(store: &dyn Store) {
    let news = notice(7, Some(1), Outcome::Paid(price()));
    store.notify("g", "e1", &news, now()).await.unwrap();
    claimed(store, 1, &[4]).await;
    assert_eq!(feed(store, 0, 9).await.0, [(order_id(1), OrderState::Paid)]);
}

/// Its units are another's: the money goes back, and at no moment the order is paid.
async fn a_reclaim_that_another_owner_undoes_is_never_told_as_paid(store: &dyn Store) {
    for (n, by_record) in [(1, false), (2, true)] {
        let unit = u32::from(n);
        claimed(store, n, &[unit]).await;
        decide(store, n, OrderEvent::Expire).await;
        decide(store, n, OrderEvent::Release(ReleaseAnswer::Released)).await;
        let news = notice(n, Some(n), Outcome::Paid(price()));
        store.notify("g", &format!("late {n}"), &news, now()).await.unwrap();
        claimed(store, n + 2, &[unit]).await;
        if by_record {
            let record = Intake::Committed(claim(n, &[unit]));
            store.place(&sale(), &[record], &[], now()).await.unwrap();
        } else {
            let answer = ReclaimAnswer::Reclaimed { units: vec![unit] };
            decide(store, n, OrderEvent::Reclaim(answer)).await;
        }
        decide(store, n, OrderEvent::Refunded { payment: payment_id(n) }).await;
    }
    let states = [OrderState::RefundDue, OrderState::Refunded];
    let all: Vec<_> = [1, 2].iter().flat_map(|n| states.map(|state| (order_id(*n), state))).collect();
    assert_eq!(feed(store, 0, 9).await.0, all);
}

async fn orders_are_found_by_what_is_asked_for(store: &dyn Store) {
    for n in 1..=4 {
        claimed(store, n, &[u32::from(n)]).await;
    }
    let mut case = claim(5, &[9]);
    case.item = "case".parse().unwrap();
    case.email = Some("Ann.B@Example.org".into());
    store.place(&sale(), &[Intake::Claimed(case.clone())], &[], now()).await.unwrap();
    paid(store, 2).await;
    decide(store, 3, OrderEvent::Expire).await;
    let ids = async |search: Search, after: Option<u8>, limit: usize| {
        let found = store.find(&sale(), &search, after.map(order_id), limit).await.unwrap();
        found.iter().map(|order| order.id.uuid().as_bytes()[0]).collect::<Vec<u8>>()
    };
    let all = Search::default;
    assert_eq!(ids(all(), None, 9).await, [1, 2, 3, 4, 5]);
    assert_eq!(ids(all(), Some(2), 2).await, [3, 4]);
    assert_eq!(ids(Search { state: Some(OrderState::AwaitingPayment), ..all() }, None, 9).await, [1, 4, 5]);
    assert_eq!(ids(Search { email: Some("ann.b@example.ORG".into()), ..all() }, None, 9).await, [5]);
    assert_eq!(ids(Search { email: Some("b@example.org".into()), ..all() }, None, 9).await, [0; 0]);
    assert_eq!(ids(Search { email: Some("4@example.org".into()), ..all() }, None, 9).await, [4]);
    assert_eq!(ids(Search { account: Some(case.account), ..all() }, None, 9).await, [5]);
    let item = |item: &str| Some(item.parse().unwrap());
    assert_eq!(ids(Search { item: item("case"), ..all() }, None, 9).await, [5]);
    let unit = |name: &str, unit| Search { item: item(name), unit: Some(unit), ..all() };
    assert_eq!(ids(unit("phone", 2), None, 9).await, [2]);
    assert_eq!(ids(unit("case", 2), None, 9).await, [0; 0]);
    assert_eq!(ids(unit("phone", 3), None, 9).await, [0; 0], "an order that ended owns none");
    assert_eq!(ids(Search { unit: Some(2), ..all() }, None, 9).await, [0; 0], "a unit of nothing");
    let both = Search { order: Some(order_id(2)), state: Some(OrderState::Paid), ..all() };
    assert_eq!(ids(both.clone(), None, 9).await, [2]);
    assert_eq!(ids(Search { state: Some(OrderState::Expired), ..both }, None, 9).await, [0; 0]);
    let elsewhere = store.find(&"other".parse().unwrap(), &all(), None, 9).await.unwrap();
    assert_eq!(elsewhere, []);
    let paid = store.find(&sale(), &Search { order: Some(order_id(2)), ..all() }, None, 1).await.unwrap();
    assert_eq!(paid[0].payments.len(), 1, "with its payments");
}

async fn anomalies_are_listed_by_sale(store: &dyn Store) {
    claimed(store, 1, &[4]).await;
    decide(store, 1, OrderEvent::Pay { payment: payment_id(1), terms: Terms::default() }).await;
    let wrong = Outcome::Paid(Money { amount: 1, currency: "EUR".into() });
    decide(store, 1, OrderEvent::Notified(notice(1, None, wrong))).await;
    let found = store.anomalies(&sale(), None).await.unwrap();
    let kinds: Vec<_> = found.iter().map(|one| (one.order, one.payment, one.kind.as_str())).collect();
    assert_eq!(kinds, [(order_id(1), Some(payment_id(1)), "wrong_amount")]);
    let lease = store.lease("l", "a", 60_000, now()).await.unwrap().unwrap();
    let anomaly = Anomaly { payment: None, kind: "repaired_x", detail: "done".into() };
    assert!(store.note(lease, &sale(), order_id(9), &anomaly, now()).await.unwrap());
    let later = store.anomalies(&sale(), Some(found[0].number)).await.unwrap();
    assert_eq!(later.len(), 1, "also of a claim that has no order");
    assert_eq!(
        (later[0].order, later[0].kind.as_str(), later[0].found_at),
        (order_id(9), "repaired_x", now())
    );
    assert_eq!(store.anomalies(&"other".parse().unwrap(), None).await.unwrap(), []);
}

async fn a_lease_has_one_holder_and_what_an_older_one_writes_is_refused(store: &dyn Store) {
    let at = SystemClock.now();
    let first = store.lease("l", "a", 60_000, at).await.unwrap().unwrap();
    assert_eq!(store.lease("l", "b", 60_000, at).await.unwrap(), None);
    assert_eq!(store.lease("l", "a", 60_000, at).await.unwrap(), Some(first), "kept by its holder");
    assert!(store.lease("m", "b", 60_000, at).await.unwrap().is_some(), "another lease is another's");
    assert!(store.keep(first, &sale(), "1", at).await.unwrap());
    assert!(store.lease("l", "b", 0, at).await.unwrap().is_none(), "only the holder gives it back");
    store.lease("l", "a", 0, at).await.unwrap();
    let second = store.lease("l", "b", 5, SystemClock.now()).await.unwrap().unwrap();
    assert!(second.fence > first.fence);
    let anomaly = Anomaly { payment: None, kind: "x", detail: String::new() };
    assert!(!store.keep(first, &sale(), "old", at).await.unwrap());
    assert!(!store.note(first, &sale(), order_id(1), &anomaly, at).await.unwrap());
    assert_eq!(store.anomalies(&sale(), None).await.unwrap(), []);
    assert_eq!(store.kept(&sale()).await.unwrap().unwrap().text, "1");
    let mut third: Option<Lease> = None;
    eventually("a lease that ran out goes to the next", 10, async || {
        third = store.lease("l", "c", 60_000, SystemClock.now()).await.unwrap();
        third.is_some()
    })
    .await;
    assert!(third.unwrap().fence > second.fence);
    assert!(store.keep(third.unwrap(), &sale(), "2", at).await.unwrap());
    let kept = store.kept(&sale()).await.unwrap().unwrap();
    assert_eq!((kept.text.as_str(), kept.fence), ("2", third.unwrap().fence));
    assert_eq!(store.kept(&"other".parse().unwrap()).await.unwrap(), None);
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
                super::$name(&Guarded::new(std::sync::Arc::new(ModelStore::default()))).await;
            })+
        }
        #[tokio::test(flavor = "multi_thread")]
        async fn every_office_scenario_on_postgres() {
            let server = PrivatePostgres::start().await;
            $(
                println!("{}", stringify!($name));
                $name(&postgres(&server, stringify!($name)).await).await;
            )+
        }
    };
}

scenarios!(
    changes_come_once_in_their_order_and_by_pages,
    orders_paid_as_they_are_placed_stand_in_the_feed,
    a_reclaim_that_another_owner_undoes_is_never_told_as_paid,
    orders_are_found_by_what_is_asked_for,
    anomalies_are_listed_by_sale,
    a_lease_has_one_holder_and_what_an_older_one_writes_is_refused,
    money_that_no_order_came_for_is_listed_oldest_first_and_by_pages,
);

async fn money_that_no_order_came_for_is_listed_oldest_first_and_by_pages(store: &dyn Store) {
    let at = |second| now().plus_seconds(second);
    assert_eq!(store.parked(at(0), None).await.unwrap(), office::Parked::default());
    let tell = async |event: &str, n: u8, outcome: Outcome, second| {
        let told = store.notify("simulated", event, &notice(n, Some(n), outcome), at(second)).await.unwrap();
        assert_eq!(told, Notified::Parked);
    };
    tell("b", 1, Outcome::Paid(price()), 5).await;
    tell("a", 2, Outcome::Paid(price()), 5).await;
    tell("c", 3, Outcome::RefundFailed, 1).await;
    tell("d", 4, Outcome::Failed, 1).await;
    tell("e", 5, Outcome::Unpayable, 1).await;
    let events = async |before, after: Option<&office::ParkedPlace>| {
        let found = store.parked(before, after).await.unwrap();
        let page: Vec<_> = found.notices.iter().map(|one| one.place.2.clone()).collect();
        (found.total, page, found.notices)
    };
    let (total, page, notices) = events(at(6), None).await;
    assert_eq!((total, page), (3, ["c", "a", "b"].map(str::to_owned).to_vec()), "money only");
    assert_eq!(notices[2].notice, notice(1, Some(1), Outcome::Paid(price())));
    assert_eq!(notices[2].place, (at(5), "simulated".to_owned(), "b".to_owned()));
    assert_eq!(events(at(5), None).await.1, ["c"], "what came before that moment");
    let (total, rest, _) = events(at(6), Some(&notices[0].place)).await;
    assert_eq!((total, rest), (3, vec!["a".to_owned(), "b".to_owned()]));
    // Its order comes after all.
    claimed(store, 2, &[2]).await;
    assert_eq!(events(at(6), None).await.1, ["c", "b"]);
    // What is settled by hand waits no longer, and pays no order that comes later.
    assert_eq!(store.strike_off(payment_id(1)).await.unwrap(), 1);
    assert_eq!(store.strike_off(payment_id(1)).await.unwrap(), 0);
    assert_eq!(events(at(6), None).await.1, ["c"]);
    claimed(store, 1, &[1]).await;
    assert_eq!(store.order(order_id(1)).await.unwrap().unwrap().payments, []);
    for n in 0..office::PARKED_PAGE_MAX {
        tell(&format!("many-{n:03}"), 9, Outcome::Paid(price()), 9).await;
    }
    let (total, page, notices) = events(at(10), None).await;
    assert_eq!((total, page.len()), (office::PARKED_PAGE_MAX as u64 + 1, office::PARKED_PAGE_MAX));
    assert_eq!(events(at(10), Some(&notices.last().unwrap().place)).await.1, ["many-199"]);
}

/// The trap of a feed over concurrent transactions: the one that numbered its row first commits last.
#[tokio::test(flavor = "multi_thread")]
async fn m12_a_change_that_commits_late_is_not_stepped_over() {
    let server = PrivatePostgres::start().await;
    let url = server.schema("late").await;
    let store = PostgresStore::new(connect(&url, &[("orders", ORDERS_POSTGRES)]).await.unwrap());
    for n in 1..=3 {
        claimed(&store, n, &[u32::from(n)]).await;
    }
    let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    let open = client.transaction().await.unwrap();
    open.execute("UPDATE orders SET state = 'paid' WHERE id = $1", &[&order_id(1).uuid()]).await.unwrap();
    paid(&store, 2).await;
    let (seen, end) = feed(&store, 0, 9).await;
    assert_eq!(seen, [(order_id(2), OrderState::Paid)], "an open transaction holds nobody back");
    paid(&store, 3).await;
    open.commit().await.unwrap();
    let (late, end) = feed(&store, end, 9).await;
    let both = std::collections::BTreeSet::from_iter(late.iter().map(|(id, _)| *id));
    assert_eq!(both, [order_id(1), order_id(3)].into(), "it comes after the cursor of whoever read before");
    assert_eq!(feed(&store, end, 9).await.0, []);
    // Whoever begins anew sees all of it, in the order in which others saw it.
    let (all, _) = feed(&store, 0, 9).await;
    assert_eq!(all, [seen, late].concat());
    driver.abort();
}

/// Readers who number at the same moment, while writers go on: every reader sees every change once, in one order.
#[tokio::test(flavor = "multi_thread")]
async fn readers_at_once_see_one_order_of_all_changes() {
    let server = PrivatePostgres::start().await;
    // A database whose own default would have them see the moment at which they began to wait.
    let url =
        format!("{}%20-c%20default_transaction_isolation%3Dserializable", server.schema("readers").await);
    let pool = connect(&url, &[("orders", ORDERS_POSTGRES)]).await.unwrap();
    let store = std::sync::Arc::new(PostgresStore::new(pool));
    const ORDERS: u8 = 24;
    for n in 1..=ORDERS {
        claimed(&*store, n, &[u32::from(n)]).await;
    }
    let writers = (1..=ORDERS).map(|n| {
        let store = std::sync::Arc::clone(&store);
        tokio::spawn(async move { paid(&*store, n).await })
    });
    let writers: Vec<_> = writers.collect();
    let readers: Vec<_> = (1..=4)
        .map(|limit| {
            let store = std::sync::Arc::clone(&store);
            tokio::spawn(async move {
                let (mut seen, mut after) = (Vec::new(), 0);
                while seen.len() < usize::from(ORDERS) {
                    let (page, end) = feed(&*store, after, limit).await;
                    seen.extend(page);
                    after = end;
                    tokio::task::yield_now().await;
                }
                seen
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let mut orders = Vec::new();
    for reader in readers {
        orders.push(tokio::time::timeout(std::time::Duration::from_secs(20), reader).await.unwrap().unwrap());
    }
    let distinct = std::collections::BTreeSet::from_iter(orders[0].iter().map(|(id, _)| *id));
    assert_eq!(distinct.len(), usize::from(ORDERS));
    assert!(orders.iter().all(|seen| *seen == orders[0]), "one order for all");
}
