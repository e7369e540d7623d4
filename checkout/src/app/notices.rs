//! notify and callback: what the gateway says of a payment.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use lockgate_shared::problem::Problem;

use super::App;
use crate::{
    gateways::PaymentStatus,
    order::{OrderEvent, OrderRecord},
    payment::{Notice, PaymentId, PaymentRecord, PaymentState},
    refusals,
    store::Notified,
};

/// Longest a buyer's return waits for the gateway's word.
const CALLBACK_WAIT: Duration = Duration::from_secs(3);

impl App {
    /// Takes a gateway's signed message: proves it, stores it and acts on it in one step.
    ///
    /// # Errors
    /// 403 `webhook_invalid`; 503 when it could not be stored, so that it is sent again.
    pub async fn notify(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
        let now = self.clock.now();
        let notification = self.gateway.verify(headers, body, now).map_err(|error| {
            count_webhook("invalid");
            Problem::new(
                StatusCode::FORBIDDEN,
                "webhook_invalid",
                format!("This webhook is not accepted: {error}."),
            )
        })?;
        let Some(notice) = notification.notice else {
            count_webhook("ignored");
            return Ok(());
        };
        let gateway = self.gateway.name();
        match self.store.notify(gateway, &notification.event, &notice, now).await? {
            Notified::Applied(decision) => {
                count_webhook("applied");
                self.report(&decision.after, &decision.anomalies);
            }
            Notified::Parked => count_webhook("parked"),
            Notified::Duplicate => count_webhook("duplicate"),
        }
        Ok(())
    }

    /// The buyer returns from the gateway: asks it what became of the attempt, because its message may be late or
    /// lost, and answers the order.
    ///
    /// # Errors
    /// 404 `no_such_payment`; 503.
    pub async fn callback(&self, payment: PaymentId) -> Result<OrderRecord, Problem> {
        let id = self.store.order_of(payment).await?.ok_or_else(refusals::no_such_payment)?;
        let order = self.store.order(id).await?.ok_or_else(refusals::no_such_payment)?;
        // Also of one that was given up: its money may have arrived late.
        let is_unpaid =
            |attempt: &PaymentRecord| attempt.id == payment && attempt.state < PaymentState::Succeeded;
        if !order.payments.iter().any(is_unpaid) {
            return Ok(order);
        }
        let question = self.asked(&order, payment);
        let asked = tokio::time::timeout(CALLBACK_WAIT, self.gateway.state(&question)).await;
        match asked {
            Ok(Ok(PaymentStatus::Ended(outcome))) => {
                let notice = Notice { payment, order: None, outcome };
                self.decide(&order, &OrderEvent::Notified(notice)).await
            }
            Ok(Ok(_)) => Ok(order),
            // The gateway's own message, or the question at the hold's end, brings the answer later.
            Ok(Err(error)) => {
                tracing::warn!(%error, "a returning buyer's payment is not known yet");
                Ok(order)
            }
            Err(_) => Ok(order),
        }
    }
}

fn count_webhook(outcome: &'static str) {
    metrics::counter!("lockgate_webhooks_total", "outcome" => outcome).increment(1);
}
