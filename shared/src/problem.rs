//! Errors as RFC 9457 `application/problem+json`: what happened, which value, what to do.
//!
//! The external message is for whoever called; anything internal (a store's words, a path, a secret) goes to the
//! log through [`Problem::caused_by`] and never into the body.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

use crate::{
    clock::{Clock as _, SystemClock},
    store::StoreError,
};

/// One refusal or failure, as HTTP says it.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The HTTP status.
    pub status: StatusCode,
    /// The stable code a program decides on.
    pub code: &'static str,
    /// What happened and what to do, for people.
    pub detail: String,
    /// Seconds until another try makes sense; always present on 429 and 503.
    pub retry_after_seconds: Option<u32>,
    /// Further members of the body.
    pub extra: Map<String, Value>,
}

impl Problem {
    /// A problem with this status, code and explanation.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let retry_after_seconds =
            matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE).then_some(2);
        Self { status, code, detail: detail.into(), retry_after_seconds, extra: Map::new() }
    }

    /// 400 `malformed`: the request itself is wrong.
    #[must_use]
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    /// 404 `no_such_sale`.
    #[must_use]
    pub fn no_such_sale() -> Self {
        Self::new(StatusCode::NOT_FOUND, "no_such_sale", "There is no sale at this address. Check the link.")
    }

    /// 403 with a code of its own.
    #[must_use]
    pub fn forbidden(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, detail)
    }

    /// 409 with a code of its own.
    #[must_use]
    pub fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    /// 410 with a code of its own.
    #[must_use]
    pub fn gone(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, code, detail)
    }

    /// 503 with a code of its own; `Retry-After` is set.
    #[must_use]
    pub fn unavailable(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
    }

    /// 500 `internal`: a defect of ours. The cause belongs in the log, see [`Problem::caused_by`].
    #[must_use]
    pub fn internal() -> Self {
        let detail = "Something went wrong on our side. Nothing was lost; try again.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    /// The same problem, telling when to come back.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds.max(1));
        self
    }

    /// The same problem with one more member in its body.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    /// Logs the internal cause; the body stays as it is. In an outage every request has one: so many a second are
    /// logged, and how many were not.
    #[must_use]
    pub fn caused_by(self, cause: &dyn std::fmt::Display) -> Self {
        let Some(unsaid) = CAUSES.may_say(SystemClock.now().seconds()) else { return self };
        let request = crate::edge::request_id::current();
        tracing::warn!(code = self.code, status = self.status.as_u16(), request, %cause, unsaid, "request refused");
        self
    }

    /// The body's bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Text and numbers always have a JSON form.
        serde_json::to_string(&Written(self)).unwrap_or_default()
    }
}

/// Causes logged in one second, by all requests together.
const CAUSES_PER_SECOND_MAX: u32 = 20;

static CAUSES: Causes =
    Causes { second: AtomicI64::new(0), said: AtomicU32::new(0), unsaid: AtomicU32::new(0) };

/// How many causes were logged in the second that is on, and how many were not since one was. Exact enough for a log:
/// at the turn of a second a few more may pass.
struct Causes {
    second: AtomicI64,
    said: AtomicU32,
    unsaid: AtomicU32,
}

impl Causes {
    /// Whether one more may be logged, and how many were left out before it.
    fn may_say(&self, second: i64) -> Option<u32> {
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.said.store(0, Ordering::Relaxed);
        }
        if self.said.fetch_add(1, Ordering::Relaxed) < CAUSES_PER_SECOND_MAX {
            return Some(self.unsaid.swap(0, Ordering::Relaxed));
        }
        self.unsaid.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// The members that every problem has; none of the further ones can take their place.
const FIXED: [&str; 6] = ["type", "title", "status", "code", "detail", "request_id"];

/// A problem as its body says it. Written straight into text: a flood is answered with these.
struct Written<'a>(&'a Problem);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Problem { status, code, detail, extra, .. } = self.0;
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("type", &format_args!("urn:lockgate:problem:{code}"))?;
        body.serialize_entry("title", status.canonical_reason().unwrap_or("Error"))?;
        body.serialize_entry("status", &status.as_u16())?;
        body.serialize_entry("code", code)?;
        body.serialize_entry("detail", detail)?;
        if let Some(id) = crate::edge::request_id::current() {
            body.serialize_entry("request_id", &id)?;
        }
        for (name, value) in extra.iter().filter(|(name, _)| !FIXED.contains(&name.as_str())) {
            body.serialize_entry(name, value)?;
        }
        body.end()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.to_json()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<StoreError> for Problem {
    /// A store that broke keeps the line: 503 `overloaded`, come back, your place stands.
    fn from(error: StoreError) -> Self {
        Self::unavailable("overloaded", "The service is busy for a moment. Keep your place and try again.")
            .caused_by(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_429_and_503_says_when_to_come_back() {
        for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
            let response = Problem::new(status, "x", "y").into_response();
            assert!(response.headers().contains_key(header::RETRY_AFTER), "{status}");
        }
    }

    #[test]
    fn an_outage_does_not_flood_the_log_and_says_what_it_left_out() {
        let causes = Causes { second: 0.into(), said: 0.into(), unsaid: 0.into() };
        let said = (0..1_000).filter(|_| causes.may_say(7).is_some()).count();
        assert_eq!(said, CAUSES_PER_SECOND_MAX as usize);
        assert_eq!([causes.may_say(8), causes.may_say(8)], [Some(980), Some(0)]);
    }

    #[test]
    fn the_fixed_members_cannot_be_overwritten() {
        let json = Problem::malformed("bad").with("status", 200).with("may_return", true).to_json();
        let body: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(body["status"], 400);
        assert_eq!(body["code"], "malformed");
        assert_eq!(body["may_return"], true);
    }
}
