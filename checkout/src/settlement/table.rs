//! PURE: the settlement as CSV: one table whose lines name their section.

use super::{Settlement, money_text, state_words};
use crate::office::{csv as lines, csv::Line};

/// The columns, in their order. New ones are added at the end only.
pub const COLUMNS: [&str; 12] = [
    "section",
    "key",
    "text",
    "currency",
    "orders",
    "units",
    "payments",
    "gross",
    "refunds",
    "refunded",
    "refund_due",
    "net",
];

#[derive(Default)]
struct Row<'a> {
    section: &'a str,
    key: &'a str,
    text: &'a str,
    currency: &'a str,
    counts: [Option<u64>; 4],
    gross: Option<i128>,
    refunded: Option<i128>,
    refund_due: Option<i128>,
    net: Option<i128>,
}

impl Row<'_> {
    fn write(&self, out: &mut String) {
        let decimal = |amount: Option<i128>| {
            let text = amount.map(|amount| money_text(amount, self.currency));
            text.map(|text| text.strip_suffix(self.currency).unwrap_or(&text).trim_end().to_owned())
        };
        let [orders, units, payments, refunds] = self.counts;
        *out += &Line::default()
            .text(self.section)
            .text(self.key)
            .text(self.text)
            .text(self.currency)
            .number_or_nothing(orders)
            .number_or_nothing(units)
            .number_or_nothing(payments)
            .number_or_nothing(decimal(self.gross))
            .number_or_nothing(refunds)
            .number_or_nothing(decimal(self.refunded))
            .number_or_nothing(decimal(self.refund_due))
            .number_or_nothing(decimal(self.net))
            .end();
    }
}

/// The settlement as CSV. Amounts are in the currency's own digits.
#[must_use]
pub fn csv(settlement: &Settlement) -> String {
    let mut out = lines::header(&COLUMNS);
    let fact = |out: &mut String, section: &str, key: &str, text: &str| {
        Row { section, key, text, ..Row::default() }.write(out);
    };
    fact(&mut out, "report", "sale", settlement.sale.as_str());
    fact(&mut out, "report", "name", &settlement.name);
    fact(&mut out, "report", "status", settlement.status);
    fact(&mut out, "report", "made_at", &settlement.made_at.to_string());
    fact(&mut out, "report", "version", settlement.version);
    fact(&mut out, "report", "opened_at", &settlement.opened_at.to_string());
    fact(&mut out, "report", "closes_at", &settlement.closes_at.to_string());
    fact(&mut out, "report", "differences", &settlement.differences.to_string());
    for reason in &settlement.preliminary_because {
        fact(&mut out, "preliminary", "because", reason);
    }
    for line in &settlement.items {
        Row {
            section: "item",
            key: line.item.as_str(),
            text: &line.name,
            currency: &line.currency,
            counts: [Some(line.orders_paid), Some(line.units_sold), Some(line.payments), Some(line.refunds)],
            gross: Some(line.gross),
            refunded: Some(line.refunded),
            refund_due: Some(line.refund_due),
            net: Some(line.net),
        }
        .write(&mut out);
    }
    for line in &settlement.totals {
        Row {
            section: "total",
            key: &line.currency,
            currency: &line.currency,
            counts: [None, Some(line.units_sold), None, None],
            gross: Some(line.gross),
            refunded: Some(line.refunded),
            refund_due: Some(line.refund_due),
            net: Some(line.net),
            ..Row::default()
        }
        .write(&mut out);
    }
    for line in &settlement.gateways {
        Row {
            section: "gateway",
            key: &line.gateway,
            currency: &line.currency,
            counts: [None, None, Some(line.payments), Some(line.refunds)],
            gross: Some(line.money_in),
            refunded: Some(line.money_back),
            net: Some(line.net),
            ..Row::default()
        }
        .write(&mut out);
    }
    for line in &settlement.refunds_failed {
        Row {
            section: "remark",
            key: "refunds_failed",
            text: &line.remark,
            currency: &line.currency,
            counts: [None, None, None, Some(line.payments)],
            refunded: Some(line.amount),
            ..Row::default()
        }
        .write(&mut out);
    }
    counts(settlement, &mut out);
    out
}

/// What has no money in it.
fn counts(settlement: &Settlement, out: &mut String) {
    for line in &settlement.orders {
        let (key, text) = (line.state, state_words(line.state));
        let counts = [Some(line.orders), Some(line.units), None, None];
        Row { section: "orders", key, text, counts, ..Row::default() }.write(out);
    }
    for line in &settlement.anomalies {
        let (key, text) = (line.kind.as_str(), line.meaning.as_str());
        let counts = [Some(line.count), None, None, None];
        Row { section: "anomaly", key, text, counts, ..Row::default() }.write(out);
    }
    for check in &settlement.checks {
        let key = if check.holds { "holds" } else { "DIFFERS" };
        let text = format!("{} ({}, {})", check.what, check.one, check.other);
        Row { section: "check", key, text: &text, ..Row::default() }.write(out);
    }
    for found in settlement.reconciled.iter().flat_map(|reconciled| &reconciled.listed) {
        let text = format!("{}: {}", found.item, found.seen);
        Row { section: "difference", key: &found.kind, text: &text, ..Row::default() }.write(out);
    }
}
