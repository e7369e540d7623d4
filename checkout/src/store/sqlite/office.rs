//! The back office's side of the orders in SQLite.

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    events::units_from_text,
    ids::{ClaimId, SaleId},
    store::StoreError,
};
use rusqlite::{Connection, OptionalExtension as _, params, params_from_iter, types::Value};
use uuid::Uuid;

use super::{
    ORDER_COLUMNS, Result, SqliteStore, load, order_row, parked, unreadable, uuid_at, with_payments,
};
use crate::{
    order::{Anomaly, OrderRecord, OrderState},
    payment::PaymentId,
    store::office::{
        CHANGES_PAGE_MAX, Changes, FOUND_PAGE_MAX, Kept, Lease, LeaseRow, Office, OrderChange, Parked,
        ParkedPlace, Search,
    },
};

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn limit(count: usize, most: usize) -> i64 {
    i64::try_from(count.min(most)).unwrap_or(i64::MAX)
}

#[async_trait]
impl Office for SqliteStore {
    async fn changes(
        &self,
        sale: &SaleId,
        after: u64,
        limit: usize,
    ) -> std::result::Result<Changes, StoreError> {
        let sale = sale.clone();
        self.db.read("changes", move |db| changes(db, &sale, after, limit)).await
    }

    async fn find(
        &self,
        sale: &SaleId,
        search: &Search,
        after: Option<ClaimId>,
        limit: usize,
    ) -> std::result::Result<Vec<OrderRecord>, StoreError> {
        let (sale, search) = (sale.clone(), search.clone());
        self.db.read("find", move |db| find(db, &sale, &search, after, limit)).await
    }

    async fn lease(
        &self,
        name: &'static str,
        holder: &str,
        life_ms: u64,
        now: Timestamp,
    ) -> std::result::Result<Option<Lease>, StoreError> {
        let holder = holder.to_owned();
        self.db.write("lease", move |db| lease(db, name, &holder, life_ms, now)).await
    }

    async fn note(
        &self,
        lease: Lease,
        sale: &SaleId,
        order: ClaimId,
        anomaly: &Anomaly,
        now: Timestamp,
    ) -> std::result::Result<bool, StoreError> {
        let (sale, anomaly) = (sale.clone(), anomaly.clone());
        self.db.write("note", move |db| note(db, lease, &sale, order, &anomaly, now)).await
    }

    async fn keep(
        &self,
        lease: Lease,
        sale: &SaleId,
        text: &str,
        now: Timestamp,
    ) -> std::result::Result<bool, StoreError> {
        let (sale, text) = (sale.clone(), text.to_owned());
        let write = move |db: &Connection| {
            if !is_leased(db, lease)? {
                return Ok(false);
            }
            db.prepare_cached(
                "INSERT INTO reconciliations VALUES (?1, ?2, ?3, ?4) ON CONFLICT (sale) DO UPDATE
                 SET fence = excluded.fence, found = excluded.found, found_at = excluded.found_at",
            )?
            .execute(params![sale.as_str(), number(lease.fence), text, now.micros()])?;
            Ok(true)
        };
        self.db.write("keep", write).await
    }

    async fn kept(&self, sale: &SaleId) -> std::result::Result<Option<Kept>, StoreError> {
        let sale = sale.clone();
        let read = move |db: &Connection| {
            db.prepare_cached("SELECT fence, found, found_at FROM reconciliations WHERE sale = ?1")?
                .query_row([sale.as_str()], |row| {
                    Ok(Kept {
                        fence: row.get::<_, i64>(0)?.unsigned_abs(),
                        text: row.get(1)?,
                        at: Timestamp::from_micros(row.get(2)?),
                    })
                })
                .optional()
        };
        self.db.read("kept", read).await
    }

    async fn parked(
        &self,
        before: Timestamp,
        after: Option<&ParkedPlace>,
    ) -> std::result::Result<Parked, StoreError> {
        let after = after.cloned();
        self.db.read("parked", move |db| parked::page(db, before, after.as_ref())).await
    }

    async fn strike_off(&self, payment: PaymentId) -> std::result::Result<u64, StoreError> {
        self.db.write("strike off", move |db| parked::strike_off(db, payment)).await
    }
}

