//! PURE: an order as operators see it: in the feed, in search and in exports.

use lockgate_shared::{
    clock::Timestamp,
    ids::{AccountHash, ClaimId, ItemId, SaleId},
    wording::price_text,
};
use serde::Serialize;

use super::csv;
use crate::{
    order::OrderRecord,
    payment::{PaymentRecord, PaymentState},
};

/// An order as operators see it. Money is in minor units of `currency`.
#[derive(Clone, Debug, Serialize)]
pub struct OfficeOrder {
    /// The order.
    pub order_id: ClaimId,
    /// Its sale.
    pub sale: SaleId,
    /// What is bought.
    pub item: ItemId,
    /// Which units.
    pub units: Vec<u32>,
    /// How many.
    pub quantity: usize,
    /// Where it stands.
    pub state: &'static str,
    /// The price of all units.
    pub amount: i64,
    /// Its currency.
    pub currency: String,
    /// The buyer's address, if one was given.
    pub email: Option<String>,
    /// The buyer's account, as the line knows it.
    pub account: AccountHash,
    /// When the units were claimed.
    pub claimed_at: Timestamp,
    /// Until when they were held.
    pub hold_expires_at: Timestamp,
    /// What arrived in this currency.
    pub money_in: i64,
    /// What of it went back.
    pub money_back: i64,
    /// Payment attempts.
    pub payments: usize,
}

impl From<&OrderRecord> for OfficeOrder {
    fn from(order: &OrderRecord) -> Self {
        let sum = |counts: fn(&PaymentRecord) -> bool| {
            let paid = order.payments.iter().filter(|attempt| counts(attempt));
            let own = paid.filter_map(|attempt| attempt.paid.as_ref());
            let own = own.filter(|money| money.currency == order.price.currency);
            own.fold(0_i64, |sum, money| sum.saturating_add(money.amount))
        };
        Self {
            order_id: order.id,
            sale: order.sale.clone(),
            item: order.item.clone(),
            units: order.units.clone(),
            quantity: order.units.len(),
            state: order.state.as_str(),
            amount: order.price.amount,
            currency: order.price.currency.clone(),
            email: order.email.clone(),
            account: order.account,
            claimed_at: order.claimed_at,
            hold_expires_at: order.hold_expires_at,
            money_in: sum(|attempt| attempt.state >= PaymentState::Succeeded),
            money_back: sum(|attempt| attempt.state == PaymentState::Refunded),
            payments: order.payments.len(),
        }
    }
}

/// The columns of an export, in their order. New ones are added at the end only.
pub const COLUMNS: [&str; 16] = [
    "order_id",
    "sale",
    "item",
    "units",
    "quantity",
    "state",
    "amount",
    "currency",
    "price",
    "email",
    "account",
    "claimed_at",
    "hold_expires_at",
    "money_in",
    "money_back",
    "payments",
];

/// The first line of an export.
#[must_use]
pub fn csv_header() -> String {
    csv::header(&COLUMNS)
}

/// An amount in the currency's own digits, without its name.
#[must_use]
pub fn decimal_text(amount: i64, currency: &str) -> String {
    let text = price_text(amount, currency);
    text.strip_suffix(currency).unwrap_or(&text).trim_end().to_owned()
}

/// An order as a line of an export.
#[must_use]
pub fn csv_row(order: &OfficeOrder) -> String {
    let units: Vec<String> = order.units.iter().map(u32::to_string).collect();
    csv::Line::default()
        .text(&order.order_id.to_string())
        .text(order.sale.as_str())
        .text(order.item.as_str())
        .text(&units.join(" "))
        .number(order.quantity)
        .text(order.state)
        .number(order.amount)
        .text(&order.currency)
        .number(decimal_text(order.amount, &order.currency))
        .text(order.email.as_deref().unwrap_or_default())
        // Base64url may begin with a minus: written as a text, it is one to spreadsheets as well.
        .text(&order.account.to_string())
        .text(&order.claimed_at.to_string())
        .text(&order.hold_expires_at.to_string())
        .number(order.money_in)
        .number(order.money_back)
        .number(order.payments)
        .end()
}

/// An order as a line of JSON.
#[must_use]
pub fn json_line(order: &OfficeOrder) -> String {
    // Texts and numbers always have a JSON form.
    let mut line = serde_json::to_string(order).unwrap_or_default();
    line.push('\n');
    line
}
