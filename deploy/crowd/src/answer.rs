//! PURE. What a server answered, and the bodies of the contract.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, header};
use serde::Deserialize;

/// One answer: what of its head matters, and its body.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The media type without parameters.
    pub media_type: MediaType,
    /// `Retry-After` in seconds.
    pub retry_after_seconds: Option<u32>,
    /// What `Cache-Control` says.
    pub cache: Cache,
    /// Whether `Vary` names `Authorization`.
    pub varies_by_authorization: bool,
    /// Whether a cookie is set.
    pub sets_cookie: bool,
    /// The `ETag`.
    pub etag: Option<String>,
    /// `Location`.
    pub location: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// The media types that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MediaType {
    /// `application/json`.
    Json,
    /// `application/problem+json`.
    Problem,
    /// Another, or none.
    #[default]
    Other,
}

/// What `Cache-Control` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// `public`.
    pub public: bool,
    /// `private`.
    pub private: bool,
    /// `no-store`.
    pub no_store: bool,
}

impl Answer {
    /// The answer with this head and body.
    #[must_use]
    pub fn new(status: u16, headers: &HeaderMap, body: Bytes) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let lists = |name, word: &str| {
            text(name)
                .is_some_and(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
        };
        let media_type =
            match text(header::CONTENT_TYPE).and_then(|value| value.split(';').next()).map(str::trim) {
                Some("application/json") => MediaType::Json,
                Some("application/problem+json") => MediaType::Problem,
                _ => MediaType::Other,
            };
        let cache = |word| lists(header::CACHE_CONTROL, word);
        Self {
            status,
            media_type,
            retry_after_seconds: text(header::RETRY_AFTER).and_then(|value| value.parse().ok()),
            cache: Cache { public: cache("public"), private: cache("private"), no_store: cache("no-store") },
            varies_by_authorization: lists(header::VARY, "authorization"),
            sets_cookie: headers.contains_key(header::SET_COOKIE),
            etag: text(header::ETAG).map(str::to_owned),
            location: text(header::LOCATION).map(str::to_owned),
            body,
        }
    }

    /// The body as JSON of the shape `T`.
    ///
    /// # Errors
    /// It is none; in words.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, String> {
        if self.media_type != MediaType::Json {
            return Err(format!("{}: not application/json: {}", self.status, self.excerpt()));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| format!("{}: {error}: {}", self.status, self.excerpt()))
    }

    /// The body as a problem, which must repeat the status.
    ///
    /// # Errors
    /// It is none; in words.
    pub fn problem(&self) -> Result<Problem<'_>, String> {
        if self.media_type != MediaType::Problem {
            return Err(format!("{}: not application/problem+json: {}", self.status, self.excerpt()));
        }
        let problem: Problem<'_> = serde_json::from_slice(&self.body)
            .map_err(|error| format!("{}: {error}: {}", self.status, self.excerpt()))?;
        if problem.status != self.status || problem.detail.is_empty() {
            return Err(format!("{}: the problem says otherwise: {}", self.status, self.excerpt()));
        }
        Ok(problem)
    }

    /// The beginning of the body, for messages. What follows `"ticket":` or `"token":` is a credential and left out.
    #[must_use]
    pub fn excerpt(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let text: &str = ["\"ticket\"", "\"token\"", "\"access_key\""]
            .iter()
            .filter_map(|word| text.split_once(word).map(|(before, _)| before))
            .min_by_key(|before| before.len())
            .unwrap_or(&text);
        text.chars().take(200).collect()
    }
}

/// RFC 9457, as far as a program decides on it.
#[derive(Debug, Deserialize)]
pub struct Problem<'a> {
    /// The status again.
    pub status: u16,
    /// The stable code.
    #[serde(borrow)]
    pub code: Cow<'a, str>,
    /// For people.
    #[serde(borrow)]
    pub detail: Cow<'a, str>,
}

/// The answer to entering.
#[derive(Debug, Deserialize)]
pub struct Entered<'a> {
    /// The ticket.
    #[serde(borrow)]
    pub ticket: Cow<'a, str>,
    /// The personal status.
    #[serde(borrow)]
    pub status: Personal<'a>,
}

