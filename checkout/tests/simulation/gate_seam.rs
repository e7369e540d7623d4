//! The gate's store behind bad weather, with fail-overs that lose its last writes.

use std::sync::Arc;

use async_trait::async_trait;
use lockgate_shared::{
    gate::{
        ClaimAnswer, CommitAnswer, ConcludeAnswer, ConcludeRequest, ForfeitAnswer, FreezeAnswer, Hold,
        HoldsPage, ReclaimAnswer, ReleaseAnswer, RestockAnswer, RestockRequest, StageAnswer, StageRequest,
        StockSnapshot,
    },
    ids::{ClaimId, SaleId, TokenId},
    store::StoreError,
};
use lockgate_stock_gate::{
    stock::Limits,
    store::{Claim, FreezeOrder, Restocking, Store as GateStore},
};

use crate::{
    planted::Planted,
    seams::{READS, broken, over},
    world::{Seam, World},
};

/// Verbs that do not ask whether the store is the one it was: those of rebuilding.
const ANYWHERE: [&str; 6] = ["generation", "freeze", "restocks", "holds", "stage", "conclude"];

/// The gate's store as a gate process reaches it.
pub struct GateSeam {
    pub world: Arc<World>,
    pub planted: Planted,
}

impl GateSeam {
    async fn over<T, F>(
        &self,
        verb: &'static str,
        of: &str,
        call: impl Fn(Arc<World>) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: std::fmt::Debug + Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (world, words, planted) = (Arc::clone(&self.world), format!("{verb} {of}"), self.planted);
        let done = move || {
            let (world, doing, words) = (Arc::clone(&world), call(Arc::clone(&world)), words.clone());
            async move {
                if planted == Planted::UnnoticedFailOver {
                    world.reopened();
                }
                if !ANYWHERE.contains(&verb) {
                    world.check_identity().map_err(|why| StoreError::untouched(verb, why))?;
                }
                if !READS.contains(&verb) {
                    world.remember();
                }
                let answer = doing.await;
                if !READS.contains(&verb) {
                    world.note_gate(&words, &answer);
                    world.audit();
                }
                answer
            }
        };
        let answer = over(&self.world, Seam::GateStore, &format!("{verb} {of}"), done).await;
        answer.map_err(|cut| broken(verb, cut))?
    }
}

#[async_trait]
impl GateStore for GateSeam {
    async fn claim(&self, sale: &SaleId, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
        let of = self.world.claim(claim.request.claim);
        let (sale, claim, planted) = (sale.clone(), claim.clone(), self.planted);
        let id = claim.request.claim;
        let answer = self
            .over("claim", &of, move |world| {
                let (sale, claim) = (sale.clone(), claim.clone());
                async move { planted.claim(&world, &sale, &claim).await }
            })
            .await;
        // Every replica is required: an answer that leaves the store is on all of them, and one that did not get
        // there before a fail-over is unknown.
        if let Ok(ClaimAnswer::Held { .. }) = &answer
            && self.planted != Planted::AnswerBeforeCommit
            && !self.world.replicate(id)
        {
            return Err(StoreError::unknown("claim", "the master failed before its replicas had it"));
        }
        answer
    }

    async fn commit(&self, sale: &SaleId, claim: ClaimId) -> Result<CommitAnswer, StoreError> {
        let sale = sale.clone();
        self.over("commit", &self.world.claim(claim), move |world| {
            let sale = sale.clone();
            async move { world.gate.commit(&sale, claim).await }
        })
        .await
    }

    async fn release(&self, sale: &SaleId, claim: ClaimId) -> Result<ReleaseAnswer, StoreError> {
        let sale = sale.clone();
        self.over("release", &self.world.claim(claim), move |world| {
            let sale = sale.clone();
            async move { world.gate.release(&sale, claim).await }
        })
        .await
    }

    async fn reclaim(
        &self,
        sale: &SaleId,
        claim: ClaimId,
        limits: &Limits,
    ) -> Result<ReclaimAnswer, StoreError> {
        let (sale, limits) = (sale.clone(), *limits);
        let answer = self
            .over("reclaim", &self.world.claim(claim), move |world| {
                let sale = sale.clone();
                async move { world.gate.reclaim(&sale, claim, &limits).await }
            })
            .await;
        // As with a claim: what is answered is on every replica.
        if answer.is_ok() && !self.world.replicate(claim) {
            return Err(StoreError::unknown("reclaim", "the master failed before its replicas had it"));
        }
        answer
    }

