//! The routes. Only Lockgate's own services may call them: every request carries a service token.

mod claims;
mod rebuild;
mod stock;

use std::sync::Arc;

use axum::{
    Router,
    extract::{FromRequestParts, RawPathParams, Request, State},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use lockgate_shared::{credentials, gate, ids::ClaimId, problem::Problem, service_token};

use crate::app::App;

/// The gate's routes over `app`.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/gate/v1/sales/{sale}/claims", post(claims::claim))
        .route("/gate/v1/sales/{sale}/claims/{claim}", get(claims::hold))
        .route("/gate/v1/sales/{sale}/claims/{claim}/commit", post(claims::commit))
        .route("/gate/v1/sales/{sale}/claims/{claim}/release", post(claims::release))
        .route("/gate/v1/sales/{sale}/claims/{claim}/reclaim", post(claims::reclaim))
        .route("/gate/v1/sales/{sale}/forfeit", post(claims::forfeit))
        .route("/gate/v1/sales/{sale}/stock", get(stock::stock))
        .route("/gate/v1/sales/{sale}/restock", post(stock::restock))
        .route("/gate/v1/sales/{sale}/freeze", post(rebuild::freeze))
        .route("/gate/v1/sales/{sale}/holds", get(rebuild::holds))
        .route("/gate/v1/sales/{sale}/stage", post(rebuild::stage))
        .route("/gate/v1/sales/{sale}/conclude", post(rebuild::conclude))
        .route_layer(from_fn_with_state(Arc::clone(&app), authorize))
        .with_state(app)
}

/// The `{claim}` segment. Anything that is no claim id is a claim that does not exist.
pub(crate) struct ClaimPath(pub(crate) ClaimId);

impl<S: Send + Sync> FromRequestParts<S> for ClaimPath {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, state).await.ok();
        let claim = params.and_then(|params| {
            let (_, text) = params.iter().find(|(name, _)| *name == "claim")?;
            text.parse().ok()
        });
        claim.map(Self).ok_or_else(|| {
            Problem::new(
                StatusCode::NOT_FOUND,
                "no_such_claim",
                "A claim's address ends in its id, a UUID of 36 characters.",
            )
        })
    }
}

async fn authorize(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match check_service(&app, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            let is_missing = problem.status == StatusCode::UNAUTHORIZED;
            let mut response = problem.into_response();
            if is_missing {
                let scheme = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            }
            response
        }
    }
}

fn check_service(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    let token = credentials::bearer(headers)?.ok_or_else(|| {
        Problem::new(
            StatusCode::UNAUTHORIZED,
            "service_token_missing",
            "The stock gate answers Lockgate's own services only. Send a service token as Bearer.",
        )
    })?;
    service_token::verify(token, &app.ring, gate::AUDIENCE, app.clock.now()).map_err(|error| {
        Problem::forbidden(
            "service_token_invalid",
            "This service token is not accepted. Check that both services use one key ring and that their clocks agree.",
        )
        .caused_by(&error)
    })
}

#[cfg(test)]
mod tests;
