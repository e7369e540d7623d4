//! The line in a SQLite file: one transaction per verb, many verbs per commit.

mod allowed;
mod rights;

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    ids::{AccountHash, SaleId},
    proof_of_work::Proof,
    store::{StoreError, migrations::Migration, sqlite::Sqlite},
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{
    Advanced, Allowed, Departure, EnterAnswer, Entered, Entry, Forfeit, LOG_PER_CALL_MAX, LaneReport,
    LaneView, Listed, LogsRead, Move, ROWS_PER_CALL_MAX, Recorded, Redeemed, Redemption, Renewal, Right,
    Seat, SeatState, Spent, Store,
    proofs::{PROOFS, spend_in_sqlite},
    rules::{self, Entering, Redeeming},
};
use crate::{
    admission::AdmissionRecord,
    numbering::{row_from_text, row_to_text},
};

/// The line's tables. Times are whole seconds.
pub const LINE_SQLITE: &[Migration] = &[
    Migration { version: 1, sql: TABLES },
    Migration {
        version: 2,
        sql: "ALTER TABLE line_records ADD COLUMN rows_first INTEGER NOT NULL DEFAULT 0;",
    },
    Migration { version: 3, sql: rights::TABLES },
    Migration { version: 4, sql: allowed::TABLE },
    Migration {
        version: 5,
        sql: "ALTER TABLE line_records ADD COLUMN lease_life_ms INTEGER NOT NULL DEFAULT 0;",
    },
    Migration { version: 6, sql: PROOFS },
];

