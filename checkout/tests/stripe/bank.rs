//! A local server that answers like Stripe, by its public documentation: Checkout Sessions, PaymentIntents, Refunds, list
//! and search, idempotent requests, errors, signed events. What is not documented, or not asked for by Lockgate, is refused,
//! so that a wrong call fails here as it would there. It fails as it is told to.
//!
//! - here: calls, keys and failures;
//! - `books`: what it knows, and what buyers do.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, State},
    response::{IntoResponse, Response},
};
use hmac::{KeyInit as _, Mac as _};
use http::{HeaderMap, Method, StatusCode, Uri, header};
use lockgate_shared::{keys::HmacSha256, testing::ManualClock};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::books::Books;

pub const KEY: &str = "rk_test_51Lockgate0123456789";
pub const WEBHOOK_SECRET: &str = "whsec_lockgate0123456789abcdef";
pub const VERSION: &str = "2024-06-20";

/// What goes wrong with a call, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is done, and the answer is lost.
    LoseAnswer,
    /// It is not done, and Stripe says 500 without having begun.
    Fail,
    /// Stripe begins and fails: the 500 is remembered under the key.
    FailForGood,
    /// Too many calls.
    TooMany,
    /// It is done, and the answer comes late.
    Slow,
    /// It is refused: another call with this key is under way.
    InUse,
}

/// A call as it came.
#[derive(Clone, Debug)]
pub struct Call {
    pub what: String,
    pub key: Option<String>,
    pub body: String,
    pub status: u16,
}

struct Saved {
    path: String,
    body: String,
    status: StatusCode,
    answer: Value,
}

#[derive(Default)]
pub struct Inner {
    pub books: Books,
    keys: BTreeMap<String, Saved>,
    faults: VecDeque<(String, Fault)>,
    calls: Vec<Call>,
}

#[derive(Clone)]
pub struct Bank {
    pub url: String,
    pub clock: ManualClock,
    inner: Arc<Mutex<Inner>>,
}

/// A refusal as Stripe words it.
pub type Refused = (StatusCode, Value);

pub fn refused(status: u16, kind: &str, code: Option<&str>, param: Option<&str>, message: &str) -> Refused {
    let error = json!({"type": kind, "code": code, "param": param, "message": message});
    (StatusCode::from_u16(status).unwrap(), json!({"error": error}))
}

pub fn invalid(param: &str, message: &str) -> Refused {
    refused(400, "invalid_request_error", Some("parameter_invalid"), Some(param), message)
}

impl Bank {
    pub async fn open(clock: ManualClock) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bank = Self { url, clock, inner: Arc::default() };
        let router = Router::new().fallback(call).with_state(bank.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        bank
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.lock().unwrap();
        inner.books.expire_until(self.clock_seconds());
        act(&mut inner)
    }

    pub fn clock_seconds(&self) -> i64 {
        use lockgate_shared::clock::Clock as _;
        self.clock.now().seconds()
    }

    /// The next calls whose method and path end so go wrong, one for each fault.
    pub fn go_wrong(&self, ending: &str, faults: &[Fault]) {
        self.with(|inner| inner.faults.extend(faults.iter().map(|fault| (ending.to_owned(), *fault))));
    }

    /// What is left of what was told to go wrong.
    pub fn faults_left(&self) -> usize {
        self.with(|inner| inner.faults.len())
    }

    /// As a day later: no key is remembered.
    pub fn forget_keys(&self) {
        self.with(|inner| inner.keys.clear());
    }

    /// The calls whose method and path end so.
    pub fn calls(&self, ending: &str) -> Vec<Call> {
        let all = self.with(|inner| inner.calls.clone());
        all.into_iter().filter(|call| call.what.ends_with(ending)).collect()
    }

    /// Sends an event as Stripe does, signed at this moment, and answers the status it was taken with.
    pub async fn deliver(&self, shop_url: &str, event: &Value) -> u16 {
        let body = event.to_string();
        let header = sign(WEBHOOK_SECRET, self.clock_seconds(), &body);
        self.deliver_signed(shop_url, &body, &header).await
    }

    pub async fn deliver_signed(&self, shop_url: &str, body: &str, header: &str) -> u16 {
        let sent = reqwest::Client::new()
            .post(format!("{shop_url}/payment/webhook"))
            .header("content-type", "application/json; charset=utf-8")
            .header("stripe-signature", header)
            .body(body.to_owned())
            .send();
        sent.await.unwrap().status().as_u16()
    }
}

