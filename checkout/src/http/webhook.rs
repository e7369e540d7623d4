//! `POST /payment/webhook`: the gateway's signed messages, verified over their raw bytes.

use std::sync::Arc;

use axum::{body::Body, extract::State};
use http::{HeaderMap, StatusCode};
use lockgate_shared::{limits::BODY_BYTES_MAX, problem::Problem, request::read_bytes};

use crate::app::App;

pub(super) async fn notify(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let bytes = read_bytes(body, BODY_BYTES_MAX).await?;
    app.notify(&headers, &bytes).await?;
    Ok(StatusCode::NO_CONTENT)
}
