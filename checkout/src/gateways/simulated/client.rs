//! How checkout calls the simulated gateway: requests to a boxed service, its router or an HTTP client.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::Router;
use http::{HeaderMap, Method};
use lockgate_shared::{
    clock::{Clock, Timestamp},
    keys::KeyRing,
    service_call::ServiceCaller,
    service_token::ServiceSigner,
};
use serde::Serialize;

use super::{API, AUDIENCE, Answer, Message, PAGES, Stage};
use crate::{
    gateways::{
        CancelOutcome, Gateway, GatewayError, Notification, PaymentOrder, PaymentStatus, WebhookError,
        webhook,
    },
    payment::{Money, Notice, Outcome},
};

/// Longest one call may take. Longer than any latency that can be set, shorter than a request to checkout may last.
const CALL_LIMIT: Duration = Duration::from_secs(17);

/// The simulated gateway as checkout sees it.
#[derive(Clone)]
pub struct Simulated {
    caller: ServiceCaller,
    pages_url: Arc<str>,
    ring: Arc<KeyRing>,
}

impl Simulated {
    /// Over the service's own router, in the same process. `public_url` is where buyers find its pages.
    #[must_use]
    pub fn in_process(router: Router, public_url: &str, ring: Arc<KeyRing>, clock: Arc<dyn Clock>) -> Self {
        Self::new(ServiceCaller::in_process(router, signer(&ring), clock, CALL_LIMIT), public_url, ring)
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
        Ok(Self::new(ServiceCaller::over_http(base, signer(&ring), clock, CALL_LIMIT)?, public_url, ring))
    }

    fn new(caller: ServiceCaller, public_url: &str, ring: Arc<KeyRing>) -> Self {
        Self { caller, pages_url: format!("{}{PAGES}", public_url.trim_end_matches('/')).into(), ring }
    }

    async fn call<B: Serialize>(
        &self,
        verb: &'static str,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<Answer, GatewayError> {
        let failed = |cause: String| GatewayError { verb, cause };
        let (status, bytes) =
            self.caller.call(method, path, body).await.map_err(|error| failed(error.to_string()))?;
        if !status.is_success() {
            return Err(failed(status.to_string()));
        }
        serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))
    }

    fn status(&self, answer: &Answer) -> PaymentStatus {
        match (answer.outcome(), answer.state) {
            (Some(outcome), _) => PaymentStatus::Ended(outcome),
            (None, Stage::Open) => PaymentStatus::Open {
                redirect_url: format!("{}/{}", self.pages_url, answer.payment),
                reference: None,
            },
            (None, _) => PaymentStatus::Unknown,
        }
    }
}

fn signer(ring: &Arc<KeyRing>) -> Arc<ServiceSigner> {
    Arc::new(ServiceSigner::new(Arc::clone(ring), AUDIENCE))
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

    async fn cancel(&self, order: &PaymentOrder) -> Result<CancelOutcome, GatewayError> {
        let path = format!("{API}/{}/cancel", order.payment);
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

    async fn state(&self, order: &PaymentOrder) -> Result<PaymentStatus, GatewayError> {
        let path = format!("{API}/{}", order.payment);
        let answer = self.call::<()>("state", Method::GET, &path, None).await?;
        Ok(self.status(&answer))
    }

    async fn refund(&self, order: &PaymentOrder, _money: &Money) -> Result<(), GatewayError> {
        let path = format!("{API}/{}/refund", order.payment);
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
