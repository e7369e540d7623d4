//! What should not have happened, and what was done about it.

use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, SaleId},
};
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::{Result, unreadable, uuid_at};
use crate::{
    order::{Anomaly, OrderState},
    payment::PaymentId,
    store::{ANOMALIES_PAGE_MAX, AnomalyRecord},
};

pub(super) fn write(db: &Connection, anomalies: &[(ClaimId, Anomaly)], now: Timestamp) -> Result<()> {
    let mut insert = db.prepare_cached(
        "INSERT INTO anomalies (order_id, payment, kind, detail, found_at) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (order, anomaly) in anomalies {
        insert.execute(params![
            order.uuid().as_bytes(),
            anomaly.payment.map(|payment| payment.uuid().as_bytes().to_vec()),
            anomaly.kind,
            anomaly.detail,
            now.micros(),
        ])?;
    }
    Ok(())
}

pub(super) fn page(db: &Connection, sale: &SaleId, after: Option<u64>) -> Result<Vec<AnomalyRecord>> {
    let after = i64::try_from(after.unwrap_or(0)).unwrap_or(i64::MAX);
    let limit = i64::try_from(ANOMALIES_PAGE_MAX).unwrap_or(i64::MAX);
    db.prepare_cached(
        "SELECT a.number, a.order_id, a.payment, a.kind, a.detail, a.found_at, o.state
         FROM anomalies a LEFT JOIN orders o ON o.id = a.order_id
         WHERE coalesce(a.sale, o.sale) = ?1 AND a.number > ?2 ORDER BY a.number LIMIT ?3",
    )?
    .query_map(params![sale.as_str(), after, limit], read)?
    .collect()
}

fn read(row: &Row<'_>) -> Result<AnomalyRecord> {
    let state: Option<String> = row.get(6)?;
    let known = |word: String| {
        OrderState::parse(&word)
            .ok_or_else(|| unreadable(format!("'{word}' is no word this release knows").into()))
    };
    let payment: Option<[u8; 16]> = row.get(2)?;
    Ok(AnomalyRecord {
        number: row.get::<_, i64>(0)?.unsigned_abs(),
        order: uuid_at(row, 1)?.into(),
        payment: payment.map(|bytes| PaymentId::from(Uuid::from_bytes(bytes))),
        kind: row.get(3)?,
        detail: row.get(4)?,
        found_at: Timestamp::from_micros(row.get(5)?),
        state: state.map(known).transpose()?,
    })
}
