//! pay and cancel: the buyer acts on an order.

use std::time::Duration;

use lockgate_shared::{ids::ClaimId, problem::Problem};
use rand::RngExt as _;

use super::{App, Found, Grant};
use crate::{
    gateways::{PaymentOrder, PaymentStatus},
    order::{Intake, OrderEvent, OrderRecord, OrderState, Placement, Refusal, Verdict},
    payment::{Notice, PaymentId, Terms},
    refusals, settler,
};

/// Longest paying and cancelling wait for it.
const ACT_WAIT: Duration = Duration::from_secs(2);
/// Longest a cancellation waits for its order to be settled before it answers "under way".
const CANCEL_WAIT: Duration = Duration::from_secs(3);

/// How far a cancellation is.
#[derive(Clone, Debug)]
pub struct Cancelled {
    /// The order.
    pub order: OrderRecord,
    /// Whether no payment can succeed any more and the units are back.
    pub is_done: bool,
}

impl App {
    /// Starts or resumes the payment of an order and answers where the buyer pays.
    ///
    /// # Errors
    /// 404; 409 when the order takes no payment; 503 `order_not_ready`, `payment_unavailable`.
    pub async fn pay(&self, id: ClaimId, grant: &Grant) -> Result<String, Problem> {
        let Found::Order(mut order) = self.order(id, grant, ACT_WAIT).await? else {
            return Err(refusals::order_not_ready());
        };
        // An attempt that turns out to have failed makes room for one more; a second failure is for the buyer.
        for _ in 0..2 {
            let payment = PaymentId::from_random(rand::rng().random());
            let event = OrderEvent::Pay { payment, terms: self.terms(&order, payment) };
            match self.verdict(&mut order, &event).await? {
                Verdict::Resume { redirect_url } => return Ok(redirect_url),
                Verdict::Refused(refusal) => return Err(refusals::of_order(refusal)),
                Verdict::Start(payment) => {
                    if let Some(url) = self.start(&mut order, payment).await? {
                        return Ok(url);
                    }
                }
                Verdict::Done => return Err(Problem::internal()),
            }
        }
        Err(refusals::order_not_ready())
    }

    /// Opens a committed attempt at the gateway; `None` when it turned out to be over already.
    async fn start(&self, order: &mut OrderRecord, payment: PaymentId) -> Result<Option<String>, Problem> {
        let event = match self.gateway.start(&self.asked(order, payment)).await? {
            PaymentStatus::Open { redirect_url, reference } => {
                OrderEvent::Started { payment, redirect_url, reference }
            }
            PaymentStatus::Ended(outcome) => OrderEvent::Notified(Notice { payment, order: None, outcome }),
            PaymentStatus::Unknown => OrderEvent::NotStarted { payment },
        };
        match self.verdict(order, &event).await? {
            Verdict::Resume { redirect_url } => Ok(Some(redirect_url)),
            Verdict::Refused(refusal) => Err(refusals::of_order(refusal)),
            Verdict::Done | Verdict::Start(_) => Ok(None),
        }
    }

    /// An attempt as its gateway is asked about it.
    pub(crate) fn asked(&self, order: &OrderRecord, payment: PaymentId) -> PaymentOrder {
        let attempt = order.payments.iter().find(|attempt| attempt.id == payment);
        let terms =
            attempt.and_then(|attempt| attempt.terms.clone()).unwrap_or_else(|| self.terms(order, payment));
        PaymentOrder {
            payment,
            order: order.id,
            price: order.price.clone(),
            description: terms.description,
            return_url: terms.return_url,
            expires_at: order.hold_expires_at,
            started_at: attempt.map_or(order.claimed_at, |attempt| attempt.created_at),
            reference: attempt.and_then(|attempt| attempt.reference.clone()),
        }
    }

    /// What an attempt made now is opened with.
    fn terms(&self, order: &OrderRecord, payment: PaymentId) -> Terms {
        Terms {
            description: self.description(order),
            return_url: format!("{}/payment/callback?payment={payment}", self.public_url),
        }
    }

    fn description(&self, order: &OrderRecord) -> String {
        let sale = self.catalog.sale(&order.sale);
        let name = sale
            .as_ref()
            .and_then(|sale| sale.definition.item(&order.item))
            .map_or(order.item.as_str(), |item| item.name.as_str());
        format!("{} × {name}", order.units.len())
    }

    /// Gives an order up: no payment can begin any more, and the units go back once none can succeed.
    ///
    /// # Errors
    /// 404; 409 when it is paid or expired; 503.
    pub async fn cancel(&self, id: ClaimId, grant: &Grant) -> Result<Cancelled, Problem> {
        let mut order = match self.order(id, grant, ACT_WAIT).await? {
            Found::Order(order) => *order,
            Found::Placing(Some(claim)) => self.place_now(*claim).await?,
            Found::Placing(None) => return Err(refusals::order_not_ready()),
        };
        if let Verdict::Refused(refusal) = self.verdict(&mut order, &OrderEvent::Cancel).await? {
            return Err(refusals::of_order(refusal));
        }
        let settled = tokio::time::timeout(CANCEL_WAIT, settler::settle(self, order.clone())).await;
        if let Ok(settled) = settled {
            order = settled?;
        } else if let Some(latest) = self.store.order(id).await? {
            order = latest;
        }
        match order.state {
            OrderState::Cancelled => Ok(Cancelled { is_done: order.is_cancelled_for_good(), order }),
            OrderState::AwaitingPayment => Ok(Cancelled { order, is_done: false }),
            OrderState::Paid => Err(refusals::of_order(Refusal::Paid)),
            OrderState::Expired | OrderState::RefundDue | OrderState::Refunded => {
                Err(refusals::of_order(Refusal::Expired))
            }
        }
    }

    /// Makes the order of a claim whose record has not come yet; the record will find it there.
    async fn place_now(&self, claim: Placement) -> Result<OrderRecord, Problem> {
        let (id, sale) = (claim.order, claim.sale.clone());
        let placed = self.store.place(&sale, &[Intake::Claimed(claim)], &[], self.clock.now()).await?;
        self.placed(&placed);
        self.store.order(id).await?.ok_or_else(refusals::order_not_ready)
    }
}
