//! The routes, one file per group.

mod acts;
mod callback;
mod checkout;
mod credentials;
mod letters;
mod office;
mod operator;
mod orders;
mod outbox;
pub(crate) mod page;
mod parked;
mod settlement;
mod webhook;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};

use crate::app::App;

/// Shoppers' and gateways' routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/sale/{sale}/checkout", get(checkout::choose).post(checkout::claim))
        .route("/orders/{order_id}", get(orders::show))
        .route("/orders/{order_id}/pay", post(orders::pay))
        .route("/orders/{order_id}/cancel", post(orders::cancel))
        .route("/payment/callback", get(callback::callback))
        .route("/payment/webhook", post(webhook::notify))
        .with_state(app)
}

/// Operators' routes.
pub fn operator_router(app: Arc<App>) -> Router {
    Router::new()
        .route("/operator/v1/sales/{sale}/books", get(operator::books))
        .route("/operator/v1/sales/{sale}/stock", post(operator::restock))
        .route("/operator/v1/sales/{sale}/recover", post(operator::recover))
        .route("/operator/v1/sales/{sale}/anomalies", get(acts::anomalies))
        .route("/operator/v1/orders/{order_id}/refund", post(acts::refund))
        .route("/operator/v1/orders/{order_id}/cancel", post(acts::cancel))
        .route("/operator/v1/sales/{sale}/settlement", get(settlement::settlement))
        .route("/operator/v1/sales/{sale}/orders", get(office::list))
        .route("/operator/v1/sales/{sale}/orders/search", post(office::search))
        .route("/operator/v1/sales/{sale}/orders/feed", get(office::feed))
        .route("/operator/v1/sales/{sale}/orders/export", get(office::export))
        .route("/operator/v1/sales/{sale}/dead-letters", get(letters::list))
        .route("/operator/v1/sales/{sale}/dead-letters/retry", post(letters::retry))
        .route("/operator/v1/payments/parked", get(parked::list))
        .route("/operator/v1/payments/{payment}/strike-off", post(parked::strike_off))
        .route("/operator/v1/outbox", get(outbox::show))
        .route("/operator/v1/outbox/retry", post(outbox::retry))
        .with_state(app)
}
