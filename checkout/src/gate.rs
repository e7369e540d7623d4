//! The stock gate behind circuits: trouble with one sale's stock, or with one kind of call, slows nothing else.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use lockgate_shared::{
    circuit::{Circuit, CircuitSettings},
    gate::{
        ClaimAnswer, ClaimRequest, CommitAnswer, GateClient, GateError, Hold, ReclaimAnswer, ReleaseAnswer,
        StockSnapshot,
    },
    ids::{ClaimId, SaleId},
    limits::GATE_CALLS_MAX,
};

const SETTINGS: CircuitSettings = CircuitSettings {
    at_once: GATE_CALLS_MAX,
    wait: Duration::from_millis(250),
    pause: Duration::from_secs(1),
};

/// The ways to one sale's stock.
struct Ways {
    claims: Circuit,
    /// What follows a claim: commit, release and reclaim.
    follow_up: Circuit,
    /// Reading holds and counts.
    reads: Circuit,
}

impl Ways {
    fn new() -> Self {
        Self {
            claims: Circuit::new("gate claims", SETTINGS),
            follow_up: Circuit::new("gate follow-up", SETTINGS),
            reads: Circuit::new("gate reads", SETTINGS),
        }
    }
}

/// The gate as checkout calls it.
pub(crate) struct Gate {
    client: GateClient,
    /// By sale: a sale's stock can be frozen, or its store down, while others sell. Only sales of the catalog and of
    /// orders are asked about, so there are no more than sales.
    ways: RwLock<HashMap<SaleId, Arc<Ways>>>,
}

impl Gate {
    pub(crate) fn new(client: GateClient) -> Self {
        Self { client, ways: RwLock::default() }
    }

    /// The gate without circuits: for what ends the trouble they keep away, and for operators.
    pub(crate) fn direct(&self) -> &GateClient {
        &self.client
    }

    fn ways(&self, sale: &SaleId) -> Arc<Ways> {
        if let Some(ways) = self.ways.read().unwrap_or_else(PoisonError::into_inner).get(sale) {
            return Arc::clone(ways);
        }
        let mut all = self.ways.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(sale.clone()).or_insert_with(|| Arc::new(Ways::new())))
    }

    /// [`GateClient::claim`].
    pub(crate) async fn claim(&self, sale: &SaleId, claim: &ClaimRequest) -> Result<ClaimAnswer, GateError> {
        through(&self.ways(sale).claims, self.client.claim(sale, claim)).await
    }

    /// [`GateClient::commit`].
    pub(crate) async fn commit(&self, sale: &SaleId, claim: ClaimId) -> Result<CommitAnswer, GateError> {
        through(&self.ways(sale).follow_up, self.client.commit(sale, claim)).await
    }

    /// [`GateClient::release`].
    pub(crate) async fn release(&self, sale: &SaleId, claim: ClaimId) -> Result<ReleaseAnswer, GateError> {
        through(&self.ways(sale).follow_up, self.client.release(sale, claim)).await
    }

    /// [`GateClient::reclaim`].
    pub(crate) async fn reclaim(&self, sale: &SaleId, claim: ClaimId) -> Result<ReclaimAnswer, GateError> {
        through(&self.ways(sale).follow_up, self.client.reclaim(sale, claim)).await
    }

    /// [`GateClient::hold`].
    pub(crate) async fn hold(&self, sale: &SaleId, claim: ClaimId) -> Result<Option<Hold>, GateError> {
        through(&self.ways(sale).reads, self.client.hold(sale, claim)).await
    }

    /// [`GateClient::stock`].
    pub(crate) async fn stock(&self, sale: &SaleId) -> Result<StockSnapshot, GateError> {
        through(&self.ways(sale).reads, self.client.stock(sale)).await
    }
}

async fn through<T>(
    circuit: &Circuit,
    call: impl Future<Output = Result<T, GateError>>,
) -> Result<T, GateError> {
    match circuit.call(|_| true, call).await {
        Ok(answer) => answer,
        Err(refused) => Err(GateError::Unavailable(refused.to_string())),
    }
}
