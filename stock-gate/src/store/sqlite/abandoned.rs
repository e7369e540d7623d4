//! Who let holds run out, and under which admission.

use lockgate_shared::{
    events::Abandoned,
    gate::Hold,
    ids::{AccountHash, ClaimId, SaleId},
};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::hold;

/// A claim's admission is kept while its hold is live and abandoned ones are counted.
pub(super) const TABLES: &str = "
        CREATE TABLE stock_admissions (
            sale TEXT NOT NULL, claim TEXT NOT NULL, admitted_at INTEGER NOT NULL, PRIMARY KEY (sale, claim)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE stock_abandoned (
            sale TEXT NOT NULL, account TEXT NOT NULL, admitted_at INTEGER NOT NULL, holds INTEGER NOT NULL,
            PRIMARY KEY (sale, account)
        ) STRICT, WITHOUT ROWID;
    ";

pub(super) fn of(
    db: &Connection,
    sale: &SaleId,
    account: &AccountHash,
) -> rusqlite::Result<Option<Abandoned>> {
    db.prepare_cached("SELECT admitted_at, holds FROM stock_abandoned WHERE sale = ?1 AND account = ?2")?
        .query_row(params![sale.as_str(), account.to_string()], |row| {
            Ok(Abandoned { admitted_at: row.get(0)?, holds: row.get(1)? })
        })
        .optional()
}

pub(super) fn note_admission(
    db: &Connection,
    sale: &SaleId,
    claim: ClaimId,
    admitted_at: i64,
) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO stock_admissions VALUES (?1, ?2, ?3)")?
        .execute(params![sale.as_str(), claim.to_string(), admitted_at])
        .map(drop)
}

/// Forgets a claim's admission, and says when it was given.
pub(super) fn end_admission(db: &Connection, sale: &SaleId, claim: ClaimId) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("DELETE FROM stock_admissions WHERE sale = ?1 AND claim = ?2 RETURNING admitted_at")?
        .query_row(params![sale.as_str(), claim.to_string()], |row| row.get(0))
        .optional()
}

/// Forgets the admission of a hold that is given back, and counts the hold if it was abandoned.
pub(super) fn settle(db: &Connection, sale: &SaleId, hold: &Hold) -> rusqlite::Result<Option<Abandoned>> {
    let Some(admitted_at) = end_admission(db, sale, hold.claim)?.filter(|_| hold::is_abandoned(hold.state))
    else {
        return Ok(None);
    };
    let Some(abandoned) = hold::abandoned(of(db, sale, &hold.account)?, admitted_at) else {
        return Ok(None);
    };
    db.prepare_cached("INSERT OR REPLACE INTO stock_abandoned VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        sale.as_str(),
        hold.account.to_string(),
        abandoned.admitted_at,
        abandoned.holds
    ])?;
    Ok(Some(abandoned))
}
