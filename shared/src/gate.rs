//! The stock gate as its callers see it: the messages, and [`GateClient`], which calls it.
//!
//! A refusal is a value ([`ClaimAnswer`]); [`GateError`] means the gate could not be asked or its
//! answer was lost.

mod frozen;
pub mod ledger;
mod rebuild;
mod reclaim;
mod restock;

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    clock::{Clock, Timestamp},
    ids::{AccountHash, ClaimId, ItemId, SaleId, TokenId},
    limits::STORE_CALL_MS_MAX,
    problem::Problem,
    service_call::{CallError, ServiceCaller, Transport},
    service_token::ServiceSigner,
};

pub use self::{
    frozen::FrozenSales,
    rebuild::{
        AccountLine, ConcludeAnswer, ConcludeRequest, Freeze, FreezeAnswer, FreezeRequest, HoldsPage,
        ItemLine, ReturnedUnit, StageAnswer, StageRequest,
    },
    reclaim::ReclaimAnswer,
    restock::{RestockAnswer, RestockRequest},
};

/// The audience of service tokens for the gate.
pub const AUDIENCE: &str = "stock-gate";

/// A claim: `quantity` units of `item` for `account`, all or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The claim's id; the same id is the same claim for ever.
    pub claim: ClaimId,
    /// Who claims.
    pub account: AccountHash,
    /// What is claimed.
    pub item: ItemId,
    /// How many units.
    pub quantity: u32,
    /// The revocation epoch of the token that allows the claim.
    pub epoch: u32,
    /// When the admission was given, in seconds since the Unix epoch: the token's `iat`.
    pub admitted_at: i64,
    /// The id of the token that allows the claim: its `jti`.
    pub token_id: TokenId,
    /// The caller's own record, kept with the hold and handed on in the event; the gate never reads it.
    pub memo: String,
}

/// How a claim ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ClaimAnswer {
    /// The units are held: now, or by the same claim before (whatever became of them since).
    Held {
        /// The hold as the claim made it.
        hold: Hold,
        /// Whether the claim had been made before.
        replayed: bool,
    },
    /// Fewer units are free than were claimed.
    SoldOut {
        /// Whether held units may yet come back.
        may_return: bool,
    },
    /// The account may not have so many.
    LimitReached {
        /// Units the account may have at most.
        limit: u32,
        /// Units it holds or has bought.
        taken: u32,
    },
    /// The account has as many live holds as it may have at a time.
    LiveHoldsReached {
        /// Holds the account may have live at most.
        limit: u32,
        /// Holds it has live.
        live: u32,
    },
    /// The account let as many holds run out, under the admission it claims by, as the sale allows.
    LineUpAgain {
        /// Holds that ran out.
        abandoned: u32,
    },
    /// The admission it claims by was given up.
    Forfeited,
    /// The sale is not open for claims.
    NotOpen,
    /// The token's epoch is over.
    Revoked,
    /// The sale has no such item.
    NoSuchItem,
}

/// Where a hold stands. `Held` -> `Expiring` -> `Committed` or `Released`, each at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldState {
    /// Held for the buyer.
    Held,
    /// Past its deadline; still held until the order has decided.
    Expiring,
    /// Sold.
    Committed,
    /// Given back.
    Released,
}

/// A hold on units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The claim that made it.
    pub claim: ClaimId,
    /// Whose it is.
    pub account: AccountHash,
    /// The item.
    pub item: ItemId,
    /// The unit numbers, ascending.
    pub units: Vec<u32>,
    /// Where it stands.
    pub state: HoldState,
    /// When it was made, by the store's clock.
    pub claimed_at: Timestamp,
    /// When it falls due, by the store's clock.
    pub deadline: Timestamp,
    /// The caller's own record.
    pub memo: String,
}

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum CommitAnswer {
    /// The units are sold, now or already.
    Committed,
    /// The hold had been released; its units may be somebody else's.
    Released,
    /// The gate has no such claim.
    NoSuchClaim,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ReleaseAnswer {
    /// The units are free, now or already.
    Released,
    /// The hold had been committed: its units are sold.
    Committed,
    /// The gate has no such claim.
    NoSuchClaim,
}

/// An admission that is given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForfeitRequest {
    /// The id of its token.
    pub token_id: TokenId,
}

/// How giving an admission up ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ForfeitAnswer {
    /// It is given up, now or before: no new claim is made by it.
    Forfeited,
}