    async fn expire(&self, sale: &SaleId, max: usize) -> Result<Vec<ClaimId>, StoreError> {
        let sale = sale.clone();
        self.over("expire", "", move |world| {
            let sale = sale.clone();
            async move { world.gate.expire(&sale, max).await }
        })
        .await
    }

    async fn forfeit(&self, sale: &SaleId, token_id: &TokenId) -> Result<ForfeitAnswer, StoreError> {
        let (sale, token_id) = (sale.clone(), token_id.clone());
        self.over("forfeit", "", move |world| {
            let (sale, token_id) = (sale.clone(), token_id.clone());
            async move { world.gate.forfeit(&sale, &token_id).await }
        })
        .await
    }

    async fn restock(&self, sale: &SaleId, change: &Restocking) -> Result<RestockAnswer, StoreError> {
        let (sale, change) = (sale.clone(), change.clone());
        self.over("restock", "", move |world| {
            let (sale, change) = (sale.clone(), change.clone());
            async move { world.gate.restock(&sale, &change).await }
        })
        .await
    }

    async fn restocks(&self, sale: &SaleId) -> Result<Vec<RestockRequest>, StoreError> {
        let sale = sale.clone();
        self.over("restocks", "", move |world| {
            let sale = sale.clone();
            async move { world.gate.restocks(&sale).await }
        })
        .await
    }

    async fn hold(&self, sale: &SaleId, claim: ClaimId) -> Result<Option<Hold>, StoreError> {
        let sale = sale.clone();
        self.over("hold", &self.world.claim(claim), move |world| {
            let sale = sale.clone();
            async move { world.gate.hold(&sale, claim).await }
        })
        .await
    }

    async fn stock(&self, sale: &SaleId, total_limit: Option<u32>) -> Result<StockSnapshot, StoreError> {
        let sale = sale.clone();
        self.over("stock", "", move |world| {
            let sale = sale.clone();
            async move { world.gate.stock(&sale, total_limit).await }
        })
        .await
    }

    async fn generation(&self, sale: &SaleId) -> Result<Option<u64>, StoreError> {
        let sale = sale.clone();
        self.over("generation", "", move |world| {
            let sale = sale.clone();
            async move { world.gate.generation(&sale).await }
        })
        .await
    }

    async fn freeze(&self, sale: &SaleId, order: &FreezeOrder) -> Result<FreezeAnswer, StoreError> {
        let (sale, order) = (sale.clone(), order.clone());
        self.over("freeze", "", move |world| {
            let (sale, order) = (sale.clone(), order.clone());
            async move { world.gate.freeze(&sale, &order).await }
        })
        .await
    }

    async fn holds(&self, sale: &SaleId, after: Option<&str>, max: usize) -> Result<HoldsPage, StoreError> {
        let (sale, after) = (sale.clone(), after.map(str::to_owned));
        self.over("holds", "", move |world| {
            let (sale, after) = (sale.clone(), after.clone());
            async move { world.gate.holds(&sale, after.as_deref(), max).await }
        })
        .await
    }

    async fn stage(&self, sale: &SaleId, page: &StageRequest) -> Result<StageAnswer, StoreError> {
        let (sale, page) = (sale.clone(), page.clone());
        self.over("stage", "", move |world| {
            let (sale, page) = (sale.clone(), page.clone());
            async move { world.gate.stage(&sale, &page).await }
        })
        .await
    }

    async fn conclude(&self, sale: &SaleId, request: &ConcludeRequest) -> Result<ConcludeAnswer, StoreError> {
        let (sale, request) = (sale.clone(), request.clone());
        self.over("conclude", "", move |world| {
            let (sale, request) = (sale.clone(), request.clone());
            async move {
                let answer = world.gate.conclude(&sale, &request).await?;
                if matches!(answer, ConcludeAnswer::Reopened { .. }) {
                    world.reopened();
                }
                Ok(answer)
            }
        })
        .await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.world.gate.ready().await
    }
}
