//! What the simulated gateway knows, in a SQLite file of its own: payments, and webhooks until they have arrived.

use std::path::Path;

use lockgate_shared::{
    clock::Timestamp,
    ids::ClaimId,
    store::{StoreError, migrations::Migration, sqlite::Sqlite},
};
use rusqlite::{Connection, OptionalExtension as _, Row, params, types::Type};
use uuid::Uuid;

use super::{Answer, Message, Stage};
use crate::{
    gateways::PaymentOrder,
    payment::{Money, PaymentId},
};

const TABLES: &[Migration] = &[
    Migration {
        version: 1,
        sql: "
        CREATE TABLE payments (
            id TEXT PRIMARY KEY, order_id TEXT, amount INTEGER, currency TEXT, description TEXT, return_url TEXT,
            state TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE webhooks (
            number INTEGER PRIMARY KEY AUTOINCREMENT, message TEXT NOT NULL, body TEXT NOT NULL,
            tries INTEGER NOT NULL, next_try_at INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX webhooks_due ON webhooks (next_try_at);
    ",
    },
    // How often the money of a payment was asked back: what went back went back once all the same.
    Migration { version: 2, sql: "ALTER TABLE payments ADD COLUMN refund_calls INTEGER NOT NULL DEFAULT 0;" },
];

/// Webhooks sent in one round.
const ROUND_MAX: i64 = 64;
/// A webhook that did not arrive in this many tries is given up; the callback and the shop's own questions remain.
const TRIES_MAX: u32 = 40;
/// Longest pause between two tries.
const PAUSE_MS_MAX: u64 = 30_000;

/// A payment.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) payment: PaymentId,
    pub(crate) state: Stage,
    /// Absent when it was cancelled before it was opened.
    pub(crate) opened: Option<Opened>,
}

/// What a payment was opened with.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) order: ClaimId,
    pub(crate) price: Money,
    pub(crate) description: String,
    pub(crate) return_url: String,
}

impl Entry {
    pub(crate) fn answer(&self) -> Answer {
        let has_paid = matches!(self.state, Stage::Paid | Stage::Refunded);
        Answer {
            payment: self.payment,
            state: self.state,
            paid: self.opened.as_ref().filter(|_| has_paid).map(|opened| opened.price.clone()),
        }
    }
}

/// A webhook that is due.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    pub(crate) number: i64,
    pub(crate) message: String,
    pub(crate) body: String,
    pub(crate) tries: u32,
}

#[derive(Clone)]
pub(crate) struct Ledger {
    db: Sqlite,
}