/// The counts of one item. Always `available + held + sold = stock`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemStock {
    /// The item.
    pub item: ItemId,
    /// Units on sale.
    pub stock: u32,
    /// Units nobody has.
    pub available: u32,
    /// Units held.
    pub held: u32,
    /// Units sold.
    pub sold: u32,
}

/// All counts of a sale, read in one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockSnapshot {
    /// The items, in the order of the sale file.
    pub items: Vec<ItemStock>,
    /// Units that may still be claimed under the sale-wide limit; `None` without one.
    pub total_left: Option<u32>,
    /// Short hashes of the accounts that have ever claimed, once an item is sold out (see [`AccountHash::short`]);
    /// empty before. They are still let through to the gate, which answers a repeated claim as it did the first time.
    pub claimants: Vec<u64>,
    /// Whether there are more than [`CLAIMANTS_MAX`](crate::limits::CLAIMANTS_MAX), so that none are listed and nobody can be refused by this.
    pub too_many_claimants: bool,
}

impl StockSnapshot {
    /// The counts of one item.
    #[must_use]
    pub fn item(&self, item: &ItemId) -> Option<&ItemStock> {
        self.items.iter().find(|stock| &stock.item == item)
    }

    /// Whether nothing can be claimed of `item` at this moment.
    #[must_use]
    pub fn sold_out(&self, item: &ItemStock) -> bool {
        item.available == 0 || self.total_left == Some(0)
    }

    /// Whether nothing at all can be claimed at this moment.
    #[must_use]
    pub fn all_sold_out(&self) -> bool {
        self.items.iter().all(|item| self.sold_out(item))
    }

    /// Whether units that are held could yet return to the sale.
    #[must_use]
    pub fn may_return(&self) -> bool {
        self.items.iter().any(|item| item.held > 0)
    }
}

/// The gate could not be asked, or its answer was lost.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The gate did not do it: closed for a moment, frozen or not reached.
    #[error("the stock gate refused for a moment: {0}")]
    Unavailable(String),
    /// The gate did not do it: the sale is closed until its stock is rebuilt.
    #[error("the sale is frozen until its stock is rebuilt (generation {0})")]
    Frozen(u64),
    /// The gate may have done it. Ask again with the same id.
    #[error("the stock gate's answer was lost: {0}")]
    Unknown(String),
}

impl From<GateError> for Problem {
    fn from(error: GateError) -> Self {
        let detail =
            "The stock cannot be reached for a moment. Keep your place and try again with the same key.";
        Problem::unavailable("stock_unavailable", detail).caused_by(&error)
    }
}

/// Calls the gate.
#[derive(Clone)]
pub struct GateClient {
    caller: ServiceCaller,
    frozen: Arc<FrozenSales>,
}

/// Longest one call may take: the gate's own store call, and the way there and back.
const CALL_LIMIT: Duration = Duration::from_millis(STORE_CALL_MS_MAX + 500);

impl GateClient {
    /// A client over any transport, signing with `signer` (made for [`AUDIENCE`]).
    #[must_use]
    pub fn new(transport: Transport, signer: Arc<ServiceSigner>, clock: Arc<dyn Clock>) -> Self {
        Self::over(ServiceCaller::new(transport, signer, clock, CALL_LIMIT))
    }

    /// A client over the gate's own router, in the same process.
    #[must_use]
    pub fn in_process(router: axum::Router, signer: Arc<ServiceSigner>, clock: Arc<dyn Clock>) -> Self {
        Self::over(ServiceCaller::in_process(router, signer, clock, CALL_LIMIT))
    }

    /// A client over HTTP to a gate at `base` (such as `http://gate:8081`).
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn over_http(base: &str, signer: Arc<ServiceSigner>, clock: Arc<dyn Clock>) -> Result<Self, String> {
        Ok(Self::over(ServiceCaller::over_http(base, signer, clock, CALL_LIMIT)?))
    }

    fn over(caller: ServiceCaller) -> Self {
        Self { caller, frozen: Arc::default() }
    }

    /// The sales that answers said are frozen; clones share them.
    #[must_use]
    pub fn frozen(&self) -> &FrozenSales {
        &self.frozen
    }

    /// Claims units. A lost answer is asked for once more with the same claim id, so that a reply lost on the way
    /// costs the buyer nothing.
    ///
    /// # Errors
    /// The gate is unavailable, or its answer was lost twice.
    pub async fn claim(&self, sale: &SaleId, claim: &ClaimRequest) -> Result<ClaimAnswer, GateError> {
        match self.call(Method::POST, sale, "/claims", Some(claim)).await {
            Err(GateError::Unknown(_)) => self.call(Method::POST, sale, "/claims", Some(claim)).await,
            answer => answer,
        }
    }