fn changes(db: &Connection, sale: &SaleId, after: u64, most: usize) -> Result<Changes> {
    let last: i64 = db
        .prepare_cached("SELECT coalesce(max(number), 0) FROM order_changes WHERE sale = ?1")?
        .query_row([sale.as_str()], |row| row.get(0))?;
    let mut statement = db.prepare_cached(
        "SELECT number, order_id, state, units, changed_at FROM order_changes WHERE sale = ?1 AND number > ?2
         ORDER BY number LIMIT ?3",
    )?;
    let mut rows = statement.query(params![sale.as_str(), number(after), limit(most, CHANGES_PAGE_MAX)])?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next()? {
        let (state, units): (String, String) = (row.get(2)?, row.get(3)?);
        let Some(order) = load(db, uuid_at(row, 1)?)? else { continue };
        changes.push(OrderChange {
            position: row.get::<_, i64>(0)?.unsigned_abs(),
            state: OrderState::parse(&state)
                .ok_or_else(|| unreadable(format!("'{state}' is an unknown word").into()))?,
            units: units_from_text(&units).map_err(|error| unreadable(error.into()))?,
            at: Timestamp::from_micros(row.get(4)?),
            order,
        });
    }
    Ok(Changes { changes, last: last.unsigned_abs() })
}

fn find(
    db: &Connection,
    sale: &SaleId,
    search: &Search,
    after: Option<ClaimId>,
    most: usize,
) -> Result<Vec<OrderRecord>> {
    let blob = |id: Uuid| Value::Blob(id.as_bytes().to_vec());
    let mut sql = format!("SELECT {ORDER_COLUMNS} FROM orders WHERE sale = ?");
    let mut values = vec![Value::Text(sale.to_string())];
    let mut and = |condition: &str, value: Value| {
        sql += " AND ";
        sql += condition;
        values.push(value);
    };
    and("id > ?", blob(after.map_or(Uuid::nil(), ClaimId::uuid)));
    if let Some(state) = search.state {
        and("state = ?", Value::Text(state.as_str().to_owned()));
    }
    if let Some(email) = &search.email {
        and("email IS NOT NULL AND lower(email) = lower(?)", Value::Text(email.clone()));
    }
    if let Some(account) = search.account {
        and("account = ?", Value::Text(account.to_string()));
    }
    if let Some(item) = &search.item {
        and("item = ?", Value::Text(item.to_string()));
    }
    if let Some(unit) = search.unit {
        and(
            "id IN (SELECT order_id FROM order_units u WHERE u.sale = orders.sale AND u.item = orders.item AND unit = ?)",
            Value::Integer(unit.into()),
        );
        if search.item.is_none() {
            return Ok(Vec::new());
        }
    }
    if let Some(order) = search.order {
        and("id = ?", blob(order.uuid()));
    }
    sql += " ORDER BY id LIMIT ?";
    values.push(Value::Integer(limit(most, FOUND_PAGE_MAX)));
    let rows = db
        .prepare_cached(&sql)?
        .query_map(params_from_iter(values), order_row)?
        .collect::<Result<Vec<_>>>()?;
    rows.into_iter().map(|row| with_payments(db, row)).collect()
}

fn lease(
    db: &Connection,
    name: &'static str,
    holder: &str,
    life_ms: u64,
    now: Timestamp,
) -> Result<Option<Lease>> {
    let held = db
        .prepare_cached("SELECT holder, until, life_ms, fence FROM leases WHERE name = ?1")?
        .query_row([name], |row| {
            Ok(LeaseRow {
                holder: row.get(0)?,
                until: Timestamp::from_micros(row.get(1)?),
                life_ms: row.get::<_, i64>(2)?.unsigned_abs(),
                fence: row.get::<_, i64>(3)?.unsigned_abs(),
            })
        })
        .optional()?;
    let (row, fence) = held.unwrap_or_default().asked(holder, life_ms, now);
    if fence.is_some() {
        db.prepare_cached("INSERT OR REPLACE INTO leases VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
            name,
            row.holder,
            row.until.micros(),
            number(row.life_ms),
            number(row.fence)
        ])?;
    }
    Ok(fence.map(|fence| Lease { name, fence }))
}

fn is_leased(db: &Connection, lease: Lease) -> Result<bool> {
    db.prepare_cached("SELECT 1 FROM leases WHERE name = ?1 AND fence = ?2")?
        .exists(params![lease.name, number(lease.fence)])
}

fn note(
    db: &Connection,
    lease: Lease,
    sale: &SaleId,
    order: ClaimId,
    anomaly: &Anomaly,
    now: Timestamp,
) -> Result<bool> {
    if !is_leased(db, lease)? {
        return Ok(false);
    }
    db.prepare_cached(
        "INSERT INTO anomalies (order_id, payment, kind, detail, found_at, sale) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        order.uuid().as_bytes(),
        anomaly.payment.map(|payment| payment.uuid().as_bytes().to_vec()),
        anomaly.kind,
        anomaly.detail,
        now.micros(),
        sale.as_str(),
    ])?;
    Ok(true)
}
