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
    operator::{change, given, read, something},
    private_json,
};
use crate::app::{App, DIFFICULTY};

pub(super) async fn challenge(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
) -> Result<Response, Problem> {
    let sale = app.sale(&id)?;
    Ok(private_json(StatusCode::OK, &app.challenge(&sale)))
}

/// What a sale that asked for no work asks for, as far as nothing else is said.
const UNLESS_SAID: ProofOfWork = ProofOfWork { difficulty: DIFFICULTY, when: ProofWhen::Always };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProofBody {
    /// Hashes on average. Left out: as it was. `null`: no work is asked for any more.
    #[serde(default, deserialize_with = "given")]
    difficulty: Option<Option<u64>>,
    #[serde(default, deserialize_with = "something")]
    when: Option<ProofWhen>,
}

/// Asks for more work, less, or none, while the sale goes on.
pub(super) async fn change_proof(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (body, asked): (ProofBody, _) = read(&app, &id, request).await?;
    if body.difficulty == Some(None) && body.when.is_some() {
        let detail = "`difficulty` null ends all work, so `when` can say nothing. Leave one of them out.";
        return Err(Problem::malformed(detail));
    }
    change(&app, &id, asked, "proof_of_work", move |sale| {
        let asked = &mut sale.definition.proof_of_work;
        *asked = match (body.difficulty, body.when) {
            (None, None) => *asked,
            (Some(None), _) => None,
            (difficulty, when) => {
                let known = asked.unwrap_or(UNLESS_SAID);
                let difficulty = difficulty.flatten().unwrap_or(known.difficulty);
                Some(ProofOfWork { difficulty, when: when.unwrap_or(known.when) })
            }
        };
    })
    .await
}
