//! What each layer of the edge costs, in one process without sockets: nanoseconds per request.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{MatchedPath, Request},
    http::{HeaderName, HeaderValue},
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use http_body_util::BodyExt as _;
use lockgate_shared::{
    edge::{
        Caller, Edge, EdgeSettings,
        layers::{guard, guard_by},
        lists::{LiveLists, NetworkLists},
        rate_limit::Limit,
    },
    negotiate::wants_html,
    testing::PrivateRedis,
};
use tower::ServiceExt as _;

use crate::{median, server, server::constant, setting};

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

/// One kind of request that came through a listener, and what it must be answered.
struct Asked {
    name: &'static str,
    router: Router,
    method: &'static str,
    path: &'static str,
    ticket: Option<String>,
    status: u16,
}

impl Asked {
    async fn once(&self) -> Response {
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header("accept", "application/json")
            .header("user-agent", "bench")
            .header("x-forwarded-for", "198.51.100.7, 192.0.2.8");
        if let Some(ticket) = &self.ticket {
            request = request.header("authorization", format!("Bearer {ticket}"));
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(Caller::new("192.0.2.9:9".parse().unwrap()));
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn round(&self, requests: u32) -> f64 {
        let started = Instant::now();
        let mut others = 0;
        for _ in 0..requests {
            let response = self.once().await;
            others += u32::from(response.status().as_u16() != self.status);
            std::hint::black_box(response.into_body().collect().await.unwrap());
        }
        // A limit lets one a second through.
        assert!(others * 100 < requests, "{}: {others} of {requests} were answered otherwise", self.name);
        started.elapsed().as_nanos() as f64 / f64::from(requests)
    }
}

/// What it costs to refuse, beside what it costs to answer a status. All come by a trusted proxy.
pub(crate) fn refusals() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = PrivateRedis::start().await;
        let app = server::app(redis.url(), server::sale(16, 3_600)).await;
        let (_stop, stopped) = tokio::sync::watch::channel(false);
        tokio::spawn(lockgate_waiting_room::run(Arc::clone(&app), stopped));
        let settings = |limit| EdgeSettings {
            trusted_proxies: vec!["192.0.2.0/28".parse().unwrap()],
            enter_limit: Some(limit),
            turn_limit: Some(limit),
            ..EdgeSettings::default()
        };
        let guarded = |limit, lists: &NetworkLists| {
            let live = Arc::new(LiveLists::default());
            live.set(lists);
            let edge = Arc::new(Edge::new(settings(limit), live));
            guard_by(edge, lockgate_waiting_room::router(Arc::clone(&app)))
        };
        let nobody = NetworkLists::default();
        let denied = NetworkLists { deny: vec!["198.51.100.0/24".into()], ..NetworkLists::default() };
        let (open, shut) = (Limit::new(1_000_000, 1_000_000), Limit::new(1, 1));
        let enter = Asked {
            name: "enter",
            router: guarded(open, &nobody),
            method: "POST",
            path: "/sale/phone-drop/enter",
            ticket: None,
            status: 201,
        };
        let body = enter.once().await.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let ticket = body["ticket"].as_str().map(str::to_owned);
        let status = "/sale/phone-drop/status";
        let asked =
            |name, router, method, path, ticket, status| Asked { name, router, method, path, ticket, status };
        let admit = "/sale/phone-drop/admit";
        let limited = guarded(shut, &nobody);
        // Its one request is taken here.
        let _ = asked("first", limited.clone(), "POST", admit, ticket.clone(), 409).once().await;
        let _ = asked("first", limited.clone(), "POST", enter.path, None, 201).once().await;
        let subjects = [
            asked("personal status", guarded(open, &nobody), "GET", status, ticket.clone(), 200),
            asked("public status", guarded(open, &nobody), "GET", status, None, 200),
            asked("refused: above the limit (admit)", limited.clone(), "POST", admit, ticket, 429),
            asked("refused: above the limit (enter)", limited, "POST", enter.path, None, 429),
            asked("refused: denied address", guarded(open, &denied), "GET", status, None, 403),
        ];
        let mut times = vec![Vec::new(); subjects.len()];
        for _ in 0..setting("ROUNDS", 7) {
            for (subject, times) in subjects.iter().zip(&mut times) {
                times.push(subject.round(20_000).await);
            }
        }
        println!("\nto refuse and to answer, in one process, nanoseconds per request");
        for (subject, times) in subjects.iter().zip(times) {
            println!("{:<36} {:>6.0}", subject.name, median(times));
        }
    });
}
