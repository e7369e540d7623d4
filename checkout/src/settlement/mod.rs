//! PURE: the settlement of a sale, which a bookkeeper signs.
//!
//! - here: what it says;
//! - `tally`: counting, order by order; `checks`: sums that must agree, each computed in two ways; `table`: as CSV;
//! - `words`: what people read.

mod checks;
mod table;
mod tally;
mod words;

#[cfg(test)]
mod tests;

pub use self::{
    checks::Check,
    table::csv,
    tally::Tally,
    words::{anomaly_words, money_text, state_words},
};

use std::collections::{BTreeMap, BTreeSet};

use lockgate_shared::{
    clock::Timestamp,
    gate::ItemStock,
    ids::{ClaimId, ItemId, SaleId},
    sale::SaleDefinition,
};
use serde::Serialize;

use crate::{
    order::OrderState,
    payment::{PaymentId, REFUND_FAILED},
    reconcile::Reconciled,
    store::{AnomalyRecord, ItemBooks},
};

/// Anomalies listed one by one; all of them are counted.
pub const ANOMALIES_LISTED_MAX: usize = 1_000;

/// Everything a settlement is made of besides the orders.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The sale.
    pub sale: &'a SaleDefinition,
    /// Whether an operator closed it before its time.
    pub is_closed: bool,
    /// When the settlement is made.
    pub now: Timestamp,
    /// The release that makes it.
    pub version: &'static str,
    /// The gate's counts.
    pub stock: &'a [ItemStock],
    /// The orders' counts, counted by the database.
    pub books: &'a BTreeMap<ItemId, ItemBooks>,
    /// Every anomaly by kind, and the first of them.
    pub anomalies: Anomalies,
    /// What the last comparison found.
    pub reconciled: Option<Reconciled>,
    /// When an order was paid, or its money was to go back or went back, last.
    pub changed_at: Option<Timestamp>,
    /// Records that no order could be made of.
    pub dead_letters: u64,
}

impl Facts<'_> {
    /// The last comparison, if it was made when there was nothing left to change.
    fn compared(&self) -> Option<&Reconciled> {
        // Of a sale that was closed early it is not known when.
        let is_early = self.is_closed && self.now < self.sale.closes_at;
        let ended_at = (!is_early).then_some(self.sale.closes_at);
        self.reconciled.as_ref().filter(|found| found.is_after(ended_at, self.changed_at))
    }
}

/// Anomalies counted, and the first of them.
#[derive(Debug, Default)]
pub struct Anomalies {
    /// How many of each kind.
    pub counts: BTreeMap<String, u64>,
    /// The first [`ANOMALIES_LISTED_MAX`].
    pub listed: Vec<AnomalyRecord>,
    /// Payments of which a refund failed later.
    pub refunds_failed: BTreeSet<PaymentId>,
}

impl Anomalies {
    /// Counts a page of them.
    pub fn add(&mut self, page: Vec<AnomalyRecord>) {
        for anomaly in page {
            *self.counts.entry(anomaly.kind.clone()).or_default() += 1;
            if anomaly.kind == REFUND_FAILED {
                self.refunds_failed.extend(anomaly.payment);
            }
            if self.listed.len() < ANOMALIES_LISTED_MAX {
                self.listed.push(anomaly);
            }
        }
    }
}

/// Money and units of one item in one currency. Money is in minor units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ItemLine {
    /// The item.
    pub item: ItemId,
    /// Its name, where the sale still has it.
    pub name: String,
    /// The currency.
    pub currency: String,
    /// Orders that are paid.
    pub orders_paid: u64,
    /// Their units.
    pub units_sold: u64,
    /// What those units cost.
    pub sold_for: i128,
    /// Payments that arrived.
    pub payments: u64,
    /// What arrived.
    pub gross: i128,
    /// Payments that went back.
    pub refunds: u64,
    /// What went back.
    pub refunded: i128,
    /// Payments that must still go back.
    pub refunds_due: u64,
    /// What must still go back.
    pub refund_due: i128,
    /// What came too late and is kept while units are looked for: it becomes a sale, or goes back.
    pub undecided: i128,
    /// `gross - refunded`.
    pub net: i128,
    /// `net - refund_due - undecided - sold_for`: 0 when all is right.
    pub difference: i128,
}

