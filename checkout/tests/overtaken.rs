//! Rebuilds that overtake, are overtaken, are cut off or take long: real stores, the wire to the gate in the test's hands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::{
    collections::HashSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body};
use http::Request;
use lockgate_checkout::{SqliteStore, Store, claim::intake_of_event, intake, order::Intake, rebuilder};
use lockgate_shared::{
    events::{EventLog, redis::RedisEventLog},
    gate::{FreezeAnswer, FreezeRequest, HoldState},
    service_call::CallError,
    store::redis::RedisLink,
    testing::{PrivateRedis, eventually},
};
use lockgate_stock_gate::RedisStore;
use redis::cmd;
use support::{Backends, Plan, Shop, Wrap};
use tokio::sync::watch;
use tower::{ServiceExt as _, util::BoxCloneSyncService};
use uuid::Uuid;

/// What the wire to the gate does.
#[derive(Default)]
struct Wire {
    /// The first reply to each path that ends so is lost, after the gate did what it was asked; `!`: every reply.
    loses: Mutex<HashSet<&'static str>>,
    /// Calls about the sale `demo` are held back.
    holds_demo: AtomicBool,
    held: AtomicBool,
}

fn wrap(wire: &Arc<Wire>) -> Option<Wrap> {
    let wire = Arc::clone(wire);
    Some(Box::new(move |router: Router| {
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let (wire, router) = (Arc::clone(&wire), router.clone());
            async move {
                let path = request.uri().path().to_owned();
                while wire.holds_demo.load(Ordering::SeqCst) && path.contains("/demo/") {
                    wire.held.store(true, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                let answer = router.oneshot(request).await.map_err(|never| match never {})?;
                let mut loses = wire.loses.lock().unwrap();
                let lost = loses.iter().copied().find(|end| path.ends_with(end.trim_end_matches('!')));
                match lost {
                    Some(end) => {
                        if !end.ends_with('!') {
                            loses.remove(end);
                        }
                        Err(CallError::Lost("the reply was lost".into()))
                    }
                    None => Ok(answer),
                }
            }
        }))
    }))
}

fn plan() -> Plan {
    Plan { loops: false, sweeps: false, ..Plan::default() }
}

async fn on_sqlite(dir: &Path, wire: &Arc<Wire>) -> Shop {
    let (db, clock) = (Shop::database(dir), support::clock());
    let orders = Arc::new(SqliteStore::new(db.clone()));
    Shop::with(dir, &plan(), clock, db, orders, wrap(wire)).await
}

