//! PURE: Checkout Sessions: what one is asked for with, and what one that came back means.

use std::collections::HashMap;

use lockgate_shared::ids::ClaimId;
use serde::Deserialize;

use super::amounts::{from_stripe, to_stripe};
use crate::{
    gateways::PaymentOrder,
    payment::{Money, PaymentId},
};

/// Seconds a session lives on after its hold. Stripe wants at least 30 minutes from the moment it is asked, which may be
/// the hold's last, by clocks that differ.
const AFTER_HOLD_SECONDS: u64 = 3_600;
/// Longest life of a session in seconds. Stripe's is 24 hours; this leaves it some minutes of difference between clocks,
/// and it is shorter than Stripe remembers idempotency keys.
const LIFE_SECONDS_MAX: u64 = 23 * 3_600;
/// Longest id or address of Stripe's that is believed, in bytes.
const TEXT_BYTES_MAX: usize = 8_192;
/// Longest id of Stripe's, in bytes.
const ID_BYTES_MAX: usize = 255;
/// Under which our payment's id stands in the metadata.
pub(super) const PAYMENT_KEY: &str = "lockgate_payment";
/// Under which our order's id stands there.
pub(super) const ORDER_KEY: &str = "lockgate_order";

/// The form that asks for a session. It follows from what is stored and from nothing else: Stripe answers the same
/// session to the same key only if the form is the same.
///
/// # Errors
/// The price cannot be said to Stripe.
pub(super) fn form(
    order: &PaymentOrder,
    payment_methods: &[String],
) -> Result<Vec<(String, String)>, String> {
    let last = order.expires_at.max(order.started_at).plus_seconds(AFTER_HOLD_SECONDS);
    let expires_at = last.min(order.started_at.plus_seconds(LIFE_SECONDS_MAX));
    let (payment, id) = (order.payment.to_string(), order.order.to_string());
    let price = "line_items[0][price_data]";
    let mut form = vec![
        ("mode".to_owned(), "payment".to_owned()),
        ("client_reference_id".to_owned(), payment.clone()),
        (format!("metadata[{PAYMENT_KEY}]"), payment.clone()),
        (format!("metadata[{ORDER_KEY}]"), id.clone()),
        (format!("payment_intent_data[metadata][{PAYMENT_KEY}]"), payment),
        (format!("payment_intent_data[metadata][{ORDER_KEY}]"), id),
        ("line_items[0][quantity]".to_owned(), "1".to_owned()),
        (format!("{price}[currency]"), order.price.currency.to_ascii_lowercase()),
        (format!("{price}[unit_amount]"), to_stripe(&order.price)?.to_string()),
        (format!("{price}[product_data][name]"), order.description.clone()),
        ("success_url".to_owned(), order.return_url.clone()),
        ("cancel_url".to_owned(), order.return_url.clone()),
        ("expires_at".to_owned(), expires_at.seconds().to_string()),
    ];
    for (n, method) in payment_methods.iter().enumerate() {
        form.push((format!("payment_method_types[{n}]"), method.clone()));
    }
    Ok(form)
}

/// A session, as far as it is read. Everything else in it may change with Stripe's versions.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    #[serde(default)]
    pub(super) status: Option<String>,
    #[serde(default)]
    pub(super) payment_status: String,
    #[serde(default)]
    pub(super) amount_total: Option<i64>,
    #[serde(default)]
    pub(super) currency: Option<String>,
    #[serde(default)]
    pub(super) url: Option<String>,
    #[serde(default)]
    pub(super) payment_intent: Option<Expandable>,
    #[serde(default)]
    pub(super) metadata: Option<HashMap<String, String>>,
}

/// Something of Stripe's that is named, or shown where that was asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Expandable {
    Named(String),
    Shown(Intent),
}

/// A PaymentIntent: the attempt to take the money, behind a session.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Intent {
    pub(super) id: String,
    #[serde(default)]
    pub(super) status: String,
}

/// What a session means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It can be paid there.
    Open { url: String },
    /// It can never be paid.
    Expired,
    /// The money is there.
    Paid(Money),
    /// The buyer is through; the money takes its time or will not come.
    Pending,
    /// The buyer is through, and the money will not come.
    Failed,
}

/// Whether it is an id as Stripe makes them, that may stand in an address.
pub(super) fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.len() <= ID_BYTES_MAX && text.bytes().all(is_plain)
}

impl Session {
    /// What it means.
    ///
    /// # Errors
    /// It is not the form of one.
    pub(super) fn standing(&self) -> Result<Standing, String> {
        match (self.status.as_deref(), self.payment_status.as_str()) {
            (Some("open"), _) => {
                let is_address = |url: &&String| {
                    url.len() <= TEXT_BYTES_MAX && (url.starts_with("https://") || url.starts_with("http://"))
                };
                let url = self.url.as_ref().filter(is_address);
                url.cloned()
                    .map(|url| Standing::Open { url })
                    .ok_or_else(|| "it is open without an address".to_owned())
            }
            (Some("expired"), _) => Ok(Standing::Expired),
            // Nothing to pay is paid: if it should not have been free, the amount tells.
            (Some("complete"), "paid" | "no_payment_required") => self.money().map(Standing::Paid),
            (Some("complete"), _) => Ok(match &self.payment_intent {
                Some(Expandable::Shown(intent)) if is_hopeless(&intent.status) => Standing::Failed,
                _ => Standing::Pending,
            }),
            (status, _) => Err(format!("its status is '{}'", status.unwrap_or_default())),
        }
    }

    /// What it asks for, or took.
    pub(super) fn money(&self) -> Result<Money, String> {
        let money = self.amount_total.zip(self.currency.as_deref());
        money
            .and_then(|(amount, currency)| from_stripe(amount, currency))
            .ok_or_else(|| "its amount cannot be read".to_owned())
    }

    /// The PaymentIntent behind it, if there is one.
    pub(super) fn intent(&self) -> Option<&str> {
        self.payment_intent.as_ref().map(|intent| match intent {
            Expandable::Named(id) | Expandable::Shown(Intent { id, .. }) => id.as_str(),
        })
    }

    fn noted<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.metadata.as_ref()?.get(key)?.parse().ok()
    }

    /// The payment it is for; `None` if it is none of ours.
    pub(super) fn payment(&self) -> Option<PaymentId> {
        self.noted(PAYMENT_KEY)
    }

    /// The order it is for.
    pub(super) fn order(&self) -> Option<ClaimId> {
        self.noted::<uuid::Uuid>(ORDER_KEY).map(ClaimId::from)
    }
}

/// Behind a session whose buyer is through, these bring no money any more.
fn is_hopeless(status: &str) -> bool {
    matches!(status, "canceled" | "requires_payment_method")
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