/// The sums of one currency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CurrencyLine {
    /// The currency.
    pub currency: String,
    /// Units sold for it.
    pub units_sold: u64,
    /// What they cost.
    pub sold_for: i128,
    /// What arrived.
    pub gross: i128,
    /// What went back.
    pub refunded: i128,
    /// What must still go back.
    pub refund_due: i128,
    /// What came too late and is kept while units are looked for.
    pub undecided: i128,
    /// `gross - refunded`.
    pub net: i128,
    /// `net - refund_due - undecided - sold_for`.
    pub difference: i128,
}

/// Money through one gateway in one currency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GatewayLine {
    /// The gateway.
    pub gateway: String,
    /// The currency.
    pub currency: String,
    /// Payments that arrived.
    pub payments: u64,
    /// Money in.
    pub money_in: i128,
    /// Payments that went back.
    pub refunds: u64,
    /// Money back.
    pub money_back: i128,
    /// `money_in - money_back`.
    pub net: i128,
}

/// Money that is counted as given back although its refund failed later. A remark, no difference: whether it was given
/// back another way since is known to people only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefundsFailedLine {
    /// The currency.
    pub currency: String,
    /// Payments.
    pub payments: u64,
    /// What of them counts as given back.
    pub amount: i128,
    /// The same in words.
    pub remark: String,
}

/// The stock of one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StockLine {
    /// The item.
    pub item: ItemId,
    /// Units on sale.
    pub stock: u32,
    /// Units nobody has.
    pub available: u32,
    /// Units held.
    pub held: u32,
    /// Units sold.
    pub sold: u32,
    /// Of them, units of orders whose money goes or went back, which are not on sale again.
    pub kept_out: u64,
}

/// How many orders stand in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateLine {
    /// The state.
    pub state: &'static str,
    /// Orders.
    pub orders: u64,
    /// Their units.
    pub units: u64,
}

/// How many anomalies there are of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnomalyLine {
    /// The kind.
    pub kind: String,
    /// What it means.
    pub meaning: String,
    /// How many.
    pub count: u64,
}

/// One anomaly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnomalyView {
    /// When it was found.
    pub found_at: Timestamp,
    /// The order or claim.
    pub order: ClaimId,
    /// The kind.
    pub kind: String,
    /// What was found and what was done.
    pub detail: String,
}

/// The settlement.
#[derive(Clone, Debug, Serialize)]
pub struct Settlement {
    /// The sale.
    pub sale: SaleId,
    /// Its name.
    pub name: String,
    /// `final` or `preliminary`.
    pub status: &'static str,
    /// Why it is only preliminary; empty when it is final.
    pub preliminary_because: Vec<String>,
    /// When it was made.
    pub made_at: Timestamp,
    /// By which release.
    pub version: &'static str,
    /// When claims began.
    pub opened_at: Timestamp,
    /// When they end or ended, as written in the sale.
    pub closes_at: Timestamp,
    /// Whether an operator closed it before.
    pub closed_early: bool,
    /// Item by item.
    pub items: Vec<ItemLine>,
    /// Currency by currency.
    pub totals: Vec<CurrencyLine>,
    /// Gateway by gateway.
    pub gateways: Vec<GatewayLine>,
    /// Money counted as given back whose refund failed later, currency by currency.
    pub refunds_failed: Vec<RefundsFailedLine>,
    /// Orders by state.
    pub orders: Vec<StateLine>,
    /// All orders.
    pub orders_total: u64,
    /// The gate's counts.
    pub stock: Vec<StockLine>,
    /// Anomalies by kind.
    pub anomalies: Vec<AnomalyLine>,
    /// All anomalies.
    pub anomalies_total: u64,
    /// The first of them one by one.
    pub anomalies_listed: Vec<AnomalyView>,
    /// Sums that were computed in two ways.
    pub checks: Vec<Check>,
    /// Checks that do not hold, and differences that the reconciler says stand: 0 when all is right.
    pub differences: u64,
    /// Whether stock, orders and payments were compared order by order after the sale ended and orders changed last.
    pub compared: bool,
    /// What the reconciler found last.
    pub reconciled: Option<Reconciled>,
}

