//! Freezing and rebuilding: the staged tables, and the step that puts them in the place of the old ones.

use lockgate_shared::{
    events::units_to_text,
    gate::{
        ConcludeAnswer, ConcludeRequest, Freeze, FreezeAnswer, HoldState, HoldsPage, StageAnswer,
        StageRequest,
    },
    ids::SaleId,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use uuid::Uuid;

use super::rows;
use crate::store::FreezeOrder;

/// What a rebuilt stock is made of, under the token of its upload.
pub(super) const TABLES: &str = "
        ALTER TABLE stock_sales ADD COLUMN generation INTEGER NOT NULL DEFAULT 1;
        ALTER TABLE stock_sales ADD COLUMN identity TEXT NOT NULL DEFAULT '';
        ALTER TABLE stock_sales ADD COLUMN frozen TEXT;
        ALTER TABLE stock_sales ADD COLUMN frozen_why TEXT;
        CREATE TABLE stock_staged_holds (
            sale TEXT NOT NULL, token TEXT NOT NULL, claim TEXT NOT NULL, account TEXT NOT NULL, item TEXT NOT NULL,
            units TEXT NOT NULL, state TEXT NOT NULL, claimed_at INTEGER NOT NULL, deadline INTEGER NOT NULL,
            memo TEXT NOT NULL, PRIMARY KEY (sale, token, claim)
        ) STRICT;
        CREATE TABLE stock_staged_accounts (
            sale TEXT NOT NULL, token TEXT NOT NULL, account TEXT NOT NULL, live INTEGER NOT NULL,
            holds INTEGER NOT NULL, PRIMARY KEY (sale, token, account)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE stock_staged_returned (
            sale TEXT NOT NULL, token TEXT NOT NULL, item TEXT NOT NULL, unit INTEGER NOT NULL,
            PRIMARY KEY (sale, token, item, unit)
        ) STRICT, WITHOUT ROWID;
    ";

pub(super) fn generation(db: &Connection, sale: &SaleId) -> rusqlite::Result<Option<u64>> {
    db.prepare_cached("SELECT generation FROM stock_sales WHERE sale = ?1")?
        .query_row([sale.as_str()], |row| number(row, 0))
        .optional()
}

/// Whatever counts here never falls below zero.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::unsigned_abs)
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The freeze that stands.
fn frozen(db: &Connection, sale: &SaleId) -> rusqlite::Result<Option<Freeze>> {
    let found: Option<(Option<String>, u64)> = db
        .prepare_cached("SELECT frozen, generation FROM stock_sales WHERE sale = ?1")?
        .query_row([sale.as_str()], |row| Ok((row.get(0)?, number(row, 1)?)))
        .optional()?;
    Ok(found.and_then(|(id, generation)| Some(Freeze { id: id?.parse().ok()?, generation })))
}

pub(super) fn freeze(db: &Connection, sale: &SaleId, order: &FreezeOrder) -> rusqlite::Result<FreezeAnswer> {
    if let Some(freeze) = frozen(db, sale)? {
        return Ok(FreezeAnswer::Frozen(freeze));
    }
    let known = generation(db, sale)?;
    if let (Some(generation), Some(wanted)) = (known, order.if_generation)
        && generation != wanted
    {
        return Ok(FreezeAnswer::Rebuilt { generation });
    }
    let generation = known.unwrap_or(0).max(order.at_least);
    db.execute(
        "INSERT INTO stock_sales (sale, clock, generation, frozen, frozen_why) VALUES (?1, 0, ?2, ?3, ?4)
         ON CONFLICT (sale) DO UPDATE SET generation = ?2, frozen = ?3, frozen_why = ?4",
        params![sale.as_str(), integer(generation), order.id.to_string(), order.why],
    )?;
    Ok(FreezeAnswer::Frozen(Freeze { id: order.id, generation }))
}

pub(super) fn holds(db: &Connection, sale: &SaleId, after: &str, max: usize) -> rusqlite::Result<HoldsPage> {
    let mut statement = db.prepare_cached(
        "SELECT claim, account, item, units, state, claimed_at, deadline, memo FROM stock_holds
         WHERE sale = ?1 AND claim > ?2 ORDER BY claim LIMIT ?3",
    )?;
    let mut found = statement.query(params![sale.as_str(), after, i64::try_from(max).unwrap_or(i64::MAX)])?;
    let (mut page, mut last, mut count) = (HoldsPage::default(), None, 0);
    while let Some(row) = found.next()? {
        last = Some(row.get::<_, String>(0)?);
        count += 1;
        match rows::hold_from(row) {
            Ok(hold) => page.holds.push(hold),
            Err(_) => page.unreadable += 1,
        }
    }
    page.next = last.filter(|_| count == max);
    Ok(page)
}

pub(super) fn stage(db: &Connection, sale: &SaleId, page: &StageRequest) -> rusqlite::Result<StageAnswer> {
    if frozen(db, sale)?.is_none_or(|freeze| freeze.id != page.freeze) {
        return Ok(StageAnswer::Stale);
    }
    let token = page.token.to_string();
    for hold in &page.holds {
        db.prepare_cached(
            "INSERT OR REPLACE INTO stock_staged_holds VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            sale.as_str(),
            token,
            hold.claim.to_string(),
            hold.account.to_string(),
            hold.item.as_str(),
            units_to_text(&hold.units),
            rows::state_word(hold.state),
            hold.claimed_at.micros(),
            hold.deadline.micros(),
            hold.memo,
        ])?;
    }
    for line in &page.accounts {
        db.prepare_cached("INSERT OR REPLACE INTO stock_staged_accounts VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![sale.as_str(), token, line.account.to_string(), line.units, line.holds])?;
    }
    for free in &page.returned {
        if let Some(item) = usize::try_from(free.place).ok().and_then(|place| page.items.get(place)) {
            db.prepare_cached("INSERT OR REPLACE INTO stock_staged_returned VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![sale.as_str(), token, item.as_str(), free.unit])?;
        }
    }
    Ok(StageAnswer::Staged)
}

pub(super) fn conclude(
    db: &Connection,
    sale: &SaleId,
    request: &ConcludeRequest,
) -> rusqlite::Result<ConcludeAnswer> {
    if frozen(db, sale)? != Some(request.freeze) {
        return Ok(ConcludeAnswer::Stale);
    }
    let expected = (request.holds, request.due, request.accounts, request.returned);
    if staged(db, sale, request.token)? != expected {
        return Ok(ConcludeAnswer::Incomplete);
    }
    let (sale, token) = (sale.as_str(), request.token.to_string());
    for (live, columns) in [
        ("holds", "claim, account, item, units, state, claimed_at, deadline, memo"),
        ("accounts", "account, live, holds"),
        ("returned", "item, unit"),
    ] {
        db.execute(&format!("DELETE FROM stock_{live} WHERE sale = ?1"), [sale])?;
        let moved = format!(
            "INSERT INTO stock_{live} (sale, {columns})
             SELECT sale, {columns} FROM stock_staged_{live} WHERE sale = ?1 AND token = ?2"
        );
        db.execute(&moved, [sale, &token])?;
        // With it goes what another process uploaded and never concluded.
        db.execute(&format!("DELETE FROM stock_staged_{live} WHERE sale = ?1"), [sale])?;
    }
    db.execute("DELETE FROM stock_items WHERE sale = ?1", [sale])?;
    for (place, line) in request.items.iter().enumerate() {
        let place = i64::try_from(place).unwrap_or(i64::MAX);
        db.execute(
            "INSERT INTO stock_items (sale, item, place, stock, available, held, sold, next, last)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                sale,
                line.item.as_str(),
                place,
                line.stock,
                line.available,
                line.held,
                line.sold,
                line.next,
                line.last
            ],
        )?;
    }
    let generation = request.freeze.generation + 1;
    db.execute(
        "UPDATE stock_sales SET generation = ?2, frozen = NULL, frozen_why = NULL, clock = max(clock, ?3)
         WHERE sale = ?1",
        params![sale, integer(generation), request.clock.micros()],
    )?;
    Ok(ConcludeAnswer::Reopened { generation })
}

/// How many holds, held ones among them, accounts and units were staged.
fn staged(db: &Connection, sale: &SaleId, token: Uuid) -> rusqlite::Result<(u64, u64, u64, u64)> {
    db.query_row(
        "SELECT (SELECT count(*) FROM stock_staged_holds WHERE sale = ?1 AND token = ?2),
             (SELECT count(*) FROM stock_staged_holds WHERE sale = ?1 AND token = ?2 AND state = ?3),
             (SELECT count(*) FROM stock_staged_accounts WHERE sale = ?1 AND token = ?2),
             (SELECT count(*) FROM stock_staged_returned WHERE sale = ?1 AND token = ?2)",
        params![sale.as_str(), token.to_string(), rows::state_word(HoldState::Held)],
        |row| Ok((number(row, 0)?, number(row, 1)?, number(row, 2)?, number(row, 3)?)),
    )
}
