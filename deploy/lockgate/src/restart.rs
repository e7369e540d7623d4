//! What operators changed while a sale ran outlives a restart with the file it began with; `lockgate sale apply` changes
//! it on purpose.

use lockgate_shared::{catalog::StoredSale, sale::SaleDefinition};

/// Takes over what operators changed of a sale that is `known` already.
pub fn keep_changes(definition: &mut SaleDefinition, known: &StoredSale) {
    definition.admission = known.definition.admission.clone();
    if known.controls.stock_changes.is_empty() {
        return;
    }
    for item in &mut definition.items {
        let Some(now) = known.definition.item(&item.item).filter(|now| now.stock != item.stock) else {
            continue;
        };
        tracing::info!(sale = %known.definition.id, item = %item.item, file = item.stock, stock = now.stock,
            "operators changed the stock since the sale file was written; it stays changed");
        item.stock = now.stock;
    }
}