impl Settlement {
    /// Whether nothing can change any more.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.preliminary_because.is_empty()
    }

    /// The settlement of a sale whose orders were counted by `tally`.
    #[must_use]
    pub fn of(tally: &Tally, facts: Facts<'_>) -> Self {
        let items = tally.item_lines(facts.sale);
        let totals = totals(&items);
        let gateways = tally.gateway_lines();
        let orders: Vec<StateLine> = tally.state_lines();
        let checks = checks::all(tally, &items, &totals, &gateways, &facts);
        let stands = facts.reconciled.as_ref().map_or(0, |found| found.differences);
        let differences = checks.iter().filter(|check| !check.holds).count() as u64 + stands;
        let preliminary_because = words::open_points(tally, &facts);
        let compared = facts.compared().is_some();
        let counts = &facts.anomalies.counts;
        Self {
            sale: facts.sale.id.clone(),
            name: facts.sale.name.clone(),
            status: if preliminary_because.is_empty() { "final" } else { "preliminary" },
            preliminary_because,
            made_at: facts.now,
            version: facts.version,
            opened_at: facts.sale.opens_at,
            closes_at: facts.sale.closes_at,
            closed_early: facts.is_closed && facts.now < facts.sale.closes_at,
            orders_total: orders.iter().map(|line| line.orders).sum(),
            stock: facts.stock.iter().map(|item| stock_line(item, tally)).collect(),
            anomalies: counts
                .iter()
                .map(|(kind, count)| AnomalyLine {
                    kind: kind.clone(),
                    meaning: anomaly_words(kind).to_owned(),
                    count: *count,
                })
                .collect(),
            anomalies_total: counts.values().sum(),
            anomalies_listed: facts.anomalies.listed.into_iter().map(AnomalyView::from).collect(),
            compared,
            reconciled: facts.reconciled,
            refunds_failed: tally.refunds_failed_lines(),
            items,
            totals,
            gateways,
            orders,
            checks,
            differences,
        }
    }
}

fn stock_line(item: &ItemStock, tally: &Tally) -> StockLine {
    StockLine {
        item: item.item.clone(),
        stock: item.stock,
        available: item.available,
        held: item.held,
        sold: item.sold,
        kept_out: tally.units_kept_out(&item.item),
    }
}

impl From<AnomalyRecord> for AnomalyView {
    fn from(found: AnomalyRecord) -> Self {
        Self { found_at: found.found_at, order: found.order, kind: found.kind, detail: found.detail }
    }
}

fn totals(items: &[ItemLine]) -> Vec<CurrencyLine> {
    let mut totals: BTreeMap<&str, CurrencyLine> = BTreeMap::new();
    for line in items {
        let total = totals.entry(&line.currency).or_default();
        line.currency.clone_into(&mut total.currency);
        total.units_sold += line.units_sold;
        total.sold_for += line.sold_for;
        total.gross += line.gross;
        total.refunded += line.refunded;
        total.refund_due += line.refund_due;
        total.undecided += line.undecided;
        total.net += line.net;
        total.difference += line.difference;
    }
    totals.into_values().collect()
}

/// Whether an order of this state can still become another without anybody's doing.
pub(crate) fn is_open(state: OrderState) -> bool {
    matches!(state, OrderState::AwaitingPayment | OrderState::RefundDue)
}
