//! The routes as other services meet them.

use std::sync::Arc;

use axum::body::Body;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use lockgate_shared::{
    gate::{
        AUDIENCE, ClaimAnswer, CommitAnswer, ForfeitAnswer, GateError, HoldState, ReclaimAnswer,
        ReleaseAnswer, UNKNOWN_CODE,
    },
    ids::{ClaimId, SaleId},
    limits::{BODY_BYTES_MAX, QUANTITY_MAX, TOKEN_ID_BYTES_MAX},
    service_token::ServiceSigner,
    testing::{demo_ring, other_ring},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{
    app::MEMO_BYTES_MAX,
    router,
    store::{model::ModelStore, testbed::Bench},
    testbed::{Gate, just_opened},
};

async fn open() -> Gate {
    let gate = Gate::over(Arc::new(ModelStore::new(Arc::new(just_opened())))).await;
    gate.open().await;
    gate
}

fn token(gate: &Gate, audience: &'static str) -> String {
    let signer = ServiceSigner::new(Arc::new(demo_ring()), audience);
    signer.token(gate.now()).unwrap().1.clone()
}

async fn send(gate: &Gate, request: Request<Body>) -> (StatusCode, Value) {
    let response = router(Arc::clone(&gate.app)).oneshot(request).await.unwrap();
    let status = response.status();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        assert!(response.headers().contains_key(header::RETRY_AFTER));
    }
    assert_eq!(response.headers().contains_key(header::WWW_AUTHENTICATE), status == StatusCode::UNAUTHORIZED);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn post(gate: &Gate, path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(format!("/gate/v1/sales/{path}"))
        .header(header::AUTHORIZATION, format!("Bearer {}", token(gate, AUDIENCE)))
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.into())
        .unwrap()
}

fn get(gate: &Gate, path: &str) -> Request<Body> {
    let mut request = post(gate, path, Body::empty());
    *request.method_mut() = http::Method::GET;
    request
}

#[tokio::test]
async fn a_client_claims_commits_releases_and_reads() {
    let gate = open().await;
    let (client, sale) = (gate.client(), &gate.sale);
    let ClaimAnswer::Held { hold, replayed: false } = client.claim(sale, &gate.claim(1)).await.unwrap()
    else {
        panic!("not held");
    };
    assert_eq!((hold.units.as_slice(), hold.state), ([1].as_slice(), HoldState::Held));
    assert_eq!(hold.deadline, gate.now().plus_seconds(600));
    let again = client.claim(sale, &gate.claim(1)).await.unwrap();
    assert_eq!(again, ClaimAnswer::Held { hold: hold.clone(), replayed: true });
    let mut two = gate.claim(1);
    (two.claim, two.quantity) = (ClaimId::derive(sale, &two.account, "other"), 2);
    let limited = ClaimAnswer::LimitReached { limit: 2, taken: 1 };
    assert_eq!(client.claim(sale, &two).await.unwrap(), limited);
    assert_eq!(client.hold(sale, hold.claim).await.unwrap(), Some(hold.clone()));
    assert_eq!(client.hold(sale, two.claim).await.unwrap(), None);
    assert_eq!(client.commit(sale, hold.claim).await.unwrap(), CommitAnswer::Committed);
    assert_eq!(client.release(sale, hold.claim).await.unwrap(), ReleaseAnswer::Committed);
    assert_eq!(client.release(sale, two.claim).await.unwrap(), ReleaseAnswer::NoSuchClaim);
    let stock = client.stock(sale).await.unwrap();
    assert_eq!((stock.items[0].available, stock.items[0].sold, stock.total_left), (999, 1, Some(1_499)));
}

#[tokio::test]
async fn a_claim_needs_an_open_sale_and_a_token_of_its_epoch() {
    let gate = open().await;
    let (client, sale) = (gate.client(), &gate.sale);
    let ask = async |n| client.claim(sale, &gate.claim(n)).await.unwrap();
    assert!(matches!(ask(1).await, ClaimAnswer::Held { .. }));
    gate.clock.advance_ms(-61_000);
    assert_eq!(ask(2).await, ClaimAnswer::NotOpen, "before the opening");
    gate.clock.advance_ms(61_000);
    gate.catalog.change(sale, |sale| sale.controls.paused = true).await.unwrap();
    assert!(matches!(ask(3).await, ClaimAnswer::Held { .. }), "pausing stops admissions only");
    gate.catalog.change(sale, |sale| sale.controls.epoch = 1).await.unwrap();
    assert_eq!(ask(2).await, ClaimAnswer::Revoked);
    gate.catalog
        .change(sale, |sale| {
            (sale.controls.epoch, sale.controls.closed) = (0, true);
        })
        .await
        .unwrap();
    assert_eq!(ask(2).await, ClaimAnswer::NotOpen, "closed");
    assert!(matches!(ask(1).await, ClaimAnswer::Held { replayed: true, .. }), "what is held stays held");
    let paid = client.commit(sale, gate.claim(1).claim).await.unwrap();
    assert_eq!(paid, CommitAnswer::Committed, "and can be paid");
    gate.catalog.change(sale, |sale| sale.controls.closed = false).await.unwrap();
    gate.clock.advance_ms(2 * 3_600_000);
    assert_eq!(ask(2).await, ClaimAnswer::NotOpen, "after the close");
}

