//! `/operator/v1/sales…`: seeing and changing sales. Every change goes through the catalog and is logged.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use lockgate_shared::{
    catalog::{Applied, ApplyError, ChangeError, StoredSale},
    clock::Timestamp,
    ids::SaleId,
    limits::SALE_FILE_BYTES_MAX,
    operator::{Actor, Role},
    problem::Problem,
    request::{BodyKind, SalePath, body_kind, read_body, read_bytes},
    sale::{ProofOfWork, SaleDefinition, SaleProblem, parse_json},
};
use serde::{Deserialize, Serialize};

use super::{Nothing, private_json};
use crate::{
    admission::Bound,
    app::App,
    phase::{Phase, phase},
};

#[derive(Serialize)]
struct SaleView<'a> {
    sale: &'a SaleId,
    name: &'a str,
    version: u64,
    phase: &'static str,
    paused: bool,
    closed: bool,
    epoch: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    rate_per_minute: u64,
    burst: u64,
    turn_seconds: u64,
    token_seconds: u64,
    entered: u64,
    waiting: u64,
    now_serving: u64,
    expired_through: u64,
    admission: AdmissionView,
    #[serde(skip_serializing_if = "Option::is_none")]
    proof_of_work: Option<ProofOfWork>,
    created_at: Timestamp,
}

/// How people are let in, and why not faster.
#[derive(Serialize)]
struct AdmissionView {
    rate_per_minute: u64,
    burst: u64,
    max_active: Option<u64>,
    over_admission: Option<f64>,
    turn_seconds: u64,
    token_seconds: u64,
    now_serving: u64,
    active: u64,
    pending_turns: u64,
    no_show_share: f64,
    winnable: Option<u64>,
    /// Left out while the line has not acted on the last change yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_by: Option<&'static str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageBody {
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdmissionBody {
    #[serde(default, deserialize_with = "something")]
    rate_per_minute: Option<u64>,
    #[serde(default, deserialize_with = "something")]
    burst: Option<u64>,
    #[serde(default, deserialize_with = "something")]
    turn_seconds: Option<u64>,
    #[serde(default, deserialize_with = "something")]
    token_seconds: Option<u64>,
    /// Left out: as it was. `null`: none.
    #[serde(default, deserialize_with = "given")]
    max_active: Option<Option<u64>>,
}

/// A field that is left out or holds something: there is nothing `null` could take away.
pub(super) fn something<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer)?.map(Some).ok_or_else(|| {
        serde::de::Error::custom("null says nothing here; leave the field out to keep what is set")
    })
}

/// A field that is there, be it `null`.
pub(super) fn given<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

type Answer = Result<Response, Problem>;

