//! reclaim: units for a buyer who paid in time and was heard of late.

use lockgate_shared::{
    gate::ReclaimAnswer,
    ids::{ClaimId, SaleId},
    problem::Problem,
};

use super::{App, limits};

impl App {
    /// Sells a claim's units to it although it may have been released. Whether the sale is open does not matter: the
    /// buyer paid in time.
    ///
    /// # Errors
    /// 404 `no_such_sale`, 503 when the store broke.
    pub async fn reclaim(&self, sale: &SaleId, claim: ClaimId) -> Result<ReclaimAnswer, Problem> {
        let found = self.sale(sale)?;
        let answer = self.told(&found, self.store.reclaim(sale, claim, &limits(&found)).await).await?;
        metrics::counter!("lockgate_reclaims_total", "outcome" => outcome(&answer)).increment(1);
        Ok(answer)
    }
}

fn outcome(answer: &ReclaimAnswer) -> &'static str {
    match answer {
        ReclaimAnswer::Reclaimed { .. } => "reclaimed",
        ReclaimAnswer::SoldOut => "sold_out",
        ReclaimAnswer::LimitReached { .. } => "limit_reached",
        ReclaimAnswer::NoSuchClaim => "no_such_claim",
    }
}
