//! restock: an operator adds units to an item, or withdraws free ones.

use lockgate_shared::{
    gate::{ItemStock, RestockAnswer, RestockRequest},
    ids::{ItemId, SaleId},
    problem::Problem,
};
use rand::RngExt as _;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::App;
use crate::refusals;

impl App {
    /// Changes an item's stock by `change` units; with a `key` once, however often it is asked for.
    ///
    /// # Errors
    /// 400, 404 `no_such_item`, 409 when units are taken or a bound is reached, 422 `idempotency_mismatch`, 503.
    pub async fn restock(
        &self,
        sale: &SaleId,
        item: ItemId,
        change: i64,
        key: Option<&str>,
    ) -> Result<ItemStock, Problem> {
        let definition = self.catalog.sale(sale).ok_or_else(Problem::no_such_sale)?;
        definition.definition.item(&item).ok_or_else(refusals::no_such_item)?;
        let id = key.map_or_else(|| Uuid::new_v8(rand::rng().random()), |key| change_id(sale, key));
        let request = RestockRequest { id, item, change };
        request.check()?;
        let answer = self.gate.restock(sale, &request).await?;
        let RestockAnswer::Changed { counts, .. } = answer else {
            return Err(refusals::of_restock(&answer, change));
        };
        // What was seen before refuses nobody any more.
        self.stock.returned(sale);
        Ok(counts)
    }
}

/// The change that `key` names in a sale.
fn change_id(sale: &SaleId, key: &str) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(b"lockgate-restock-v1\0");
    hash.update(sale.as_str());
    hash.update(b"\0");
    hash.update(key);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    Uuid::new_v8(bytes)
}
