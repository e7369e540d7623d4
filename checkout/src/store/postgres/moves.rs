//! What the verbs move in the tables: orders, their payments and who owns which unit.

use std::collections::HashMap;

use deadpool_postgres::Transaction;
use lockgate_shared::{clock::Timestamp, ids::ClaimId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{Result, When, outbox};
use crate::{
    order::{self, Anomaly, OrderRecord},
    outbox::messages,
    payment::PaymentId,
    store::rows::{OrderRow, PaymentRow},
};

#[derive(Clone, Copy)]
pub(super) enum Lock {
    No,
    Yes,
}

fn order_row(row: &Row) -> Result<OrderRow> {
    Ok(OrderRow {
        id: row.try_get(0)?,
        sale: row.try_get(1)?,
        account: row.try_get(2)?,
        item: row.try_get(3)?,
        units: row.try_get(4)?,
        amount: row.try_get(5)?,
        currency: row.try_get(6)?,
        email: row.try_get(7)?,
        claimed_at: row.try_get(8)?,
        hold_expires_at: row.try_get(9)?,
        state: row.try_get(10)?,
        ending: row.try_get(11)?,
        gate: row.try_get(12)?,
        language: row.try_get(13)?,
    })
}

fn payment_row(row: &Row) -> Result<PaymentRow> {
    Ok(PaymentRow {
        id: row.try_get(0)?,
        order: row.try_get(1)?,
        position: row.try_get(2)?,
        state: row.try_get(3)?,
        redirect_url: row.try_get(4)?,
        paid_amount: row.try_get(5)?,
        paid_currency: row.try_get(6)?,
        created_at: row.try_get(7)?,
        reference: row.try_get(8)?,
        description: row.try_get(9)?,
        return_url: row.try_get(10)?,
    })
}

const SELECT_ORDERS: &str = "SELECT id, sale, account, item, units, amount, currency, email, claimed_at,
     hold_expires_at, state, ending, gate, language FROM orders WHERE id = ANY($1) ORDER BY id";
/// Locked in the order of their ids, so that two batches with orders in common cannot wait for one another.
const SELECT_ORDERS_LOCKED: &str =
    "SELECT id, sale, account, item, units, amount, currency, email, claimed_at,
     hold_expires_at, state, ending, gate, language FROM orders WHERE id = ANY($1) ORDER BY id FOR UPDATE";

pub(super) async fn load(
    tx: &Transaction<'_>,
    ids: &[Uuid],
    lock: Lock,
) -> Result<HashMap<Uuid, OrderRecord>> {
    let sql = match lock {
        Lock::No => SELECT_ORDERS,
        Lock::Yes => SELECT_ORDERS_LOCKED,
    };
    let found = tx.query(&tx.prepare_cached(sql).await?, &[&ids]).await?;
    if found.is_empty() {
        return Ok(HashMap::new());
    }
    let statement = tx
        .prepare_cached(
            "SELECT id, order_id, position, state, redirect_url, paid_amount, paid_currency, created_at,
                 reference, description, return_url FROM payments WHERE order_id = ANY($1) ORDER BY order_id, position",
        )
        .await?;
    let mut payments: HashMap<Uuid, Vec<_>> = HashMap::new();
    for row in tx.query(&statement, &[&ids]).await? {
        let row = payment_row(&row)?;
        payments.entry(row.order).or_default().push(row.read()?);
    }
    let mut orders = HashMap::with_capacity(found.len());
    for row in &found {
        let row = order_row(row)?;
        let id = row.id;
        orders.insert(id, row.read(payments.remove(&id).unwrap_or_default())?);
    }
    Ok(orders)
}

pub(super) async fn owner_of(tx: &Transaction<'_>, payment: PaymentId) -> Result<Option<ClaimId>> {
    let statement = tx.prepare_cached("SELECT order_id FROM payments WHERE id = $1").await?;
    let row = tx.query_opt(&statement, &[&payment.uuid()]).await?;
    Ok(row.map(|row| row.try_get::<_, Uuid>(0)).transpose()?.map(ClaimId::from))
}

/// Writes an order that is there and locked as `after`; one whose units another live order owns is written as disputed
/// instead. Its row is written once, as what it becomes: each state that is written stands in the feed.
pub(super) async fn save(
    tx: &Transaction<'_>,
    before: &OrderRecord,
    mut after: OrderRecord,
    (now, wants): When,
    anomalies: &mut Vec<(ClaimId, Anomaly)>,
) -> Result<OrderRecord> {
    let mut owned = before.owns_units();
    if owned && (!after.owns_units() || before.units != after.units) {
        give_up_units(tx, before).await?;
        owned = false;
    }
    let units: Vec<i64> = after.units.iter().map(|unit| i64::from(*unit)).collect();
    if after.owns_units() && !owned {
        let statement = tx
            .prepare_cached(
                "INSERT INTO order_units SELECT $1, $2, unit, $4 FROM unnest($3::bigint[]) unit ON CONFLICT DO NOTHING",
            )
            .await?;
        let (sale, item) = (after.sale.as_str(), after.item.as_str());
        let taken = tx.execute(&statement, &[&sale, &item, &units, &after.id.uuid()]).await?;
        if taken != units.len() as u64 {
            give_up_units(tx, &after).await?;
            after = order::dispute_found(&after, anomalies);
        }
    }
    write_order(tx, &after, now).await?;
    for (position, payment) in after.payments.iter().enumerate() {
        if before.payments.get(position) != Some(payment) {
            write_payment(tx, &PaymentRow::of(after.id, position, payment)).await?;
        }
    }
    let drafts = messages(Some(before), &after, wants).into_iter().map(|draft| (after.id, draft));
    outbox::write(tx, &drafts.collect::<Vec<_>>(), now).await?;
    Ok(after)
}

async fn give_up_units(tx: &Transaction<'_>, order: &OrderRecord) -> Result<()> {
    let units: Vec<i64> = order.units.iter().map(|unit| i64::from(*unit)).collect();
    let statement = tx
        .prepare_cached(
            "DELETE FROM order_units WHERE sale = $1 AND item = $2 AND unit = ANY($3) AND order_id = $4",
        )
        .await?;
    let (sale, item) = (order.sale.as_str(), order.item.as_str());
    tx.execute(&statement, &[&sale, &item, &units, &order.id.uuid()]).await?;
    Ok(())
}

async fn write_order(tx: &Transaction<'_>, order: &OrderRecord, now: Timestamp) -> Result<()> {
    let row = OrderRow::of(order);
    let statement = tx
        .prepare_cached(
            "INSERT INTO orders (id, sale, account, item, units, amount, currency, email, claimed_at, hold_expires_at,
                 state, ending, gate, unit_count, unsettled, changed_at, language)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
             ON CONFLICT (id) DO UPDATE SET units = excluded.units, unit_count = excluded.unit_count,
                 state = excluded.state, ending = excluded.ending, gate = excluded.gate,
                 unsettled = excluded.unsettled, changed_at = excluded.changed_at",
        )
        .await?;
    tx.execute(
        &statement,
        &[
            &row.id,
            &row.sale,
            &row.account,
            &row.item,
            &row.units,
            &row.amount,
            &row.currency,
            &row.email,
            &row.claimed_at,
            &row.hold_expires_at,
            &row.state,
            &row.ending,
            &row.gate,
            &i64::try_from(order.units.len())?,
            &order.is_unsettled(),
            &now.micros(),
            &row.language,
        ],
    )
    .await?;
    Ok(())
}

async fn write_payment(tx: &Transaction<'_>, row: &PaymentRow) -> Result<()> {
    let statement = tx
        .prepare_cached(
            "INSERT INTO payments (id, order_id, position, state, redirect_url, paid_amount, paid_currency,
                 created_at, reference, description, return_url)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT (id) DO UPDATE SET state = excluded.state, redirect_url = excluded.redirect_url,
                 reference = excluded.reference,
                 paid_amount = excluded.paid_amount, paid_currency = excluded.paid_currency",
        )
        .await?;
    tx.execute(
        &statement,
        &[
            &row.id,
            &row.order,
            &row.position,
            &row.state,
            &row.redirect_url,
            &row.paid_amount,
            &row.paid_currency,
            &row.created_at,
            &row.reference,
            &row.description,
            &row.return_url,
        ],
    )
    .await?;
    Ok(())
}