    /// Marks a hold sold.
    ///
    /// # Errors
    /// As [`GateClient::claim`]; commit is idempotent, repeat it.
    pub async fn commit(&self, sale: &SaleId, claim: ClaimId) -> Result<CommitAnswer, GateError> {
        self.call::<(), _>(Method::POST, sale, &format!("/claims/{claim}/commit"), None).await
    }

    /// Gives a hold's units back.
    ///
    /// # Errors
    /// As [`GateClient::claim`]; release is idempotent, repeat it.
    pub async fn release(&self, sale: &SaleId, claim: ClaimId) -> Result<ReleaseAnswer, GateError> {
        self.call::<(), _>(Method::POST, sale, &format!("/claims/{claim}/release"), None).await
    }

    /// Gives an admission up: once this is answered, nothing new is claimed by its token. What was claimed before
    /// stands. A lost answer is asked for once more.
    ///
    /// # Errors
    /// As [`GateClient::claim`]; forfeit is idempotent, repeat it.
    pub async fn forfeit(&self, sale: &SaleId, token_id: &TokenId) -> Result<ForfeitAnswer, GateError> {
        let request = ForfeitRequest { token_id: token_id.clone() };
        match self.call(Method::POST, sale, "/forfeit", Some(&request)).await {
            Err(GateError::Unknown(_)) => self.call(Method::POST, sale, "/forfeit", Some(&request)).await,
            answer => answer,
        }
    }

    /// Changes an item's stock. A lost answer is asked for once more with the same id.
    ///
    /// # Errors
    /// As [`GateClient::claim`]; restock is idempotent by its id, repeat it.
    pub async fn restock(&self, sale: &SaleId, request: &RestockRequest) -> Result<RestockAnswer, GateError> {
        match self.call(Method::POST, sale, "/restock", Some(request)).await {
            Err(GateError::Unknown(_)) => self.call(Method::POST, sale, "/restock", Some(request)).await,
            answer => answer,
        }
    }

    /// The hold a claim made, if there is one.
    ///
    /// # Errors
    /// As [`GateClient::claim`].
    pub async fn hold(&self, sale: &SaleId, claim: ClaimId) -> Result<Option<Hold>, GateError> {
        self.call::<(), _>(Method::GET, sale, &format!("/claims/{claim}"), None).await
    }

    /// The sale's counts.
    ///
    /// # Errors
    /// As [`GateClient::claim`].
    pub async fn stock(&self, sale: &SaleId) -> Result<StockSnapshot, GateError> {
        self.call::<(), _>(Method::GET, sale, "/stock", None).await
    }

    /// Calls `path` under the sale's address, such as `/claims`.
    async fn call<B: Serialize, A: DeserializeOwned>(
        &self,
        method: Method,
        sale: &SaleId,
        path: &str,
        body: Option<&B>,
    ) -> Result<A, GateError> {
        let path = format!("/gate/v1/sales/{sale}{path}");
        let (status, bytes) = self.caller.call(method, &path, body).await?;
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(|error| GateError::Unknown(error.to_string()));
        }
        let problem = serde_json::from_slice::<serde_json::Value>(&bytes).unwrap_or_default();
        let code = problem.get("code").and_then(|code| code.as_str()).unwrap_or_default();
        if code == FROZEN_CODE {
            let generation = problem.get("generation").and_then(serde_json::Value::as_u64).unwrap_or(0);
            self.frozen.note(sale, Some(generation));
            return Err(GateError::Frozen(generation));
        }
        let words = format!("{status} {code}");
        // The gate says by its code whether a store call may have run; any other 5xx comes from in between.
        if status == StatusCode::BAD_GATEWAY || status == StatusCode::GATEWAY_TIMEOUT || code == UNKNOWN_CODE
        {
            Err(GateError::Unknown(words))
        } else {
            Err(GateError::Unavailable(words))
        }
    }
}

/// The problem code by which the gate says that a sale is closed until its stock is rebuilt.
pub const FROZEN_CODE: &str = "stock_frozen";
/// The problem code by which the gate says that a call may have taken effect.
pub const UNKNOWN_CODE: &str = "outcome_unknown";

impl From<CallError> for GateError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unreached(words) => Self::Unavailable(words),
            CallError::Lost(words) => Self::Unknown(words),
        }
    }
}
