//! The routes, one file per group.

mod callback;
mod checkout;
mod credentials;
mod operator;
mod orders;
pub(crate) mod page;
mod webhook;

use std::{num::NonZeroU32, sync::Arc};

use axum::{
    Router,
    middleware::from_fn_with_state,
    routing::{get, post},
};

use lockgate_shared::edge::rate_limit::{NetworkLimit, limited};

use crate::app::App;

/// Each return from the gateway asks the gateway something. A carrier's address stands for thousands of shoppers, so
/// the limit is far above what people do and below what would hurt.
const CALLBACKS_PER_SECOND: NonZeroU32 = NonZeroU32::new(200).unwrap();
const CALLBACKS_BURST: NonZeroU32 = NonZeroU32::new(2_000).unwrap();

/// Shoppers' and gateways' routes.
pub fn router(app: Arc<App>) -> Router {
    let callbacks = NetworkLimit::new(CALLBACKS_PER_SECOND, CALLBACKS_BURST);
    Router::new()
        .route("/sale/{sale}/checkout", get(checkout::choose).post(checkout::claim))
        .route("/orders/{order_id}", get(orders::show))
        .route("/orders/{order_id}/pay", post(orders::pay))
        .route("/orders/{order_id}/cancel", post(orders::cancel))
        .route("/payment/callback", get(callback::callback).layer(from_fn_with_state(callbacks, limited)))
        .route("/payment/webhook", post(webhook::notify))
        .with_state(app)
}

/// Operators' routes.
pub fn operator_router(app: Arc<App>) -> Router {
    Router::new().route("/operator/v1/sales/{sale}/books", get(operator::books)).with_state(app)
}
