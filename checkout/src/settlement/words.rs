//! PURE: what people read in a settlement.

use lockgate_shared::wording::price_text;

use super::{Facts, Tally};

/// An amount in the currency's own digits.
#[must_use]
pub fn money_text(amount: i128, currency: &str) -> String {
    let clamped = amount.clamp(i64::MIN.into(), i64::MAX.into());
    // In range by the line above.
    price_text(i64::try_from(clamped).unwrap_or(i64::MAX), currency)
}

/// What a state of orders means.
#[must_use]
pub fn state_words(state: &str) -> &'static str {
    match state {
        "awaiting_payment" => "Held, not yet paid",
        "paid" => "Paid",
        "expired" => "Not paid in time",
        "cancelled" => "Cancelled",
        "refund_due" => "Money must go back",
        "refunded" => "Money went back",
        _ => "Other",
    }
}

/// What a kind of anomaly means.
#[must_use]
pub fn anomaly_words(kind: &str) -> &'static str {
    match kind {
        "paid_late" => "A payment arrived after its order had ended",
        "paid_twice" => "An order was paid a second time",
        "wrong_amount" => "Another amount or currency arrived than was asked for",
        "wrong_order" => "A payment named another order",
        "paid_but_released" => "The units of a paid order had been given back already",
        "ended_but_committed" => "The units of an order that ended unpaid are sold in the stock",
        "refunded_by_operator" => "An operator had the money given back; the detail says who and why",
        "cancelled_by_operator" => "An operator cancelled the order; the detail says who and why",
        "refund_failed" => {
            "A refund failed later at the payment service; the money is to be given back another way"
        }
        "reclaimed" => "An order that was paid late got units after all",
        "not_reclaimed" => "There were no units for an order that was paid late; its money went back",
        "unit_taken" => "A claim named a unit that another order had",
        "repaired_order_missing" => "A hold had no order; it was made",
        "repaired_hold_lost" => "The stock had lost a hold; it was rebuilt",
        "repaired_hold_gone" => "The units of an unpaid order were gone; the order was ended",
        "repaired_commit_lost" => "The stock had not heard that units were sold; it was told again",
        "repaired_release_lost" => "The stock had not heard that units were given back; it was told again",
        "repaired_notice_lost" => "The payment service's message was lost; it was asked",
        _ => "See what was found and done below",
    }
}

fn plural(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// Why the settlement is only preliminary.
pub(super) fn open_points(tally: &Tally, facts: &Facts<'_>) -> Vec<String> {
    let mut points = Vec::new();
    if facts.now < facts.sale.closes_at && !facts.is_closed {
        points.push("The sale is not over yet.".to_owned());
    }
    let held: u64 = facts.stock.iter().map(|item| u64::from(item.held)).sum();
    if held > 0 {
        points.push(format!("{} still held in the stock.", plural(held, "unit is", "units are")));
    }
    if tally.open > 0 {
        let orders = plural(tally.open, "order waits", "orders wait");
        points.push(format!("{orders} for a payment or a refund."));
    }
    if tally.refunds_due() > 0 {
        let payments = plural(tally.refunds_due(), "payment has", "payments have");
        points.push(format!("{payments} not gone back yet."));
    }
    if tally.unsettled > 0 {
        let orders = plural(tally.unsettled, "order is", "orders are");
        points.push(format!("{orders} not settled with stock or payment service yet."));
    }
    if facts.dead_letters > 0 {
        let records = plural(facts.dead_letters, "record", "records");
        points.push(format!("{records} of the stock could not be taken in (lockgate sale dead-letters)."));
    }
    if facts.stock.is_empty() {
        points.push("The stock has no counts of this sale.".to_owned());
    }
    // Before that, everything is still to change.
    if facts.now >= facts.sale.closes_at || facts.is_closed {
        points.extend(uncompared(facts));
    }
    points
}

/// What a bookkeeper has to know of money whose refund failed later.
pub(super) fn refunds_failed(payments: u64, amount: i128, currency: &str) -> String {
    let count = plural(payments, "refund", "refunds");
    let amount = money_text(amount, currency);
    format!(
        "{count} failed later at the payment service: {amount} counted as given back is there again, see anomalies."
    )
}

/// Why the last comparison does not tell yet that stock, orders and payments agree.
fn uncompared(facts: &Facts<'_>) -> Option<String> {
    let Some(found) = facts.compared() else {
        let words = "Stock, orders and payments were not compared order by order since the sale ended and orders changed \
                     last. A running checkout does that by itself: make the report again in a few minutes.";
        return Some(words.to_owned());
    };
    (found.unconfirmed > 0).then(|| {
        let count = plural(found.unconfirmed, "difference was", "differences were");
        format!("{count} found that may only be under way: make the report again in a few minutes.")
    })
}
