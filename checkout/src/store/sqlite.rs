//! Orders in SQLite: every verb that writes is one operation of the shared writer, answered once it is committed.

mod anomalies;
mod letters;
mod office;
mod outbox;
mod parked;

use std::collections::BTreeMap;

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
    store::{StoreError, migrations::Migration, sqlite::Sqlite},
};
use rusqlite::{Connection, OptionalExtension as _, Row, params, types::Type};
use uuid::Uuid;

use super::{
    AnomalyRecord, DeadLetter, DeadLetters, ItemBooks, Notified, ORDERS_PAGE_MAX, OVERDUE_SECONDS, Placed,
    Store, UNSETTLED_MAX,
    rows::{NoticeRow, OrderRow, PaymentRow, RowError},
};
use crate::{
    order::{self, Anomaly, Decision, GateSide, Intake, OrderEvent, OrderRecord, OrderState},
    outbox::{Wants, messages},
    payment::{Notice, PaymentId},
};

/// The tables of orders.
pub const ORDERS_SQLITE: &[Migration] = super::rows::SQLITE;

type Result<T> = rusqlite::Result<T>;

/// Orders in a SQLite file.
pub struct SqliteStore {
    db: Sqlite,
    wants: Wants,
}

impl SqliteStore {
    /// Over an open database that has [`ORDERS_SQLITE`] applied.
    #[must_use]
    pub fn new(db: Sqlite) -> Self {
        Self { db, wants: Wants::default() }
    }

    /// The same, with an outbox for the channels that are set up.
    #[must_use]
    pub fn telling(self, wants: Wants) -> Self {
        Self { wants, ..self }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn place(
        &self,
        sale: &SaleId,
        batch: &[Intake],
        dead: &[DeadLetter],
        now: Timestamp,
    ) -> std::result::Result<Placed, StoreError> {
        let (sale, batch, dead, wants) = (sale.clone(), batch.to_vec(), dead.to_vec(), self.wants);
        self.db.write("place", move |db| place(db, &sale, &batch, &dead, (now, wants))).await
    }

    async fn decide(
        &self,
        order: ClaimId,
        event: &OrderEvent,
        now: Timestamp,
    ) -> std::result::Result<Option<Decision>, StoreError> {
        let (event, wants) = (event.clone(), self.wants);
        self.db.write("decide", move |db| decide(db, order, &event, (now, wants))).await
    }

    async fn notify(
        &self,
        gateway: &str,
        event: &str,
        notice: &Notice,
        now: Timestamp,
    ) -> std::result::Result<Notified, StoreError> {
        let (gateway, event, notice) = (gateway.to_owned(), event.to_owned(), notice.clone());
        let when = (now, self.wants);
        self.db.write("notify", move |db| notify(db, &gateway, &event, &notice, when)).await
    }

    async fn order(&self, order: ClaimId) -> std::result::Result<Option<OrderRecord>, StoreError> {
        self.db.read("order", move |db| load(db, order.uuid())).await
    }

    async fn order_of(&self, payment: PaymentId) -> std::result::Result<Option<ClaimId>, StoreError> {
        let owner = self.db.read("order of payment", move |db| owner_of(db, payment.uuid()));
        Ok(owner.await?.map(ClaimId::from))
    }

    async fn unsettled(
        &self,
        after: Option<ClaimId>,
        now: Timestamp,
    ) -> std::result::Result<Vec<OrderRecord>, StoreError> {
        self.db.read("unsettled", move |db| unsettled(db, after, now)).await
    }

    async fn orders(
        &self,
        sale: &SaleId,
        after: Option<ClaimId>,
    ) -> std::result::Result<Vec<OrderRecord>, StoreError> {
        let sale = sale.clone();
        self.db.read("orders", move |db| orders(db, &sale, after)).await
    }

    async fn books(&self, sale: &SaleId) -> std::result::Result<BTreeMap<ItemId, ItemBooks>, StoreError> {
        let sale = sale.clone();
        self.db.read("books", move |db| books(db, &sale)).await
    }

    async fn anomalies(
        &self,
        sale: &SaleId,
        after: Option<u64>,
    ) -> std::result::Result<Vec<AnomalyRecord>, StoreError> {
        let sale = sale.clone();
        self.db.read("anomalies", move |db| anomalies::page(db, &sale, after)).await
    }

    async fn dead_letters(&self, sale: &SaleId) -> std::result::Result<DeadLetters, StoreError> {
        let sale = sale.clone();
        self.db.read("dead letters", move |db| letters::all(db, &sale)).await
    }

    async fn clear(&self, sale: &SaleId, event: &str) -> std::result::Result<(), StoreError> {
        let (sale, event) = (sale.clone(), event.to_owned());
        self.db.write("clear", move |db| letters::clear(db, &sale, &event)).await
    }

    async fn ping(&self) -> std::result::Result<(), StoreError> {
        self.db.read("ping", |db| db.query_row("SELECT 1", [], |_| Ok(()))).await
    }
}

/// When a change happens, and which channels hear of it.
type When = (Timestamp, Wants);

fn unreadable(error: RowError) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error)
}

