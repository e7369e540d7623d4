//! `POST /sale/{sale}/renew` and `/release`: for shops that keep a checkout of their own behind the waiting room.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{Request, StatusCode};
use lockgate_shared::{
    admission_check::check,
    admission_token::AdmissionToken,
    catalog::StoredSale,
    credentials,
    ids::{AccountHash, SaleId},
    problem::Problem,
    request::{BodyKind, SalePath},
};
use serde::Deserialize;

use super::{
    Nothing,
    admit::to_checkout,
    operator::{self, Asked},
    private_json, read_post, see_other,
};
use crate::app::App;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseBody {
    account: AccountHash,
    token_id: String,
}

pub(super) async fn renew(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (sale, token, kind) = read_admission(&app, &id, request).await?;
    let admitted = app.renew(&sale, &token).await?;
    Ok(match kind {
        BodyKind::Json => private_json(StatusCode::OK, &admitted),
        BodyKind::Form => {
            to_checkout(&app, &credentials::token_cookie(&id), &format!("/sale/{id}/checkout"), &admitted)
        }
    })
}

pub(super) async fn release(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (sale, token, kind) = read_admission(&app, &id, request).await?;
    app.forfeit(&sale, &token).await?;
    Ok(match kind {
        BodyKind::Json => StatusCode::NO_CONTENT.into_response(),
        BodyKind::Form => see_other(&format!("/sale/{id}")),
    })
}

/// The admission a request without a body is about.
async fn read_admission(
    app: &App,
    id: &SaleId,
    request: Request<Body>,
) -> Result<(Arc<StoredSale>, AdmissionToken, BodyKind), Problem> {
    let sale = app.sale(id)?;
    let (Nothing {}, kind, headers) = read_post(request).await?;
    let token = check(&headers, &sale, &app.parts.ring, app.parts.clock.now())?;
    Ok((sale, token, kind))
}

/// By the ids a verifier of tokens knows, with an operator's key.
pub(super) async fn release_by_id(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (body, Asked { by, .. }): (ReleaseBody, _) = operator::read(&app, &id, request).await?;
    let sale = app.sale(&id)?;
    if app.forfeit_by_id(&sale, body.account, &body.token_id).await? {
        tracing::info!(target: "audit", action = "release", %by, %id, account = %body.account, "operator");
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let detail = "This account holds no live admission of this id. It has ended already, or never was.";
    Err(Problem::new(StatusCode::NOT_FOUND, "no_such_admission", detail))
}
