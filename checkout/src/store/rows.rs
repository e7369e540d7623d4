//! Orders and payments as rows: plain texts and numbers, the same in every SQL database.

use lockgate_shared::{
    clock::Timestamp,
    events::{units_from_text, units_to_text},
    ids::ClaimId,
    language::Language,
    store::migrations::Migration,
};
use uuid::Uuid;

use crate::{
    order::{EndReason, GateSide, OrderRecord, OrderState},
    payment::{Money, Notice, Outcome, PaymentId, PaymentRecord, PaymentState, Terms},
};

/// The tables in SQLite.
pub(crate) const SQLITE: &[Migration] = &[
    Migration { version: 1, sql: include_str!("orders_sqlite.sql") },
    Migration { version: 2, sql: "ALTER TABLE dead_letters ADD COLUMN record TEXT NOT NULL DEFAULT '';" },
    Migration { version: 4, sql: include_str!("orders_sqlite_4_references.sql") },
    Migration { version: 5, sql: include_str!("orders_sqlite_5_outbox.sql") },
    Migration { version: 6, sql: include_str!("orders_sqlite_6_office.sql") },
    Migration { version: 7, sql: include_str!("orders_sqlite_7_parked.sql") },
];

/// The tables in PostgreSQL.
pub(crate) const POSTGRES: &[Migration] = &[
    Migration { version: 1, sql: include_str!("orders_postgres.sql") },
    Migration { version: 2, sql: "ALTER TABLE dead_letters ADD COLUMN record text NOT NULL DEFAULT '';" },
    Migration { version: 4, sql: include_str!("orders_postgres_4_references.sql") },
    Migration { version: 5, sql: include_str!("orders_postgres_5_outbox.sql") },
    Migration { version: 6, sql: include_str!("orders_postgres_6_office.sql") },
    Migration { version: 7, sql: include_str!("orders_postgres_7_parked.sql") },
];

/// Why a stored row cannot be read.
pub(crate) type RowError = Box<dyn std::error::Error + Send + Sync>;

/// An order's row, in the order of the columns.
pub(crate) struct OrderRow {
    pub(crate) id: Uuid,
    pub(crate) sale: String,
    pub(crate) account: String,
    pub(crate) item: String,
    pub(crate) units: String,
    pub(crate) amount: i64,
    pub(crate) currency: String,
    pub(crate) email: Option<String>,
    pub(crate) claimed_at: i64,
    pub(crate) hold_expires_at: i64,
    pub(crate) state: String,
    pub(crate) ending: Option<String>,
    pub(crate) gate: String,
    pub(crate) language: Option<String>,
}

/// An attempt's row, in the order of the columns.
pub(crate) struct PaymentRow {
    pub(crate) id: Uuid,
    pub(crate) order: Uuid,
    pub(crate) position: i64,
    pub(crate) state: String,
    pub(crate) redirect_url: Option<String>,
    pub(crate) reference: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) return_url: Option<String>,
    pub(crate) paid_amount: Option<i64>,
    pub(crate) paid_currency: Option<String>,
    pub(crate) created_at: i64,
}

/// A notification's row, without gateway and event id.
pub(crate) struct NoticeRow {
    pub(crate) payment: Uuid,
    pub(crate) order: Option<Uuid>,
    pub(crate) outcome: String,
    pub(crate) amount: Option<i64>,
    pub(crate) currency: Option<String>,
}

fn word<T>(read: impl Fn(&str) -> Option<T>, text: &str) -> Result<T, RowError> {
    read(text).ok_or_else(|| format!("'{text}' is no word this release knows").into())
}

impl OrderRow {
    pub(crate) fn of(order: &OrderRecord) -> Self {
        Self {
            id: order.id.uuid(),
            sale: order.sale.to_string(),
            account: order.account.to_string(),
            item: order.item.to_string(),
            units: units_to_text(&order.units),
            amount: order.price.amount,
            currency: order.price.currency.clone(),
            email: order.email.clone(),
            claimed_at: order.claimed_at.micros(),
            hold_expires_at: order.hold_expires_at.micros(),
            state: order.state.as_str().to_owned(),
            ending: order.ending.map(|reason| reason.as_str().to_owned()),
            gate: order.gate.as_str().to_owned(),
            language: order.language.map(|language| language.as_str().to_owned()),
        }
    }

