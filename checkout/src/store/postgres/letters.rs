//! Dead letters.

use deadpool_postgres::Transaction;
use lockgate_shared::{clock::Timestamp, ids::SaleId};

use super::Result;
use crate::store::{DEAD_LETTERS_MAX, DeadLetter, DeadLetters};

/// Answers the records that were not known before.
pub(super) async fn write(
    tx: &Transaction<'_>,
    sale: &SaleId,
    letters: &[DeadLetter],
) -> Result<Vec<String>> {
    if letters.is_empty() {
        return Ok(Vec::new());
    }
    let statement =
        tx.prepare_cached("SELECT event FROM dead_letters WHERE sale = $1 AND event = ANY($2)").await?;
    // PostgreSQL keeps no text with a zero character.
    let plain = |text: &str| text.replace('\0', "\u{fffd}");
    let events: Vec<String> = letters.iter().map(|letter| plain(&letter.event)).collect();
    let rows = tx.query(&statement, &[&sale.as_str(), &events]).await?;
    let known = rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<Vec<String>, _>>()?;
    let statement = tx
        .prepare_cached(
            "INSERT INTO dead_letters (sale, event, problem, record, found_at)
             SELECT $1, event, problem, record, found_at
             FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) AS l (event, problem, record, found_at)
             ON CONFLICT (sale, event) DO UPDATE SET problem = excluded.problem, found_at = excluded.found_at,
                 record = excluded.record",
        )
        .await?;
    let problems: Vec<String> = letters.iter().map(|letter| plain(&letter.problem)).collect();
    let records: Vec<String> = letters.iter().map(|letter| plain(&letter.record)).collect();
    let found: Vec<i64> = letters.iter().map(|letter| letter.found_at.micros()).collect();
    tx.execute(&statement, &[&sale.as_str(), &events, &problems, &records, &found]).await?;
    Ok(events.into_iter().filter(|event| !known.contains(event)).collect())
}

pub(super) async fn all(tx: &Transaction<'_>, sale: &SaleId) -> Result<DeadLetters> {
    let statement = tx
        .prepare_cached(
            "SELECT event, problem, record, found_at, count(*) OVER () FROM dead_letters WHERE sale = $1
             ORDER BY found_at, event COLLATE \"C\" LIMIT $2",
        )
        .await?;
    let mut found = DeadLetters::default();
    for row in tx.query(&statement, &[&sale.as_str(), &i64::try_from(DEAD_LETTERS_MAX)?]).await? {
        found.total = u64::try_from(row.try_get::<_, i64>(4)?)?;
        found.letters.push(DeadLetter {
            event: row.try_get(0)?,
            problem: row.try_get(1)?,
            record: row.try_get(2)?,
            found_at: Timestamp::from_micros(row.try_get(3)?),
        });
    }
    Ok(found)
}

pub(super) async fn clear(tx: &Transaction<'_>, sale: &SaleId, event: &str) -> Result<()> {
    let statement = tx.prepare_cached("DELETE FROM dead_letters WHERE sale = $1 AND event = $2").await?;
    tx.execute(&statement, &[&sale.as_str(), &event]).await?;
    Ok(())
}
