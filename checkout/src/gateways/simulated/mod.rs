//! The simulated payment gateway: a sale can be tried and tested without a provider.
//!
//! - [`Service`]: the gateway's own little service, with a hosted page to pay on, an API, signed webhooks that are
//!   sent until they arrive, and knobs to make it misbehave. What it knows survives the process.
//! - [`Simulated`]: how checkout calls it, over HTTP or its router in the same process.

mod behaviour;
mod client;
mod ledger;
mod pages;
mod sender;
mod service;

pub use self::{
    behaviour::Behaviour,
    client::Simulated,
    service::{Service, ServiceParts},
};

/// The audience of service tokens for the gateway.
pub const AUDIENCE: &str = "simulated-gateway";
/// Where the hosted pages stand.
pub(crate) const PAGES: &str = "/simulated-gateway/pay";
/// Where the API stands.
pub(crate) const API: &str = "/simulated-gateway/v1/payments";

use serde::{Deserialize, Serialize};

use crate::payment::{Money, Outcome, PaymentId};

/// Where a payment stands at the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    Unknown,
    Open,
    Paid,
    Failed,
    Cancelled,
    Refunded,
}

impl Stage {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Open => "open",
            Self::Paid => "paid",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Refunded => "refunded",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Open, Self::Paid, Self::Failed, Self::Cancelled, Self::Refunded]
            .into_iter()
            .find(|stage| stage.as_str() == word)
    }
}

/// What the API answers about a payment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) payment: PaymentId,
    pub(crate) state: Stage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) paid: Option<Money>,
}

impl Answer {
    /// What the answer means to an order; `None` while it is open or unknown.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match (self.state, &self.paid) {
            (Stage::Paid | Stage::Refunded, Some(money)) => Some(Outcome::Paid(money.clone())),
            (Stage::Failed, _) => Some(Outcome::Failed),
            (Stage::Cancelled, _) => Some(Outcome::Unpayable),
            _ => None,
        }
    }
}

/// The body of a webhook.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) payment: Option<PaymentId>,
    #[serde(default)]
    pub(crate) order: Option<lockgate_shared::ids::ClaimId>,
    #[serde(default)]
    pub(crate) price: Option<Money>,
}
