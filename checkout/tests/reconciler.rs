//! The reconciler on both back ends: differences are planted, named, repaired where that is safe, and left alone where
//! it is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::{collections::BTreeMap, sync::Arc};

use http::StatusCode;
use lockgate_checkout::{
    order::{OrderEvent, OrderState},
    payment::{Notice, Outcome, PaymentId, Terms},
    rebuilder,
    reconciler::{Reconciler, Round},
    settler::settle,
};
use lockgate_shared::{
    gate::{CommitAnswer, HoldState, ReleaseAnswer},
    ids::ClaimId,
    store::{redis::RedisLink, sqlite::Sqlite},
    testing::{PrivatePostgres, PrivateRedis},
};
use serde_json::{Value, json};
use support::{Backends, Plan, Shop};
use tempfile::TempDir;
use uuid::Uuid;

/// A shop, and ways behind its back.
struct Scene {
    shop: Shop,
    back: Back,
    _dir: TempDir,
}

#[expect(clippy::large_enum_variant, reason = "one for each test")]
enum Back {
    Sqlite(Sqlite),
    ScaledOut { redis: PrivateRedis, postgres: PrivatePostgres, link: RedisLink },
}

fn by_hand() -> Plan {
    Plan { loops: false, webhooks: false, sweeps: false, stock: 20, ..Plan::default() }
}

async fn on_sqlite() -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &by_hand()).await;
    let db = Sqlite::open(&dir.path().join("shop.db"), &[]).unwrap();
    Scene { shop, back: Back::Sqlite(db), _dir: dir }
}

async fn scaled_out() -> Scene {
    let (redis, postgres) = tokio::join!(PrivateRedis::start(), PrivatePostgres::start());
    let dir = tempfile::tempdir().unwrap();
    let backends = Backends::scaled_out(&redis, postgres.url()).await;
    let shop = Shop::over(dir.path(), &by_hand(), support::clock(), backends, None).await;
    let link = RedisLink::connect(redis.url(), "t:").await.unwrap();
    Scene { shop, back: Back::ScaledOut { redis, postgres, link }, _dir: dir }
}

impl Scene {
    /// Changes the orders' tables behind everybody's back.
    async fn orders(&self, sql: &str, order: ClaimId) {
        match &self.back {
            Back::Sqlite(db) => {
                let sql = sql.replace("{order}", &format!("X'{}'", order.uuid().simple()));
                db.write("test", move |db| db.execute_batch(&sql)).await.unwrap();
            }
            Back::ScaledOut { postgres, .. } => {
                let sql = sql.replace("{order}", &format!("'{order}'"));
                let (client, connection) =
                    tokio_postgres::connect(postgres.url(), tokio_postgres::NoTls).await.unwrap();
                let driver = tokio::spawn(connection);
                client.batch_execute(&sql).await.unwrap();
                driver.abort();
            }
        }
    }

    /// The gate's store forgets a hold.
    async fn forget(&self, claim: ClaimId) {
        match &self.back {
            Back::Sqlite(db) => {
                let sql = format!("DELETE FROM stock_holds WHERE claim = '{claim}'");
                db.write("test", move |db| db.execute_batch(&sql)).await.unwrap();
            }
            Back::ScaledOut { link, redis: _redis, .. } => {
                let mut command = redis::cmd("HDEL");
                command.arg("t:{demo}:holds").arg(claim.to_string());
                link.command::<i64>("test", &command).await.unwrap();
            }
        }
    }

    async fn claim(&self, n: u16) -> ClaimId {
        self.shop.buy(n, "k", 1).await.0.parse().unwrap()
    }

    async fn take_in(&self) {
        while lockgate_checkout::intake::take_batch(&self.shop.app, &self.shop.sale).await.unwrap() > 0 {}
    }

    async fn decide(&self, order: ClaimId, events: &[OrderEvent]) {
        for event in events {
            self.shop.store.decide(order, event, self.shop.now()).await.unwrap().unwrap();
        }
    }

    /// Everything the settler would do.
    async fn settle(&self) {
        for order in self.shop.store.unsettled(None, self.shop.now()).await.unwrap() {
            settle(&self.shop.app, order).await.unwrap();
        }
    }

    async fn hold(&self, claim: ClaimId) -> Option<HoldState> {
        self.shop.gate.hold(&self.shop.sale, claim).await.unwrap().map(|hold| hold.state)
    }

    async fn state(&self, order: ClaimId) -> Option<OrderState> {
        self.shop.store.order(order).await.unwrap().map(|order| order.state)
    }

    /// The repairs that are written down, by kind.
    async fn repairs(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for anomaly in self.shop.store.anomalies(&self.shop.sale, None).await.unwrap() {
            *kinds.entry(anomaly.kind).or_default() += 1;
        }
        kinds
    }

