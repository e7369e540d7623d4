//! Payment gateways behind one trait. Everything is keyed by our own payment id, so that whatever was asked can be
//! asked again after a lost answer.

pub mod simulated;
pub mod stripe;
pub mod webhook;

use async_trait::async_trait;
use http::HeaderMap;
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, SaleId},
    problem::Problem,
};
use serde::{Deserialize, Serialize};

use crate::payment::{Money, Notice, Outcome, PaymentId};

pub use self::webhook::WebhookError;

/// An attempt as the gateway is to open it. Everything in it follows from what is stored, so that it is asked for in the
/// same words however often, by whichever process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaymentOrder {
    /// The attempt.
    pub payment: PaymentId,
    /// The order it pays.
    pub order: ClaimId,
    /// What is asked for.
    pub price: Money,
    /// What the buyer reads.
    pub description: String,
    /// Where the buyer returns to.
    pub return_url: String,
    /// Until when the units are held.
    pub expires_at: Timestamp,
    /// When the attempt was made.
    pub started_at: Timestamp,
    /// The gateway's own name for the attempt, once it was opened and if the gateway has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// What a gateway knows of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaymentStatus {
    /// Nothing.
    Unknown,
    /// It may still be paid.
    Open {
        /// Where the buyer pays.
        redirect_url: String,
        /// The gateway's own name for the attempt, if it has one; it is kept and comes back in
        /// [`PaymentOrder::reference`].
        reference: Option<String>,
    },
    /// It is over.
    Ended(Outcome),
}

/// What came of making an attempt unpayable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It can never be paid any more, not even by a start that is still on its way.
    Unpayable,
    /// It had been paid.
    Paid(Money),
}

/// The gateway could not be asked or its answer was lost. Ask again.
#[derive(Debug, thiserror::Error)]
#[error("the payment gateway failed at {verb}: {cause}")]
pub struct GatewayError {
    /// What was asked.
    pub verb: &'static str,
    /// What went wrong.
    pub cause: String,
}

impl From<GatewayError> for Problem {
    fn from(error: GatewayError) -> Self {
        let detail = "The payment service cannot be reached for a moment. Your units stay held; try again.";
        Self::unavailable("payment_unavailable", detail).caused_by(&error)
    }
}

/// A signed message of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The gateway's id of the message; a repeated message carries the same.
    pub event: String,
    /// What it says about a payment; `None` when it is about something else.
    pub notice: Option<Notice>,
}

/// A payment gateway.
#[async_trait]
pub trait Gateway: Send + Sync {
    /// Its name, under which its messages are stored.
    fn name(&self) -> &'static str;

    /// Why it takes no money for a sale at all; then nothing of it may be claimed either.
    fn refuses(&self, _sale: &SaleId) -> Option<String> {
        None
    }

    /// Opens an attempt, or answers what became of it if it was opened before. [`PaymentStatus::Unknown`]: it can never
    /// be opened, and no answer before this one said where to pay it.
    ///
    /// # Errors
    /// The gateway failed; the attempt may be open.
    async fn start(&self, order: &PaymentOrder) -> Result<PaymentStatus, GatewayError>;

    /// Makes an attempt unpayable for ever, whether it was opened or not.
    ///
    /// # Errors
    /// The gateway failed; the attempt may still be payable.
    async fn cancel(&self, order: &PaymentOrder) -> Result<CancelOutcome, GatewayError>;

    /// What became of an attempt.
    ///
    /// # Errors
    /// The gateway failed.
    async fn state(&self, order: &PaymentOrder) -> Result<PaymentStatus, GatewayError>;

    /// Gives the money of an attempt back, once however often it is asked.
    ///
    /// # Errors
    /// The gateway failed; the money may have gone back.
    async fn refund(&self, order: &PaymentOrder, money: &Money) -> Result<(), GatewayError>;

    /// Checks that a webhook comes from the gateway and reads it.
    ///
    /// # Errors
    /// It does not, or cannot be read.
    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<Notification, WebhookError>;
}
