//! `POST /sale/{sale}/enter`.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use http::{HeaderMap, Request, StatusCode, header};
use lockgate_shared::{
    catalog::StoredSale,
    credentials,
    edge::client::Caller,
    negotiate::wants_html,
    problem::Problem,
    request::{BodyKind, SalePath},
    sale::EntryRule,
};
use serde::{Deserialize, Serialize};

use super::{
    CAPTCHA_REQUIRED, NOT_ELIGIBLE, PROOF_REQUIRED, allowing, private_json, private_page, read_post,
    see_other,
};
use crate::{
    answers::{PersonalStatus, Place},
    app::{App, Entrance, ShownTicket},
    pages,
    refusal::Refusal,
};

/// What somebody brings. A proof is taken everywhere, needed or not: whoever solved a challenge just before an
/// operator stopped asking must not be refused for it. So is what a CAPTCHA's widget gives, also under the names that
/// widgets give their fields; hCaptcha's may add one for another provider's sake, which is not read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Brought {
    eligibility: Option<String>,
    code: Option<String>,
    email: Option<String>,
    proof: Option<String>,
    #[serde(alias = "cf-turnstile-response", alias = "h-captcha-response")]
    captcha: Option<String>,
    #[serde(rename = "g-recaptcha-response")]
    _unread: Option<String>,
}

impl Brought {
    /// A field that another entry rule asks for: here it is unknown.
    fn foreign_field(&self, rule: EntryRule) -> Option<&'static str> {
        let is_listed = rule == EntryRule::Allowlist;
        [
            ("eligibility", &self.eligibility, rule == EntryRule::Eligibility),
            ("code", &self.code, is_listed),
            ("email", &self.email, is_listed),
        ]
        .into_iter()
        .find_map(|(name, value, is_asked_for)| (value.is_some() && !is_asked_for).then_some(name))
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    ticket: &'a str,
    status: &'a PersonalStatus,
}

/// A ticket's cookie outlives the sale by this much, so that its end can still be told.
const AFTERWARDS_SECONDS: u64 = 86_400;

pub(super) async fn enter(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let sale = app.sale(&id)?;
    let caller = request.extensions().get::<Caller>().copied();
    let (brought, kind, headers): (Brought, _, _) = read_post(request).await?;
    if let Some(field) = brought.foreign_field(sale.definition.entry) {
        let rule = sale.definition.entry.as_str();
        return Err(Problem::malformed(format!("A sale with entry = \"{rule}\" takes no field `{field}`.")));
    }
    let cookie = credentials::ticket_cookie(&id);
    let entrance = entrance(&brought, &headers, &cookie, caller)?;
    match app.enter(&sale, entrance).await {
        Ok(place) if kind == BodyKind::Json => Ok(as_json(&place)),
        Ok(place) => Ok(as_page(&app, &sale, &cookie, &place)),
        Err(refusal) if kind == BodyKind::Form && wants_html(&headers) => refused(&app, &sale, refusal),
        Err(refusal) => Err(refusal.into()),
    }
}

fn entrance<'a>(
    brought: &'a Brought,
    headers: &'a HeaderMap,
    cookie: &str,
    caller: Option<Caller>,
) -> Result<Entrance<'a>, Problem> {
    let ticket = match credentials::bearer(headers)? {
        Some(ticket) => Some(ShownTicket::Bearer(ticket)),
        None => credentials::cookie(headers, cookie).map(ShownTicket::Cookie),
    };
    let filled = |field: &'a Option<String>| field.as_deref().filter(|text| !text.is_empty());
    Ok(Entrance {
        ticket,
        eligibility: brought.eligibility.as_deref(),
        code: brought.code.as_deref(),
        email: brought.email.as_deref(),
        entry_key: credentials::idempotency_key(headers)?,
        proof: filled(&brought.proof),
        captcha: filled(&brought.captcha),
        address: caller.map(|caller| caller.address),
        is_crowded: caller.is_some_and(|caller| caller.crowded_seconds.is_some()),
    })
}

/// What the form asked for and did not get is said beside the form; anything else on a page of its own.
fn refused(app: &App, sale: &Arc<StoredSale>, refusal: Refusal) -> Result<Response, Problem> {
    let problem = Problem::from(refusal);
    if ![NOT_ELIGIBLE, PROOF_REQUIRED, CAPTCHA_REQUIRED].contains(&problem.code) {
        return Err(problem);
    }
    let snapshot = app.live(sale).snapshot();
    let doing = snapshot.phase(app.parts.clock.now());
    let page = pages::refused_page(&snapshot, doing, problem.code);
    Ok(allowing(snapshot.widget.as_deref(), private_page(problem.status, page)))
}

fn as_json(place: &Place) -> Response {
    let status = if place.fresh { StatusCode::CREATED } else { StatusCode::OK };
    private_json(status, &Answer { ticket: &place.ticket, status: &place.status })
}

fn as_page(app: &App, sale: &StoredSale, cookie: &str, place: &Place) -> Response {
    let left = sale.definition.closes_at.since(app.parts.clock.now()).as_secs();
    let mut response = see_other(&format!("/sale/{}/queue", sale.definition.id));
    if let Some(value) = credentials::set_cookie(cookie, &place.ticket, left + AFTERWARDS_SECONDS) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
    response
}
