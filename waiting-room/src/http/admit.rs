//! `POST /sale/{sale}/admit`: redeem, by its public name.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use http::{Request, StatusCode, header};
use lockgate_shared::{
    credentials,
    problem::Problem,
    request::{BodyKind, SalePath},
};

use super::{Nothing, need_ticket, private_json, read_post, see_other};
use crate::{answers::Admitted, app::App, refusal::Refusal};

pub(super) async fn admit(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let sale = app.sale(&id)?;
    let (Nothing {}, kind, headers) = read_post(request).await?;
    let answer = app.redeem(&sale, need_ticket(&headers, &id)?).await;
    if kind == BodyKind::Json {
        return Ok(private_json(StatusCode::OK, &answer?));
    }
    match answer {
        Ok(admitted) => {
            Ok(to_checkout(&app, &credentials::token_cookie(&id), &format!("/sale/{id}/checkout"), &admitted))
        }
        // The queue page says what is the matter, and what can be done.
        Err(
            Refusal::NotYourTurn { .. }
            | Refusal::TurnMissed
            | Refusal::Left
            | Refusal::SoldOut
            | Refusal::SaleClosed,
        ) => Ok(see_other(&format!("/sale/{id}/queue"))),
        Err(refusal) => Err(refusal.into()),
    }
}

pub(super) fn to_checkout(app: &App, cookie: &str, page: &str, admitted: &Admitted) -> Response {
    let seconds = admitted.expires_at.since(app.parts.clock.now()).as_secs();
    let mut response = see_other(page);
    if let Some(value) = credentials::set_cookie(cookie, &admitted.token, seconds) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
    response
}
