//! The back office's side of the orders in PostgreSQL.

use async_trait::async_trait;
use deadpool_postgres::Transaction;
use lockgate_shared::{
    clock::Timestamp,
    events::units_from_text,
    ids::{ClaimId, SaleId},
    store::StoreError,
};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{
    PostgresStore, Result,
    moves::{Lock, load},
    parked,
};
use crate::{
    order::{Anomaly, OrderRecord, OrderState},
    payment::PaymentId,
    store::office::{
        CHANGES_PAGE_MAX, Changes, FOUND_PAGE_MAX, Kept, Lease, LeaseRow, Office, OrderChange, Parked,
        ParkedPlace, Search,
    },
};

/// Changes that get their places in one step.
const PLACED_MAX: i64 = 10_000;

#[async_trait]
impl Office for PostgresStore {
    async fn changes(
        &self,
        sale: &SaleId,
        after: u64,
        limit: usize,
    ) -> std::result::Result<Changes, StoreError> {
        self.transact("changes", async |tx| changes(tx, sale, after, limit).await).await
    }

    async fn find(
        &self,
        sale: &SaleId,
        search: &Search,
        after: Option<ClaimId>,
        limit: usize,
    ) -> std::result::Result<Vec<OrderRecord>, StoreError> {
        self.transact("find", async |tx| find(tx, sale, search, after, limit).await).await
    }

    async fn lease(
        &self,
        name: &'static str,
        holder: &str,
        life_ms: u64,
        _now: Timestamp,
    ) -> std::result::Result<Option<Lease>, StoreError> {
        self.transact("lease", async |tx| lease(tx, name, holder, life_ms).await).await
    }

    async fn note(
        &self,
        lease: Lease,
        sale: &SaleId,
        order: ClaimId,
        anomaly: &Anomaly,
        now: Timestamp,
    ) -> std::result::Result<bool, StoreError> {
        self.transact("note", async |tx| {
            if !is_leased(tx, lease).await? {
                return Ok(false);
            }
            let statement = tx
                .prepare_cached(
                    "INSERT INTO anomalies (order_id, payment, kind, detail, found_at, sale)
                     VALUES ($1, $2, $3, $4, $5, $6)",
                )
                .await?;
            let (id, payment) = (order.uuid(), anomaly.payment.map(PaymentId::uuid));
            let (at, sale) = (now.micros(), sale.as_str());
            tx.execute(&statement, &[&id, &payment, &anomaly.kind, &anomaly.detail, &at, &sale]).await?;
            Ok(true)
        })
        .await
    }

    async fn keep(
        &self,
        lease: Lease,
        sale: &SaleId,
        text: &str,
        now: Timestamp,
    ) -> std::result::Result<bool, StoreError> {
        self.transact("keep", async |tx| {
            if !is_leased(tx, lease).await? {
                return Ok(false);
            }
            let statement = tx
                .prepare_cached(
                    "INSERT INTO reconciliations VALUES ($1, $2, $3, $4) ON CONFLICT (sale) DO UPDATE
                     SET fence = excluded.fence, found = excluded.found, found_at = excluded.found_at",
                )
                .await?;
            let fence = i64::try_from(lease.fence)?;
            tx.execute(&statement, &[&sale.as_str(), &fence, &text, &now.micros()]).await?;
            Ok(true)
        })
        .await
    }

    async fn kept(&self, sale: &SaleId) -> std::result::Result<Option<Kept>, StoreError> {
        self.transact("kept", async |tx| {
            let statement = tx
                .prepare_cached("SELECT fence, found, found_at FROM reconciliations WHERE sale = $1")
                .await?;
            let Some(row) = tx.query_opt(&statement, &[&sale.as_str()]).await? else { return Ok(None) };
            Ok(Some(Kept {
                fence: u64::try_from(row.try_get::<_, i64>(0)?)?,
                text: row.try_get(1)?,
                at: Timestamp::from_micros(row.try_get(2)?),
            }))
        })
        .await
    }