fn uuid_at(row: &Row<'_>, index: usize) -> Result<Uuid> {
    row.get::<_, [u8; 16]>(index).map(Uuid::from_bytes)
}

const ORDER_COLUMNS: &str = "id, sale, account, item, units, amount, currency, email, claimed_at, hold_expires_at, state, ending, gate, language";

fn order_row(row: &Row<'_>) -> Result<OrderRow> {
    Ok(OrderRow {
        id: uuid_at(row, 0)?,
        sale: row.get(1)?,
        account: row.get(2)?,
        item: row.get(3)?,
        units: row.get(4)?,
        amount: row.get(5)?,
        currency: row.get(6)?,
        email: row.get(7)?,
        claimed_at: row.get(8)?,
        hold_expires_at: row.get(9)?,
        state: row.get(10)?,
        ending: row.get(11)?,
        gate: row.get(12)?,
        language: row.get(13)?,
    })
}

fn with_payments(db: &Connection, row: OrderRow) -> Result<OrderRecord> {
    let mut payments = Vec::new();
    let mut statement = db.prepare_cached(
        "SELECT id, order_id, position, state, redirect_url, paid_amount, paid_currency, created_at,
             reference, description, return_url FROM payments WHERE order_id = ?1 ORDER BY position",
    )?;
    let mut found = statement.query([row.id.as_bytes()])?;
    while let Some(payment) = found.next()? {
        let payment = PaymentRow {
            id: uuid_at(payment, 0)?,
            order: uuid_at(payment, 1)?,
            position: payment.get(2)?,
            state: payment.get(3)?,
            redirect_url: payment.get(4)?,
            paid_amount: payment.get(5)?,
            paid_currency: payment.get(6)?,
            created_at: payment.get(7)?,
            reference: payment.get(8)?,
            description: payment.get(9)?,
            return_url: payment.get(10)?,
        };
        payments.push(payment.read().map_err(unreadable)?);
    }
    row.read(payments).map_err(unreadable)
}

fn load(db: &Connection, id: Uuid) -> Result<Option<OrderRecord>> {
    let row = db
        .prepare_cached(&format!("SELECT {ORDER_COLUMNS} FROM orders WHERE id = ?1"))?
        .query_row([id.as_bytes()], order_row)
        .optional()?;
    row.map(|row| with_payments(db, row)).transpose()
}

fn owner_of(db: &Connection, payment: Uuid) -> Result<Option<Uuid>> {
    db.prepare_cached("SELECT order_id FROM payments WHERE id = ?1")?
        .query_row([payment.as_bytes()], |row| uuid_at(row, 0))
        .optional()
}

fn give_up_units(db: &Connection, order: &OrderRecord) -> Result<()> {
    let mut delete = db.prepare_cached(
        "DELETE FROM order_units WHERE sale = ?1 AND item = ?2 AND unit = ?3 AND order_id = ?4",
    )?;
    for unit in &order.units {
        delete.execute(params![
            order.sale.as_str(),
            order.item.as_str(),
            unit,
            order.id.uuid().as_bytes()
        ])?;
    }
    Ok(())
}

/// Writes an order as `after`; one whose units another live order owns is written as disputed instead.
fn save(
    db: &Connection,
    before: Option<&OrderRecord>,
    mut after: OrderRecord,
    (now, wants): When,
    anomalies: &mut Vec<(ClaimId, Anomaly)>,
) -> Result<OrderRecord> {
    let mut owned = before.is_some_and(OrderRecord::owns_units);
    if let Some(before) =
        before.filter(|before| owned && (!after.owns_units() || before.units != after.units))
    {
        give_up_units(db, before)?;
        owned = false;
    }
    if after.owns_units() && !owned && is_any_unit_taken(db, &after)? {
        after = order::dispute_found(&after, anomalies);
    }
    write_order(db, &after, now)?;
    if after.owns_units() && !owned {
        let mut insert = db.prepare_cached("INSERT INTO order_units VALUES (?1, ?2, ?3, ?4)")?;
        for unit in &after.units {
            insert.execute(params![
                after.sale.as_str(),
                after.item.as_str(),
                unit,
                after.id.uuid().as_bytes()
            ])?;
        }
    }
    let old = before.map_or(&[][..], |before| &before.payments);
    for (position, payment) in after.payments.iter().enumerate() {
        if old.get(position) != Some(payment) {
            write_payment(db, &PaymentRow::of(after.id, position, payment))?;
        }
    }
    outbox::write(db, after.id, &messages(before, &after, wants), now)?;
    Ok(after)
}

