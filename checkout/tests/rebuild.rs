//! A stock that is lost, wholly or in part, is put together again from what is left: a real redis-server, real orders.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::{path::Path, sync::Arc};

use http::StatusCode;
use lockgate_checkout::{SqliteStore, rebuilder};
use lockgate_shared::{
    events::{EventLog, redis::RedisEventLog},
    gate::{FreezeAnswer, FreezeRequest, HoldState, StageAnswer, StageRequest},
    store::redis::RedisLink,
    testing::{PrivateRedis, eventually},
};
use lockgate_stock_gate::RedisStore;
use redis::cmd;
use serde_json::Value;
use support::{Ask, Backends, OPERATOR_KEY, Plan, Shop};
use uuid::Uuid;

struct Scene {
    shop: Shop,
    link: RedisLink,
    _redis: PrivateRedis,
    _dir: tempfile::TempDir,
}

async fn shop(dir: &Path, link: &RedisLink, plan: &Plan) -> Shop {
    let db = Shop::database(dir);
    let stock = Arc::new(RedisStore::new(link.clone()));
    let events: Arc<dyn EventLog> = Arc::new(RedisEventLog::new(link.clone()));
    let orders = Arc::new(SqliteStore::new(db));
    let backends = Backends { stock, events, orders };
    Shop::over(dir, plan, support::clock(), backends, None).await
}

async fn scene(plan: Plan) -> Scene {
    let (dir, redis) = (tempfile::tempdir().unwrap(), PrivateRedis::start().await);
    let link = RedisLink::connect(redis.url(), "t:").await.unwrap();
    Scene { shop: shop(dir.path(), &link, &plan).await, link, _redis: redis, _dir: dir }
}

impl Scene {
    async fn say(&self, words: &[&str]) -> redis::Value {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        self.link.command("test", &command).await.unwrap()
    }

    async fn lose(&self, names: &[&str]) {
        for name in names {
            self.say(&["DEL", &format!("t:{{demo}}:{name}")]).await;
        }
    }

    /// Account 1 has paid for two, 2 and 3 hold one each, 4 held one and gave it back.
    async fn running(&self) -> Vec<(String, String)> {
        let shop = &self.shop;
        let paid = shop.buy(1, "k", 2).await;
        shop.finish(&shop.pay(&paid.0, &paid.1).await, "paid").await;
        let mut all = vec![paid];
        for n in 2..=4 {
            all.push(shop.buy(n, "k", 1).await);
        }
        let (gone, access) = &all[3];
        shop.reaches(gone, access, "awaiting_payment").await;
        shop.post(&format!("/orders/{gone}/cancel"), access).await;
        shop.reaches(gone, access, "cancelled").await;
        for ((order, access), state) in all.iter().zip(["paid", "awaiting_payment", "awaiting_payment"]) {
            shop.reaches(order, access, state).await;
        }
        eventually("2 are sold, 2 are held", 10, async || {
            let line = shop.books().await["items"][0].clone();
            (&line["held"], &line["sold"]) == (&2.into(), &2.into())
        })
        .await;
        all
    }

    /// Waits until the balanced books say so.
    async fn sold(&self, what: &str, available: u32, held: u32, sold: u32) {
        eventually(what, 10, async || {
            let books = self.shop.books().await;
            let line = &books["items"][0];
            books["balanced"] == true
                && (&line["available"], &line["held"], &line["sold"])
                    == (&available.into(), &held.into(), &sold.into())
        })
        .await;
    }

