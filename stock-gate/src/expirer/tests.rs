//! The loop over real stores: new sales, due holds, outages, restarts.

use std::{path::Path, sync::Arc};

use lockgate_shared::{
    events::sqlite::EVENTS_SQLITE,
    gate::{ClaimAnswer, ConcludeAnswer, GateError, HoldState},
    ids::{ClaimId, SaleId},
    store::sqlite::Sqlite,
    testing::{ManualClock, eventually},
};
use tokio::sync::watch;

use super::*;
use crate::{
    STOCK_SQLITE, SqliteStore, Store,
    store::{
        Claim,
        testbed::{Bench, claim, claim_id, item},
    },
    testbed::{Gate, catalog, just_opened},
};

fn sqlite(path: &Path, clock: &ManualClock) -> Arc<dyn Store> {
    let db = Sqlite::open(path, &[("events", EVENTS_SQLITE), ("stock", STOCK_SQLITE)]).unwrap();
    Arc::new(SqliteStore::new(db, Arc::new(clock.clone())))
}

async fn state(store: &dyn Store, sale: &SaleId, claim: ClaimId) -> HoldState {
    store.hold(sale, claim).await.unwrap().unwrap().state
}

fn due(n: u32) -> Claim {
    let mut made = claim(n);
    (made.hold_seconds, made.request.item) = (0, item("phone-black"));
    made
}

#[tokio::test]
async fn a_new_sale_gets_its_stock_once_and_says_so() {
    let bench = Bench::redis().await;
    let gate = Gate::over(Arc::clone(&bench.store)).await;
    let mut expirer = Expirer::new(Arc::clone(&gate.app));
    expirer.round().await;
    assert!(expirer.troubled.is_empty(), "a sale without stock is not in trouble while nobody put it there");
    let opened = [gate.open().await, gate.open().await];
    assert_eq!(opened, [ConcludeAnswer::Reopened { generation: 1 }, ConcludeAnswer::Stale]);
    let controls = gate.catalog.sale(&gate.sale).unwrap().controls.clone();
    assert_eq!((controls.stock_opened_at, controls.stock_generation), (Some(gate.now()), 1));
    let stock = gate.client().stock(&gate.sale).await.unwrap();
    assert_eq!((stock.items[0].available, stock.items[1].available), (1_000, 700));
}

#[tokio::test]
async fn a_catalog_that_forgot_a_sale_s_stock_is_told_that_it_is_there() {
    let bench = Bench::redis().await;
    let old = Gate::over(Arc::clone(&bench.store)).await;
    old.open().await;
    old.client().claim(&old.sale, &old.claim(1)).await.unwrap();
    let gate = Gate::over(Arc::clone(&bench.store)).await;
    assert_eq!(gate.open().await, ConcludeAnswer::Stale);
    assert_eq!(gate.catalog.sale(&gate.sale).unwrap().controls.stock_generation, 1);
    assert_eq!(gate.client().stock(&gate.sale).await.unwrap().items[0].held, 1);
}

#[tokio::test]
async fn due_holds_are_marked_by_the_running_loop() {
    let bench = Bench::redis().await;
    let gate = Gate::over(Arc::clone(&bench.store)).await;
    let (stop, stopping) = watch::channel(false);
    gate.open().await;
    let running = tokio::spawn(run(Arc::clone(&gate.app), stopping));
    // More than one sweep marks at a time.
    let count = u32::try_from(SWEEP_BATCH_MAX).unwrap() + 10;
    for n in 1..=count {
        bench.store.claim(&gate.sale, &due(n)).await.unwrap();
    }
    eventually("every due hold is marked", 10, async || {
        state(&*bench.store, &gate.sale, claim_id(count)).await == HoldState::Expiring
    })
    .await;
    assert_eq!(bench.store.stock(&gate.sale, None).await.unwrap().items[0].held, count, "and stays held");
    drop(stop);
    running.await.unwrap();
}

