//! Orders from claim to end, against the real gate and the simulated gateway.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::{collections::HashSet, sync::Arc};

use http::StatusCode;
use lockgate_checkout::{ORDERS_POSTGRES, PostgresStore};
use lockgate_shared::{
    store::postgres,
    testing::{PrivatePostgres, eventually},
};
use serde_json::json;
use support::{Ask, HOLD_SECONDS, Plan, Shop, VIEWER_KEY};

async fn a_unit_is_bought(shop: &Shop) {
    let won = shop.checkout(1, "k1", 2).await;
    assert_eq!(won.status, StatusCode::ACCEPTED, "{}", won.text);
    assert_eq!(won.headers["cache-control"], "private, no-store");
    let body = won.json();
    assert_eq!(body["units"], json!([1, 2]));
    assert_eq!((body["amount"].as_i64(), body["currency"].as_str()), (Some(99_800), Some("EUR")));
    assert_eq!(body["order_id"], body["hold_id"]);
    let (order, access) = (won.text_of("order_id"), won.text_of("access_key"));
    assert_eq!(won.text_of("order_url"), format!("{}/orders/{order}", shop.url));
    assert_eq!(won.text_of("payment_url"), format!("{}/orders/{order}/pay", shop.url));

    let found = shop.get(&format!("/orders/{order}"), &access).await.json();
    assert_eq!(found["state"], "awaiting_payment");
    assert_eq!(found["units"], json!([1, 2]));
    assert_eq!(found["hold_expires_at"], body["hold_expires_at"]);
    let page = shop.pay(&order, &access).await;
    assert_eq!(shop.pay(&order, &access).await, page, "the open attempt is resumed");
    let back = shop.finish(&page, "paid").await;
    assert_eq!(back.status, StatusCode::SEE_OTHER);
    let returned = shop.send(Ask::get(&back.location().replace(&shop.url, "")).page().build()).await;
    assert_eq!(returned.location(), format!("/orders/{order}"));
    assert_eq!(shop.state(&order, &access).await, "paid", "the return itself knows");
    eventually("the gate sold them", 5, async || shop.phone_books().await["sold"] == 2).await;
    assert_eq!(shop.phone_books().await["orders"], json!({"paid": 1}));
    shop.post(&format!("/orders/{order}/pay"), &access).await.is(409, "order_paid");
    shop.post(&format!("/orders/{order}/cancel"), &access).await.is(409, "order_paid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_is_bought_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    a_unit_is_bought(&Shop::open(dir.path(), &Plan::default()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_is_bought_on_postgres() {
    let (dir, server) = (tempfile::tempdir().unwrap(), PrivatePostgres::start().await);
    let pool = postgres::connect(server.url(), &[("orders", ORDERS_POSTGRES)]).await.unwrap();
    let (db, store) = (Shop::database(dir.path()), Arc::new(PostgresStore::new(pool)));
    let shop = Shop::with(dir.path(), &Plan::default(), support::clock(), db, store, None).await;
    a_unit_is_bought(&shop).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h2_the_same_key_and_body_give_the_same_answer_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan { stock: 1, ..Plan::default() }).await;
    let first = shop.checkout(1, "k1", 1).await;
    assert_eq!(shop.checkout(1, "k1", 1).await.json(), first.json());
    shop.checkout(1, "k1", 2).await.is(422, "idempotency_mismatch");
    let (order, access) = (first.text_of("order_id"), first.text_of("access_key"));
    shop.reaches(&order, &access, "awaiting_payment").await;
    let page = shop.pay(&order, &access).await;
    shop.finish(&page, "paid").await;
    shop.reaches(&order, &access, "paid").await;
    eventually("others are refused early", 5, async || {
        shop.checkout(2, "k", 1).await.json()["may_return"] == false
    })
    .await;
    assert_eq!(shop.checkout(1, "k1", 1).await.json(), first.json(), "sold out, and still its own");
    shop.catalog.change(&shop.sale, |sale| sale.controls.closed = true).await.unwrap();
    assert_eq!(shop.checkout(1, "k1", 1).await.json(), first.json(), "closed, and still its own");
    shop.checkout(1, "k9", 1).await.is(409, "not_open");
}

