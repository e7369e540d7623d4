//! Who may send what: forms, webhooks, returns, the gateway's API and knobs, the books.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use axum::body::Body;
use http::Method;
use lockgate_shared::testing::eventually;
use serde_json::json;
use support::{Ask, OPERATOR_KEY, Plan, Shop, VIEWER_KEY};

const CHECKOUT: &str = "/sale/demo/checkout";

struct Scene {
    shop: Shop,
    _dir: tempfile::TempDir,
    order: String,
    access: String,
}

async fn scene() -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    shop.reaches(&order, &access, "awaiting_payment").await;
    Scene { shop, _dir: dir, order, access }
}

async fn refused(scene: &Scene, ask: Ask, status: u16, code: &str) {
    scene.shop.send(ask.build()).await.is(status, code);
}

async fn nothing_changed(scene: &Scene) {
    let phone = scene.shop.phone_books().await;
    assert_eq!(phone["orders"], json!({"awaiting_payment": 1}));
    assert_eq!(phone["held"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_of_other_sites_are_refused() {
    let scene = scene().await;
    let shop = &scene.shop;
    let pay = || {
        Ask::post(&format!("/orders/{}/pay", scene.order))
            .header("cookie", &format!("__Host-lockgate-order-{}={}", scene.order, scene.access))
            .header("host", "shop.example")
            .form("")
    };
    let foreign = [
        vec![("sec-fetch-site", "cross-site")],
        vec![("origin", "https://evil.example")],
        vec![("origin", "https://shop.example.evil.example")],
        vec![("origin", "shop.example")],
    ];
    for headers in foreign {
        let mut ask = pay();
        for (name, value) in headers {
            ask = ask.header(name, value);
        }
        refused(&scene, ask, 403, "cross_site").await;
    }
    let checkout = Ask::post(CHECKOUT)
        .header("cookie", &format!("__Host-lockgate-token-demo={}", shop.token(2)))
        .header("sec-fetch-site", "cross-site")
        .form("item=phone&quantity=1&idempotency_key=k");
    refused(&scene, checkout, 403, "cross_site").await;
    nothing_changed(&scene).await;
    // Our own pages ask for no referrer, so a browser sends an opaque origin with them.
    for own in [
        vec![],
        vec![("origin", "null"), ("sec-fetch-site", "same-origin")],
        vec![("origin", "https://shop.example"), ("sec-fetch-site", "same-origin")],
        vec![("origin", "https://SHOP.example")],
    ] {
        let mut ask = pay();
        for (name, value) in own {
            ask = ask.header(name, value);
        }
        assert_eq!(shop.send(ask.build()).await.status.as_u16(), 303);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_and_returns_prove_themselves() {
    let scene = scene().await;
    let shop = &scene.shop;
    let hook = || Ask::post("/payment/webhook");
    refused(&scene, hook(), 403, "webhook_invalid").await;
    refused(&scene, hook().json("{}"), 403, "webhook_invalid").await;
    let unsigned = hook()
        .header("webhook-id", "m")
        .header("webhook-timestamp", &shop.now().seconds().to_string())
        .header("webhook-signature", "v1,AAAA");
    refused(&scene, unsigned.body(b"\xff".to_vec()), 403, "webhook_invalid").await;
    refused(&scene, hook().body(vec![b'x'; 100_000]), 403, "webhook_invalid").await;
    refused(&scene, hook().body(vec![b'x'; 300_000]), 413, "too_large").await;
    refused(&scene, Ask::get("/payment/webhook"), 405, "method_not_allowed").await;
    refused(&scene, Ask::get("/payment/callback"), 400, "malformed").await;
    for bad in ["x", "", "%ff", &scene.order] {
        refused(&scene, Ask::get(&format!("/payment/callback?payment={bad}")), 404, "no_such_payment").await;
    }
    refused(&scene, Ask::get("/payment/callback?payment=a&payment=b"), 400, "malformed").await;
    refused(&scene, Ask::post("/payment/callback"), 405, "method_not_allowed").await;
    nothing_changed(&scene).await;
}

/// Whoever sends large messages slowly takes up their own rooms, not the process's memory and not the small ones' way.
#[tokio::test(flavor = "multi_thread")]
async fn large_webhooks_are_read_in_a_bounded_number_at_a_time() {
    use tokio::io::AsyncWriteExt as _;
    let scene = scene().await;
    let shop = &scene.shop;
    let address = shop.url.strip_prefix("http://").unwrap();
    let mut parked = Vec::new();
    for _ in 0..lockgate_shared::limits::LARGE_WEBHOOKS_MAX {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head =
            format!("POST /payment/webhook HTTP/1.1\r\nhost: {address}\r\ncontent-length: 100000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        parked.push(stream);
    }
    let large = async || {
        let ask = Ask::post("/payment/webhook").body(vec![b'x'; 100_000]);
        shop.send(ask.build()).await.json()["code"].as_str().unwrap().to_owned()
    };
    eventually("all rooms are taken", 8, async || large().await == "overloaded").await;
    refused(&scene, Ask::post("/payment/webhook").json("{}"), 403, "webhook_invalid").await;
    drop(parked);
    eventually("the rooms are free again", 8, async || large().await == "webhook_invalid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m7_a_signed_webhook_that_names_the_wrong_money_does_not_pay() {
    let scene = scene().await;
    let shop = &scene.shop;
    let page = shop.pay(&scene.order, &scene.access).await;
    let payment = page.rsplit('/').next().unwrap();
    let at = shop.now().seconds();
    let send = async |event: &str, body: &str| {
        let secret = shop.ring.active().simulated_webhook();
        let signature = lockgate_checkout::gateways::webhook::sign(secret, event, at, body.as_bytes());
        let ask = Ask::post("/payment/webhook")
            .header("webhook-id", event)
            .header("webhook-timestamp", &at.to_string())
            .header("webhook-signature", &signature)
            .json(body);
        shop.send(ask.build()).await
    };
    for (event, bad) in [("m1", "[]"), ("m2", "{}"), ("m3", r#"{"type":"payment.paid"}"#)] {
        send(event, bad).await.is(403, "webhook_invalid");
    }
    assert_eq!(
        send("m4", r#"{"type":"payout.created"}"#).await.status.as_u16(),
        204,
        "not about a payment of ours"
    );
    let wrong = format!(
        r#"{{"type":"payment.paid","payment":"{payment}","order":"{}","price":{{"amount":1,"currency":"EUR"}}}}"#,
        scene.order
    );
    for _ in 0..5 {
        assert_eq!(send("m5", &wrong).await.status.as_u16(), 204);
    }
    assert_eq!(shop.state(&scene.order, &scene.access).await, "awaiting_payment");
    // The buyer pays properly with another attempt.
    let second = shop.pay(&scene.order, &scene.access).await;
    assert_ne!(second, page);
    shop.finish(&second, "paid").await;
    shop.reaches(&scene.order, &scene.access, "paid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_s_own_routes_are_guarded() {
    let scene = scene().await;
    let shop = &scene.shop;
    let page = shop.pay(&scene.order, &scene.access).await;
    for bad in ["outcome=free", "", "outcome=paid&x=1", "outcome=paid&outcome=paid"] {
        refused(&scene, Ask::post(&page).form(bad), 400, "malformed").await;
    }
    for id in ["x", "%ff", &scene.order] {
        let path = format!("/simulated-gateway/pay/{id}");
        refused(&scene, Ask::get(&path), 404, "no_such_payment").await;
        refused(&scene, Ask::post(&path).form("outcome=paid"), 404, "no_such_payment").await;
    }
    let payment = page.rsplit('/').next().unwrap();
    for path in [
        "/simulated-gateway/v1/payments".to_owned(),
        format!("/simulated-gateway/v1/payments/{payment}/cancel"),
        format!("/simulated-gateway/v1/payments/{payment}/refund"),
    ] {
        for credential in ["", "x", OPERATOR_KEY, &shop.token(1)] {
            let answer = shop.send(Ask::post(&path).bearer(credential).json("{}").build()).await;
            answer.is(403, "service_token_invalid");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_s_knobs_are_for_operators_and_bounded() {
    let scene = scene().await;
    let shop = &scene.shop;
    let knobs =
        |body: &str| Ask::new(Method::PUT, "/simulated-gateway/behaviour").bearer(OPERATOR_KEY).json(body);
    for bad in [
        "",
        "[",
        "[]x",
        r#"{"latency":1}"#,
        r#"{"latency_ms":-1}"#,
        r#"{"latency_ms":99999}"#,
        r#"{"failure_share":2}"#,
    ] {
        refused(&scene, knobs(bad), 400, "malformed").await;
    }
    let as_viewer = Ask::new(Method::PUT, "/simulated-gateway/behaviour").bearer(VIEWER_KEY).json("{}");
    refused(&scene, as_viewer, 403, "role_too_low").await;
    refused(&scene, Ask::get("/simulated-gateway/behaviour"), 401, "operator_key_missing").await;
    let media =
        Ask::new(Method::PUT, "/simulated-gateway/behaviour").bearer(OPERATOR_KEY).form("latency_ms=1");
    refused(&scene, media, 415, "unsupported_media_type").await;
    shop.behave(r#"{"latency_ms":5}"#).await;
    let shown = shop.get("/simulated-gateway/behaviour", VIEWER_KEY).await.json();
    assert_eq!((&shown["latency_ms"], &shown["drop_callback"]), (&json!(5), &json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn m1_a_price_taken_before_it_was_asked_for_pays_its_order_and_only_operators_take_it() {
    let scene = scene().await;
    let shop = &scene.shop;
    let order = shop.get(&format!("/orders/{}", scene.order), &scene.access).await.json();
    let price = json!({ "amount": order["amount"], "currency": order["currency"] });
    let ahead = |price: &serde_json::Value| {
        let body = json!({ "order": scene.order, "price": price }).to_string();
        Ask::post("/simulated-gateway/paid-ahead").json(&body)
    };
    refused(&scene, ahead(&price), 401, "operator_key_missing").await;
    refused(&scene, ahead(&price).bearer(VIEWER_KEY), 403, "role_too_low").await;
    for bad in [json!({ "amount": 0, "currency": "EUR" }), json!({ "amount": 1, "currency": "" }), json!(1)] {
        refused(&scene, ahead(&bad).bearer(OPERATOR_KEY), 400, "malformed").await;
    }
    nothing_changed(&scene).await;
    let taken = shop.send(ahead(&price).bearer(OPERATOR_KEY).build()).await.json();
    assert_eq!(taken["state"], "paid", "{taken}");
    shop.reaches(&scene.order, &scene.access, "paid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn books_are_for_operators() {
    let scene = scene().await;
    let path = "/operator/v1/sales/demo/books";
    refused(&scene, Ask::get(path), 401, "operator_key_missing").await;
    refused(&scene, Ask::get(path).bearer("x"), 401, "operator_key_invalid").await;
    refused(&scene, Ask::get(path).bearer(&scene.shop.token(1)), 401, "operator_key_invalid").await;
    for sale in ["nowhere", "DEMO", "%ff"] {
        let ask = Ask::get(&format!("/operator/v1/sales/{sale}/books")).bearer(VIEWER_KEY);
        refused(&scene, ask, 404, "no_such_sale").await;
        let keyless = Ask::get(&format!("/operator/v1/sales/{sale}/books"));
        refused(&scene, keyless, 401, "operator_key_missing").await;
    }
    let posted = Ask::post(path).bearer(OPERATOR_KEY).body(Body::empty());
    refused(&scene, posted, 405, "method_not_allowed").await;
}
