//! From the gate's records to orders, scaled out: real Redis, real PostgreSQL. Workers die and stall, records cannot be
//! taken in, streams are trimmed and fail over.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::support::{Ask, Backends, OPERATOR_KEY, Plan, Shop, VIEWER_KEY};
use async_trait::async_trait;
use http::{Method, StatusCode};
use lockgate_checkout::{
    App, SqliteStore,
    intake::{GROUP, take_batch_as, tend},
    settler::settle,
};
use lockgate_shared::{
    events::{Backlog, Batch, EventLog, Trim, WAITING_ROOM_GROUP, redis::RedisEventLog},
    ids::{ClaimId, SaleId},
    store::{StoreError, redis::RedisLink},
    testing::{PrivatePostgres, PrivateRedis, eventually},
};
use serde_json::{Value, json};

/// The real log, whose acknowledgements can be lost on their way out.
struct Forgetful {
    log: RedisEventLog,
    forgets: AtomicBool,
}

#[async_trait]
impl EventLog for Forgetful {
    async fn read(&self, sale: &SaleId, group: &str, who: &str, max: usize) -> Result<Batch, StoreError> {
        self.log.read(sale, group, who, max).await
    }
    async fn acknowledge(&self, sale: &SaleId, group: &str, ids: &[String]) -> Result<(), StoreError> {
        if self.forgets.load(Ordering::SeqCst) {
            return Err(StoreError::untouched("acknowledge", "the worker was killed"));
        }
        self.log.acknowledge(sale, group, ids).await
    }
    async fn backlog(&self, sale: &SaleId, group: &str) -> Result<Backlog, StoreError> {
        self.log.backlog(sale, group).await
    }
    async fn trim(&self, sale: &SaleId, groups: &[&str], keep: u64) -> Result<Trim, StoreError> {
        self.log.trim(sale, groups, keep).await
    }
    async fn retire(&self, sale: &SaleId, group: &str, idle_ms: u64) -> Result<u64, StoreError> {
        self.log.retire(sale, group, idle_ms).await
    }
    fn shares_work(&self) -> bool {
        true
    }
}

struct Site {
    shop: Shop,
    log: Arc<Forgetful>,
    redis: PrivateRedis,
    postgres: PrivatePostgres,
    dir: tempfile::TempDir,
}

async fn forgetful(redis: &PrivateRedis) -> Arc<Forgetful> {
    let link = RedisLink::connect(redis.url(), "t:").await.unwrap();
    Arc::new(Forgetful { log: RedisEventLog::new(link), forgets: AtomicBool::new(false) })
}

/// A shop, scaled out, whose loops the test runs by hand unless `plan` says otherwise.
async fn site(plan: &Plan) -> Site {
    let (redis, postgres) = tokio::join!(PrivateRedis::start(), PrivatePostgres::start());
    let dir = tempfile::tempdir().unwrap();
    let log = forgetful(&redis).await;
    let mut backends = Backends::scaled_out(&redis, postgres.url()).await;
    backends.events = Arc::clone(&log) as _;
    let shop = Shop::over(dir.path(), plan, crate::support::clock(), backends, None).await;
    Site { shop, log, redis, postgres, dir }
}

fn by_hand() -> Plan {
    Plan {
        loops: false,
        webhooks: false,
        sweeps: false,
        stock: 400,
        per_account_limit: 100,
        ..Plan::default()
    }
}

/// Wins a claim of one phone for each of `count` accounts.
async fn sell(shop: &Shop, from: u16, count: u16) -> Vec<(String, String)> {
    let mut won = Vec::new();
    for n in from..from + count {
        won.push(shop.buy(n, "k", 1).await);
    }
    won
}

async fn orders(shop: &Shop) -> Value {
    shop.books().await["items"][0]["orders"].clone()
}

