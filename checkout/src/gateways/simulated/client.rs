//! How checkout calls the simulated gateway: requests to a boxed service, its router or an HTTP client.

use std::{convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{Router, body::Body};
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Limited};
use lockgate_shared::{
    clock::{Clock, Timestamp},
    keys::KeyRing,
    limits::INTERNAL_BODY_BYTES_MAX,
    service_token::ServiceSigner,
};
use serde::Serialize;
use tower::{ServiceExt as _, util::BoxCloneSyncService};

use super::{API, AUDIENCE, Answer, Message, PAGES, Stage};
use crate::{
    gateways::{
        CancelOutcome, Gateway, GatewayError, Notification, PaymentOrder, PaymentStatus, WebhookError,
        webhook,
    },
    payment::{Money, Notice, Outcome, PaymentId},
};

/// Longest one call may take. Longer than any latency that can be set, shorter than a request to checkout may last.
const CALL_SECONDS_MAX: u64 = 17;

type Transport = BoxCloneSyncService<Request<Body>, Response<Body>, String>;

/// The simulated gateway as checkout sees it.
#[derive(Clone)]
pub struct Simulated {
    transport: Transport,
    pages_url: Arc<str>,
    ring: Arc<KeyRing>,
    signer: Arc<ServiceSigner>,
    clock: Arc<dyn Clock>,
}

impl Simulated {
    /// Over the service's own router, in the same process. `public_url` is where buyers find its pages.
    #[must_use]
    pub fn in_process(router: Router, public_url: &str, ring: Arc<KeyRing>, clock: Arc<dyn Clock>) -> Self {
        let service = tower::ServiceExt::<Request<Body>>::map_err(router, |never: Infallible| match never {});
        Self::new(BoxCloneSyncService::new(service), public_url, ring, clock)
    }

    /// Over HTTP to a service at `base` (such as `http://gateway:8084`). `public_url` is where buyers find its pages.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn over_http(
        base: &str,
        public_url: &str,
        ring: Arc<KeyRing>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(CALL_SECONDS_MAX))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .build()
            .map_err(|error| error.to_string())?;
        let base: Arc<str> = base.trim_end_matches('/').into();
        let service = tower::service_fn(move |request| send(client.clone(), Arc::clone(&base), request));
        Ok(Self::new(BoxCloneSyncService::new(service), public_url, ring, clock))
    }

    fn new(transport: Transport, public_url: &str, ring: Arc<KeyRing>, clock: Arc<dyn Clock>) -> Self {
        Self {
            transport,
            pages_url: format!("{}{PAGES}", public_url.trim_end_matches('/')).into(),
            signer: Arc::new(ServiceSigner::new(Arc::clone(&ring), AUDIENCE)),
            ring,
            clock,
        }
    }

    async fn call<B: Serialize>(
        &self,
        verb: &'static str,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<Answer, GatewayError> {
        let failed = |cause: String| GatewayError { verb, cause };
        let token = self.signer.token(self.clock.now()).map_err(|error| failed(error.to_string()))?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", token.1));
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(serde_json::to_vec(body).map_err(|error| failed(error.to_string()))?)
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(|error| failed(error.to_string()))?;
        let limit = Duration::from_secs(CALL_SECONDS_MAX);
        let response = tokio::time::timeout(limit, self.transport.clone().oneshot(request))
            .await
            .map_err(|_| failed("no answer in time".into()))?
            .map_err(failed)?;
        let status = response.status();
        let bytes = Limited::new(response.into_body(), INTERNAL_BODY_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| failed(error.to_string()))?
            .to_bytes();
        if !status.is_success() {
            return Err(failed(status.to_string()));
        }
        serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))
    }

    fn status(&self, answer: &Answer) -> PaymentStatus {
        match (answer.outcome(), answer.state) {
            (Some(outcome), _) => PaymentStatus::Ended(outcome),
            (None, Stage::Open) => {
                PaymentStatus::Open { redirect_url: format!("{}/{}", self.pages_url, answer.payment) }
            }
            (None, _) => PaymentStatus::Unknown,
        }
    }
}

async fn send(
    client: reqwest::Client,
    base: Arc<str>,
    request: Request<Body>,
) -> Result<Response<Body>, String> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    let answer = client
        .request(parts.method, format!("{base}{}", parts.uri))
        .headers(parts.headers)
        .body(body)
        .send()
        .await
        .map_err(|error| error.to_string())?;
    Ok(Response::from(answer).map(Body::new))
}

#[async_trait]
impl Gateway for Simulated {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn start(&self, order: &PaymentOrder) -> Result<PaymentStatus, GatewayError> {
        let answer = self.call("start", Method::POST, API, Some(order)).await?;
        Ok(self.status(&answer))
    }

    async fn cancel(&self, payment: PaymentId) -> Result<CancelOutcome, GatewayError> {
        let path = format!("{API}/{payment}/cancel");
        let answer = self.call::<()>("cancel", Method::POST, &path, None).await?;
        match answer.outcome() {
            Some(Outcome::Paid(money)) => Ok(CancelOutcome::Paid(money)),
            Some(Outcome::Unpayable) => Ok(CancelOutcome::Unpayable),
            _ => Err(GatewayError {
                verb: "cancel",
                cause: format!("the payment is {}", answer.state.as_str()),
            }),
        }
    }

    async fn state(&self, payment: PaymentId) -> Result<PaymentStatus, GatewayError> {
        let path = format!("{API}/{payment}");
        let answer = self.call::<()>("state", Method::GET, &path, None).await?;
        Ok(self.status(&answer))
    }

    async fn refund(&self, payment: PaymentId, _money: &Money) -> Result<(), GatewayError> {
        let path = format!("{API}/{payment}/refund");
        let answer = self.call::<()>("refund", Method::POST, &path, None).await?;
        if answer.state == Stage::Refunded {
            return Ok(());
        }
        Err(GatewayError { verb: "refund", cause: format!("the payment is {}", answer.state.as_str()) })
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<Notification, WebhookError> {
        let secrets = self.ring.usable().map(|key| &key.simulated_webhook()[..]);
        let event = webhook::verify(secrets, headers, body, now)?;
        let message: Message = serde_json::from_slice(body).map_err(|_| WebhookError::Body)?;
        let outcome = match (message.kind.as_str(), message.price) {
            ("payment.paid", Some(price)) => Outcome::Paid(price),
            ("payment.failed", _) => Outcome::Failed,
            ("payment.paid", None) => return Err(WebhookError::Body),
            _ => return Ok(Notification { event, notice: None }),
        };
        let payment = message.payment.ok_or(WebhookError::Body)?;
        Ok(Notification { event, notice: Some(Notice { payment, order: message.order, outcome }) })
    }
}
