//! The counts.

use std::sync::Arc;

use axum::{Json, extract::State};
use lockgate_shared::{gate::StockSnapshot, problem::Problem, request::SalePath};

use crate::app::App;

pub(super) async fn stock(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
) -> Result<Json<StockSnapshot>, Problem> {
    app.stock(&sale).await.map(Json)
}
