//! Orders in PostgreSQL: every verb is one transaction; an order is locked from its loading to the commit.

mod anomalies;
mod batch;
mod letters;
mod moves;
mod office;
mod outbox;
mod parked;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use deadpool_postgres::{Object, Pool, Transaction};
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
    limits::STORE_CALL_MS_MAX,
    store::{StoreError, migrations::Migration, postgres::migrate},
};
use tokio_postgres::IsolationLevel;
use uuid::Uuid;

use self::moves::{Lock, load, owner_of, save};
use super::{
    AnomalyRecord, DeadLetter, DeadLetters, ItemBooks, Notified, ORDERS_PAGE_MAX, OVERDUE_SECONDS, Placed,
    Store, UNSETTLED_MAX,
    fault::over_rows,
    rows::{NoticeRow, RowError},
};
use crate::{
    order::{self, Decision, GateSide, Intake, OrderEvent, OrderRecord, OrderState},
    outbox::Wants,
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
    has_tables: AtomicBool,
    wants: Wants,
}

impl PostgresStore {
    /// Over a pool whose database has [`ORDERS_POSTGRES`] applied.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self { pool, has_tables: AtomicBool::new(true), wants: Wants::default() }
    }

    /// Over a pool whose database may be away: every verb fails until [`PostgresStore::prepare`] succeeded.
    #[must_use]
    pub fn unprepared(pool: Pool) -> Self {
        Self { has_tables: AtomicBool::new(false), ..Self::new(pool) }
    }

    /// Applies [`ORDERS_POSTGRES`].
    ///
    /// # Errors
    /// The database cannot be reached, or does not fit this release. It may be tried again.
    pub async fn prepare(&self) -> std::result::Result<(), StoreError> {
        migrate(&self.pool, &[("orders", ORDERS_POSTGRES)]).await?;
        self.has_tables.store(true, Ordering::Release);
        Ok(())
    }

    /// The same, with an outbox for the channels that are set up.
    #[must_use]
    pub fn telling(self, wants: Wants) -> Self {
        Self { wants, ..self }
    }

    /// Runs `op` in one transaction. Whatever fails before the commit changed nothing. What waited for a lock must then see
    /// what the one before it wrote (the feed's places rest on it), so the isolation is said, whatever the database's
    /// default is.
    async fn transact<T, F>(&self, verb: &'static str, op: F) -> std::result::Result<T, StoreError>
    where
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T>,
    {
        metrics::counter!("lockgate_store_calls_total", "store" => "postgres", "verb" => verb).increment(1);
        let untouched = |error: RowError| StoreError::untouched(verb, error);
        if !self.has_tables.load(Ordering::Acquire) {
            return Err(StoreError::untouched(
                verb,
                "the database has not answered since this process started",
            ));
        }
        let mut client = self.pool.get().await.map_err(|error| untouched(error.into()))?;
        let work = async {
            let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
            let tx = begin.start().await.map_err(|error| untouched(error.into()))?;
            let answer = op(&tx).await.map_err(|error| untouched(over_rows(error)))?;
            tx.commit().await.map_err(|error| StoreError::unknown(verb, error))?;
            Ok(answer)
        };
        let limit = Duration::from_millis(TRANSACTION_MS_MAX);
        if let Ok(outcome) = tokio::time::timeout(limit, work).await {
            return outcome;
        }
        // Whoever came next on this connection would wait for the same answer.
        drop(Object::take(client));
        Err(StoreError::unknown(verb, "the transaction took too long"))
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
        self.transact("place", async |tx| place(tx, sale, batch, dead, (now, self.wants)).await).await
    }

    async fn decide(
        &self,
        order: ClaimId,
        event: &OrderEvent,
        now: Timestamp,
    ) -> std::result::Result<Option<Decision>, StoreError> {
        self.transact("decide", async |tx| decide(tx, order, event, (now, self.wants)).await).await
    }

    async fn notify(
        &self,
        gateway: &str,
        event: &str,
        notice: &Notice,
        now: Timestamp,
    ) -> std::result::Result<Notified, StoreError> {
        self.transact("notify", async |tx| notify(tx, gateway, event, notice, (now, self.wants)).await).await
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

    async fn anomalies(
        &self,
        sale: &SaleId,
        after: Option<u64>,
    ) -> std::result::Result<Vec<AnomalyRecord>, StoreError> {
        self.transact("anomalies", async |tx| anomalies::page(tx, sale, after).await).await
    }

    async fn dead_letters(&self, sale: &SaleId) -> std::result::Result<DeadLetters, StoreError> {
        self.transact("dead letters", async |tx| letters::all(tx, sale).await).await
    }

    async fn clear(&self, sale: &SaleId, event: &str) -> std::result::Result<(), StoreError> {
        self.transact("clear", async |tx| letters::clear(tx, sale, event).await).await
    }

    async fn ping(&self) -> std::result::Result<(), StoreError> {
        self.transact("ping", async |tx| Ok(tx.execute("SELECT 1", &[]).await.map(drop)?)).await
    }
}

/// When a change happens, and which channels hear of it.
type When = (Timestamp, Wants);

async fn decide(
    tx: &Transaction<'_>,
    id: ClaimId,
    event: &OrderEvent,
    when: When,
) -> Result<Option<Decision>> {
    let Some(before) = load(tx, &[id.uuid()], Lock::Yes).await?.remove(&id.uuid()) else {
        return Ok(None);
    };
    let mut decision = order::decide(&before, event, when.0);
    let mut anomalies: Vec<_> = decision.anomalies.drain(..).map(|anomaly| (id, anomaly)).collect();
    if decision.after != before {
        decision.after = save(tx, &before, decision.after, when, &mut anomalies).await?;
    }
    anomalies::write(tx, &anomalies, when.0).await?;
    decision.anomalies = anomalies.into_iter().map(|(_, anomaly)| anomaly).collect();
    Ok(Some(decision))
}

/// A batch is a fixed number of statements however many records it holds: what it is about is loaded, decided in
/// memory, and written back.
async fn place(
    tx: &Transaction<'_>,
    sale: &SaleId,
    batch: &[Intake],
    dead: &[DeadLetter],
    (now, wants): When,
) -> Result<Placed> {
    let buried = letters::write(tx, sale, dead).await?;
    if batch.is_empty() {
        return Ok(Placed { buried, ..Placed::default() });
    }
    let mut ids: Vec<Uuid> = batch.iter().map(|intake| intake.placement().order.uuid()).collect();
    ids.sort_unstable();
    ids.dedup();
    lock_claims(tx, &ids).await?;
    let before = batch::load_ledger(tx, batch, &ids).await?;
    let mut after = batch::Ledger { wants, ..before.clone() };
    let placed = after.place(batch, now);
    batch::write_changes(tx, &before, &after, now).await?;
    outbox::write(tx, &after.drafts, now).await?;
    anomalies::write(tx, &placed.anomalies, now).await?;
    Ok(Placed { buried, ..placed })
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

async fn notify(
    tx: &Transaction<'_>,
    gateway: &str,
    event: &str,
    notice: &Notice,
    when: When,
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
                &when.0.micros(),
            ],
        )
        .await?
        == 1;
    if !is_new {
        return Ok(Notified::Duplicate);
    }
    let owner = owner_of(tx, notice.payment).await?.or(notice.order);
    let decision = match owner {
        Some(order) => decide(tx, order, &OrderEvent::Notified(notice.clone()), when).await?,
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
