//! What every request passes: a time limit, a panic guard, security headers, and problems as pages for people.

use std::time::{Duration, Instant};

use axum::{
    Router,
    body::Body,
    extract::{MatchedPath, Request},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt as _;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    limits::{BODY_BYTES_MAX, REQUEST_SECONDS_MAX},
    negotiate::wants_html,
    problem::Problem,
};

/// Wraps a finished router: unknown addresses and methods become problems, and every layer of the edge applies.
pub fn guard(router: Router) -> Router {
    router
        .route(STYLE_PATH, get(style))
        .fallback(no_such_address)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn(pages_for_people))
        .layer(CatchPanicLayer::custom(|_panic: Box<dyn std::any::Any + Send>| {
            Problem::internal().into_response()
        }))
        .layer(middleware::from_fn(bounded))
}

/// Where every page finds its style sheet.
pub const STYLE_PATH: &str = "/assets/lockgate.css";

async fn style() -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "public, max-age=3600")];
    (headers, include_str!("lockgate.css")).into_response()
}

async fn no_such_address() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "no_such_address",
        "There is nothing at this address. Check the link.",
    )
}

async fn method_not_allowed() -> Problem {
    let detail = "This address does not take this method. The Allow header lists those it takes.";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

async fn bounded(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let limit = Duration::from_secs(REQUEST_SECONDS_MAX);
    let mut response = match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::unavailable("overloaded", "This took too long. Keep your place and try again.")
            .into_response(),
    };
    measure(&method, route.as_ref(), response.status(), started);
    let headers = response.headers_mut();
    for (name, value) in SECURITY_HEADERS {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Counts by route pattern, never by address: an address may hold an order's id, and their number has no bound.
fn measure(method: &Method, route: Option<&MatchedPath>, status: StatusCode, started: Instant) {
    let route = route.map_or("none", MatchedPath::as_str).to_owned();
    let seconds = started.elapsed().as_secs_f64();
    tracing::debug!(%method, route, status = status.as_u16(), seconds, "answered");
    let labels = [("method", method.to_string()), ("route", route), ("status", status.as_u16().to_string())];
    metrics::histogram!("lockgate_http_request_seconds", &labels).record(seconds);
}

/// Set unless a handler set its own. The policy allows what our pages use and nothing else: their own style sheet
/// and script, images as data, forms to this host and to a payment page.
const SECURITY_HEADERS: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; frame-ancestors 'self'; form-action 'self' http: https:",
    ),
    ("cross-origin-opener-policy", "same-origin"),
];

/// A problem met by a browser becomes a page that says the same.
async fn pages_for_people(request: Request, next: Next) -> Response {
    let html = wants_html(request.headers());
    let response = next.run(request).await;
    let is_problem =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
    if !html || !is_problem {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let bytes = match http_body_util::Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(_) => return Problem::internal().into_response(),
    };
    let problem: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let text = |name: &str| escape(problem.get(name).and_then(serde_json::Value::as_str).unwrap_or_default());
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <link rel=\"stylesheet\" href=\"{STYLE_PATH}\"><title>{title}</title></head>\n\
         <body><main><h1>{title}</h1>\n<p>{detail}</p>\n<p class=\"code\">{code}</p>\n\
         <p><a href=\"/\">All sales</a></p></main></body></html>\n",
        title = text("title"),
        detail = text("detail"),
        code = text("code"),
    );
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(page))
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;

    fn router() -> Router {
        let breaks = || async {
            if std::hint::black_box(true) {
                panic!("deliberate");
            }
        };
        guard(Router::new().route("/", get(|| async { "ok" })).route("/breaks", get(breaks)))
    }

    async fn call(path: &str, accept: &str) -> (StatusCode, String, String) {
        let request =
            Request::builder().uri(path).header(header::ACCEPT, accept).body(Body::empty()).unwrap();
        let response = router().oneshot(request).await.unwrap();
        let status = response.status();
        let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        assert!(response.headers().contains_key("content-security-policy"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn c1_programs_get_problems_and_people_get_pages() {
        let (status, kind, body) = call("/nowhere", "*/*").await;
        assert_eq!((status, kind.as_str()), (StatusCode::NOT_FOUND, "application/problem+json"));
        assert!(body.contains("no_such_address"));
        let (status, kind, body) = call("/nowhere", "text/html,*/*;q=0.8").await;
        assert_eq!((status, kind.as_str()), (StatusCode::NOT_FOUND, "text/html; charset=utf-8"));
        assert!(body.contains("<h1>Not Found</h1>"));
    }

    #[tokio::test]
    async fn a_panic_is_a_500_problem_and_tells_nothing() {
        let (status, kind, body) = call("/breaks", "*/*").await;
        assert_eq!((status, kind.as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "application/problem+json"));
        assert!(!body.contains("deliberate"));
    }

    #[test]
    fn what_a_client_sent_cannot_become_markup() {
        assert_eq!(escape("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }
}