/// The header of a signed event.
pub fn sign(secret: &str, at: i64, body: &str) -> String {
    let mut mac = HmacSha256::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{at}.{body}").as_bytes());
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={at},v1={hex},v0={}", "5".repeat(64))
}

/// A form's or query's members.
pub fn members(text: &str) -> BTreeMap<String, String> {
    let uri: Uri = format!("/?{text}").parse().unwrap();
    Query::<Vec<(String, String)>>::try_from_uri(&uri).unwrap().0.into_iter().collect()
}

async fn call(
    State(bank): State<Bank>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let what = format!("{method} {}", uri.path());
    let body = String::from_utf8(body.to_vec()).unwrap();
    let key = headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned());
    let (fault, (status, answer), is_replayed) = bank.with(|inner| {
        let at = inner.faults.iter().position(|(ending, _)| what.ends_with(ending));
        let fault = at.and_then(|at| inner.faults.remove(at)).map(|(_, fault)| fault);
        let now = bank.clock_seconds();
        let (outcome, is_replayed) = match guard(&headers, &method, key.as_deref()) {
            Err(refusal) => (refusal, false),
            Ok(()) => inner.answer(fault, &method, &uri, key.as_deref(), &body, now),
        };
        let status = outcome.0.as_u16();
        inner.calls.push(Call { what: what.clone(), key: key.clone(), body: body.clone(), status });
        (fault, outcome, is_replayed)
    });
    match fault {
        Some(Fault::LoseAnswer) => {
            let cut = futures::stream::iter([Ok(b"{".to_vec()), Err(std::io::Error::other("cut"))]);
            return (status, Body::from_stream(cut)).into_response();
        }
        Some(Fault::Slow) => tokio::time::sleep(Duration::from_secs(3)).await,
        _ => {}
    }
    let mut response = (status, axum::Json(answer)).into_response();
    if is_replayed {
        response.headers_mut().insert("idempotent-replayed", header::HeaderValue::from_static("true"));
    }
    response
}

/// What every call must carry.
fn guard(headers: &HeaderMap, method: &Method, key: Option<&str>) -> Result<(), Refused> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text("authorization") != format!("Bearer {KEY}") {
        return Err(refused(
            401,
            "invalid_request_error",
            None,
            None,
            "Invalid API Key provided: rk_test_****6789",
        ));
    }
    if text("stripe-version") != VERSION {
        return Err(invalid("Stripe-Version", "no such version"));
    }
    if method == Method::POST && key.is_none_or(|key| key.is_empty() || key.len() > 255) {
        return Err(invalid("Idempotency-Key", "every POST of Lockgate carries one"));
    }
    Ok(())
}

impl Inner {
    fn answer(
        &mut self,
        fault: Option<Fault>,
        method: &Method,
        uri: &Uri,
        key: Option<&str>,
        body: &str,
        now: i64,
    ) -> (Refused, bool) {
        let ours = || refused(500, "api_error", None, None, "Something went wrong on Stripe's end.");
        match fault {
            Some(Fault::Fail) => return (ours(), false),
            Some(Fault::TooMany) => {
                return (refused(429, "invalid_request_error", Some("rate_limit"), None, "Too many"), false);
            }
            Some(Fault::InUse) => {
                let code = Some("idempotency_key_in_use");
                return (refused(409, "idempotency_error", code, None, "in use"), false);
            }
            _ => {}
        }
        let (Some(key), &Method::POST) = (key, method) else {
            return (self.books.get(uri).unwrap_or_else(|refusal| refusal), false);
        };
        if let Some(saved) = self.keys.get(key) {
            if (saved.path.as_str(), saved.body.as_str()) != (uri.path(), body) {
                let message = "Keys for idempotent requests can only be used with the same parameters they were \
                               first used with.";
                return (refused(400, "idempotency_error", None, None, message), false);
            }
            return ((saved.status, saved.answer.clone()), true);
        }
        let outcome = if fault == Some(Fault::FailForGood) {
            ours()
        } else {
            match self.books.post(uri.path(), &members(body), now) {
                Ok(done) => done,
                // What is refused before it began is not remembered.
                Err(refusal) => return (refusal, false),
            }
        };
        let saved = Saved {
            path: uri.path().to_owned(),
            body: body.to_owned(),
            status: outcome.0,
            answer: outcome.1.clone(),
        };
        self.keys.insert(key.to_owned(), saved);
        (outcome, false)
    }
}
