//! The books: the gate's counts against the orders'.

use std::{collections::BTreeMap, time::Duration};

use lockgate_shared::{
    gate::StockSnapshot,
    ids::{ItemId, SaleId},
    problem::Problem,
};
use serde::Serialize;
use tokio::time::Instant;

use crate::{app::App, reconcile::Reconciled, store::ItemBooks};

/// Claims and payments are under way between the two readings; books that do not balance are read again for this
/// long.
const AGAIN_FOR: Duration = Duration::from_secs(2);
/// Pause between two readings.
const AGAIN_EVERY: Duration = Duration::from_millis(50);

/// The books of a sale.
#[derive(Clone, Debug, Serialize)]
pub struct Books {
    /// The sale.
    pub sale: SaleId,
    /// Whether every item's counts agree.
    pub balanced: bool,
    /// Item by item, in the order of the sale.
    pub items: Vec<ItemLine>,
    /// What the last comparison of gate, orders and payments found to stay; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconciled: Option<Reconciled>,
}

/// The books of one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ItemLine {
    /// The item.
    pub item: ItemId,
    /// Units on sale.
    pub stock: u32,
    /// Units that the sale's definition says, where it says another number: what a rebuild would put on sale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defined: Option<u32>,
    /// Units nobody has.
    pub available: u32,
    /// Units held at the gate.
    pub held: u32,
    /// Units sold at the gate.
    pub sold: u32,
    /// Units the gate counts as held or sold, less those the orders own.
    pub difference: i64,
    /// Orders by state.
    pub orders: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    is_even: bool,
}

impl App {
    /// The books of a sale.
    ///
    /// # Errors
    /// 503 when gate or orders cannot be asked.
    pub async fn books(&self, sale: &SaleId) -> Result<Books, Problem> {
        let deadline = Instant::now() + AGAIN_FOR;
        loop {
            let stock = self.gate.direct().stock(sale).await?;
            let books = compare(sale, &stock, &self.store.books(sale).await?);
            if books.balanced || Instant::now() >= deadline {
                let reconciled = self.reconciled(sale).await?;
                let mut books = Books { reconciled, ..books };
                self.define(&mut books);
                return Ok(books);
            }
            tokio::time::sleep(AGAIN_EVERY).await;
        }
    }
}

impl App {
    /// Says where the definition has another number of units than the gate.
    fn define(&self, books: &mut Books) {
        let Some(sale) = self.catalog.sale(&books.sale) else { return };
        for line in &mut books.items {
            let stock = sale.definition.item(&line.item).map(|item| item.stock);
            line.defined = stock.filter(|stock| *stock != line.stock);
        }
    }
}

fn compare(sale: &SaleId, stock: &StockSnapshot, orders: &BTreeMap<ItemId, ItemBooks>) -> Books {
    let none = ItemBooks::default();
    let mut items: Vec<ItemLine> = Vec::with_capacity(stock.items.len());
    for counts in &stock.items {
        let books = orders.get(&counts.item).unwrap_or(&none);
        let at_gate = i64::from(counts.held) + i64::from(counts.sold);
        let in_orders = i64::try_from(books.held + books.sold).unwrap_or(i64::MAX);
        let difference = at_gate.saturating_sub(in_orders);
        let adds_up = u64::from(counts.available) + u64::from(counts.held) + u64::from(counts.sold)
            == u64::from(counts.stock);
        items.push(ItemLine {
            item: counts.item.clone(),
            stock: counts.stock,
            defined: None,
            available: counts.available,
            held: counts.held,
            sold: counts.sold,
            difference,
            orders: books.orders.iter().map(|(state, count)| (state.as_str(), *count)).collect(),
            is_even: difference == 0 && u64::from(counts.sold) == books.sold && adds_up,
        });
    }
    let is_unknown_item_owned =
        orders.iter().any(|(item, books)| stock.item(item).is_none() && books.held + books.sold > 0);
    Books {
        sale: sale.clone(),
        balanced: items.iter().all(|item| item.is_even) && !is_unknown_item_owned,
        items,
        reconciled: None,
    }
}

#[cfg(test)]
mod tests {
    use lockgate_shared::gate::ItemStock;

    use super::*;
    use crate::order::{GateSide, OrderState};

    #[test]
    fn what_is_under_way_between_gate_and_orders_counts_where_it_is() {
        let (sale, item): (SaleId, ItemId) = ("demo".parse().unwrap(), "phone".parse().unwrap());
        let counts = ItemStock { item: item.clone(), stock: 10, available: 4, held: 4, sold: 2 };
        let stock = StockSnapshot {
            items: vec![counts],
            total_left: None,
            claimants: Vec::new(),
            too_many_claimants: false,
        };
        let mut books = ItemBooks::default();
        books.count(OrderState::Paid, GateSide::Committed, 2, 2);
        books.count(OrderState::Paid, GateSide::CommitDue, 1, 1);
        books.count(OrderState::Expired, GateSide::ReleaseDue, 1, 1);
        books.count(OrderState::Expired, GateSide::Released, 5, 5);
        books.count(OrderState::AwaitingPayment, GateSide::Held, 1, 2);
        let even = compare(&sale, &stock, &BTreeMap::from([(item.clone(), books.clone())]));
        assert!(even.balanced, "{even:?}");
        assert_eq!(even.items[0].difference, 0);
        assert_eq!(even.items[0].orders["expired"], 6);
        books.count(OrderState::AwaitingPayment, GateSide::Held, 1, 1);
        let odd = compare(&sale, &stock, &BTreeMap::from([(item, books)]));
        assert!(!odd.balanced);
        assert_eq!(odd.items[0].difference, -1);
    }
}
