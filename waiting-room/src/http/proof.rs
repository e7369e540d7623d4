//! `GET /sale/{sale}/challenge`, and `PATCH /operator/v1/sales/{sale}/proof_of_work`.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use http::{Request, StatusCode};
use lockgate_shared::{
    problem::Problem,
    request::SalePath,
    sale::{ProofOfWork, ProofWhen},
};
use serde::Deserialize;

use super::{
    operator::{change, given, read},
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
    /// Hashes on average. Left out: as it was. `null`: no work is asked for any more.
    #[serde(default, deserialize_with = "given")]
    difficulty: Option<Option<u64>>,
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
        let before = sale.definition.proof_of_work;
        let difficulty = body.difficulty.unwrap_or(before.map(|asked| asked.difficulty));
        let when = body.when.or(before.map(|asked| asked.when)).unwrap_or_default();
        sale.definition.proof_of_work = difficulty.map(|difficulty| ProofOfWork { difficulty, when });
    })
    .await
}
