//! `POST /payment/webhook`: the gateway's signed messages, verified over their raw bytes.

use std::sync::Arc;

use axum::{
    body::{Body, HttpBody as _},
    extract::State,
};
use http::{HeaderMap, StatusCode};
use lockgate_shared::{
    limits::{BODY_BYTES_MAX, LARGE_WEBHOOKS_MAX, WEBHOOK_BYTES_MAX},
    problem::Problem,
    request::read_bytes,
};
use tokio::sync::Semaphore;

use crate::app::App;

/// Rooms for large messages: whoever sends them, the process reads so many at a time and no more.
static LARGE: Semaphore = Semaphore::const_new(LARGE_WEBHOOKS_MAX);

pub(super) async fn notify(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let is_small = body.size_hint().upper().is_some_and(|most| most <= BODY_BYTES_MAX as u64);
    let room = if is_small { None } else { Some(LARGE.try_acquire().map_err(|_| no_room())?) };
    let bytes = read_bytes(body, WEBHOOK_BYTES_MAX).await?;
    app.notify(&headers, &bytes).await?;
    drop(room);
    Ok(StatusCode::NO_CONTENT)
}

fn no_room() -> Problem {
    let detail = "Too many large messages are being read at this moment. Send it again later.";
    Problem::unavailable("overloaded", detail).retry_after(5)
}
