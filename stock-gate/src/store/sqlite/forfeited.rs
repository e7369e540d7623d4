//! Admissions that were given up.

use lockgate_shared::{
    gate::ForfeitAnswer,
    ids::{SaleId, TokenId},
};
use rusqlite::{Connection, params};

use super::{Answer, rows};

/// One row per admission that was given up.
pub(super) const TABLE: &str = "
        CREATE TABLE stock_forfeited (
            sale TEXT NOT NULL, token_id TEXT NOT NULL, PRIMARY KEY (sale, token_id)
        ) STRICT, WITHOUT ROWID;
    ";

pub(super) fn forfeit(db: &Connection, sale: &SaleId, token_id: &TokenId) -> Answer<ForfeitAnswer> {
    if let Err(why) = rows::clock(db, sale)? {
        return Ok(Err(why));
    }
    db.prepare_cached("INSERT OR IGNORE INTO stock_forfeited VALUES (?1, ?2)")?
        .execute(params![sale.as_str(), token_id.as_str()])?;
    Ok(Ok(ForfeitAnswer::Forfeited))
}

pub(super) fn is_forfeited(db: &Connection, sale: &SaleId, token_id: &TokenId) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT EXISTS (SELECT 1 FROM stock_forfeited WHERE sale = ?1 AND token_id = ?2)")?
        .query_row(params![sale.as_str(), token_id.as_str()], |row| row.get(0))
}
