//! The stores under a shop.

use std::sync::Arc;

use lockgate_checkout::{ORDERS_POSTGRES, PostgresStore, Store};
use lockgate_shared::{
    events::{EventLog, redis::RedisEventLog, sqlite::SqliteEventLog},
    store::{postgres, redis::RedisLink, sqlite::Sqlite},
    testing::{ManualClock, PrivateRedis},
};
use lockgate_stock_gate as stock_gate;

/// Where a shop keeps what lasts.
pub struct Backends {
    pub stock: Arc<dyn stock_gate::Store>,
    pub events: Arc<dyn EventLog>,
    pub orders: Arc<dyn Store>,
}

impl Backends {
    /// All in one file, with any store for the orders.
    pub fn sqlite(db: &Sqlite, clock: &ManualClock, orders: Arc<dyn Store>) -> Self {
        Self {
            stock: Arc::new(stock_gate::SqliteStore::new(db.clone(), Arc::new(clock.clone()))),
            events: Arc::new(SqliteEventLog::new(db.clone())),
            orders,
        }
    }

    /// As scaled out: stock and events in Redis, orders in PostgreSQL.
    pub async fn scaled_out(redis: &PrivateRedis, postgres_url: &str) -> Self {
        let link = RedisLink::connect(redis.url(), "t:").await.unwrap();
        let pool = postgres::connect(postgres_url, &[("orders", ORDERS_POSTGRES)]).await.unwrap();
        Self {
            stock: Arc::new(stock_gate::RedisStore::new(link.clone())),
            events: Arc::new(RedisEventLog::new(link)),
            orders: Arc::new(PostgresStore::new(pool)),
        }
    }
}