/// What a caller may send, and how each is refused.
fn credentials(gate: &Gate) -> Vec<(Option<String>, StatusCode, &'static str)> {
    let forged = ServiceSigner::new(Arc::new(other_ring()), AUDIENCE).token(gate.now()).unwrap().1.clone();
    let signer = ServiceSigner::new(Arc::new(demo_ring()), AUDIENCE);
    let old = signer.token(gate.now().minus_seconds(70)).unwrap().1.clone();
    let early = signer.token(gate.now().plus_seconds(70)).unwrap().1.clone();
    let good = token(gate, AUDIENCE);
    vec![
        (None, StatusCode::UNAUTHORIZED, "service_token_missing"),
        (Some(format!("Basic {good}")), StatusCode::BAD_REQUEST, "malformed"),
        (Some(format!("Bearer {forged}")), StatusCode::FORBIDDEN, "service_token_invalid"),
        (Some(format!("Bearer {old}")), StatusCode::FORBIDDEN, "service_token_invalid"),
        (Some(format!("Bearer {early}")), StatusCode::FORBIDDEN, "service_token_invalid"),
        (Some(format!("Bearer {}", token(gate, "checkout"))), StatusCode::FORBIDDEN, "service_token_invalid"),
        (Some(format!("Bearer {good}x")), StatusCode::FORBIDDEN, "service_token_invalid"),
        (Some("Bearer nonsense".into()), StatusCode::FORBIDDEN, "service_token_invalid"),
    ]
}

#[tokio::test]
async fn s2_only_services_with_a_token_for_the_gate_are_answered() {
    let gate = open().await;
    let (sale, id) = (&gate.sale, gate.claim(1).claim);
    let paths = [
        ("POST", format!("{sale}/claims")),
        ("POST", format!("{sale}/claims/{id}/commit")),
        ("POST", format!("{sale}/claims/{id}/release")),
        ("POST", format!("{sale}/claims/{id}/reclaim")),
        ("GET", format!("{sale}/claims/{id}")),
        ("POST", format!("{sale}/forfeit")),
        ("GET", format!("{sale}/stock")),
        ("GET", "no-such-sale/stock".into()),
    ];
    let credentials = credentials(&gate);
    for (method, path) in &paths {
        for (credential, status, code) in &credentials {
            let body = serde_json::to_vec(&gate.claim(1)).unwrap();
            let mut request = post(&gate, path, body);
            *request.method_mut() = method.parse().unwrap();
            request.headers_mut().remove(header::AUTHORIZATION);
            if let Some(credential) = credential {
                request.headers_mut().insert(header::AUTHORIZATION, credential.parse().unwrap());
            }
            let (found, body) = send(&gate, request).await;
            assert_eq!((found, &body["code"]), (*status, &json!(code)), "{method} {path} {credential:?}");
        }
    }
    assert_eq!(gate.client().stock(sale).await.unwrap().items[0].available, 1_000);
}

/// Bodies that are no claim.
fn bad_claims(gate: &Gate) -> Vec<Vec<u8>> {
    let good = serde_json::to_value(gate.claim(1)).unwrap();
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body.to_string()
    };
    let without = |name: &str| {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(name);
        body.to_string()
    };
    let mut bodies: Vec<Vec<u8>> = [
        with("quantity", json!(0)),
        with("quantity", json!(QUANTITY_MAX + 1)),
        with("quantity", json!(-1)),
        with("quantity", json!(1.5)),
        with("quantity", json!("1")),
        with("quantity", json!(1e300)),
        with("memo", json!("m".repeat(MEMO_BYTES_MAX + 1))),
        with("claim", json!("not-a-uuid")),
        with("account", json!("short")),
        with("item", json!("../etc")),
        with("epoch", json!(null)),
        with("token_id", json!("")),
        with("token_id", json!("a|b")),
        with("token_id", json!("j".repeat(TOKEN_ID_BYTES_MAX + 1))),
        without("token_id"),
        with("extra", json!(1)),
        without("claim"),
        without("memo"),
        "[]".into(),
        "{".into(),
        String::new(),
        format!("{good} x"),
    ]
    .into_iter()
    .map(String::into_bytes)
    .collect();
    bodies.push(b"{\"memo\":\"\xff\"}".to_vec());
    bodies
}

