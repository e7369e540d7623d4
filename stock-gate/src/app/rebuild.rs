//! A suspicious stock, and its rebuilding: freeze, holds, stage, conclude.

use std::error::Error as _;

use lockgate_shared::{
    catalog::StoredSale,
    gate::{
        ConcludeAnswer, ConcludeRequest, FROZEN_CODE, FreezeAnswer, FreezeRequest, HoldsPage, StageAnswer,
        StageRequest,
    },
    ids::SaleId,
    limits::{HOLDS_PAGE_MAX, ITEMS_MAX, LEDGER_PAGE_MAX},
    problem::Problem,
    store::StoreError,
};
use rand::RngExt as _;
use uuid::Uuid;

use super::{App, unavailable};
use crate::{
    stock::Counts,
    store::{FreezeOrder, Suspicion},
};

/// Longest reason kept with a freeze, in characters.
const WHY_CHARS_MAX: usize = 300;

impl App {
    /// The answer of the store, or the problem that says what its error means: a stock that was there and is not as
    /// the gate left it is frozen, and rebuilt by whoever hears of it.
    pub(super) async fn told<T>(
        &self,
        sale: &StoredSale,
        answer: Result<T, StoreError>,
    ) -> Result<T, Problem> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if !is_suspicion(&error) || sale.controls.stock_opened_at.is_none() {
            return Err(unavailable(error));
        }
        let id = &sale.definition.id;
        let generation = self.store.generation(id).await.map_err(unavailable)?.unwrap_or(0);
        metrics::counter!("lockgate_stock_suspicions_total").increment(1);
        let detail = "The stock of this sale is not as the gate left it, or an operator has frozen it. It is closed for \
                      a moment, until it is rebuilt; nothing was changed.";
        Err(Problem::unavailable(FROZEN_CODE, detail).with("generation", generation).caused_by(&error))
    }

    /// Closes a sale until its stock is rebuilt. A new sale begins so: its stock is put there by its first rebuilding,
    /// once the orders were read.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 503 when the store broke.
    pub async fn freeze(&self, sale: &SaleId, request: &FreezeRequest) -> Result<FreezeAnswer, Problem> {
        let found = self.sale(sale)?;
        let is_new = found.controls.stock_opened_at.is_none();
        let mut order = FreezeOrder {
            id: Uuid::new_v8(rand::rng().random()),
            if_generation: request.if_generation,
            at_least: if is_new { 0 } else { found.controls.stock_generation.max(1) },
            why: request.why.chars().take(WHY_CHARS_MAX).collect(),
        };
        let mut answer = self.store.freeze(sale, &order).await.map_err(unavailable)?;
        if let FreezeAnswer::Rebuilt { generation } = answer
            && is_new
            && !self.is_opened(sale, generation).await?
        {
            order.if_generation = Some(generation);
            answer = self.store.freeze(sale, &order).await.map_err(unavailable)?;
        }
        if let FreezeAnswer::Frozen(freeze) = &answer {
            self.define_made(sale).await?;
            if freeze.id == order.id && freeze.generation > 0 {
                metrics::counter!("lockgate_stock_freezes_total").increment(1);
                tracing::error!(%sale, generation = freeze.generation, why = request.why,
                    "the sale is frozen: nothing is sold until its stock is rebuilt");
            }
        }
        Ok(answer)
    }

    /// Whether a stock of which this process did not know is the one that the definition says. Then the catalog says from
    /// now on that it is there. Otherwise the catalog has lost the sale and was given a file.
    async fn is_opened(&self, sale: &SaleId, generation: u64) -> Result<bool, Problem> {
        self.catalog.refresh().await.map_err(unavailable)?;
        let found = self.sale(sale)?;
        if found.controls.stock_opened_at.is_some() {
            return Ok(true);
        }
        let Ok(stock) = self.store.stock(sale, None).await else { return Ok(false) };
        let (here, defined) = (stock.items.iter(), found.definition.items.iter());
        let is_same =
            here.map(|line| (&line.item, line.stock)).eq(defined.map(|item| (&item.item, item.stock)));
        if is_same {
            self.define_made(sale).await?;
            self.note_generation(sale, generation).await;
        }
        Ok(is_same)
    }

    /// Says in the catalog that the sale's stock is there. The freeze's own id already keeps an old rebuild out; this
    /// keeps the number rising for those who read it.
    async fn note_generation(&self, sale: &SaleId, generation: u64) {
        let now = self.clock.now();
        let noted = self.catalog.change(sale, |sale| {
            sale.controls.stock_opened_at.get_or_insert(now);
            let known = sale.controls.stock_generation;
            sale.controls.stock_generation = known.max(generation);
        });
        if let Err(error) = noted.await {
            tracing::warn!(%sale, %error, "the catalog did not note the stock's generation");
        }
    }

    /// A page of the holds that the store has, in whatever state it is.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 503 when the store broke.
    pub async fn holds(&self, sale: &SaleId, after: Option<&str>) -> Result<HoldsPage, Problem> {
        self.sale(sale)?;
        self.store.holds(sale, after, HOLDS_PAGE_MAX).await.map_err(unavailable)
    }

    /// Keeps a page of a rebuilt stock.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 400 `malformed` for a page that is too large, 503 when the store broke.
    pub async fn stage(&self, sale: &SaleId, page: &StageRequest) -> Result<StageAnswer, Problem> {
        self.sale(sale)?;
        for (what, count, most) in [
            ("items", page.items.len(), ITEMS_MAX),
            ("holds", page.holds.len(), HOLDS_PAGE_MAX),
            ("accounts", page.accounts.len(), LEDGER_PAGE_MAX),
            ("returned", page.returned.len(), LEDGER_PAGE_MAX),
        ] {
            if count > most {
                return Err(Problem::malformed(format!(
                    "'{what}' has {count} lines; a page has {most} at most."
                )));
            }
        }
        self.store.stage(sale, page).await.map_err(unavailable)
    }

    /// Puts a staged stock in the place of the old one and reopens the sale.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 400 `malformed` for counts that do not add up or are of other items, 503 when the store
    /// broke. Counts of another stock than the definition's are [`ConcludeAnswer::Incomplete`].
    pub async fn conclude(
        &self,
        sale: &SaleId,
        request: &ConcludeRequest,
    ) -> Result<ConcludeAnswer, Problem> {
        self.catalog.refresh().await.map_err(unavailable)?;
        let found = self.sale(sale)?;
        check(&found, request)?;
        if !is_of_definition(&found, request) {
            return Ok(ConcludeAnswer::Incomplete);
        }
        let answer = self.store.conclude(sale, request).await.map_err(unavailable)?;
        if let ConcludeAnswer::Reopened { generation } = answer {
            if generation == 1 {
                tracing::info!(%sale, "the stock of the sale is there");
            } else {
                metrics::counter!("lockgate_stock_rebuilds_total").increment(1);
                tracing::warn!(%sale, generation, "the stock of the sale is rebuilt; it is open again");
            }
            self.note_generation(sale, generation).await;
        }
        Ok(answer)
    }
}

