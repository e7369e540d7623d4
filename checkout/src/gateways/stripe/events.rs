//! PURE: what Stripe's events say.
//!
//! | event | means |
//! |---|---|
//! | `checkout.session.completed` with `paid` or `no_payment_required` | paid |
//! | `checkout.session.completed` with `unpaid` | nothing yet: a method that takes its time |
//! | `checkout.session.async_payment_succeeded` | paid |
//! | `checkout.session.async_payment_failed` | failed |
//! | `checkout.session.expired` | can never be paid |
//! | `refund.failed` of a refund that was asked for here | the money is with the shop again |
//! | anything else, and sessions that are none of ours | nothing |

use serde::Deserialize;
use serde_json::Value;

use super::{
    refunds::Refund,
    session::{Session, is_id},
};
use crate::{
    gateways::{Notification, WebhookError},
    payment::{Notice, Outcome},
};

const REFUND_FAILED: &str = "refund.failed";

#[derive(Deserialize)]
struct Event {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    livemode: bool,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    object: Value,
}

/// Reads an event whose signature was checked. `is_live` is whether real money is taken: what happens in the other mode is
/// no news of ours.
///
/// # Errors
/// It cannot be read.
pub(super) fn read(body: &[u8], is_live: bool) -> Result<Notification, WebhookError> {
    let event: Event = serde_json::from_slice(body).map_err(|_| WebhookError::Body)?;
    if !is_id(&event.id) {
        return Err(WebhookError::Body);
    }
    if event.kind == REFUND_FAILED && event.livemode == is_live {
        let refund = Refund::deserialize(event.data.object).map_err(|_| WebhookError::Body)?;
        let notice = |payment| Notice { payment, order: None, outcome: Outcome::RefundFailed };
        return Ok(Notification { event: event.id, notice: refund.payment().map(notice) });
    }
    let is_session = matches!(
        event.kind.as_str(),
        "checkout.session.completed"
            | "checkout.session.async_payment_succeeded"
            | "checkout.session.async_payment_failed"
            | "checkout.session.expired"
    );
    if !is_session || event.livemode != is_live {
        return Ok(Notification { event: event.id, notice: None });
    }
    let session = Session::deserialize(event.data.object).map_err(|_| WebhookError::Body)?;
    let notice = match session.payment() {
        None => None,
        Some(payment) => {
            outcome(&event.kind, &session)?.map(|outcome| Notice { payment, order: session.order(), outcome })
        }
    };
    Ok(Notification { event: event.id, notice })
}

fn outcome(kind: &str, session: &Session) -> Result<Option<Outcome>, WebhookError> {
    let is_paid = matches!(session.payment_status.as_str(), "paid" | "no_payment_required");
    match kind {
        "checkout.session.completed" | "checkout.session.async_payment_succeeded" if is_paid => {
            session.money().map(|money| Some(Outcome::Paid(money))).map_err(|_| WebhookError::Body)
        }
        "checkout.session.async_payment_failed" => Ok(Some(Outcome::Failed)),
        "checkout.session.expired" => Ok(Some(Outcome::Unpayable)),
        _ => Ok(None),
    }
}
