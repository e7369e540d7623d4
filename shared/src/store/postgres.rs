//! PostgreSQL: a bounded pool whose every statement has a time limit.

use std::{error::Error as _, io, time::Duration};

use deadpool_postgres::{Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use tokio_postgres::{Config, NoTls};

use super::{StoreError, migrations::Migration};
use crate::limits::STORE_CALL_MS_MAX;

/// Connections one process opens at most.
const POOL_CONNECTIONS_MAX: usize = 16;

/// Connects, applies the migrations, and answers the pool; the URL is that of [`pool`].
///
/// # Errors
/// The URL does not parse, the server cannot be reached, or a migration does not apply.
pub async fn connect(url: &str, migrations: &[(&'static str, &[Migration])]) -> Result<Pool, StoreError> {
    let pool = pool(url)?;
    migrate(&pool, migrations).await?;
    Ok(pool)
}

/// A pool that has opened nothing yet.
///
/// The URL is libpq's: `postgres://user:password@host:port/database`; `?options=-c%20search_path%3Dname` chooses
/// a schema.
///
/// # Errors
/// The URL does not parse.
pub fn pool(url: &str) -> Result<Pool, StoreError> {
    let mut config: Config = url.parse().map_err(|error| StoreError::untouched("connect", error))?;
    config.connect_timeout(Duration::from_millis(STORE_CALL_MS_MAX)).application_name("lockgate");
    // A peer that went away without a word is noticed in seconds, not in the kernel's quarter of an hour.
    config.tcp_user_timeout(Duration::from_secs(5));
    // tokio-postgres bounds no query by itself; the server must, or a stuck lock would hold a connection for ever.
    let limit = format!("-c statement_timeout={STORE_CALL_MS_MAX}");
    let options = match config.get_options() {
        Some(given) => format!("{given} {limit}"),
        None => limit,
    };
    config.options(options);
    let manager =
        Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    Pool::builder(manager)
        .max_size(POOL_CONNECTIONS_MAX)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(Duration::from_millis(STORE_CALL_MS_MAX)))
        .create_timeout(Some(Duration::from_millis(STORE_CALL_MS_MAX)))
        .build()
        .map_err(|error| StoreError::untouched("connect", error))
}

/// Applies migrations.
///
/// # Errors
/// The server cannot be reached, or a migration does not apply. It may be tried again.
pub async fn migrate(pool: &Pool, migrations: &[(&'static str, &[Migration])]) -> Result<(), StoreError> {
    let mut client = pool.get().await.map_err(|error| StoreError::untouched("connect", error))?;
    for (component, list) in migrations {
        super::migrations::apply_postgres(&mut client, component, list).await?;
    }
    Ok(())
}

/// Whether the server is away, starting, stopping or full: what passes by itself, unlike a wrong password or name.
#[must_use]
pub fn is_away(error: &StoreError) -> bool {
    let Some(source) = error.source() else { return false };
    match source.downcast_ref::<PoolError>() {
        Some(PoolError::Timeout(_)) => true,
        Some(PoolError::Backend(error)) => is_away_by(error),
        Some(_) => false,
        None => source.downcast_ref::<tokio_postgres::Error>().is_some_and(is_away_by),
    }
}

fn is_away_by(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        // Connection, resources, intervention of an operator.
        Some(state) => ["08", "53", "57"].iter().any(|class| state.code().starts_with(class)),
        None => error.is_closed() || error.source().is_some_and(|cause| cause.is::<io::Error>()),
    }
}
