//! Schema migrations: numbered SQL embedded in the binary, each applied once, in order, with its checksum kept.
//!
//! A component (catalog, stock, orders …) numbers its own migrations, so that components can share a database.

use std::fmt::Write as _;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use sha2::{Digest, Sha256};

use super::StoreError;

/// One step of a schema.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Counts from 1 without gaps within its component.
    pub version: u32,
    /// The statements; all or none of them apply.
    pub sql: &'static str,
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS lockgate_migrations (
    component TEXT NOT NULL, version INTEGER NOT NULL, checksum TEXT NOT NULL, PRIMARY KEY (component, version))";

/// Any fixed number serves, as long as nothing else locks it: "lockgate" in ASCII.
const ADVISORY_LOCK: i64 = 0x6c6f_636b_6761_7465;

fn checksum(sql: &str) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(sql) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Whether the step still has to run. A step that ran with other text is an error: schema and binary disagree.
fn is_due(component: &str, migration: &Migration, applied: Option<&str>) -> Result<bool, StoreError> {
    match applied {
        None => Ok(true),
        Some(found) if found == checksum(migration.sql) => Ok(false),
        Some(_) => Err(StoreError::untouched(
            "migrate",
            format!(
                "migration {} of '{component}' was applied with other text; run the release that made this database",
                migration.version
            ),
        )),
    }
}

/// Applies what is missing to a SQLite database.
///
/// # Errors
/// A statement failed, or an applied migration differs from the embedded one. Nothing of a failed step stands.
pub fn apply_sqlite(
    connection: &mut Connection,
    component: &str,
    migrations: &[Migration],
) -> Result<(), StoreError> {
    let failed = |error: rusqlite::Error| StoreError::untouched("migrate", error);
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    tx.execute(TABLE, []).map_err(failed)?;
    for migration in migrations {
        let applied: Option<String> = tx
            .query_row(
                "SELECT checksum FROM lockgate_migrations WHERE component = ?1 AND version = ?2",
                (component, migration.version),
                |row| row.get(0),
            )
            .optional()
            .map_err(failed)?;
        if is_due(component, migration, applied.as_deref())? {
            tx.execute_batch(migration.sql).map_err(failed)?;
            tx.execute(
                "INSERT INTO lockgate_migrations VALUES (?1, ?2, ?3)",
                (component, migration.version, checksum(migration.sql)),
            )
            .map_err(failed)?;
        }
    }
    tx.commit().map_err(failed)
}

/// Applies what is missing to a PostgreSQL database. Processes that start together take turns.
///
/// # Errors
/// As [`apply_sqlite`].
pub async fn apply_postgres(
    client: &mut tokio_postgres::Client,
    component: &str,
    migrations: &[Migration],
) -> Result<(), StoreError> {
    let failed = |error: tokio_postgres::Error| StoreError::untouched("migrate", error);
    let tx = client.transaction().await.map_err(failed)?;
    // A busy server may take longer over a table than any query may, and a start that gives up helps nobody.
    tx.batch_execute("SET LOCAL statement_timeout = '60s'").await.map_err(failed)?;
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[&ADVISORY_LOCK]).await.map_err(failed)?;
    tx.batch_execute(TABLE).await.map_err(failed)?;
    for migration in migrations {
        let version = i32::try_from(migration.version).unwrap_or(i32::MAX);
        let row = tx
            .query_opt(
                "SELECT checksum FROM lockgate_migrations WHERE component = $1 AND version = $2",
                &[&component, &version],
            )
            .await
            .map_err(failed)?;
        let applied: Option<String> = row.map(|row| row.get(0));
        if is_due(component, migration, applied.as_deref())? {
            tx.batch_execute(migration.sql).await.map_err(failed)?;
            tx.execute(
                "INSERT INTO lockgate_migrations VALUES ($1, $2, $3)",
                &[&component, &version, &checksum(migration.sql)],
            )
            .await
            .map_err(failed)?;
        }
    }
    tx.commit().await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applies_once_and_refuses_a_changed_step() {
        let mut db = Connection::open_in_memory().unwrap();
        let first = [Migration { version: 1, sql: "CREATE TABLE a (x)" }];
        apply_sqlite(&mut db, "test", &first).unwrap();
        apply_sqlite(&mut db, "test", &first).unwrap();
        let changed = [Migration { version: 1, sql: "CREATE TABLE a (y)" }];
        assert!(apply_sqlite(&mut db, "test", &changed).unwrap_err().to_string().contains("other text"));
        // Another component numbers for itself.
        apply_sqlite(&mut db, "other", &[Migration { version: 1, sql: "CREATE TABLE b (x)" }]).unwrap();
    }

    #[test]
    fn a_failed_step_leaves_nothing() {
        let mut db = Connection::open_in_memory().unwrap();
        let bad = [Migration { version: 1, sql: "CREATE TABLE a (x); CREATE TABLE a (x)" }];
        assert!(apply_sqlite(&mut db, "test", &bad).is_err());
        apply_sqlite(&mut db, "test", &[Migration { version: 1, sql: "CREATE TABLE a (x)" }]).unwrap();
    }
}