#[tokio::test(flavor = "multi_thread")]
async fn m8_the_same_key_at_the_same_moment_is_one_claim() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let answers = futures::future::join_all((0..20).map(|_| shop.checkout(1, "k1", 1))).await;
    let orders: HashSet<String> = answers.iter().map(|won| won.text.clone()).collect();
    assert_eq!(orders.len(), 1, "{orders:?}");
    assert_eq!(shop.phone_books().await["held"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_ten_claims_for_the_last_unit_and_the_others_hear_sold_out() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan { stock: 1, ..Plan::default() }).await;
    let answers = futures::future::join_all((1..=10).map(|n| shop.checkout(n, "k", 1))).await;
    let (won, lost): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == StatusCode::ACCEPTED);
    assert_eq!((won.len(), lost.len()), (1, 9));
    for refused in lost {
        refused.is(409, "sold_out");
        assert_eq!(refused.json()["may_return"], true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_refused_with_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan { per_account_limit: 2, ..Plan::default() }).await;
    shop.buy(1, "k1", 2).await;
    let refused = shop.checkout(1, "k2", 1).await;
    refused.is(409, "limit_reached");
    assert_eq!(refused.json()["limit"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn h4_an_unpaid_hold_comes_back_and_goes_to_another() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan { stock: 1, ..Plan::default() }).await;
    for round in 0..3_u16 {
        // The books can show the unit a moment before checkout forgets its picture of an empty stock.
        eventually("the unit can be bought", 5, async || {
            shop.checkout(round, "k", 1).await.status == StatusCode::ACCEPTED
        })
        .await;
        let (order, access) = shop.buy(round, "k", 1).await;
        shop.reaches(&order, &access, "awaiting_payment").await;
        let page = (round == 1).then_some(shop.pay(&order, &access));
        if let Some(page) = page {
            // Somebody who began to pay and walked away.
            page.await;
        }
        shop.clock.advance_ms(i64::try_from(HOLD_SECONDS * 1_000).unwrap() + 1);
        shop.post(&format!("/orders/{order}/pay"), &access).await.is(409, "order_expired");
        shop.reaches(&order, &access, "expired").await;
        eventually("the unit is back", 5, async || shop.phone_books().await["available"] == 1).await;
        shop.post(&format!("/orders/{order}/cancel"), &access).await.is(409, "order_expired");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_order_gives_its_units_back_before_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let (order, access) = shop.buy(1, "k1", 2).await;
    let page = shop.pay(&order, &access).await;
    let cancelled = shop.post(&format!("/orders/{order}/cancel"), &access).await;
    assert_eq!((cancelled.status, cancelled.text_of("state").as_str()), (StatusCode::OK, "cancelled"));
    assert_eq!(shop.phone_books().await["available"], 10);
    assert_eq!(shop.post(&format!("/orders/{order}/cancel"), &access).await.status, StatusCode::OK);
    shop.post(&format!("/orders/{order}/pay"), &access).await.is(409, "order_cancelled");
    // The page that was open cannot take money any more.
    shop.finish(&page, "paid").await;
    assert_eq!(shop.state(&order, &access).await, "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_a_slow_gateway_keeps_the_units_until_nothing_can_be_paid() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    shop.pay(&order, &access).await;
    shop.behave(r#"{"failure_share":1.0}"#).await;
    let cancelling = shop.post(&format!("/orders/{order}/cancel"), &access).await;
    assert_eq!(cancelling.status, StatusCode::ACCEPTED);
    assert_eq!(cancelling.json(), json!({"cancelling": true}));
    let found = shop.get(&format!("/orders/{order}"), &access).await.json();
    assert_eq!((&found["state"], &found["cancelling"]), (&json!("awaiting_payment"), &json!(true)));
    shop.post(&format!("/orders/{order}/pay"), &access).await.is(409, "order_cancelled");
    assert_eq!(shop.phone_books().await["held"], 1);
    shop.behave("{}").await;
    shop.reaches(&order, &access, "cancelled").await;
    eventually("the unit is back", 5, async || shop.phone_books().await["available"] == 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_paid_in_time_and_told_late_keeps_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    // Neither webhook nor return arrives; the question at the hold's end finds the money.
    shop.behave(r#"{"webhook_delay_ms":86400000,"drop_callback":true}"#).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    let page = shop.pay(&order, &access).await;
    let shown = shop.finish(&page, "paid").await;
    assert_eq!(shown.status, StatusCode::OK, "the buyer stays on the gateway's page");
    assert_eq!(shop.state(&order, &access).await, "awaiting_payment");
    shop.clock.advance_ms(i64::try_from(HOLD_SECONDS * 1_000).unwrap() + 1);
    shop.reaches(&order, &access, "paid").await;
    eventually("the gate sold it", 5, async || shop.phone_books().await["sold"] == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m3_five_copies_of_each_webhook_pay_once() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    shop.behave(r#"{"duplicate_webhooks":4,"drop_callback":true}"#).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    let page = shop.pay(&order, &access).await;
    shop.finish(&page, "paid").await;
    shop.reaches(&order, &access, "paid").await;
    eventually("the gate sold it", 5, async || shop.phone_books().await["sold"] == 1).await;
    assert_eq!(shop.phone_books().await["orders"], json!({"paid": 1}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_payment_leaves_room_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    let first = shop.pay(&order, &access).await;
    shop.finish(&first, "failed").await;
    eventually("the failure is known", 5, async || {
        shop.get(&format!("/orders/{order}"), &access).await.json()["last_payment_failed"] == true
    })
    .await;
    let second = shop.pay(&order, &access).await;
    assert_ne!(first, second);
    shop.finish(&second, "paid").await;
    shop.reaches(&order, &access, "paid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_fails_half_the_time_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan { stock: 12, ..Plan::default() }).await;
    shop.behave(r#"{"failure_share":0.5}"#).await;
    for n in 0..12_u16 {
        let (order, access) = shop.buy(n, "k", 1).await;
        let mut page = None;
        while page.is_none() {
            let paying = shop.post(&format!("/orders/{order}/pay"), &access).await;
            if paying.status == StatusCode::OK {
                page = Some(paying.text_of("redirect_url").replace(&shop.url, ""));
            } else {
                paying.is(503, "payment_unavailable");
            }
        }
        match n % 3 {
            0 => drop(shop.finish(&page.unwrap(), "paid").await),
            1 => drop(shop.post(&format!("/orders/{order}/cancel"), &access).await),
            _ => {}
        }
    }
    shop.clock.advance_ms(i64::try_from(HOLD_SECONDS * 1_000).unwrap() + 1);
    eventually("everything is settled", 30, async || {
        let phone = shop.phone_books().await;
        phone["orders"] == json!({"paid": 4, "cancelled": 4, "expired": 4})
            && phone["sold"] == 4
            && phone["available"] == 8
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_a_deadline_that_passed_while_nothing_ran_is_found_by_the_first_that_starts() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    let page = shop.pay(&order, &access).await;
    let (_, unplaced_access) = shop.buy(2, "k1", 1).await;
    let clock = shop.clock.clone();
    shop.kill().await;
    clock.advance_ms(i64::try_from(HOLD_SECONDS * 1_000).unwrap() + 1);
    let db = Shop::database(dir.path());
    let store = Arc::new(lockgate_checkout::SqliteStore::new(db.clone()));
    let shop = Shop::with(dir.path(), &Plan::default(), clock, db, store, None).await;
    shop.reaches(&order, &access, "expired").await;
    eventually("both units are back", 5, async || shop.phone_books().await["available"] == 10).await;
    assert!(!unplaced_access.is_empty());
    shop.finish(&page, "paid").await;
    assert_eq!(shop.state(&order, &access).await, "expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_a_killed_gateway_left_behind_are_sent_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan { webhooks: false, ..Plan::default() };
    let shop = Shop::open(dir.path(), &plan).await;
    shop.behave(r#"{"drop_callback":true}"#).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    let page = shop.pay(&order, &access).await;
    shop.finish(&page, "paid").await;
    assert_eq!(shop.state(&order, &access).await, "awaiting_payment");
    let clock = shop.clock.clone();
    shop.kill().await;
    let db = Shop::database(dir.path());
    let store = Arc::new(lockgate_checkout::SqliteStore::new(db.clone()));
    let shop = Shop::with(dir.path(), &Plan::default(), clock, db, store, None).await;
    shop.reaches(&order, &access, "paid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_still_being_placed_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan { loops: false, ..Plan::default() };
    let shop = Shop::open(dir.path(), &plan).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    let path = format!("/orders/{order}");
    let found = shop.get(&path, &shop.token(1)).await.json();
    assert_eq!((&found["state"], &found["units"]), (&json!("placing"), &json!([1])));
    assert_eq!(found["amount"], 49_900);
    assert_eq!(shop.get(&path, &access).await.json()["state"], "placing");
    shop.get(&path, &shop.token(2)).await.is(404, "no_such_order");
    shop.post(&format!("{path}/pay"), &access).await.is(503, "order_not_ready");
    // Cancelling does not wait for the record: the order is written ended, and the record finds it.
    let cancelled = shop.post(&format!("{path}/cancel"), &shop.token(1)).await;
    assert_eq!((cancelled.status, cancelled.text_of("state").as_str()), (StatusCode::OK, "cancelled"));
    assert_eq!(shop.gate.stock(&shop.sale).await.unwrap().items[0].available, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_shoppers_for_fifty_units_leave_the_books_balanced() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan { stock: 50, ..Plan::default() }).await;
    let answers = futures::future::join_all((0..500).map(|n| shop.checkout(n, "k", 1))).await;
    let mut units = HashSet::new();
    for won in answers.iter().filter(|answer| answer.status == StatusCode::ACCEPTED) {
        assert!(units.insert(won.json()["units"][0].as_u64().unwrap()));
    }
    assert_eq!(units, (1..=50).collect());
    let books = shop.get("/operator/v1/sales/demo/books", VIEWER_KEY).await.json();
    assert_eq!((&books["balanced"], &books["sale"]), (&json!(true), &json!("demo")), "{books}");
    assert_eq!(
        books["items"][0],
        json!({"item": "phone", "stock": 50, "available": 0, "held": 50, "sold": 0, "difference": 0,
               "orders": {"awaiting_payment": 50}})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn m9_money_for_units_that_are_gone_goes_back_once_however_often_answers_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    shop.behave(r#"{"webhook_delay_ms":86400000,"drop_callback":true}"#).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    let page = shop.pay(&order, &access).await;
    shop.finish(&page, "paid").await;
    shop.behave(r#"{"failure_share":0.5}"#).await;
    // Somebody frees the units behind the order's back; the order ends, finds the money, and gives it back.
    shop.gate.release(&shop.sale, order.parse().unwrap()).await.unwrap();
    lockgate_shared::testing::eventually("the money went back", 30, async || {
        shop.state(&order, &access).await == "refunded"
    })
    .await;
    let shown = shop.send(Ask::get(&page).page().build()).await;
    assert!(shown.text.contains("This is paid."), "{}", shown.text);
    assert_eq!(shop.phone_books().await["orders"], json!({"refunded": 1}));
    shop.post(&format!("/orders/{order}/pay"), &access).await.is(409, "order_expired");
}
