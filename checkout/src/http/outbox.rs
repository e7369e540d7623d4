//! Operators' view of the outbox, and the way back of dead messages.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::{HeaderMap, StatusCode};
use lockgate_shared::{
    clock::Timestamp,
    ids::ClaimId,
    limits::BODY_BYTES_MAX,
    operator::Role,
    problem::Problem,
    request::{parse_json, read_bytes},
};
use serde::{Deserialize, Serialize};

use super::page;
use crate::{
    app::{App, OutboxView},
    outbox::{Channel, MessageId},
    store::{ChannelFigures, DeadMessage},
};

#[derive(Serialize)]
struct View {
    channels: Vec<ChannelView>,
    dead: Vec<DeadView>,
}

#[derive(Serialize)]
struct ChannelView {
    channel: &'static str,
    /// Whether the process that answers delivers it.
    configured: bool,
    waiting: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_at: Option<Timestamp>,
    dead: u64,
}

/// A dead message. Without the buyer's address, which the order has.
#[derive(Serialize)]
struct DeadView {
    message: String,
    order_id: ClaimId,
    channel: String,
    kind: String,
    attempts: u32,
    problem: String,
    created_at: Timestamp,
    died_at: Timestamp,
}

impl View {
    fn of(app: &App, found: OutboxView) -> Self {
        let channel = |(channel, of): (Channel, ChannelFigures)| ChannelView {
            channel: channel.as_str(),
            configured: app.outbox.has(channel),
            waiting: of.waiting,
            oldest_at: of.oldest_at,
            dead: of.dead,
        };
        let dead = |dead: DeadMessage| DeadView {
            message: dead.id.to_string(),
            order_id: dead.id.order,
            channel: dead.channel,
            kind: dead.kind,
            attempts: dead.attempts,
            problem: dead.problem,
            created_at: dead.created_at,
            died_at: dead.died_at,
        };
        Self {
            channels: found.channels.into_iter().map(channel).collect(),
            dead: found.dead.into_iter().map(dead).collect(),
        }
    }
}

pub(super) async fn show(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    app.operator_keys.authorize(&headers, Role::Viewer)?;
    Ok(page::json(StatusCode::OK, &View::of(&app, app.outbox().await?)))
}

/// Which message; all dead ones without it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryBody {
    message: Option<String>,
}

pub(super) async fn retry(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let by = app.operator_keys.authorize(&headers, Role::Operator)?;
    let one = read_retry(request.into_body()).await?;
    let requeued = app.retry_outbox(one).await?;
    tracing::info!(target: "audit", action = "retry outbox", %by, retried = requeued.retried, left = requeued.left, "operator");
    Ok(page::json(StatusCode::OK, &requeued))
}

async fn read_retry(body: Body) -> Result<Option<MessageId>, Problem> {
    let bytes = read_bytes(body, BODY_BYTES_MAX).await?;
    let body: RetryBody = if bytes.is_empty() { RetryBody::default() } else { parse_json(&bytes)? };
    let read = |text: String| {
        text.parse().map_err(|problem| Problem::malformed(format!("message '{text}' {problem}.")))
    };
    body.message.map(read).transpose()
}
