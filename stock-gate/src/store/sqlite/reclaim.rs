//! Reclaiming: units for a buyer who paid in time and was heard of late.

use lockgate_shared::{
    events::{EventKind, units_to_text},
    gate::{Hold, HoldState, ReclaimAnswer},
    ids::{ClaimId, SaleId},
};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Answer, commit, rows};
use crate::{
    hold::{self, Reclaim},
    stock::{self, Limits},
    store::Suspicion,
};

/// A claim whose reclaim was refused, and how: no numbers where too few units were free.
pub(super) const TABLE: &str = "
        CREATE TABLE stock_refused (
            sale TEXT NOT NULL, claim TEXT NOT NULL, account_limit INTEGER, taken INTEGER, PRIMARY KEY (sale, claim)
        ) STRICT, WITHOUT ROWID;
    ";

pub(super) fn reclaim(
    db: &Connection,
    sale: &SaleId,
    claim: ClaimId,
    limits: &Limits,
) -> Answer<ReclaimAnswer> {
    if let Err(why) = rows::clock(db, sale)? {
        return Ok(Err(why));
    }
    let Some(hold) = rows::find(db, sale, claim)? else {
        return Ok(Ok(ReclaimAnswer::NoSuchClaim));
    };
    match hold::reclaim(hold.state) {
        Reclaim::Stands => Ok(Ok(ReclaimAnswer::Reclaimed { units: hold.units })),
        Reclaim::Commits => {
            let committed = commit(db, sale, claim)?;
            Ok(committed.map(|_| ReclaimAnswer::Reclaimed { units: hold.units }))
        }
        Reclaim::Takes => take(db, sale, hold, limits),
    }
}

fn take(db: &Connection, sale: &SaleId, hold: Hold, limits: &Limits) -> Answer<ReclaimAnswer> {
    if let Some(refused) = refused(db, sale, hold.claim)? {
        return Ok(Ok(refused));
    }
    let quantity = rows::count(&hold.units);
    let Some(counts) = rows::counts(db, sale, &hold.item)? else {
        return refuse(db, sale, hold.claim, ReclaimAnswer::SoldOut);
    };
    let standing = rows::standing(db, sale, &hold.account)?;
    if let Some(refused) = stock::reclaim_refusal(&counts, &standing, limits, quantity) {
        return refuse(db, sale, hold.claim, refused);
    }
    let mut returned = rows::returned(db, sale, &hold.item, quantity)?;
    if are_all_free(db, sale, &hold)? {
        returned.clone_from(&hold.units);
    }
    let taken = stock::pick_again(&hold.units, &returned, &counts)
        .and_then(|(units, fresh)| Some((units, fresh, counts.taken(quantity, fresh)?.committed(quantity)?)));
    let Some((units, fresh, counts)) = taken else {
        return Ok(Err(Suspicion(format!("the counts of '{}' do not add up", hold.item))));
    };
    let live = rows::Live { units: standing.account.saturating_add(quantity), holds: standing.live_holds };
    let sold = Hold { units, state: HoldState::Committed, ..hold };
    rows::take_returned(db, sale, &sold, fresh)?;
    rows::set_counts(db, sale, &sold.item, &counts)?;
    rows::set_live(db, sale, &sold.account, live)?;
    db.prepare_cached("UPDATE stock_holds SET units = ?3 WHERE sale = ?1 AND claim = ?2")?
        .execute(params![sale.as_str(), sold.claim.to_string(), units_to_text(&sold.units)])?;
    rows::set_state(db, sale, sold.claim, HoldState::Committed)?;
    rows::append(db, sale, EventKind::Committed, &sold, None)?;
    Ok(Ok(ReclaimAnswer::Reclaimed { units: sold.units }))
}

fn are_all_free(db: &Connection, sale: &SaleId, hold: &Hold) -> rusqlite::Result<bool> {
    let mut free =
        db.prepare_cached("SELECT 1 FROM stock_returned WHERE sale = ?1 AND item = ?2 AND unit = ?3")?;
    for unit in &hold.units {
        if !free.exists(params![sale.as_str(), hold.item.as_str(), unit])? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn refused(db: &Connection, sale: &SaleId, claim: ClaimId) -> rusqlite::Result<Option<ReclaimAnswer>> {
    db.prepare_cached("SELECT account_limit, taken FROM stock_refused WHERE sale = ?1 AND claim = ?2")?
        .query_row(params![sale.as_str(), claim.to_string()], |row| {
            let limit: Option<u32> = row.get(0)?;
            Ok(match limit {
                Some(limit) => ReclaimAnswer::LimitReached { limit, taken: row.get(1)? },
                None => ReclaimAnswer::SoldOut,
            })
        })
        .optional()
}

fn refuse(db: &Connection, sale: &SaleId, claim: ClaimId, answer: ReclaimAnswer) -> Answer<ReclaimAnswer> {
    let (limit, taken) = match &answer {
        ReclaimAnswer::LimitReached { limit, taken } => (Some(*limit), Some(*taken)),
        _ => (None, None),
    };
    db.prepare_cached("INSERT INTO stock_refused VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        sale.as_str(),
        claim.to_string(),
        limit,
        taken
    ])?;
    Ok(Ok(answer))
}
