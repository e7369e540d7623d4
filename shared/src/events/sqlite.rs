//! The event log as a table, in the same file and the same transaction as the change it records.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Backlog, Batch, Event, EventKind, EventLog, Trim, parse_event, units_to_text};
use crate::{
    ids::SaleId,
    limits::EVENT_BATCH_MAX,
    store::{StoreError, migrations::Migration, sqlite::Sqlite},
};

/// The log's tables.
pub const EVENTS_SQLITE: &[Migration] = &[
    Migration { version: 1, sql: TABLES },
    Migration { version: 2, sql: "ALTER TABLE events ADD COLUMN abandoned TEXT;" },
    Migration { version: 3, sql: GAPS },
];

/// Most events one trim removes, so that the writer's other work never waits long.
const TRIM_MAX: i64 = 1_000;
/// Most events one look at the backlog counts.
const BACKLOG_COUNTED_MAX: i64 = 1_000_000;

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

/// What a group passed by: it acknowledged later events, and these not.
const GAPS: &str = "
        CREATE TABLE event_gaps (
            sale TEXT NOT NULL, name TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (sale, name, seq)
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
    async fn read(
        &self,
        sale: &SaleId,
        group: &str,
        _consumer: &str,
        max: usize,
    ) -> Result<Batch, StoreError> {
        let (sale, group, max) = (sale.clone(), group.to_owned(), max.clamp(1, EVENT_BATCH_MAX));
        self.db.read("read events", move |db| read(db, &sale, &group, max)).await
    }

    async fn acknowledge(&self, sale: &SaleId, group: &str, ids: &[String]) -> Result<(), StoreError> {
        let mut ids: Vec<i64> = ids.iter().filter_map(|id| id.parse().ok()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        ids.sort_unstable();
        ids.dedup();
        let (sale, group) = (sale.clone(), group.to_owned());
        self.db.write("acknowledge events", move |db| acknowledge(db, &sale, &group, &ids)).await
    }

    async fn backlog(&self, sale: &SaleId, group: &str) -> Result<Backlog, StoreError> {
        let (sale, group) = (sale.clone(), group.to_owned());
        self.db
            .read("backlog", move |db| {
                let mut statement = db.prepare_cached(
                    "SELECT
                         (SELECT count(*) FROM (SELECT 1 FROM events WHERE sale = ?1 AND seq > coalesce(
                             (SELECT acknowledged FROM event_groups WHERE sale = ?1 AND name = ?2), 0) LIMIT ?3)),
                         (SELECT count(*) FROM event_gaps WHERE sale = ?1 AND name = ?2)",
                )?;
                statement.query_row(params![sale.as_str(), group, BACKLOG_COUNTED_MAX], |row| {
                    let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
                    Ok(Backlog { unread: count(0)?, pending: count(1)? })
                })
            })
            .await
    }

    async fn trim(&self, sale: &SaleId, groups: &[&str], keep: u64) -> Result<Trim, StoreError> {
        let sale = sale.clone();
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        self.db.write("trim", move |db| trim(db, &sale, &groups, keep)).await
    }

    async fn retire(&self, _sale: &SaleId, _group: &str, _idle_ms: u64) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn shares_work(&self) -> bool {
        false
    }
}

fn acknowledged(db: &Connection, sale: &SaleId, group: &str) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT acknowledged FROM event_groups WHERE sale = ?1 AND name = ?2")?
        .query_row(params![sale.as_str(), group], |row| row.get(0))
        .optional()
}

fn acknowledge(db: &Connection, sale: &SaleId, group: &str, ids: &[i64]) -> rusqlite::Result<()> {
    let before = acknowledged(db, sale, group)?.unwrap_or_default();
    let new = ids.partition_point(|id| *id <= before);
    let (old, new) = ids.split_at(new);
    let mut close = db.prepare_cached("DELETE FROM event_gaps WHERE sale = ?1 AND name = ?2 AND seq = ?3")?;
    for id in old {
        close.execute(params![sale.as_str(), group, id])?;
    }
    let Some(last) = new.last() else { return Ok(()) };
    let passed: i64 = db
        .prepare_cached("SELECT count(*) FROM events WHERE sale = ?1 AND seq > ?2 AND seq <= ?3")?
        .query_row(params![sale.as_str(), before, last], |row| row.get(0))?;
    if passed != i64::try_from(new.len()).unwrap_or(i64::MAX) {
        db.prepare_cached(
            "INSERT OR IGNORE INTO event_gaps
             SELECT sale, ?2, seq FROM events WHERE sale = ?1 AND seq > ?3 AND seq <= ?4",
        )?
        .execute(params![sale.as_str(), group, before, last])?;
        for id in new {
            close.execute(params![sale.as_str(), group, id])?;
        }
    }
    db.prepare_cached(
        "INSERT INTO event_groups VALUES (?1, ?2, ?3) ON CONFLICT (sale, name)
         DO UPDATE SET acknowledged = max(acknowledged, excluded.acknowledged)",
    )?
    .execute(params![sale.as_str(), group, last])
    .map(drop)
}

fn trim(db: &Connection, sale: &SaleId, groups: &[String], keep: u64) -> rusqlite::Result<Trim> {
    for group in groups {
        if acknowledged(db, sale, group)?.is_none() {
            return Ok(Trim::GroupMissing(group.clone()));
        }
    }
    let removed = db
        .prepare_cached(
            "DELETE FROM events WHERE seq IN (
                 SELECT seq FROM events WHERE sale = ?1
                     AND seq <= (SELECT min(acknowledged) FROM event_groups WHERE sale = ?1)
                     AND seq < coalesce((SELECT min(seq) FROM event_gaps WHERE sale = ?1), 9223372036854775807)
                     AND seq <= (SELECT seq FROM events WHERE sale = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)
                 ORDER BY seq LIMIT ?3)",
        )?
        .execute(params![sale.as_str(), i64::try_from(keep).unwrap_or(i64::MAX), TRIM_MAX])?;
    Ok(Trim::Trimmed(removed as u64))
}

fn read(db: &Connection, sale: &SaleId, group: &str, max: usize) -> rusqlite::Result<Batch> {
    let mut statement = db.prepare_cached(
        "SELECT seq, kind, claim, account, item, units, claimed_at, deadline, memo, abandoned FROM events
         WHERE seq IN (
             SELECT seq FROM event_gaps WHERE sale = ?1 AND name = ?2
             UNION
             SELECT seq FROM events WHERE sale = ?1 AND seq >
                 coalesce((SELECT acknowledged FROM event_groups WHERE sale = ?1 AND name = ?2), 0)
             ORDER BY seq LIMIT ?3)
         ORDER BY seq",
    )?;
    let mut rows = statement.query(params![sale.as_str(), group, max as i64])?;
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
