//! What breaks around checkout: the gate's answers are lost, the gate or the orders' store is down, a process dies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use axum::{Router, body::Body};
use http::{Request, Response, StatusCode};
use lockgate_checkout::{
    Office, SqliteStore, Store,
    order::{Anomaly, Decision, Intake, OrderEvent, OrderRecord},
    outbox::{Channel, MessageId},
    payment::{Notice, PaymentId},
    store::{
        AnomalyRecord, Attempt, ChannelFigures, DeadLetter, DeadLetters, DeadMessage, ItemBooks, Leased,
        Notified, OutboxStore, Placed,
        office::{Changes, Kept, Lease, Parked, ParkedPlace, Search},
    },
};
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
    service_call::CallError,
    store::StoreError,
    testing::eventually,
};
use serde_json::json;
use support::{HOLD_SECONDS, Plan, Shop, Wrap};
use tower::{ServiceExt as _, util::BoxCloneSyncService};

/// What the wire to the gate does.
#[derive(Default)]
struct Wire {
    claims: AtomicU64,
    calls: AtomicU64,
    is_cut: AtomicBool,
    /// Replies to lose, after the gate did what it was asked.
    lose: AtomicU64,
}

fn over(wire: &Arc<Wire>) -> Option<Wrap> {
    let wire = Arc::clone(wire);
    Some(Box::new(move |router: Router| {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (wire, router) = (Arc::clone(&wire), router.clone());
            async move { pass(&wire, router, request).await }
        });
        BoxCloneSyncService::new(service)
    }))
}

async fn pass(wire: &Wire, router: Router, request: Request<Body>) -> Result<Response<Body>, CallError> {
    let is_claim = request.uri().path().ends_with("/claims");
    if is_claim {
        wire.claims.fetch_add(1, Ordering::SeqCst);
    }
    wire.calls.fetch_add(1, Ordering::SeqCst);
    if wire.is_cut.load(Ordering::SeqCst) {
        return Err(CallError::Unreached("the wire is cut".into()));
    }
    let answer = router.oneshot(request).await.map_err(|never| match never {})?;
    let loses = |left: u64| left.checked_sub(1);
    if is_claim && wire.lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, loses).is_ok() {
        return Err(CallError::Lost("the reply was lost".into()));
    }
    Ok(answer)
}

/// The real store, which can be switched off, and which counts its calls.
struct Switched {
    store: SqliteStore,
    is_off: AtomicBool,
    calls: AtomicU64,
}

