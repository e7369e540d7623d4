//! Which back end each service gets: SQLite in the data folder, or Redis and PostgreSQL where the configuration
//! names them. Nothing else changes with the choice.

use std::{path::Path, sync::Arc};

use lockgate_checkout as orders;
use lockgate_shared::{
    catalog::{self, CatalogStore},
    clock::Clock,
    events::{self, EventLog},
    store::{
        StoreError,
        migrations::Migration,
        postgres,
        redis::{RedisLink, checkup},
        sqlite::Sqlite,
    },
};
use lockgate_stock_gate as stock;
use lockgate_waiting_room::store as line;

use crate::{config::Config, exit::Failure};

/// The stores of one process. What its roles do not use is `None`.
pub struct Stores {
    /// Sale definitions.
    pub catalog: Arc<dyn CatalogStore>,
    /// The line.
    pub line: Arc<dyn line::Store>,
    /// Units and holds.
    pub stock: Arc<dyn stock::Store>,
    /// What happened at the gate.
    pub events: Arc<dyn EventLog>,
    /// Orders and payments, where this process serves them.
    pub orders: Option<Arc<dyn orders::Store>>,
}

/// Opens what the configuration names.
///
/// # Errors
/// A store cannot be reached or does not fit this release.
pub async fn open(config: &Config, clock: &Arc<dyn Clock>, with_orders: bool) -> Result<Stores, Failure> {
    let file = config.data.join("lockgate.db");
    let mut sqlite = None;
    let shared = match &config.store_url {
        Some(url) => {
            let link = RedisLink::connect(url.reveal(), &config.store_prefix)
                .await
                .map_err(|error| unreachable_store("store.url", "redis-server", &error))?;
            check(&link, config.replicas_required).await?;
            on_redis(&link, config.replicas_required)
        }
        None => on_sqlite(opened(&mut sqlite, &file)?, clock),
    };
    let wants = config.outbox().wants();
    let orders: Option<Arc<dyn orders::Store>> = match (&config.orders_url, with_orders) {
        (_, false) => None,
        (Some(url), true) => {
            let migrations: [(&'static str, &[Migration]); 1] = [("orders", orders::ORDERS_POSTGRES)];
            let pool = postgres::connect(url.reveal(), &migrations)
                .await
                .map_err(|error| unreachable_store("orders.url", "PostgreSQL", &error))?;
            Some(Arc::new(orders::PostgresStore::new(pool).telling(wants)))
        }
        (None, true) => {
            let store = orders::SqliteStore::new(opened(&mut sqlite, &file)?.clone());
            Some(Arc::new(store.telling(wants)))
        }
    };
    Ok(Stores { orders, ..shared })
}

/// One file, opened once: its single writer is what makes the all-in-one's steps atomic.
fn opened<'a>(sqlite: &'a mut Option<Sqlite>, file: &Path) -> Result<&'a Sqlite, Failure> {
    if sqlite.is_none() {
        let migrations: [(&'static str, &[Migration]); 5] = [
            ("catalog", catalog::sqlite::CATALOG_SQLITE),
            ("events", events::sqlite::EVENTS_SQLITE),
            ("line", line::LINE_SQLITE),
            ("stock", stock::STOCK_SQLITE),
            ("orders", orders::ORDERS_SQLITE),
        ];
        let opened = Sqlite::open(file, &migrations)
            .map_err(|error| Failure::running(format!("{}: {error}", file.display())))?;
        *sqlite = Some(opened);
    }
    sqlite.as_ref().ok_or_else(|| Failure::running("the database was not opened"))
}

fn on_sqlite(db: &Sqlite, clock: &Arc<dyn Clock>) -> Stores {
    Stores {
        catalog: Arc::new(catalog::sqlite::SqliteCatalog::new(db.clone())),
        line: Arc::new(line::SqliteStore::new(db.clone())),
        stock: Arc::new(stock::SqliteStore::new(db.clone(), Arc::clone(clock))),
        events: Arc::new(events::sqlite::SqliteEventLog::new(db.clone())),
        orders: None,
    }
}

/// Looks at the store before anything is trusted to it; warnings go to the log.
async fn check(link: &RedisLink, replicas_required: u32) -> Result<(), Failure> {
    let found = checkup::look(link, replicas_required)
        .await
        .map_err(|error| unreachable_store("store.url", "redis-server", &error))?;
    for warning in &found.warnings {
        tracing::warn!("store.url: {warning}");
    }
    match found.refusals.as_slice() {
        [] => Ok(()),
        refusals => Err(Failure::running(format!("store.url: {}", refusals.join("\nstore.url: ")))),
    }
}

fn on_redis(link: &RedisLink, replicas_required: u32) -> Stores {
    let settings = stock::RedisSettings { replicas_required, ..stock::RedisSettings::default() };
    Stores {
        catalog: Arc::new(catalog::redis::RedisCatalog::new(link.clone())),
        line: Arc::new(line::RedisStore::new(link.clone())),
        stock: Arc::new(stock::RedisStore::with(link.clone(), settings)),
        events: Arc::new(events::redis::RedisEventLog::new(link.clone())),
        orders: None,
    }
}

fn unreachable_store(key: &str, server: &str, error: &StoreError) -> Failure {
    Failure::running(format!("{key}: {error}; is {server} running there, and may this process reach it?"))
}
