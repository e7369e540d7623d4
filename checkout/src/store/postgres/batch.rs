//! Many orders at a time: one statement for each table, whatever the number of rows.

use std::collections::HashMap;

use deadpool_postgres::Transaction;
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{
    Result,
    moves::{Lock, load},
    parked,
};
use crate::{
    order::{Intake, OrderRecord},
    store::rows::{OrderRow, PaymentRow},
};

pub(super) use crate::store::ledger::Ledger;

/// A unit by its sale and item.
type Unit = (SaleId, ItemId, u32);

/// Everything that a batch is about, locked. `ids` are its claims, whose turns were taken.
pub(super) async fn load_ledger(tx: &Transaction<'_>, batch: &[Intake], ids: &[Uuid]) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    add_orders(&mut ledger, load(tx, ids, Lock::Yes).await?);
    // A commit makes no order, so whatever waits for one goes on waiting.
    let may_make: Vec<Uuid> = batch
        .iter()
        .filter(|intake| !matches!(intake, Intake::Committed(_)))
        .map(|intake| intake.placement().order.uuid())
        .collect();
    take_parked(tx, &may_make, &mut ledger).await?;
    if !ledger.parked.is_empty() {
        let attempts: Vec<Uuid> = ledger.parked.values().map(|notice| notice.payment.uuid()).collect();
        let statement =
            tx.prepare_cached("SELECT DISTINCT order_id FROM payments WHERE id = ANY($1)").await?;
        let rows = tx.query(&statement, &[&attempts]).await?;
        let owners = rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<Vec<Uuid>, _>>()?;
        let others: Vec<Uuid> =
            owners.into_iter().filter(|id| !ledger.orders.contains_key(&ClaimId::from(*id))).collect();
        add_orders(&mut ledger, load(tx, &others, Lock::Yes).await?);
    }
    let mut units: Vec<Unit> = batch
        .iter()
        .map(Intake::placement)
        .flat_map(|claim| claim.units.iter().map(|unit| (claim.sale.clone(), claim.item.clone(), *unit)))
        .chain(ledger.orders.values().flat_map(units_of))
        .collect();
    units.sort_unstable();
    units.dedup();
    load_owners(tx, &units, &mut ledger).await?;
    Ok(ledger)
}

fn units_of(order: &OrderRecord) -> impl Iterator<Item = Unit> {
    order.units.iter().map(|unit| (order.sale.clone(), order.item.clone(), *unit))
}

fn add_orders(ledger: &mut Ledger, orders: HashMap<Uuid, OrderRecord>) {
    for order in orders.into_values() {
        ledger.payments.extend(order.payments.iter().map(|payment| (payment.id, order.id)));
        ledger.orders.insert(order.id, order);
    }
}

/// The notices that wait for these orders, marked as applied.
async fn take_parked(tx: &Transaction<'_>, ids: &[Uuid], ledger: &mut Ledger) -> Result<()> {
    let statement = tx
        .prepare_cached(
            "UPDATE notifications SET parked = false WHERE order_id = ANY($1) AND parked
             RETURNING payment, order_id, outcome, amount, currency, received_at, gateway, event",
        )
        .await?;
    for row in tx.query(&statement, &[&ids]).await? {
        let place = (Timestamp::from_micros(row.try_get(5)?), row.try_get(6)?, row.try_get(7)?);
        ledger.parked.insert(place, parked::notice(&row)?);
    }
    Ok(())
}

/// The units as columns.
fn columns<'a>(units: impl Iterator<Item = &'a Unit>) -> (Vec<&'a str>, Vec<&'a str>, Vec<i64>) {
    let mut columns = (Vec::new(), Vec::new(), Vec::new());
    for (sale, item, unit) in units {
        columns.0.push(sale.as_str());
        columns.1.push(item.as_str());
        columns.2.push(i64::from(*unit));
    }
    columns
}