async fn drain(shop: &Shop) {
    while intake::take_batch(&shop.app, &shop.sale).await.unwrap() > 0 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_a_batch_that_a_rebuild_overtook_gives_no_unit_two_owners_and_loses_none() {
    let (dir, redis) = (tempfile::tempdir().unwrap(), PrivateRedis::start().await);
    let link = RedisLink::connect(redis.url(), "t:").await.unwrap();
    let events: Arc<dyn EventLog> = Arc::new(RedisEventLog::new(link.clone()));
    let backends = Backends {
        stock: Arc::new(RedisStore::new(link.clone())),
        events: Arc::clone(&events),
        orders: Arc::new(SqliteStore::new(Shop::database(dir.path()))),
    };
    let shop = Shop::over(dir.path(), &plan(), support::clock(), backends, None).await;
    let (first, _) = shop.buy(1, "k", 2).await;
    // A slow worker has the claim in hand when the store loses everything.
    let batch = events.read(&shop.sale, intake::GROUP, "slow", 10).await.unwrap();
    let slow: Vec<Intake> =
        batch.events.iter().map(|event| intake_of_event(&shop.sale, event).unwrap()).collect();
    assert_eq!(slow.len(), 1);
    link.command::<String>("test", &cmd("FLUSHALL")).await.unwrap();
    let done = rebuilder::recover(&shop.app, &shop.sale, None, "a test").await.unwrap();
    assert_eq!((done.generation, done.figures.unwrap().orders), (2, 0), "nobody knows of it");
    let (second, _) = shop.buy(2, "k", 2).await;
    shop.store.place(&shop.sale, &slow, &[], shop.now()).await.unwrap();
    drain(&shop).await;
    let loser = shop.store.order(second.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!((loser.state.as_str(), loser.gate.as_str()), ("cancelled", "disputed"));
    // That shows it: the stock is rebuilt at once, and the hold of the order that gave way is no more.
    let (_stop, stopped) = watch::channel(false);
    let loops = tokio::spawn(rebuilder::run(Arc::clone(&shop.app), stopped));
    // The books balance before the rebuild too: what tells it is the hold that the store had lost.
    // While the sale is frozen the gate says nothing of holds.
    let hold = async |order: &str| shop.gate.hold(&shop.sale, order.parse().unwrap()).await.ok().flatten();
    eventually("one owner, and the rest is free", 10, async || {
        let books = shop.books().await;
        let line = &books["items"][0];
        books["balanced"] == true
            && (&line["held"], &line["available"]) == (&2.into(), &8.into())
            && hold(&first).await.is_some()
    })
    .await;
    loops.abort();
    let (kept, gone) = (hold(&first).await.unwrap(), hold(&second).await.unwrap());
    assert_eq!((kept.state, &kept.units[..]), (HoldState::Held, &[1, 2][..]));
    assert_eq!(gone.state, HoldState::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_a_rebuild_waits_for_what_others_have_in_hand() {
    let (dir, redis) = (tempfile::tempdir().unwrap(), PrivateRedis::start().await);
    let link = RedisLink::connect(redis.url(), "t:").await.unwrap();
    let events: Arc<dyn EventLog> = Arc::new(RedisEventLog::new(link.clone()));
    let orders: Arc<dyn Store> = Arc::new(SqliteStore::new(Shop::database(dir.path())));
    let backends = Backends {
        stock: Arc::new(RedisStore::new(link.clone())),
        events: Arc::clone(&events),
        orders: Arc::clone(&orders),
    };
    let shop = Shop::over(dir.path(), &plan(), support::clock(), backends, None).await;
    shop.buy(1, "k", 2).await;
    let batch = events.read(&shop.sale, intake::GROUP, "slow", 10).await.unwrap();
    let slow: Vec<Intake> =
        batch.events.iter().map(|event| intake_of_event(&shop.sale, event).unwrap()).collect();
    link.command::<i64>("test", cmd("DEL").arg("t:{demo}:holds")).await.unwrap();
    let worker = async {
        // The sale is frozen while it works.
        eventually("frozen", 5, async || {
            let mut asked = cmd("HEXISTS");
            link.command::<bool>("test", asked.arg("t:{demo}:stock").arg("frozen")).await.unwrap()
        })
        .await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        orders.place(&shop.sale, &slow, &[], shop.now()).await.unwrap();
        let ids: Vec<String> = batch.events.iter().map(|event| event.id.clone()).collect();
        events.acknowledge(&shop.sale, intake::GROUP, &ids).await.unwrap();
    };
    let (done, ()) = tokio::join!(rebuilder::recover(&shop.app, &shop.sale, None, "a test"), worker);
    assert_eq!(done.unwrap().figures.unwrap().orders, 1);
    assert_eq!(shop.phone_books().await["held"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn m4_a_rebuild_survives_a_lost_reply_of_each_of_its_calls() {
    let (dir, wire) = (tempfile::tempdir().unwrap(), Arc::<Wire>::default());
    let shop = on_sqlite(dir.path(), &wire).await;
    shop.buy(1, "k", 1).await;
    *wire.loses.lock().unwrap() = ["/freeze", "/holds", "/stage", "/conclude"].into();
    let done = rebuilder::recover(&shop.app, &shop.sale, None, "a test").await.unwrap();
    assert!(wire.loses.lock().unwrap().is_empty());
    assert_eq!((done.generation, done.here, done.figures.unwrap().survived), (2, true, 1));
    assert_eq!(shop.phone_books().await["held"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_lost_their_units_end_although_the_rebuild_s_own_end_is_never_heard() {
    let (dir, wire) = (tempfile::tempdir().unwrap(), Arc::<Wire>::default());
    let shop = on_sqlite(dir.path(), &wire).await;
    let (first, _) = shop.buy(1, "k", 1).await;
    drain(&shop).await;
    // The orders' database forgot who owns the unit, and gave it to another.
    let db = Shop::database(dir.path());
    db.write("test", |db| db.execute("DELETE FROM order_units", [])).await.unwrap();
    let hold = shop.gate.hold(&shop.sale, first.parse().unwrap()).await.unwrap().unwrap();
    let mut other = lockgate_checkout::claim::placement_of_hold(&shop.sale, &hold).unwrap();
    other.order = Uuid::from_u128(7).into();
    other.claimed_at = other.claimed_at.plus_seconds(1);
    shop.store.place(&shop.sale, &[Intake::Claimed(other.clone())], &[], shop.now()).await.unwrap();
    wire.loses.lock().unwrap().insert("/conclude!");
    rebuilder::recover(&shop.app, &shop.sale, Some(1), "a test").await.unwrap_err();
    wire.loses.lock().unwrap().clear();
    let done = rebuilder::recover(&shop.app, &shop.sale, Some(1), "a test").await.unwrap();
    assert_eq!((done.generation, done.here), (2, false), "it was done");
    assert!(done.figures.is_none(), "and nothing reads as if nothing had been there");
    let loser = shop.store.order(other.order).await.unwrap().unwrap();
    assert_eq!(loser.state.as_str(), "expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_a_rebuild_that_takes_long_keeps_no_other_sale_closed() {
    let (dir, wire) = (tempfile::tempdir().unwrap(), Arc::<Wire>::default());
    let shop = on_sqlite(dir.path(), &wire).await;
    let other = "other".parse().unwrap();
    let request = FreezeRequest { if_generation: Some(1), why: "a test".into() };
    let FreezeAnswer::Frozen(freeze) = shop.gate.freeze(&other, &request).await.unwrap() else { panic!() };
    wire.holds_demo.store(true, Ordering::SeqCst);
    let (_stop, stopped) = watch::channel(false);
    let loops = tokio::spawn(rebuilder::run(Arc::clone(&shop.app), stopped));
    shop.gate.frozen().note(&shop.sale, None);
    eventually("one rebuild is under way", 5, async || wire.held.load(Ordering::SeqCst)).await;
    shop.gate.frozen().note(&other, Some(freeze.generation));
    eventually("the other sale is open", 2, async || shop.gate.stock(&other).await.is_ok()).await;
    wire.holds_demo.store(false, Ordering::SeqCst);
    loops.abort();
}
