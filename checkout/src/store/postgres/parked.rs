//! Notices about money whose orders are not there.

use deadpool_postgres::Transaction;
use lockgate_shared::clock::Timestamp;
use tokio_postgres::Row;

use super::Result;
use crate::{
    payment::{Notice, PaymentId},
    store::{
        office::{PARKED_PAGE_MAX, Parked, ParkedNotice, ParkedPlace},
        rows::NoticeRow,
    },
};

pub(super) async fn page(
    tx: &Transaction<'_>,
    before: Timestamp,
    after: Option<&ParkedPlace>,
) -> Result<Parked> {
    let statement = tx
        .prepare_cached(
            "SELECT count(*) FROM notifications
             WHERE parked AND outcome IN ('paid', 'refund_failed') AND received_at < $1",
        )
        .await?;
    let total: i64 = tx.query_one(&statement, &[&before.micros()]).await?.try_get(0)?;
    let (at, gateway, event) = after
        .map_or((i64::MIN, "", ""), |(at, gateway, event)| (at.micros(), gateway.as_str(), event.as_str()));
    let statement = tx
        .prepare_cached(
            "SELECT payment, order_id, outcome, amount, currency, received_at, gateway, event FROM notifications
             WHERE parked AND outcome IN ('paid', 'refund_failed') AND received_at < $1
                 AND (received_at, gateway COLLATE \"C\", event COLLATE \"C\") > ($2, $3, $4)
             ORDER BY received_at, gateway COLLATE \"C\", event COLLATE \"C\" LIMIT $5",
        )
        .await?;
    let limit = i64::try_from(PARKED_PAGE_MAX)?;
    let rows = tx.query(&statement, &[&before.micros(), &at, &gateway, &event, &limit]).await?;
    Ok(Parked { total: u64::try_from(total)?, notices: rows.iter().map(read).collect::<Result<_>>()? })
}

pub(super) async fn strike_off(tx: &Transaction<'_>, payment: PaymentId) -> Result<u64> {
    let statement =
        tx.prepare_cached("UPDATE notifications SET parked = false WHERE payment = $1 AND parked").await?;
    Ok(tx.execute(&statement, &[&payment.uuid()]).await?)
}

fn read(row: &Row) -> Result<ParkedNotice> {
    let place = (Timestamp::from_micros(row.try_get(5)?), row.try_get(6)?, row.try_get(7)?);
    Ok(ParkedNotice { place, notice: notice(row)? })
}

/// A row that begins with payment, order, outcome, amount and currency.
pub(super) fn notice(row: &Row) -> Result<Notice> {
    let read = NoticeRow {
        payment: row.try_get(0)?,
        order: row.try_get(1)?,
        outcome: row.try_get(2)?,
        amount: row.try_get(3)?,
        currency: row.try_get(4)?,
    };
    read.read()
}