    /// The differences that stand, as the books show them.
    async fn standing(&self) -> Vec<String> {
        let books = self.shop.books().await;
        let listed = books["reconciled"]["listed"].as_array().unwrap_or_else(|| panic!("{books}")).iter();
        let mut kinds: Vec<String> = listed.map(|one| one["kind"].as_str().unwrap().to_owned()).collect();
        kinds.sort();
        kinds
    }
}

fn paid(order: ClaimId) -> [OrderEvent; 2] {
    let payment = attempt(order);
    let money = lockgate_checkout::payment::Money { amount: 49_900, currency: "EUR".into() };
    let notice = Notice { payment, order: None, outcome: Outcome::Paid(money) };
    [OrderEvent::Pay { payment, terms: Terms::default() }, OrderEvent::Notified(notice)]
}

fn attempt(order: ClaimId) -> PaymentId {
    PaymentId::from(Uuid::from_u128(order.uuid().as_u128() + 1))
}

async fn rounds(reconciler: &mut Reconciler, count: usize) -> Round {
    let mut last = Round::default();
    for _ in 0..count {
        last = reconciler.round().await;
        assert!(last.is_ours);
    }
    last
}

/// Six differences that are repaired, and five that are only told.
#[expect(clippy::too_many_lines, reason = "one story")]
async fn differences_are_named_repaired_or_left_alone(scene: &Scene) {
    let shop = &scene.shop;
    let mut reconciler = Reconciler::new(Arc::clone(&shop.app), "a");
    let mut claims = Vec::new();
    for n in 1..=9 {
        claims.push(scene.claim(n).await);
    }
    scene.take_in().await;
    let [uncommitted, unreleased, gone, unheard, sold_unpaid, no_units, moneyless, unsold, even] = claims[..]
    else {
        panic!()
    };
    let commit = OrderEvent::Commit(CommitAnswer::Committed);
    let committed = async |order: ClaimId| {
        scene.decide(order, &paid(order)).await;
        shop.gate.commit(&shop.sale, order).await.unwrap();
        scene.decide(order, std::slice::from_ref(&commit)).await;
    };
    committed(even).await;
    rounds(&mut reconciler, 3).await;
    assert_eq!((scene.standing().await, scene.repairs().await.len()), (vec![], 0));

    // Repairable.
    scene.decide(uncommitted, &paid(uncommitted)).await;
    scene.decide(uncommitted, std::slice::from_ref(&commit)).await;
    let release = OrderEvent::Release(ReleaseAnswer::Released);
    scene.decide(unreleased, &[OrderEvent::Expire, release]).await;
    shop.gate.release(&shop.sale, gone).await.unwrap();
    let orderless = scene.claim(20).await;
    let access = shop.buy(4, "k", 1).await.1;
    let page = shop.pay(&unheard.to_string(), &access).await;
    assert_eq!(shop.finish(&page, "paid").await.status, StatusCode::SEE_OTHER);
    // For people.
    shop.gate.commit(&shop.sale, sold_unpaid).await.unwrap();
    committed(no_units).await;
    scene.orders("UPDATE orders SET units = '19' WHERE id = {order}", no_units).await;
    committed(moneyless).await;
    scene.orders("UPDATE payments SET paid_amount = 49000 WHERE order_id = {order}", moneyless).await;
    committed(unsold).await;
    scene.orders("UPDATE orders SET state = 'expired' WHERE id = {order}", unsold).await;

    // Two rounds are not enough for anything; what comes and goes never counts.
    rounds(&mut reconciler, 2).await;
    assert_eq!((scene.standing().await, scene.repairs().await.len()), (vec![], 0));
    shop.clock.advance_ms(61_000);
    let third = rounds(&mut reconciler, 1).await;
    assert_eq!(third.repaired, 4, "the open attempt is found later: {third:?}");
    rounds(&mut reconciler, 3).await;
    let repaired = scene.repairs().await;
    let expected = [
        "repaired_commit_lost",
        "repaired_hold_gone",
        "repaired_notice_lost",
        "repaired_order_missing",
        "repaired_release_lost",
    ];
    assert_eq!(repaired.into_iter().collect::<Vec<_>>(), expected.map(|kind| (kind.to_owned(), 1)));
    scene.settle().await;
    rounds(&mut reconciler, 3).await;
    assert_eq!(scene.hold(uncommitted).await, Some(HoldState::Committed));
    assert_eq!(scene.hold(unreleased).await, Some(HoldState::Released));
    assert_eq!(scene.state(gone).await, Some(OrderState::Expired));
    assert_eq!(scene.state(orderless).await, Some(OrderState::AwaitingPayment));
    assert_eq!(scene.state(unheard).await, Some(OrderState::Paid));
    assert_eq!(scene.hold(unheard).await, Some(HoldState::Committed));

    let told = ["money_without_sale", "other_units", "paid_without_money", "sold_unpaid"];
    assert_eq!(scene.standing().await, told);
    assert_eq!(scene.state(sold_unpaid).await, Some(OrderState::AwaitingPayment));
    assert_eq!(scene.hold(sold_unpaid).await, Some(HoldState::Committed));
    assert_eq!(scene.hold(no_units).await, Some(HoldState::Committed));
    let books = shop.books().await;
    let phone = &books["reconciled"]["items"][0];
    assert_eq!((&phone["item"], &phone["count"]), (&json!("phone"), &json!(4)), "{books}");
    assert_eq!(phone["money"], json!(900 + 49_900), "{books}");
    let report = shop.get("/operator/v1/sales/demo/settlement", support::VIEWER_KEY).await.json();
    assert!(report["differences"].as_u64().unwrap() >= 4, "{report}");
    let listed: Vec<&Value> = report["reconciled"]["listed"].as_array().unwrap().iter().collect();
    assert!(listed.iter().all(|one| one["is_repaired"] == false), "{listed:?}");
}

