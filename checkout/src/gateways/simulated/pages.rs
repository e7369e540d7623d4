//! The simulated gateway's hosted page.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};
use lockgate_shared::problem::Problem;

use super::{
    Stage,
    ledger::{Entry, Opened},
};
use crate::http::page::render;

#[derive(Template)]
#[template(path = "simulated_pay.html")]
struct PayPage<'a> {
    opened: Option<&'a Opened>,
    is_open: bool,
    is_paid: bool,
}

/// The page a buyer pays on, or reads that there is nothing to pay any more.
pub(super) fn pay(entry: &Entry) -> Result<Response, Problem> {
    render(&PayPage {
        opened: entry.opened.as_ref(),
        is_open: entry.state == Stage::Open,
        is_paid: matches!(entry.state, Stage::Paid | Stage::Refunded),
    })
}

/// The way back to the shop.
pub(super) fn back_to_shop(entry: &Entry) -> Response {
    let target =
        entry.opened.as_ref().and_then(|opened| HeaderValue::try_from(opened.return_url.as_str()).ok());
    match target {
        Some(target) => (StatusCode::SEE_OTHER, [(header::LOCATION, target)]).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}
