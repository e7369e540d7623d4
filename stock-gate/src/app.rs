//! The gate: one method per verb.

mod rebuild;
mod reclaim;
mod restock;
#[cfg(test)]
mod tests;

pub(crate) use self::rebuild::is_suspicion;

use std::sync::Arc;

use lockgate_shared::{
    catalog::{Catalog, StoredSale},
    clock::Clock,
    gate::{
        ClaimAnswer, ClaimRequest, CommitAnswer, ForfeitAnswer, Hold, ReleaseAnswer, StockSnapshot,
        UNKNOWN_CODE,
    },
    ids::{ClaimId, ItemId, SaleId, TokenId},
    keys::KeyRing,
    limits::QUANTITY_MAX,
    problem::Problem,
    store::{Effect, StoreError},
};

use crate::{
    hold::{self, Opening},
    stock::Limits,
    store::{Claim, Store, Suspicion},
};

pub use lockgate_shared::limits::MEMO_BYTES_MAX;

/// What the gate is made of.
pub struct AppParts {
    /// The sales.
    pub catalog: Arc<Catalog>,
    /// Where stock and holds are.
    pub store: Arc<dyn Store>,
    /// Verifies service tokens.
    pub ring: Arc<KeyRing>,
    /// The time of opening and closing. Deadlines go by the store's.
    pub clock: Arc<dyn Clock>,
}

/// The gate.
pub struct App {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl App {
    /// A gate of these parts.
    #[must_use]
    pub fn new(parts: AppParts) -> Self {
        let AppParts { catalog, store, ring, clock } = parts;
        Self { catalog, store, ring, clock }
    }

    /// Takes units for an account, or says why not.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 400 `malformed`, 503 when the store broke.
    pub async fn claim(&self, sale: &SaleId, request: ClaimRequest) -> Result<ClaimAnswer, Problem> {
        check(&request)?;
        let found = self.sale(sale)?;
        let claim = Claim {
            hold_seconds: found.definition.hold_seconds,
            limits: limits(&found),
            refusal: hold::refusal(&opening(&found), request.epoch, self.clock.now()),
            request,
        };
        let answer = match self.store.claim(sale, &claim).await {
            Ok(ClaimAnswer::NoSuchItem) => no_such_item(&found, &claim.request.item, ClaimAnswer::NoSuchItem),
            answer => answer,
        };
        let answer = self.told(&found, answer).await?;
        metrics::counter!("lockgate_claims_total", "outcome" => outcome(&answer)).increment(1);
        Ok(answer)
    }

    /// Marks a hold sold. The sale may be closed: what is held may still be paid.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 503 when the store broke.
    pub async fn commit(&self, sale: &SaleId, claim: ClaimId) -> Result<CommitAnswer, Problem> {
        let found = self.sale(sale)?;
        self.told(&found, self.store.commit(sale, claim).await).await
    }

    /// Gives a hold's units back.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 503 when the store broke.
    pub async fn release(&self, sale: &SaleId, claim: ClaimId) -> Result<ReleaseAnswer, Problem> {
        let found = self.sale(sale)?;
        self.told(&found, self.store.release(sale, claim).await).await
    }

    /// Gives an admission up: its token makes no new claim from now on.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 503 when the store broke.
    pub async fn forfeit(&self, sale: &SaleId, token_id: &TokenId) -> Result<ForfeitAnswer, Problem> {
        let found = self.sale(sale)?;
        let answer = self.told(&found, self.store.forfeit(sale, token_id).await).await?;
        metrics::counter!("lockgate_admissions_forfeited_total").increment(1);
        Ok(answer)
    }

    /// Marks up to `max` due holds of a sale as expiring; their units stay held until their orders have decided.
    ///
    /// # Errors
    /// The store broke.
    pub async fn expire(&self, sale: &SaleId, max: usize) -> Result<Vec<ClaimId>, StoreError> {
        let claims = self.store.expire(sale, max).await?;
        let count = u64::try_from(claims.len()).unwrap_or(u64::MAX);
        metrics::counter!("lockgate_holds_expired_total").increment(count);
        Ok(claims)
    }

