//! Units for a buyer who paid in time and was heard of late: the messages.

use serde::{Deserialize, Serialize};

use super::{GateClient, GateError};
use crate::ids::{ClaimId, SaleId};
use http::Method;

/// How a reclaim ended. What was answered once about a claim is answered for ever, so that a call that is repeated,
/// or arrives late, takes no unit for a buyer whose money is on its way back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ReclaimAnswer {
    /// The units are sold to the claim, now or already: its own where all were free, else as many others of the item.
    Reclaimed {
        /// The unit numbers, ascending.
        units: Vec<u32>,
    },
    /// Too few units are free, or the sale sells no more.
    SoldOut,
    /// The account may not have so many.
    LimitReached {
        /// Units the account may have at most.
        limit: u32,
        /// Units it holds or has bought.
        taken: u32,
    },
    /// The gate has no such claim.
    NoSuchClaim,
}

impl GateClient {
    /// Has a claim's units sold to it although it may have been released: its own, or others of the item.
    ///
    /// # Errors
    /// As [`GateClient::claim`]; reclaim is idempotent, repeat it.
    pub async fn reclaim(&self, sale: &SaleId, claim: ClaimId) -> Result<ReclaimAnswer, GateError> {
        self.call::<(), _>(Method::POST, sale, &format!("/claims/{claim}/reclaim"), None).await
    }
}