impl Ledger {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { db: Sqlite::open(path, &[("simulated-gateway", TABLES)])? })
    }

    /// Opens a payment, or answers the one that is there.
    pub(crate) async fn start(&self, order: &PaymentOrder) -> Result<Entry, StoreError> {
        let order = order.clone();
        self.db
            .write("gateway start", move |db| {
                db.prepare_cached(
                    "INSERT INTO payments (id, order_id, amount, currency, description, return_url, state)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'open') ON CONFLICT DO NOTHING",
                )?
                .execute(params![
                    order.payment.to_string(),
                    order.order.to_string(),
                    order.price.amount,
                    order.price.currency,
                    order.description,
                    order.return_url,
                ])?;
                entry_or_fail(db, order.payment)
            })
            .await
    }

    /// Makes a payment unpayable unless it is over; one that was never opened is remembered as cancelled.
    pub(crate) async fn cancel(&self, payment: PaymentId) -> Result<Entry, StoreError> {
        self.db
            .write("gateway cancel", move |db| {
                db.prepare_cached(
                    "INSERT INTO payments (id, state) VALUES (?1, 'cancelled') ON CONFLICT (id) DO UPDATE
                     SET state = CASE WHEN state IN ('open', 'failed') THEN 'cancelled' ELSE state END",
                )?
                .execute([payment.to_string()])?;
                entry_or_fail(db, payment)
            })
            .await
    }

    /// Gives the money back, once.
    pub(crate) async fn refund(&self, payment: PaymentId) -> Result<Option<Entry>, StoreError> {
        self.db
            .write("gateway refund", move |db| {
                db.prepare_cached(
                    "UPDATE payments SET state = 'refunded', refund_calls = refund_calls + 1
                     WHERE id = ?1 AND state IN ('paid', 'refunded')",
                )?
                .execute([payment.to_string()])?;
                entry(db, payment)
            })
            .await
    }

    /// Takes the price of an order before the shop asked for it; its webhook is written down in the same step.
    pub(crate) async fn take_ahead(
        &self,
        payment: PaymentId,
        order: ClaimId,
        price: Money,
        webhook: WebhookPlan,
    ) -> Result<Entry, StoreError> {
        self.db
            .write("gateway take ahead", move |db| {
                db.prepare_cached(
                    "INSERT INTO payments (id, order_id, amount, currency, description, return_url, state)
                     VALUES (?1, ?2, ?3, ?4, 'Paid ahead', '', 'paid')",
                )?
                .execute(params![
                    payment.to_string(),
                    order.to_string(),
                    price.amount,
                    price.currency
                ])?;
                let entry = entry_or_fail(db, payment)?;
                write_webhook(db, &entry, &webhook)?;
                Ok(entry)
            })
            .await
    }

    /// The buyer finishes an open payment (or pays one that was made unpayable, where `is_late_success`); its webhook is
    /// written down in the same step. Answers the payment and whether this call finished it.
    pub(crate) async fn finish(
        &self,
        payment: PaymentId,
        is_paid: bool,
        is_late_success: bool,
        webhook: WebhookPlan,
    ) -> Result<Option<(Entry, bool)>, StoreError> {
        self.db
            .write("gateway finish", move |db| {
                let stage = if is_paid { Stage::Paid } else { Stage::Failed };
                let finished = db
                    .prepare_cached(
                        "UPDATE payments SET state = ?2 WHERE id = ?1
                         AND (state = 'open' OR (?3 AND state = 'cancelled' AND order_id IS NOT NULL))",
                    )?
                    .execute(params![payment.to_string(), stage.as_str(), is_paid && is_late_success])?
                    == 1;
                let Some(entry) = entry(db, payment)? else {
                    return Ok(None);
                };
                if finished {
                    write_webhook(db, &entry, &webhook)?;
                }
                Ok(Some((entry, finished)))
            })
            .await
    }

    pub(crate) async fn entry(&self, payment: PaymentId) -> Result<Option<Entry>, StoreError> {
        self.db.read("gateway payment", move |db| entry(db, payment)).await
    }

    pub(crate) async fn due(&self, now: Timestamp) -> Result<Vec<Due>, StoreError> {
        self.db
            .read("gateway webhooks", move |db| {
                db.prepare_cached(
                    "SELECT number, message, body, tries FROM webhooks WHERE next_try_at <= ?1
                     ORDER BY next_try_at LIMIT ?2",
                )?
                .query_map(params![now.micros(), ROUND_MAX], |row| {
                    Ok(Due {
                        number: row.get(0)?,
                        message: row.get(1)?,
                        body: row.get(2)?,
                        tries: row.get(3)?,
                    })
                })?
                .collect()
            })
            .await
    }

    /// Writes down how a try went: what arrived, or was tried often enough, is forgotten.
    pub(crate) async fn tried(&self, due: &Due, arrived: bool, now: Timestamp) -> Result<(), StoreError> {
        let (number, tries) = (due.number, due.tries + 1);
        if !arrived && tries >= TRIES_MAX {
            tracing::warn!(message = due.message, tries, "a webhook is given up; it never arrived");
        }
        self.db
            .write("gateway webhook tried", move |db| {
                if arrived || tries >= TRIES_MAX {
                    return db
                        .prepare_cached("DELETE FROM webhooks WHERE number = ?1")?
                        .execute([number])
                        .map(drop);
                }
                let pause_ms = PAUSE_MS_MAX.min(250 << tries.min(10));
                let next = now.plus(std::time::Duration::from_millis(pause_ms));
                db.prepare_cached("UPDATE webhooks SET tries = ?2, next_try_at = ?3 WHERE number = ?1")?
                    .execute(params![number, tries, next.micros()])
                    .map(drop)
            })
            .await
    }
}

/// How a finished payment is to be announced.
#[derive(Clone, Debug)]
pub(crate) struct WebhookPlan {
    /// The message's id; copies carry the same.
    pub(crate) message: String,
    pub(crate) copies: u32,
    pub(crate) first_try_at: Timestamp,
}

fn write_webhook(db: &Connection, entry: &Entry, plan: &WebhookPlan) -> rusqlite::Result<()> {
    let opened = entry.opened.as_ref();
    let message = Message {
        kind: format!("payment.{}", entry.state.as_str()),
        payment: Some(entry.payment),
        order: opened.map(|opened| opened.order),
        price: opened.map(|opened| opened.price.clone()),
    };
    let body = serde_json::to_string(&message)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let mut insert =
        db.prepare_cached("INSERT INTO webhooks (message, body, tries, next_try_at) VALUES (?1, ?2, 0, ?3)")?;
    for _ in 0..plan.copies {
        insert.execute(params![plan.message, body, plan.first_try_at.micros()])?;
    }
    Ok(())
}

fn entry_or_fail(db: &Connection, payment: PaymentId) -> rusqlite::Result<Entry> {
    entry(db, payment)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

fn entry(db: &Connection, payment: PaymentId) -> rusqlite::Result<Option<Entry>> {
    db.prepare_cached(
        "SELECT id, state, order_id, amount, currency, description, return_url FROM payments WHERE id = ?1",
    )?
    .query_row([payment.to_string()], read_entry)
    .optional()
}

fn read_entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let unreadable =
        |what: &str| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, what.to_owned().into());
    let (id, state): (String, String) = (row.get(0)?, row.get(1)?);
    let order: Option<String> = row.get(2)?;
    let opened = match order {
        None => None,
        Some(order) => Some(Opened {
            order: ClaimId::from(Uuid::try_parse(&order).map_err(|_| unreadable("order id"))?),
            price: Money { amount: row.get(3)?, currency: row.get(4)? },
            description: row.get(5)?,
            return_url: row.get(6)?,
        }),
    };
    Ok(Entry {
        payment: PaymentId::from(Uuid::try_parse(&id).map_err(|_| unreadable("payment id"))?),
        state: Stage::parse(&state).ok_or_else(|| unreadable("state"))?,
        opened,
    })
}
