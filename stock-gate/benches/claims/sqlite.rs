//! Claims on SQLite against one thread that runs the same statements by rusqlite alone, as many in a transaction as
//! the writer takes at most.

use std::{path::Path, sync::Arc, time::Instant};

use lockgate_shared::{
    clock::SystemClock, events::sqlite::EVENTS_SQLITE, limits::WRITE_BATCH_MAX, store::sqlite::Sqlite,
};
use lockgate_stock_gate::{STOCK_SQLITE, SqliteStore, Store};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{claim, claims_per_second, open_stock, round_time, rounds, tell};

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, &[("events", EVENTS_SQLITE), ("stock", STOCK_SQLITE)]).unwrap()
}

async fn prepared(path: &Path) -> Arc<dyn Store> {
    let store = SqliteStore::new(open(path), Arc::new(SystemClock));
    open_stock(&store).await.unwrap();
    Arc::new(store)
}

pub(super) async fn run() {
    for under_way in [256, 1_024] {
        let (mut subject, mut yardsticks) = (Vec::new(), Vec::new());
        for _ in 0..rounds() {
            let dir = tempfile::tempdir().unwrap();
            let store = prepared(&dir.path().join("subject.db")).await;
            subject.push(claims_per_second(&store, under_way).await);
            drop(store);
            let path = dir.path().join("bare.db");
            drop(prepared(&path).await);
            yardsticks.push(tokio::task::spawn_blocking(move || bare(&path)).await.unwrap());
        }
        tell(&format!("SQLite, {under_way} under way"), &subject, &yardsticks, Some(0.7));
    }
}

/// Claims a second of the statements alone.
fn bare(path: &Path) -> f64 {
    let db = Connection::open(path).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    db.pragma_update(None, "synchronous", "FULL").unwrap();
    db.pragma_update(None, "foreign_keys", "ON").unwrap();
    db.set_prepared_statement_cache_capacity(256);
    let (started, mut made) = (Instant::now(), 0_u64);
    while started.elapsed() < round_time() {
        db.prepare_cached("BEGIN IMMEDIATE").unwrap().execute([]).unwrap();
        for _ in 0..WRITE_BATCH_MAX {
            made += 1;
            one(&db, made).unwrap();
        }
        db.prepare_cached("COMMIT").unwrap().execute([]).unwrap();
    }
    made as f64 / started.elapsed().as_secs_f64()
}

/// The statements of one winning claim, with values of the same lengths.
fn one(db: &Connection, n: u64) -> rusqlite::Result<()> {
    let claim = claim(n).request;
    let (sale, claim_id, account) = ("bench", claim.claim.to_string(), claim.account.to_string());
    let clock: i64 = db
        .prepare_cached("SELECT clock, frozen IS NOT NULL FROM stock_sales WHERE sale = ?1")?
        .query_row([sale], |row| row.get(0))?;
    let known: Option<String> = db
        .prepare_cached(
            "SELECT claim, account, item, units, state, claimed_at, deadline, memo FROM stock_holds
             WHERE sale = ?1 AND claim = ?2",
        )?
        .query_row(params![sale, claim_id], |row| row.get(0))
        .optional()?;
    assert!(known.is_none());
    db.prepare_cached("SELECT EXISTS (SELECT 1 FROM stock_forfeited WHERE sale = ?1 AND token_id = ?2)")?
        .query_row(params![sale, claim.token_id.as_str()], |row| row.get::<_, bool>(0))?;
    let [stock, available, held, sold, next, last]: [u32; 6] = db
        .prepare_cached(
            "SELECT stock, available, held, sold, next, last FROM stock_items WHERE sale = ?1 AND item = ?2",
        )?
        .query_row([sale, "phone"], |row| {
            Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?])
        })?;
    db.prepare_cached("SELECT sum(held + sold), sum(held) FROM stock_items WHERE sale = ?1")?
        .query_row([sale], |row| row.get::<_, u32>(0))?;
    let live: Option<u32> = db
        .prepare_cached("SELECT live, holds FROM stock_accounts WHERE sale = ?1 AND account = ?2")?
        .query_row(params![sale, account], |row| row.get(0))
        .optional()?;
    let returned: Option<u32> = db
        .prepare_cached(
            "SELECT unit FROM stock_returned WHERE sale = ?1 AND item = ?2 ORDER BY unit LIMIT ?3",
        )?
        .query_row(params![sale, "phone", 1], |row| row.get(0))
        .optional()?;
    assert!(returned.is_none());
    db.prepare_cached(
        "UPDATE stock_items SET stock = ?7, available = ?3, held = ?4, sold = ?5, next = ?6, last = ?8 WHERE sale = ?1 AND item = ?2",
    )?
    .execute(params![sale, "phone", available - 1, held + 1, sold, next + 1, stock, last])?;
    db.prepare_cached(
        "INSERT INTO stock_accounts VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (sale, account) DO UPDATE SET live = ?3, holds = ?4",
    )?
    .execute(params![sale, account, live.unwrap_or(0) + 1, 1])?;
    let (now, units) = (clock.max(1_800_000_000_000_000) + 1, next.to_string());
    db.prepare_cached("INSERT INTO stock_holds VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?.execute(
        params![sale, claim_id, account, "phone", units, "held", now, now + 600_000_000, claim.memo],
    )?;
    db.prepare_cached("UPDATE stock_sales SET clock = ?2 WHERE sale = ?1")?.execute(params![sale, now])?;
    db.prepare_cached(
        "INSERT INTO events (sale, kind, claim, account, item, units, claimed_at, deadline, memo, abandoned)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        sale,
        "claimed",
        claim_id,
        account,
        "phone",
        units,
        now,
        now + 600_000_000,
        claim.memo,
        None::<String>
    ])?;
    Ok(())
}
