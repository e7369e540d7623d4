//! PURE: sums that must agree, each computed in two ways that share no counting.

use serde::Serialize;

use super::{CurrencyLine, Facts, GatewayLine, ItemLine, Tally};
use crate::order::OrderState;

/// A sum computed in two ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What is compared, in words.
    pub what: String,
    /// The one sum.
    pub one: i128,
    /// The other.
    pub other: i128,
    /// Whether they agree.
    pub holds: bool,
}

fn check(what: impl Into<String>, one: i128, other: i128) -> Check {
    Check { what: what.into(), one, other, holds: one == other }
}

pub(super) fn all(
    tally: &Tally,
    items: &[ItemLine],
    totals: &[CurrencyLine],
    gateways: &[GatewayLine],
    facts: &Facts<'_>,
) -> Vec<Check> {
    let mut checks = Vec::new();
    for item in facts.stock {
        let name = facts.sale.item(&item.item).map_or(item.item.as_str(), |known| &known.name);
        let committed = i128::from(tally.units_committed(&item.item));
        let what = format!("{name}: units sold by the stock = units sold by orders");
        checks.push(check(what, item.sold.into(), committed));
        // While a paid order waits to be told to the stock, its units are still held there.
        if tally.unsettled == 0 {
            let what = format!(
                "{name}: units sold by the stock = units of paid orders + units kept out of the sale"
            );
            let units = tally.units_sold(&item.item) + tally.units_kept_out(&item.item);
            checks.push(check(what, item.sold.into(), units.into()));
        }
        let parts = i128::from(item.available) + i128::from(item.held) + i128::from(item.sold);
        checks.push(check(
            format!("{name}: units on sale = available + held + sold"),
            item.stock.into(),
            parts,
        ));
        let books = facts.books.get(&item.item);
        let held = books.map_or(0, |books| books.held);
        checks.push(check(
            format!("{name}: units held by the stock = units held for orders"),
            item.held.into(),
            held.into(),
        ));
    }
    for state in OrderState::ALL {
        let counted: u64 = facts.books.values().filter_map(|books| books.orders.get(state)).sum();
        let what = format!("orders {}: counted one by one = counted by the database", state.as_str());
        checks.push(check(what, tally.orders_in(*state).into(), counted.into()));
    }
    for total in totals {
        let of = |sum: fn(&GatewayLine) -> i128| -> i128 {
            gateways.iter().filter(|line| line.currency == total.currency).map(sum).sum()
        };
        let currency = &total.currency;
        checks.push(check(
            format!("{currency}: money in by items = money in by gateways"),
            total.gross,
            of(|line| line.money_in),
        ));
        checks.push(check(
            format!("{currency}: money back by items = money back by gateways"),
            total.refunded,
            of(|line| line.money_back),
        ));
        checks.push(check(
            format!("{currency}: money kept - refunds due - late and undecided = price of what was sold"),
            total.net - total.refund_due - total.undecided,
            total.sold_for,
        ));
    }
    for line in items {
        let what = format!(
            "{} ({}): kept - refunds due - late and undecided = price of what was sold",
            line.name, line.currency
        );
        checks.push(check(what, line.net - line.refund_due - line.undecided, line.sold_for));
    }
    checks
}
