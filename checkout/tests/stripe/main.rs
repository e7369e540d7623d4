//! Whole orders paid at Stripe: the real checkout and stock gate against a local server that answers like Stripe.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod bank;
mod books;
mod cancelling;
mod paying;
mod refunding;
#[path = "../support/mod.rs"]
mod support;

use std::{path::Path, sync::Arc, time::Duration};

use bank::{Bank, KEY, WEBHOOK_SECRET};
use lockgate_checkout::{SqliteStore, Stripe, stripe};
use support::{Plan, Shop};

/// A shop whose buyers pay at the local Stripe.
struct Scene {
    shop: Shop,
    bank: Bank,
    dir: tempfile::TempDir,
}

fn gateway(bank: &Bank, key: &str, methods: &[&str]) -> Arc<Stripe> {
    let settings = stripe::Settings {
        secret_key: key.to_owned(),
        webhook_secrets: vec!["whsec_the_one_before_0123456789".to_owned(), WEBHOOK_SECRET.to_owned()],
        api_url: bank.url.clone(),
        payment_methods: methods.iter().map(|method| (*method).to_owned()).collect(),
        call_limit: Duration::from_secs(1),
    };
    Arc::new(Stripe::new(&settings).unwrap())
}

async fn shop(dir: &Path, bank: &Bank, plan: Plan) -> Shop {
    shop_with(dir, bank, plan, &["card"]).await
}

async fn shop_with(dir: &Path, bank: &Bank, plan: Plan, methods: &[&str]) -> Shop {
    let plan = Plan { gateway: Some(gateway(bank, KEY, methods)), ..plan };
    let db = Shop::database(dir);
    let store = Arc::new(SqliteStore::new(db.clone()));
    Shop::with(dir, &plan, bank.clock.clone(), db, store, None).await
}

async fn scene(plan: Plan) -> Scene {
    let (dir, bank) = (tempfile::tempdir().unwrap(), Bank::open(support::clock()).await);
    Scene { shop: shop(dir.path(), &bank, plan).await, bank, dir }
}

impl Scene {
    /// One phone, claimed by account `n`: its order and access key.
    async fn order(&self, n: u16) -> (String, String) {
        let (order, access) = self.shop.buy(n, "k", 1).await;
        self.shop.reaches(&order, &access, "awaiting_payment").await;
        (order, access)
    }

    /// The same with its payment started: order, access key and Stripe's page.
    async fn paying(&self, n: u16) -> (String, String, String) {
        let (order, access) = self.order(n).await;
        let page = self.shop.pay(&order, &access).await;
        assert!(page.starts_with("https://checkout.stripe.example/c/pay/cs_test_"), "{page}");
        (order, access, page)
    }

    async fn deliver(&self, event: &serde_json::Value) -> u16 {
        self.bank.deliver(&self.shop.url, event).await
    }

    /// The buyer comes back from Stripe's page number `n`.
    async fn come_back(&self, n: usize) -> support::Answer {
        let address = self.bank.session(n).success_url.replace(&self.shop.url, "");
        self.shop.get(&address, "").await
    }

    /// Every hold falls due.
    fn let_holds_run_out(&self) {
        self.shop.clock.advance_ms(601_000);
    }

    async fn kinds_of_anomalies(&self, order: &str) -> Vec<String> {
        let db = Shop::database(self.dir.path());
        let id: uuid::Uuid = order.parse().unwrap();
        db.read("test", move |db| {
            let mut found = db.prepare("SELECT kind FROM anomalies WHERE order_id = ?1 ORDER BY number")?;
            found.query_map([id.as_bytes()], |row| row.get(0))?.collect()
        })
        .await
        .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_key_sells_nothing_of_a_demo_sale_that_came_later() {
    let (dir, bank) = (tempfile::tempdir().unwrap(), Bank::open(support::clock()).await);
    let live = gateway(&bank, "rk_live_51Lockgate0123456789", &["card"]);
    let shop = Shop::open(dir.path(), &Plan { gateway: Some(live), ..Plan::default() }).await;
    let refused = shop.checkout(1, "k", 1).await;
    refused.is(503, "payment_unavailable");
    assert!(refused.text.contains("live key"), "{}", refused.text);
    assert_eq!(shop.phone_books().await["held"], 0);
}
