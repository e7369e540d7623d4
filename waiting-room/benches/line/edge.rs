//! What each layer of the edge costs, in one process without sockets: nanoseconds per request.

use std::time::{Duration, Instant};

use axum::{
    Router,
    body::Body,
    extract::{MatchedPath, Request},
    http::{HeaderName, HeaderValue},
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use lockgate_shared::{edge::layers::guard, negotiate::wants_html};
use tower::ServiceExt as _;

use crate::{median, server::constant, setting};

fn bare() -> Router {
    Router::new().route("/sale/{sale}/constant", get(constant))
}

// The parts, each as a middleware of its own, to see what it costs alone.

async fn nothing(request: Request, next: Next) -> Response {
    next.run(request).await
}

async fn time_limit(request: Request, next: Next) -> Response {
    tokio::time::timeout(Duration::from_secs(20), next.run(request)).await.unwrap()
}

async fn dynamic_labels(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", MatchedPath::as_str).to_owned();
    let status = response.status().as_u16().to_string();
    let labels = [("method", method.to_string()), ("route", route), ("status", status)];
    metrics::histogram!("bench_request_seconds", &labels).record(started.elapsed().as_secs_f64());
    response
}

async fn security_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let names = [
        "x-content-type-options",
        "referrer-policy",
        "content-security-policy",
        "cross-origin-opener-policy",
    ];
    for name in names {
        let value = HeaderValue::from_static("some value");
        response.headers_mut().entry(HeaderName::from_static(name)).or_insert(value);
    }
    response
}

async fn accept_header(request: Request, next: Next) -> Response {
    let html = wants_html(request.headers());
    let response = next.run(request).await;
    std::hint::black_box(html);
    response
}

async fn one_round(router: &Router, requests: u32) -> f64 {
    let started = Instant::now();
    for _ in 0..requests {
        let request = Request::get("/sale/phone-drop/constant")
            .header("accept", "application/json")
            .header("user-agent", "bench")
            .body(Body::empty())
            .unwrap();
        std::hint::black_box(router.clone().oneshot(request).await.unwrap());
    }
    started.elapsed().as_nanos() as f64 / f64::from(requests)
}

pub(crate) fn run() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder().unwrap();
    let subjects = [
        ("bare constant", bare()),
        ("a middleware that does nothing", bare().layer(middleware::from_fn(nothing))),
        ("a middleware with a time limit", bare().layer(middleware::from_fn(time_limit))),
        ("a middleware with dynamic labels", bare().layer(middleware::from_fn(dynamic_labels))),
        ("a middleware with security headers", bare().layer(middleware::from_fn(security_headers))),
        ("a middleware that reads Accept", bare().layer(middleware::from_fn(accept_header))),
        ("the edge (all of it, one layer)", guard(bare())),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut times = vec![Vec::new(); subjects.len()];
    for _ in 0..setting("ROUNDS", 7) {
        for ((_, router), times) in subjects.iter().zip(&mut times) {
            times.push(runtime.block_on(one_round(router, 20_000)));
            recorder.run_upkeep();
        }
    }
    println!("\nthe edge in one process, nanoseconds per request");
    let base = median(times[0].clone());
    for ((name, _), times) in subjects.iter().zip(times) {
        let time = median(times);
        println!("{name:<36} {time:>6.0}   (+{:.0})", time - base);
    }
}