/// Whether the store says that it does not hold what it must hold, or that the sale is frozen.
pub(crate) fn is_suspicion(error: &StoreError) -> bool {
    error.source().is_some_and(|source| source.is::<Suspicion>())
}

/// Whether each item has the stock of the definition, or as many units as are held and sold where those are more.
fn is_of_definition(sale: &StoredSale, request: &ConcludeRequest) -> bool {
    let defined = sale.definition.items.iter().map(|item| item.stock);
    let mut lines = request.items.iter().zip(defined);
    lines.all(|(line, stock)| line.stock == stock.max(line.held.saturating_add(line.sold)))
}

fn check(sale: &StoredSale, request: &ConcludeRequest) -> Result<(), Problem> {
    let (given, known) = (request.items.iter(), sale.definition.items.iter());
    if !given.map(|line| &line.item).eq(known.map(|item| &item.item)) {
        return Err(Problem::malformed("'items' are not the items of this sale."));
    }
    let mut returned = request.returned;
    for line in &request.items {
        let counts = Counts {
            stock: line.stock,
            available: line.available,
            held: line.held,
            sold: line.sold,
            next: line.next,
            last: line.last,
        };
        // What numbers nobody had do not cover must have come back.
        let never_given = u64::from(line.last) + 1 - u64::from(line.next).min(u64::from(line.last) + 1);
        let own = u64::from(line.available).saturating_sub(never_given);
        let adds_up = u32::try_from(own).is_ok_and(|own| counts.balanced(own));
        match returned.checked_sub(own).filter(|_| adds_up) {
            Some(rest) => returned = rest,
            None => return Err(Problem::malformed(format!("the counts of '{}' do not add up.", line.item))),
        }
    }
    if returned > 0 {
        return Err(Problem::malformed("'returned' is more than the items have free."));
    }
    Ok(())
}
