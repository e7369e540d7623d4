//! The stock gate as its callers see it: the messages, and [`GateClient`], one boxed tower service of HTTP requests.
//!
//! Scaled out, the service is an HTTP client; in the all-in-one it is the gate's own router. There is no second
//! implementation. A refusal is a value ([`ClaimAnswer`]); [`GateError`] means the gate could not be asked or its
//! answer was lost.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::{
    clock::{Clock, Timestamp},
    ids::{AccountHash, ClaimId, ItemId, SaleId},
    limits::{INTERNAL_BODY_BYTES_MAX, STORE_CALL_MS_MAX},
    problem::Problem,
    service_token::ServiceSigner,
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
    /// Short hashes of the accounts that hold or bought, once an item is sold out (see
    /// [`AccountHash::short`]); empty before.
    pub holders: Vec<u64>,
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

/// The transport: anything that answers an HTTP request.
pub type GateService = BoxCloneSyncService<Request<axum::body::Body>, Response<axum::body::Body>, GateError>;

/// Calls the gate.
#[derive(Clone)]
pub struct GateClient {
    service: GateService,
    signer: Arc<ServiceSigner>,
    clock: Arc<dyn Clock>,
}

impl GateClient {
    /// A client over `service`, signing with `signer` (made for [`AUDIENCE`]).
    #[must_use]
    pub fn new(service: GateService, signer: Arc<ServiceSigner>, clock: Arc<dyn Clock>) -> Self {
        Self { service, signer, clock }
    }

    /// A client over the gate's own router, in the same process.
    #[must_use]
    pub fn in_process(router: axum::Router, signer: Arc<ServiceSigner>, clock: Arc<dyn Clock>) -> Self {
        let service =
            ServiceExt::<Request<axum::body::Body>>::map_err(router, |never: std::convert::Infallible| {
                match never {}
            });
        Self::new(BoxCloneSyncService::new(service), signer, clock)
    }

    /// A client over HTTP to a gate at `base` (such as `http://gate:8081`).
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn over_http(base: &str, signer: Arc<ServiceSigner>, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let client = reqwest::Client::builder()
            .timeout(Duration::from_millis(STORE_CALL_MS_MAX))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .build()
            .map_err(|error| error.to_string())?;
        let base: Arc<str> = base.trim_end_matches('/').into();
        let service = tower::service_fn(move |request| send(client.clone(), Arc::clone(&base), request));
        Ok(Self::new(BoxCloneSyncService::new(service), signer, clock))
    }

    /// Claims units. A lost answer is asked for once more with the same claim id, so that a reply lost on the way
    /// costs the buyer nothing.
    ///
    /// # Errors
    /// The gate is unavailable, or its answer was lost twice.
    pub async fn claim(&self, sale: &SaleId, claim: &ClaimRequest) -> Result<ClaimAnswer, GateError> {
        let path = format!("/gate/v1/sales/{sale}/claims");
        match self.call(Method::POST, &path, Some(claim)).await {
            Err(GateError::Unknown(_)) => self.call(Method::POST, &path, Some(claim)).await,
            answer => answer,
        }
    }

    /// Marks a hold sold.
    ///
    /// # Errors
    /// As [`GateClient::claim`]; commit is idempotent, repeat it.
    pub async fn commit(&self, sale: &SaleId, claim: ClaimId) -> Result<CommitAnswer, GateError> {
        self.call::<(), _>(Method::POST, &format!("/gate/v1/sales/{sale}/claims/{claim}/commit"), None).await
    }

    /// Gives a hold's units back.
    ///
    /// # Errors
    /// As [`GateClient::claim`]; release is idempotent, repeat it.
    pub async fn release(&self, sale: &SaleId, claim: ClaimId) -> Result<ReleaseAnswer, GateError> {
        self.call::<(), _>(Method::POST, &format!("/gate/v1/sales/{sale}/claims/{claim}/release"), None).await
    }

    /// The hold a claim made, if there is one.
    ///
    /// # Errors
    /// As [`GateClient::claim`].
    pub async fn hold(&self, sale: &SaleId, claim: ClaimId) -> Result<Option<Hold>, GateError> {
        self.call::<(), _>(Method::GET, &format!("/gate/v1/sales/{sale}/claims/{claim}"), None).await
    }

    /// The sale's counts.
    ///
    /// # Errors
    /// As [`GateClient::claim`].
    pub async fn stock(&self, sale: &SaleId) -> Result<StockSnapshot, GateError> {
        self.call::<(), _>(Method::GET, &format!("/gate/v1/sales/{sale}/stock"), None).await
    }

    async fn call<B: Serialize, A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<A, GateError> {
        let unavailable = |error: &dyn std::fmt::Display| GateError::Unavailable(error.to_string());
        let token = self.signer.token(self.clock.now()).map_err(|error| unavailable(&error))?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", token.1));
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                axum::body::Body::from(serde_json::to_vec(body).map_err(|error| unavailable(&error))?)
            }
            None => axum::body::Body::empty(),
        };
        let request = request.body(body).map_err(|error| unavailable(&error))?;
        let limit = Duration::from_millis(STORE_CALL_MS_MAX + 500);
        let response = tokio::time::timeout(limit, self.service.clone().oneshot(request))
            .await
            .map_err(|_| GateError::Unknown("no answer in time".into()))??;
        read_answer(response).await
    }
}

async fn read_answer<A: DeserializeOwned>(response: Response<axum::body::Body>) -> Result<A, GateError> {
    let status = response.status();
    let bytes = Limited::new(response.into_body(), INTERNAL_BODY_BYTES_MAX)
        .collect()
        .await
        .map_err(|error| GateError::Unknown(error.to_string()))?
        .to_bytes();
    if status.is_success() {
        return serde_json::from_slice(&bytes).map_err(|error| GateError::Unknown(error.to_string()));
    }
    let code = serde_json::from_slice::<serde_json::Value>(&bytes)
        .ok()
        .and_then(|body| body.get("code").and_then(|code| code.as_str()).map(str::to_owned))
        .unwrap_or_default();
    let words = format!("{status} {code}");
    // The gate says by its code whether a store call may have run; any other 5xx comes from in between.
    if status == StatusCode::BAD_GATEWAY || status == StatusCode::GATEWAY_TIMEOUT || code == UNKNOWN_CODE {
        Err(GateError::Unknown(words))
    } else {
        Err(GateError::Unavailable(words))
    }
}

/// The problem code by which the gate says that a call may have taken effect.
pub const UNKNOWN_CODE: &str = "outcome_unknown";

async fn send(
    client: reqwest::Client,
    base: Arc<str>,
    request: Request<axum::body::Body>,
) -> Result<Response<axum::body::Body>, GateError> {
    let (parts, body) = request.into_parts();
    let body: Bytes =
        body.collect().await.map_err(|error| GateError::Unavailable(error.to_string()))?.to_bytes();
    let answer = client
        .request(parts.method, format!("{base}{}", parts.uri))
        .headers(parts.headers)
        .body(body)
        .send()
        .await
        .map_err(|error| {
            if error.is_connect() {
                GateError::Unavailable(error.to_string())
            } else {
                GateError::Unknown(error.to_string())
            }
        })?;
    Ok(Response::from(answer).map(axum::body::Body::new))
}
