//! `GET /sale/{sale}/challenge`, what solves one in a browser, and `PATCH /operator/v1/sales/{sale}/proof_of_work`.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{Request, StatusCode, header};
use lockgate_shared::{
    problem::Problem,
    request::SalePath,
    sale::{ProofOfWork, ProofWhen},
};
use serde::Deserialize;

use super::{
    operator::{change, read},
    private_json,
};
use crate::app::App;

pub(super) async fn challenge(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
) -> Result<Response, Problem> {
    let sale = app.sale(&id)?;
    Ok(private_json(StatusCode::OK, &app.challenge(&sale)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProofBody {
    /// Hashes on average; `null`: no work is asked for any more.
    difficulty: Option<u64>,
    when: Option<ProofWhen>,
}

/// Asks for more work, less, or none, while the sale goes on.
pub(super) async fn change_proof(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let body: ProofBody = read(&app, &id, request).await?;
    change(&app, &id, "proof_of_work", move |sale| {
        let before = sale.definition.proof_of_work.map(|asked| asked.when);
        let when = body.when.or(before).unwrap_or_default();
        sale.definition.proof_of_work = body.difficulty.map(|difficulty| ProofOfWork { difficulty, when });
    })
    .await
}

/// What the sale page runs.
pub(super) async fn script() -> Response {
    as_script(include_str!("../../web/enter.js"))
}

/// What the script has work done by. From the ALTCHA project, under its licence, which lies beside it.
pub(super) async fn worker() -> Response {
    as_script(include_str!("../../web/vendor/altcha-pbkdf2.js"))
}

fn as_script(text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/javascript; charset=utf-8"),
        (header::CACHE_CONTROL, "public, max-age=3600"),
    ];
    (headers, text).into_response()
}
