//! The catalog as a table.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{CatalogStore, PutOutcome, SaleRow};
use crate::store::{StoreError, migrations::Migration, sqlite::Sqlite};

/// The catalog's tables.
pub const CATALOG_SQLITE: &[Migration] = &[Migration {
    version: 1,
    sql: "CREATE TABLE sales (id TEXT PRIMARY KEY, version INTEGER NOT NULL, body TEXT NOT NULL) STRICT",
}];

/// Sales in a SQLite file.
#[derive(Clone)]
pub struct SqliteCatalog {
    db: Sqlite,
}

impl SqliteCatalog {
    /// Over a database to which [`CATALOG_SQLITE`] was applied.
    #[must_use]
    pub fn new(db: Sqlite) -> Self {
        Self { db }
    }
}

#[async_trait]
impl CatalogStore for SqliteCatalog {
    async fn list(&self) -> Result<Vec<SaleRow>, StoreError> {
        self.db
            .read("catalog list", |connection| {
                let mut rows = connection.prepare_cached("SELECT id, version, body FROM sales")?;
                let row = |row: &rusqlite::Row<'_>| {
                    Ok(SaleRow { id: row.get(0)?, version: from_sql(row.get(1)?), body: row.get(2)? })
                };
                rows.query_map([], row)?.collect()
            })
            .await
    }

    async fn put(&self, row: &SaleRow, expected: Option<u64>) -> Result<PutOutcome, StoreError> {
        let row = row.clone();
        self.db.write("catalog put", move |connection| put(connection, &row, expected)).await
    }
}

fn put(connection: &Connection, row: &SaleRow, expected: Option<u64>) -> rusqlite::Result<PutOutcome> {
    let stored = match expected {
        None => connection
            .prepare_cached(
                "INSERT INTO sales (id, version, body) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            )?
            .execute(params![row.id, to_sql(row.version), row.body])?,
        Some(expected) => connection
            .prepare_cached("UPDATE sales SET version = ?2, body = ?3 WHERE id = ?1 AND version = ?4")?
            .execute(params![row.id, to_sql(row.version), row.body, to_sql(expected)])?,
    };
    if stored == 1 {
        return Ok(PutOutcome::Stored);
    }
    let current = connection
        .prepare_cached("SELECT version FROM sales WHERE id = ?1")?
        .query_row([&row.id], |row| row.get(0))
        .optional()?;
    Ok(PutOutcome::Conflict { current: current.map(from_sql) })
}

fn to_sql(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

fn from_sql(version: i64) -> u64 {
    u64::try_from(version).unwrap_or(0)
}