    async fn parked(
        &self,
        before: Timestamp,
        after: Option<&ParkedPlace>,
    ) -> std::result::Result<Parked, StoreError> {
        self.transact("parked", async |tx| parked::page(tx, before, after).await).await
    }

    async fn strike_off(&self, payment: PaymentId) -> std::result::Result<u64, StoreError> {
        self.transact("strike off", async |tx| parked::strike_off(tx, payment).await).await
    }
}

/// Gives committed changes their places in the feed. The lock makes it one transaction after the other, each of which
/// sees what the one before it wrote; so no place is ever readable before a lower one.
async fn place_changes(tx: &Transaction<'_>, sale: &SaleId) -> Result<()> {
    let statement =
        tx.prepare_cached("SELECT 1 FROM order_changes WHERE sale = $1 AND position IS NULL LIMIT 1").await?;
    if tx.query_opt(&statement, &[&sale.as_str()]).await?.is_none() {
        return Ok(());
    }
    let statement = tx
        .prepare_cached("SELECT pg_advisory_xact_lock(hashtextextended('order_changes/' || $1, 0))")
        .await?;
    tx.execute(&statement, &[&sale.as_str()]).await?;
    let statement = tx
        .prepare_cached(
            "UPDATE order_changes c SET position = last.position + new.rank
             FROM (SELECT number, row_number() OVER (ORDER BY number) AS rank FROM (
                       SELECT number FROM order_changes WHERE sale = $1 AND position IS NULL
                       ORDER BY number LIMIT $2) unplaced) new,
                  (SELECT coalesce(max(position), 0) AS position FROM order_changes
                   WHERE sale = $1 AND position IS NOT NULL) last
             WHERE c.number = new.number",
        )
        .await?;
    tx.execute(&statement, &[&sale.as_str(), &PLACED_MAX]).await?;
    Ok(())
}

async fn changes(tx: &Transaction<'_>, sale: &SaleId, after: u64, limit: usize) -> Result<Changes> {
    place_changes(tx, sale).await?;
    let statement = tx
        .prepare_cached(
            "SELECT coalesce(max(position), 0) FROM order_changes WHERE sale = $1 AND position IS NOT NULL",
        )
        .await?;
    let last: i64 = tx.query_one(&statement, &[&sale.as_str()]).await?.try_get(0)?;
    let statement = tx
        .prepare_cached(
            "SELECT position, order_id, state, units, changed_at FROM order_changes
             WHERE sale = $1 AND position > $2 AND position <= $3 ORDER BY position LIMIT $4",
        )
        .await?;
    let (after, most) =
        (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(limit.min(CHANGES_PAGE_MAX))?);
    let rows = tx.query(&statement, &[&sale.as_str(), &after, &last, &most]).await?;
    let ids = rows.iter().map(|row| row.try_get(1)).collect::<std::result::Result<Vec<Uuid>, _>>()?;
    let orders = load(tx, &ids, Lock::No).await?;
    let mut changes = Vec::with_capacity(rows.len());
    for (row, id) in rows.iter().zip(&ids) {
        let (state, units): (String, String) = (row.try_get(2)?, row.try_get(3)?);
        let Some(order) = orders.get(id).cloned() else { continue };
        changes.push(OrderChange {
            position: u64::try_from(row.try_get::<_, i64>(0)?)?,
            state: OrderState::parse(&state).ok_or_else(|| format!("'{state}' is an unknown word"))?,
            units: units_from_text(&units)?,
            at: Timestamp::from_micros(row.try_get(4)?),
            order,
        });
    }
    Ok(Changes { changes, last: u64::try_from(last)? })
}

