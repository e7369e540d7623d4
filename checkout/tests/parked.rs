//! Payments that no order came for are counted, and shown to operators.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::sync::Arc;

use lockgate_checkout::{
    payment::{Money, Notice, Outcome},
    reconciler::Reconciler,
};
use serde_json::json;
use support::{Ask, OPERATOR_KEY, Plan, Shop, VIEWER_KEY};
use uuid::Uuid;

const PARKED: &str = "/operator/v1/payments/parked";

#[tokio::test(flavor = "multi_thread")]
async fn m3_a_payment_that_no_order_comes_for_is_counted_and_listed() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan { loops: false, webhooks: false, sweeps: false, ..Plan::default() };
    let shop = Shop::open(dir.path(), &plan).await;
    let (payment, order) = (Uuid::from_u128(7), Uuid::from_u128(8));
    let outcome = Outcome::Paid(Money { amount: 49_900, currency: "EUR".into() });
    let notice = Notice { payment: payment.into(), order: Some(order.into()), outcome };
    let came_at = shop.now();
    shop.store.notify("simulated", "evt-1", &notice, came_at).await.unwrap();
    let mut reconciler = Reconciler::new(Arc::clone(&shop.app), "a");
    assert_eq!(reconciler.round().await.parked, 0, "its order may still come");
    shop.clock.advance_ms(1);
    let listed = shop.get(PARKED, VIEWER_KEY).await.json();
    let one = json!({
        "gateway": "simulated", "event": "evt-1", "payment_id": payment, "order_id": order, "outcome": "paid",
        "amount": 49_900, "currency": "EUR", "received_at": came_at,
    });
    assert_eq!(listed, json!({ "total": 1, "parked": [one] }));
    shop.clock.advance_ms(601_000);
    assert_eq!(reconciler.round().await.parked, 1);
    for n in 0..200 {
        shop.store.notify("simulated", &format!("more-{n}"), &notice, shop.now()).await.unwrap();
    }
    shop.clock.advance_ms(1);
    let first = shop.get(PARKED, VIEWER_KEY).await.json();
    assert_eq!(first["parked"].as_array().unwrap().len(), 200);
    let next = format!("{PARKED}?after={}", first["next"].as_str().unwrap());
    let rest = shop.get(&next, VIEWER_KEY).await.json();
    assert_eq!((rest["parked"].as_array().unwrap().len(), rest.get("next")), (1, None), "{rest}");
    // Somebody gave the money back.
    let strike = async |payment: &str, key: &str, body: &str| {
        let ask = Ask::post(&format!("/operator/v1/payments/{payment}/strike-off")).bearer(key);
        shop.send(ask.json(body).build()).await
    };
    let (id, good) = (payment.to_string(), r#"{"reason":"given back by hand"}"#);
    strike(&id, VIEWER_KEY, good).await.is(403, "role_too_low");
    strike(&id, OPERATOR_KEY, "{}").await.is(400, "malformed");
    for unknown in ["x", "%00", &order.to_string()] {
        strike(unknown, OPERATOR_KEY, good).await.is(404, "no_such_payment");
    }
    let struck = strike(&id, OPERATOR_KEY, good).await.json();
    assert_eq!(struck, json!({ "payment_id": payment, "struck_off": 201 }));
    strike(&id, OPERATOR_KEY, good).await.is(404, "no_such_payment");
    assert_eq!(shop.get(PARKED, VIEWER_KEY).await.json(), json!({ "total": 0, "parked": [] }));
    shop.get(PARKED, "").await.is(401, "operator_key_missing");
    shop.get(&format!("{PARKED}?after=7"), VIEWER_KEY).await.is(400, "malformed");
}
