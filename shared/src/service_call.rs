//! Calls from one Lockgate service to another: JSON over a boxed tower service, signed with a service token.
//!
//! Scaled out, the service is an HTTP client; in the all-in-one it is the other's own router. Either way it is the same
//! requests, so there is no second implementation to keep in step.

use std::{convert::Infallible, fmt::Display, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use serde::Serialize;
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::{clock::Clock, limits::INTERNAL_BODY_BYTES_MAX, service_token::ServiceSigner};

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The other service was not reached.
    #[error("not reached: {0}")]
    Unreached(String),
    /// The call may have been carried out; its answer was lost.
    #[error("answer lost: {0}")]
    Lost(String),
}

fn unreached(error: impl Display) -> CallError {
    CallError::Unreached(error.to_string())
}

fn lost(error: impl Display) -> CallError {
    CallError::Lost(error.to_string())
}

/// The transport: anything that answers an HTTP request.
pub type Transport = BoxCloneSyncService<Request<Body>, Response<Body>, CallError>;

/// Calls one service.
#[derive(Clone)]
pub struct ServiceCaller {
    transport: Transport,
    signer: Arc<ServiceSigner>,
    clock: Arc<dyn Clock>,
    limit: Duration,
}

impl ServiceCaller {
    /// A caller over any transport; each call may take as long as `limit`.
    #[must_use]
    pub fn new(
        transport: Transport,
        signer: Arc<ServiceSigner>,
        clock: Arc<dyn Clock>,
        limit: Duration,
    ) -> Self {
        Self { transport, signer, clock, limit }
    }

    /// A caller over the other service's own router, in the same process.
    #[must_use]
    pub fn in_process(
        router: Router,
        signer: Arc<ServiceSigner>,
        clock: Arc<dyn Clock>,
        limit: Duration,
    ) -> Self {
        let service = ServiceExt::<Request<Body>>::map_err(router, |never: Infallible| match never {});
        Self::new(BoxCloneSyncService::new(service), signer, clock, limit)
    }

    /// A caller over HTTP to a service at `base`, such as `http://gate:8081`.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn over_http(
        base: &str,
        signer: Arc<ServiceSigner>,
        clock: Arc<dyn Clock>,
        limit: Duration,
    ) -> Result<Self, String> {
        // A driver that resends by itself, or follows where it is sent, would know nothing of claim ids.
        let client = reqwest::Client::builder()
            .timeout(limit)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .build()
            .map_err(|error| error.to_string())?;
        let base: Arc<str> = base.trim_end_matches('/').into();
        let service = tower::service_fn(move |request| send(client.clone(), Arc::clone(&base), request));
        Ok(Self::new(BoxCloneSyncService::new(service), signer, clock, limit))
    }

    /// Sends `body` and answers status and bytes, whatever the status is.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn call<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let token = self.signer.token(self.clock.now()).map_err(unreached)?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", token.1));
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(serde_json::to_vec(body).map_err(unreached)?)
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(unreached)?;
        let answered = async {
            let response = self.transport.clone().oneshot(request).await?;
            let status = response.status();
            let body =
                Limited::new(response.into_body(), INTERNAL_BODY_BYTES_MAX).collect().await.map_err(lost)?;
            Ok((status, body.to_bytes()))
        };
        tokio::time::timeout(self.limit, answered).await.map_err(|_| lost("no answer in time"))?
    }
}

async fn send(
    client: reqwest::Client,
    base: Arc<str>,
    request: Request<Body>,
) -> Result<Response<Body>, CallError> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(unreached)?.to_bytes();
    let answer = client
        .request(parts.method, format!("{base}{}", parts.uri))
        .headers(parts.headers)
        .body(body)
        .send()
        .await
        .map_err(|error| if error.is_connect() { unreached(error) } else { lost(error) })?;
    Ok(Response::from(answer).map(Body::new))
}
