//! The counts, and changing them.

use std::sync::Arc;

use axum::{Json, body::Body, extract::State};
use http::Request;
use lockgate_shared::{
    gate::{RestockAnswer, StockSnapshot},
    problem::Problem,
    request::SalePath,
};

use super::claims::json;
use crate::app::App;

pub(super) async fn stock(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
) -> Result<Json<StockSnapshot>, Problem> {
    app.stock(&sale).await.map(Json)
}

pub(super) async fn restock(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    request: Request<Body>,
) -> Result<Json<RestockAnswer>, Problem> {
    let request = json(request).await?;
    app.restock(&sale, &request).await.map(Json)
}
