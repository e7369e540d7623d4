//! Rebuilding a stock.

use std::sync::Arc;

use axum::{Json, body::Body, extract::State};
use http::Request;
use lockgate_shared::{
    gate::{ConcludeAnswer, ConcludeRequest, FreezeAnswer, FreezeRequest, HoldsPage, StageAnswer},
    limits::INTERNAL_BODY_BYTES_MAX,
    problem::Problem,
    request::{SalePath, parse_json, read_bytes},
};
use serde::de::DeserializeOwned;

use crate::app::App;

pub(super) async fn freeze(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    request: Request<Body>,
) -> Result<Json<FreezeAnswer>, Problem> {
    let request: FreezeRequest = large(request).await?;
    app.freeze(&sale, &request).await.map(Json)
}

pub(super) async fn holds(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    request: Request<Body>,
) -> Result<Json<HoldsPage>, Problem> {
    let after = match request.uri().query() {
        None | Some("") => None,
        Some(query) => match query.strip_prefix("after=").filter(|after| !after.contains('&')) {
            Some(after) => Some(after),
            None => {
                return Err(Problem::malformed(
                    "This address takes one query, after=<where the page begins>.",
                ));
            }
        },
    };
    app.holds(&sale, after).await.map(Json)
}

pub(super) async fn stage(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    request: Request<Body>,
) -> Result<Json<StageAnswer>, Problem> {
    app.stage(&sale, &large(request).await?).await.map(Json)
}

pub(super) async fn conclude(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    request: Request<Body>,
) -> Result<Json<ConcludeAnswer>, Problem> {
    let request: ConcludeRequest = large(request).await?;
    app.conclude(&sale, &request).await.map(Json)
}

/// A page of a stock is larger than what shoppers send.
async fn large<T: DeserializeOwned>(request: Request<Body>) -> Result<T, Problem> {
    parse_json(&read_bytes(request.into_body(), INTERNAL_BODY_BYTES_MAX).await?)
}
