//! `GET /sale/{sale}/draw`, the public record, and `POST /operator/v1/sales/{sale}/draw`, which lets the draw be made.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use http::{HeaderMap, Request, StatusCode};
use lockgate_shared::{limits::BEACON_BYTES_MAX, problem::Problem, request::SalePath};
use serde::Deserialize;

use super::{
    operator::{self, Asked},
    private_json, shared,
};
use crate::app::{App, DrawRefusal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrawBody {
    beacon: Option<String>,
}

pub(super) async fn record(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let snapshot = app.live(&app.sale(&id)?).snapshot();
    let Some(prepared) = &snapshot.draw_bytes else {
        return Err(DrawRefusal::NoLottery.into());
    };
    // What was drawn never changes; what was not may be drawn the next second.
    let cache = if snapshot.record.is_drawn() { "public, max-age=60" } else { "public, max-age=1" };
    Ok(shared(&headers, prepared, "application/json", cache, "Accept-Encoding"))
}

pub(super) async fn draw(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (DrawBody { beacon }, Asked { by, .. }) = operator::read(&app, &id, request).await?;
    let record = app.draw(&app.sale(&id)?, beacon).await?;
    tracing::info!(target: "audit", action = "draw", %by, %id, drawn = record.drawn, "operator");
    let status = if record.drawn { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(private_json(status, &record))
}

impl From<DrawRefusal> for Problem {
    fn from(refusal: DrawRefusal) -> Self {
        let unprocessable = |code, detail: String| Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail);
        match refusal {
            DrawRefusal::NoLottery => Self::new(
                StatusCode::NOT_FOUND,
                "no_lottery",
                "This sale is first come, first served: there is no draw.",
            ),
            DrawRefusal::NotOpen(at) => Self::conflict(
                "not_open",
                format!("The draw is made when the sale opens, at {at}. People may still enter until then."),
            )
            .with("opens_at", at.to_string()),
            DrawRefusal::Closed => Self::gone("sale_closed", "The sale is over; nothing was drawn."),
            DrawRefusal::BeaconRefused => Self::conflict(
                "beacon_refused",
                "This sale's draw is made at the opening without a beacon. Leave `beacon` out.",
            ),
            DrawRefusal::BeaconMissing => unprocessable(
                "beacon_missing",
                "This sale's draw waits for a public value: send {\"beacon\": \"…\"}.".to_owned(),
            ),
            DrawRefusal::BeaconUnfit => unprocessable(
                "beacon_unfit",
                format!("A beacon is text of 1 to {BEACON_BYTES_MAX} bytes without control characters."),
            ),
            DrawRefusal::NotFrozen => Self::conflict(
                "not_frozen",
                "The pools are not frozen yet, and a beacon must be given after. Try again in a moment.",
            )
            .retry_after(1),
            DrawRefusal::BeaconGiven => Self::conflict(
                "beacon_given",
                "Another beacon was given before, and stands. Read the draw's public record.",
            ),
            DrawRefusal::Change(error) => operator::change_problem(error),
        }
    }
}
