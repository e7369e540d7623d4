//! Changing the stock of an item while its sale runs.

use lockgate_shared::{
    gate::{RestockAnswer, RestockRequest},
    ids::SaleId,
    limits::RESTOCKS_MAX,
};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Answer, rows};
use crate::{
    stock::{self, Restock},
    store::{self, Restocking},
};

/// Numbers may run past the stock, and what an account holds is counted in holds too.
pub(super) const TABLES: &str = "
        CREATE TABLE stock_items_4 (
            sale TEXT NOT NULL, item TEXT NOT NULL, place INTEGER NOT NULL, stock INTEGER NOT NULL,
            available INTEGER NOT NULL CHECK (available >= 0), held INTEGER NOT NULL CHECK (held >= 0),
            sold INTEGER NOT NULL CHECK (sold >= 0), next INTEGER NOT NULL CHECK (next BETWEEN 1 AND last + 1),
            last INTEGER NOT NULL CHECK (last >= 0),
            PRIMARY KEY (sale, item), CHECK (available + held + sold = stock)
        ) STRICT, WITHOUT ROWID;
        INSERT INTO stock_items_4
            SELECT sale, item, place, stock, available, held, sold, next, stock FROM stock_items;
        DROP TABLE stock_items;
        ALTER TABLE stock_items_4 RENAME TO stock_items;
        CREATE TABLE stock_restocks (
            sale TEXT NOT NULL, id TEXT NOT NULL, item TEXT NOT NULL, change INTEGER NOT NULL, PRIMARY KEY (sale, id)
        ) STRICT, WITHOUT ROWID;
        ALTER TABLE stock_accounts ADD COLUMN holds INTEGER NOT NULL DEFAULT 0 CHECK (holds >= 0);
        UPDATE stock_accounts SET holds = live_holds.count FROM (
            SELECT sale, account, count(*) AS count FROM stock_holds WHERE state IN ('held', 'expiring')
            GROUP BY sale, account
        ) AS live_holds WHERE live_holds.sale = stock_accounts.sale AND live_holds.account = stock_accounts.account;
    ";

pub(super) fn restock(db: &Connection, sale: &SaleId, change: &Restocking) -> Answer<RestockAnswer> {
    let request = &change.request;
    if let Err(why) = rows::clock(db, sale)? {
        return Ok(Err(why));
    }
    let known = known(db, sale, request)?;
    if known == Some(false) {
        return Ok(Ok(RestockAnswer::Mismatch));
    }
    let Some(counts) = rows::counts(db, sale, &request.item)? else {
        return Ok(Ok(RestockAnswer::NoSuchItem));
    };
    let shown = |counts| store::item_stock(request.item.clone(), &counts);
    if known == Some(true) || change.is_defined {
        return Ok(Ok(RestockAnswer::Changed { counts: shown(counts), replayed: true }));
    }
    let made: i64 = db
        .prepare_cached("SELECT count(*) FROM stock_restocks WHERE sale = ?1")?
        .query_row([sale.as_str()], |row| row.get(0))?;
    if usize::try_from(made).is_ok_and(|made| made >= RESTOCKS_MAX) {
        return Ok(Ok(RestockAnswer::TooManyChanges { most: RESTOCKS_MAX }));
    }
    let units: i64 = db
        .prepare_cached("SELECT sum(stock) FROM stock_items WHERE sale = ?1")?
        .query_row([sale.as_str()], |row| row.get(0))?;
    let below = stock::below_total_limit(units.unsigned_abs(), request.change, change.total_limit);
    if let Some((limit, total)) = below {
        return Ok(Ok(RestockAnswer::BelowTotalLimit { limit, total }));
    }
    let (after, withdrawn) = match stock::restock(counts, request.change) {
        Restock::Taken { least } => {
            return Ok(Ok(RestockAnswer::Taken { counts: shown(counts), least }));
        }
        Restock::TooMany { most } => {
            return Ok(Ok(RestockAnswer::TooMany { counts: shown(counts), most }));
        }
        Restock::Changes { counts, withdrawn } => (counts, withdrawn),
    };
    rows::set_counts(db, sale, &request.item, &after)?;
    db.prepare_cached(
        "DELETE FROM stock_returned WHERE sale = ?1 AND item = ?2 AND unit IN (
             SELECT unit FROM stock_returned WHERE sale = ?1 AND item = ?2 ORDER BY unit DESC LIMIT ?3)",
    )?
    .execute(params![sale.as_str(), request.item.as_str(), withdrawn])?;
    db.prepare_cached("INSERT INTO stock_restocks VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        sale.as_str(),
        request.id.to_string(),
        request.item.as_str(),
        request.change
    ])?;
    Ok(Ok(RestockAnswer::Changed { counts: shown(after), replayed: false }))
}

/// Every change that was made and can be read.
pub(super) fn made(db: &Connection, sale: &SaleId) -> rusqlite::Result<Vec<RestockRequest>> {
    let mut statement =
        db.prepare_cached("SELECT id, item, change FROM stock_restocks WHERE sale = ?1 ORDER BY id")?;
    let mut found = statement.query([sale.as_str()])?;
    let mut made = Vec::new();
    while let Some(row) = found.next()? {
        let (id, item): (String, String) = (row.get(0)?, row.get(1)?);
        if let (Ok(id), Ok(item)) = (id.parse(), item.parse()) {
            made.push(RestockRequest { id, item, change: row.get(2)? });
        }
    }
    Ok(made)
}

/// Whether this very change was made before; `Some(false)`: another was made under its id.
fn known(db: &Connection, sale: &SaleId, request: &RestockRequest) -> rusqlite::Result<Option<bool>> {
    db.prepare_cached("SELECT item = ?3 AND change = ?4 FROM stock_restocks WHERE sale = ?1 AND id = ?2")?
        .query_row(
            params![sale.as_str(), request.id.to_string(), request.item.as_str(), request.change],
            |row| row.get(0),
        )
        .optional()
}
