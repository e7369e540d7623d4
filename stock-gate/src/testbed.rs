//! For tests: a whole gate with a sale in its catalog and a clock set by hand.

use std::sync::Arc;

use lockgate_shared::{
    catalog::{Catalog, MemoryCatalog},
    clock::{Clock, Timestamp},
    gate::{
        AUDIENCE, ClaimRequest, ConcludeAnswer, ConcludeRequest, FreezeAnswer, FreezeRequest, GateClient,
        ledger::Ledger,
    },
    ids::{AccountHash, ClaimId, SaleId},
    sale::{EXAMPLE_TOML, parse_toml},
    service_token::ServiceSigner,
    testing::{ManualClock, demo_ring},
};

use uuid::Uuid;

use crate::{App, AppParts, Store, router};

pub(crate) struct Gate {
    pub(crate) app: Arc<App>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: ManualClock,
    pub(crate) sale: SaleId,
}

/// A clock that stands one minute after the opening of the example sale.
pub(crate) fn just_opened() -> ManualClock {
    let opens_at = parse_toml("example", EXAMPLE_TOML).unwrap().opens_at;
    ManualClock::at(opens_at.plus_seconds(60))
}

/// A catalog that holds the example sale.
pub(crate) async fn catalog(clock: &ManualClock) -> Arc<Catalog> {
    let catalog = Arc::new(Catalog::new(Arc::new(MemoryCatalog::default()), Arc::new(clock.clone())));
    let definition = parse_toml("example", EXAMPLE_TOML).unwrap();
    catalog.apply(definition, None).await.unwrap();
    catalog
}

impl Gate {
    /// A gate over `store`. It is not open yet.
    pub(crate) async fn over(store: Arc<dyn Store>) -> Self {
        let clock = just_opened();
        let catalog = catalog(&clock).await;
        Self::with(store, catalog, clock)
    }

    pub(crate) fn with(store: Arc<dyn Store>, catalog: Arc<Catalog>, clock: ManualClock) -> Self {
        let sale = catalog.sales()[0].definition.id.clone();
        let app = Arc::new(App::new(AppParts {
            catalog: Arc::clone(&catalog),
            store,
            ring: Arc::new(demo_ring()),
            clock: Arc::new(clock.clone()),
        }));
        Self { app, catalog, clock, sale }
    }

    /// What another service would use.
    pub(crate) fn client(&self) -> GateClient {
        let signer = Arc::new(ServiceSigner::new(Arc::new(demo_ring()), AUDIENCE));
        GateClient::in_process(router(Arc::clone(&self.app)), signer, Arc::new(self.clock.clone()))
    }

    /// Puts the stock of the sale there, as a checkout does that has no orders of it.
    pub(crate) async fn open(&self) -> ConcludeAnswer {
        let client = self.client();
        let definition = &self.catalog.sale(&self.sale).unwrap().definition;
        let items: Vec<_> = definition.items.iter().map(|item| (item.item.clone(), item.stock)).collect();
        let request = FreezeRequest { if_generation: Some(0), why: "a new sale".into() };
        let FreezeAnswer::Frozen(freeze) = client.freeze(&self.sale, &request).await.unwrap() else {
            return ConcludeAnswer::Stale;
        };
        let request = ConcludeRequest::of(freeze, Uuid::nil(), 0, &Ledger::of([], &items));
        client.conclude(&self.sale, &request).await.unwrap()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The `n`th claim: one black phone.
    pub(crate) fn claim(&self, n: u8) -> ClaimRequest {
        let account = AccountHash::from_bytes([n; 16]);
        ClaimRequest {
            claim: ClaimId::derive(&self.sale, &account, "key"),
            account,
            item: "phone-black".parse().unwrap(),
            quantity: 1,
            epoch: 0,
            admitted_at: 0,
            token_id: "j".parse().unwrap(),
            memo: "{}".into(),
        }
    }
}