    /// Claims until it is won; nothing but "closed for a moment" is said before.
    async fn won_after_a_moment(&self, n: u16, key: &str) -> Value {
        let mut refusals = 0;
        loop {
            let answer = self.shop.checkout(n, key, 1).await;
            if answer.status == StatusCode::ACCEPTED {
                assert!(refusals > 0, "the loss was noticed");
                return answer.json();
            }
            answer.is(503, "stock_unavailable");
            refusals += 1;
            assert!(refusals < 500, "not open again: {}", answer.text);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn recover(&self) -> Value {
        let ask = Ask::post("/operator/v1/sales/demo/recover").bearer(OPERATOR_KEY);
        let answer = self.shop.send(ask.build()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        answer.json()
    }

    /// What was bought, held and given back before is what it was, and the sale sells the rest, once.
    async fn goes_on(&self, orders: &[(String, String)]) {
        let shop = &self.shop;
        for ((order, access), state) in
            orders.iter().zip(["paid", "awaiting_payment", "awaiting_payment", "cancelled"])
        {
            assert_eq!(shop.state(order, access).await, state);
        }
        // A repeated request finds its first answer.
        for (n, (order, access)) in (1..).zip(orders) {
            let again = shop.checkout(n, "k", if n == 1 { 2 } else { 1 }).await;
            assert_eq!((&again.text_of("order_id"), &again.text_of("access_key")), (order, access));
        }
        // What is held is paid, and what is left is sold.
        let (order, access) = &orders[1];
        shop.finish(&shop.pay(order, access).await, "paid").await;
        shop.reaches(order, access, "paid").await;
        let mut n = 100;
        while shop.checkout(n, "rest", 1).await.status == StatusCode::ACCEPTED {
            n += 1;
            assert!(n < 120);
        }
        shop.checkout(n, "rest", 1).await.is(409, "sold_out");
        self.sold("all ten have an owner", 0, 7, 3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_everything_lost_is_closed_for_a_moment_and_rebuilt_from_the_orders() {
    let scene = scene(Plan::default()).await;
    let orders = scene.running().await;
    scene.say(&["FLUSHALL"]).await;
    scene.won_after_a_moment(5, "k").await;
    scene.sold("nothing else is different", 5, 3, 2).await;
    let sale = scene.shop.catalog.sale(&scene.shop.sale).unwrap();
    assert_eq!(sale.controls.stock_generation, 2);
    scene.goes_on(&orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_any_lost_key_is_noticed_and_made_again() {
    let scene = scene(Plan { stock: 30, ..Plan::default() }).await;
    scene.running().await;
    // A stream that is gone is made again by its readers at once; that its tail is lost shows by other signs.
    let lost: [&[&str]; 6] = [
        &["returned"],
        &["holds"],
        &["due"],
        &["accounts"],
        &["stock"],
        &["holds", "due", "accounts", "returned", "events"],
    ];
    for (n, names) in (5_u16..).zip(lost) {
        scene.lose(names).await;
        let won = scene.won_after_a_moment(n, "k").await;
        let others = u32::from(n) - 5;
        scene.sold(&format!("{names:?}, {won}"), 25 - others, 3 + others, 2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_holds_that_were_removed_by_hand_come_back_with_their_orders() {
    let scene = scene(Plan::default()).await;
    let orders = scene.running().await;
    for (order, _) in &orders[..2] {
        scene.say(&["HDEL", "t:{demo}:holds", order]).await;
    }
    scene.won_after_a_moment(5, "k").await;
    scene.sold("nothing is lost", 5, 3, 2).await;
    scene.goes_on(&orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m3_something_else_in_the_place_of_the_log_is_noticed_and_removed() {
    let scene = scene(Plan::default()).await;
    let orders = scene.running().await;
    scene.lose(&["events"]).await;
    scene.say(&["SET", "t:{demo}:events", "x"]).await;
    scene.won_after_a_moment(5, "k").await;
    scene.sold("nothing is lost", 5, 3, 2).await;
    scene.goes_on(&orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_an_older_copy_of_the_data_is_brought_up_to_date_by_the_orders() {
    let scene = scene(Plan::default()).await;
    let mut copy = Vec::new();
    let early = scene.shop.buy(9, "k", 1).await;
    scene.shop.reaches(&early.0, &early.1, "awaiting_payment").await;
    for name in ["stock", "holds", "due", "accounts", "events", "returned", "abandoned"] {
        let key = format!("t:{{demo}}:{name}");
        let bytes: Option<Vec<u8>> = scene.link.command("test", cmd("DUMP").arg(&key)).await.unwrap();
        copy.push((key, bytes));
    }
    scene.shop.post(&format!("/orders/{}/cancel", early.0), &early.1).await;
    scene.shop.reaches(&early.0, &early.1, "cancelled").await;
    let orders = scene.running().await;
    // In one moment, as a server that starts from an older file: half a copy would be noticed, and rebuilt by itself.
    let mut back = cmd("EVAL");
    back.arg(
        "for i, key in ipairs(KEYS) do
             redis.call('DEL', key)
             if ARGV[i] ~= '' then redis.call('RESTORE', key, 0, ARGV[i]) end
         end",
    );
    back.arg(copy.len()).arg(copy.iter().map(|(key, _)| key).collect::<Vec<_>>());
    back.arg(copy.iter().map(|(_, bytes)| bytes.as_deref().unwrap_or_default()).collect::<Vec<_>>());
    scene.link.command::<redis::Value>("test", &back).await.unwrap();
    let found = scene.recover().await;
    assert_eq!((&found["survived"], &found["here"]), (&1.into(), &true.into()), "{found}");
    assert_eq!(found["holds_made"], 4, "{found}");
    scene.sold("as the orders say", 6, 2, 2).await;
    scene.shop.buy(5, "k", 1).await;
    scene.goes_on(&orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_a_paid_claim_that_the_store_forgot_has_the_stock_rebuilt() {
    let scene = scene(Plan::default()).await;
    let shop = &scene.shop;
    let fresh: Vec<String> = scene.link.command("test", cmd("HGETALL").arg("t:{demo}:stock")).await.unwrap();
    let (order, access) = shop.buy(1, "k", 1).await;
    shop.reaches(&order, &access, "awaiting_payment").await;
    // In one moment the store is an old copy that adds up: nothing but the order knows of the claim.
    let mut back = cmd("EVAL");
    back.arg("redis.call('DEL', unpack(KEYS)) return redis.call('HSET', KEYS[1], unpack(ARGV))").arg(4);
    for name in ["stock", "holds", "due", "accounts"] {
        back.arg(format!("t:{{demo}}:{name}"));
    }
    back.arg(&fresh);
    scene.link.command::<i64>("test", &back).await.unwrap();
    // The unit is given to another, whose order ends before anybody could pay (M13).
    let (second, other) = shop.buy(2, "k", 1).await;
    shop.reaches(&second, &other, "cancelled").await;
    shop.finish(&shop.pay(&order, &access).await, "paid").await;
    shop.reaches(&order, &access, "paid").await;
    scene.sold("the paid unit is sold, and to the one who paid", 9, 0, 1).await;
    let hold = shop.gate.hold(&shop.sale, order.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!((hold.units, hold.state), (vec![1], HoldState::Committed));
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_claims_whose_events_were_lost_become_orders_and_m13_the_later_owner_gives_way() {
    let scene = scene(Plan { loops: false, sweeps: true, ..Plan::default() }).await;
    let shop = &scene.shop;
    let first = shop.buy(1, "k", 1).await;
    shop.buy(2, "k", 1).await;
    // The tail of the stream is lost before anybody read it.
    scene.lose(&["events"]).await;
    let found = scene.recover().await;
    assert_eq!(found["orders_made"], 2, "{found}");
    assert_eq!(shop.state(&first.0, &first.1).await, "awaiting_payment");
    scene.sold("both are held", 8, 2, 0).await;
    // After a fail-over: unit 1 is held by a third, who claimed later and has no order yet.
    let mut hold = shop.gate.hold(&shop.sale, first.0.parse().unwrap()).await.unwrap().unwrap();
    hold.claim = Uuid::from_u128(77).into();
    let record = format!(
        "held|{}|phone|1|{}|{}|{}",
        hold.account,
        hold.claimed_at.plus_seconds(1).micros(),
        hold.deadline.micros(),
        hold.memo
    );
    scene.say(&["HSET", "t:{demo}:holds", &hold.claim.to_string(), &record]).await;
    let found = scene.recover().await;
    assert_eq!(found["orders_made"], 1, "{found}");
    let third = shop.store.order(hold.claim).await.unwrap().unwrap();
    assert_eq!((third.state.as_str(), third.payments.len()), ("cancelled", 0), "before any payment exists");
    scene.sold("one owner each", 8, 2, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_nobody_has_read_count_as_orders_before_the_stock_is_rebuilt() {
    let scene = scene(Plan { loops: false, ..Plan::default() }).await;
    let (order, access) = scene.shop.buy(1, "k", 1).await;
    scene.lose(&["holds", "due", "accounts", "stock"]).await;
    let found = scene.recover().await;
    assert_eq!((&found["survived"], &found["orders"]), (&0.into(), &1.into()), "{found}");
    assert_eq!(scene.shop.state(&order, &access).await, "awaiting_payment");
    scene.sold("it is held", 9, 1, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_that_died_half_way_is_done_by_the_next_and_many_at_once_are_one() {
    let scene = scene(Plan::default()).await;
    let orders = scene.running().await;
    let (gate, sale) = (&scene.shop.gate, &scene.shop.sale);
    let request = FreezeRequest { if_generation: Some(1), why: "a test".into() };
    let FreezeAnswer::Frozen(freeze) = gate.freeze(sale, &request).await.unwrap() else { panic!() };
    let page = StageRequest {
        freeze: freeze.id,
        token: Uuid::from_u128(5),
        items: vec!["phone".parse().unwrap(), "case".parse().unwrap()],
        holds: vec![gate.holds(sale, None).await.unwrap().holds.swap_remove(0)],
        accounts: Vec::new(),
        returned: Vec::new(),
    };
    assert_eq!(gate.stage(sale, &page).await.unwrap(), StageAnswer::Staged);
    // There it ends; others find the sale frozen and do it anew, all at once.
    let app = &scene.shop.app;
    let again = || rebuilder::recover(app, sale, Some(1), "a test");
    let (a, b, c) = tokio::join!(again(), again(), again());
    let all = [a.unwrap(), b.unwrap(), c.unwrap()];
    assert!(all.iter().filter(|done| done.here).count() <= 1, "{all:?}");
    assert!(all.iter().all(|done| done.generation == 2), "{all:?}");
    assert_eq!(gate.stage(sale, &page).await.unwrap(), StageAnswer::Stale);
    scene.sold("nothing is different", 6, 2, 2).await;
    let left: Vec<String> = scene.link.command("test", cmd("KEYS").arg("*staged:*2*")).await.unwrap();
    for key in left {
        let seconds: i64 = scene.link.command("test", cmd("TTL").arg(&key)).await.unwrap();
        assert!(seconds > 0, "what was never concluded goes by itself: {key}");
    }
    scene.shop.buy(5, "k", 1).await;
    scene.goes_on(&orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sold_while_frozen_and_what_was_paid_meanwhile_is_committed_afterwards() {
    let scene = scene(Plan { loops: true, ..Plan::default() }).await;
    let shop = &scene.shop;
    let (order, access) = shop.buy(1, "k", 1).await;
    shop.reaches(&order, &access, "awaiting_payment").await;
    let page = shop.pay(&order, &access).await;
    // Nobody has been told yet, so nobody rebuilds it.
    let order_of_freeze = lockgate_stock_gate::store::FreezeOrder {
        id: Uuid::from_u128(1),
        if_generation: None,
        at_least: 0,
        why: "a test".into(),
    };
    let store = RedisStore::new(scene.link.clone());
    lockgate_stock_gate::Store::freeze(&store, &shop.sale, &order_of_freeze).await.unwrap();
    shop.finish(&page, "paid").await;
    scene.won_after_a_moment(2, "k").await;
    shop.reaches(&order, &access, "paid").await;
    scene.sold("the commit found its hold", 8, 1, 1).await;
}