#[tokio::test]
async fn h3_a_deadline_that_passed_while_no_process_ran_is_found_at_the_first_round() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("gate.db"), just_opened());
    let sales = catalog(&clock).await;
    let claim = {
        let gate = Gate::with(sqlite(&path, &clock), Arc::clone(&sales), clock.clone());
        gate.open().await;
        let answer = gate.client().claim(&gate.sale, &gate.claim(1)).await.unwrap();
        assert!(matches!(answer, ClaimAnswer::Held { .. }));
        gate.clock.advance_ms(599_000);
        Expirer::new(Arc::clone(&gate.app)).round().await;
        assert_eq!(state(&*gate.app.store, &gate.sale, gate.claim(1).claim).await, HoldState::Held);
        gate.claim(1).claim
    };
    // Longer than any hold and long after the close.
    clock.advance_ms(100 * 3_600_000);
    let gate = Gate::with(sqlite(&path, &clock), sales, clock.clone());
    Expirer::new(Arc::clone(&gate.app)).round().await;
    assert_eq!(state(&*gate.app.store, &gate.sale, claim).await, HoldState::Expiring);
    let stock = gate.client().stock(&gate.sale).await.unwrap();
    assert_eq!(stock.items[0].held, 1, "still held: its order decides");
}

#[tokio::test]
async fn h3_on_redis_too() {
    let bench = Bench::redis().await;
    let gate = Gate::over(Arc::clone(&bench.store)).await;
    gate.open().await;
    bench.store.claim(&gate.sale, &due(1)).await.unwrap();
    let restarted = Gate::with(Arc::clone(&bench.store), Arc::clone(&gate.catalog), gate.clock.clone());
    Expirer::new(Arc::clone(&restarted.app)).round().await;
    assert_eq!(state(&*bench.store, &gate.sale, claim_id(1)).await, HoldState::Expiring);
}

#[tokio::test]
async fn h7_a_sale_that_lost_its_stock_never_gets_a_fresh_one() {
    let bench = Bench::redis().await;
    let gate = Gate::over(Arc::clone(&bench.store)).await;
    gate.open().await;
    let mut expirer = Expirer::new(Arc::clone(&gate.app));
    let (_, link) = bench.redis.as_ref().unwrap();
    link.command::<String>("test", &redis::cmd("FLUSHALL")).await.unwrap();
    for _ in 0..3 {
        expirer.round().await;
        assert!(expirer.troubled.contains_key(&gate.sale));
        assert!(bench.store.stock(&gate.sale, None).await.is_err());
        let refused = gate.client().claim(&gate.sale, &gate.claim(1)).await;
        assert!(matches!(refused, Err(GateError::Frozen(_))));
    }
}

#[tokio::test]
async fn h7_the_loop_survives_an_outage_and_goes_on() {
    let bench = Bench::redis().await;
    let gate = Gate::over(Arc::clone(&bench.store)).await;
    gate.open().await;
    bench.store.claim(&gate.sale, &due(1)).await.unwrap();
    let mut expirer = Expirer::new(Arc::clone(&gate.app));
    let (_, link) = bench.redis.as_ref().unwrap();
    let writable_with_replicas = |count: &'static str| {
        let mut command = redis::cmd("CONFIG");
        command.arg(&["SET", "min-replicas-to-write", count]);
        async move { link.command::<String>("test", &command).await.unwrap() }
    };
    writable_with_replicas("1").await;
    expirer.round().await;
    assert!(expirer.troubled.contains_key(&gate.sale));
    writable_with_replicas("0").await;
    eventually("the loop goes on", 10, async || {
        expirer.round().await;
        expirer.troubled.is_empty()
    })
    .await;
    assert_eq!(state(&*bench.store, &gate.sale, claim_id(1)).await, HoldState::Expiring);
}

#[tokio::test]
async fn a_sale_closed_for_more_than_a_hold_is_swept_now_and_then() {
    let clock = just_opened();
    let sales = catalog(&clock).await;
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::with(sqlite(&dir.path().join("gate.db"), &clock), sales, clock.clone());
    let mut expirer = Expirer::new(Arc::clone(&gate.app));
    expirer.round().await;
    gate.open().await;
    gate.app.store.claim(&gate.sale, &due(1)).await.unwrap();
    clock.advance_ms(100 * 3_600_000);
    expirer.round().await;
    assert_eq!(state(&*gate.app.store, &gate.sale, claim_id(1)).await, HoldState::Held);
    for _ in 0..QUIET_ROUNDS {
        expirer.round().await;
    }
    assert_eq!(state(&*gate.app.store, &gate.sale, claim_id(1)).await, HoldState::Expiring);
}
