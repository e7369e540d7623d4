//! A house with a small line in memory that keeps every rule, or breaks one on purpose.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use lockgate_crowd::rules::Rule;
use serde_json::{Value, json};

/// Which rule the house breaks; `None` for an honest one.
pub type Lie = Option<Rule>;

const SALE: &str = "test";
/// People admitted per second, and at once.
const RATE: u64 = 40;
pub const BURST: u64 = 10;

#[derive(Default)]
struct Place {
    asked: u64,
    admitted: Option<(String, i64)>,
    left_at: Option<Instant>,
}

/// For so long whoever left is still told to wait, as by a process that has not heard of it yet.
const LEFT_LAG: Duration = Duration::from_millis(900);

impl Place {
    /// Whether the place is given up, and that is known everywhere.
    fn is_known_to_have_left(&self) -> bool {
        self.left_at.is_some_and(|at| at.elapsed() > LEFT_LAG)
    }
}

#[derive(Default)]
struct Line {
    places: Vec<Place>,
    by_key: HashMap<String, usize>,
    calls: u64,
    claims: u32,
}

pub struct House {
    lie: Lie,
    started: Instant,
    line: Mutex<Line>,
}

type Answer = (u16, &'static str, Value);

/// Starts a house; its `host:port`.
pub async fn open(lie: Lie) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let house = Arc::new(House { lie, started: Instant::now(), line: Mutex::default() });
    let router = Router::new().fallback(answer).with_state(house);
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn answer(State(house): State<Arc<House>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer ").map(str::to_owned));
    let host = text("host").unwrap();
    let asked = Asked {
        body: to_bytes(body, 1 << 20).await.unwrap().to_vec(),
        media_type: text("content-type").unwrap_or_default(),
        key: text("idempotency-key"),
        bearer,
        host,
    };
    let path = head.uri.path().to_owned();
    let is_public = path == format!("/sale/{SALE}/status") && asked.bearer.is_none();
    let (status, cache, body) = house.decide(head.method.as_str(), &path, &asked);
    let media_type = if status >= 400 { "application/problem+json" } else { "application/json" };
    let mut response =
        Response::builder().status(status).header("content-type", media_type).header("cache-control", cache);
    let hides = house.lie == Some(Rule::RetryAfter);
    if (matches!(status, 429 | 503) || body["code"] == "not_your_turn") && !hides {
        response = response.header("retry-after", "1");
    }
    if is_public {
        response =
            response.header("etag", format!("\"{}\"", body["snapshot"])).header("vary", "Authorization");
        if house.lie == Some(Rule::Public) {
            response = response.header("set-cookie", "seen=1");
        }
    }
    if status == 303 {
        response = response.header("location", "/");
    }
    let bytes = if status == 204 { Vec::new() } else { body.to_string().into_bytes() };
    response.body(Body::from(bytes)).unwrap()
}

struct Asked {
    body: Vec<u8>,
    media_type: String,
    key: Option<String>,
    bearer: Option<String>,
    host: String,
}

const PRIVATE: &str = "private, no-store";

fn problem(status: u16, code: &str) -> Answer {
    (status, "no-store", json!({ "status": status, "code": code, "title": "No", "detail": "Not so." }))
}

fn now_micros() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

fn moment(micros: i64) -> String {
    let whole = jiff::Timestamp::from_microsecond(micros - micros.rem_euclid(1_000)).unwrap();
    format!("{whole:.3}")
}

impl House {
    fn lies(&self, rule: Rule) -> bool {
        self.lie == Some(rule)
    }

    fn decide(&self, method: &str, path: &str, asked: &Asked) -> Answer {
        let mut line = self.line.lock().unwrap();
        line.calls += 1;
        if self.lies(Rule::RetryAfter) && line.calls.is_multiple_of(7) {
            return problem(429, "rate_limited");
        }
        if asked.body.len() > 16 * 1024 {
            return problem(413, "too_large");
        }
        if asked.media_type == "text/plain" {
            return problem(415, "unsupported_media_type");
        }
        let in_sale = path.strip_prefix(&format!("/sale/{SALE}/"));
        match (method, in_sale.unwrap_or(path)) {
            ("POST", "enter") => self.enter(&mut line, asked),
            ("GET", "status") => match &asked.bearer {
                None => self.public(&line),
                Some(_) => self.personal(&mut line, asked),
            },
            ("POST", "admit") => self.admit(&mut line, asked),
            ("POST", "leave") => match self.place(&line, asked) {
                Ok(index) => {
                    line.places[index].left_at.get_or_insert_with(Instant::now);
                    (204, "no-store", Value::Null)
                }
                Err(refused) => refused,
            },
            ("POST", "checkout") => self.checkout(&mut line),
            ("POST", page) if page.ends_with("/pay") => {
                (200, PRIVATE, json!({ "redirect_url": format!("http://{}/gateway/1", asked.host) }))
            }
            ("POST", "/gateway/1") => (303, PRIVATE, Value::Null),
            ("GET", page) if page.starts_with("/orders/") => (200, PRIVATE, json!({ "state": "paid" })),
            _ => problem(404, "no_such_sale"),
        }
    }

    fn place(&self, line: &Line, asked: &Asked) -> Result<usize, Answer> {
        let Some(ticket) = &asked.bearer else { return Err(problem(403, "ticket_missing")) };
        let index = ticket.strip_prefix("place-").and_then(|index| index.parse().ok());
        match index.filter(|index| *index < line.places.len()) {
            Some(index) => Ok(index),
            None if self.lies(Rule::GarbageRefused) && !line.places.is_empty() => Ok(0),
            None => Err(problem(403, "ticket_invalid")),
        }
    }

    fn snapshot(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap() / 50 + 1
    }

    /// The board of a snapshot: opens after a moment, then burst and rate.
    fn serving(&self, snapshot: u64, line: &Line) -> u64 {
        let all = line.places.len() as u64;
        if snapshot < 12 {
            return 0;
        }
        if self.lies(Rule::Rate) {
            return all;
        }
        let serving = all.min(BURST + (snapshot - 12) * RATE / 20);
        if self.lies(Rule::BoardRises) && snapshot.is_multiple_of(2) { serving / 2 } else { serving }
    }

    fn enter(&self, line: &mut Line, asked: &Asked) -> Answer {
        if !asked.body.is_empty() {
            return problem(400, "malformed");
        }
        if self.lies(Rule::Contract) && line.calls.is_multiple_of(5) {
            return problem(500, "internal");
        }
        let known = match (&asked.bearer, &asked.key) {
            (Some(_), _) => match self.place(line, asked) {
                Ok(index) => Some(index),
                Err(refused) => return refused,
            },
            (None, Some(key)) => line.by_key.get(key).copied(),
            (None, None) => None,
        };
        let known = known.filter(|index| line.places[*index].left_at.is_none() && !self.lies(Rule::OnePlace));
        let index = known.unwrap_or_else(|| {
            line.places.push(Place::default());
            line.places.len() - 1
        });
        if let Some(key) = &asked.key {
            line.by_key.insert(key.clone(), index);
        }
        let status = self.status_of(line, index);
        let body = json!({ "ticket": format!("place-{index}"), "status": status });
        (if known.is_some() { 200 } else { 201 }, PRIVATE, body)
    }

    fn public(&self, line: &Line) -> Answer {
        let snapshot = self.snapshot();
        let body = json!({
            "sale": SALE, "phase": "open", "snapshot": snapshot, "server_time": moment(now_micros()),
            "queueing_method": "fifo", "waiting": 0, "now_serving": self.serving(snapshot, line),
            "admissions_per_minute": if self.lies(Rule::Rate) { 60 } else { RATE * 60 }, "items": [{ "item": "thing", "state": "available" }],
            "poll_after_ms": 1_000,
        });
        (200, "public, max-age=1", body)
    }

    fn personal(&self, line: &mut Line, asked: &Asked) -> Answer {
        let index = match self.place(line, asked) {
            Ok(index) => index,
            Err(refused) => return refused,
        };
        let cache = if self.lies(Rule::Private) { "public, max-age=1" } else { PRIVATE };
        (200, cache, self.status_of(line, index))
    }

    fn status_of(&self, line: &mut Line, index: usize) -> Value {
        let snapshot = self.snapshot();
        let mut serving = self.serving(snapshot, line);
        let place = &mut line.places[index];
        place.asked += 1;
        let asked = place.asked;
        let mut number = index as u64 + 1;
        let delayed = self.lies(Rule::CallIsTold) || (self.lies(Rule::InOrder) && number.is_multiple_of(2));
        let called = number <= serving && !(delayed && asked < 12);
        if self.lies(Rule::InOrder) && !called {
            serving = serving.min(number - 1);
        }
        let state = match place {
            _ if place.is_known_to_have_left() => "left",
            Place { admitted: Some(_), .. } => "admitted",
            _ if called => "your_turn",
            _ if asked == 1 || self.lies(Rule::NumberInTime) => "entered",
            _ if self.lies(Rule::TurnAfterCall) && number > 20 => "your_turn",
            _ if self.lies(Rule::Edges) && number > 20 && asked > 2 => "left",
            _ => "waiting",
        };
        let mut ahead = (number - 1).saturating_sub(serving);
        ahead += if self.lies(Rule::AheadFalls) { asked } else { u64::from(self.lies(Rule::AheadAddsUp)) };
        number = match self.lie {
            Some(Rule::NumberFromOne) => number - 1,
            Some(Rule::NumberUnique) => number / 2 + 1,
            Some(Rule::NumberFixed) => number + asked / 3,
            _ => number,
        };
        let late = if self.lies(Rule::NumberInTime) && asked > 1 { 20_000_000 } else { 0 };
        let mut body = json!({
            "sale": SALE, "phase": "open", "state": state, "snapshot": snapshot, "now_serving": serving,
            "poll_after_ms": 100, "server_time": moment(now_micros() + late),
        });
        if state != "entered" {
            body["number"] = number.into();
        }
        if state == "waiting" || state == "your_turn" {
            body["people_ahead"] = ahead.into();
        }
        if state == "waiting" || (state == "your_turn" && self.lies(Rule::WaitHonest)) {
            body["wait_seconds"] = json!({ "low": 1, "high": 3 });
        }
        if self.lies(Rule::Shape) && index == 7 {
            body.as_object_mut().unwrap().remove("phase");
        }
        body
    }

    fn admit(&self, line: &mut Line, asked: &Asked) -> Answer {
        let index = match self.place(line, asked) {
            Ok(index) => index,
            Err(refused) => return refused,
        };
        let serving = self.serving(self.snapshot(), line);
        let place = &mut line.places[index];
        // Whoever was called is looked up where the leaving was written; the others are not.
        let is_called = (index as u64) < serving;
        if place.left_at.is_some() && (is_called || place.is_known_to_have_left()) {
            return problem(410, "left");
        }
        let early = self.lies(Rule::TurnAfterCall);
        if place.admitted.is_none() && !is_called && !early {
            return problem(409, "not_your_turn");
        }
        let fresh = place.asked;
        place.asked += 1;
        let expires = now_micros() / 1_000_000 + 600;
        if self.lies(Rule::SameRight) {
            place.admitted = None;
        }
        let (id, expires) = place.admitted.get_or_insert((format!("right-{index}-{fresh}"), expires)).clone();
        let claims = json!({ "jti": id, "exp": expires }).to_string();
        let body = json!({
            "token": format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims)), "token_type": "Bearer",
            "expires_at": moment(expires * 1_000_000), "checkout_url": "http://127.0.0.1/sale/test/checkout",
        });
        (200, PRIVATE, body)
    }

    fn checkout(&self, line: &mut Line) -> Answer {
        line.claims += 1;
        let unit = if self.lies(Rule::UnitOnce) { 1 } else { line.claims };
        let body = json!({ "order_id": format!("o{}", line.claims), "units": [unit], "access_key": "key" });
        (202, PRIVATE, body)
    }
}
