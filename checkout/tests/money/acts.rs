//! Operators refund and cancel orders, with a reason.

use std::time::Duration;

use http::StatusCode;
use lockgate_shared::{limits::REASON_CHARS_MAX, testing::eventually};
use serde_json::json;

use crate::support::{Answer, Ask, OPERATOR_KEY, Plan, Shop, VIEWER_KEY};

async fn act(shop: &Shop, order: &str, verb: &str) -> Answer {
    let ask = Ask::post(&format!("/operator/v1/orders/{order}/{verb}")).bearer(OPERATOR_KEY);
    shop.send(ask.json(r#"{"reason":"asked by mail"}"#).build()).await
}

async fn bought(shop: &Shop, n: u16) -> (String, String) {
    let (order, access) = shop.buy(n, "k", 1).await;
    let page = shop.pay(&order, &access).await;
    shop.finish(&page, "paid").await;
    shop.reaches(&order, &access, "paid").await;
    eventually("the gate sold it", 5, async || shop.phone_books().await["held"] == 0).await;
    (order, access)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_refunds_a_paid_order_once_and_its_unit_stays_out_of_the_sale() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan { stock: 1, ..Plan::default() }).await;
    let (order, access) = bought(&shop, 1).await;
    act(&shop, &order, "cancel").await.is(409, "order_paid");
    // Answers are lost half the time; the money goes back once all the same.
    shop.behave(r#"{"failure_share":0.5}"#).await;
    for _ in 0..3 {
        let answer = act(&shop, &order, "refund").await;
        assert!(matches!(answer.status.as_u16(), 200 | 202), "{}", answer.text);
    }
    shop.reaches(&order, &access, "refunded").await;
    let again = act(&shop, &order, "refund").await;
    let expected = json!({"order_id": order, "sale": "demo", "state": "refunded", "units": [1],
                          "amount": 49_900, "currency": "EUR", "settled": true});
    assert_eq!((again.status, again.json()), (StatusCode::OK, expected));
    let phone = shop.phone_books().await;
    assert_eq!(
        (&phone["sold"], &phone["available"], &phone["difference"]),
        (&json!(1), &json!(0), &json!(0))
    );
    assert_eq!(phone["orders"], json!({"refunded": 1}));
    eventually("sold out is known", 5, async || shop.checkout(2, "k", 1).await.code() == "sold_out").await;
    let page = shop.send(Ask::get(&format!("/orders/{order}")).bearer(&access).page().build()).await.text;
    assert!(page.contains("Your payment was returned in full."), "{page}");
    // The way to put a unit back on sale.
    let added = Ask::post("/operator/v1/sales/demo/stock").bearer(OPERATOR_KEY);
    shop.send(added.json(r#"{"item":"phone","change":1}"#).build()).await;
    assert_eq!(shop.checkout(3, "k", 1).await.json()["units"], json!([2]));
    let recovered = Ask::post("/operator/v1/sales/demo/recover").bearer(OPERATOR_KEY).json("{}");
    assert_eq!(shop.send(recovered.build()).await.status, StatusCode::OK);
    assert_eq!(shop.phone_books().await["sold"], 1, "also after a rebuild");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_cancels_an_unpaid_order_and_its_units_are_back() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let (order, access) = shop.buy(1, "k", 2).await;
    let page = shop.pay(&order, &access).await;
    act(&shop, &order, "refund").await.is(409, "order_not_paid");
    for _ in 0..2 {
        let answer = act(&shop, &order, "cancel").await;
        assert_eq!((answer.status, answer.text_of("state").as_str()), (StatusCode::OK, "cancelled"));
    }
    assert_eq!(shop.phone_books().await["available"], 10);
    shop.finish(&page, "paid").await;
    assert_eq!(shop.state(&order, &access).await, "cancelled");
    act(&shop, &order, "refund").await.is(409, "order_not_paid");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_did_is_known_although_nobody_waited_for_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let (paid, access) = bought(&shop, 1).await;
    let (unpaid, key) = shop.buy(2, "k", 1).await;
    shop.pay(&unpaid, &key).await;
    shop.behave(r#"{"latency_ms":1000}"#).await;
    for (order, verb) in [(&paid, "refund"), (&unpaid, "cancel")] {
        let gave_up = tokio::time::timeout(Duration::from_millis(200), act(&shop, order, verb)).await;
        assert!(gave_up.is_err(), "the gateway takes a second");
    }
    shop.reaches(&paid, &access, "refunded").await;
    let found = shop.get("/operator/v1/sales/demo/anomalies", VIEWER_KEY).await.json();
    let acts: Vec<_> =
        found["anomalies"].as_array().unwrap().iter().map(|act| (&act["order_id"], &act["kind"])).collect();
    let (refunded, cancelled) = (json!("refunded_by_operator"), json!("cancelled_by_operator"));
    assert_eq!(acts, [(&json!(paid), &refunded), (&json!(unpaid), &cancelled)]);
    let detail = found["anomalies"][0]["detail"].as_str().unwrap();
    assert!(detail.starts_with("operator-") && detail.ends_with(": asked by mail"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_whose_cancellation_came_too_late_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let (order, access) = shop.buy(1, "k", 1).await;
    let page = shop.pay(&order, &access).await;
    // The gateway has the money, and nobody has said so yet.
    shop.behave(r#"{"webhook_delay_ms":60000}"#).await;
    shop.finish(&page, "paid").await;
    assert_eq!(shop.state(&order, &access).await, "awaiting_payment");
    let answer = act(&shop, &order, "cancel").await;
    answer.is(409, "order_paid");
    assert!(answer.text.contains("lockgate sale refund"), "{}", answer.text);
    assert_eq!(shop.state(&order, &access).await, "paid");
}

#[tokio::test(flavor = "multi_thread")]
async fn acts_need_an_operator_and_a_reason_and_bad_input_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let (order, access) = bought(&shop, 1).await;
    for verb in ["refund", "cancel"] {
        let path = format!("/operator/v1/orders/{order}/{verb}");
        let good = r#"{"reason":"r"}"#;
        let send = async |ask: Ask| shop.send(ask.build()).await;
        send(Ask::post(&path).json(good)).await.is(401, "operator_key_missing");
        send(Ask::post(&path).bearer(VIEWER_KEY).json(good)).await.is(403, "role_too_low");
        send(Ask::post(&path).bearer(&access).json(good)).await.is(401, "operator_key_invalid");
        let long = json!({"reason": "r".repeat(REASON_CHARS_MAX + 1)}).to_string();
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"reason":""}"#,
            r#"{"reason":"  "}"#,
            r#"{"reason":"a\nb"}"#,
            "{\"reason\":\"a\u{2028}b\"}",
            r#"{"reason":"a\u202eb"}"#,
            &long,
        ] {
            send(Ask::post(&path).bearer(OPERATOR_KEY).json(bad)).await.is(400, "malformed");
        }
        send(Ask::post(&path).bearer(OPERATOR_KEY).json(r#"{"reason":"r","x":1}"#))
            .await
            .is(400, "malformed");
        send(Ask::post(&path).bearer(OPERATOR_KEY).form("reason=r")).await.is(415, "unsupported_media_type");
        let unknown = lockgate_shared::ids::ClaimId::from(uuid::Uuid::from_u128(1)).to_string();
        for id in ["x", "%00", unknown.as_str()] {
            act(&shop, id, verb).await.is(404, "no_such_order");
        }
    }
    assert_eq!(shop.state(&order, &access).await, "paid");
}

#[tokio::test(flavor = "multi_thread")]
async fn m7_anomalies_are_listed_with_what_was_done() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let path = "/operator/v1/sales/demo/anomalies";
    assert_eq!(shop.get(path, VIEWER_KEY).await.json(), json!({"sale": "demo", "anomalies": []}));
    let (order, access) = shop.buy(1, "k", 1).await;
    let page = shop.pay(&order, &access).await;
    let payment = page.rsplit('/').next().unwrap();
    let at = shop.now().seconds();
    let body = json!({"type": "payment.paid", "payment": payment, "order": order,
                      "price": {"amount": 1, "currency": "EUR"}})
    .to_string();
    let secret = shop.ring.active().simulated_webhook();
    let signature = lockgate_checkout::gateways::webhook::sign(secret, "m", at, body.as_bytes());
    let hook = Ask::post("/payment/webhook")
        .header("webhook-id", "m")
        .header("webhook-timestamp", &at.to_string())
        .header("webhook-signature", &signature);
    assert_eq!(shop.send(hook.json(&body).build()).await.status.as_u16(), 204);
    let found = shop.get(path, VIEWER_KEY).await.json();
    let anomaly = &found["anomalies"][0];
    assert_eq!((&anomaly["kind"], &anomaly["order_id"]), (&json!("wrong_amount"), &json!(order)));
    assert_eq!(
        (&anomaly["payment_id"], &anomaly["order_state"]),
        (&json!(payment), &json!("awaiting_payment"))
    );
    assert_eq!(anomaly["detail"], "0.01 EUR arrived, 499.00 EUR was asked for; the money goes back");
    let next = format!("{path}?after={}", anomaly["number"]);
    assert_eq!(shop.get(&next, VIEWER_KEY).await.json()["anomalies"], json!([]));
    for bad in ["?after=x", "?after=-1", "?after=1&after=2", "?before=1"] {
        shop.get(&format!("{path}{bad}"), VIEWER_KEY).await.is(400, "malformed");
    }
    shop.get(path, "").await.is(401, "operator_key_missing");
    shop.get("/operator/v1/sales/nowhere/anomalies", VIEWER_KEY).await.is(404, "no_such_sale");
    assert_eq!(
        shop.get("/operator/v1/sales/other/anomalies", VIEWER_KEY).await.json()["anomalies"],
        json!([])
    );
}
