//! `GET /sale/{sale}/queue`: somebody's place, by the ticket their browser keeps.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use lockgate_shared::{negotiate::wants_html, problem::Problem, request::SalePath, sale::SaleDefinition};

use super::{need_ticket, private_json, private_page};
use crate::{answers::PersonalStatus, app::App, pages};

pub(super) async fn queue(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let sale = app.sale(&id)?;
    let answer = match need_ticket(&headers, &id) {
        Ok(ticket) => app.status(&sale, ticket).await.map_err(Problem::from),
        Err(problem) => Err(problem),
    };
    let mut response = if wants_html(&headers) {
        page(&sale.definition, answer)?
    } else {
        private_json(StatusCode::OK, &answer?)
    };
    let vary = HeaderValue::from_static("Accept, Authorization, Cookie");
    response.headers_mut().insert(header::VARY, vary);
    Ok(response)
}

/// The page for this answer. One that will be right again by itself refreshes itself.
fn page(sale: &SaleDefinition, answer: Result<PersonalStatus, Problem>) -> Result<Response, Problem> {
    match answer {
        Ok(status) => Ok(private_page(StatusCode::OK, pages::queue_page(sale, &status))),
        Err(problem) if problem.code == "ticket_missing" => {
            Ok(private_page(problem.status, pages::no_ticket_page(sale)))
        }
        Err(problem) if problem.status == StatusCode::SERVICE_UNAVAILABLE => {
            let mut response = private_page(problem.status, pages::busy_page(sale));
            let seconds = problem.retry_after_seconds.unwrap_or(2);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            Ok(response)
        }
        Err(problem) => Err(problem),
    }
}
