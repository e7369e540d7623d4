//! Trouble next door: the database is down or hangs, the gate hangs. Real Redis and a real PostgreSQL.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::support::{Ask, Backends, Plan, Shop, Wrap};
use axum::{Router, body::Body};
use http::{Method, Request, StatusCode};
use lockgate_checkout::IntakeSettings;
use lockgate_shared::testing::{PrivatePostgres, PrivateRedis, eventually};
use serde_json::json;
use tokio::sync::watch;
use tower::{ServiceExt as _, util::BoxCloneSyncService};

struct Site {
    shop: Arc<Shop>,
    postgres: PrivatePostgres,
    _redis: PrivateRedis,
    _dir: tempfile::TempDir,
}

async fn site(plan: &Plan, wrap: Option<Wrap>) -> Site {
    let (redis, postgres) = tokio::join!(PrivateRedis::start(), PrivatePostgres::start());
    let dir = tempfile::tempdir().unwrap();
    let backends = Backends::scaled_out(&redis, postgres.url()).await;
    let shop = Arc::new(Shop::over(dir.path(), plan, crate::support::clock(), backends, wrap).await);
    Site { shop, postgres, _redis: redis, _dir: dir }
}

fn plan(backlog_max: u64) -> Plan {
    Plan {
        stock: 500,
        intake: IntakeSettings { backlog_max, ..IntakeSettings::default() },
        ..Plan::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m14_the_database_is_down_claims_go_on_up_to_a_bound_and_the_orders_catch_up() {
    const BOUND: usize = 60;
    let mut site = site(&plan(BOUND as u64), None).await;
    let shop = Arc::clone(&site.shop);
    let mut won = Vec::new();
    for n in 0..10 {
        won.push(shop.buy(n, "k", 1).await);
    }
    for (order, access) in &won {
        shop.reaches(order, access, "awaiting_payment").await;
    }
    site.postgres.stop();
    let before = won.len();
    let refused = loop {
        let n = u16::try_from(won.len()).unwrap();
        let answer = shop.checkout(n, "k", 1).await;
        if answer.status != StatusCode::ACCEPTED {
            break answer;
        }
        won.push((answer.text_of("order_id"), answer.text_of("access_key")));
        assert!(won.len() - before <= BOUND, "more than the bound");
    };
    refused.is(503, "stock_unavailable");
    assert_eq!(refused.json()["reason"], "orders_behind");
    assert!(won.len() - before >= BOUND / 2, "claims went on: {}", won.len() - before);
    let (order, access) = &won[0];
    shop.get(&format!("/orders/{order}"), access).await.is(503, "overloaded");
    site.postgres.start_again().await;
    eventually("the orders catch up", 40, async || {
        let books = shop.get("/operator/v1/sales/demo/books", crate::support::VIEWER_KEY).await;
        books.status == StatusCode::OK
            && books.json()["items"][0]["orders"] == json!({"awaiting_payment": won.len()})
    })
    .await;
    eventually("claims go on", 10, async || shop.checkout(400, "k", 1).await.status == StatusCode::ACCEPTED)
        .await;
    let total = won.len() + 1;
    eventually("none is lost", 10, async || {
        shop.books().await["items"][0]["orders"] == json!({"awaiting_payment": total})
    })
    .await;
    assert_eq!(shop.phone_books().await["held"], total);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_answered_while_the_database_hangs_and_so_are_its_readers() {
    let Site { shop, postgres, .. } = &site(&plan(10_000), None).await;
    let mut won = vec![shop.buy(0, "k", 1).await];
    shop.reaches(&won[0].0, &won[0].1, "awaiting_payment").await;
    postgres.freeze();
    let readers: Vec<_> = (0..60)
        .map(|_| {
            let (shop, (order, access)) = (Arc::clone(shop), won[0].clone());
            tokio::spawn(async move { shop.get(&format!("/orders/{order}"), &access).await })
        })
        .collect();
    // All of these end before the database is let go: nothing in a claim waits for it.
    for n in 1..40 {
        won.push(shop.buy(n, "k", 1).await);
    }
    for reader in readers {
        reader.await.unwrap().is(503, "overloaded");
    }
    for n in 40..60 {
        won.push(shop.buy(n, "k", 1).await);
    }
    postgres.thaw();
    for (order, access) in &won {
        eventually("the order is there", 30, async || {
            let found = shop.get(&format!("/orders/{order}"), access).await;
            found.status == StatusCode::OK && found.text_of("state") == "awaiting_payment"
        })
        .await;
    }
    assert_eq!(shop.phone_books().await["held"], won.len());
}

/// A wire to the gate that can be made to hang, and counts the claims that enter it.
struct Wire {
    hangs: watch::Sender<bool>,
    claims: AtomicU64,
    holds_read: AtomicU64,
}

impl Wire {
    fn new() -> Arc<Self> {
        let (claims, holds_read) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { hangs: watch::Sender::new(false), claims, holds_read })
    }
}

fn over(wire: &Arc<Wire>) -> Wrap {
    let wire = Arc::clone(wire);
    Box::new(move |router: Router| {
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let (wire, router) = (Arc::clone(&wire), router.clone());
            async move {
                if request.uri().path().ends_with("/claims") {
                    wire.claims.fetch_add(1, Ordering::SeqCst);
                }
                if request.method() == Method::GET && request.uri().path().contains("/claims/") {
                    wire.holds_read.fetch_add(1, Ordering::SeqCst);
                }
                let _ = wire.hangs.subscribe().wait_for(|hangs| !hangs).await;
                router.oneshot(request).await.map_err(|never| match never {})
            }
        }))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_shown_and_paid_while_the_gate_hangs_and_claims_are_refused_at_once() {
    let wire = Wire::new();
    let Site { shop, .. } = &site(&plan(10_000), Some(over(&wire))).await;
    let (order, access) = shop.buy(0, "k", 1).await;
    shop.reaches(&order, &access, "awaiting_payment").await;
    wire.hangs.send_replace(true);
    let claims: Vec<_> = (1..40)
        .map(|n| {
            let shop = Arc::clone(shop);
            tokio::spawn(async move { shop.checkout(n, "k", 1).await })
        })
        .collect();
    // All of this ends before the gate is let go.
    assert_eq!(shop.state(&order, &access).await, "awaiting_payment");
    let page = shop.pay(&order, &access).await;
    shop.finish(&page, "paid").await;
    shop.reaches(&order, &access, "paid").await;
    for claim in claims {
        claim.await.unwrap().is(503, "stock_unavailable");
    }
    // The circuit is open: claims go no further than this process, but for a probe now and then, of which the first
    // may be one.
    let before = wire.claims.load(Ordering::SeqCst);
    let refused = shop.checkout(41, "k", 1).await;
    refused.is(503, "stock_unavailable");
    for n in 42..60 {
        shop.checkout(n, "k", 1).await.is(503, "stock_unavailable");
    }
    let asked = wire.claims.load(Ordering::SeqCst) - before;
    assert!(asked < 18, "nearly all were refused here: {asked}");
    wire.hangs.send_replace(false);
    eventually("claims go on", 20, async || shop.checkout(70, "k", 1).await.status == StatusCode::ACCEPTED)
        .await;
    eventually("the gate hears of the payment", 20, async || {
        let books = shop.get("/operator/v1/sales/demo/books", crate::support::VIEWER_KEY).await;
        books.status == StatusCode::OK && books.json()["items"][0]["sold"] == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_made_at_the_pace_that_is_set_and_none_is_lost() {
    let intake = IntakeSettings { pace_per_second: NonZeroU32::new(8), ..IntakeSettings::default() };
    let plan = Plan { stock: 50, intake, ..Plan::default() };
    let Site { shop, .. } = &site(&plan, None).await;
    let mut won = Vec::new();
    for n in 0..12 {
        won.push(shop.buy(n, "k", 1).await);
    }
    for (order, access) in &won {
        shop.reaches(order, access, "awaiting_payment").await;
    }
    let ask = Ask::get("/operator/v1/sales/demo/dead-letters").bearer(crate::support::VIEWER_KEY);
    assert_eq!(shop.send(ask.build()).await.json()["total"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn h4_claimed_and_abandoned_again_and_again_the_stock_returns_to_its_start() {
    let plan = Plan { stock: 2, hold_seconds: 1, ..Plan::default() };
    let Site { shop, .. } = &site(&plan, None).await;
    for round in 0..3_u16 {
        eventually("both units can be bought", 10, async || {
            shop.checkout(round, "k", 2).await.status == StatusCode::ACCEPTED
        })
        .await;
        let (order, access) = shop.buy(round, "k", 2).await;
        shop.reaches(&order, &access, "expired").await;
        eventually("both units are back", 10, async || shop.phone_books().await["available"] == 2).await;
    }
    assert_eq!(shop.phone_books().await["orders"], json!({"expired": 3}));
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_h3_a_due_hold_frees_nothing_while_the_gateway_cannot_be_asked() {
    let plan = Plan { stock: 1, hold_seconds: 2, ..Plan::default() };
    let Site { shop, .. } = &site(&plan, None).await;
    let (order, access) = shop.buy(1, "k", 1).await;
    shop.reaches(&order, &access, "awaiting_payment").await;
    let page = shop.pay(&order, &access).await;
    shop.behave(r#"{"failure_share":1.0}"#).await;
    eventually("the order began to end", 15, async || {
        let found = shop.store.order(order.parse().unwrap()).await.unwrap().unwrap();
        found.ending.is_some()
    })
    .await;
    assert_eq!(shop.state(&order, &access).await, "awaiting_payment", "its payment may still succeed");
    assert_eq!(shop.gate.stock(&shop.sale).await.unwrap().items[0].held, 1, "so the unit stays held");
    shop.checkout(2, "k", 1).await.is(409, "sold_out");
    shop.behave("{}").await;
    shop.reaches(&order, &access, "expired").await;
    eventually("the unit is back", 15, async || shop.phone_books().await["available"] == 1).await;
    shop.finish(&page, "paid").await;
    assert_eq!(
        shop.state(&order, &access).await,
        "expired",
        "the page that was open takes no money any more"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_a_clock_that_is_set_forward_ends_no_order_before_its_hold_is_due() {
    let wire = Wire::new();
    let Site { shop, .. } = &site(&plan(10_000), Some(over(&wire))).await;
    let (order, access) = shop.buy(1, "k", 1).await;
    shop.reaches(&order, &access, "awaiting_payment").await;
    // Holds fall due by the store's clock, which stays right.
    shop.clock.advance_ms(660_000);
    eventually("the settler asked the gate, again and again", 30, async || {
        wire.holds_read.load(Ordering::SeqCst) >= 3
    })
    .await;
    assert_eq!(shop.state(&order, &access).await, "awaiting_payment");
    assert_eq!(shop.phone_books().await["held"], 1);
}
