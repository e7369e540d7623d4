//! What every request passes: the edge's decisions, a name, a time limit, a panic guard, security headers, a
//! measurement, and problems as pages for people. One layer does all of it: each layer of its own would box every
//! request's future once more.

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{MatchedPath, Request},
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tower::{Layer, Service};
use tracing::Instrument as _;

use super::{
    class::Class,
    error_page,
    meter::Meter,
    policy::{Edge, Passage},
    request_id::{REQUEST_ID, REQUEST_ID_HEADER},
};
use crate::{limits::REQUEST_SECONDS_MAX, negotiate::wants_html, problem::Problem};
use rand::RngExt as _;

/// Wraps a finished router in an edge of its own, with the default settings.
pub fn guard(router: Router) -> Router {
    guard_by(Arc::default(), router)
}

/// Wraps a finished router: unknown addresses and methods become problems, and `edge` decides about every request.
pub fn guard_by(edge: Arc<Edge>, router: Router) -> Router {
    router
        .route(STYLE_PATH, get(style))
        .fallback(no_such_address)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(EdgeLayer(edge))
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

/// The layer.
#[derive(Clone)]
struct EdgeLayer(Arc<Edge>);

/// A route behind it.
#[derive(Clone)]
struct Guarded<S> {
    inner: S,
    edge: Arc<Edge>,
    meter: Arc<Meter>,
}

impl<S> Layer<S> for EdgeLayer {
    type Service = Guarded<S>;
    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, edge: Arc::clone(&self.0), meter: Arc::default() }
    }
}

impl<S> Service<Request> for Guarded<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let started = Instant::now();
        let route = request.extensions().get::<MatchedPath>().cloned();
        let method = request.method().clone();
        let is_for_people = may_want_html(request.headers()) && wants_html(request.headers());
        let (meter, is_https) = (Arc::clone(&self.meter), self.edge.is_https());
        let class = Class::of(&method, route.as_ref().map(MatchedPath::as_str));
        let Passage { id, verdict } = self.edge.inspect(&mut request, class);
        let answer = verdict.map(|begun| (begun, bounded(self.inner.call(request), started)));
        let span = tracing::debug_span!("request", id = id.to_str().unwrap_or_default());
        let name = id.clone();
        let named = async move {
            let mut response = match answer {
                // The work counts as begun until its answer is there.
                Ok((_begun, answer)) => answer.await,
                Err(problem) => problem.into_response(),
            };
            if is_for_people && error_page::is_problem(&response) {
                response = error_page::from_problem(response).await;
            }
            let route = route.as_ref().map_or("none", MatchedPath::as_str);
            meter.note(&method, route, response.status(), started.elapsed());
            finish(&mut response, is_https);
            response.headers_mut().insert(REQUEST_ID_HEADER, name);
            Ok(response)
        };
        Box::pin(REQUEST_ID.scope(id, named).instrument(span))
    }
}

/// What every answer gets on its way out.
fn finish(response: &mut Response, is_https: bool) {
    if matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        spread_retry_after(response.headers_mut());
    }
    if matches!(response.status(), StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
        // The rest of the body is not read, so nothing can follow on this connection: whoever keeps it must know.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    add_security_headers(response.headers_mut());
    if is_https {
        response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, HTTPS_ONLY.clone());
    }
}

/// Those who were turned away in one moment must not come back in one moment: each is told a time of its own, up to
/// twice as late or [`SPREAD_SECONDS`], whichever is more.
fn spread_retry_after(headers: &mut HeaderMap) {
    let told = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    let Some(seconds) = told else { return };
    let later = rand::rng().random_range(0..=seconds.clamp(SPREAD_SECONDS, SPREAD_SECONDS_MAX));
    headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.saturating_add(later)));
}

const SPREAD_SECONDS: u32 = 4;
const SPREAD_SECONDS_MAX: u32 = 60;

/// The answer, or what is said instead when it takes too long or the handler panics.
async fn bounded<F>(answer: F, started: Instant) -> Response
where
    F: Future<Output = Result<Response, Infallible>>,
{
    let limit = started + Duration::from_secs(REQUEST_SECONDS_MAX);
    // A timer is set only once the answer is not ready at its first poll.
    match tokio::time::timeout_at(limit.into(), AssertUnwindSafe(answer).catch_unwind()).await {
        Ok(Ok(Ok(response))) => response,
        Ok(Ok(Err(never))) => match never {},
        Ok(Err(_panic)) => Problem::internal().into_response(),
        Err(_elapsed) => {
            Problem::unavailable("overloaded", "This took too long. Keep your place and try again.")
                .into_response()
        }
    }
}

