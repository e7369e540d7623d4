//! Operators' view of dead letters, and their way back.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use http::{HeaderMap, Request, StatusCode};
use lockgate_shared::{clock::Timestamp, operator::Role, problem::Problem, request::SalePath};
use serde::Serialize;
use serde_json::Value;

use super::{
    operator::{Nothing, json},
    page,
};
use crate::{app::App, store::DeadLetter};

#[derive(Serialize)]
struct ListView {
    sale: String,
    total: u64,
    letters: Vec<LetterView>,
}

#[derive(Serialize)]
struct LetterView {
    event: String,
    problem: String,
    found_at: Timestamp,
    record: Value,
}

impl LetterView {
    fn of(letter: DeadLetter) -> Self {
        let record = serde_json::from_str(&letter.record).unwrap_or(Value::String(letter.record));
        Self { event: letter.event, problem: letter.problem, found_at: letter.found_at, record }
    }
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    sale: Result<SalePath, Problem>,
) -> Result<Response, Problem> {
    app.operator_keys.authorize(&headers, Role::Viewer)?;
    let SalePath(sale) = sale?;
    app.catalog.sale(&sale).ok_or_else(Problem::no_such_sale)?;
    let found = app.dead_letters(&sale).await?;
    let letters = found.letters.into_iter().map(LetterView::of).collect();
    Ok(page::json(StatusCode::OK, &ListView { sale: sale.to_string(), total: found.total, letters }))
}

pub(super) async fn retry(
    State(app): State<Arc<App>>,
    sale: Result<SalePath, Problem>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let by = app.operator_keys.authorize(request.headers(), Role::Operator)?;
    let SalePath(sale) = sale?;
    app.catalog.sale(&sale).ok_or_else(Problem::no_such_sale)?;
    let Nothing {} = json(request).await?;
    let retried = app.retry_dead_letters(&sale).await?;
    tracing::info!(target: "audit", action = "retry dead letters", %by, id = %sale, taken_in = retried.taken_in, left = retried.left, "operator");
    Ok(page::json(StatusCode::OK, &retried))
}