    /// The hold a claim made.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 503 when the store broke.
    pub async fn hold(&self, sale: &SaleId, claim: ClaimId) -> Result<Option<Hold>, Problem> {
        let found = self.sale(sale)?;
        self.told(&found, self.store.hold(sale, claim).await).await
    }

    /// The counts of a sale.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 503 when the store broke.
    pub async fn stock(&self, sale: &SaleId) -> Result<StockSnapshot, Problem> {
        let found = self.sale(sale)?;
        let stock = self.store.stock(sale, found.definition.total_limit).await;
        // Every sale begins so; the checkout that puts the stock there says what hinders it.
        if stock.is_err() && found.controls.stock_opened_at.is_none() {
            let detail = "The stock of this sale is being put on sale; it is there in a moment. Try again.";
            return Err(Problem::unavailable("stock_unavailable", detail).retry_after(1));
        }
        self.told(&found, stock).await
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.store.ready().await
    }

    fn sale(&self, sale: &SaleId) -> Result<Arc<StoredSale>, Problem> {
        self.catalog.sale(sale).ok_or_else(Problem::no_such_sale)
    }
}

fn check(request: &ClaimRequest) -> Result<(), Problem> {
    if !(1..=QUANTITY_MAX).contains(&request.quantity) {
        return Err(Problem::malformed(format!(
            "'quantity' is {}; a claim takes 1 to {QUANTITY_MAX} units.",
            request.quantity
        )));
    }
    if request.memo.len() > MEMO_BYTES_MAX {
        return Err(Problem::malformed(format!(
            "'memo' has {} bytes; at most {MEMO_BYTES_MAX} are kept.",
            request.memo.len()
        )));
    }
    Ok(())
}

/// What it means that the store has no such item: where the sale has it, the store has lost it.
fn no_such_item<T>(sale: &StoredSale, item: &ItemId, answer: T) -> Result<T, StoreError> {
    match sale.definition.item(item) {
        Some(_) => Err(StoreError::untouched("item", Suspicion::no_item(item))),
        None => Ok(answer),
    }
}

fn limits(sale: &StoredSale) -> Limits {
    Limits {
        per_account: sale.definition.per_account_limit,
        total: sale.definition.total_limit,
        abandoned_holds: sale.definition.abandoned_holds_limit,
        live_holds: sale.definition.live_holds_limit,
    }
}

fn opening(sale: &StoredSale) -> Opening {
    Opening {
        opens_at: sale.definition.opens_at,
        closes_at: sale.definition.closes_at,
        closed: sale.controls.closed,
        epoch: sale.controls.epoch,
    }
}

/// A store that broke closes the gate for a moment, and says whether the call may have taken effect.
#[expect(clippy::needless_pass_by_value, reason = "the shape map_err takes")]
fn unavailable(error: StoreError) -> Problem {
    let problem = match error.effect {
        Effect::None => Problem::unavailable(
            "stock_unavailable",
            "The stock cannot be reached for a moment; nothing was changed. Try again.",
        ),
        Effect::Unknown => Problem::unavailable(
            UNKNOWN_CODE,
            "The stock's answer was lost; the call may have taken effect. Ask again with the same claim id.",
        ),
    };
    problem.caused_by(&error)
}

fn outcome(answer: &ClaimAnswer) -> &'static str {
    match answer {
        ClaimAnswer::Held { replayed: false, .. } => "held",
        ClaimAnswer::Held { replayed: true, .. } => "replayed",
        ClaimAnswer::SoldOut { .. } => "sold_out",
        ClaimAnswer::LimitReached { .. } => "limit_reached",
        ClaimAnswer::LiveHoldsReached { .. } => "live_holds_reached",
        ClaimAnswer::LineUpAgain { .. } => "line_up_again",
        ClaimAnswer::Forfeited => "forfeited",
        ClaimAnswer::NotOpen => "not_open",
        ClaimAnswer::Revoked => "revoked",
        ClaimAnswer::NoSuchItem => "no_such_item",
    }
}
