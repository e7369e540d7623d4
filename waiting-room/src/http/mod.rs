//! The line over HTTP, one file per route group. Handlers read the request, call one verb, and word the answer.

mod admit;
mod allowlist;
mod assets;
mod draw;
mod enter;
mod leave;
mod operator;
mod proof;
mod queue;
mod renewal;
mod sales;
mod status;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    response::{IntoResponse as _, Response},
    routing::{get, patch, post},
};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use lockgate_shared::{
    clock::Timestamp,
    credentials,
    edge::rate_limit::account_rate_limited,
    ids::SaleId,
    negotiate::accepts_gzip,
    problem::Problem,
    request::{BodyKind, read_body},
};
use serde::{Deserialize, Serialize};

use crate::{
    app::App,
    captcha::Widget,
    eligibility::NotEligible,
    prepared::Prepared,
    refusal::{CaptchaFault, ProofRequired, Refusal},
};

/// What shoppers call.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(sales::list))
        .route("/sale/{sale}", get(sales::sale))
        .route("/sale/{sale}/enter", post(enter::enter))
        .route("/sale/{sale}/queue", get(queue::queue))
        .route("/sale/{sale}/status", get(status::status))
        .route("/sale/{sale}/admit", post(admit::admit))
        .route("/sale/{sale}/leave", post(leave::leave))
        .route("/sale/{sale}/draw", get(draw::record))
        .route("/sale/{sale}/renew", post(renewal::renew))
        .route("/sale/{sale}/release", post(renewal::release))
        .route("/assets/pass.js", get(assets::pass))
        .route("/sale/{sale}/challenge", get(proof::challenge))
        .route("/assets/enter.js", get(assets::enter))
        .route("/assets/altcha-pbkdf2.js", get(assets::altcha))
        .with_state(app)
}

/// What operators call. Their key is their credential; none of it is for browsers.
pub fn operator_router(app: Arc<App>) -> Router {
    Router::new()
        .route("/operator/v1/sales", get(operator::list))
        .route("/operator/v1/sales/{sale}", get(operator::show).put(operator::apply))
        .route("/operator/v1/sales/{sale}/pause", post(operator::pause))
        .route("/operator/v1/sales/{sale}/resume", post(operator::resume))
        .route("/operator/v1/sales/{sale}/close", post(operator::close))
        .route("/operator/v1/sales/{sale}/revoke", post(operator::revoke))
        .route("/operator/v1/sales/{sale}/message", post(operator::message))
        .route("/operator/v1/sales/{sale}/draw", post(draw::draw))
        .route("/operator/v1/sales/{sale}/allowlist", post(allowlist::allow))
        .route("/operator/v1/sales/{sale}/release", post(renewal::release_by_id))
        .route("/operator/v1/sales/{sale}/proof_of_work", patch(proof::change_proof))
        .route(
            "/operator/v1/sales/{sale}/admission",
            patch(operator::admission).get(operator::show_admission),
        )
        .with_state(app)
}

/// The body of a call that needs none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoSuchSale => Self::no_such_sale(),
            Refusal::DoorsClosed(at) => doors_closed(at),
            Refusal::SaleClosed => Self::gone("sale_closed", "The sale is over."),
            Refusal::SoldOut => Self::conflict(
                "sold_out",
                "Everything is sold or held at the moment. Held items may return: keep your place if you want to wait.",
            ),
            Refusal::TicketMissing => Self::forbidden(
                "ticket_missing",
                "Enter the line first, then send `Authorization: Bearer <ticket>`.",
            ),
            Refusal::TicketInvalid => Self::forbidden(
                "ticket_invalid",
                "This is no ticket of this line. Enter the line to get one.",
            ),
            Refusal::TicketWrongSale => Self::forbidden(
                "ticket_wrong_sale",
                "This ticket is for another sale. Use the one for this sale.",
            ),
            Refusal::EligibilityMissing => {
                not_eligible("Send `eligibility`: the token the shop gives to its customers.")
                    .with("reason", "missing")
            }
            Refusal::NotEligible(NotEligible::KeyNotSetUp) => entry_unavailable(
                "The shop's tokens cannot be checked here at this moment. Keep yours and try again; if it lasts, tell \
                 the shop.",
            )
            .caused_by(&NotEligible::KeyNotSetUp),
            refused @ Refusal::NoList => entry_unavailable(
                "The list of who may enter is not there at this moment. Keep your code and try again; if it lasts, tell \
                 the shop.",
            )
            .caused_by(&refused),
            Refusal::NotEligible(why) => not_eligible(&format!(
                "The eligibility token is not accepted: {why}. Get a new one from the shop."
            ))
            .with("reason", why.reason()),
            Refusal::CodeMissing => not_eligible(
                "Send `code` and `email`: the code you were sent, and the address it was sent to.",
            ),
            Refusal::NotListed => not_eligible(
                "This code and this e-mail address are not on the sale's list together. Check both; the code is in the message you were sent.",
            ),
            Refusal::NotRenewable => Self::conflict(
                "not_renewable",
                "This admission cannot be renewed: the sale renews none, or it was given back. It is good until its end.",
            ),
            Refusal::ProofRequired(required) => proof_required(&required),
            Refusal::CaptchaRequired(why) => captcha_required(why),
            Refusal::CaptchaUnreachable => captcha_unavailable(),
            Refusal::Busy => Self::unavailable("overloaded", "Too many enter at this moment. Try again."),
            Refusal::NotYourTurn { retry_after_ms } => not_your_turn(retry_after_ms),
            Refusal::TurnMissed => Self::gone(
                "turn_missed",
                "The turn was not taken up in time, or the time inside ran out. Enter again for a new place at the end.",
            ),
            Refusal::Left => {
                Self::gone("left", "This place was given up. Enter again for a new place at the end.")
            }
            Refusal::Starting => {
                Self::unavailable("overloaded", "The line is being read. Keep your place and ask again.")
                    .retry_after(1)
            }
            Refusal::TooOften(seconds) => account_rate_limited(seconds),
            refused @ Refusal::NotForfeited(_) => Self::unavailable(
                "stock_unavailable",
                "Your admission could not be given up, because the stock cannot be reached for a moment. Your place is \
                 kept; try again.",
            )
            .caused_by(&refused),
            Refusal::Store(error) => error.into(),
            Refusal::Signing => Self::internal(),
        }
    }
}