pub(super) async fn list(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer {
    app.parts.operator_keys.authorize(&headers, Role::Viewer)?;
    let sales = app.parts.catalog.sales();
    let views: Vec<SaleView<'_>> = sales.iter().map(|sale| view(&app, sale)).collect();
    Ok(private_json(StatusCode::OK, &serde_json::json!({ "sales": views })))
}

pub(super) async fn show(State(app): State<Arc<App>>, SalePath(id): SalePath, headers: HeaderMap) -> Answer {
    app.parts.operator_keys.authorize(&headers, Role::Viewer)?;
    let sale = app.sale(&id)?;
    Ok(tagged(private_json(StatusCode::OK, &sale.definition), &sale))
}

pub(super) async fn apply(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Answer {
    let by = app.parts.operator_keys.authorize(request.headers(), Role::Operator)?;
    let (expected, is_dry_run) = (if_match(request.headers())?, is_dry_run(&request)?);
    let definition = read_definition(&app, &id, request).await?;
    need_if_match(&app, &id, expected)?;
    // Without a version this can only make the sale: another may have been made in this moment.
    let expected = Some(expected.unwrap_or(0));
    if is_dry_run {
        let would_be = app.parts.catalog.rehearse(&definition, expected).await.map_err(apply_problem)?;
        return Ok(private_json(StatusCode::OK, &would_be.sale().definition));
    }
    let applied = app.parts.catalog.apply(definition, expected).await.map_err(apply_problem)?;
    let (status, done) = match &applied {
        Applied::Created(_) => (StatusCode::CREATED, "created"),
        Applied::Changed(_) => (StatusCode::OK, "changed"),
        Applied::Unchanged(_) => (StatusCode::OK, "unchanged"),
    };
    let sale = applied.sale();
    tracing::info!(target: "audit", action = "apply", %by, %id, version = sale.version, done, "operator");
    Ok(tagged(private_json(status, &sale.definition), sale))
}

pub(super) async fn pause(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Answer {
    control(&app, &id, request, "pause", |sale| sale.controls.paused = true).await
}

pub(super) async fn resume(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Answer {
    control(&app, &id, request, "resume", |sale| sale.controls.paused = false).await
}

pub(super) async fn close(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Answer {
    control(&app, &id, request, "close", |sale| sale.controls.closed = true).await
}

pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Answer {
    let raise = |sale: &mut StoredSale| sale.controls.epoch = sale.controls.epoch.saturating_add(1);
    control(&app, &id, request, "revoke", raise).await
}

pub(super) async fn message(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Answer {
    let (body, asked): (MessageBody, _) = read(&app, &id, request).await?;
    let message = body.message.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    change(&app, &id, asked, "message", move |sale| {
        sale.controls.message.clone_from(&message);
    })
    .await
}

pub(super) async fn admission(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Answer {
    let (body, asked): (AdmissionBody, _) = read(&app, &id, request).await?;
    change(&app, &id, asked, "admission", move |sale| {
        patch(&mut sale.definition.admission, &body);
    })
    .await
}

/// How people are let in at this moment, and why not faster.
pub(super) async fn show_admission(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    headers: HeaderMap,
) -> Answer {
    app.parts.operator_keys.authorize(&headers, Role::Viewer)?;
    let sale = app.sale(&id)?;
    Ok(private_json(StatusCode::OK, &admission_view(&app, &sale)))
}

fn patch(admission: &mut lockgate_shared::sale::Admission, body: &AdmissionBody) {
    admission.rate_per_minute = body.rate_per_minute.unwrap_or(admission.rate_per_minute);
    admission.burst = body.burst.or(admission.burst);
    admission.max_active = body.max_active.unwrap_or(admission.max_active);
    admission.turn_seconds = body.turn_seconds.unwrap_or(admission.turn_seconds);
    admission.token_seconds = body.token_seconds.unwrap_or(admission.token_seconds);
}

/// Reads the body of a call that changes something, once the key allows it and the sale is there, and the version it
/// is meant for, if it names one.
pub(super) async fn read<T: serde::de::DeserializeOwned>(
    app: &App,
    id: &SaleId,
    request: Request<Body>,
) -> Result<(T, Asked), Problem> {
    let by = app.parts.operator_keys.authorize(request.headers(), Role::Operator)?;
    app.sale(id)?;
    let expected = if_match(request.headers())?;
    match read_body(request).await? {
        (body, BodyKind::Json) => Ok((body, Asked { by, expected })),
        (_, BodyKind::Form) => Err(json_only()),
    }
}

/// Who asks for a change, and of which version of the sale.
pub(super) struct Asked {
    pub(super) by: Actor,
    expected: Option<u64>,
}

fn json_only() -> Problem {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "Send application/json.")
}

async fn control(
    app: &App,
    id: &SaleId,
    request: Request<Body>,
    action: &'static str,
    change_to: impl FnMut(&mut StoredSale) + Send,
) -> Answer {
    let (Nothing {}, asked) = read(app, id, request).await?;
    change(app, id, asked, action, change_to).await
}

/// Changes a sale; with `expected`, only that version of it. An act says what becomes of single settings, so it needs
/// no version: two of them do not undo one another.
pub(super) async fn change(
    app: &App,
    id: &SaleId,
    Asked { by, expected }: Asked,
    action: &'static str,
    mut change_to: impl FnMut(&mut StoredSale) + Send,
) -> Answer {
    let mut is_other = false;
    let change_expected = |sale: &mut StoredSale| {
        is_other = expected.is_some_and(|expected| expected != sale.version);
        if !is_other {
            change_to(sale);
        }
    };
    let sale = app.parts.catalog.change(id, change_expected).await.map_err(change_problem)?;
    if is_other {
        return Err(apply_problem(ApplyError::Conflict { current: Some(sale.version) }));
    }
    tracing::info!(target: "audit", action, %by, %id, version = sale.version, "operator");
    Ok(tagged(private_json(StatusCode::OK, &view(app, &sale)), &sale))
}

async fn read_definition(app: &App, id: &SaleId, request: Request<Body>) -> Result<SaleDefinition, Problem> {
    let (parts, body) = request.into_parts();
    if body_kind(&parts.headers)? != Some(BodyKind::Json) {
        return Err(json_only());
    }
    let bytes = read_bytes(body, SALE_FILE_BYTES_MAX).await?;
    let definition = parse_json(&bytes).map_err(|problems| invalid(&problems))?;
    let mut problems = Vec::new();
    if definition.id != *id {
        let remedy = format!("write \"{id}\", or send it to the address of {}", definition.id);
        problems.push(SaleProblem::new("id", &definition.id, "is not the sale of this address", remedy));
    }
    problems.extend(app.key_problems(&definition));
    if problems.is_empty() { Ok(definition) } else { Err(invalid(&problems)) }
}

/// Whether the call only asks what would happen. Anything else in the query is refused: a misspelt dry run must not
/// change a sale.
fn is_dry_run(request: &Request<Body>) -> Result<bool, Problem> {
    match request.uri().query() {
        None | Some("" | "dry_run=false") => Ok(false),
        Some("dry_run=true") => Ok(true),
        Some(_) => {
            Err(Problem::malformed("This address takes one query, dry_run=true: check without changing."))
        }
    }
}

/// A sale that exists is changed only by whoever has read it.
fn need_if_match(app: &App, id: &SaleId, expected: Option<u64>) -> Result<(), Problem> {
    if expected.is_some() || app.sale(id).is_err() {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::PRECONDITION_REQUIRED,
        "if_match_missing",
        "This sale exists. Read it, and send its ETag as If-Match, so that nobody's change is overwritten.",
    ))
}

/// The version `If-Match` names: one strong tag, as `ETag` gave it.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    let tag = value.to_str().ok().and_then(|text| text.strip_prefix('"')?.strip_suffix('"')?.parse().ok());
    tag.map(Some).ok_or_else(|| {
        Problem::malformed(
            "If-Match must be the ETag this address gave, such as \"3\" with its quotation marks.",
        )
    })
}

fn tagged(mut response: Response, sale: &StoredSale) -> Response {
    if let Ok(tag) = HeaderValue::try_from(format!("\"{}\"", sale.version)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn view<'a>(app: &App, sale: &'a Arc<StoredSale>) -> SaleView<'a> {
    let snapshot = app.live(sale).snapshot();
    let (definition, controls) = (&sale.definition, &sale.controls);
    SaleView {
        sale: &definition.id,
        name: &definition.name,
        version: sale.version,
        phase: phase_now(app, sale).as_str(),
        paused: controls.paused,
        closed: controls.closed,
        epoch: controls.epoch,
        message: controls.message.as_deref(),
        rate_per_minute: definition.admission.rate_per_minute,
        burst: definition.admission.burst_in_force(),
        turn_seconds: definition.admission.turn_seconds,
        token_seconds: definition.admission.token_seconds,
        entered: snapshot.entered_by_lane.iter().sum(),
        waiting: snapshot.status.waiting,
        now_serving: snapshot.record.now_serving,
        expired_through: snapshot.record.expired_through,
        admission: admission_view(app, sale),
        proof_of_work: definition.proof_of_work,
        created_at: sale.created_at,
    }
}

fn phase_now(app: &App, sale: &Arc<StoredSale>) -> Phase {
    let live = app.live(sale);
    let (is_drawn, now) = (live.snapshot().record.is_drawn(), app.parts.clock.now());
    phase(&sale.definition, &sale.controls, live.stock().as_deref(), is_drawn, now)
}

fn admission_view(app: &App, sale: &Arc<StoredSale>) -> AdmissionView {
    let live = app.live(sale);
    let (figures, record) = (live.figures(), &live.snapshot().record);
    let admission = &sale.definition.admission;
    AdmissionView {
        rate_per_minute: admission.rate_per_minute,
        burst: admission.burst_in_force(),
        max_active: admission.max_active,
        over_admission: admission.over_admission,
        turn_seconds: admission.turn_seconds,
        token_seconds: admission.token_seconds,
        now_serving: record.now_serving,
        active: figures.active,
        pending_turns: figures.pending_turns,
        no_show_share: record.no_show_share(),
        winnable: figures.winnable,
        bound_by: Some(record.bound)
            .filter(|bound| bound.belongs_to(phase_now(app, sale)))
            .map(Bound::as_str),
    }
}

fn invalid(problems: &[SaleProblem]) -> Problem {
    let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let detail = format!("The sale definition has {} problems. {}", problems.len(), words.join("; "));
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_sale", detail)
        .with("problems", serde_json::to_value(problems).unwrap_or_default())
}

fn apply_problem(error: ApplyError) -> Problem {
    match error {
        ApplyError::Invalid(problems) | ApplyError::Fixed(problems) => invalid(&problems),
        ApplyError::Conflict { current } => {
            let detail = "The sale is not in the version If-Match names: somebody else has changed it. Nothing was \
                          changed by this. Read it again and repeat the change.";
            Problem::new(StatusCode::PRECONDITION_FAILED, "version_mismatch", detail)
                .with("current_version", current)
        }
        ApplyError::Unreadable(_) => Problem::conflict("sale_unreadable", error.to_string()),
        ApplyError::TooMany => Problem::conflict("too_many_sales", error.to_string()),
        ApplyError::Busy => Problem::unavailable("overloaded", error.to_string()),
        ApplyError::Store(error) => error.into(),
    }
}

pub(super) fn change_problem(error: ChangeError) -> Problem {
    match error {
        ChangeError::NoSuchSale(_) => Problem::no_such_sale(),
        ChangeError::Invalid(problems) => invalid(&problems),
        ChangeError::Unreadable(_) => Problem::conflict("sale_unreadable", error.to_string()),
        ChangeError::Busy => Problem::unavailable("overloaded", error.to_string()),
        ChangeError::Store(error) => error.into(),
    }
}
