//! Orders in PostgreSQL: every verb is one transaction; an order is locked from its loading to the commit.

mod moves;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use async_trait::async_trait;
use deadpool_postgres::{Pool, Transaction};
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
    limits::STORE_CALL_MS_MAX,
    store::{StoreError, migrations::Migration},
};
use uuid::Uuid;

use self::moves::{Lock, load, owner_of, save, write_anomalies};
use super::{
    DeadLetter, ItemBooks, Notified, ORDERS_PAGE_MAX, OVERDUE_SECONDS, Placed, Store, UNSETTLED_MAX,
    rows::{NoticeRow, RowError},
};
use crate::{
    order::{self, Decision, GateSide, Intake, OrderEvent, OrderRecord, OrderState},
    payment::{Notice, PaymentId},
};

/// The tables of orders.
pub const ORDERS_POSTGRES: &[Migration] = super::rows::POSTGRES;

/// Longest a transaction of several statements may take.
const TRANSACTION_MS_MAX: u64 = 4 * STORE_CALL_MS_MAX;

type Result<T> = std::result::Result<T, RowError>;

/// Orders in PostgreSQL.
pub struct PostgresStore {
    pool: Pool,
}

impl PostgresStore {
    /// Over a pool whose database has [`ORDERS_POSTGRES`] applied.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self { pool }
    }

    /// Runs `op` in one transaction. Whatever fails before the commit changed nothing.
    async fn transact<T, F>(&self, verb: &'static str, op: F) -> std::result::Result<T, StoreError>
    where
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T>,
    {
        metrics::counter!("lockgate_store_calls_total", "store" => "postgres", "verb" => verb).increment(1);
        let untouched = |error: RowError| StoreError::untouched(verb, error);
        let mut client = self.pool.get().await.map_err(|error| untouched(error.into()))?;
        let work = async {
            let tx = client.transaction().await.map_err(|error| untouched(error.into()))?;
            let answer = op(&tx).await.map_err(untouched)?;
            tx.commit().await.map_err(|error| StoreError::unknown(verb, error))?;
            Ok(answer)
        };
        let limit = Duration::from_millis(TRANSACTION_MS_MAX);
        let outcome = tokio::time::timeout(limit, work).await;
        outcome.unwrap_or_else(|_| Err(StoreError::unknown(verb, "the transaction took too long")))
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn place(
        &self,
        sale: &SaleId,
        batch: &[Intake],
        dead: &[DeadLetter],
        now: Timestamp,
    ) -> std::result::Result<Placed, StoreError> {
        self.transact("place", async |tx| place(tx, sale, batch, dead, now).await).await
    }

    async fn decide(
        &self,
        order: ClaimId,
        event: &OrderEvent,
        now: Timestamp,
    ) -> std::result::Result<Option<Decision>, StoreError> {
        self.transact("decide", async |tx| decide(tx, order, event, now).await).await
    }

    async fn notify(
        &self,
        gateway: &str,
        event: &str,
        notice: &Notice,
        now: Timestamp,
    ) -> std::result::Result<Notified, StoreError> {
        self.transact("notify", async |tx| notify(tx, gateway, event, notice, now).await).await
    }

    async fn order(&self, order: ClaimId) -> std::result::Result<Option<OrderRecord>, StoreError> {
        self.transact("order", async |tx| {
            Ok(load(tx, &[order.uuid()], Lock::No).await?.remove(&order.uuid()))
        })
        .await
    }

    async fn order_of(&self, payment: PaymentId) -> std::result::Result<Option<ClaimId>, StoreError> {
        self.transact("order of payment", async |tx| owner_of(tx, payment).await).await
    }

    async fn unsettled(
        &self,
        after: Option<ClaimId>,
        now: Timestamp,
    ) -> std::result::Result<Vec<OrderRecord>, StoreError> {
        self.transact("unsettled", async |tx| unsettled(tx, after, now).await).await
    }

    async fn orders(
        &self,
        sale: &SaleId,
        after: Option<ClaimId>,
    ) -> std::result::Result<Vec<OrderRecord>, StoreError> {
        self.transact("orders", async |tx| orders(tx, sale, after).await).await
    }

    async fn books(&self, sale: &SaleId) -> std::result::Result<BTreeMap<ItemId, ItemBooks>, StoreError> {
        self.transact("books", async |tx| books(tx, sale).await).await
    }

    async fn ping(&self) -> std::result::Result<(), StoreError> {
        self.transact("ping", async |tx| Ok(tx.execute("SELECT 1", &[]).await.map(drop)?)).await
    }
}

async fn decide(
    tx: &Transaction<'_>,
    id: ClaimId,
    event: &OrderEvent,
    now: Timestamp,
) -> Result<Option<Decision>> {
    let Some(before) = load(tx, &[id.uuid()], Lock::Yes).await?.remove(&id.uuid()) else {
        return Ok(None);
    };
    let decision = order::decide(&before, event, now);
    let mut anomalies: Vec<_> = decision.anomalies.iter().map(|anomaly| (id, anomaly.clone())).collect();
    if decision.after != before {
        save(tx, Some(&before), decision.after.clone(), now, &mut anomalies).await?;
    }
    write_anomalies(tx, &anomalies, now).await?;
    Ok(Some(decision))
}

async fn place(
    tx: &Transaction<'_>,
    sale: &SaleId,
    batch: &[Intake],
    dead: &[DeadLetter],
    now: Timestamp,
) -> Result<Placed> {
    let mut placed = Placed::default();
    // Written down where they are found, by `decide`.
    let mut anomalies_of_parked = Vec::new();
    for letter in dead {
        tx.execute(
            "INSERT INTO dead_letters VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            &[&sale.as_str(), &letter.event, &letter.problem, &now.micros()],
        )
        .await?;
    }
    let mut ids: Vec<Uuid> = batch.iter().map(|intake| intake.placement().order.uuid()).collect();
    ids.sort_unstable();
    ids.dedup();
    lock_claims(tx, &ids).await?;
    let mut orders = load(tx, &ids, Lock::Yes).await?;
    // A commit makes no order, so whatever waits for one goes on waiting.
    let may_make: Vec<Uuid> = batch
        .iter()
        .filter(|intake| !matches!(intake, Intake::Committed(_)))
        .map(|intake| intake.placement().order.uuid())
        .collect();
    let mut parked = take_parked(tx, &may_make).await?;
    for intake in batch {
        let id = intake.placement().order;
        let before = orders.get(&id.uuid());
        let Some(after) = order::place(before, intake) else {
            continue;
        };
        let mut after = save(tx, before, after, now, &mut placed.anomalies).await?;
        for notice in parked.remove(&id.uuid()).unwrap_or_default() {
            // An attempt that another order made meanwhile is that order's to answer for.
            let owner = owner_of(tx, notice.payment).await?.unwrap_or(id);
            let Some(decision) = decide(tx, owner, &OrderEvent::Notified(notice), now).await? else {
                continue;
            };
            let found = decision.anomalies.into_iter();
            anomalies_of_parked.extend(found.map(|anomaly| (owner, anomaly)));
            if owner == id {
                after = decision.after;
            } else if let Some(cached) = orders.get_mut(&owner.uuid()) {
                *cached = decision.after;
            }
        }
        orders.insert(id.uuid(), after.clone());
        placed.changed.push(after);
    }
    write_anomalies(tx, &placed.anomalies, now).await?;
    placed.anomalies.extend(anomalies_of_parked);
    Ok(placed)
}

/// Takes the claims' turns. There is no row to lock before an order is there, and both another batch with the same
/// claim and a notification for it must see either no order and no parked notice of the other, or both.
async fn lock_claims(tx: &Transaction<'_>, ids: &[Uuid]) -> Result<()> {
    let keys: Vec<i64> = ids.iter().map(lock_key).collect();
    let statement = tx
        .prepare_cached("SELECT pg_advisory_xact_lock(key) FROM (SELECT DISTINCT key FROM unnest($1::bigint[]) key ORDER BY key) keys")
        .await?;
    tx.execute(&statement, &[&keys]).await?;
    Ok(())
}

/// The first eight random bytes of an id. Two ids that share them only wait for one another.
#[allow(clippy::cast_possible_wrap, reason = "any 64 bits serve as a key")]
fn lock_key(id: &Uuid) -> i64 {
    id.as_u64_pair().1 as i64
}

/// The notices that wait for these orders, marked as applied.
async fn take_parked(tx: &Transaction<'_>, ids: &[Uuid]) -> Result<HashMap<Uuid, Vec<Notice>>> {
    let statement = tx
        .prepare_cached(
            "UPDATE notifications SET parked = false WHERE order_id = ANY($1) AND parked
             RETURNING payment, order_id, outcome, amount, currency, received_at, gateway, event",
        )
        .await?;
    let mut found = Vec::new();
    for row in tx.query(&statement, &[&ids]).await? {
        let place: (i64, String, String) = (row.try_get(5)?, row.try_get(6)?, row.try_get(7)?);
        let notice = NoticeRow {
            payment: row.try_get(0)?,
            order: row.try_get(1)?,
            outcome: row.try_get(2)?,
            amount: row.try_get(3)?,
            currency: row.try_get(4)?,
        };
        found.push((place, notice.read()?));
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut parked: HashMap<Uuid, Vec<Notice>> = HashMap::new();
    for (_, notice) in found {
        if let Some(order) = notice.order {
            parked.entry(order.uuid()).or_default().push(notice);
        }
    }
    Ok(parked)
}

async fn notify(
    tx: &Transaction<'_>,
    gateway: &str,
    event: &str,
    notice: &Notice,
    now: Timestamp,
) -> Result<Notified> {
    if let Some(order) = notice.order {
        lock_claims(tx, &[order.uuid()]).await?;
    }
    let row = NoticeRow::of(notice);
    let is_new = tx
        .execute(
            "INSERT INTO notifications VALUES ($1, $2, $3, $4, $5, $6, $7, true, $8) ON CONFLICT DO NOTHING",
            &[
                &gateway,
                &event,
                &row.payment,
                &row.order,
                &row.outcome,
                &row.amount,
                &row.currency,
                &now.micros(),
            ],
        )
        .await?
        == 1;
    if !is_new {
        return Ok(Notified::Duplicate);
    }
    let owner = owner_of(tx, notice.payment).await?.or(notice.order);
    let decision = match owner {
        Some(order) => decide(tx, order, &OrderEvent::Notified(notice.clone()), now).await?,
        None => None,
    };
    let Some(decision) = decision else {
        return Ok(Notified::Parked);
    };
    tx.execute(
        "UPDATE notifications SET parked = false WHERE gateway = $1 AND event = $2",
        &[&gateway, &event],
    )
    .await?;
    Ok(Notified::Applied(Box::new(decision)))
}

async fn unsettled(tx: &Transaction<'_>, after: Option<ClaimId>, now: Timestamp) -> Result<Vec<OrderRecord>> {
    let after = after.map_or(Uuid::nil(), ClaimId::uuid);
    let statement = tx
        .prepare_cached(
            "SELECT id FROM orders WHERE unsettled AND id > $1
             UNION
             SELECT id FROM orders WHERE state = 'awaiting_payment' AND ending IS NULL AND hold_expires_at < $2
                 AND id > $1
             ORDER BY id LIMIT $3",
        )
        .await?;
    let overdue = now.minus_seconds(OVERDUE_SECONDS).micros();
    let rows = tx.query(&statement, &[&after, &overdue, &i64::try_from(UNSETTLED_MAX)?]).await?;
    let ids = rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<Vec<Uuid>, _>>()?;
    let mut orders = load(tx, &ids, Lock::No).await?;
    Ok(ids.iter().filter_map(|id| orders.remove(id)).collect())
}

async fn orders(tx: &Transaction<'_>, sale: &SaleId, after: Option<ClaimId>) -> Result<Vec<OrderRecord>> {
    let after = after.map_or(Uuid::nil(), ClaimId::uuid);
    let statement =
        tx.prepare_cached("SELECT id FROM orders WHERE sale = $1 AND id > $2 ORDER BY id LIMIT $3").await?;
    let rows = tx.query(&statement, &[&sale.as_str(), &after, &i64::try_from(ORDERS_PAGE_MAX)?]).await?;
    let ids = rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<Vec<Uuid>, _>>()?;
    let mut orders = load(tx, &ids, Lock::No).await?;
    Ok(ids.iter().filter_map(|id| orders.remove(id)).collect())
}

async fn books(tx: &Transaction<'_>, sale: &SaleId) -> Result<BTreeMap<ItemId, ItemBooks>> {
    let statement = tx
        .prepare_cached(
            "SELECT item, state, gate, count(*), sum(unit_count)::bigint FROM orders WHERE sale = $1
             GROUP BY item, state, gate",
        )
        .await?;
    let mut books: BTreeMap<ItemId, ItemBooks> = BTreeMap::new();
    for row in tx.query(&statement, &[&sale.as_str()]).await? {
        let (item, state, gate): (String, String, String) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let (Some(state), Some(gate)) = (OrderState::parse(&state), GateSide::parse(&gate)) else {
            return Err(format!("'{state}', '{gate}' are unknown words").into());
        };
        let (orders, units): (i64, i64) = (row.try_get(3)?, row.try_get(4)?);
        books.entry(item.parse()?).or_default().count(
            state,
            gate,
            u64::try_from(orders)?,
            u64::try_from(units)?,
        );
    }
    Ok(books)
}
