//! `GET /` and `GET /sale/{sale}`: what is sold, the same for everyone.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, header};
use lockgate_shared::{
    catalog::StoredSale,
    clock::Timestamp,
    ids::{ItemId, SaleId},
    negotiate::wants_html,
    problem::Problem,
    request::SalePath,
    sale::Item,
};
use serde::Serialize;

use super::{allowing, shared};
use crate::{
    app::App,
    pages,
    phase::{Phase, item_state, phase},
    snapshot::Snapshot,
};

#[derive(Serialize)]
struct SaleList<'a> {
    sales: Vec<SaleBrief<'a>>,
}

#[derive(Serialize)]
struct SaleBrief<'a> {
    sale: &'a SaleId,
    name: &'a str,
    phase: &'static str,
    url: String,
}

#[derive(Serialize)]
struct SaleCard<'a> {
    sale: &'a SaleId,
    name: &'a str,
    phase: &'static str,
    doors_open_at: Timestamp,
    opens_at: Timestamp,
    closes_at: Timestamp,
    queueing_method: &'static str,
    entry: &'static str,
    per_account_limit: u32,
    hold_seconds: u64,
    time_zone: Option<&'a str>,
    items: Vec<ItemCard<'a>>,
}

#[derive(Serialize)]
struct ItemCard<'a> {
    item: &'a ItemId,
    name: &'a str,
    price: i64,
    currency: &'a str,
    state: &'static str,
}

/// What the sale page depends on.
const VARY: &str = "Accept, Accept-Encoding";

/// What everyone sees may be a little old: the status says what is true now.
const CACHE: &str = "public, max-age=5";

pub(super) async fn list(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let now = app.parts.clock.now();
    let sales = app.parts.catalog.sales();
    if wants_html(&headers) {
        let sales: Vec<_> = sales.iter().map(|sale| (Arc::clone(sale), doing(&app, sale, now))).collect();
        let page = pages::sales_page(&sales);
        return cached(([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response());
    }
    let list = SaleList { sales: sales.iter().map(|sale| brief(&app, sale, now)).collect() };
    cached(Json(list).into_response())
}

pub(super) async fn sale(
    State(app): State<Arc<App>>,
    SalePath(id): SalePath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let sale = app.sale(&id)?;
    let snapshot = app.live(&sale).snapshot();
    if wants_html(&headers) {
        let page = shared(&headers, &snapshot.page_bytes, "text/html; charset=utf-8", CACHE, VARY);
        return Ok(allowing(snapshot.widget.as_deref(), page));
    }
    Ok(cached(Json(card(&snapshot, app.parts.clock.now())).into_response()))
}

fn cached(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(CACHE));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn doing(app: &App, sale: &Arc<StoredSale>, now: Timestamp) -> Phase {
    let live = app.live(sale);
    let is_drawn = live.snapshot().record.is_drawn();
    phase(&sale.definition, &sale.controls, live.stock().as_deref(), is_drawn, now)
}

fn brief<'a>(app: &App, sale: &'a Arc<StoredSale>, now: Timestamp) -> SaleBrief<'a> {
    let definition = &sale.definition;
    SaleBrief {
        sale: &definition.id,
        name: &definition.name,
        phase: doing(app, sale, now).as_str(),
        url: format!("{}/sale/{}", app.parts.public_url, definition.id),
    }
}

fn card(snapshot: &Snapshot, now: Timestamp) -> SaleCard<'_> {
    let definition = &snapshot.sale.definition;
    SaleCard {
        sale: &definition.id,
        name: &definition.name,
        phase: snapshot.phase(now).as_str(),
        doors_open_at: definition.doors_open_at,
        opens_at: definition.opens_at,
        closes_at: definition.closes_at,
        queueing_method: definition.queueing_method.as_str(),
        entry: definition.entry.as_str(),
        per_account_limit: definition.per_account_limit,
        hold_seconds: definition.hold_seconds,
        time_zone: definition.time_zone.as_deref(),
        items: definition.items.iter().map(|item| item_card(snapshot, item)).collect(),
    }
}

fn item_card<'a>(snapshot: &Snapshot, item: &'a Item) -> ItemCard<'a> {
    ItemCard {
        item: &item.item,
        name: &item.name,
        price: item.price,
        currency: &item.currency,
        state: item_state(snapshot.stock.as_deref(), &item.item),
    }
}