/// The personal status.
#[derive(Debug, Deserialize)]
pub struct Personal<'a> {
    /// The sale.
    #[serde(borrow)]
    pub sale: Cow<'a, str>,
    /// What the sale is doing.
    pub phase: Phase,
    /// Where the shopper stands.
    pub state: State,
    /// Which snapshot says so.
    pub snapshot: u64,
    /// The board.
    pub now_serving: u64,
    /// The number.
    pub number: Option<u64>,
    /// People before.
    pub people_ahead: Option<u64>,
    /// How long it may take.
    pub wait_seconds: Option<WaitRange>,
    /// Until when the turn may be taken.
    #[serde(borrow)]
    pub turn_expires_at: Option<Cow<'a, str>>,
    /// When to ask again.
    pub poll_after_ms: u64,
    /// The time there.
    #[serde(borrow)]
    pub server_time: Cow<'a, str>,
}

/// Between how many and how many seconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct WaitRange {
    /// At least.
    pub low: u64,
    /// At most.
    pub high: u64,
}

/// The public status.
#[derive(Debug, Deserialize)]
pub struct Public<'a> {
    /// The sale.
    #[serde(borrow)]
    pub sale: Cow<'a, str>,
    /// What the sale is doing.
    pub phase: Phase,
    /// Which snapshot says so.
    pub snapshot: u64,
    /// The time there.
    #[serde(borrow)]
    pub server_time: Cow<'a, str>,
    /// How numbers are given.
    #[serde(borrow)]
    pub queueing_method: Cow<'a, str>,
    /// People in line.
    pub waiting: u64,
    /// The board.
    pub now_serving: u64,
    /// The rate.
    pub admissions_per_minute: u64,
    /// What is sold.
    #[serde(borrow)]
    pub items: Vec<ItemState<'a>>,
    /// When to ask again.
    pub poll_after_ms: u64,
}

/// One item of the public status.
#[derive(Debug, Deserialize)]
pub struct ItemState<'a> {
    /// The item.
    #[serde(borrow)]
    pub item: Cow<'a, str>,
    /// What can be had of it.
    #[serde(borrow)]
    pub state: Cow<'a, str>,
}

/// The phases of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nobody may enter yet.
    Scheduled,
    /// People may enter.
    DoorsOpen,
    /// Numbers are being drawn.
    Drawing,
    /// People are admitted.
    Open,
    /// Admissions are stopped for now.
    Paused,
    /// Nothing can be claimed.
    SoldOut,
    /// The sale is over.
    Closed,
}

/// The states of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// In line, without a number.
    Entered,
    /// In line.
    Waiting,
    /// May be admitted now.
    YourTurn,
    /// The turn has run out.
    TurnMissed,
    /// Holds the right to check out.
    Admitted,
    /// Gave the place up.
    Left,
    /// Nothing can be claimed.
    SoldOut,
    /// The sale is over.
    Closed,
}

/// The answer to being admitted.
#[derive(Debug, Deserialize)]
pub struct Admitted<'a> {
    /// The admission token.
    #[serde(borrow)]
    pub token: Cow<'a, str>,
    /// `Bearer`.
    #[serde(borrow)]
    pub token_type: Cow<'a, str>,
    /// When it runs out.
    #[serde(borrow)]
    pub expires_at: Cow<'a, str>,
    /// Where it is good for.
    #[serde(borrow)]
    pub checkout_url: Cow<'a, str>,
}

/// The answer to a won claim.
#[derive(Debug, Deserialize)]
pub struct Won<'a> {
    /// The order.
    #[serde(borrow)]
    pub order_id: Cow<'a, str>,
    /// Which units.
    pub units: Vec<u32>,
    /// The key to the order.
    #[serde(borrow)]
    pub access_key: Cow<'a, str>,
}

/// The answer to starting a payment.
#[derive(Debug, Deserialize)]
pub struct Payment<'a> {
    /// The gateway's page.
    #[serde(borrow)]
    pub redirect_url: Cow<'a, str>,
}

/// An order, as far as a crowd looks.
#[derive(Debug, Deserialize)]
pub struct Order<'a> {
    /// Its state.
    #[serde(borrow)]
    pub state: Cow<'a, str>,
}

/// The token id and expiry (seconds) inside an admission token. Not verified: only its owner's server can.
#[must_use]
pub fn right_of(token: &str) -> Option<(String, i64)> {
    #[derive(Deserialize)]
    struct Claims {
        jti: String,
        exp: i64,
    }
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Claims = serde_json::from_slice(&payload).ok()?;
    Some((claims.jti, claims.exp))
}

/// Microseconds since the epoch of an RFC 3339 moment in UTC.
#[must_use]
pub fn micros_of(text: &str) -> Option<i64> {
    if !text.ends_with('Z') {
        return None;
    }
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond)
}