async fn take(app: &App, sale: &SaleId, who: &str) -> usize {
    take_batch_as(app, sale, who).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn m10_a_worker_killed_between_commit_and_acknowledgement_makes_one_order() {
    let Site { shop, log, .. } = &site(&by_hand()).await;
    let won = sell(shop, 0, 3).await;
    log.forgets.store(true, Ordering::SeqCst);
    take_batch_as(&shop.app, &shop.sale, "killed").await.unwrap_err();
    assert_eq!(orders(shop).await, json!({"awaiting_payment": 3}), "committed");
    let cancelled = shop.post(&format!("/orders/{}/cancel", won[0].0), &won[0].1).await;
    assert_eq!(cancelled.status, StatusCode::OK);
    log.forgets.store(false, Ordering::SeqCst);
    assert_eq!(log.backlog(&shop.sale, GROUP).await.unwrap().pending, 3);
    eventually("another takes its work over", 20, async || {
        take(&shop.app, &shop.sale, "alive").await;
        log.backlog(&shop.sale, GROUP).await.unwrap() == Backlog::default()
    })
    .await;
    let books = shop.phone_books().await;
    assert_eq!(books["orders"], json!({"awaiting_payment": 2, "cancelled": 1}));
    assert_eq!((&books["held"], &books["available"]), (&json!(2), &json!(398)));
}

#[tokio::test(flavor = "multi_thread")]
async fn m10_a_worker_that_stalls_while_another_takes_its_work_makes_one_order() {
    let Site { shop, log, postgres, .. } = &site(&by_hand()).await;
    sell(shop, 0, 3).await;
    // It has read, and stops before its transaction; what it holds comes to another.
    let held = log.read(&shop.sale, GROUP, "stalled", 256).await.unwrap();
    assert_eq!(held.events.len(), 3);
    eventually("another takes its work over", 20, async || take(&shop.app, &shop.sale, "alive").await == 3)
        .await;
    // It wakes up and goes on where it was.
    let late = lockgate_checkout::PostgresStore::new(
        lockgate_shared::store::postgres::connect(postgres.url(), &[]).await.unwrap(),
    );
    let intakes: Vec<_> = held
        .events
        .iter()
        .map(|event| lockgate_checkout::claim::intake_of_event(&shop.sale, event).unwrap())
        .collect();
    let placed = lockgate_checkout::Store::place(&late, &shop.sale, &intakes, &[], shop.now()).await.unwrap();
    assert_eq!(placed, lockgate_checkout::store::Placed::default(), "nothing is left to do");
    let ids: Vec<String> = held.events.iter().map(|event| event.id.clone()).collect();
    log.acknowledge(&shop.sale, GROUP, &ids).await.unwrap();
    assert_eq!(shop.phone_books().await["orders"], json!({"awaiting_payment": 3}));
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_a_claim_that_arrives_after_its_end_finds_a_tombstone() {
    let plan = Plan { stock: 1, sweeps: true, hold_seconds: 1, ..by_hand() };
    let Site { shop, log, .. } = &site(&plan).await;
    let (first, _) = shop.buy(1, "k", 1).await;
    let held = log.read(&shop.sale, GROUP, "stalled", 256).await.unwrap();
    assert_eq!(held.events.len(), 1, "the claim is with a worker that does nothing");
    let id: ClaimId = first.parse().unwrap();
    eventually("its end is taken in by another", 10, async || {
        take(&shop.app, &shop.sale, "alive").await;
        shop.store.order(id).await.unwrap().is_some_and(|order| order.state.as_str() == "expired")
    })
    .await;
    let ended = shop.store.order(id).await.unwrap().unwrap();
    assert_eq!(
        shop.gate.stock(&shop.sale).await.unwrap().items[0].held,
        1,
        "held until the order has decided"
    );
    settle(&shop.app, ended).await.unwrap();
    // The unit is free, and another's before the claim arrives.
    let (second, access) = shop.buy(2, "k", 1).await;
    eventually("everything is taken in", 20, async || {
        take(&shop.app, &shop.sale, "alive").await;
        log.backlog(&shop.sale, GROUP).await.unwrap() == Backlog::default()
    })
    .await;
    assert_eq!(shop.store.order(id).await.unwrap().unwrap().state.as_str(), "expired");
    assert!(matches!(shop.state(&second, &access).await.as_str(), "awaiting_payment" | "expired"));
    let books = shop.store.books(&shop.sale).await.unwrap();
    let phone = &books[&"phone".parse().unwrap()];
    assert_eq!(phone.held + phone.sold, 1, "one order has the unit");
}

async fn with_email(shop: &Shop, n: u16, email: &str) -> (String, String) {
    let body = format!(r#"{{"item":"phone","quantity":1,"email":"{email}"}}"#);
    let ask = Ask::post("/sale/demo/checkout").bearer(&shop.token(n)).key("k").json(&body);
    let won = shop.send(ask.build()).await;
    assert_eq!(won.status, StatusCode::ACCEPTED, "{}", won.text);
    (won.text_of("order_id"), won.text_of("access_key"))
}

const LETTERS: &str = "/operator/v1/sales/demo/dead-letters";

/// The orders' store refuses every order of `odd@example.org`: the rest flows, the odd one is put aside, and comes
/// back once the store takes it.
async fn m11_scenario(shop: &Shop, mend: impl AsyncFnOnce()) {
    let mut good = sell(shop, 0, 8).await;
    let odd = with_email(shop, 100, "odd@example.org").await;
    good.extend(sell(shop, 10, 8).await);
    for (order, access) in &good {
        shop.reaches(order, access, "awaiting_payment").await;
    }
    eventually("the odd one is put aside", 30, async || {
        shop.get(LETTERS, VIEWER_KEY).await.json()["total"] == 1
    })
    .await;
    let later = sell(shop, 30, 3).await;
    for (order, access) in &later {
        shop.reaches(order, access, "awaiting_payment").await;
    }
    let letter = shop.get(LETTERS, VIEWER_KEY).await.json()["letters"][0].clone();
    assert_eq!(letter["record"]["kind"], "claimed");
    assert_eq!(letter["record"]["claim"], odd.0);
    assert!(letter["problem"].as_str().unwrap().contains("odd"), "{letter}");
    assert_eq!(shop.state(&odd.0, &odd.1).await, "placing", "the buyer is not told anything untrue");
    let retry = async || {
        let path = format!("{LETTERS}/retry");
        shop.send(Ask::new(Method::POST, &path).bearer(OPERATOR_KEY).build()).await
    };
    shop.post(&format!("{LETTERS}/retry"), VIEWER_KEY).await.is(403, "role_too_low");
    assert_eq!(retry().await.json(), json!({"taken_in": 0, "left": 1}));
    let more = Ask::post(&format!("{LETTERS}/retry")).bearer(OPERATOR_KEY).json(r#"{"x":1}"#);
    shop.send(more.build()).await.is(400, "malformed");
    mend().await;
    assert_eq!(retry().await.json(), json!({"taken_in": 1, "left": 0}));
    assert_eq!(retry().await.json(), json!({"taken_in": 0, "left": 0}));
    assert_eq!(shop.state(&odd.0, &odd.1).await, "awaiting_payment");
    assert_eq!(shop.phone_books().await["orders"], json!({"awaiting_payment": 20}));
}

#[tokio::test(flavor = "multi_thread")]
async fn m11_a_record_that_cannot_be_taken_in_is_put_aside_and_comes_back() {
    let plan = Plan { stock: 100, ..Plan::default() };
    let Site { shop, postgres, .. } = &site(&plan).await;
    let (client, connection) = tokio_postgres::connect(postgres.url(), tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    let odd = "ALTER TABLE orders ADD CONSTRAINT odd CHECK (email IS DISTINCT FROM 'odd@example.org')";
    client.batch_execute(odd).await.unwrap();
    m11_scenario(shop, async || {
        client.batch_execute("ALTER TABLE orders DROP CONSTRAINT odd").await.unwrap();
    })
    .await;
    driver.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn m11_a_locked_table_speaks_against_no_record() {
    let Site { shop, log, postgres, .. } = &site(&by_hand()).await;
    sell(shop, 0, 1).await;
    let (mut client, connection) =
        tokio_postgres::connect(postgres.url(), tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    // What an ALTER or VACUUM FULL under way does, or a transaction that somebody forgot.
    let forgotten = client.transaction().await.unwrap();
    forgotten.batch_execute("LOCK TABLE orders").await.unwrap();
    let cut = take_batch_as(&shop.app, &shop.sale, "alive").await.unwrap_err();
    assert!(cut.to_string().contains("statement timeout"), "{cut}");
    assert_eq!(shop.get(LETTERS, VIEWER_KEY).await.json()["total"], 0);
    forgotten.rollback().await.unwrap();
    eventually("it is taken in", 20, async || {
        take(&shop.app, &shop.sale, "alive").await;
        log.backlog(&shop.sale, GROUP).await.unwrap() == Backlog::default()
    })
    .await;
    assert_eq!(orders(shop).await, json!({"awaiting_payment": 1}));
    driver.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn m11_in_one_file_too() {
    let dir = tempfile::tempdir().unwrap();
    let db = Shop::database(dir.path());
    let odd = "CREATE TRIGGER odd BEFORE INSERT ON orders WHEN NEW.email = 'odd@example.org'
               BEGIN SELECT RAISE(ABORT, 'odd'); END";
    db.write("odd", move |db| db.execute_batch(odd)).await.unwrap();
    let store = Arc::new(SqliteStore::new(db.clone()));
    let plan = Plan { stock: 100, ..Plan::default() };
    let shop = Shop::with(dir.path(), &plan, crate::support::clock(), db.clone(), store, None).await;
    m11_scenario(&shop, async || {
        db.write("mend", |db| db.execute_batch("DROP TRIGGER odd")).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m12_what_is_pending_or_unread_is_never_trimmed_and_becomes_an_order() {
    let Site { shop, log, .. } = &site(&by_hand()).await;
    let (app, sale) = (&shop.app, &shop.sale);
    sell(shop, 0, 250).await;
    let held = log.read(sale, GROUP, "gone", 20).await.unwrap();
    assert_eq!(held.events.len(), 20);
    assert_eq!(take(app, sale, "alive").await, 230);
    assert_eq!(tend(app, sale, 0, 0).await.unwrap(), 0, "the waiting room has not begun: nothing goes");
    loop {
        let batch = log.read(sale, WAITING_ROOM_GROUP, "room", 256).await.unwrap();
        if batch.events.is_empty() {
            break;
        }
        let ids: Vec<String> = batch.events.into_iter().map(|event| event.id).collect();
        log.acknowledge(sale, WAITING_ROOM_GROUP, &ids).await.unwrap();
    }
    assert_eq!(tend(app, sale, 0, 0).await.unwrap(), 0, "the oldest twenty are still with somebody");
    eventually("they are taken over", 20, async || {
        take(app, sale, "alive").await;
        log.backlog(sale, GROUP).await.unwrap() == Backlog::default()
    })
    .await;
    assert_eq!(orders(shop).await, json!({"awaiting_payment": 250}));
    assert_eq!(tend(app, sale, 4_096, 0).await.unwrap(), 0, "the newest are kept");
    let removed = tend(app, sale, 0, 0).await.unwrap();
    assert!((100..=250).contains(&removed), "{removed}");
    // Whoever is gone is removed with what it no longer holds, and the log goes on.
    sell(shop, 300, 5).await;
    assert_eq!(take(app, sale, "alive").await, 5);
    assert_eq!(orders(shop).await, json!({"awaiting_payment": 255}));
    assert_eq!(log.backlog(sale, WAITING_ROOM_GROUP).await.unwrap().unread, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn m12_entries_that_are_pending_at_a_fail_over_become_orders() {
    let Site { shop, log, redis, postgres, dir } = site(&by_hand()).await;
    let sale = shop.sale.clone();
    let port = redis.port().to_string();
    let replica = PrivateRedis::start_with(&["--appendonly", "yes", "--replicaof", "127.0.0.1", &port]).await;
    sell(&shop, 0, 10).await;
    assert_eq!(log.read(&sale, GROUP, "dead", 4).await.unwrap().events.len(), 4);
    let behind = log.backlog(&sale, GROUP).await.unwrap();
    assert_eq!((behind.unread, behind.pending), (6, 4));
    let second = forgetful(&replica).await;
    eventually("the replica has everything", 20, async || {
        second.backlog(&sale, GROUP).await.is_ok_and(|there| there == behind)
    })
    .await;
    let clock = shop.clock.clone();
    shop.kill().await;
    drop(redis);
    let link = RedisLink::connect(replica.url(), "t:").await.unwrap();
    let mut promote = redis::cmd("REPLICAOF");
    promote.arg("NO").arg("ONE");
    link.command::<String>("promote", &promote).await.unwrap();
    let mut backends = Backends::scaled_out(&replica, postgres.url()).await;
    backends.events = Arc::clone(&second) as _;
    let shop = Shop::over(dir.path(), &by_hand(), clock, backends, None).await;
    eventually("all are taken in", 20, async || {
        take(&shop.app, &sale, "alive").await;
        second.backlog(&sale, GROUP).await.unwrap() == Backlog::default()
    })
    .await;
    assert_eq!(shop.phone_books().await["orders"], json!({"awaiting_payment": 10}));
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_are_gone_are_removed_once_they_hold_nothing() {
    let Site { shop, log, .. } = &site(&by_hand()).await;
    sell(shop, 0, 2).await;
    take(&shop.app, &shop.sale, "idle").await;
    sell(shop, 2, 1).await;
    log.read(&shop.sale, GROUP, "holding", 256).await.unwrap();
    eventually("the idle one is silent for long enough", 10, async || {
        log.retire(&shop.sale, GROUP, 300).await.unwrap() == 1
    })
    .await;
    assert_eq!(log.backlog(&shop.sale, GROUP).await.unwrap().pending, 1, "the other keeps what it holds");
}