async fn find(
    tx: &Transaction<'_>,
    sale: &SaleId,
    search: &Search,
    after: Option<ClaimId>,
    limit: usize,
) -> Result<Vec<OrderRecord>> {
    type Value = Box<dyn ToSql + Sync + Send>;
    if search.unit.is_some() && search.item.is_none() {
        return Ok(Vec::new());
    }
    let mut sql = "SELECT id FROM orders WHERE sale = $1 AND id > $2".to_owned();
    let mut values: Vec<Value> =
        vec![Box::new(sale.to_string()), Box::new(after.map_or(Uuid::nil(), ClaimId::uuid))];
    let mut and = |condition: &str, value: Value| {
        values.push(value);
        sql += " AND ";
        sql += &condition.replace('?', &format!("${}", values.len()));
    };
    if let Some(state) = search.state {
        and("state = ?", Box::new(state.as_str().to_owned()));
    }
    if let Some(email) = &search.email {
        let condition = "email IS NOT NULL AND lower(email COLLATE \"C\") = lower(?::text COLLATE \"C\")";
        and(condition, Box::new(email.clone()));
    }
    if let Some(account) = search.account {
        and("account = ?", Box::new(account.to_string()));
    }
    if let Some(item) = &search.item {
        and("item = ?", Box::new(item.to_string()));
    }
    if let Some(unit) = search.unit {
        and(
            "id IN (SELECT order_id FROM order_units u WHERE u.sale = orders.sale AND u.item = orders.item AND unit = ?)",
            Box::new(i64::from(unit)),
        );
    }
    if let Some(order) = search.order {
        and("id = ?", Box::new(order.uuid()));
    }
    values.push(Box::new(i64::try_from(limit.min(FOUND_PAGE_MAX))?));
    sql += &format!(" ORDER BY id LIMIT ${}", values.len());
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| &**value as _).collect();
    let rows = tx.query(&tx.prepare_cached(&sql).await?, &values).await?;
    let ids = rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<Vec<Uuid>, _>>()?;
    let mut orders = load(tx, &ids, Lock::No).await?;
    Ok(ids.iter().filter_map(|id| orders.remove(id)).collect())
}

async fn lease(
    tx: &Transaction<'_>,
    name: &'static str,
    holder: &str,
    life_ms: u64,
) -> Result<Option<Lease>> {
    let statement =
        tx.prepare_cached("INSERT INTO leases VALUES ($1, '', 0, 0, 0) ON CONFLICT DO NOTHING").await?;
    tx.execute(&statement, &[&name]).await?;
    let statement = tx
        .prepare_cached(
            "SELECT holder, until, life_ms, fence, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
             FROM leases WHERE name = $1 FOR UPDATE",
        )
        .await?;
    let row = tx.query_one(&statement, &[&name]).await?;
    let held = LeaseRow {
        holder: row.try_get(0)?,
        until: Timestamp::from_micros(row.try_get(1)?),
        life_ms: u64::try_from(row.try_get::<_, i64>(2)?)?,
        fence: u64::try_from(row.try_get::<_, i64>(3)?)?,
    };
    let (row, fence) = held.asked(holder, life_ms, Timestamp::from_micros(row.try_get(4)?));
    let Some(fence) = fence else { return Ok(None) };
    let statement = tx
        .prepare_cached("UPDATE leases SET holder = $2, until = $3, life_ms = $4, fence = $5 WHERE name = $1")
        .await?;
    let (life_ms, number) = (i64::try_from(row.life_ms)?, i64::try_from(fence)?);
    tx.execute(&statement, &[&name, &row.holder, &row.until.micros(), &life_ms, &number]).await?;
    Ok(Some(Lease { name, fence }))
}

/// Locked until the transaction ends, so that nobody takes the lease between the check and the commit.
async fn is_leased(tx: &Transaction<'_>, lease: Lease) -> Result<bool> {
    let statement =
        tx.prepare_cached("SELECT 1 FROM leases WHERE name = $1 AND fence = $2 FOR SHARE").await?;
    Ok(tx.query_opt(&statement, &[&lease.name, &i64::try_from(lease.fence)?]).await?.is_some())
}