async fn load_owners(tx: &Transaction<'_>, units: &[Unit], ledger: &mut Ledger) -> Result<()> {
    let (sales, items, numbers) = columns(units.iter());
    // An owner that gives a unit up at this moment is waited for; locked in order, so that two batches cannot wait for
    // one another.
    let statement = tx
        .prepare_cached(
            "SELECT o.sale, o.item, o.unit, o.order_id FROM order_units o
             JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS u (sale, item, unit)
                 ON o.sale = u.sale AND o.item = u.item AND o.unit = u.unit
             ORDER BY o.sale, o.item, o.unit FOR UPDATE OF o",
        )
        .await?;
    for row in tx.query(&statement, &[&sales, &items, &numbers]).await? {
        let (sale, item): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let unit = (sale.parse()?, item.parse()?, u32::try_from(row.try_get::<_, i64>(2)?)?);
        ledger.owners.insert(unit, ClaimId::from(row.try_get::<_, Uuid>(3)?));
    }
    Ok(())
}

/// Writes what `after` has that `before` has not.
pub(super) async fn write_changes(
    tx: &Transaction<'_>,
    before: &Ledger,
    after: &Ledger,
    now: Timestamp,
) -> Result<()> {
    let changed: Vec<&OrderRecord> =
        after.orders.values().filter(|order| before.orders.get(&order.id) != Some(order)).collect();
    if changed.is_empty() {
        return Ok(());
    }
    write_orders(tx, &changed, now).await?;
    let given_up: Vec<&Unit> = before
        .owners
        .iter()
        .filter(|(unit, id)| after.owners.get(unit) != Some(id))
        .map(|(unit, _)| unit)
        .collect();
    if !given_up.is_empty() {
        let (sales, items, units) = columns(given_up.iter().copied());
        let statement = tx
            .prepare_cached(
                "DELETE FROM order_units o USING unnest($1::text[], $2::text[], $3::bigint[]) AS u (sale, item, unit)
                 WHERE o.sale = u.sale AND o.item = u.item AND o.unit = u.unit",
            )
            .await?;
        tx.execute(&statement, &[&sales, &items, &units]).await?;
    }
    take_units(tx, before, after).await?;
    let mut payments = Vec::new();
    for order in changed {
        let old = before.orders.get(&order.id).map_or(&[][..], |before| &before.payments);
        for (position, payment) in order.payments.iter().enumerate() {
            if old.get(position) != Some(payment) {
                payments.push(PaymentRow::of(order.id, position, payment));
            }
        }
    }
    write_payments(tx, &payments).await
}

async fn take_units(tx: &Transaction<'_>, before: &Ledger, after: &Ledger) -> Result<()> {
    let taken: Vec<(&Unit, &ClaimId)> =
        after.owners.iter().filter(|(unit, id)| before.owners.get(unit) != Some(id)).collect();
    if taken.is_empty() {
        return Ok(());
    }
    let (sales, items, units) = columns(taken.iter().map(|(unit, _)| *unit));
    let orders: Vec<Uuid> = taken.iter().map(|(_, id)| id.uuid()).collect();
    let statement = tx
        .prepare_cached(
            "INSERT INTO order_units (sale, item, unit, order_id)
             SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::uuid[])
             ON CONFLICT DO NOTHING",
        )
        .await?;
    let written = tx.execute(&statement, &[&sales, &items, &units, &orders]).await?;
    if written != taken.len() as u64 {
        // Two claims of one unit, in two batches at the same moment. Tried again, this one sees the other's order.
        return Err("another order took a unit of this batch at the same moment; try again".into());
    }
    Ok(())
}