fn is_any_unit_taken(db: &Connection, order: &OrderRecord) -> Result<bool> {
    let mut taken =
        db.prepare_cached("SELECT 1 FROM order_units WHERE sale = ?1 AND item = ?2 AND unit = ?3")?;
    for unit in &order.units {
        if taken.exists(params![order.sale.as_str(), order.item.as_str(), unit])? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn write_order(db: &Connection, order: &OrderRecord, now: Timestamp) -> Result<()> {
    let row = OrderRow::of(order);
    db.prepare_cached(
        "INSERT INTO orders (id, sale, account, item, units, amount, currency, email, claimed_at, hold_expires_at,
             state, ending, gate, unit_count, unsettled, changed_at, language)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
         ON CONFLICT (id) DO UPDATE SET units = excluded.units, unit_count = excluded.unit_count,
             state = excluded.state, ending = excluded.ending, gate = excluded.gate,
             unsettled = excluded.unsettled, changed_at = excluded.changed_at",
    )?
    .execute(params![
        row.id.as_bytes(),
        row.sale,
        row.account,
        row.item,
        row.units,
        row.amount,
        row.currency,
        row.email,
        row.claimed_at,
        row.hold_expires_at,
        row.state,
        row.ending,
        row.gate,
        i64::try_from(order.units.len()).unwrap_or(i64::MAX),
        order.is_unsettled(),
        now.micros(),
        row.language,
    ])
    .map(drop)
}

fn write_payment(db: &Connection, row: &PaymentRow) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO payments (id, order_id, position, state, redirect_url, paid_amount, paid_currency, created_at,
             reference, description, return_url)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT (id) DO UPDATE SET state = excluded.state, redirect_url = excluded.redirect_url,
             reference = excluded.reference,
             paid_amount = excluded.paid_amount, paid_currency = excluded.paid_currency",
    )?
    .execute(params![
        row.id.as_bytes(),
        row.order.as_bytes(),
        row.position,
        row.state,
        row.redirect_url,
        row.paid_amount,
        row.paid_currency,
        row.created_at,
        row.reference,
        row.description,
        row.return_url,
    ])
    .map(drop)
}

fn decide(db: &Connection, id: ClaimId, event: &OrderEvent, when: When) -> Result<Option<Decision>> {
    let Some(before) = load(db, id.uuid())? else {
        return Ok(None);
    };
    let mut decision = order::decide(&before, event, when.0);
    let mut anomalies: Vec<_> = decision.anomalies.drain(..).map(|anomaly| (id, anomaly)).collect();
    if decision.after != before {
        decision.after = save(db, Some(&before), decision.after, when, &mut anomalies)?;
    }
    anomalies::write(db, &anomalies, when.0)?;
    decision.anomalies = anomalies.into_iter().map(|(_, anomaly)| anomaly).collect();
    Ok(Some(decision))
}

fn place(
    db: &Connection,
    sale: &SaleId,
    batch: &[Intake],
    dead: &[DeadLetter],
    when: When,
) -> Result<Placed> {
    let mut placed = Placed { buried: letters::write(db, sale, dead)?, ..Placed::default() };
    // Written down where they are found, by `decide`.
    let mut anomalies_of_parked = Vec::new();
    for intake in batch {
        let id = intake.placement().order;
        let before = load(db, id.uuid())?;
        let Some(decision) = order::place(before.as_ref(), intake) else {
            continue;
        };
        placed.anomalies.extend(decision.anomalies.into_iter().map(|anomaly| (id, anomaly)));
        let mut after = save(db, before.as_ref(), decision.after, when, &mut placed.anomalies)?;
        for notice in take_parked(db, id)? {
            // An attempt that another order made meanwhile is that order's to answer for.
            let owner = owner_of(db, notice.payment.uuid())?.map_or(id, ClaimId::from);
            let Some(decision) = decide(db, owner, &OrderEvent::Notified(notice), when)? else {
                continue;
            };
            let found = decision.anomalies.into_iter();
            anomalies_of_parked.extend(found.map(|anomaly| (owner, anomaly)));
            if owner == id {
                after = decision.after;
            }
        }
        placed.changed.push(after);
    }
    anomalies::write(db, &placed.anomalies, when.0)?;
    placed.anomalies.extend(anomalies_of_parked);
    Ok(placed)
}

