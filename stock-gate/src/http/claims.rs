//! Claims and what becomes of their holds.

use std::sync::Arc;

use axum::{Json, body::Body, extract::State};
use http::{Request, StatusCode};
use lockgate_shared::{
    gate::{
        ClaimAnswer, ClaimRequest, CommitAnswer, ForfeitAnswer, ForfeitRequest, Hold, ReclaimAnswer,
        ReleaseAnswer,
    },
    problem::Problem,
    request::{BodyKind, SalePath, read_body},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::ClaimPath;
use crate::app::App;

/// The body of a call that needs nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

pub(super) async fn claim(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    request: Request<Body>,
) -> Result<Json<ClaimAnswer>, Problem> {
    let claim: ClaimRequest = json(request).await?;
    app.claim(&sale, claim).await.map(Json)
}

pub(super) async fn commit(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    ClaimPath(claim): ClaimPath,
    request: Request<Body>,
) -> Result<Json<CommitAnswer>, Problem> {
    json::<Nothing>(request).await?;
    app.commit(&sale, claim).await.map(Json)
}

pub(super) async fn release(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    ClaimPath(claim): ClaimPath,
    request: Request<Body>,
) -> Result<Json<ReleaseAnswer>, Problem> {
    json::<Nothing>(request).await?;
    app.release(&sale, claim).await.map(Json)
}

pub(super) async fn reclaim(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    ClaimPath(claim): ClaimPath,
    request: Request<Body>,
) -> Result<Json<ReclaimAnswer>, Problem> {
    json::<Nothing>(request).await?;
    app.reclaim(&sale, claim).await.map(Json)
}

pub(super) async fn forfeit(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    request: Request<Body>,
) -> Result<Json<ForfeitAnswer>, Problem> {
    let ForfeitRequest { token_id } = json(request).await?;
    app.forfeit(&sale, &token_id).await.map(Json)
}

pub(super) async fn hold(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    ClaimPath(claim): ClaimPath,
) -> Result<Json<Option<Hold>>, Problem> {
    app.hold(&sale, claim).await.map(Json)
}

/// Services speak JSON; forms are for shoppers' pages.
pub(super) async fn json<T: DeserializeOwned>(request: Request<Body>) -> Result<T, Problem> {
    match read_body(request).await? {
        (value, BodyKind::Json) => Ok(value),
        (_, BodyKind::Form) => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "Send application/json.",
        )),
    }
}
