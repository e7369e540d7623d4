//! restock: the stock of an item, changed while its sale runs, and the definition that says so.

use lockgate_shared::{
    catalog::{ChangeError, StoredSale},
    gate::{RestockAnswer, RestockRequest, UNKNOWN_CODE},
    ids::SaleId,
    problem::Problem,
};

use super::App;

impl App {
    /// Adds units to an item, or withdraws free ones, and writes it into the sale's definition, from which the stock
    /// is taken should its store be lost. The store decides; a call that failed in between is finished by repeating
    /// it with its id.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 400 `malformed`, 503 when the store or the catalog broke.
    pub async fn restock(&self, sale: &SaleId, request: &RestockRequest) -> Result<RestockAnswer, Problem> {
        request.check()?;
        let found = self.sale(sale)?;
        if let Some(refused) = below_total_limit(&found, request) {
            return Ok(refused);
        }
        let answer = self.told(&found, self.store.restock(sale, request).await).await?;
        if let RestockAnswer::Changed { .. } = answer {
            self.define(sale, request).await?;
        }
        Ok(answer)
    }

    /// Writes a change that was made into the definition, once.
    async fn define(&self, sale: &SaleId, request: &RestockRequest) -> Result<(), Problem> {
        let written = self.catalog.change(sale, |sale| include(sale, request)).await;
        written.map(drop).map_err(|error| {
            let why = match &error {
                ChangeError::Invalid(_) => "the definition does not allow it any more",
                _ => "the catalog cannot be written for a moment",
            };
            let detail =
                format!("The units are changed, the sale's definition is not: {why}. Repeat the call.");
            Problem::unavailable(UNKNOWN_CODE, detail).caused_by(&error)
        })
    }
}

/// A definition whose sale-wide limit is above its stock is refused wherever it is written, so here too.
fn below_total_limit(sale: &StoredSale, request: &RestockRequest) -> Option<RestockAnswer> {
    let limit = sale.definition.total_limit?;
    let is_new = request.change < 0 && !sale.controls.stock_changes.contains(&request.id);
    let total = sale.definition.stock_total().saturating_add_signed(request.change);
    (is_new && total < u64::from(limit)).then_some(RestockAnswer::BelowTotalLimit { limit, total })
}

fn include(sale: &mut StoredSale, request: &RestockRequest) {
    if sale.controls.stock_changes.contains(&request.id) {
        return;
    }
    if let Some(item) = sale.definition.items.iter_mut().find(|item| item.item == request.item) {
        let stock = i64::from(item.stock).saturating_add(request.change);
        item.stock = u32::try_from(stock).unwrap_or(item.stock);
        sale.controls.stock_changes.push(request.id);
    }
}