async fn a_hold_that_the_gate_lost_has_the_stock_rebuilt(scene: &Scene) {
    let shop = &scene.shop;
    let mut reconciler = Reconciler::new(Arc::clone(&shop.app), "a");
    let (lost, other) = (scene.claim(1).await, scene.claim(2).await);
    scene.take_in().await;
    rounds(&mut reconciler, 1).await;
    scene.forget(lost).await;
    // Nothing that counts has changed, so it is seen with the next comparison of everything.
    shop.clock.advance_ms(301_000);
    rounds(&mut reconciler, 3).await;
    // Redis, whose gate counts its keys, is found out by the gate itself, which then answers nothing but "frozen".
    let by_itself = matches!(scene.back, Back::ScaledOut { .. });
    assert_eq!(scene.repairs().await.contains_key("repaired_hold_lost"), !by_itself);
    let recovery = rebuilder::recover(&shop.app, &shop.sale, None, "a test").await.unwrap();
    assert_eq!(recovery.figures.as_ref().map(|figures| figures.holds_made), Some(1), "{recovery:?}");
    rounds(&mut reconciler, 3).await;
    assert_eq!(scene.standing().await, [""; 0]);
    assert_eq!(scene.hold(lost).await, Some(HoldState::Held));
    assert_eq!(scene.hold(other).await, Some(HoldState::Held));
}

async fn a_difference_is_looked_at_until_it_is_cleared_up(scene: &Scene) {
    let shop = &scene.shop;
    let mut reconciler = Reconciler::new(Arc::clone(&shop.app), "a");
    let order = scene.claim(1).await;
    scene.take_in().await;
    scene.decide(order, &paid(order)).await;
    shop.gate.commit(&shop.sale, order).await.unwrap();
    scene.decide(order, &[OrderEvent::Commit(CommitAnswer::Committed)]).await;
    scene.orders("UPDATE payments SET paid_amount = 49000 WHERE order_id = {order}", order).await;
    shop.clock.advance_ms(3 * 3_600_000);
    rounds(&mut reconciler, 3).await;
    assert_eq!(scene.standing().await, ["paid_without_money"]);
    // Long after the end: at that sale, and not in every round.
    shop.clock.advance_ms(48 * 3_600_000);
    let looked = rounds(&mut reconciler, 1).await;
    assert_eq!((looked.compared, looked.standing), (1, 1), "{looked:?}");
    assert_eq!(rounds(&mut reconciler, 1).await, Round { is_ours: true, ..Round::default() });
    scene.orders("UPDATE payments SET paid_amount = 49900 WHERE order_id = {order}", order).await;
    shop.clock.advance_ms(301_000);
    rounds(&mut reconciler, 1).await;
    assert_eq!(scene.standing().await, [""; 0]);
    let report = shop.get("/operator/v1/sales/demo/settlement", support::VIEWER_KEY).await.json();
    assert_eq!((&report["status"], &report["differences"]), (&json!("final"), &json!(0)), "{report:#}");
    shop.clock.advance_ms(301_000);
    assert_eq!(rounds(&mut reconciler, 1).await.compared, 0, "nothing is open any more");
    // Another one that begins anew says nothing it does not know.
    scene.decide(order, &[OrderEvent::Refund { why: "a test".into() }]).await;
    shop.clock.advance_ms(301_000);
    let mut second = Reconciler::new(Arc::clone(&shop.app), "a");
    assert_eq!(rounds(&mut second, 1).await.compared, 1, "orders changed");
    let found = shop.books().await["reconciled"].clone();
    assert_eq!((&found["differences"], &found["unconfirmed"]), (&json!(0), &json!(1)), "{found}");
}

