//! What operators do to orders, and the anomalies they look at.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Query, State},
    response::Response,
};
use http::{HeaderMap, Request, StatusCode, Uri};
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, SaleId},
    limits::REASON_CHARS_MAX,
    operator::Role,
    problem::Problem,
    request::{OrderPath, SalePath},
};
use serde::{Deserialize, Serialize};

use super::{operator::json, page};
use crate::{
    app::App,
    order::{OrderRecord, OrderState},
    payment::{Money, PaymentId},
    refusals,
    store::{ANOMALIES_PAGE_MAX, AnomalyRecord},
};

/// Why an operator acts: it goes into the audit log.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReasonBody {
    reason: String,
}

impl ReasonBody {
    /// The reason as it is written down.
    pub(super) fn check(self) -> Result<String, Problem> {
        let reason = self.reason.trim();
        let count = reason.chars().count();
        if !(1..=REASON_CHARS_MAX).contains(&count) || !reason.chars().all(may_stand_in_a_line) {
            return Err(Problem::malformed(format!(
                "'reason' must be 1 to {REASON_CHARS_MAX} characters on one line; it has {count}."
            )));
        }
        Ok(reason.to_owned())
    }
}

/// Control characters, line and paragraph separators and what turns the direction of writing would make a line of the
/// log look like others.
fn may_stand_in_a_line(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// An order as an operator finds it after an act.
#[derive(Serialize)]
struct ActView {
    order_id: ClaimId,
    sale: SaleId,
    state: &'static str,
    units: Vec<u32>,
    #[serde(flatten)]
    price: Money,
    /// Whether nothing is left to do.
    settled: bool,
}

fn answer(order: OrderRecord) -> Response {
    let settled = !order.is_unsettled();
    let status = if settled { StatusCode::OK } else { StatusCode::ACCEPTED };
    let view = ActView {
        order_id: order.id,
        sale: order.sale,
        state: order.state.as_str(),
        units: order.units,
        price: order.price,
        settled,
    };
    page::json(status, &view)
}

pub(super) async fn refund(
    State(app): State<Arc<App>>,
    order: Result<OrderPath, Problem>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let by = app.operator_keys.authorize(request.headers(), Role::Operator)?;
    let OrderPath(id) = order.map_err(|_| refusals::no_such_order())?;
    let reason = json::<ReasonBody>(request).await?.check()?;
    Ok(answer(app.refund_order(id, by, &reason).await?))
}

pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    order: Result<OrderPath, Problem>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let by = app.operator_keys.authorize(request.headers(), Role::Operator)?;
    let OrderPath(id) = order.map_err(|_| refusals::no_such_order())?;
    let reason = json::<ReasonBody>(request).await?.check()?;
    Ok(answer(app.cancel_order(id, by, &reason).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    after: Option<u64>,
}

#[derive(Serialize)]
struct AnomaliesView {
    sale: SaleId,
    anomalies: Vec<AnomalyView>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

#[derive(Serialize)]
struct AnomalyView {
    number: u64,
    order_id: ClaimId,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_id: Option<PaymentId>,
    kind: String,
    detail: String,
    found_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    order_state: Option<&'static str>,
}

impl AnomalyView {
    fn of(found: AnomalyRecord) -> Self {
        Self {
            number: found.number,
            order_id: found.order,
            payment_id: found.payment,
            kind: found.kind,
            detail: found.detail,
            found_at: found.found_at,
            order_state: found.state.map(OrderState::as_str),
        }
    }
}

pub(super) async fn anomalies(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    sale: Result<SalePath, Problem>,
    uri: Uri,
) -> Result<Response, Problem> {
    app.operator_keys.authorize(&headers, Role::Viewer)?;
    let SalePath(sale) = sale?;
    app.catalog.sale(&sale).ok_or_else(Problem::no_such_sale)?;
    let Query(PageQuery { after }) = Query::try_from_uri(&uri)
        .map_err(|_| Problem::malformed("The query takes 'after', the number of the last anomaly seen."))?;
    let found = app.anomalies(&sale, after).await?;
    let is_last = found.len() < ANOMALIES_PAGE_MAX;
    let next = found.last().filter(|_| !is_last).map(|last| last.number);
    let anomalies = found.into_iter().map(AnomalyView::of).collect();
    Ok(page::json(StatusCode::OK, &AnomaliesView { sale, anomalies, next }))
}