const TABLES: &str = "
        CREATE TABLE line_seats (
            sale TEXT NOT NULL, lane INTEGER NOT NULL, account BLOB NOT NULL, seq INTEGER NOT NULL,
            has_left INTEGER NOT NULL DEFAULT 0, jti TEXT, issued_at INTEGER, expires_at INTEGER, epoch INTEGER,
            PRIMARY KEY (sale, lane, account)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE line_lanes (
            sale TEXT NOT NULL, lane INTEGER NOT NULL, next INTEGER NOT NULL, PRIMARY KEY (sale, lane)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE line_left (
            sale TEXT NOT NULL, lane INTEGER NOT NULL, position INTEGER NOT NULL, seq INTEGER NOT NULL,
            PRIMARY KEY (sale, lane, position)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE line_records (
            sale TEXT NOT NULL PRIMARY KEY, version INTEGER NOT NULL DEFAULT 0, record TEXT,
            fence INTEGER NOT NULL DEFAULT 0, holder TEXT, lease_until_ms INTEGER NOT NULL DEFAULT 0
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE line_rows (
            sale TEXT NOT NULL, position INTEGER NOT NULL, counts TEXT NOT NULL, PRIMARY KEY (sale, position)
        ) STRICT, WITHOUT ROWID;
    ";

/// The line in SQLite.
#[derive(Clone)]
pub struct SqliteStore {
    db: Sqlite,
}

impl SqliteStore {
    /// Over an open database that has [`LINE_SQLITE`] applied.
    #[must_use]
    pub fn new(db: Sqlite) -> Self {
        Self { db }
    }
}

/// One lane inside a transaction.
struct Lane<'a> {
    db: &'a Connection,
    sale: &'a str,
    lane: u16,
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|number| u64::try_from(number).unwrap_or(0))
}

fn read_seat(row: &Row<'_>) -> rusqlite::Result<Seat> {
    let jti: Option<String> = row.get(2)?;
    let state = match jti {
        _ if row.get(1)? => SeatState::Left,
        None => SeatState::Waiting,
        Some(jti) => SeatState::Admitted(Right {
            jti,
            issued_at: Timestamp::from_seconds(row.get(3)?),
            expires_at: Timestamp::from_seconds(row.get(4)?),
            epoch: row.get(5)?,
        }),
    };
    Ok(Seat { seq: unsigned(row, 0)?, state })
}

impl Lane<'_> {
    fn seat(&self, account: AccountHash) -> rusqlite::Result<Option<Seat>> {
        self.db
            .prepare_cached(
                "SELECT seq, has_left, jti, issued_at, expires_at, epoch FROM line_seats
                 WHERE sale = ?1 AND lane = ?2 AND account = ?3",
            )?
            .query_row(params![self.sale, self.lane, account.as_bytes()], read_seat)
            .optional()
    }

    fn next(&self) -> rusqlite::Result<u64> {
        self.db
            .prepare_cached("SELECT next FROM line_lanes WHERE sale = ?1 AND lane = ?2")?
            .query_row(params![self.sale, self.lane], |row| unsigned(row, 0))
            .optional()
            .map(|next| next.unwrap_or(0))
    }

    fn put(&self, account: AccountHash, seat: &Seat) -> rusqlite::Result<()> {
        let right = match &seat.state {
            SeatState::Admitted(right) => Some(right),
            SeatState::Waiting | SeatState::Left => None,
        };
        self.db
            .prepare_cached("INSERT OR REPLACE INTO line_seats VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?
            .execute(params![
                self.sale,
                self.lane,
                account.as_bytes(),
                signed(seat.seq),
                seat.state == SeatState::Left,
                right.map(|right| &right.jti),
                right.map(|right| right.issued_at.seconds()),
                right.map(|right| right.expires_at.seconds()),
                right.map(|right| right.epoch),
            ])?;
        self.db
            .prepare_cached(
                "INSERT INTO line_lanes VALUES (?1, ?2, ?3) ON CONFLICT (sale, lane)
                 DO UPDATE SET next = max(next, excluded.next)",
            )?
            .execute(params![self.sale, self.lane, signed(seat.seq.saturating_add(1))])?;
        Ok(())
    }

    fn enter(&self, entry: &Entry, view: LaneView, now: Timestamp) -> rusqlite::Result<EnterAnswer> {
        if entry.listed_as.is_some()
            && !rules::is_let_in(entry.listed_as, allowed::email_of(self, entry.account)?)
        {
            let has_list = allowed::has_list(self)?;
            return Ok(if has_list { EnterAnswer::NotListed } else { EnterAnswer::NoList });
        }
        self.place(entry, view, now).map(EnterAnswer::Entered)
    }

    fn place(&self, entry: &Entry, view: LaneView, now: Timestamp) -> rusqlite::Result<Entered> {
        let held = self.seat(entry.account)?;
        let (seq, fresh) = match rules::entering(held.as_ref(), entry, view, now) {
            Entering::Keep(seat) => return Ok(Entered { seat, fresh: false }),
            Entering::Restore(seq) => (seq, false),
            Entering::Next => (self.next()?.max(view.numbered), true),
        };
        let seat = Seat { seq, state: SeatState::Waiting };
        self.put(entry.account, &seat)?;
        Ok(Entered { seat, fresh })
    }

    fn redeem(&self, redemption: &Redemption) -> rusqlite::Result<Redeemed> {
        let held = self.seat(redemption.account)?;
        match rules::redeeming(held.as_ref(), redemption) {
            Redeeming::Answer(answer) => Ok(answer),
            Redeeming::Write { right, is_first } => {
                let state = SeatState::Admitted(right.clone());
                self.put(redemption.account, &Seat { seq: redemption.seq, state })?;
                if is_first {
                    self.note_right(redemption.seq, &right, redemption.now)?;
                }
                Ok(Redeemed::Admitted(right))
            }
        }
    }

    fn leave(&self, account: AccountHash, seq: u64, forfeited: Option<&str>) -> rusqlite::Result<Departure> {
        let (departure, writes) = rules::leaving(self.seat(account)?.as_ref(), seq, forfeited);
        if writes {
            self.put(account, &Seat { seq, state: SeatState::Left })?;
            self.append("line_left", seq)?;
            self.end_right(seq)?;
        }
        Ok(departure)
    }

    fn append(&self, log: &'static str, seq: u64) -> rusqlite::Result<()> {
        self.db
            .prepare_cached(&format!(
                "INSERT INTO {log} SELECT ?1, ?2, coalesce(max(position), -1) + 1, ?3
                 FROM {log} WHERE sale = ?1 AND lane = ?2"
            ))?
            .execute(params![self.sale, self.lane, signed(seq)])
            .map(drop)
    }

    /// The log from `read` on, and how far it is read then. A log shorter than what was read is read anew.
    fn read_on(&self, log: &'static str, read: u64) -> rusqlite::Result<(Vec<u64>, u64)> {
        let logged: u64 = self
            .db
            .prepare_cached(&format!(
                "SELECT coalesce(max(position), -1) + 1 FROM {log} WHERE sale = ?1 AND lane = ?2"
            ))?
            .query_row(params![self.sale, self.lane], |row| unsigned(row, 0))?;
        let from = if read > logged { 0 } else { read };
        let new: Vec<u64> = self
            .db
            .prepare_cached(&format!(
                "SELECT seq FROM {log} WHERE sale = ?1 AND lane = ?2 AND position >= ?3
                 ORDER BY position LIMIT ?4"
            ))?
            .query_map(params![self.sale, self.lane, signed(from), LOG_PER_CALL_MAX as i64], |row| {
                unsigned(row, 0)
            })?
            .collect::<rusqlite::Result<_>>()?;
        let read = from + new.len() as u64;
        Ok((new, read))
    }

    fn survey(&self, read: LogsRead, now: Timestamp) -> rusqlite::Result<LaneReport> {
        let (newly_left, left) = self.read_on("line_left", read.left)?;
        let (newly_redeemed, redeemed) = self.read_on("line_redeemed", read.redeemed)?;
        let active = self
            .db
            .prepare_cached(
                "SELECT count(*) FROM line_rights WHERE sale = ?1 AND lane = ?2 AND expires_at > ?3",
            )?
            .query_row(params![self.sale, self.lane, now.seconds()], |row| unsigned(row, 0))?;
        let read = LogsRead { left, redeemed };
        Ok(LaneReport { count: self.next()?, newly_left, newly_redeemed, active, read })
    }
}

fn lease(
    db: &Connection,
    sale: &str,
    holder: &str,
    lease_ms: u64,
    knows: u64,
) -> rusqlite::Result<Option<u64>> {
    let now: i64 = db
        .prepare_cached("SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)")?
        .query_row([], |row| row.get(0))?;
    // Take it where it is free, ours, or held by somebody who knows less than we and more than the store; raise the
    // fence unless it was ours without a gap. One that ends later than it could was given before the clock was set.
    db.prepare_cached(
        "INSERT INTO line_records (sale, fence, holder, lease_until_ms, lease_life_ms)
         VALUES (?1, 1, ?2, ?4 + ?3, ?3)
         ON CONFLICT (sale) DO UPDATE SET
            fence = fence + NOT (holder IS excluded.holder AND lease_until_ms BETWEEN ?4 + 1 AND ?4 + lease_life_ms),
            holder = excluded.holder, lease_until_ms = excluded.lease_until_ms, lease_life_ms = excluded.lease_life_ms
         WHERE holder IS excluded.holder OR lease_until_ms NOT BETWEEN ?4 + 1 AND ?4 + lease_life_ms OR version < ?5
         RETURNING fence",
    )?
    .query_row(params![sale, holder, signed(lease_ms), now, signed(knows)], |row| unsigned(row, 0))
    .optional()
}

fn corrupt(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, error.into())
}

fn record(db: &Connection, sale: &str, rows_from: usize) -> rusqlite::Result<Recorded> {
    // One read transaction: the record and the rows that came with it belong together.
    let rows_from = i64::try_from(rows_from).unwrap_or(i64::MAX);
    let tx = db.unchecked_transaction()?;
    let (text, rows_first): (Option<String>, u64) = tx
        .prepare_cached("SELECT record, rows_first FROM line_records WHERE sale = ?1")?
        .query_row([sale], |row| Ok((row.get(0)?, unsigned(row, 1)?)))
        .optional()?
        .unwrap_or_default();
    let rows_total = rows_total(&tx, sale)?;
    let rows: Vec<Vec<u64>> = tx
        .prepare_cached(
            "SELECT counts FROM line_rows WHERE sale = ?1 AND position >= ?2 ORDER BY position LIMIT ?3",
        )?
        .query_map(params![sale, rows_from, ROWS_PER_CALL_MAX as i64], |row| {
            row_from_text(row.get_ref(0)?.as_str()?).map_err(corrupt)
        })?
        .collect::<rusqlite::Result<_>>()?;
    let record = match text {
        Some(text) => serde_json::from_str(&text).map_err(corrupt)?,
        None => AdmissionRecord::default(),
    };
    let position = |number| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(Recorded { record, rows_total: position(rows_total), rows_first: position(rows_first), rows })
}

/// The position of the next row. Positions are never given again, even where all rows before are gone.
fn rows_total(db: &Connection, sale: &str) -> rusqlite::Result<u64> {
    db.prepare_cached(
        "SELECT max(coalesce((SELECT max(position) + 1 FROM line_rows WHERE sale = ?1), 0),
                    coalesce((SELECT rows_first FROM line_records WHERE sale = ?1), 0))",
    )?
    .query_row([sale], |row| unsigned(row, 0))
}

