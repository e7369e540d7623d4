//! `/orders/{order_id}`: how it stands, paying, giving it up.

use std::sync::Arc;

use askama::Template;
use axum::{
    extract::{Query, Request, State},
    response::Response,
};
use http::{HeaderMap, StatusCode, Uri};
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
    negotiate::wants_html,
    problem::Problem,
    request::{BodyKind, OrderPath, body_kind, no_such_order, read_body},
    wording::moment_text,
};
use serde::{Deserialize, Serialize};

use super::{credentials, page};
use crate::{
    app::{App, Found, SHOW_WAIT},
    order::{EndReason, GateSide, OrderRecord, OrderState, Placement},
    payment::{Money, PaymentRecord, PaymentState},
};

/// An order as its buyer sees it. Of one that is being placed only the id may be known.
#[derive(Serialize)]
pub(super) struct OrderView {
    order_id: ClaimId,
    hold_id: ClaimId,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sale: Option<SaleId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<ItemId>,
    units: Vec<u32>,
    #[serde(flatten)]
    price: Option<Money>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cancelling: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    last_payment_failed: bool,
    /// It was paid late, and units are being looked for: none are its own yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reclaiming: bool,
    /// Money that arrived for it and was not kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refunds: Vec<RefundView>,
    /// Whether the money goes back because it came late.
    #[serde(skip)]
    was_late: bool,
    order_url: String,
    payment_url: String,
}

/// Money that goes back, or went back.
#[derive(Serialize)]
struct RefundView {
    #[serde(flatten)]
    money: Money,
    /// `refund_due` or `refunded`.
    state: &'static str,
}

fn refunds_of(order: &OrderRecord) -> Vec<RefundView> {
    let goes_back = |attempt: &&PaymentRecord| attempt.state >= PaymentState::RefundDue;
    let view = |attempt: &PaymentRecord| {
        Some(RefundView { money: attempt.paid.clone()?, state: attempt.state.as_str() })
    };
    order.payments.iter().filter(goes_back).filter_map(view).collect()
}

impl OrderView {
    fn placing(app: &App, id: ClaimId, claim: Option<Placement>) -> Self {
        let order_url = format!("{}/orders/{id}", app.public_url);
        let mut view = Self {
            order_id: id,
            hold_id: id,
            state: "placing",
            sale: None,
            item: None,
            units: Vec::new(),
            price: None,
            hold_expires_at: None,
            cancelling: false,
            last_payment_failed: false,
            reclaiming: false,
            refunds: Vec::new(),
            was_late: false,
            payment_url: format!("{order_url}/pay"),
            order_url,
        };
        if let Some(claim) = claim {
            view.sale = Some(claim.sale);
            view.item = Some(claim.item);
            view.units = claim.units;
            view.price = Some(claim.price);
            view.hold_expires_at = Some(claim.hold_expires_at);
        }
        view
    }

    pub(super) fn of(app: &App, order: OrderRecord) -> Self {
        let is_waiting = order.state == OrderState::AwaitingPayment;
        let last = order.payments.last().map(|payment| payment.state);
        let reclaiming = order.is_reclaiming();
        let refunds = refunds_of(&order);
        let was_late = matches!(order.gate, GateSide::ReleaseDue | GateSide::Released);
        Self {
            state: order.state.as_str(),
            sale: Some(order.sale),
            item: Some(order.item),
            units: if reclaiming { Vec::new() } else { order.units },
            reclaiming,
            refunds,
            was_late,
            price: Some(order.price),
            hold_expires_at: Some(order.hold_expires_at),
            cancelling: is_waiting && order.ending == Some(EndReason::Cancel),
            last_payment_failed: is_waiting && last == Some(PaymentState::Failed),
            ..Self::placing(app, order.id, None)
        }
    }

    fn found(app: &App, id: ClaimId, found: Found) -> Self {
        match found {
            Found::Order(order) => Self::of(app, *order),
            Found::Placing(claim) => Self::placing(app, id, claim.map(|claim| *claim)),
        }
    }
}

#[derive(Template)]
#[template(path = "order.html")]
struct OrderPage<'a> {
    view: &'a OrderView,
    item_name: String,
    held_until: String,
    is_payable: bool,
    is_moving: bool,
}

impl<'a> OrderPage<'a> {
    fn of(app: &App, view: &'a OrderView) -> Self {
        let sale = view.sale.as_ref().and_then(|sale| app.catalog.sale(sale));
        let zone = sale.as_ref().and_then(|sale| sale.definition.time_zone.as_deref());
        let held_until = view.hold_expires_at.map(|at| moment_text(at, zone)).unwrap_or_default();
        let name = sale
            .as_ref()
            .zip(view.item.as_ref())
            .and_then(|(sale, item)| sale.definition.item(item).map(|item| item.name.clone()));
        let is_payable = view.state == "awaiting_payment"
            && !view.cancelling
            && view.hold_expires_at.is_some_and(|at| app.now() < at);
        Self {
            item_name: name
                .unwrap_or_else(|| view.item.as_ref().map(ToString::to_string).unwrap_or_default()),
            is_moving: !is_payable
                && (view.reclaiming || matches!(view.state, "placing" | "awaiting_payment" | "refund_due")),
            held_until,
            is_payable,
            view,
        }
    }
}

#[derive(Deserialize)]
struct ShowQuery {
    key: Option<String>,
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    OrderPath(id): OrderPath,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let Query(query) = Query::<ShowQuery>::try_from_uri(&uri)
        .map_err(|_| Problem::malformed("The address's query cannot be read."))?;
    if let Some(key) = query.key {
        if !app.access.opens(id, &key) {
            return Err(no_such_order());
        }
        return page::see_other(&format!("/orders/{id}"), credentials::cookie_for(id, &key));
    }
    let grant = credentials::grant(&app, id, &headers)?;
    let view = OrderView::found(&app, id, app.order(id, &grant, SHOW_WAIT).await?);
    if wants_html(&headers) {
        page::render(&OrderPage::of(&app, &view))
    } else {
        Ok(page::json(StatusCode::OK, &view))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Checks a POST that says nothing but its address, and whether it wants a page.
async fn read_nothing(headers: &HeaderMap, request: Request) -> Result<bool, Problem> {
    let kind = body_kind(headers)?;
    read_body::<Nothing>(request).await?;
    Ok(kind == Some(BodyKind::Form) || (kind.is_none() && wants_html(headers)))
}

#[derive(Serialize)]
struct PayView {
    redirect_url: String,
}

pub(super) async fn pay(
    State(app): State<Arc<App>>,
    OrderPath(id): OrderPath,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let grant = credentials::grant(&app, id, &headers)?;
    let is_page = read_nothing(&headers, request).await?;
    let redirect_url = app.pay(id, &grant).await?;
    if is_page {
        page::see_other(&redirect_url, None)
    } else {
        Ok(page::json(StatusCode::OK, &PayView { redirect_url }))
    }
}

#[derive(Serialize)]
struct CancellingView {
    cancelling: bool,
}

pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    OrderPath(id): OrderPath,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let grant = credentials::grant(&app, id, &headers)?;
    let is_page = read_nothing(&headers, request).await?;
    let cancelled = app.cancel(id, &grant).await?;
    if is_page {
        return page::see_other(&format!("/orders/{id}"), None);
    }
    if cancelled.is_done {
        let view = OrderView::of(&app, cancelled.order);
        return Ok(page::json(StatusCode::OK, &view));
    }
    Ok(page::json(StatusCode::ACCEPTED, &CancellingView { cancelling: true }))
}
