//! Payments that gateways told of and no order came for.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, Request, StatusCode, Uri};
use lockgate_shared::{clock::Timestamp, ids::ClaimId, operator::Role, problem::Problem};
use serde::{Deserialize, Serialize};

use super::{acts::ReasonBody, office::query, operator::json, page};
use crate::{
    app::App,
    payment::{Outcome, PaymentId},
    refusals,
    store::office::{PARKED_PAGE_MAX, ParkedNotice, ParkedPlace},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ParkedQuery {
    after: Option<String>,
}

#[derive(Serialize)]
struct ParkedView {
    total: u64,
    parked: Vec<NoticeView>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
struct NoticeView {
    gateway: String,
    event: String,
    payment_id: PaymentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    order_id: Option<ClaimId>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<String>,
    received_at: Timestamp,
}

impl NoticeView {
    fn of(found: ParkedNotice) -> Self {
        let (received_at, gateway, event) = found.place;
        let (outcome, money) = match found.notice.outcome {
            Outcome::Paid(money) => ("paid", Some(money)),
            Outcome::RefundFailed => ("refund_failed", None),
            Outcome::Failed => ("failed", None),
            Outcome::Unpayable => ("unpayable", None),
        };
        let (amount, currency) = money.map(|money| (money.amount, money.currency)).unzip();
        let (payment_id, order_id) = (found.notice.payment, found.notice.order);
        Self { gateway, event, payment_id, order_id, outcome, amount, currency, received_at }
    }
}

fn write(place: &ParkedPlace) -> String {
    let (at, gateway, event) = place;
    URL_SAFE_NO_PAD.encode(format!("{}/{gateway}/{event}", at.micros()))
}

fn read(cursor: &str) -> Option<ParkedPlace> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let (at, rest) = text.split_once('/')?;
    let (gateway, event) = rest.split_once('/')?;
    Some((Timestamp::from_micros(at.parse().ok()?), gateway.to_owned(), event.to_owned()))
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    app.operator_keys.authorize(&headers, Role::Viewer)?;
    let ParkedQuery { after } = query(&uri)?;
    let invalid =
        || Problem::malformed("`after` is not the `next` of a page before; leave it out to begin anew.");
    let after = after.map(|text| read(&text).ok_or_else(invalid)).transpose()?;
    let found = app.parked(after.as_ref()).await?;
    let next = found.notices.last().filter(|_| found.notices.len() >= PARKED_PAGE_MAX);
    let next = next.map(|last| write(&last.place));
    let parked = found.notices.into_iter().map(NoticeView::of).collect();
    Ok(page::json(StatusCode::OK, &ParkedView { total: found.total, parked, next }))
}

#[derive(Serialize)]
struct StruckOff {
    payment_id: PaymentId,
    struck_off: u64,
}

pub(super) async fn strike_off(
    State(app): State<Arc<App>>,
    payment: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let by = app.operator_keys.authorize(request.headers(), Role::Operator)?;
    let payment_id: PaymentId =
        payment.ok().and_then(|Path(text)| text.parse().ok()).ok_or_else(refusals::nothing_parked)?;
    let reason = json::<ReasonBody>(request).await?.check()?;
    let struck_off = app.strike_off(payment_id).await?;
    tracing::info!(target: "audit", action = "strike off", %by, payment = %payment_id, struck_off, reason, "operator");
    Ok(page::json(StatusCode::OK, &StruckOff { payment_id, struck_off }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back() {
        let place = (Timestamp::from_micros(-7), "stripe".to_owned(), "evt/1".to_owned());
        assert_eq!(read(&write(&place)), Some(place));
        for bad in ["", "!", "MQ", "MS9h"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