fn fold(db: &Connection, sale: &str, fence: u64, rows_first: usize) -> rusqlite::Result<Advanced> {
    let rows_first = i64::try_from(rows_first).unwrap_or(i64::MAX);
    let held = db
        .prepare_cached("SELECT fence FROM line_records WHERE sale = ?1")?
        .query_row([sale], |row| unsigned(row, 0))
        .optional()?;
    if held.unwrap_or(0) != fence {
        return Ok(Advanced::Fenced);
    }
    db.prepare_cached(
        "INSERT INTO line_records (sale, rows_first) VALUES (?1, ?2)
         ON CONFLICT (sale) DO UPDATE SET rows_first = max(rows_first, excluded.rows_first)",
    )?
    .execute(params![sale, rows_first])?;
    db.prepare_cached("DELETE FROM line_rows WHERE sale = ?1 AND position < ?2")?
        .execute(params![sale, rows_first])?;
    Ok(Advanced::Advanced)
}

fn advance(db: &Connection, sale: &str, step: &Move) -> rusqlite::Result<Advanced> {
    let held: Option<(u64, u64, u64)> = db
        .prepare_cached("SELECT fence, version, rows_first FROM line_records WHERE sale = ?1")?
        .query_row([sale], |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?, unsigned(row, 2)?)))
        .optional()?;
    let (fence, version, rows_first) = held.unwrap_or_default();
    if fence != step.fence {
        return Ok(Advanced::Fenced);
    }
    let from = step.rows_from as u64;
    if version != step.expected_version || from < rows_first || rows_total(db, sale)? < from {
        return Ok(Advanced::Stale);
    }
    let record = serde_json::to_string(&step.record).map_err(corrupt)?;
    db.prepare_cached(
        "INSERT INTO line_records (sale, version, record) VALUES (?1, ?2, ?3)
         ON CONFLICT (sale) DO UPDATE SET version = excluded.version, record = excluded.record",
    )?
    .execute(params![sale, signed(step.record.version), record])?;
    db.prepare_cached("DELETE FROM line_rows WHERE sale = ?1 AND position >= ?2")?
        .execute(params![sale, signed(from)])?;
    for (position, row) in (from..).zip(&step.rows) {
        db.prepare_cached("INSERT INTO line_rows VALUES (?1, ?2, ?3)")?.execute(params![
            sale,
            signed(position),
            row_to_text(row)
        ])?;
    }
    Ok(Advanced::Advanced)
}

