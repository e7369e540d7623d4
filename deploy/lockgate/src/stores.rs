//! Which back end each service gets: SQLite in the data folder, or Redis and PostgreSQL where the configuration
//! names them. Nothing else changes with the choice.

use std::{path::Path, sync::Arc, time::Duration};

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
use tokio::sync::watch;

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
    /// The same while its database was away at the start, for [`prepare_later`].
    pub unprepared: Option<Arc<orders::PostgresStore>>,
}

/// How often a database that was away at the start is tried.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// One of so many tries is told.
const TOLD_EVERY: u32 = 30;

/// Opens what the configuration names.
///
/// # Errors
/// A store does not fit this release, or the shared one cannot be reached. An orders' database that is away is waited for
/// by [`prepare_later`]: claims need it only later.
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
    let mut unprepared = None;
    let orders: Option<Arc<dyn orders::Store>> = match (&config.orders_url, with_orders) {
        (_, false) => None,
        (Some(url), true) => {
            let unfit = |error: &StoreError| unreachable_store("orders.url", "PostgreSQL", error);
            let pool = postgres::pool(url.reveal()).map_err(|error| unfit(&error))?;
            let store = Arc::new(orders::PostgresStore::unprepared(pool).telling(wants));
            match store.prepare().await {
                Ok(()) => {}
                Err(error) if postgres::is_away(&error) => {
                    tracing::warn!(
                        "{}; it is tried again every second, and claims are served meanwhile",
                        unfit(&error)
                    );
                    unprepared = Some(Arc::clone(&store));
                }
                Err(error) => return Err(unfit(&error)),
            }
            Some(store)
        }
        (None, true) => {
            let store = orders::SqliteStore::new(opened(&mut sqlite, &file)?.clone());
            Some(Arc::new(store.telling(wants)))
        }
    };
    Ok(Stores { orders, unprepared, ..shared })
}

/// Connects an orders' database that was away at the start, and makes its tables; then waits for `stopped`.
pub async fn prepare_later(store: Arc<orders::PostgresStore>, mut stopped: watch::Receiver<bool>) {
    let mut tries: u32 = 0;
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(TRY_EVERY) => {}
        }
        tries = tries.saturating_add(1);
        match store.prepare().await {
            Ok(()) => break,
            Err(error) if tries.is_multiple_of(TOLD_EVERY) => {
                tracing::warn!("{}", unreachable_store("orders.url", "PostgreSQL", &error));
            }
            Err(_) => {}
        }
    }
    tracing::info!("orders.url: PostgreSQL answers; orders are made from here on");
    let _ = stopped.wait_for(|stop| *stop).await;
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
        unprepared: None,
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
        unprepared: None,
    }
}

fn unreachable_store(key: &str, server: &str, error: &StoreError) -> Failure {
    Failure::running(format!("{key}: {error}; is {server} running there, and may this process reach it?"))
}
