//! `POST /sale/{sale}/leave`.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{Request, StatusCode};
use lockgate_shared::{
    problem::Problem,
    request::{BodyKind, SalePath},
};

use super::{Nothing, need_ticket, read_post, see_other};
use crate::app::App;

pub(super) async fn leave(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let sale = app.sale(&id)?;
    let (Nothing {}, kind, headers) = read_post(request).await?;
    app.leave(&sale, need_ticket(&headers, &id)?).await?;
    Ok(match kind {
        BodyKind::Json => StatusCode::NO_CONTENT.into_response(),
        BodyKind::Form => see_other(&format!("/sale/{id}")),
    })
}
