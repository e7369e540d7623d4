//! Wrong requests on every route of the real binary: a 4xx problem with its code, nothing changed, never a 500.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{Folder, Lockgate, OPERATOR_KEY, Shopper, Won, client, eligibility, sale_file};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

struct Stand {
    lockgate: Lockgate,
    shopper: Shopper,
    other: Shopper,
    won: Won,
    _folder: Folder,
}

async fn stand() -> Stand {
    let folder = Folder::new();
    let files = [
        folder.write("a.toml", &sale_file("one", "open", 5, 2, 600)),
        folder.write("b.toml", &sale_file("two", "open", 5, 2, 600)),
        folder.write("c.toml", &sale_file("club", "eligibility", 5, 2, 600)),
    ];
    let mut arguments = vec!["serve".to_owned(), "--data".into(), folder.data().to_str().unwrap().into()];
    for file in &files {
        arguments.extend(["--sale".into(), file.to_str().unwrap().into()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let lockgate = Lockgate::start(&arguments, &[]).await;
    let mut shopper = Shopper::enter(&lockgate.base, "one", json!({})).await;
    let mut other = Shopper::enter(&lockgate.base, "two", json!({})).await;
    shopper.admit().await;
    other.admit().await;
    let won = Won { answer: shopper.checkout("k1", 1).await.unwrap().json().await.unwrap() };
    Stand { lockgate, shopper, other, won, _folder: folder }
}

async fn refused(what: &str, request: RequestBuilder, status: u16, code: &str) {
    let answer = request.send().await.unwrap();
    let (got, kind) = (answer.status().as_u16(), answer.headers().get("content-type").cloned());
    let body = answer.text().await.unwrap();
    assert_eq!(got, status, "{what}: {body}");
    assert_eq!(
        kind.as_ref().map(|kind| kind.as_bytes()),
        Some(&b"application/problem+json"[..]),
        "{what}: {body}"
    );
    let problem: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(problem["code"], code, "{what}: {body}");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{what}: {body}");
}

impl Stand {
    fn call(&self, method: Method, path: &str) -> RequestBuilder {
        client().request(method, self.lockgate.url(path))
    }

    fn post(&self, path: &str) -> RequestBuilder {
        self.call(Method::POST, path)
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.call(Method::GET, path)
    }

    fn checkout(&self, key: &str) -> RequestBuilder {
        self.post("/sale/one/checkout").bearer_auth(&self.shopper.token).header("idempotency-key", key)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_wrong() {
    let stand = stand().await;
    let (json, form) = ("application/json", "application/x-www-form-urlencoded");
    let bodies: [(&str, &str, Vec<u8>, u16, &str); 9] = [
        ("not JSON", json, b"{".to_vec(), 400, "malformed"),
        ("not an object", json, b"[1]".to_vec(), 400, "malformed"),
        ("unknown field", json, b"{\"surprise\":1}".to_vec(), 400, "malformed"),
        ("invalid UTF-8", json, b"{\"item\":\"\xff\xfe\"}".to_vec(), 400, "malformed"),
        ("invalid UTF-8 in a form", form, b"item=%ff".to_vec(), 400, "malformed"),
        ("unknown form field", form, b"surprise=1".to_vec(), 400, "malformed"),
        ("wrong media type", "text/plain", b"{}".to_vec(), 415, "unsupported_media_type"),
        ("XML", "application/xml", b"<a/>".to_vec(), 415, "unsupported_media_type"),
        ("too large", json, vec![b' '; 17_000], 413, "too_large"),
    ];
    let order = stand.won.text("order_id");
    let routes = [
        ("/sale/one/enter".to_owned(), String::new()),
        ("/sale/one/admit".to_owned(), stand.shopper.ticket.clone()),
        ("/sale/one/leave".to_owned(), stand.shopper.ticket.clone()),
        ("/sale/one/checkout".to_owned(), stand.shopper.token.clone()),
        (format!("/orders/{order}/pay"), stand.won.text("access_key")),
        (format!("/orders/{order}/cancel"), stand.won.text("access_key")),
    ];
    for (path, credential) in &routes {
        for (what, kind, body, status, code) in &bodies {
            let mut request = stand.post(path).header("content-type", *kind).body(body.clone());
            if !credential.is_empty() {
                request = request.bearer_auth(credential);
            }
            if path.ends_with("/checkout") {
                request = request.header("idempotency-key", "bad-body");
            }
            refused(&format!("{path}: {what}"), request, *status, code).await;
        }
    }
    let status = stand.shopper.status().await;
    assert_eq!(status["state"], "admitted", "a refused leave changed something: {status}");
    assert_eq!(stand.shopper.order(&stand.won).await["state"], "awaiting_payment");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkout_bodies_that_are_wrong() {
    let stand = stand().await;
    let long = "x".repeat(300);
    let cases = [
        (json!({ "item": "phone" }), 400, "malformed"),
        (json!({ "quantity": 1 }), 400, "malformed"),
        (json!({ "item": "phone", "quantity": 0 }), 400, "malformed"),
        (json!({ "item": "phone", "quantity": -1 }), 400, "malformed"),
        (json!({ "item": "phone", "quantity": 1.5 }), 400, "malformed"),
        (json!({ "item": "phone", "quantity": "1" }), 400, "malformed"),
        (json!({ "item": "phone", "quantity": 1e300 }), 400, "malformed"),
        (json!({ "item": "phone", "quantity": 4_000_000_000u64 }), 400, "malformed"),
        (json!({ "item": 7, "quantity": 1 }), 400, "malformed"),
        (json!({ "item": "phone", "quantity": 1, "email": long }), 400, "malformed"),
        (json!({ "item": "phone", "quantity": 1, "email": "no-at-sign" }), 400, "malformed"),
        (json!({ "item": "phone", "quantity": 1, "price": 1 }), 400, "malformed"),
        (json!({ "item": "tablet", "quantity": 1 }), 404, "no_such_item"),
    ];
    for (body, status, code) in cases {
        refused(&body.to_string(), stand.checkout("bad").json(&body), status, code).await;
    }
    let good = json!({ "item": "phone", "quantity": 1 });
    let without = stand.post("/sale/one/checkout").bearer_auth(&stand.shopper.token).json(&good);
    refused("no key", without, 400, "idempotency_key_missing").await;
    refused("long key", stand.checkout(&"k".repeat(129)).json(&good), 400, "malformed").await;
    refused("key with a space", stand.checkout("a b").json(&good), 400, "malformed").await;
    let books = stand.lockgate.books("one").await;
    assert_eq!(books["items"][0]["held"], 1, "only the first claim stands: {books}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_are_wrong() {
    let stand = stand().await;
    let (ticket, token) = (stand.shopper.ticket.clone(), stand.shopper.token.clone());
    let good = json!({ "item": "phone", "quantity": 1 });
    for path in ["/sale/one/admit", "/sale/one/leave"] {
        refused(path, stand.post(path), 403, "ticket_missing").await;
        refused(path, stand.post(path).bearer_auth("x"), 403, "ticket_invalid").await;
        refused(path, stand.post(path).bearer_auth(&token), 403, "ticket_invalid").await;
        refused(path, stand.post(path).bearer_auth(&stand.other.ticket), 403, "ticket_wrong_sale").await;
        refused(path, stand.post(path).bearer_auth(&ticket[..ticket.len() - 2]), 403, "ticket_invalid").await;
        refused(path, stand.post(path).header("authorization", "Basic eDp5"), 400, "malformed").await;
    }
    let status = "/sale/one/status";
    refused(status, stand.get(status).bearer_auth("x"), 403, "ticket_invalid").await;
    refused(status, stand.get(status).bearer_auth(&stand.other.ticket), 403, "ticket_wrong_sale").await;
    let checkout = |credential: Option<&str>| {
        let request = stand.post("/sale/one/checkout").header("idempotency-key", "c").json(&good);
        match credential {
            Some(credential) => request.bearer_auth(credential),
            None => request,
        }
    };
    refused("no token", checkout(None), 403, "token_missing").await;
    refused("a ticket", checkout(Some(&ticket)), 403, "token_invalid").await;
    refused("another sale's", checkout(Some(&stand.other.token)), 403, "token_wrong_sale").await;
    refused("changed", checkout(Some(&format!("{token}A"))), 403, "token_invalid").await;
    let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
    refused("unsigned", checkout(Some(&unsigned)), 403, "token_invalid").await;
    // S6: a token in the address is no token.
    let in_query =
        stand.post(&format!("/sale/one/checkout?token={token}")).header("idempotency-key", "c").json(&good);
    refused("in the query", in_query, 403, "token_missing").await;

    let order = format!("/orders/{}", stand.won.text("order_id"));
    refused("no key", stand.get(&order), 404, "no_such_order").await;
    refused("wrong key", stand.get(&order).bearer_auth("x"), 404, "no_such_order").await;
    refused("another's token", stand.get(&order).bearer_auth(&stand.other.token), 404, "no_such_order").await;
    for verb in ["pay", "cancel"] {
        let path = format!("{order}/{verb}");
        refused(&path, stand.post(&path).bearer_auth("x"), 404, "no_such_order").await;
        refused(&path, stand.post(&path).bearer_auth(&stand.other.token), 404, "no_such_order").await;
    }
    assert_eq!(stand.shopper.order(&stand.won).await["state"], "awaiting_payment");

    let club = |body: Value| stand.post("/sale/club/enter").json(&body);
    for (what, body) in [
        ("nothing", json!({})),
        ("rubbish", json!({ "eligibility": "a.b.c" })),
        ("for another sale", json!({ "eligibility": eligibility("anna", "one") })),
    ] {
        refused(what, club(body), 403, "not_eligible").await;
    }
    refused("a number", club(json!({ "eligibility": 7 })), 400, "malformed").await;
    refused("a name alone", club(json!({ "account": "anna" })), 400, "malformed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_are_wrong() {
    let stand = stand().await;
    for sale in ["nosuch", "ONE", "one%20", "%6f%6e%65%00", "..%2f..%2fetc", "%ff%fe", &"x".repeat(500)] {
        for (method, path) in [
            (Method::GET, format!("/sale/{sale}")),
            (Method::POST, format!("/sale/{sale}/enter")),
            (Method::GET, format!("/sale/{sale}/status")),
            (Method::GET, format!("/sale/{sale}/queue")),
            (Method::POST, format!("/sale/{sale}/admit")),
            (Method::POST, format!("/sale/{sale}/leave")),
            (Method::POST, format!("/sale/{sale}/checkout")),
        ] {
            refused(&format!("{method} {path}"), stand.call(method, &path), 404, "no_such_sale").await;
        }
    }
    for order in ["nosuch", "%ff", "00000000-0000-0000-0000-000000000000", "..%2f", &"9".repeat(400)] {
        let path = format!("/orders/{order}");
        refused(&path, stand.get(&path), 404, "no_such_order").await;
        refused(&path, stand.post(&format!("{path}/pay")), 404, "no_such_order").await;
        refused(&path, stand.post(&format!("{path}/cancel")), 404, "no_such_order").await;
    }
    refused("nowhere", stand.get("/wp-admin"), 404, "no_such_address").await;
    refused("the gate", stand.get("/gate/v1/sales/one/stock"), 404, "no_such_address").await;
    for (method, path) in [
        (Method::DELETE, "/sale/one/enter"),
        (Method::GET, "/sale/one/enter"),
        (Method::PUT, "/sale/one/status"),
        (Method::POST, "/sale/one"),
        (Method::PATCH, "/sale/one/checkout"),
    ] {
        refused(path, stand.call(method, path), 405, "method_not_allowed").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_and_webhooks_that_are_wrong() {
    let stand = stand().await;
    let sales = "/operator/v1/sales";
    refused("no key", stand.get(sales), 401, "operator_key_missing").await;
    refused("wrong key", stand.get(sales).bearer_auth("x".repeat(40)), 401, "operator_key_invalid").await;
    refused("a token", stand.get("/metrics").bearer_auth(&stand.shopper.token), 401, "operator_key_invalid")
        .await;
    for (method, path) in [
        (Method::PUT, "/operator/v1/sales/one"),
        (Method::POST, "/operator/v1/sales/one/pause"),
        (Method::POST, "/operator/v1/sales/one/close"),
        (Method::PATCH, "/operator/v1/sales/one/admission"),
        (Method::GET, "/operator/v1/sales/one/books"),
        (Method::PUT, "/simulated-gateway/behaviour"),
    ] {
        refused(path, stand.call(method, path).json(&json!({})), 401, "operator_key_missing").await;
    }
    let operator = |method: Method, path: &str| stand.call(method, path).bearer_auth(OPERATOR_KEY);
    refused("books", operator(Method::GET, "/operator/v1/sales/nosuch/books"), 404, "no_such_sale").await;
    let admission = "/operator/v1/sales/one/admission";
    for body in [json!({ "rate_per_minute": "fast" }), json!({ "rate": 1 }), json!({ "rate_per_minute": -1 })]
    {
        refused(&body.to_string(), operator(Method::PATCH, admission).json(&body), 400, "malformed").await;
    }
    for body in [json!({ "latency_ms": -1 }), json!({ "speed": 1 })] {
        let request = operator(Method::PUT, "/simulated-gateway/behaviour").json(&body);
        refused(&body.to_string(), request, 400, "malformed").await;
    }
    let webhook = || stand.post("/payment/webhook").header("content-type", "application/json").body("{}");
    let answer = webhook().send().await.unwrap();
    assert!(
        matches!(answer.status(), StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN),
        "{}",
        answer.status()
    );
    let forged = webhook()
        .header("webhook-id", "evt_1")
        .header("webhook-timestamp", common::now_seconds().to_string())
        .header("webhook-signature", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    let answer = forged.send().await.unwrap();
    assert!(answer.status().is_client_error(), "{}", answer.status());
}

/// What no HTTP client sends: raw bytes.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_wrong() {
    let stand = stand().await;
    let host = stand.lockgate.base.strip_prefix("http://").unwrap().to_owned();
    let many = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(200));
    let giant = format!("GET / HTTP/1.1\r\nhost: x\r\na: {}\r\n\r\n", "b".repeat(40_000));
    for (what, bytes) in [
        ("no HTTP", "HELLO\r\n\r\n".to_owned()),
        ("a space in the path", "GET /sale/one /status HTTP/1.1\r\nhost: x\r\n\r\n".to_owned()),
        ("too many headers", many),
        ("a giant header", giant),
        (
            "a wrong length",
            "POST /sale/one/enter HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n".to_owned(),
        ),
        (
            "two lengths",
            "POST /sale/one/enter HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"
                .to_owned(),
        ),
    ] {
        let mut stream = TcpStream::connect(&host).await.unwrap();
        // The server may close while we still write; only its answer counts.
        let _ = stream.write_all(bytes.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 4") || answer.is_empty(), "{what}: {answer}");
    }
    assert_eq!(stand.shopper.status().await["state"], "admitted", "the server goes on");
}
