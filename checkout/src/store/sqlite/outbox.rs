//! Messages that wait to be delivered.

use std::collections::BTreeMap;

use async_trait::async_trait;
use lockgate_shared::{clock::Timestamp, ids::ClaimId, store::StoreError};
use rusqlite::{Connection, Result, Row, params};

use super::{SqliteStore, unreadable, uuid_at};
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
impl OutboxStore for SqliteStore {
    async fn lease_messages(
        &self,
        channel: Channel,
        most: usize,
        now: Timestamp,
        until: Timestamp,
    ) -> std::result::Result<Vec<Leased>, StoreError> {
        self.db.write("lease messages", move |db| lease(db, channel, most, now, until)).await
    }

    async fn record_attempt(
        &self,
        message: MessageId,
        lease: u32,
        attempt: &Attempt,
        now: Timestamp,
    ) -> std::result::Result<bool, StoreError> {
        let attempt = attempt.clone();
        self.db.write("record attempt", move |db| record(db, message, lease, &attempt, now)).await
    }

    async fn outbox_figures(&self) -> std::result::Result<BTreeMap<Channel, ChannelFigures>, StoreError> {
        self.db.read("outbox figures", figures).await
    }

    async fn dead_messages(&self) -> std::result::Result<Vec<DeadMessage>, StoreError> {
        self.db.read("dead messages", dead).await
    }

    async fn retry_messages(
        &self,
        one: Option<MessageId>,
        now: Timestamp,
    ) -> std::result::Result<u64, StoreError> {
        self.db.write("retry messages", move |db| retry(db, one, now)).await
    }

    async fn trim_messages(
        &self,
        delivered_before: Timestamp,
        dead_before: Timestamp,
    ) -> std::result::Result<u64, StoreError> {
        self.db.write("trim messages", move |db| trim(db, delivered_before, dead_before)).await
    }
}

/// Writes the messages that a change of an order brought.
pub(super) fn write(db: &Connection, order: ClaimId, drafts: &[Draft], now: Timestamp) -> Result<()> {
    if drafts.is_empty() {
        return Ok(());
    }
    let count = i64::try_from(drafts.len()).unwrap_or(i64::MAX);
    let last: i64 = db
        .prepare_cached("UPDATE orders SET messages = messages + ?2 WHERE id = ?1 RETURNING messages")?
        .query_row(params![order.uuid().as_bytes(), count], |row| row.get(0))?;
    let mut insert = db.prepare_cached(
        "INSERT INTO outbox (order_id, number, channel, kind, content, created_at, due_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
    )?;
    for (number, draft) in (last - count + 1..).zip(drafts) {
        insert.execute(params![
            order.uuid().as_bytes(),
            number,
            draft.channel.as_str(),
            draft.kind.as_str(),
            draft.content.to_text(),
            now.micros(),
        ])?;
    }
    Ok(())
}

fn message_row(row: &Row<'_>) -> Result<MessageRow> {
    Ok(MessageRow {
        order: uuid_at(row, 0)?,
        number: row.get(1)?,
        channel: row.get(2)?,
        kind: row.get(3)?,
        content: row.get(4)?,
        created_at: row.get(5)?,
    })
}

fn lease(
    db: &Connection,
    channel: Channel,
    most: usize,
    now: Timestamp,
    until: Timestamp,
) -> Result<Vec<Leased>> {
    let mut statement = db.prepare_cached(
        "UPDATE outbox SET due_at = ?4, lease = lease + 1, attempts = attempts + 1
         WHERE (order_id, number) IN (
             SELECT order_id, number FROM outbox o WHERE state = 'waiting' AND channel = ?1 AND due_at <= ?2
                 AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.order_id = o.order_id AND e.number < o.number
                     AND e.channel = o.channel AND e.state = 'waiting')
             ORDER BY due_at, order_id, number LIMIT ?3)
         RETURNING order_id, number, channel, kind, content, created_at, lease, attempts",
    )?;
    let most = i64::try_from(most.min(LEASES_MAX)).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![channel.as_str(), now.micros(), most, until.micros()])?;
    let (mut leased, mut aside) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let (found, lease) = (message_row(row)?, row.get(6)?);
        let id = found.id().map_err(unreadable)?;
        match found.read() {
            Ok(message) => leased.push(Leased { message, lease, attempts: row.get(7)? }),
            Err(error) => aside.push((id, lease, put_aside(id, &error))),
        }
    }
    for (id, lease, attempt) in aside {
        record(db, id, lease, &attempt, now)?;
    }
    sort(&mut leased);
    Ok(leased)
}

