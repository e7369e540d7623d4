//! What should not have happened, and what was done about it.

use deadpool_postgres::Transaction;
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, SaleId},
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::Result;
use crate::{
    order::{Anomaly, OrderState},
    payment::PaymentId,
    store::{ANOMALIES_PAGE_MAX, AnomalyRecord},
};

pub(super) async fn write(
    tx: &Transaction<'_>,
    anomalies: &[(ClaimId, Anomaly)],
    now: Timestamp,
) -> Result<()> {
    if anomalies.is_empty() {
        return Ok(());
    }
    let orders: Vec<Uuid> = anomalies.iter().map(|(order, _)| order.uuid()).collect();
    let payments: Vec<Option<Uuid>> =
        anomalies.iter().map(|(_, anomaly)| anomaly.payment.map(PaymentId::uuid)).collect();
    let kinds: Vec<&str> = anomalies.iter().map(|(_, anomaly)| anomaly.kind).collect();
    let details: Vec<&str> = anomalies.iter().map(|(_, anomaly)| anomaly.detail.as_str()).collect();
    let statement = tx
        .prepare_cached(
            "INSERT INTO anomalies (order_id, payment, kind, detail, found_at)
             SELECT *, $5::bigint FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[])",
        )
        .await?;
    tx.execute(&statement, &[&orders, &payments, &kinds, &details, &now.micros()]).await?;
    Ok(())
}

pub(super) async fn page(
    tx: &Transaction<'_>,
    sale: &SaleId,
    after: Option<u64>,
) -> Result<Vec<AnomalyRecord>> {
    let after = i64::try_from(after.unwrap_or(0)).unwrap_or(i64::MAX);
    let statement = tx
        .prepare_cached(
            "SELECT a.number, a.order_id, a.payment, a.kind, a.detail, a.found_at, o.state
             FROM anomalies a LEFT JOIN orders o ON o.id = a.order_id
             WHERE coalesce(a.sale, o.sale) = $1 AND a.number > $2 ORDER BY a.number LIMIT $3",
        )
        .await?;
    let rows = tx.query(&statement, &[&sale.as_str(), &after, &i64::try_from(ANOMALIES_PAGE_MAX)?]).await?;
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<AnomalyRecord> {
    let state: Option<&str> = row.try_get(6)?;
    let known =
        |word: &str| OrderState::parse(word).ok_or_else(|| format!("'{word}' is no word this release knows"));
    Ok(AnomalyRecord {
        number: u64::try_from(row.try_get::<_, i64>(0)?)?,
        order: row.try_get::<_, Uuid>(1)?.into(),
        payment: row.try_get::<_, Option<Uuid>>(2)?.map(PaymentId::from),
        kind: row.try_get(3)?,
        detail: row.try_get(4)?,
        found_at: Timestamp::from_micros(row.try_get(5)?),
        state: state.map(known).transpose()?,
    })
}
