//! Operators' view of a sale's books.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::{HeaderMap, StatusCode};
use lockgate_shared::{operator::Role, problem::Problem, request::SalePath};

use super::page;
use crate::app::App;

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
