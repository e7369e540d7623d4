//! `/operator/v1/edge`: which networks are let through or refused, changed while sales run.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use lockgate_shared::{
    catalog::{Catalog, ListsError},
    edge::lists::NetworkLists,
    limits::SALE_FILE_BYTES_MAX,
    operator::{OperatorKeys, Role},
    problem::Problem,
    request::{BodyKind, body_kind, parse_json, read_bytes},
};

struct Networks {
    catalog: Arc<Catalog>,
    operator_keys: Arc<OperatorKeys>,
}

/// The routes.
pub fn router(catalog: Arc<Catalog>, operator_keys: Arc<OperatorKeys>) -> Router {
    let state = Arc::new(Networks { catalog, operator_keys });
    Router::new().route("/operator/v1/edge", get(show).put(set)).with_state(state)
}

async fn show(State(networks): State<Arc<Networks>>, headers: HeaderMap) -> Result<Response, Problem> {
    networks.operator_keys.authorize(&headers, Role::Viewer)?;
    let (lists, version) = networks.catalog.networks();
    Ok(tagged(&lists, version))
}

async fn set(State(networks): State<Arc<Networks>>, request: Request<Body>) -> Result<Response, Problem> {
    let by = networks.operator_keys.authorize(request.headers(), Role::Operator)?;
    let expected = if_match(request.headers())?;
    if body_kind(request.headers())? != Some(BodyKind::Json) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "Send application/json.",
        ));
    }
    let lists: NetworkLists = parse_json(&read_bytes(request.into_body(), SALE_FILE_BYTES_MAX).await?)?;
    let (lists, version) = networks.catalog.set_networks(&lists, expected).await.map_err(problem)?;
    let (allow, deny) = (lists.allow.len(), lists.deny.len());
    tracing::info!(target: "audit", action = "networks", %by, version, allow, deny, "operator");
    Ok(tagged(&lists, version))
}

/// The version a change is made from, if the caller names one.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let version = value.to_str().ok().and_then(|text| text.trim().trim_matches('"').parse().ok());
    let wrong = || Problem::malformed("If-Match must be the ETag that GET of this address gave.");
    version.map(Some).ok_or_else(wrong)
}

fn problem(error: ListsError) -> Problem {
    match error {
        ListsError::Invalid(problems) => {
            let detail = format!("Nothing was changed. {}.", problems.join(". "));
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "networks_invalid", detail)
                .with("problems", problems)
        }
        ListsError::Conflict { current } => Problem::new(
            StatusCode::PRECONDITION_FAILED,
            "version_mismatch",
            "Somebody else changed the lists. Read them again and repeat the change.",
        )
        .with("current_version", current),
        ListsError::Store(error) => error.into(),
    }
}

fn tagged(lists: &NetworkLists, version: u64) -> Response {
    let mut response = Json(lists).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
        headers.insert(header::ETAG, tag);
    }
    response
}
