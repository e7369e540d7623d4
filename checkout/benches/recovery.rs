//! How long a frozen sale of 20,700 sold units is closed: `cargo bench -p lockgate-checkout --bench recovery`. A private
//! redis-server that syncs every write, orders in SQLite, everything in one process. Prints what each rebuild says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement fails by panicking"
)]
#![allow(clippy::print_stdout, reason = "its result")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;

use lockgate_checkout::{SqliteStore, Store as _, claim::placement_of_hold, order::Intake, rebuilder};
use lockgate_shared::{
    events::redis::RedisEventLog,
    gate::{HoldState, StockSnapshot},
    ids::AccountHash,
    store::redis::RedisLink,
    testing::PrivateRedis,
};
use lockgate_stock_gate::RedisStore;
use support::{Backends, Plan, Shop};
use uuid::Uuid;

const UNITS: u32 = 20_700;

#[tokio::main]
async fn main() {
    let (dir, redis) = (tempfile::tempdir().unwrap(), PrivateRedis::start().await);
    let link = RedisLink::connect(redis.url(), "t:").await.unwrap();
    let orders = Arc::new(SqliteStore::new(Shop::database(dir.path())));
    let backends = Backends {
        stock: Arc::new(RedisStore::new(link.clone())),
        events: Arc::new(RedisEventLog::new(link.clone())),
        orders: Arc::clone(&orders) as _,
    };
    let plan = Plan { stock: UNITS, loops: false, sweeps: false, ..Plan::default() };
    let shop = Shop::over(dir.path(), &plan, support::clock(), backends, None).await;
    let (first, _) = shop.buy(1, "k", 1).await;
    let hold = shop.gate.hold(&shop.sale, first.parse().unwrap()).await.unwrap().unwrap();
    let placements: Vec<Intake> = (2..=UNITS)
        .map(|n| {
            let mut one = hold.clone();
            let mut account = [0; 16];
            account[..4].copy_from_slice(&n.to_be_bytes());
            one.claim = Uuid::from_u128(u128::from(n)).into();
            (one.units, one.account) = (vec![n], AccountHash::from_bytes(account));
            Intake::Claimed(placement_of_hold(&shop.sale, &one).unwrap())
        })
        .collect();
    for batch in placements.chunks(256) {
        orders.place(&shop.sale, batch, &[], shop.now()).await.unwrap();
    }
    for what in ["no hold is left", "all holds are left", "the store is emptied"] {
        if what == "the store is emptied" {
            link.command::<redis::Value>("test", &redis::cmd("FLUSHALL")).await.unwrap();
        }
        let done = rebuilder::recover(&shop.app, &shop.sale, None, "a measurement").await.unwrap();
        println!("{what}: {}", serde_json::to_string(&done).unwrap());
        let stock: StockSnapshot = shop.gate.stock(&shop.sale).await.unwrap();
        assert_eq!((stock.items[0].held, stock.items[0].available), (UNITS, 0));
    }
    let last = shop.gate.hold(&shop.sale, Uuid::from_u128(u128::from(UNITS)).into()).await.unwrap().unwrap();
    assert_eq!(last.state, HoldState::Held);
}
