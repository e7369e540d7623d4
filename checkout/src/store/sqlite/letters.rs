//! Dead letters.

use lockgate_shared::{clock::Timestamp, ids::SaleId};
use rusqlite::{Connection, Result, params};

use crate::store::{DEAD_LETTERS_MAX, DeadLetter, DeadLetters};

/// Answers the records that were not known before.
pub(super) fn write(db: &Connection, sale: &SaleId, letters: &[DeadLetter]) -> Result<Vec<String>> {
    let mut known = db.prepare_cached("SELECT 1 FROM dead_letters WHERE sale = ?1 AND event = ?2")?;
    let mut buried = Vec::new();
    let mut insert = db.prepare_cached(
        "INSERT INTO dead_letters (sale, event, problem, found_at, record) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (sale, event) DO UPDATE SET problem = excluded.problem, found_at = excluded.found_at,
             record = excluded.record",
    )?;
    for letter in letters {
        if !known.exists(params![sale.as_str(), letter.event])? {
            buried.push(letter.event.clone());
        }
        insert.execute(params![
            sale.as_str(),
            letter.event,
            letter.problem,
            letter.found_at.micros(),
            letter.record
        ])?;
    }
    Ok(buried)
}

pub(super) fn all(db: &Connection, sale: &SaleId) -> Result<DeadLetters> {
    let total: i64 = db
        .prepare_cached("SELECT count(*) FROM dead_letters WHERE sale = ?1")?
        .query_row([sale.as_str()], |row| row.get(0))?;
    let mut statement = db.prepare_cached(
        "SELECT event, problem, record, found_at FROM dead_letters WHERE sale = ?1
         ORDER BY found_at, event LIMIT ?2",
    )?;
    let limit = i64::try_from(DEAD_LETTERS_MAX).unwrap_or(i64::MAX);
    let letters = statement.query_map(params![sale.as_str(), limit], |row| {
        Ok(DeadLetter {
            event: row.get(0)?,
            problem: row.get(1)?,
            record: row.get(2)?,
            found_at: Timestamp::from_micros(row.get(3)?),
        })
    })?;
    Ok(DeadLetters { total: total.unsigned_abs(), letters: letters.collect::<Result<_>>()? })
}

pub(super) fn clear(db: &Connection, sale: &SaleId, event: &str) -> Result<()> {
    db.prepare_cached("DELETE FROM dead_letters WHERE sale = ?1 AND event = ?2")?
        .execute(params![sale.as_str(), event])
        .map(drop)
}
