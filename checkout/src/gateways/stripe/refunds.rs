//! Giving money back once, however often it is asked and whatever answers are lost.
//!
//! Stripe remembers a key for a day or so; after that only its own list of refunds tells that one was made. So the list
//! is asked first, and the key keeps two that ask at the same time from both being heard.

use std::collections::HashMap;

use serde::Deserialize;

use super::{
    KEYS_MAX, Stripe,
    amounts::to_stripe,
    key,
    session::{PAYMENT_KEY, is_id},
};
use crate::{
    gateways::{GatewayError, PaymentOrder},
    payment::{Money, PaymentId},
};

const VERB: &str = "refund";
const REFUNDS: &str = "/v1/refunds";
/// Refunds of one payment that may fail before no further one is made by itself.
const FAILED_MAX: usize = 5;
/// Most refunds of one payment that Stripe lists at a time. Here there is one, and those that failed before.
const LIST_MAX: usize = 100;

#[derive(Deserialize)]
struct List<T> {
    data: Vec<T>,
}

#[derive(Deserialize)]
pub(super) struct Refund {
    #[serde(default)]
    amount: i64,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    metadata: Option<HashMap<String, String>>,
}

#[derive(Deserialize)]
struct Found {
    id: String,
}

impl Refund {
    /// It did not go through: the money is with the shop again.
    fn is_void(&self) -> bool {
        matches!(self.status.as_deref(), Some("failed" | "canceled"))
    }

    /// The payment whose money it gives back; `None` if it was not asked for here.
    pub(super) fn payment(&self) -> Option<PaymentId> {
        self.metadata.as_ref()?.get(PAYMENT_KEY)?.parse().ok()
    }
}

fn failed(cause: impl Into<String>) -> GatewayError {
    GatewayError { verb: VERB, cause: cause.into() }
}

impl Stripe {
    /// Gives `money` of the attempt back unless that much went back already, also by an operator at Stripe's own pages.
    pub(super) async fn give_back(&self, order: &PaymentOrder, money: &Money) -> Result<(), GatewayError> {
        if money.amount == 0 {
            return Ok(());
        }
        let amount = to_stripe(money).map_err(failed)?;
        let intent = self.intent_of(order).await?;
        for n in 1..=KEYS_MAX {
            let refunds = self.refunds_of(&intent).await?;
            let given: i64 =
                refunds.iter().filter(|refund| !refund.is_void()).map(|refund| refund.amount).sum();
            if given >= amount {
                return Ok(());
            }
            // One that failed for good is asked for anew; its key would only bring its old answer back.
            let void = refunds.iter().filter(|refund| refund.is_void()).count();
            if void >= FAILED_MAX {
                return Err(failed(format!(
                    "{void} refunds of payment intent {intent} failed at Stripe; no further one is made: give the money \
                     back at Stripe's own pages, which counts here"
                )));
            }
            // What was given back meanwhile is in it: the same key with another amount would be refused.
            let key = key(order.payment, &format!("refund-{void}-{given}-{n}"));
            let form = [
                ("payment_intent".to_owned(), intent.clone()),
                ("amount".to_owned(), (amount - given).to_string()),
                (format!("metadata[{PAYMENT_KEY}]"), order.payment.to_string()),
            ];
            let reply = self.api.post(VERB, REFUNDS, &key, &form).await?;
            if reply.is_spent() {
                continue;
            }
            if reply.refusal().code.as_deref() == Some("charge_already_refunded") {
                return Ok(());
            }
            let refund: Refund = reply.read(VERB)?;
            if refund.is_void() {
                return Err(failed("Stripe could not give the money back; it is asked again"));
            }
            return Ok(());
        }
        Err(failed("Stripe goes on answering with a failure of its own"))
    }

    async fn refunds_of(&self, intent: &str) -> Result<Vec<Refund>, GatewayError> {
        let path = format!("{REFUNDS}?payment_intent={intent}&limit={LIST_MAX}");
        let list: List<Refund> = self.api.get(VERB, &path).await?.read(VERB)?;
        Ok(list.data)
    }

    /// The PaymentIntent that took the attempt's money: by its session, or, where that is not known because the attempt's
    /// row was lost, by what its metadata says.
    async fn intent_of(&self, order: &PaymentOrder) -> Result<String, GatewayError> {
        if let Some(id) = &order.reference {
            let session = self.retrieve(VERB, order, id).await?;
            let intent = session.intent().map(str::to_owned);
            return intent.ok_or_else(|| failed("the session took no money"));
        }
        let query = format!(
            "/v1/payment_intents/search?query=metadata%5B%22{}%22%5D%3A%22{}%22%20AND%20status%3A%22succeeded%22",
            PAYMENT_KEY, order.payment
        );
        let list: List<Found> = self.api.get(VERB, &query).await?.read(VERB)?;
        match list.data.as_slice() {
            [found] if is_id(&found.id) => Ok(found.id.clone()),
            [] => Err(failed("Stripe finds no payment of this attempt yet")),
            _ => Err(failed("Stripe finds more than one payment of this attempt; look at them there")),
        }
    }
}
