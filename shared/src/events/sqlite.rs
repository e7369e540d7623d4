//! The event log as a table, in the same file and the same transaction as the change it records.

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::{Batch, Event, EventKind, EventLog, parse_event, units_to_text};
use crate::{
    ids::SaleId,
    limits::EVENT_BATCH_MAX,
    store::{StoreError, migrations::Migration, sqlite::Sqlite},
};

/// The log's tables.
pub const EVENTS_SQLITE: &[Migration] = &[
    Migration { version: 1, sql: TABLES },
    Migration { version: 2, sql: "ALTER TABLE events ADD COLUMN abandoned TEXT;" },
];

const TABLES: &str = "
        CREATE TABLE events (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            sale TEXT NOT NULL, kind TEXT NOT NULL, claim TEXT NOT NULL, account TEXT NOT NULL, item TEXT NOT NULL,
            units TEXT NOT NULL, claimed_at INTEGER NOT NULL, deadline INTEGER NOT NULL, memo TEXT NOT NULL
        ) STRICT;
        CREATE INDEX events_by_sale ON events (sale, seq);
        CREATE TABLE event_groups (
            sale TEXT NOT NULL, name TEXT NOT NULL, acknowledged INTEGER NOT NULL, PRIMARY KEY (sale, name)
        ) STRICT, WITHOUT ROWID;
    ";

/// Appends an event inside the caller's transaction; `event.id` is ignored, the table numbers it.
///
/// # Errors
/// The statement failed.
pub fn append(
    connection: &Connection,
    sale: &SaleId,
    kind: EventKind,
    event: &Event,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO events (sale, kind, claim, account, item, units, claimed_at, deadline, memo, abandoned)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            sale.as_str(),
            kind.as_str(),
            event.claim.to_string(),
            event.account.to_string(),
            event.item.as_str(),
            units_to_text(&event.units),
            event.claimed_at.micros(),
            event.deadline.micros(),
            event.memo,
            event.abandoned.map(super::Abandoned::to_text),
        ])?;
    Ok(())
}

/// Reads the table. A SQLite file has one process, so a group has one consumer and its name does not matter.
pub struct SqliteEventLog {
    db: Sqlite,
}

impl SqliteEventLog {
    /// Over an open database that has [`EVENTS_SQLITE`] applied.
    #[must_use]
    pub fn new(db: Sqlite) -> Self {
        Self { db }
    }
}

#[async_trait]
impl EventLog for SqliteEventLog {
    async fn read(&self, sale: &SaleId, group: &str, _consumer: &str) -> Result<Batch, StoreError> {
        let (sale, group) = (sale.clone(), group.to_owned());
        self.db.read("read events", move |db| read(db, &sale, &group)).await
    }

    async fn acknowledge(&self, sale: &SaleId, group: &str, ids: &[String]) -> Result<(), StoreError> {
        let Some(last) = ids.iter().filter_map(|id| id.parse::<i64>().ok()).max() else {
            return Ok(());
        };
        let (sale, group) = (sale.clone(), group.to_owned());
        self.db
            .write("acknowledge events", move |db| {
                db.prepare_cached(
                    "INSERT INTO event_groups VALUES (?1, ?2, ?3) ON CONFLICT (sale, name)
                     DO UPDATE SET acknowledged = max(acknowledged, excluded.acknowledged)",
                )?
                .execute(params![sale.as_str(), group, last])
                .map(drop)
            })
            .await
    }
}

fn read(db: &Connection, sale: &SaleId, group: &str) -> rusqlite::Result<Batch> {
    let mut statement = db.prepare_cached(
        "SELECT seq, kind, claim, account, item, units, claimed_at, deadline, memo, abandoned FROM events
         WHERE sale = ?1 AND seq > coalesce((SELECT acknowledged FROM event_groups WHERE sale = ?1 AND name = ?2), 0)
         ORDER BY seq LIMIT ?3",
    )?;
    let mut rows = statement.query(params![sale.as_str(), group, EVENT_BATCH_MAX as i64])?;
    let mut batch = Batch::default();
    while let Some(row) = rows.next()? {
        let id = row.get::<_, i64>(0)?.to_string();
        let (claimed_at, deadline) = (row.get::<_, i64>(6)?.to_string(), row.get::<_, i64>(7)?.to_string());
        let parsed = parse_event(&id, |name| match name {
            "kind" => row.get_ref(1).ok()?.as_str().ok(),
            "claim" => row.get_ref(2).ok()?.as_str().ok(),
            "account" => row.get_ref(3).ok()?.as_str().ok(),
            "item" => row.get_ref(4).ok()?.as_str().ok(),
            "units" => row.get_ref(5).ok()?.as_str().ok(),
            "claimed_at" => Some(claimed_at.as_str()),
            "deadline" => Some(deadline.as_str()),
            "memo" => row.get_ref(8).ok()?.as_str().ok(),
            "abandoned" => row.get_ref(9).ok()?.as_str().ok(),
            _ => None,
        });
        match parsed {
            Ok(event) => batch.events.push(event),
            Err(poison) => batch.poison.push(poison),
        }
    }
    Ok(batch)
}
