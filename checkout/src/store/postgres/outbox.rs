//! Messages that wait to be delivered.

use std::collections::BTreeMap;

use async_trait::async_trait;
use deadpool_postgres::Transaction;
use lockgate_shared::{clock::Timestamp, ids::ClaimId, store::StoreError};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{PostgresStore, Result};
use crate::{
    outbox::{Channel, Draft, MessageId},
    store::{
        outbox::{
            Attempt, ChannelFigures, DEAD_MESSAGES_MAX, DeadMessage, LEASES_MAX, Leased, OutboxStore,
            TRIMMED_MAX, sort,
        },
        outbox_rows::{AttemptRow, MessageRow, put_aside},
    },
};

#[async_trait]
impl OutboxStore for PostgresStore {
    async fn lease_messages(
        &self,
        channel: Channel,
        most: usize,
        now: Timestamp,
        until: Timestamp,
    ) -> std::result::Result<Vec<Leased>, StoreError> {
        self.transact("lease messages", async |tx| lease(tx, channel, most, now, until).await).await
    }

    async fn record_attempt(
        &self,
        message: MessageId,
        lease: u32,
        attempt: &Attempt,
        now: Timestamp,
    ) -> std::result::Result<bool, StoreError> {
        self.transact("record attempt", async |tx| record(tx, message, lease, attempt, now).await).await
    }

    async fn outbox_figures(&self) -> std::result::Result<BTreeMap<Channel, ChannelFigures>, StoreError> {
        self.transact("outbox figures", figures).await
    }

    async fn dead_messages(&self) -> std::result::Result<Vec<DeadMessage>, StoreError> {
        self.transact("dead messages", dead).await
    }

    async fn retry_messages(
        &self,
        one: Option<MessageId>,
        now: Timestamp,
    ) -> std::result::Result<u64, StoreError> {
        self.transact("retry messages", async |tx| retry(tx, one, now).await).await
    }

    async fn trim_messages(
        &self,
        delivered_before: Timestamp,
        dead_before: Timestamp,
    ) -> std::result::Result<u64, StoreError> {
        self.transact("trim messages", async |tx| trim(tx, delivered_before, dead_before).await).await
    }
}

/// Writes the messages that changes of orders brought, in one statement. The orders' rows are there and locked; their
/// counters number the messages.
pub(super) async fn write(tx: &Transaction<'_>, drafts: &[(ClaimId, Draft)], now: Timestamp) -> Result<()> {
    if drafts.is_empty() {
        return Ok(());
    }
    let statement = tx
        .prepare_cached(
            "WITH drafts AS (
                 SELECT *, row_number() OVER (PARTITION BY order_id ORDER BY place) AS rank
                 FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
                     WITH ORDINALITY AS d (order_id, channel, kind, content, place)
             ), counted AS (
                 UPDATE orders o SET messages = o.messages + c.count
                 FROM (SELECT order_id, count(*) AS count FROM drafts GROUP BY order_id) c WHERE o.id = c.order_id
                 RETURNING o.id, o.messages - c.count AS before
             )
             INSERT INTO outbox (order_id, number, channel, kind, content, created_at, due_at)
             SELECT d.order_id, c.before + d.rank, d.channel, d.kind, d.content, $5, $5
             FROM drafts d JOIN counted c ON c.id = d.order_id",
        )
        .await?;
    let orders: Vec<Uuid> = drafts.iter().map(|(order, _)| order.uuid()).collect();
    let channels: Vec<&str> = drafts.iter().map(|(_, draft)| draft.channel.as_str()).collect();
    let kinds: Vec<&str> = drafts.iter().map(|(_, draft)| draft.kind.as_str()).collect();
    let contents: Vec<String> = drafts.iter().map(|(_, draft)| draft.content.to_text()).collect();
    let written = tx.execute(&statement, &[&orders, &channels, &kinds, &contents, &now.micros()]).await?;
    if written == drafts.len() as u64 { Ok(()) } else { Err("a message's order is not there".into()) }
}

fn message_row(row: &Row) -> Result<MessageRow> {
    Ok(MessageRow {
        order: row.try_get(0)?,
        number: row.try_get(1)?,
        channel: row.try_get(2)?,
        kind: row.try_get(3)?,
        content: row.try_get(4)?,
        created_at: row.try_get(5)?,
    })
}

async fn lease(
    tx: &Transaction<'_>,
    channel: Channel,
    most: usize,
    now: Timestamp,
    until: Timestamp,
) -> Result<Vec<Leased>> {
    // What another process is leasing at this moment is passed over, and so is what comes after it.
    let statement = tx
        .prepare_cached(
            "WITH due AS MATERIALIZED (
                 SELECT order_id, number FROM outbox o WHERE state = 'waiting' AND channel = $1 AND due_at <= $2
                     AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.order_id = o.order_id AND e.number < o.number
                         AND e.channel = o.channel AND e.state = 'waiting')
                 ORDER BY due_at, order_id, number LIMIT $3 FOR UPDATE OF o SKIP LOCKED)
             UPDATE outbox o SET due_at = $4, lease = lease + 1, attempts = attempts + 1
             FROM due WHERE o.order_id = due.order_id AND o.number = due.number
             RETURNING o.order_id, o.number, o.channel, o.kind, o.content, o.created_at, o.lease, o.attempts",
        )
        .await?;
    let most = i64::try_from(most.min(LEASES_MAX))?;
    let rows = tx.query(&statement, &[&channel.as_str(), &now.micros(), &most, &until.micros()]).await?;
    let mut leased = Vec::with_capacity(rows.len());
    for row in &rows {
        let found = message_row(row)?;
        let (id, lease) = (found.id()?, u32::try_from(row.try_get::<_, i64>(6)?)?);
        match found.read() {
            Ok(message) => {
                let attempts = u32::try_from(row.try_get::<_, i64>(7)?)?;
                leased.push(Leased { message, lease, attempts });
            }
            Err(error) => {
                record(tx, id, lease, &put_aside(id, &error), now).await?;
            }
        }
    }
    sort(&mut leased);
    Ok(leased)
}