#[async_trait]
impl Store for SqliteStore {
    async fn enter(
        &self,
        sale: &SaleId,
        lane: u16,
        entries: &[Entry],
        view: LaneView,
        now: Timestamp,
    ) -> Result<Vec<EnterAnswer>, StoreError> {
        let (sale, entries) = (sale.clone(), entries.to_vec());
        let op = move |db: &Connection| {
            let lane = Lane { db, sale: sale.as_str(), lane };
            entries.iter().map(|entry| lane.enter(entry, view, now)).collect()
        };
        self.db.write("enter", op).await
    }

    async fn allow(&self, sale: &SaleId, lane: u16, listed: &[Listed]) -> Result<Allowed, StoreError> {
        let (sale, listed) = (sale.clone(), listed.to_vec());
        let op = move |db: &Connection| allowed::allow(&Lane { db, sale: sale.as_str(), lane }, &listed);
        self.db.write("allow", op).await
    }

    async fn redeem(
        &self,
        sale: &SaleId,
        lane: u16,
        redemptions: &[Redemption],
    ) -> Result<Vec<Redeemed>, StoreError> {
        let (sale, redemptions) = (sale.clone(), redemptions.to_vec());
        let op = move |db: &Connection| {
            let lane = Lane { db, sale: sale.as_str(), lane };
            redemptions.iter().map(|redemption| lane.redeem(redemption)).collect()
        };
        self.db.write("redeem", op).await
    }

