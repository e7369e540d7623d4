//! The gate's rows: one function per statement.

use lockgate_shared::{
    clock::Timestamp,
    events::{self, Abandoned, EventKind, units_from_text, units_to_text},
    gate::{Hold, HoldState},
    ids::{AccountHash, ClaimId, ItemId, SaleId},
};
use rusqlite::{Connection, OptionalExtension as _, Row, params, types::Type};

use super::Answer;
use crate::{
    stock::{Counts, Standing},
    store::{self, Suspicion},
};

pub(super) fn count(units: &[u32]) -> u32 {
    u32::try_from(units.len()).unwrap_or(u32::MAX)
}

pub(super) fn broken(item: &ItemId) -> Suspicion {
    Suspicion(format!("the counts of '{item}' do not add up"))
}

/// The last time this sale saw; a suspicion where it has no stock, or is frozen.
pub(super) fn clock(db: &Connection, sale: &SaleId) -> Answer<Timestamp> {
    let found = db
        .prepare_cached("SELECT clock, frozen IS NOT NULL FROM stock_sales WHERE sale = ?1")?
        .query_row([sale.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match found {
        None => Err(Suspicion::no_stock(sale)),
        Some((_, true)) => Err(Suspicion::frozen(sale)),
        Some((micros, false)) => Ok(Timestamp::from_micros(micros)),
    })
}

pub(super) fn set_clock(db: &Connection, sale: &SaleId, now: Timestamp) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE stock_sales SET clock = ?2 WHERE sale = ?1")?
        .execute(params![sale.as_str(), now.micros()])
        .map(drop)
}

pub(super) fn counts(db: &Connection, sale: &SaleId, item: &ItemId) -> rusqlite::Result<Option<Counts>> {
    db.prepare_cached(
        "SELECT stock, available, held, sold, next, last FROM stock_items WHERE sale = ?1 AND item = ?2",
    )?
    .query_row([sale.as_str(), item.as_str()], counts_from)
    .optional()
}

pub(super) fn counts_from(row: &Row<'_>) -> rusqlite::Result<Counts> {
    Ok(Counts {
        stock: row.get(0)?,
        available: row.get(1)?,
        held: row.get(2)?,
        sold: row.get(3)?,
        next: row.get(4)?,
        last: row.get(5)?,
    })
}

pub(super) fn set_counts(
    db: &Connection,
    sale: &SaleId,
    item: &ItemId,
    counts: &Counts,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE stock_items SET stock = ?7, available = ?3, held = ?4, sold = ?5, next = ?6, last = ?8 WHERE sale = ?1 AND item = ?2",
    )?
    .execute(params![
        sale.as_str(),
        item.as_str(),
        counts.available,
        counts.held,
        counts.sold,
        counts.next,
        counts.stock,
        counts.last
    ])
    .map(drop)
}