impl Switched {
    fn check(&self, verb: &'static str) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.is_off.load(Ordering::SeqCst) {
            return Err(StoreError::untouched(verb, "switched off"));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Switched {
    async fn place(
        &self,
        sale: &SaleId,
        batch: &[Intake],
        dead: &[DeadLetter],
        now: Timestamp,
    ) -> Result<Placed, StoreError> {
        self.check("place")?;
        self.store.place(sale, batch, dead, now).await
    }
    async fn decide(
        &self,
        order: ClaimId,
        event: &OrderEvent,
        now: Timestamp,
    ) -> Result<Option<Decision>, StoreError> {
        self.check("decide")?;
        self.store.decide(order, event, now).await
    }
    async fn notify(
        &self,
        gateway: &str,
        event: &str,
        notice: &Notice,
        now: Timestamp,
    ) -> Result<Notified, StoreError> {
        self.check("notify")?;
        self.store.notify(gateway, event, notice, now).await
    }
    async fn order(&self, order: ClaimId) -> Result<Option<OrderRecord>, StoreError> {
        self.check("order")?;
        self.store.order(order).await
    }
    async fn order_of(&self, payment: PaymentId) -> Result<Option<ClaimId>, StoreError> {
        self.check("order_of")?;
        self.store.order_of(payment).await
    }
    async fn unsettled(
        &self,
        after: Option<ClaimId>,
        now: Timestamp,
    ) -> Result<Vec<OrderRecord>, StoreError> {
        self.check("unsettled")?;
        self.store.unsettled(after, now).await
    }
    async fn orders(&self, sale: &SaleId, after: Option<ClaimId>) -> Result<Vec<OrderRecord>, StoreError> {
        self.check("orders")?;
        self.store.orders(sale, after).await
    }
    async fn books(&self, sale: &SaleId) -> Result<BTreeMap<ItemId, ItemBooks>, StoreError> {
        self.check("books")?;
        self.store.books(sale).await
    }
    async fn anomalies(&self, sale: &SaleId, after: Option<u64>) -> Result<Vec<AnomalyRecord>, StoreError> {
        self.check("anomalies")?;
        self.store.anomalies(sale, after).await
    }
    async fn dead_letters(&self, sale: &SaleId) -> Result<DeadLetters, StoreError> {
        self.check("dead_letters")?;
        self.store.dead_letters(sale).await
    }
    async fn clear(&self, sale: &SaleId, event: &str) -> Result<(), StoreError> {
        self.check("clear")?;
        self.store.clear(sale, event).await
    }
    async fn ping(&self) -> Result<(), StoreError> {
        self.check("ping")?;
        self.store.ping().await
    }
}

#[async_trait]
impl OutboxStore for Switched {
    async fn lease_messages(
        &self,
        channel: Channel,
        most: usize,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<Leased>, StoreError> {
        self.store.lease_messages(channel, most, now, until).await
    }

    async fn record_attempt(
        &self,
        message: MessageId,
        lease: u32,
        attempt: &Attempt,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.store.record_attempt(message, lease, attempt, now).await
    }

    async fn outbox_figures(&self) -> Result<BTreeMap<Channel, ChannelFigures>, StoreError> {
        self.store.outbox_figures().await
    }

    async fn dead_messages(&self) -> Result<Vec<DeadMessage>, StoreError> {
        self.store.dead_messages().await
    }

    async fn retry_messages(&self, one: Option<MessageId>, now: Timestamp) -> Result<u64, StoreError> {
        self.store.retry_messages(one, now).await
    }

    async fn trim_messages(
        &self,
        delivered_before: Timestamp,
        dead_before: Timestamp,
    ) -> Result<u64, StoreError> {
        self.store.trim_messages(delivered_before, dead_before).await
    }
}

#[async_trait]
impl Office for Switched {
    async fn changes(&self, sale: &SaleId, after: u64, limit: usize) -> Result<Changes, StoreError> {
        self.check("office")?;
        self.store.changes(sale, after, limit).await
    }
    async fn find(
        &self,
        sale: &SaleId,
        search: &Search,
        after: Option<ClaimId>,
        limit: usize,
    ) -> Result<Vec<OrderRecord>, StoreError> {
        self.check("office")?;
        self.store.find(sale, search, after, limit).await
    }
    async fn lease(
        &self,
        name: &'static str,
        holder: &str,
        life_ms: u64,
        now: Timestamp,
    ) -> Result<Option<Lease>, StoreError> {
        self.check("office")?;
        self.store.lease(name, holder, life_ms, now).await
    }
    async fn note(
        &self,
        lease: Lease,
        sale: &SaleId,
        order: ClaimId,
        anomaly: &Anomaly,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.check("office")?;
        self.store.note(lease, sale, order, anomaly, now).await
    }
    async fn keep(
        &self,
        lease: Lease,
        sale: &SaleId,
        text: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.check("office")?;
        self.store.keep(lease, sale, text, now).await
    }
    async fn kept(&self, sale: &SaleId) -> Result<Option<Kept>, StoreError> {
        self.check("office")?;
        self.store.kept(sale).await
    }
    async fn parked(&self, before: Timestamp, after: Option<&ParkedPlace>) -> Result<Parked, StoreError> {
        self.check("office")?;
        self.store.parked(before, after).await
    }
    async fn strike_off(&self, payment: PaymentId) -> Result<u64, StoreError> {
        self.check("office")?;
        self.store.strike_off(payment).await
    }
}

struct Scene {
    shop: Shop,
    wire: Arc<Wire>,
    store: Arc<Switched>,
    _dir: tempfile::TempDir,
}

async fn scene(plan: Plan) -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let db = Shop::database(dir.path());
    let store = Arc::new(Switched {
        store: SqliteStore::new(db.clone()),
        is_off: AtomicBool::new(false),
        calls: AtomicU64::new(0),
    });
    let wire = Arc::new(Wire::default());
    let orders: Arc<dyn Store> = Arc::clone(&store) as _;
    let shop = Shop::with(dir.path(), &plan, support::clock(), db, orders, over(&wire)).await;
    Scene { shop, wire, store, _dir: dir }
}

fn pass_deadline(shop: &Shop) {
    shop.clock.advance_ms(i64::try_from(HOLD_SECONDS * 1_000).unwrap() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn h2_h9_a_claim_whose_reply_is_lost_is_one_hold() {
    let Scene { shop, wire, .. } = &scene(Plan::default()).await;
    wire.lose.store(1, Ordering::SeqCst);
    let won = shop.checkout(1, "k1", 2).await;
    assert_eq!((won.status, &won.json()["units"]), (StatusCode::ACCEPTED, &json!([1, 2])));
    assert_eq!(wire.claims.load(Ordering::SeqCst), 2, "asked again with the same id");
    // Lost twice: the shopper hears "unknown", repeats, and finds the same hold.
    wire.lose.store(2, Ordering::SeqCst);
    shop.checkout(2, "k1", 1).await.is(503, "stock_unavailable");
    assert_eq!(shop.checkout(2, "k1", 1).await.json()["units"], json!([3]));
    assert_eq!(shop.phone_books().await["held"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_a_gate_that_is_gone_is_never_sold_out() {
    let Scene { shop, wire, .. } = &scene(Plan { stock: 1, ..Plan::default() }).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    shop.reaches(&order, &access, "awaiting_payment").await;
    eventually("the empty stock was seen", 5, async || {
        shop.checkout(2, "k", 1).await.status == StatusCode::CONFLICT
    })
    .await;
    wire.is_cut.store(true, Ordering::SeqCst);
    // The last picture ages by the shop's clock.
    shop.clock.advance_ms(2_001);
    shop.checkout(2, "k", 1).await.is(503, "stock_unavailable");
    shop.get("/operator/v1/sales/demo/books", support::VIEWER_KEY).await.is(503, "stock_unavailable");
    assert_eq!(shop.state(&order, &access).await, "awaiting_payment", "orders are still shown");
    let page = shop.pay(&order, &access).await;
    shop.finish(&page, "paid").await;
    shop.reaches(&order, &access, "paid").await;
    wire.is_cut.store(false, Ordering::SeqCst);
    eventually("the gate hears of it", 15, async || shop.phone_books().await["sold"] == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn units_stay_held_while_the_gate_cannot_be_told() {
    let Scene { shop, wire, .. } = &scene(Plan::default()).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    shop.reaches(&order, &access, "awaiting_payment").await;
    wire.is_cut.store(true, Ordering::SeqCst);
    let cancelling = shop.post(&format!("/orders/{order}/cancel"), &access).await;
    assert_eq!(cancelling.status, StatusCode::ACCEPTED, "the units are not back yet");
    assert_eq!(shop.state(&order, &access).await, "cancelled");
    wire.is_cut.store(false, Ordering::SeqCst);
    eventually("the unit is back", 15, async || shop.phone_books().await["available"] == 10).await;
    assert_eq!(shop.post(&format!("/orders/{order}/cancel"), &access).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn m14_claims_go_on_while_the_orders_are_down_and_the_orders_catch_up() {
    let Scene { shop, store, .. } = &scene(Plan { stock: 30, ..Plan::default() }).await;
    store.is_off.store(true, Ordering::SeqCst);
    let mut won = Vec::new();
    for n in 0..20 {
        won.push(shop.buy(n, "k1", 1).await);
    }
    let (order, access) = &won[0];
    shop.get(&format!("/orders/{order}"), access).await.is(503, "overloaded");
    shop.post(&format!("/orders/{order}/pay"), access).await.is(503, "overloaded");
    store.is_off.store(false, Ordering::SeqCst);
    for (order, access) in &won {
        shop.reaches(order, access, "awaiting_payment").await;
    }
    assert_eq!(shop.phone_books().await["orders"], json!({"awaiting_payment": 20}));
}

#[tokio::test(flavor = "multi_thread")]
async fn m3_a_webhook_we_could_not_store_is_sent_again_and_applied() {
    let Scene { shop, store, .. } = &scene(Plan::default()).await;
    shop.behave(r#"{"drop_callback":true}"#).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    let page = shop.pay(&order, &access).await;
    store.is_off.store(true, Ordering::SeqCst);
    let seen = store.calls.load(Ordering::SeqCst);
    shop.finish(&page, "paid").await;
    eventually("the webhook was refused", 5, async || store.calls.load(Ordering::SeqCst) > seen + 4).await;
    store.is_off.store(false, Ordering::SeqCst);
    // Tries are spaced by the shop's clock.
    eventually("the webhook came again", 10, async || {
        shop.clock.advance_ms(500);
        shop.state(&order, &access).await == "paid"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_deadlines_that_pass_while_the_orders_are_down_free_nothing_until_they_decide() {
    let Scene { shop, store, .. } = &scene(Plan::default()).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    shop.reaches(&order, &access, "awaiting_payment").await;
    store.is_off.store(true, Ordering::SeqCst);
    pass_deadline(shop);
    eventually("the gate marked it", 5, async || {
        let hold = shop.gate.hold(&shop.sale, order.parse().unwrap()).await.unwrap().unwrap();
        hold.state == lockgate_shared::gate::HoldState::Expiring
    })
    .await;
    assert_eq!(shop.gate.stock(&shop.sale).await.unwrap().items[0].held, 1);
    store.is_off.store(false, Ordering::SeqCst);
    shop.reaches(&order, &access, "expired").await;
    eventually("the unit is back", 10, async || shop.phone_books().await["available"] == 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sold_out_checkout_makes_no_call_and_a_claim_makes_one() {
    let Scene { shop, wire, .. } = &scene(Plan { stock: 1, ..Plan::default() }).await;
    shop.buy(1, "k1", 1).await;
    assert_eq!(wire.claims.load(Ordering::SeqCst), 1);
    eventually("the empty stock was seen", 5, async || {
        let before = wire.claims.load(Ordering::SeqCst);
        shop.checkout(2, "k", 1).await.is(409, "sold_out");
        wire.claims.load(Ordering::SeqCst) == before
    })
    .await;
    let before = wire.claims.load(Ordering::SeqCst);
    for n in 2..50 {
        shop.checkout(n, "k", 1).await.is(409, "sold_out");
    }
    assert_eq!(wire.claims.load(Ordering::SeqCst), before);
    assert_eq!(
        shop.checkout(1, "k1", 1).await.status,
        StatusCode::ACCEPTED,
        "the winner's retry finds its hold"
    );
    assert_eq!(wire.claims.load(Ordering::SeqCst), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_without_loops_calls_nothing_but_the_gate() {
    let plan = Plan { loops: false, sweeps: false, webhooks: false, ..Plan::default() };
    let Scene { shop, wire, store, .. } = &scene(plan).await;
    shop.buy(1, "k1", 1).await;
    assert_eq!(wire.calls.load(Ordering::SeqCst), 1, "a claim is one call of the gate");
    assert_eq!(store.calls.load(Ordering::SeqCst), 0, "and none of the orders' store");
}