async fn write_orders(tx: &Transaction<'_>, orders: &[&OrderRecord], now: Timestamp) -> Result<()> {
    let rows: Vec<OrderRow> = orders.iter().map(|order| OrderRow::of(order)).collect();
    let text = |column: fn(&OrderRow) -> &str| rows.iter().map(column).collect::<Vec<&str>>();
    let number = |column: fn(&OrderRow) -> i64| rows.iter().map(column).collect::<Vec<i64>>();
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let emails: Vec<Option<&str>> = rows.iter().map(|row| row.email.as_deref()).collect();
    let endings: Vec<Option<&str>> = rows.iter().map(|row| row.ending.as_deref()).collect();
    let languages: Vec<Option<&str>> = rows.iter().map(|row| row.language.as_deref()).collect();
    let counts: Vec<i64> = orders.iter().map(|order| order.units.len() as i64).collect();
    let unsettled: Vec<bool> = orders.iter().map(|order| order.is_unsettled()).collect();
    let statement = tx
        .prepare_cached(
            "INSERT INTO orders (id, sale, account, item, units, amount, currency, email, claimed_at, hold_expires_at,
                 state, ending, gate, unit_count, unsettled, language, changed_at)
             SELECT *, $17::bigint FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[],
                 $5::text[], $6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::text[],
                 $12::text[], $13::text[], $14::bigint[], $15::boolean[], $16::text[])
             ON CONFLICT (id) DO UPDATE SET units = excluded.units, unit_count = excluded.unit_count,
                 state = excluded.state, ending = excluded.ending, gate = excluded.gate,
                 unsettled = excluded.unsettled, changed_at = excluded.changed_at",
        )
        .await?;
    tx.execute(
        &statement,
        &[
            &ids,
            &text(|row| &row.sale),
            &text(|row| &row.account),
            &text(|row| &row.item),
            &text(|row| &row.units),
            &number(|row| row.amount),
            &text(|row| &row.currency),
            &emails,
            &number(|row| row.claimed_at),
            &number(|row| row.hold_expires_at),
            &text(|row| &row.state),
            &endings,
            &text(|row| &row.gate),
            &counts,
            &unsettled,
            &languages,
            &now.micros(),
        ],
    )
    .await?;
    Ok(())
}

async fn write_payments(tx: &Transaction<'_>, rows: &[PaymentRow]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let orders: Vec<Uuid> = rows.iter().map(|row| row.order).collect();
    let positions: Vec<i64> = rows.iter().map(|row| row.position).collect();
    let states: Vec<&str> = rows.iter().map(|row| row.state.as_str()).collect();
    let urls: Vec<Option<&str>> = rows.iter().map(|row| row.redirect_url.as_deref()).collect();
    let amounts: Vec<Option<i64>> = rows.iter().map(|row| row.paid_amount).collect();
    let currencies: Vec<Option<&str>> = rows.iter().map(|row| row.paid_currency.as_deref()).collect();
    let created: Vec<i64> = rows.iter().map(|row| row.created_at).collect();
    let references: Vec<Option<&str>> = rows.iter().map(|row| row.reference.as_deref()).collect();
    let descriptions: Vec<Option<&str>> = rows.iter().map(|row| row.description.as_deref()).collect();
    let return_urls: Vec<Option<&str>> = rows.iter().map(|row| row.return_url.as_deref()).collect();
    let statement = tx
        .prepare_cached(
            "INSERT INTO payments (id, order_id, position, state, redirect_url, paid_amount, paid_currency,
                 created_at, reference, description, return_url)
             SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::bigint[],
                 $7::text[], $8::bigint[], $9::text[], $10::text[], $11::text[])
             ON CONFLICT (id) DO UPDATE SET state = excluded.state, redirect_url = excluded.redirect_url,
                 reference = excluded.reference, paid_amount = excluded.paid_amount, paid_currency = excluded.paid_currency",
        )
        .await?;
    let columns: [&(dyn ToSql + Sync); 11] = [
        &ids,
        &orders,
        &positions,
        &states,
        &urls,
        &amounts,
        &currencies,
        &created,
        &references,
        &descriptions,
        &return_urls,
    ];
    tx.execute(&statement, &columns).await?;
    Ok(())
}
