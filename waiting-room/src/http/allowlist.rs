//! `POST /operator/v1/sales/{sale}/allowlist`: a list of `code,email`, read as it comes, checked whole, then stored.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, extract::State, response::Response};
use futures::StreamExt as _;
use http::{HeaderMap, Request, StatusCode, header};
use lockgate_shared::{
    allowlist::{Problems, Reader},
    catalog::StoredSale,
    limits::{ALLOWLIST_BYTES_MAX, ALLOWLIST_LINES_MAX, BODY_SECONDS_MAX},
    operator::Role,
    problem::Problem,
    request::SalePath,
};
use serde::Serialize;

use super::private_json;
use crate::{allowlist::Upload, app::App};

#[derive(Serialize)]
struct Answer {
    lines: u64,
    added: u64,
    unchanged: u64,
    changed: u64,
}

pub(super) async fn allow(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let by = app.parts.operator_keys.authorize(request.headers(), Role::Operator)?;
    let sale = app.sale(&id)?;
    need_csv(request.headers())?;
    let (upload, repeated) = read(&sale, request.into_body()).await?;
    let allowed = app.allow(upload).await.map_err(|error| {
        let detail =
            "The list could not be stored whole. Send it again: what is stored already does no harm.";
        Problem::unavailable("overloaded", detail).caused_by(&error)
    })?;
    let unchanged = allowed.unchanged + repeated;
    let answer = Answer {
        lines: allowed.added + unchanged + allowed.changed,
        added: allowed.added,
        unchanged,
        changed: allowed.changed,
    };
    let Answer { added, changed, .. } = answer;
    tracing::info!(target: "audit", action = "allow", %by, %id, added, unchanged, changed, "operator");
    Ok(private_json(StatusCode::OK, &answer))
}

fn need_csv(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/csv")) {
        return Ok(());
    }
    let detail = "Send text/csv in UTF-8: one code,email a line.";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
}

/// Reads and checks the whole list; nothing of its text is kept. Answers, too, how many lines only repeated others.
async fn read(sale: &StoredSale, body: Body) -> Result<(Upload<'_>, u64), Problem> {
    let mut upload = Upload::new(sale).ok_or_else(|| no_allowlist(sale))?;
    let mut reader = Reader::default();
    let mut pieces = body.into_data_stream();
    let mut bytes_read = 0;
    let limit = tokio::time::Instant::now() + Duration::from_secs(BODY_SECONDS_MAX);
    while let Some(piece) = tokio::time::timeout_at(limit, pieces.next()).await.map_err(|_| too_slow())? {
        let piece = piece.map_err(|_| {
            Problem::malformed("The list did not arrive whole. Nothing was stored; send it again.")
        })?;
        bytes_read += piece.len();
        reader.feed(&piece, &mut |row| upload.add(&row));
        if bytes_read > ALLOWLIST_BYTES_MAX || reader.lines() > ALLOWLIST_LINES_MAX {
            return Err(too_large());
        }
    }
    let repeated = reader.finish(&mut |row| upload.add(&row)).map_err(|problems| invalid(&problems))?;
    Ok((upload, repeated as u64))
}

fn no_allowlist(sale: &StoredSale) -> Problem {
    let entry = sale.definition.entry.as_str();
    let detail = format!(
        "This sale has entry = \"{entry}\", so no list is asked. Make a sale with entry = \"allowlist\" for it."
    );
    Problem::conflict("no_allowlist", detail)
}

fn too_slow() -> Problem {
    let detail =
        format!("The list took longer than {BODY_SECONDS_MAX} s. Nothing was stored; send it in parts.");
    Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", detail)
}

fn too_large() -> Problem {
    let detail = format!(
        "One request takes {ALLOWLIST_LINES_MAX} lines and {ALLOWLIST_BYTES_MAX} bytes at most. Nothing was stored; \
         send the list in parts, as `lockgate sale allowlist` does."
    );
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
}

fn invalid(problems: &Problems) -> Problem {
    let first: Vec<String> = problems
        .first
        .iter()
        .take(3)
        .map(|problem| format!("line {}: {}", problem.line, problem.message))
        .collect();
    let detail = format!("{} lines are wrong, so nothing was stored. {}", problems.total, first.join(". "));
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_allowlist", detail)
        .with("problems", serde_json::to_value(&problems.first).unwrap_or_default())
        .with("problems_total", problems.total)
}
