//! What operations ask of a process: is it alive, can it serve, what does it count.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
    routing::{any, get},
};
use lockgate_shared::{
    operator::{OperatorKeys, Role},
    problem::Problem,
};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::json;

/// One thing a process needs before it can serve, by name.
pub struct Check {
    /// What is asked.
    pub name: &'static str,
    /// Asks it.
    pub ask: Box<dyn Fn() -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>,
}

/// How long one check may take.
const CHECK_MS_MAX: u64 = 1_500;

/// `/healthz` and `/readyz`.
pub fn health_router(checks: Vec<Check>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { Json(json!({ "status": "alive" })) }))
        .route("/readyz", get(ready))
        .with_state(Arc::new(checks))
}

async fn ready(State(checks): State<Arc<Vec<Check>>>) -> Result<impl IntoResponse, Problem> {
    for check in checks.iter() {
        let answer = tokio::time::timeout(Duration::from_millis(CHECK_MS_MAX), (check.ask)()).await;
        if !matches!(answer, Ok(true)) {
            let detail = format!("The {} does not answer. Waiting for it; see the log.", check.name);
            return Err(Problem::unavailable("not_ready", detail).with("waiting_for", check.name));
        }
    }
    Ok(Json(json!({ "status": "ready" })))
}

const OF_A_WAITING_ROOM: &str = "a waiting room for sales, admission, draws and allowlists";
const OF_A_CHECKOUT: &str = "a checkout for books, stock, orders, refunds, exports and messages";

/// Operators' addresses that a process of these roles does not serve, and who does; `None` where it serves all there are.
pub fn elsewhere_router(waiting_room: bool, checkout: bool) -> Option<Router> {
    let words = match (waiting_room, checkout) {
        (true, true) => return None,
        (true, false) => format!("This is a waiting room, which has no such address. Ask {OF_A_CHECKOUT}."),
        (false, true) => format!("This is a checkout, which has no such address. Ask {OF_A_WAITING_ROOM}."),
        (false, false) => format!("This role has no such address. Ask {OF_A_WAITING_ROOM}, {OF_A_CHECKOUT}."),
    };
    let refuse = move || async move { Problem::new(StatusCode::NOT_FOUND, "no_such_address", words) };
    Some(Router::new().route("/operator/v1/{*elsewhere}", any(refuse)))
}

/// `/metrics`. On a listener that shoppers reach it needs an operator key.
pub fn metrics_router(metrics: PrometheusHandle, keys: Option<Arc<OperatorKeys>>) -> Router {
    let render = move |headers: HeaderMap| {
        let answer = match &keys {
            Some(keys) => keys.authorize(&headers, Role::Viewer).map(|_| metrics.render()),
            None => Ok(metrics.render()),
        };
        async move { answer.map(|text| ([("content-type", "text/plain; version=0.0.4")], text)) }
    };
    Router::new().route("/metrics", get(render))
}