    async fn leave(
        &self,
        sale: &SaleId,
        lane: u16,
        account: AccountHash,
        seq: u64,
        forfeited: Option<&str>,
    ) -> Result<Departure, StoreError> {
        let (sale, forfeited) = (sale.clone(), forfeited.map(str::to_owned));
        let op = move |db: &Connection| {
            Lane { db, sale: sale.as_str(), lane }.leave(account, seq, forfeited.as_deref())
        };
        self.db.write("leave", op).await
    }

    async fn seat(&self, sale: &SaleId, lane: u16, account: AccountHash) -> Result<Option<Seat>, StoreError> {
        let sale = sale.clone();
        let op = move |db: &Connection| Lane { db, sale: sale.as_str(), lane }.seat(account);
        self.db.read("seat", op).await
    }

    async fn conclude(&self, sale: &SaleId, lane: u16, accounts: &[AccountHash]) -> Result<u64, StoreError> {
        let (sale, accounts) = (sale.clone(), accounts.to_vec());
        let op = move |db: &Connection| Lane { db, sale: sale.as_str(), lane }.conclude(&accounts);
        self.db.write("conclude", op).await
    }

    async fn forfeit(&self, sale: &SaleId, lane: u16, forfeits: &[Forfeit]) -> Result<u64, StoreError> {
        let (sale, forfeits) = (sale.clone(), forfeits.to_vec());
        let op = move |db: &Connection| rights::forfeit(&Lane { db, sale: sale.as_str(), lane }, &forfeits);
        self.db.write("forfeit", op).await
    }

    async fn renew(&self, sale: &SaleId, lane: u16, renewal: &Renewal) -> Result<Option<Right>, StoreError> {
        let (sale, renewal) = (sale.clone(), renewal.clone());
        let op = move |db: &Connection| rights::renew(&Lane { db, sale: sale.as_str(), lane }, &renewal);
        self.db.write("renew", op).await
    }

    async fn spend(
        &self,
        sale: &SaleId,
        proof: Proof,
        account: AccountHash,
        now: Timestamp,
    ) -> Result<Spent, StoreError> {
        let sale = sale.clone();
        self.db.write("spend", move |db| spend_in_sqlite(db, &sale, proof, account, now)).await
    }

    async fn survey(&self, sale: &SaleId, read: &[LogsRead], now: Timestamp) -> Vec<Option<LaneReport>> {
        let (sale, read) = (sale.clone(), read.to_vec());
        let lanes = read.len();
        let op = move |db: &Connection| -> rusqlite::Result<Vec<LaneReport>> {
            // One view of each lane: a redemption must not stand in the log and be missing among the rights.
            let tx = db.unchecked_transaction()?;
            let lanes = (0u16..).zip(read);
            lanes.map(|(lane, read)| Lane { db: &tx, sale: sale.as_str(), lane }.survey(read, now)).collect()
        };
        match self.db.read("survey", op).await {
            Ok(reports) => reports.into_iter().map(Some).collect(),
            Err(error) => {
                tracing::debug!(%error, "no lane could be surveyed");
                vec![None; lanes]
            }
        }
    }

    async fn lease(
        &self,
        sale: &SaleId,
        holder: &str,
        lease_ms: u64,
        knows: u64,
    ) -> Result<Option<u64>, StoreError> {
        let (sale, holder) = (sale.clone(), holder.to_owned());
        self.db.write("lease", move |db| lease(db, sale.as_str(), &holder, lease_ms, knows)).await
    }

    async fn record(&self, sale: &SaleId, rows_from: usize) -> Result<Recorded, StoreError> {
        let sale = sale.clone();
        self.db.read("record", move |db| record(db, sale.as_str(), rows_from)).await
    }

    async fn advance(&self, sale: &SaleId, step: &Move) -> Result<Advanced, StoreError> {
        let (sale, step) = (sale.clone(), step.clone());
        self.db.write("advance", move |db| advance(db, sale.as_str(), &step)).await
    }

    async fn fold(&self, sale: &SaleId, fence: u64, rows_first: usize) -> Result<Advanced, StoreError> {
        let sale = sale.clone();
        self.db.write("fold", move |db| fold(db, sale.as_str(), fence, rows_first)).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.db.read("ping", |db| db.query_row("SELECT 1", [], |_| Ok(()))).await
    }
}
