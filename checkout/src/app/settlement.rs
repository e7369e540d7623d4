//! The settlement of a sale.

use lockgate_shared::{ids::SaleId, problem::Problem};

use super::App;
use crate::{
    settlement::{Anomalies, Facts, Settlement, Tally},
    store::{ANOMALIES_PAGE_MAX, ORDERS_PAGE_MAX},
};

impl App {
    /// The settlement of a sale, counted from every order.
    ///
    /// # Errors
    /// 404 `no_such_sale`; 503 when gate or orders cannot be asked.
    pub async fn settlement(&self, id: &SaleId) -> Result<Settlement, Problem> {
        let sale = self.catalog.sale(id).ok_or_else(Problem::no_such_sale)?;
        let (mut anomalies, mut number) = (Anomalies::default(), 0);
        loop {
            let page = self.store.anomalies(id, Some(number)).await?;
            let is_last = page.len() < ANOMALIES_PAGE_MAX;
            number = page.last().map_or(number, |anomaly| anomaly.number);
            anomalies.add(page);
            if is_last {
                break;
            }
        }
        let (mut tally, mut after) = (Tally::knowing(anomalies.refunds_failed.clone()), None);
        loop {
            let page = self.store.orders(id, after).await?;
            for order in &page {
                tally.add(order, self.gateway.name());
            }
            after = page.last().map(|order| order.id);
            if page.len() < ORDERS_PAGE_MAX {
                break;
            }
        }
        let stock = self.gate.direct().stock(id).await?;
        let books = self.store.books(id).await?;
        Ok(Settlement::of(
            &tally,
            Facts {
                sale: &sale.definition,
                is_closed: sale.controls.closed,
                now: self.now(),
                version: env!("CARGO_PKG_VERSION"),
                stock: &stock.items,
                books: &books,
                anomalies,
                reconciled: self.reconciled(id).await?,
                changed_at: self.changed_at(id).await?,
                dead_letters: self.store.dead_letters(id).await?.total,
            },
        ))
    }
}
