//! refund and cancel as operators act, and the anomalies they look at.

use std::time::Duration;

use lockgate_shared::{
    ids::{ClaimId, SaleId},
    problem::Problem,
    request::no_such_order,
};

use super::App;
use crate::{
    order::{OrderEvent, OrderRecord, Verdict},
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
    pub async fn refund_order(&self, id: ClaimId) -> Result<OrderRecord, Problem> {
        self.act(id, &OrderEvent::Refund).await
    }

    /// Gives an order up as its buyer could: no payment can begin any more, and the units go back once none can succeed.
    /// Repeating it changes nothing.
    ///
    /// # Errors
    /// 404; 409 `order_paid` (refund it instead), `order_expired`; 503.
    pub async fn cancel_order(&self, id: ClaimId) -> Result<OrderRecord, Problem> {
        self.act(id, &OrderEvent::Cancel).await
    }

    /// Decides an operator's event and settles the order, as far as that goes at once.
    async fn act(&self, id: ClaimId, event: &OrderEvent) -> Result<OrderRecord, Problem> {
        let mut order = self.store.order(id).await?.ok_or_else(no_such_order)?;
        if let Verdict::Refused(refusal) = self.verdict(&mut order, event).await? {
            return Err(refusals::of_order(refusal));
        }
        match tokio::time::timeout(SETTLE_WAIT, settler::settle(self, order)).await {
            Ok(settled) => settled,
            Err(_) => self.store.order(id).await?.ok_or_else(no_such_order),
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