async fn record(
    tx: &Transaction<'_>,
    message: MessageId,
    lease: u32,
    attempt: &Attempt,
    now: Timestamp,
) -> Result<bool> {
    let row = AttemptRow::of(attempt, now);
    let statement = tx
        .prepare_cached(
            "UPDATE outbox SET state = $4, due_at = coalesce($5, due_at), problem = $6, ended_at = $7
             WHERE order_id = $1 AND number = $2 AND state = 'waiting' AND (lease = $3 OR $8)",
        )
        .await?;
    // PostgreSQL keeps no text with a zero character.
    let problem = row.problem.map(|problem| problem.replace('\0', "\u{fffd}"));
    let changed = tx
        .execute(
            &statement,
            &[
                &message.order.uuid(),
                &i64::from(message.number),
                &i64::from(lease),
                &row.state,
                &row.due_at,
                &problem,
                &row.ended_at,
                &row.is_fact,
            ],
        )
        .await?;
    Ok(changed == 1)
}

async fn figures(tx: &Transaction<'_>) -> Result<BTreeMap<Channel, ChannelFigures>> {
    let statement = tx
        .prepare_cached(
            "SELECT channel, count(*) FILTER (WHERE state = 'waiting'),
                 min(created_at) FILTER (WHERE state = 'waiting'), count(*) FILTER (WHERE state = 'dead')
             FROM outbox WHERE state = 'waiting' OR state = 'dead' GROUP BY channel",
        )
        .await?;
    let mut figures = BTreeMap::new();
    for row in tx.query(&statement, &[]).await? {
        let channel: String = row.try_get(0)?;
        // One that a later release wrote has no lane here, and no figures.
        let Some(channel) = Channel::parse(&channel) else { continue };
        let of = ChannelFigures {
            waiting: u64::try_from(row.try_get::<_, i64>(1)?)?,
            oldest_at: row.try_get::<_, Option<i64>>(2)?.map(Timestamp::from_micros),
            dead: u64::try_from(row.try_get::<_, i64>(3)?)?,
        };
        figures.insert(channel, of);
    }
    Ok(figures)
}

async fn dead(tx: &Transaction<'_>) -> Result<Vec<DeadMessage>> {
    let statement = tx
        .prepare_cached(
            "SELECT order_id, number, channel, kind, content, created_at, attempts, problem, ended_at FROM outbox
             WHERE state = 'dead' ORDER BY ended_at, order_id, number LIMIT $1",
        )
        .await?;
    let mut dead = Vec::new();
    for row in &tx.query(&statement, &[&i64::try_from(DEAD_MESSAGES_MAX)?]).await? {
        let found = message_row(row)?;
        dead.push(DeadMessage {
            id: found.id()?,
            channel: found.channel,
            kind: found.kind,
            created_at: Timestamp::from_micros(found.created_at),
            attempts: u32::try_from(row.try_get::<_, i64>(6)?)?,
            problem: row.try_get::<_, Option<String>>(7)?.unwrap_or_default(),
            died_at: Timestamp::from_micros(row.try_get::<_, Option<i64>>(8)?.unwrap_or_default()),
        });
    }
    Ok(dead)
}

async fn retry(tx: &Transaction<'_>, one: Option<MessageId>, now: Timestamp) -> Result<u64> {
    let statement = tx
        .prepare_cached(
            "UPDATE outbox SET state = 'waiting', due_at = $1, attempts = 0, ended_at = NULL
             WHERE state = 'dead' AND ($2::uuid IS NULL OR order_id = $2 AND number = $3)",
        )
        .await?;
    let order = one.map(|one| one.order.uuid());
    let number = one.map(|one| i64::from(one.number));
    Ok(tx.execute(&statement, &[&now.micros(), &order, &number]).await?)
}

async fn trim(tx: &Transaction<'_>, delivered_before: Timestamp, dead_before: Timestamp) -> Result<u64> {
    let statement = tx
        .prepare_cached(
            "DELETE FROM outbox o USING (
                 SELECT order_id, number FROM outbox WHERE state = 'delivered' AND ended_at < $1
                 UNION ALL SELECT order_id, number FROM outbox WHERE state = 'dead' AND ended_at < $2 LIMIT $3) over_
             WHERE o.order_id = over_.order_id AND o.number = over_.number AND o.state <> 'waiting'",
        )
        .await?;
    let most = i64::try_from(TRIMMED_MAX)?;
    Ok(tx.execute(&statement, &[&delivered_before.micros(), &dead_before.micros(), &most]).await?)
}
