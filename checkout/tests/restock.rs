//! Operators change the stock of a running sale; accounts are held to a number of unpaid orders at a time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use http::StatusCode;
use lockgate_shared::testing::eventually;
use serde_json::json;
use support::{Answer, Ask, OPERATOR_KEY, Plan, Shop, VIEWER_KEY};

const STOCK: &str = "/operator/v1/sales/demo/stock";

async fn change(shop: &Shop, change: i64, key: &str) -> Answer {
    let body = json!({ "item": "phone", "change": change }).to_string();
    let ask = Ask::post(STOCK).bearer(OPERATOR_KEY).json(&body);
    shop.send(if key.is_empty() { ask.build() } else { ask.key(key).build() }).await
}

fn defined(shop: &Shop) -> u32 {
    shop.catalog.sale(&shop.sale).unwrap().definition.items[0].stock
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sold_out_sale_goes_on_with_added_units_and_the_definition_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan { stock: 2, ..Plan::default() }).await;
    let (order, access) = shop.buy(1, "k", 2).await;
    shop.finish(&shop.pay(&order, &access).await, "paid").await;
    shop.reaches(&order, &access, "paid").await;
    shop.checkout(2, "k", 1).await.is(409, "sold_out");
    // The gate hears of the payment a moment after the order.
    eventually("sold", 10, async || shop.books().await["items"][0]["sold"] == 2).await;
    let added = change(&shop, 3, "").await;
    let counts = json!({ "item": "phone", "stock": 5, "available": 3, "held": 0, "sold": 2 });
    assert_eq!((added.status, added.json()), (StatusCode::OK, counts));
    assert_eq!(shop.checkout(2, "k", 1).await.json()["units"], json!([3]));
    assert_eq!(defined(&shop), 5, "what is rebuilt after a loss, and what an applied file must say");
    let short = change(&shop, -3, "").await;
    short.is(409, "units_taken");
    let words = short.json();
    assert_eq!(
        (&words["available"], &words["held"], &words["sold"], &words["least"]),
        (&json!(2), &json!(1), &json!(2), &json!(3))
    );
    assert!(words["detail"].as_str().unwrap().contains("At most 2 can be withdrawn"), "{words}");
    assert_eq!(change(&shop, -2, "").await.json()["stock"], 3);
    assert_eq!(defined(&shop), 3);
    shop.checkout(3, "k", 1).await.is(409, "sold_out");
    let line = shop.phone_books().await;
    assert_eq!((&line["stock"], &line["available"]), (&json!(3), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_a_change_once_and_bad_input_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    for _ in 0..2 {
        assert_eq!(change(&shop, 5, "k1").await.json()["stock"], 15);
    }
    change(&shop, 6, "k1").await.is(422, "idempotency_mismatch");
    assert_eq!(defined(&shop), 15);
    let limit = |sale: &mut lockgate_shared::catalog::StoredSale| sale.definition.total_limit = Some(25);
    shop.catalog.change(&shop.sale, limit).await.unwrap();
    change(&shop, -1, "").await.is(409, "below_total_limit");
    for bad in [0, 1_000_001, i64::MIN] {
        change(&shop, bad, "").await.is(400, "malformed");
    }
    change(&shop, 1_000_000, "").await.is(409, "too_many_units");
    change(&shop, 1, &"k".repeat(129)).await.is(400, "malformed");
    let ask = |body: &str| Ask::post(STOCK).bearer(OPERATOR_KEY).json(body);
    shop.send(ask(r#"{"item":"nothing","change":1}"#).build()).await.is(404, "no_such_item");
    for body in [
        "",
        r#"{"item":"phone"}"#,
        r#"{"item":"phone","change":1,"x":2}"#,
        r#"{"item":"phone","change":"1"}"#,
    ] {
        shop.send(ask(body).build()).await.is(400, "malformed");
    }
    let body = r#"{"item":"phone","change":1}"#;
    for path in [STOCK, "/operator/v1/sales/demo/recover"] {
        let by = |key: &str| Ask::post(path).bearer(key).json(body).build();
        assert_eq!(shop.send(by(VIEWER_KEY)).await.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(shop.send(by("")).await.status, StatusCode::UNAUTHORIZED, "{path}");
        let elsewhere = path.replace("demo", "nowhere");
        shop.send(Ask::post(&elsewhere).bearer(OPERATOR_KEY).json(body).build())
            .await
            .is(404, "no_such_sale");
    }
    assert_eq!((defined(&shop), &shop.phone_books().await["stock"]), (15, &json!(15)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_so_many_unpaid_orders_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let limit = |sale: &mut lockgate_shared::catalog::StoredSale| sale.definition.live_holds_limit = Some(1);
    shop.catalog.change(&shop.sale, limit).await.unwrap();
    let (first, access) = shop.buy(1, "a", 1).await;
    let refused = shop.checkout(1, "b", 1).await;
    refused.is(409, "limit_reached");
    let words = refused.json();
    assert_eq!((&words["limit"], &words["live"]), (&json!(1), &json!(1)));
    assert!(words["detail"].as_str().unwrap().contains("1 unpaid orders of this sale at a time"), "{words}");
    shop.buy(2, "a", 1).await;
    shop.reaches(&first, &access, "awaiting_payment").await;
    shop.finish(&shop.pay(&first, &access).await, "paid").await;
    shop.reaches(&first, &access, "paid").await;
    let (second, access) = buy_soon(&shop, "b").await;
    shop.checkout(1, "c", 1).await.is(409, "limit_reached");
    shop.reaches(&second, &access, "awaiting_payment").await;
    shop.post(&format!("/orders/{second}/cancel"), &access).await;
    shop.reaches(&second, &access, "cancelled").await;
    buy_soon(&shop, "c").await;
}

/// The gate hears of a payment, or an end, a moment after the order.
async fn buy_soon(shop: &Shop, key: &str) -> (String, String) {
    let mut won = None;
    eventually("the account may order again", 10, async || {
        let answer = shop.checkout(1, key, 1).await;
        won = (answer.status == StatusCode::ACCEPTED)
            .then(|| (answer.text_of("order_id"), answer.text_of("access_key")));
        won.is_some()
    })
    .await;
    won.unwrap()
}