pub(super) fn standing(db: &Connection, sale: &SaleId, account: &AccountHash) -> rusqlite::Result<Standing> {
    let (total, held) = db
        .prepare_cached("SELECT sum(held + sold), sum(held) FROM stock_items WHERE sale = ?1")?
        .query_row([sale.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let live = live(db, sale, account)?;
    Ok(Standing { total, held, account: live.units, live_holds: live.holds, abandoned: 0 })
}

/// What an account has: units held or bought, and holds that are held or expiring.
#[derive(Clone, Copy, Default)]
pub(super) struct Live {
    pub(super) units: u32,
    pub(super) holds: u32,
}

impl Live {
    pub(super) fn claimed(self, units: u32) -> Self {
        Self { units: self.units.saturating_add(units), holds: self.holds.saturating_add(1) }
    }

    /// A hold is over, and gave so many units back.
    pub(super) fn ended(self, units: u32) -> Option<Self> {
        Some(Self { units: self.units.checked_sub(units)?, holds: self.holds.checked_sub(1)? })
    }
}

pub(super) fn live(db: &Connection, sale: &SaleId, account: &AccountHash) -> rusqlite::Result<Live> {
    let live = db
        .prepare_cached("SELECT live, holds FROM stock_accounts WHERE sale = ?1 AND account = ?2")?
        .query_row(params![sale.as_str(), account.to_string()], |row| {
            Ok(Live { units: row.get(0)?, holds: row.get(1)? })
        })
        .optional()?;
    Ok(live.unwrap_or_default())
}

pub(super) fn set_live(
    db: &Connection,
    sale: &SaleId,
    account: &AccountHash,
    live: Live,
) -> rusqlite::Result<()> {
    let account = account.to_string();
    db.prepare_cached(
        "INSERT INTO stock_accounts VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (sale, account) DO UPDATE SET live = ?3, holds = ?4",
    )?
    .execute(params![sale.as_str(), account, live.units, live.holds])
    .map(drop)
}

pub(super) fn returned(
    db: &Connection,
    sale: &SaleId,
    item: &ItemId,
    max: u32,
) -> rusqlite::Result<Vec<u32>> {
    db.prepare_cached("SELECT unit FROM stock_returned WHERE sale = ?1 AND item = ?2 ORDER BY unit LIMIT ?3")?
        .query_map(params![sale.as_str(), item.as_str(), max], |row| row.get(0))?
        .collect()
}

/// Takes the units of a new hold out of those that came back: all but the last `fresh`.
pub(super) fn take_returned(db: &Connection, sale: &SaleId, hold: &Hold, fresh: u32) -> rusqlite::Result<()> {
    let old = count(&hold.units).saturating_sub(fresh);
    for unit in hold.units.iter().take(usize::try_from(old).unwrap_or(0)) {
        db.prepare_cached("DELETE FROM stock_returned WHERE sale = ?1 AND item = ?2 AND unit = ?3")?
            .execute(params![sale.as_str(), hold.item.as_str(), unit])?;
    }
    Ok(())
}

pub(super) fn insert(db: &Connection, sale: &SaleId, hold: &Hold) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO stock_holds VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?
        .execute(params![
            sale.as_str(),
            hold.claim.to_string(),
            hold.account.to_string(),
            hold.item.as_str(),
            units_to_text(&hold.units),
            state_word(hold.state),
            hold.claimed_at.micros(),
            hold.deadline.micros(),
            hold.memo,
        ])
        .map(drop)
}

pub(super) fn set_state(
    db: &Connection,
    sale: &SaleId,
    claim: ClaimId,
    state: HoldState,
) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE stock_holds SET state = ?3 WHERE sale = ?1 AND claim = ?2")?
        .execute(params![sale.as_str(), claim.to_string(), state_word(state)])
        .map(drop)
}

pub(super) fn append(
    db: &Connection,
    sale: &SaleId,
    kind: EventKind,
    hold: &Hold,
    abandoned: Option<Abandoned>,
) -> rusqlite::Result<()> {
    events::sqlite::append(db, sale, kind, &store::event(kind, hold, abandoned))
}

pub(super) fn find(db: &Connection, sale: &SaleId, claim: ClaimId) -> rusqlite::Result<Option<Hold>> {
    db.prepare_cached(
        "SELECT claim, account, item, units, state, claimed_at, deadline, memo FROM stock_holds
         WHERE sale = ?1 AND claim = ?2",
    )?
    .query_row(params![sale.as_str(), claim.to_string()], hold_from)
    .optional()
}

pub(super) fn hold_from(row: &Row<'_>) -> rusqlite::Result<Hold> {
    let units: String = row.get(3)?;
    let state: String = row.get(4)?;
    Ok(Hold {
        claim: parsed(row, 0)?,
        account: parsed(row, 1)?,
        item: parsed(row, 2)?,
        units: units_from_text(&units).map_err(|why| unreadable(3, why))?,
        state: parse_state(&state).ok_or_else(|| unreadable(4, format!("'{state}' is no state")))?,
        claimed_at: Timestamp::from_micros(row.get(5)?),
        deadline: Timestamp::from_micros(row.get(6)?),
        memo: row.get(7)?,
    })
}

pub(super) fn parsed<T: std::str::FromStr<Err = String>>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    text.parse().map_err(|why| unreadable(column, why))
}

fn unreadable(column: usize, why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, why.into())
}

pub(super) fn state_word(state: HoldState) -> &'static str {
    match state {
        HoldState::Held => "held",
        HoldState::Expiring => "expiring",
        HoldState::Committed => "committed",
        HoldState::Released => "released",
    }
}

fn parse_state(word: &str) -> Option<HoldState> {
    [HoldState::Held, HoldState::Expiring, HoldState::Committed, HoldState::Released]
        .into_iter()
        .find(|state| state_word(*state) == word)
}
