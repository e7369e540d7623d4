//! At which sales a round looks: those that run or ended lately, and those that ended long ago with a question open.

use std::{collections::BTreeMap, sync::Arc};

use lockgate_shared::{catalog::StoredSale, clock::Timestamp, ids::SaleId, store::StoreError};

use crate::{app::App, reconcile::Reconciled};

/// How long after its end a sale is looked at in every round.
const AFTER_END_SECONDS: u64 = 86_400;
/// After that, how often it is looked whether a question is open; one that is has the sale compared as often.
const LONG_AFTER_EVERY_SECONDS: u64 = 300;

/// When sales that ended long ago are looked at again.
#[derive(Default)]
pub(super) struct Looking(BTreeMap<SaleId, Timestamp>);

impl Looking {
    /// The sales of this round.
    pub(super) async fn sales(&mut self, app: &App) -> Vec<Arc<StoredSale>> {
        let (now, all) = (app.now(), app.catalog.sales());
        let mut sales = Vec::new();
        let mut next = BTreeMap::new();
        for sale in all.iter().filter(|sale| sale.definition.opens_at <= now) {
            let id = &sale.definition.id;
            if now <= looked_at_until(sale) {
                sales.push(Arc::clone(sale));
                continue;
            }
            if let Some(at) = self.0.get(id).filter(|at| now < **at) {
                next.insert(id.clone(), *at);
                continue;
            }
            match has_question(app, sale).await {
                Ok(true) => sales.push(Arc::clone(sale)),
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(sale = %id, %error, "it is looked later whether the books agree");
                }
            }
            next.insert(id.clone(), now.plus_seconds(LONG_AFTER_EVERY_SECONDS));
        }
        self.0 = next;
        sales
    }
}

fn looked_at_until(sale: &StoredSale) -> Timestamp {
    let definition = &sale.definition;
    definition.closes_at.plus_seconds(definition.hold_seconds + AFTER_END_SECONDS)
}

async fn has_question(app: &App, sale: &StoredSale) -> Result<bool, StoreError> {
    let id = &sale.definition.id;
    let (found, changed_at) = (app.reconciled(id).await?, app.changed_at(id).await?);
    Ok(is_open(found.as_ref(), sale.definition.closes_at, changed_at))
}

/// PURE: whether the last comparison leaves something to find out: there was none since the end or since orders changed
/// last, or it found something.
fn is_open(found: Option<&Reconciled>, ended_at: Timestamp, changed_at: Option<Timestamp>) -> bool {
    !found.is_some_and(|found| found.is_after(Some(ended_at), changed_at) && found.is_clear())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_open_until_a_comparison_after_everything_finds_nothing() {
        let at = Timestamp::from_seconds;
        let found = |second, differences, unconfirmed| {
            let nothing = Reconciled::of(at(second), &[], &[], unconfirmed);
            Reconciled { differences, ..nothing }
        };
        let is_open = |found: Option<Reconciled>, changed: Option<i64>| {
            is_open(found.as_ref(), at(100), changed.map(at))
        };
        assert!(is_open(None, None), "never compared");
        assert!(is_open(Some(found(99, 0, 0)), None), "compared before the end");
        assert!(is_open(Some(found(150, 0, 0)), Some(200)), "compared before the last change");
        assert!(is_open(Some(found(150, 1, 0)), None), "a difference stands");
        assert!(is_open(Some(found(150, 0, 1)), None), "what it found does not stand yet");
        assert!(!is_open(Some(found(100, 0, 0)), None));
        assert!(!is_open(Some(found(200, 0, 0)), Some(200)));
    }
}
