//! Operators' view of a sale's books, and what they change of its stock.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use http::{HeaderMap, Request, StatusCode};
use lockgate_shared::{
    credentials::idempotency_key,
    ids::ItemId,
    operator::Role,
    problem::Problem,
    request::{BodyKind, SalePath, read_body},
};
use serde::Deserialize;

use super::page;
use crate::{app::App, rebuilder};

pub(super) async fn books(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    sale: Result<SalePath, Problem>,
) -> Result<Response, Problem> {
    app.operator_keys.authorize(&headers, Role::Viewer)?;
    let SalePath(sale) = sale?;
    app.catalog.sale(&sale).ok_or_else(Problem::no_such_sale)?;
    Ok(page::json(StatusCode::OK, &app.books(&sale).await?))
}

/// A change of an item's stock.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StockBody {
    item: ItemId,
    change: i64,
}

pub(super) async fn restock(
    State(app): State<Arc<App>>,
    sale: Result<SalePath, Problem>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let by = app.operator_keys.authorize(request.headers(), Role::Operator)?;
    let SalePath(sale) = sale?;
    app.catalog.sale(&sale).ok_or_else(Problem::no_such_sale)?;
    let key = idempotency_key(request.headers())?.map(str::to_owned);
    let StockBody { item, change } = json(request).await?;
    let counts = app.restock(&sale, item, change, key.as_deref()).await?;
    tracing::info!(target: "audit", action = "stock", %by, id = %sale, item = %counts.item, change, stock = counts.stock, "operator");
    Ok(page::json(StatusCode::OK, &counts))
}

/// The body of a call that needs nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

pub(super) async fn recover(
    State(app): State<Arc<App>>,
    sale: Result<SalePath, Problem>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let by = app.operator_keys.authorize(request.headers(), Role::Operator)?;
    let SalePath(sale) = sale?;
    app.catalog.sale(&sale).ok_or_else(Problem::no_such_sale)?;
    let Nothing {} = json(request).await?;
    tracing::info!(target: "audit", action = "recover", %by, id = %sale, "operator");
    let recovery = rebuilder::recover(&app, &sale, None, "an operator asked for it").await?;
    Ok(page::json(StatusCode::OK, &recovery))
}

pub(super) async fn json<T: serde::de::DeserializeOwned>(request: Request<Body>) -> Result<T, Problem> {
    match read_body(request).await? {
        (body, BodyKind::Json) => Ok(body),
        (_, BodyKind::Form) => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "Send application/json.",
        )),
    }
}
