//! restock: the stock of an item, changed while its sale runs, and the definition that says so.

use lockgate_shared::{
    catalog::StoredSale,
    gate::{RestockAnswer, RestockRequest, UNKNOWN_CODE},
    ids::SaleId,
    problem::Problem,
};

use super::{App, no_such_item, unavailable};
use crate::store::Restocking;

impl App {
    /// Adds units to an item, or withdraws free ones, and writes it into the sale's definition, from which the stock
    /// is taken should its store be lost. The store decides; a call that failed in between is finished by repeating
    /// it with its id, or by the next rebuilding.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 400 `malformed`, 503 when the store or the catalog broke.
    pub async fn restock(&self, sale: &SaleId, request: &RestockRequest) -> Result<RestockAnswer, Problem> {
        request.check()?;
        // What another process has just defined counts.
        self.catalog.refresh().await.map_err(unavailable)?;
        let found = self.sale(sale)?;
        let change = Restocking {
            request: request.clone(),
            is_defined: found.controls.stock_changes.contains(&request.id),
            total_limit: found.definition.total_limit,
        };
        let answer = match self.store.restock(sale, &change).await {
            Ok(RestockAnswer::NoSuchItem) => no_such_item(&found, &request.item, RestockAnswer::NoSuchItem),
            answer => answer,
        };
        let answer = self.told(&found, answer).await?;
        if let RestockAnswer::Changed { .. } = answer {
            self.define(sale, std::slice::from_ref(request)).await?;
        }
        Ok(answer)
    }

    /// Writes every change that the store has made into the definition: one whose caller was cut off may not be there
    /// yet, and the stock is about to be rebuilt from the definition.
    pub(super) async fn define_made(&self, sale: &SaleId) -> Result<(), Problem> {
        let made = self.store.restocks(sale).await.map_err(unavailable)?;
        self.define(sale, &made).await
    }

    /// Writes changes that were made into the definition, each once.
    async fn define(&self, sale: &SaleId, made: &[RestockRequest]) -> Result<(), Problem> {
        let written = self.catalog.change(sale, |sale| made.iter().for_each(|change| include(sale, change)));
        written.await.map(drop).map_err(|error| {
            let detail = "The units are changed; the sale's definition, which must say so, cannot be written for a \
                          moment. Repeat the call.";
            Problem::unavailable(UNKNOWN_CODE, detail).caused_by(&error)
        })
    }
}

/// The definition with a change of the stock. It stays one that may be written: an item has a unit, and the sale-wide
/// limit is not above the stock.
fn include(sale: &mut StoredSale, request: &RestockRequest) {
    if sale.controls.stock_changes.contains(&request.id) {
        return;
    }
    sale.controls.stock_changes.push(request.id);
    // A catalog that lost the sale was given its file, and nobody knows which changes that includes.
    if sale.controls.stock_opened_at.is_none() {
        return;
    }
    let definition = &mut sale.definition;
    if let Some(item) = definition.items.iter_mut().find(|item| item.item == request.item) {
        let stock = i64::from(item.stock).saturating_add(request.change).max(1);
        item.stock = u32::try_from(stock).unwrap_or(item.stock);
        let total = u32::try_from(definition.stock_total()).unwrap_or(u32::MAX);
        definition.total_limit = definition.total_limit.map(|limit| limit.min(total));
    }
}
