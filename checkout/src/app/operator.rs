//! refund and cancel as operators act, and the anomalies they look at.

use std::time::Duration;

use lockgate_shared::{
    ids::{ClaimId, SaleId},
    operator::Actor,
    problem::Problem,
};

use super::App;
use crate::{
    order::{OrderEvent, OrderRecord, OrderState, Refusal, Verdict},
    refusals, settler,
    store::AnomalyRecord,
};

/// Longest an operator's act waits for its order to be settled before it answers "under way".
const SETTLE_WAIT: Duration = Duration::from_secs(3);

impl App {
    /// Has everything that was paid for an order given back. Its units stay sold at the gate. Repeating it changes
    /// nothing.
    ///
    /// # Errors
    /// 404; 409 `order_not_paid`, or `order_reclaiming` while it is not known whether a late payment gets units; 503.
    pub async fn refund_order(&self, id: ClaimId, by: Actor, reason: &str) -> Result<OrderRecord, Problem> {
        let event = OrderEvent::Refund { why: format!("{by}: {reason}") };
        self.act(id, "refund order", &event, by, reason).await
    }

    /// Gives an order up as its buyer could: no payment can begin any more, and the units go back once none can succeed.
    /// Repeating it changes nothing.
    ///
    /// # Errors
    /// 404; 409 `order_paid` (refund it instead), `order_expired`; 503.
    pub async fn cancel_order(&self, id: ClaimId, by: Actor, reason: &str) -> Result<OrderRecord, Problem> {
        let event = OrderEvent::CancelFor { why: format!("{by}: {reason}") };
        let order = self.act(id, "cancel order", &event, by, reason).await?;
        match order.state {
            // A payment was under way, and was quicker.
            OrderState::Paid => Err(refusals::of_act(Refusal::Paid)),
            OrderState::Expired | OrderState::RefundDue | OrderState::Refunded => {
                Err(refusals::of_act(Refusal::Expired))
            }
            OrderState::AwaitingPayment | OrderState::Cancelled => Ok(order),
        }
    }

    /// Decides an operator's event and settles the order, as far as that goes at once.
    async fn act(
        &self,
        id: ClaimId,
        action: &'static str,
        event: &OrderEvent,
        by: Actor,
        reason: &str,
    ) -> Result<OrderRecord, Problem> {
        let mut order = self.store.order(id).await?.ok_or_else(refusals::no_such_order)?;
        if let Verdict::Refused(refusal) = self.verdict(&mut order, event).await? {
            return Err(refusals::of_act(refusal));
        }
        // It is decided by now, whatever becomes of the rest and of whoever waits for the answer.
        let state = order.state.as_str();
        tracing::info!(target: "audit", action, %by, id = %order.sale, order = %order.id, state, reason, "operator");
        match tokio::time::timeout(SETTLE_WAIT, settler::settle(self, order)).await {
            Ok(settled) => settled,
            Err(_) => self.store.order(id).await?.ok_or_else(refusals::no_such_order),
        }
    }

    /// A page of what should not have happened to a sale's orders, after the anomaly numbered `after`.
    ///
    /// # Errors
    /// 503.
    pub async fn anomalies(&self, sale: &SaleId, after: Option<u64>) -> Result<Vec<AnomalyRecord>, Problem> {
        Ok(self.store.anomalies(sale, after).await?)
    }
}