fn record(
    db: &Connection,
    message: MessageId,
    lease: u32,
    attempt: &Attempt,
    now: Timestamp,
) -> Result<bool> {
    let row = AttemptRow::of(attempt, now);
    let changed = db
        .prepare_cached(
            "UPDATE outbox SET state = ?4, due_at = coalesce(?5, due_at), problem = ?6, ended_at = ?7
             WHERE order_id = ?1 AND number = ?2 AND state = 'waiting' AND (lease = ?3 OR ?8)",
        )?
        .execute(params![
            message.order.uuid().as_bytes(),
            message.number,
            lease,
            row.state,
            row.due_at,
            row.problem,
            row.ended_at,
            row.is_fact,
        ])?;
    Ok(changed == 1)
}

fn figures(db: &Connection) -> Result<BTreeMap<Channel, ChannelFigures>> {
    let mut figures = BTreeMap::new();
    for channel in Channel::ALL {
        let (waiting, oldest): (i64, Option<i64>) = db
            .prepare_cached(
                "SELECT count(*), min(created_at) FROM outbox WHERE state = 'waiting' AND channel = ?1",
            )?
            .query_row([channel.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let dead: i64 = db
            .prepare_cached("SELECT count(*) FROM outbox WHERE state = 'dead' AND channel = ?1")?
            .query_row([channel.as_str()], |row| row.get(0))?;
        let of = ChannelFigures {
            waiting: waiting.unsigned_abs(),
            oldest_at: oldest.map(Timestamp::from_micros),
            dead: dead.unsigned_abs(),
        };
        if of != ChannelFigures::default() {
            figures.insert(*channel, of);
        }
    }
    Ok(figures)
}

fn dead(db: &Connection) -> Result<Vec<DeadMessage>> {
    let mut statement = db.prepare_cached(
        "SELECT order_id, number, channel, kind, content, created_at, attempts, problem, ended_at FROM outbox
         WHERE state = 'dead' ORDER BY ended_at, order_id, number LIMIT ?1",
    )?;
    let mut rows = statement.query([i64::try_from(DEAD_MESSAGES_MAX).unwrap_or(i64::MAX)])?;
    let mut dead = Vec::new();
    while let Some(row) = rows.next()? {
        let found = message_row(row)?;
        dead.push(DeadMessage {
            id: found.id().map_err(unreadable)?,
            channel: found.channel,
            kind: found.kind,
            created_at: Timestamp::from_micros(found.created_at),
            attempts: row.get(6)?,
            problem: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
            died_at: Timestamp::from_micros(row.get(8)?),
        });
    }
    Ok(dead)
}

fn retry(db: &Connection, one: Option<MessageId>, now: Timestamp) -> Result<u64> {
    let changed = db
        .prepare_cached(
            "UPDATE outbox SET state = 'waiting', due_at = ?1, attempts = 0, ended_at = NULL
             WHERE state = 'dead' AND (?2 IS NULL OR order_id = ?2 AND number = ?3)",
        )?
        .execute(params![
            now.micros(),
            one.map(|one| one.order.uuid().as_bytes().to_vec()),
            one.map(|one| one.number),
        ])?;
    Ok(changed as u64)
}

fn trim(db: &Connection, delivered_before: Timestamp, dead_before: Timestamp) -> Result<u64> {
    let removed = db
        .prepare_cached(
            "DELETE FROM outbox WHERE (order_id, number) IN (
                 SELECT order_id, number FROM outbox WHERE state = 'delivered' AND ended_at < ?1
                 UNION ALL SELECT order_id, number FROM outbox WHERE state = 'dead' AND ended_at < ?2 LIMIT ?3)",
        )?
        .execute(params![
            delivered_before.micros(),
            dead_before.micros(),
            i64::try_from(TRIMMED_MAX).unwrap_or(i64::MAX),
        ])?;
    Ok(removed as u64)
}
