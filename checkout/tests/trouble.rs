//! The gate is away for a while: what the log says meanwhile, and what operators see once it is back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use axum::{Router, body::Body};
use http::{Request, StatusCode};
use lockgate_checkout::SqliteStore;
use lockgate_shared::{service_call::CallError, testing::eventually};
use support::{Plan, Shop, VIEWER_KEY, Wrap};
use tower::{ServiceExt as _, util::BoxCloneSyncService};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Cuts the wire to the gate while the flag is set.
fn over(is_cut: &Arc<AtomicBool>) -> Option<Wrap> {
    let is_cut = Arc::clone(is_cut);
    Some(Box::new(move |router: Router| {
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let (is_cut, router) = (is_cut.load(Ordering::SeqCst), router.clone());
            async move {
                if is_cut {
                    return Err(CallError::Unreached("the wire is cut".into()));
                }
                router.oneshot(request).await.map_err(|never| match never {})
            }
        }))
    }))
}

async fn shop(dir: &tempfile::TempDir, plan: &Plan) -> (Shop, Arc<AtomicBool>) {
    let (db, is_cut) = (Shop::database(dir.path()), Arc::new(AtomicBool::new(false)));
    let store = Arc::new(SqliteStore::new(db.clone()));
    let shop = Shop::with(dir.path(), plan, support::clock(), db, store, over(&is_cut)).await;
    (shop, is_cut)
}

/// Counts what the settler says.
#[derive(Default)]
struct Heard {
    warnings: AtomicU64,
    details: AtomicU64,
}

struct Listener(Arc<Heard>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "lockgate_checkout::settler"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let heard = if *event.metadata().level() <= Level::WARN { &self.0.warnings } else { &self.0.details };
        heard.fetch_add(1, Ordering::SeqCst);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_is_away_is_told_once_in_a_while_not_once_for_each_order_and_try() {
    const ORDERS: u16 = 20;
    let heard = Arc::new(Heard::default());
    tracing::subscriber::set_global_default(Listener(Arc::clone(&heard))).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (shop, is_cut) = shop(&dir, &Plan { stock: 50, ..Plan::default() }).await;
    let mut won = Vec::new();
    for n in 0..ORDERS {
        won.push(shop.buy(n, "k", 1).await);
    }
    for (order, access) in &won {
        shop.reaches(order, access, "awaiting_payment").await;
    }
    is_cut.store(true, Ordering::SeqCst);
    let started = std::time::Instant::now();
    for (order, access) in &won {
        let cancelling = shop.post(&format!("/orders/{order}/cancel"), access).await;
        assert_eq!(cancelling.status, StatusCode::ACCEPTED, "{}", cancelling.text);
    }
    let said = || (heard.warnings.load(Ordering::SeqCst), heard.details.load(Ordering::SeqCst));
    eventually("each was tried several times", 20, async || said().0 + said().1 >= 3 * u64::from(ORDERS))
        .await;
    let most = 1 + started.elapsed().as_secs() / 10;
    assert!((1..=most).contains(&said().0), "{:?} in {:?}", said(), started.elapsed());
    is_cut.store(false, Ordering::SeqCst);
    eventually("the units are back", 15, async || shop.phone_books().await["available"] == 50).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_read_the_books_as_soon_as_the_gate_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan { loops: false, sweeps: false, webhooks: false, ..Plan::default() };
    let (shop, is_cut) = shop(&dir, &plan).await;
    is_cut.store(true, Ordering::SeqCst);
    // Nobody's order: the gate is asked whose claim it is, until the circuit opens.
    let path = format!("/orders/{}", uuid::Uuid::from_u128(7));
    for _ in 0..30 {
        shop.get(&path, &shop.token(1)).await.is(503, "stock_unavailable");
    }
    is_cut.store(false, Ordering::SeqCst);
    let books = shop.get("/operator/v1/sales/demo/books", VIEWER_KEY).await;
    assert_eq!(books.status, StatusCode::OK, "{}", books.text);
}
