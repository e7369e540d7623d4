//! Notices about money whose orders are not there.

use lockgate_shared::clock::Timestamp;
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::{Result, unreadable, uuid_at};
use crate::{
    payment::{Notice, PaymentId},
    store::{
        office::{PARKED_PAGE_MAX, Parked, ParkedNotice, ParkedPlace},
        rows::NoticeRow,
    },
};

pub(super) fn page(db: &Connection, before: Timestamp, after: Option<&ParkedPlace>) -> Result<Parked> {
    let total: i64 = db
        .prepare_cached(
            "SELECT count(*) FROM notifications
             WHERE parked = 1 AND outcome IN ('paid', 'refund_failed') AND received_at < ?1",
        )?
        .query_row([before.micros()], |row| row.get(0))?;
    let (at, gateway, event) =
        after.map_or((i64::MIN, "", ""), |(at, gateway, event)| (at.micros(), gateway, event));
    let limit = i64::try_from(PARKED_PAGE_MAX).unwrap_or(i64::MAX);
    let notices = db
        .prepare_cached(
            "SELECT payment, order_id, outcome, amount, currency, received_at, gateway, event FROM notifications
             WHERE parked = 1 AND outcome IN ('paid', 'refund_failed') AND received_at < ?1
                 AND (received_at, gateway, event) > (?2, ?3, ?4)
             ORDER BY received_at, gateway, event LIMIT ?5",
        )?
        .query_map(params![before.micros(), at, gateway, event, limit], read)?
        .collect::<Result<_>>()?;
    Ok(Parked { total: total.unsigned_abs(), notices })
}

pub(super) fn strike_off(db: &Connection, payment: PaymentId) -> Result<u64> {
    let struck = db
        .prepare_cached("UPDATE notifications SET parked = 0 WHERE payment = ?1 AND parked = 1")?
        .execute([payment.uuid().as_bytes()])?;
    Ok(struck as u64)
}

fn read(row: &Row<'_>) -> Result<ParkedNotice> {
    let place = (Timestamp::from_micros(row.get(5)?), row.get(6)?, row.get(7)?);
    Ok(ParkedNotice { place, notice: notice(row)? })
}

/// A row that begins with payment, order, outcome, amount and currency.
pub(super) fn notice(row: &Row<'_>) -> Result<Notice> {
    let read = NoticeRow {
        payment: uuid_at(row, 0)?,
        order: row.get::<_, Option<[u8; 16]>>(1)?.map(Uuid::from_bytes),
        outcome: row.get(2)?,
        amount: row.get(3)?,
        currency: row.get(4)?,
    };
    read.read().map_err(unreadable)
}
