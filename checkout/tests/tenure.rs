//! Who reconciles keeps the lease while it lives, however slow the gateway; and stops at once when it is lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use http::{HeaderMap, StatusCode};
use lockgate_checkout::{
    Gateway,
    gateways::{CancelOutcome, GatewayError, Notification, PaymentOrder, PaymentStatus, WebhookError},
    intake::take_batch,
    order::OrderEvent,
    payment::{Money, PaymentId, Terms},
    reconciler::{Pace, Reconciler, Round},
};
use lockgate_shared::{
    clock::Timestamp,
    testing::{PrivatePostgres, PrivateRedis},
};
use support::{Ask, Backends, Plan, Shop};
use tempfile::TempDir;
use uuid::Uuid;

/// Takes every question and answers none.
#[derive(Default)]
struct Silent(Mutex<Vec<PaymentId>>);

impl Silent {
    fn asked(&self) -> Vec<PaymentId> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl Gateway for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }
    async fn start(&self, _: &PaymentOrder) -> Result<PaymentStatus, GatewayError> {
        std::future::pending().await
    }
    async fn cancel(&self, _: &PaymentOrder) -> Result<CancelOutcome, GatewayError> {
        std::future::pending().await
    }
    async fn state(&self, order: &PaymentOrder) -> Result<PaymentStatus, GatewayError> {
        self.0.lock().unwrap().push(order.payment);
        std::future::pending().await
    }
    async fn refund(&self, _: &PaymentOrder, _: &Money) -> Result<(), GatewayError> {
        std::future::pending().await
    }
    fn verify(&self, _: &HeaderMap, _: &[u8], _: Timestamp) -> Result<Notification, WebhookError> {
        Err(WebhookError::Signature)
    }
}

/// Two sales, each with an attempt in doubt, at a gateway that hangs; leases go by PostgreSQL's own clock.
struct Scene {
    shop: Shop,
    gateway: Arc<Silent>,
    postgres: PrivatePostgres,
    _redis: PrivateRedis,
    _dir: TempDir,
}

async fn scene() -> Scene {
    let (redis, postgres) = tokio::join!(PrivateRedis::start(), PrivatePostgres::start());
    let dir = tempfile::tempdir().unwrap();
    let backends = Backends::scaled_out(&redis, postgres.url()).await;
    let gateway = Arc::new(Silent::default());
    let plan = Plan {
        loops: false,
        webhooks: false,
        sweeps: false,
        gateway: Some(Arc::clone(&gateway) as _),
        ..Plan::default()
    };
    let shop = Shop::over(dir.path(), &plan, support::clock(), backends, None).await;
    for (n, sale) in (1_u8..).zip(["demo", "other"]) {
        let token = shop.token_for(sale, 1, 600, 0);
        let ask = Ask::post(&format!("/sale/{sale}/checkout")).bearer(&token).key("k");
        let won = shop.send(ask.json(r#"{"item":"phone","quantity":1}"#).build()).await;
        assert_eq!(won.status, StatusCode::ACCEPTED, "{}", won.text);
        while take_batch(&shop.app, &sale.parse().unwrap()).await.unwrap() > 0 {}
        let payment = Uuid::from_bytes([n; 16]).into();
        let pay = OrderEvent::Pay { payment, terms: Terms::default() };
        let order = won.text_of("order_id").parse().unwrap();
        shop.store.decide(order, &pay, shop.now()).await.unwrap().unwrap();
    }
    shop.clock.advance_ms(61_000);
    Scene { shop, gateway, postgres, _redis: redis, _dir: dir }
}

impl Scene {
    fn reconciler(&self, name: &str, asking: Duration) -> Reconciler {
        let pace = Pace { lease: Duration::from_millis(1_200), asking };
        Reconciler::paced(Arc::clone(&self.shop.app), name, pace)
    }

    /// Rounds until the attempts are in doubt.
    async fn doubt(&self, reconciler: &mut Reconciler) {
        for _ in 0..2 {
            assert!(reconciler.round().await.is_ours);
        }
        self.shop.clock.advance_ms(61_000);
        assert_eq!(self.gateway.asked(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m2_the_lease_is_kept_through_long_rounds_and_pauses_and_the_gateway_is_asked_per_round() {
    let scene = scene().await;
    let mut first = scene.reconciler("a", Duration::from_millis(2_500));
    let mut second = scene.reconciler("b", Duration::from_millis(2_500));
    scene.doubt(&mut first).await;
    let work = async {
        let round = first.round().await;
        let asked = scene.gateway.asked();
        first.rest(Duration::from_millis(2_500)).await;
        (round, asked)
    };
    let stalk = async {
        loop {
            assert_eq!(second.round().await, Round::default(), "the lease was lost to a second one");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (round, asked) = tokio::select! {
        done = work => done,
        () = stalk => unreachable!(),
    };
    assert_eq!((round.is_ours, round.compared), (true, 2), "the other sale is compared as well");
    assert_eq!(asked.len(), 1, "the time is one round's, not one sale's");
    assert!(first.round().await.is_ours);
    let asked = scene.gateway.asked();
    assert!(asked.len() == 2 && asked[0] != asked[1], "the other sale's turn comes: {asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn m2_a_round_ends_at_once_when_the_lease_is_lost() {
    let scene = scene().await;
    let mut first = scene.reconciler("a", Duration::from_secs(3_600));
    scene.doubt(&mut first).await;
    let theft = async {
        while scene.gateway.asked().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (client, connection) =
            tokio_postgres::connect(scene.postgres.url(), tokio_postgres::NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let sql =
            "UPDATE leases SET holder = 'b', fence = fence + 1, until = until + 60000000, life_ms = 61000";
        client.batch_execute(sql).await.unwrap();
        driver.abort();
    };
    let limit = Duration::from_secs(20);
    let (round, ()) = tokio::join!(tokio::time::timeout(limit, first.round()), theft);
    assert!(round.expect("the round goes on without its lease").is_ours);
    assert_eq!(first.round().await, Round::default());
    assert_eq!(scene.gateway.asked().len(), 1);
}