async fn what_was_sold_and_never_paid_is_cleared_by_a_rebuild(scene: &Scene) {
    let shop = &scene.shop;
    let mut reconciler = Reconciler::new(Arc::clone(&shop.app), "a");
    let order = scene.claim(1).await;
    scene.take_in().await;
    shop.gate.commit(&shop.sale, order).await.unwrap();
    scene.decide(order, &[OrderEvent::Expire]).await;
    scene.settle().await;
    assert_eq!(scene.repairs().await.keys().collect::<Vec<_>>(), ["ended_but_committed"]);
    shop.clock.advance_ms(3 * 3_600_000);
    rounds(&mut reconciler, 3).await;
    assert_eq!(scene.standing().await, ["sold_unpaid"]);
    assert_eq!(shop.books().await["balanced"], false);
    let recovery = rebuilder::recover(&shop.app, &shop.sale, None, "a test").await.unwrap();
    assert_eq!(recovery.figures.map(|figures| figures.given_back), Some(1));
    assert_eq!(scene.hold(order).await, Some(HoldState::Released));
    shop.clock.advance_ms(1_000);
    rounds(&mut reconciler, 1).await;
    let phone = shop.phone_books().await;
    assert_eq!((&phone["sold"], &phone["held"], &phone["available"]), (&json!(0), &json!(0), &json!(20)));
    let report = shop.get("/operator/v1/sales/demo/settlement", support::VIEWER_KEY).await.json();
    assert_eq!((&report["status"], &report["differences"]), (&json!("final"), &json!(0)), "{report:#}");
}

async fn one_reconciles_at_a_time_and_a_killed_one_is_replaced(scene: &Scene) {
    let shop = &scene.shop;
    let mut first = Reconciler::new(Arc::clone(&shop.app), "a");
    let mut second = Reconciler::new(Arc::clone(&shop.app), "b");
    let begun = first.round().await;
    assert_eq!((begun.is_ours, begun.compared), (true, 2));
    assert_eq!(second.round().await, Round::default());
    let quiet = first.round().await;
    assert_eq!((quiet.compared, quiet.unchanged), (0, 2), "nothing changed, nothing is read");
    scene.claim(1).await;
    assert_eq!(first.round().await.compared, 1, "what changed is");
    // The first is killed, and its lease runs out.
    shop.clock.advance_ms(60_001);
    scene.orders("UPDATE leases SET until = 1", ClaimId::from(Uuid::nil())).await;
    assert!(second.round().await.is_ours);
    assert_eq!(first.round().await, Round::default(), "back from the dead it does nothing");
    // A stopped one gives it back at once.
    second.give_up().await;
    assert!(first.round().await.is_ours);
}

async fn all(scene: Scene) {
    differences_are_named_repaired_or_left_alone(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_are_named_repaired_or_left_alone_on_sqlite() {
    all(on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_are_named_repaired_or_left_alone_scaled_out() {
    all(scaled_out().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_a_hold_that_the_gate_lost_has_the_stock_rebuilt_on_sqlite() {
    a_hold_that_the_gate_lost_has_the_stock_rebuilt(&on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_a_hold_that_the_gate_lost_has_the_stock_rebuilt_scaled_out() {
    a_hold_that_the_gate_lost_has_the_stock_rebuilt(&scaled_out().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_a_difference_is_looked_at_until_it_is_cleared_up_on_sqlite() {
    a_difference_is_looked_at_until_it_is_cleared_up(&on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_a_difference_is_looked_at_until_it_is_cleared_up_scaled_out() {
    a_difference_is_looked_at_until_it_is_cleared_up(&scaled_out().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_what_was_sold_and_never_paid_is_cleared_by_a_rebuild_on_sqlite() {
    what_was_sold_and_never_paid_is_cleared_by_a_rebuild(&on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_what_was_sold_and_never_paid_is_cleared_by_a_rebuild_scaled_out() {
    what_was_sold_and_never_paid_is_cleared_by_a_rebuild(&scaled_out().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_reconciles_at_a_time_and_a_killed_one_is_replaced_on_sqlite() {
    one_reconciles_at_a_time_and_a_killed_one_is_replaced(&on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_reconciles_at_a_time_and_a_killed_one_is_replaced_scaled_out() {
    one_reconciles_at_a_time_and_a_killed_one_is_replaced(&scaled_out().await).await;
}
