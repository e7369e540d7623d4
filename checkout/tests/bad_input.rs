//! Every route against what must never pass: a 4xx problem with the right code, nothing changed, never a 500.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use http::Method;
use lockgate_shared::testing::other_ring;
use serde_json::json;
use support::{Ask, OPERATOR_KEY, Plan, Shop};

const CHECKOUT: &str = "/sale/demo/checkout";
const GOOD: &str = r#"{"item":"phone","quantity":1}"#;

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

fn calls(id: &str) -> [Ask; 3] {
    [
        Ask::get(&format!("/orders/{id}")),
        Ask::post(&format!("/orders/{id}/pay")),
        Ask::post(&format!("/orders/{id}/cancel")),
    ]
}

async fn nothing_changed(scene: &Scene) {
    let phone = scene.shop.phone_books().await;
    assert_eq!(phone["orders"], json!({"awaiting_payment": 1}));
    assert_eq!(phone["held"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_checkout_tokens_are_refused_with_the_reason() {
    let scene = scene().await;
    let shop = &scene.shop;
    let good = shop.token(2);
    let (message, _) = good.rsplit_once('.').unwrap();
    let foreign = {
        let admission = lockgate_shared::admission_token::Admission {
            account: lockgate_shared::ids::AccountHash::from_bytes([2; 16]),
            sale: &"demo".parse().unwrap(),
            jti: "j",
            issued_at: shop.now(),
            expires_at: shop.now().plus_seconds(600),
            epoch: 0,
        };
        lockgate_shared::admission_token::AdmissionToken::sign(&admission, &other_ring()).unwrap()
    };
    let ask = |token: &str| Ask::post(CHECKOUT).bearer(token).key("k").json(GOOD);
    refused(&scene, ask(""), 403, "token_missing").await;
    for bad in ["x", "a.b.c", message, &format!("{message}."), &foreign, &scene.access, OPERATOR_KEY] {
        refused(&scene, ask(bad), 403, "token_invalid").await;
    }
    refused(&scene, ask(&"x".repeat(3_000)), 403, "token_invalid").await;
    for bad in ["Basic abc", "Bearer", "abc"] {
        refused(&scene, ask("").header("authorization", bad), 403, "token_invalid").await;
    }
    refused(&scene, ask(&shop.token_for("other", 2, 600, 0)), 403, "token_wrong_sale").await;
    refused(&scene, ask(&shop.token_for("demo", 2, 0, 0)), 403, "token_expired").await;
    refused(&scene, Ask::post(&format!("{CHECKOUT}?token={good}")).key("k").json(GOOD), 403, "token_missing")
        .await;
    shop.catalog.change(&shop.sale, |sale| sale.controls.epoch = 1).await.unwrap();
    refused(&scene, ask(&good), 403, "token_revoked").await;
    let renewed = shop.send(ask(&shop.token_for("demo", 2, 600, 1)).build()).await;
    assert_eq!(renewed.status.as_u16(), 202, "{}", renewed.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn checkout_bodies_are_refused_with_the_reason() {
    let scene = scene().await;
    let shop = &scene.shop;
    let token = shop.token(2);
    for sale in ["nowhere", "DEMO", "..", "%63heckout", &"a".repeat(65), "%ff"] {
        let ask = Ask::post(&format!("/sale/{sale}/checkout")).bearer(&token).key("k").json(GOOD);
        refused(&scene, ask, 404, "no_such_sale").await;
    }
    let keyless = || Ask::post(CHECKOUT).bearer(&token);
    let ask = || keyless().key("k");
    refused(&scene, keyless().json(GOOD), 400, "idempotency_key_missing").await;
    for bad in ["", "a b", &"k".repeat(129)] {
        refused(&scene, keyless().key(bad).json(GOOD), 400, "malformed").await;
    }
    refused(&scene, ask().key("k2").json(GOOD), 400, "malformed").await;
    for bad in [
        "",
        "[",
        "null",
        "[]",
        "{}",
        r#"{"item":"phone"}"#,
        r#"{"quantity":1}"#,
        r#"{"item":"phone","quantity":0}"#,
        r#"{"item":"phone","quantity":-1}"#,
        r#"{"item":"phone","quantity":1.5}"#,
        r#"{"item":"phone","quantity":"1"}"#,
        r#"{"item":"phone","quantity":null}"#,
        r#"{"item":"phone","quantity":101}"#,
        r#"{"item":"phone","quantity":4294967297}"#,
        r#"{"item":1,"quantity":1}"#,
        r#"{"item":"phone","quantity":1,"price":1}"#,
        r#"{"item":"phone","quantity":1,"quantity":2}"#,
        r#"{"item":"phone","quantity":1,"email":7}"#,
        r#"{"item":"phone","quantity":1,"email":"nobody"}"#,
        r#"{"item":"phone","quantity":1,"email":"a@b\r\nBcc: c@d"}"#,
        r#"{"item":"phone","quantity":1,"email":"a@b.example, d@e.example"}"#,
        r#"{"item":"phone","quantity":1,"email":"a..b@example.org"}"#,
    ] {
        refused(&scene, ask().json(bad), 400, "malformed").await;
    }
    let long = format!(r#"{{"item":"phone","quantity":1,"email":"{}@example.org"}}"#, "a".repeat(300));
    refused(&scene, ask().json(&long), 400, "malformed").await;
    let huge = format!(r#"{{"item":"{}","quantity":1}}"#, "a".repeat(20_000));
    refused(&scene, ask().json(&huge), 413, "too_large").await;
    for item in ["tablet", "", "PHONE", "../phone", &"a".repeat(65)] {
        let body = format!(r#"{{"item":"{item}","quantity":1}}"#);
        refused(&scene, ask().json(&body), 404, "no_such_item").await;
    }
    nothing_changed(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checkout_bytes_media_and_forms_are_refused_with_the_reason() {
    let scene = scene().await;
    let token = scene.shop.token(2);
    let keyless = || Ask::post(CHECKOUT).bearer(&token);
    let ask = || keyless().key("k");
    let bytes = ask().header("content-type", "application/json").body(b"{\"item\":\"\xff\"}".to_vec());
    refused(&scene, bytes, 400, "malformed").await;
    for media in ["text/plain", "multipart/form-data", "application/json; charset=latin-1", ""] {
        refused(&scene, ask().header("content-type", media).body(GOOD), 415, "unsupported_media_type").await;
    }
    refused(&scene, ask().body(GOOD), 415, "unsupported_media_type").await;
    for form in [
        "item=phone",
        "item=phone&quantity=x",
        "item=phone&quantity=1&x=1",
        "item=%ff&quantity=1",
        "item=a&item=b&quantity=1",
    ] {
        refused(&scene, ask().form(form), 400, "malformed").await;
    }
    refused(&scene, keyless().form("item=phone&quantity=1"), 400, "idempotency_key_missing").await;
    refused(&scene, keyless().form("item=phone&quantity=1&idempotency_key=a%20b"), 400, "malformed").await;
    refused(&scene, Ask::new(Method::DELETE, CHECKOUT), 405, "method_not_allowed").await;
    nothing_changed(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_nobody_else_s() {
    let scene = scene().await;
    let shop = &scene.shop;
    let unknown = "00000000-0000-8000-8000-000000000000";
    let owner = shop.token(1);
    let wrong = [
        String::new(),
        "x".into(),
        "x".repeat(3_000),
        shop.token(2),
        shop.token_for("other", 1, 600, 0),
        shop.token_for("demo", 1, 0, 0),
        scene.access.to_uppercase(),
        OPERATOR_KEY.into(),
    ];
    for credential in &wrong {
        for ask in calls(&scene.order) {
            refused(&scene, ask.bearer(credential), 404, "no_such_order").await;
        }
    }
    for id in [unknown, "x", "..", "%ff", &scene.order.to_uppercase()[..35], &scene.order.replace('-', "")] {
        for ask in calls(id) {
            refused(&scene, ask.bearer(&owner), 404, "no_such_order").await;
        }
    }
    nothing_changed(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_links_and_bodies_of_orders_are_exact() {
    let scene = scene().await;
    let shop = &scene.shop;
    let owner = shop.token(1);
    // A wrong bearer credential is not made good by a right cookie, and cookies open only what they are for.
    let cookie = format!("__Host-lockgate-order-{}={}", scene.order, scene.access);
    for ask in calls(&scene.order) {
        refused(&scene, ask.bearer("x").header("cookie", &cookie), 404, "no_such_order").await;
    }
    let misplaced = format!("__Host-lockgate-token-other={owner}");
    for ask in calls(&scene.order) {
        refused(&scene, ask.header("cookie", &misplaced), 404, "no_such_order").await;
    }
    let path = format!("/orders/{}", scene.order);
    refused(&scene, Ask::get(&format!("{path}?key=x")), 404, "no_such_order").await;
    refused(&scene, Ask::get(&format!("{path}?key=%ff")), 404, "no_such_order").await;
    refused(&scene, Ask::get(&format!("{path}?key=a&key=b")), 400, "malformed").await;
    for verb in ["pay", "cancel"] {
        let ask = || Ask::post(&format!("{path}/{verb}")).bearer(&scene.access);
        for bad in ["[", "null", r#"{"x":1}"#, "7"] {
            refused(&scene, ask().json(bad), 400, "malformed").await;
        }
        refused(&scene, ask().form("x=1"), 400, "malformed").await;
        refused(&scene, ask().header("content-type", "text/plain"), 415, "unsupported_media_type").await;
        refused(&scene, ask().body("{}"), 415, "unsupported_media_type").await;
        refused(&scene, ask().json(&format!("{:20000}", "{}")), 413, "too_large").await;
        refused(&scene, Ask::get(&format!("{path}/{verb}")), 405, "method_not_allowed").await;
    }
    nothing_changed(&scene).await;
    for good in [&owner, &scene.access] {
        assert_eq!(shop.get(&path, good).await.status.as_u16(), 200);
    }
}