    pub(crate) fn read(self, payments: Vec<PaymentRecord>) -> Result<OrderRecord, RowError> {
        Ok(OrderRecord {
            id: ClaimId::from(self.id),
            sale: self.sale.parse()?,
            account: self.account.parse()?,
            item: self.item.parse()?,
            units: units_from_text(&self.units)?,
            price: Money { amount: self.amount, currency: self.currency },
            email: self.email,
            // One that a later release wrote is written to as nobody's in particular.
            language: self.language.as_deref().and_then(Language::parse),
            claimed_at: Timestamp::from_micros(self.claimed_at),
            hold_expires_at: Timestamp::from_micros(self.hold_expires_at),
            state: word(OrderState::parse, &self.state)?,
            ending: self.ending.as_deref().map(|text| word(EndReason::parse, text)).transpose()?,
            gate: word(GateSide::parse, &self.gate)?,
            payments,
        })
    }
}

impl PaymentRow {
    pub(crate) fn of(order: ClaimId, position: usize, payment: &PaymentRecord) -> Self {
        Self {
            id: payment.id.uuid(),
            order: order.uuid(),
            position: i64::try_from(position).unwrap_or(i64::MAX),
            state: payment.state.as_str().to_owned(),
            redirect_url: payment.redirect_url.clone(),
            reference: payment.reference.clone(),
            description: payment.terms.as_ref().map(|terms| terms.description.clone()),
            return_url: payment.terms.as_ref().map(|terms| terms.return_url.clone()),
            paid_amount: payment.paid.as_ref().map(|money| money.amount),
            paid_currency: payment.paid.as_ref().map(|money| money.currency.clone()),
            created_at: payment.created_at.micros(),
        }
    }

    pub(crate) fn read(self) -> Result<PaymentRecord, RowError> {
        Ok(PaymentRecord {
            id: PaymentId::from(self.id),
            state: word(PaymentState::parse, &self.state)?,
            redirect_url: self.redirect_url,
            reference: self.reference,
            terms: self
                .description
                .zip(self.return_url)
                .map(|(description, return_url)| Terms { description, return_url }),
            paid: money(self.paid_amount, self.paid_currency),
            created_at: Timestamp::from_micros(self.created_at),
        })
    }
}

impl NoticeRow {
    pub(crate) fn of(notice: &Notice) -> Self {
        let (outcome, paid) = match &notice.outcome {
            Outcome::Paid(money) => ("paid", Some(money)),
            Outcome::Failed => ("failed", None),
            Outcome::Unpayable => ("unpayable", None),
            Outcome::RefundFailed => ("refund_failed", None),
        };
        Self {
            payment: notice.payment.uuid(),
            order: notice.order.map(ClaimId::uuid),
            outcome: outcome.to_owned(),
            amount: paid.map(|money| money.amount),
            currency: paid.map(|money| money.currency.clone()),
        }
    }

    pub(crate) fn read(self) -> Result<Notice, RowError> {
        let outcome = match (self.outcome.as_str(), money(self.amount, self.currency)) {
            ("paid", Some(money)) => Outcome::Paid(money),
            ("failed", None) => Outcome::Failed,
            ("unpayable", None) => Outcome::Unpayable,
            ("refund_failed", None) => Outcome::RefundFailed,
            (other, _) => return Err(format!("'{other}' is no outcome this release knows").into()),
        };
        Ok(Notice { payment: PaymentId::from(self.payment), order: self.order.map(ClaimId::from), outcome })
    }
}

fn money(amount: Option<i64>, currency: Option<String>) -> Option<Money> {
    Some(Money { amount: amount?, currency: currency? })
}