#[tokio::test]
async fn every_bad_request_has_its_code_and_changes_nothing() {
    let gate = open().await;
    let claims = format!("{}/claims", gate.sale);
    for body in bad_claims(&gate) {
        let text = String::from_utf8_lossy(&body).into_owned();
        let (status, problem) = send(&gate, post(&gate, &claims, body)).await;
        assert_eq!((status, &problem["code"]), (StatusCode::BAD_REQUEST, &json!("malformed")), "{text}");
    }
    let (status, problem) = send(&gate, post(&gate, &claims, vec![b' '; BODY_BYTES_MAX + 1])).await;
    assert_eq!((status, &problem["code"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!("too_large")));
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let commit = format!("{claims}/{}/commit", gate.claim(1).claim);
        let mut request = post(&gate, &commit, "");
        request.headers_mut().insert(header::CONTENT_TYPE, kind.parse().unwrap());
        let (status, problem) = send(&gate, request).await;
        let expected = (StatusCode::UNSUPPORTED_MEDIA_TYPE, &json!("unsupported_media_type"));
        assert_eq!((status, &problem["code"]), expected, "{kind}");
    }
    let commit = format!("{claims}/{}/commit", gate.claim(1).claim);
    let (status, _) = send(&gate, post(&gate, &commit, r#"{"x":1}"#)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(gate.client().stock(&gate.sale).await.unwrap().items[0].available, 1_000);
}

#[tokio::test]
async fn unknown_sales_items_and_claims_are_told_apart() {
    let gate = open().await;
    for path in ["elsewhere/stock", "UPPER/stock", "%2e%2e/stock"] {
        let (status, problem) = send(&gate, get(&gate, path)).await;
        assert_eq!((status, &problem["code"]), (StatusCode::NOT_FOUND, &json!("no_such_sale")), "{path}");
    }
    for id in ["x", "%00", "018F0000000080000000000000000000"] {
        let (status, problem) = send(&gate, get(&gate, &format!("{}/claims/{id}", gate.sale))).await;
        assert_eq!((status, &problem["code"]), (StatusCode::NOT_FOUND, &json!("no_such_claim")), "{id}");
    }
    let mut claim = gate.claim(1);
    claim.item = "phone-blue".parse().unwrap();
    let answer = gate.client().claim(&gate.sale, &claim).await.unwrap();
    assert_eq!(answer, ClaimAnswer::NoSuchItem);
    let elsewhere: SaleId = "elsewhere".parse().unwrap();
    let unknown = gate.client().claim(&elsewhere, &gate.claim(1)).await;
    assert!(matches!(unknown, Err(GateError::Unavailable(words)) if words.contains("no_such_sale")));
}

#[tokio::test]
async fn h7_a_store_that_broke_is_503_and_says_whether_the_call_may_have_run() {
    let bench = Bench::redis().await;
    let gate = Gate::over(Arc::clone(&bench.store)).await;
    let claims = format!("{}/claims", gate.sale);
    let body = || serde_json::to_vec(&gate.claim(1)).unwrap();
    let (status, problem) = send(&gate, post(&gate, &claims, body())).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("stock_unavailable")),
        "no stock yet"
    );
    assert!(!problem.to_string().contains("t:{"), "keys and the store's words stay inside: {problem}");
    gate.open().await;
    assert!(gate.app.ready().await.is_ok());
    let (_, link) = bench.redis.as_ref().unwrap();
    let mut pause = redis::cmd("CLIENT");
    pause.arg(&["PAUSE", "2600", "WRITE"]);
    link.command::<String>("test", &pause).await.unwrap();
    let (status, problem) = send(&gate, post(&gate, &claims, body())).await;
    assert_eq!((status, &problem["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!(UNKNOWN_CODE)));
    let answer = gate.client().claim(&gate.sale, &gate.claim(1)).await.unwrap();
    assert!(matches!(answer, ClaimAnswer::Held { replayed: true, .. }), "{answer:?}");
}

#[tokio::test]
async fn h2_a_reply_lost_on_the_way_is_found_again() {
    let gate = open().await;
    let body = serde_json::to_vec(&gate.claim(1)).unwrap();
    let request = post(&gate, &format!("{}/claims", gate.sale), body);
    // The caller hangs up; the gate has answered nobody.
    let asked = tokio::spawn(router(Arc::clone(&gate.app)).oneshot(request));
    drop(asked.await);
    let answer = gate.client().claim(&gate.sale, &gate.claim(1)).await.unwrap();
    assert!(matches!(answer, ClaimAnswer::Held { replayed: true, .. }));
    let stock = gate.app.store.stock(&gate.sale, None).await.unwrap();
    assert_eq!(stock.items[0].held, 1);
}

#[tokio::test]
async fn h7_a_stock_that_was_never_there_is_told_from_one_that_is_lost() {
    let gate = Gate::over(Arc::new(ModelStore::new(Arc::new(just_opened())))).await;
    let path = format!("{}/stock", gate.sale);
    let asked = async || send(&gate, get(&gate, &path)).await;
    let (status, body) = asked().await;
    assert_eq!((status, body["code"].as_str()), (StatusCode::SERVICE_UNAVAILABLE, Some("stock_unavailable")));
    assert!(body["detail"].as_str().unwrap().contains("being put on sale"), "{body}");
    let now = gate.now();
    gate.catalog.change(&gate.sale, |sale| sale.controls.stock_opened_at = Some(now)).await.unwrap();
    let (status, body) = asked().await;
    assert_eq!((status, body["code"].as_str()), (StatusCode::SERVICE_UNAVAILABLE, Some("stock_frozen")));
    assert_eq!(body["generation"], 0, "{body}");
}

#[tokio::test]
async fn m5_a_reclaim_needs_no_open_sale_and_goes_by_its_limits() {
    let gate = open().await;
    let (client, sale) = (gate.client(), &gate.sale);
    let reclaim = async |n: u8| client.reclaim(sale, gate.claim(n).claim).await.unwrap();
    for n in 1..=3 {
        client.claim(sale, &gate.claim(n)).await.unwrap();
    }
    for n in 1..=3 {
        client.release(sale, gate.claim(n).claim).await.unwrap();
    }
    gate.catalog.change(sale, |sale| sale.controls.closed = true).await.unwrap();
    assert_eq!(reclaim(2).await, ReclaimAnswer::Reclaimed { units: vec![2] });
    assert_eq!(reclaim(2).await, ReclaimAnswer::Reclaimed { units: vec![2] });
    assert_eq!(reclaim(9).await, ReclaimAnswer::NoSuchClaim);
    gate.catalog.change(sale, |sale| sale.definition.total_limit = Some(1)).await.unwrap();
    assert_eq!(reclaim(1).await, ReclaimAnswer::SoldOut);
    let stock = client.stock(sale).await.unwrap();
    assert_eq!((stock.items[0].held, stock.items[0].sold), (0, 1));
    let path = format!("{sale}/claims/{}/reclaim", gate.claim(3).claim);
    let (status, _) = send(&gate, post(&gate, &path, r#"{"x":1}"#)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (_, answer) = send(&gate, post(&gate, &path, "")).await;
    assert_eq!(answer, json!({"outcome": "sold_out"}));
}

#[tokio::test]
async fn an_admission_is_given_up_by_the_id_of_its_token() {
    let gate = open().await;
    let (client, sale, path) = (gate.client(), &gate.sale, format!("{}/forfeit", gate.sale));
    for body in
        ["", "{}", r#"{"token_id":""}"#, r#"{"token_id":"a b"}"#, r#"{"token_id":"j","x":1}"#, r#"["j"]"#]
    {
        let (status, problem) = send(&gate, post(&gate, &path, body)).await;
        assert_eq!((status, &problem["code"]), (StatusCode::BAD_REQUEST, &json!("malformed")), "{body}");
    }
    let claim = gate.claim(1);
    assert!(matches!(client.claim(sale, &claim).await.unwrap(), ClaimAnswer::Held { replayed: false, .. }));
    let (status, answer) = send(&gate, post(&gate, &path, r#"{"token_id":"j"}"#)).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({"outcome": "forfeited"})));
    assert_eq!(client.forfeit(sale, &claim.token_id).await.unwrap(), ForfeitAnswer::Forfeited);
    assert!(matches!(client.claim(sale, &claim).await.unwrap(), ClaimAnswer::Held { replayed: true, .. }));
    assert_eq!(client.claim(sale, &gate.claim(2)).await.unwrap(), ClaimAnswer::Forfeited);
    let unknown = client.forfeit(&"elsewhere".parse().unwrap(), &claim.token_id).await;
    assert!(matches!(unknown, Err(GateError::Unavailable(words)) if words.contains("no_such_sale")));
}