fn take_parked(db: &Connection, order: ClaimId) -> Result<Vec<Notice>> {
    let mut statement = db.prepare_cached(
        "SELECT payment, order_id, outcome, amount, currency FROM notifications
         WHERE order_id = ?1 AND parked = 1 ORDER BY received_at, gateway, event",
    )?;
    let mut rows = statement.query([order.uuid().as_bytes()])?;
    let mut notices = Vec::new();
    while let Some(row) = rows.next()? {
        notices.push(parked::notice(row)?);
    }
    if !notices.is_empty() {
        db.prepare_cached("UPDATE notifications SET parked = 0 WHERE order_id = ?1 AND parked = 1")?
            .execute([order.uuid().as_bytes()])?;
    }
    Ok(notices)
}

fn notify(db: &Connection, gateway: &str, event: &str, notice: &Notice, when: When) -> Result<Notified> {
    let owner = owner_of(db, notice.payment.uuid())?.map(ClaimId::from).or(notice.order);
    let row = NoticeRow::of(notice);
    let is_new =
        db.prepare_cached(
            "INSERT INTO notifications VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            gateway,
            event,
            row.payment.as_bytes(),
            row.order.map(|order| order.as_bytes().to_vec()),
            row.outcome,
            row.amount,
            row.currency,
            true,
            when.0.micros(),
        ])? == 1;
    if !is_new {
        return Ok(Notified::Duplicate);
    }
    let decision = match owner {
        Some(order) => decide(db, order, &OrderEvent::Notified(notice.clone()), when)?,
        None => None,
    };
    let Some(decision) = decision else {
        return Ok(Notified::Parked);
    };
    db.prepare_cached("UPDATE notifications SET parked = 0 WHERE gateway = ?1 AND event = ?2")?
        .execute([gateway, event])?;
    Ok(Notified::Applied(Box::new(decision)))
}

fn unsettled(db: &Connection, after: Option<ClaimId>, now: Timestamp) -> Result<Vec<OrderRecord>> {
    let after = after.map_or([0; 16], |after| *after.uuid().as_bytes());
    let mut statement = db.prepare_cached(&format!(
        "SELECT {ORDER_COLUMNS} FROM orders WHERE id IN (
             SELECT id FROM orders WHERE unsettled = 1 AND id > ?1
             UNION
             SELECT id FROM orders WHERE state = 'awaiting_payment' AND ending IS NULL
                 AND hold_expires_at < ?2 AND id > ?1
             ORDER BY id LIMIT ?3)
         ORDER BY id"
    ))?;
    let limit = i64::try_from(UNSETTLED_MAX).unwrap_or(i64::MAX);
    let rows = statement
        .query_map(params![after, now.minus_seconds(OVERDUE_SECONDS).micros(), limit], order_row)?
        .collect::<Result<Vec<_>>>()?;
    rows.into_iter().map(|row| with_payments(db, row)).collect()
}

fn orders(db: &Connection, sale: &SaleId, after: Option<ClaimId>) -> Result<Vec<OrderRecord>> {
    let after = after.map_or([0; 16], |after| *after.uuid().as_bytes());
    let mut statement = db.prepare_cached(&format!(
        "SELECT {ORDER_COLUMNS} FROM orders WHERE sale = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
    ))?;
    let limit = i64::try_from(ORDERS_PAGE_MAX).unwrap_or(i64::MAX);
    let rows =
        statement.query_map(params![sale.as_str(), after, limit], order_row)?.collect::<Result<Vec<_>>>()?;
    rows.into_iter().map(|row| with_payments(db, row)).collect()
}

fn books(db: &Connection, sale: &SaleId) -> Result<BTreeMap<ItemId, ItemBooks>> {
    let mut statement = db.prepare_cached(
        "SELECT item, state, gate, count(*), sum(unit_count) FROM orders WHERE sale = ?1
         GROUP BY item, state, gate",
    )?;
    let mut rows = statement.query([sale.as_str()])?;
    let mut books: BTreeMap<ItemId, ItemBooks> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let (item, state, gate): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let item: ItemId = item.parse().map_err(|error: String| unreadable(error.into()))?;
        let (Some(state), Some(gate)) = (OrderState::parse(&state), GateSide::parse(&gate)) else {
            return Err(unreadable(format!("'{state}', '{gate}' are unknown words").into()));
        };
        let (orders, units): (i64, i64) = (row.get(3)?, row.get(4)?);
        books.entry(item).or_default().count(state, gate, orders.unsigned_abs(), units.unsigned_abs());
    }
    Ok(books)
}