/// Whether `Accept` is worth reading: what programs send names no text.
fn may_want_html(headers: &HeaderMap) -> bool {
    let is_text =
        |value: &HeaderValue| value.as_bytes().windows(5).any(|word| word.eq_ignore_ascii_case(b"text/"));
    headers.get_all(header::ACCEPT).iter().any(is_text)
}

fn add_security_headers(headers: &mut HeaderMap) {
    headers.reserve(SECURITY_HEADERS.len() + 2);
    for (name, value) in &SECURITY_HEADERS {
        headers.entry(name).or_insert_with(|| value.clone());
    }
}

/// Where shoppers' addresses begin with `https`: a year without plain HTTP for this host. Other hosts of the shop are
/// the shop's own affair.
static HTTPS_ONLY: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// What a page whose form leads to a payment may do: with it a browser follows the redirect to whatever address the
/// gateway has.
pub const PAYING_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; worker-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; frame-ancestors 'self'; form-action 'self' http: https:";

/// Set unless a handler set its own. The policy allows what our pages use and nothing else: their own style sheet,
/// script and worker, images as data, forms to this host.
static SECURITY_HEADERS: [(HeaderName, HeaderValue); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; script-src 'self'; worker-src 'self'; connect-src 'self'; \
             img-src 'self' data:; base-uri 'none'; frame-ancestors 'self'; form-action 'self'",
        ),
    ),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt as _;
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
    async fn browsers_of_a_shop_on_https_are_told_to_stay_there() {
        let answer = async |edge: Edge| {
            let router = guard_by(Arc::new(edge), Router::new().route("/", get(|| async { "ok" })));
            router.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap()
        };
        let plain = answer(Edge::default()).await;
        assert!(!plain.headers().contains_key(header::STRICT_TRANSPORT_SECURITY));
        let policy = plain.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        assert!(policy.contains("default-src 'none'") && policy.contains("worker-src 'self'"), "{policy}");
        assert!(plain.headers()["x-request-id"].len() == 32);
        let settings = crate::edge::EdgeSettings { is_https: true, ..Default::default() };
        let https = answer(Edge::new(settings, Arc::default())).await;
        assert_eq!(https.headers()[header::STRICT_TRANSPORT_SECURITY], "max-age=31536000");
    }

    #[tokio::test]
    async fn f3_work_above_the_bound_is_shed_with_times_apart() {
        let settings = crate::edge::EdgeSettings { in_flight_max: 1, ..Default::default() };
        let (begun, mut has_begun) = tokio::sync::mpsc::channel::<()>(1);
        let (release, released) = tokio::sync::watch::channel(false);
        let slow = axum::routing::post(move || {
            let (begun, mut released) = (begun.clone(), released.clone());
            async move {
                begun.send(()).await.unwrap();
                released.wait_for(|go| *go).await.unwrap();
                "done"
            }
        });
        let router = guard_by(
            Arc::new(Edge::new(settings, Arc::default())),
            Router::new().route("/sale/{sale}/enter", slow).route("/healthz", get(|| async { "alive" })),
        );
        let ask = |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            router.clone().oneshot(request)
        };
        let first = tokio::spawn(ask("POST", "/sale/a/enter"));
        has_begun.recv().await.unwrap();
        let mut told = std::collections::BTreeSet::new();
        for _ in 0..60 {
            let shed = ask("POST", "/sale/a/enter").await.unwrap();
            assert_eq!(shed.status(), StatusCode::SERVICE_UNAVAILABLE);
            told.insert(shed.headers()[header::RETRY_AFTER].to_str().unwrap().parse::<u32>().unwrap());
        }
        assert!(told.len() >= 3 && told.first() >= Some(&2), "{told:?}");
        assert_eq!(ask("GET", "/healthz").await.unwrap().status(), StatusCode::OK);
        release.send(true).unwrap();
        assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
        let next = tokio::spawn(ask("POST", "/sale/a/enter"));
        has_begun.recv().await.unwrap();
        assert_eq!(next.await.unwrap().unwrap().status(), StatusCode::OK, "room again");
    }

    #[tokio::test]
    async fn a_panic_is_a_500_problem_and_tells_nothing() {
        let (status, kind, body) = call("/breaks", "*/*").await;
        assert_eq!((status, kind.as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "application/problem+json"));
        assert!(!body.contains("deliberate"));
    }
}
