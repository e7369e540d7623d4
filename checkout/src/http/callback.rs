//! `GET /payment/callback`: the buyer returns from the gateway.

use std::sync::Arc;

use axum::{
    extract::{Query, State},
    response::Response,
};
use http::{HeaderMap, StatusCode, Uri};
use lockgate_shared::{negotiate::wants_html, problem::Problem};
use serde::{Deserialize, Serialize};

use super::{credentials, orders::OrderView, page};
use crate::{app::App, refusals};

#[derive(Deserialize)]
struct CallbackQuery {
    payment: Option<String>,
}

/// What a program without the order's credentials is told.
#[derive(Serialize)]
struct Pointer {
    order_id: String,
    state: &'static str,
    order_url: String,
}

pub(super) async fn callback(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let Query(query) = Query::<CallbackQuery>::try_from_uri(&uri)
        .map_err(|_| Problem::malformed("The address's query cannot be read."))?;
    let payment = query
        .payment
        .ok_or_else(|| Problem::malformed("The address must name the payment: ?payment=<id>."))?;
    let order = app.callback(payment.parse().map_err(|_| refusals::no_such_payment())?).await?;
    let id = order.id;
    if wants_html(&headers) {
        return page::see_other(&format!("/orders/{id}"), None);
    }
    // The payment's id stands in addresses, so by itself it shows no more than where the order is.
    let grant = credentials::grant(&app, id, &headers).unwrap_or_default();
    if grant.covers(&order.sale, order.account) {
        return Ok(page::json(StatusCode::OK, &OrderView::of(&app, order)));
    }
    let pointer = Pointer {
        order_id: id.to_string(),
        state: order.state.as_str(),
        order_url: format!("{}/orders/{id}", app.public_url),
    };
    Ok(page::json(StatusCode::OK, &pointer))
}