/// The code of everything that somebody would have had to bring and did not.
const NOT_ELIGIBLE: &str = "not_eligible";
/// What whoever has to do work first is told.
pub(crate) const PROOF_REQUIRED: &str = "proof_required";

/// What whoever has to solve the CAPTCHA first is told.
pub(crate) const CAPTCHA_REQUIRED: &str = "captcha_required";
/// When to come back while the CAPTCHA's provider is out of reach.
const CAPTCHA_RETRY_SECONDS: u32 = 5;

fn doors_closed(at: Timestamp) -> Problem {
    let detail = format!("The doors open at {at}. Come back then; nobody can be earlier.");
    Problem::conflict("doors_closed", detail).with("doors_open_at", at.to_string())
}

fn not_your_turn(retry_after_ms: u64) -> Problem {
    let seconds = u32::try_from(retry_after_ms.div_ceil(1_000)).unwrap_or(u32::MAX);
    Problem::conflict("not_your_turn", "It is not your turn yet. Your place is kept.").retry_after(seconds)
}

fn proof_required(required: &ProofRequired) -> Problem {
    let detail = format!(
        "No proof of work that counts: {}. Solve `challenge` by the ALTCHA scheme and send the answer as `proof`. In \
         a browser, go back to the sale's page: it does this by itself.",
        required.why
    );
    let challenge = serde_json::to_value(&required.challenge).unwrap_or_default();
    Problem::forbidden(PROOF_REQUIRED, detail).with("challenge", challenge)
}

fn entry_unavailable(detail: &str) -> Problem {
    Problem::unavailable("entry_unavailable", detail).retry_after(5)
}

fn not_eligible(detail: &str) -> Problem {
    Problem::forbidden(NOT_ELIGIBLE, detail)
}

fn captcha_required(why: CaptchaFault) -> Problem {
    let detail = format!(
        "The CAPTCHA is not solved: {why}. Solve the one on the sale's page, and send what its widget gives as \
         `captcha`. Each response counts once."
    );
    Problem::forbidden(CAPTCHA_REQUIRED, detail)
}

fn captcha_unavailable() -> Problem {
    let detail = "The CAPTCHA cannot be verified for a moment. Try again; nothing was lost.";
    Problem::unavailable("captcha_unavailable", detail).retry_after(CAPTCHA_RETRY_SECONDS)
}

/// Reads a shopper's POST.
async fn read_post<T: serde::de::DeserializeOwned>(
    request: Request<Body>,
) -> Result<(T, BodyKind, HeaderMap), Problem> {
    let headers = request.headers().clone();
    // A credential in the wrong form is said before anything about the body.
    credentials::bearer(&headers)?;
    let (body, kind) = read_body(request).await?;
    Ok((body, kind, headers))
}

/// The ticket of a request that needs one.
fn need_ticket<'a>(headers: &'a HeaderMap, sale: &SaleId) -> Result<&'a str, Problem> {
    let name = credentials::ticket_cookie(sale);
    credentials::bearer_or_cookie(headers, &name)?.ok_or_else(|| Refusal::TicketMissing.into())
}

/// JSON that no cache may keep.
fn private_json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut text = Vec::with_capacity(JSON_BYTES);
    // Our own types always have a JSON form.
    let _ = serde_json::to_writer(&mut text, body);
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(HEADERS);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

/// A page that no cache may keep.
fn private_page(status: StatusCode, page: String) -> Response {
    let mut response = (status, page).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

/// The page that shows this widget may load what the widget's provider documents; every other keeps the edge's policy.
fn allowing(widget: Option<&Widget>, mut response: Response) -> Response {
    if let Some(widget) = widget {
        let policy = HeaderValue::from_static(widget.provider.content_security_policy());
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// 303 to a page of this site.
fn see_other(path: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::try_from(path) {
        headers.insert(header::LOCATION, location);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A shared answer in the coding the caller takes, with its tag: 304 where the caller has it already. `vary` names
/// `Accept-Encoding` too.
fn shared(
    headers: &HeaderMap,
    prepared: &Prepared,
    kind: &'static str,
    cache: &'static str,
    vary: &'static str,
) -> Response {
    let gzip = accepts_gzip(headers);
    let etag = prepared.etag(gzip);
    let mut response = if has_already(headers, etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let bytes = if gzip { prepared.gzip() } else { prepared.plain() };
        let mut response = Response::new(Body::from(bytes.clone()));
        let headers = response.headers_mut();
        headers.reserve(HEADERS);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(header::VARY, HeaderValue::from_static(vary));
    headers.insert(header::ETAG, etag.clone());
    response
}

/// Room for what an answer of ours holds, the edge's headers included: a map that grows while it is filled is
/// hashed anew each time.
const HEADERS: usize = 12;
/// Room for a personal status, or for a ticket and one.
const JSON_BYTES: usize = 1_024;

/// Whether `If-None-Match` names the tag (RFC 9110, section 13.1.2: compared weakly).
fn has_already(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let given = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    given
        .flat_map(|line| line.split(','))
        .map(|tag| tag.trim().trim_start_matches("W/"))
        .any(|tag| tag.as_bytes() == etag.as_bytes() || tag == "*")
}
