//! `GET /sale/{sale}/status`: public for everyone, personal with a ticket.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use lockgate_shared::{credentials, problem::Problem, request::SalePath};

use super::{private_json, shared};
use crate::app::App;

/// A shared cache keeps one answer per coding, and none that was given to a ticket.
const VARY: &str = "Authorization, Accept-Encoding";

pub(super) async fn status(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let sale = app.sale(&id)?;
    let Some(ticket) = credentials::bearer(&headers)? else {
        let snapshot = app.board(&sale)?;
        let cache = "public, max-age=1";
        return Ok(shared(&headers, &snapshot.status_bytes, "application/json", cache, VARY));
    };
    let mut response = private_json(StatusCode::OK, &app.status(&sale, ticket).await?);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Authorization"));
    Ok(response)
}
