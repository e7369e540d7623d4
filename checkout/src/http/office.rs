//! The back office's routes: feed, search, export.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Query, State},
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use lockgate_shared::{
    clock::Timestamp,
    ids::{AccountHash, ClaimId, ItemId, SaleId},
    operator::Role,
    problem::Problem,
    request::SalePath,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{operator::json, page};
use crate::{
    app::{App, ExportFormat},
    office::OfficeOrder,
    order::OrderState,
    store::office::{CHANGES_PAGE_MAX, FOUND_PAGE_MAX, OrderChange, Search},
};

/// Entries of a page, unless the reader asks for another number.
const LIMIT_DEFAULT: usize = 100;

pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let read = Query::<T>::try_from_uri(uri);
    read.map(|Query(query)| query).map_err(|error| {
        Problem::malformed(format!("The address's query cannot be read: {}.", error.body_text()))
    })
}

/// The sale, for whoever may look.
pub(super) fn viewed(
    app: &App,
    headers: &HeaderMap,
    sale: Result<SalePath, Problem>,
) -> Result<SaleId, Problem> {
    app.operator_keys.authorize(headers, Role::Viewer)?;
    let SalePath(sale) = sale?;
    app.catalog.sale(&sale).ok_or_else(Problem::no_such_sale)?;
    Ok(sale)
}

fn limit(given: Option<usize>, most: usize) -> Result<usize, Problem> {
    match given {
        None => Ok(LIMIT_DEFAULT),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(limit) => {
            Err(Problem::malformed(format!("`limit` is {limit}; give a number from 1 to {most}.")))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FeedQuery {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct FeedView {
    sale: SaleId,
    changes: Vec<ChangeView>,
    next: String,
    more: bool,
}

#[derive(Serialize)]
struct ChangeView {
    change: &'static str,
    at: Timestamp,
    units: Vec<u32>,
    order: OfficeOrder,
}

impl ChangeView {
    fn of(change: OrderChange) -> Self {
        let order = OfficeOrder::from(&change.order);
        Self { change: change.state.as_str(), at: change.at, units: change.units, order }
    }
}

pub(super) async fn feed(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    sale: Result<SalePath, Problem>,
    uri: Uri,
) -> Result<Response, Problem> {
    let sale = viewed(&app, &headers, sale)?;
    let FeedQuery { after, limit: given } = query(&uri)?;
    let found = app.feed(&sale, after.as_deref(), limit(given, CHANGES_PAGE_MAX)?).await?;
    let changes = found.changes.into_iter().map(ChangeView::of).collect();
    Ok(page::json(StatusCode::OK, &FeedView { sale, changes, next: found.next, more: found.has_more }))
}

/// What is looked for, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchFields {
    state: Option<String>,
    email: Option<String>,
    account: Option<AccountHash>,
    item: Option<ItemId>,
    unit: Option<u32>,
    order: Option<ClaimId>,
    after: Option<ClaimId>,
    limit: Option<usize>,
}

impl SearchFields {
    fn read(self) -> Result<(Search, Option<ClaimId>, usize), Problem> {
        let state = self.state.as_deref().map(|word| {
            OrderState::parse(word).ok_or_else(|| {
                let known: Vec<&str> = OrderState::ALL.iter().map(|state| state.as_str()).collect();
                Problem::malformed(format!("`state` is none of {}.", known.join(", ")))
            })
        });
        if self.email.as_deref().is_some_and(|email| email.chars().any(char::is_control)) {
            return Err(Problem::malformed("`email` holds control characters, which no address has."));
        }
        if self.unit.is_some() && self.item.is_none() {
            return Err(Problem::malformed("`unit` needs the `item` whose unit it is."));
        }
        let search = Search {
            state: state.transpose()?,
            email: self.email.map(|email| email.trim().to_owned()),
            account: self.account,
            item: self.item,
            unit: self.unit,
            order: self.order,
        };
        Ok((search, self.after, limit(self.limit, FOUND_PAGE_MAX)?))
    }
}

#[derive(Serialize)]
struct FoundView {
    sale: SaleId,
    orders: Vec<OfficeOrder>,
    next: Option<ClaimId>,
}

async fn found(app: &App, sale: SaleId, fields: SearchFields) -> Result<Response, Problem> {
    let (search, after, limit) = fields.read()?;
    let orders = app.find_orders(&sale, &search, after, limit).await?;
    let next = orders.last().filter(|_| orders.len() == limit).map(|order| order.id);
    let orders = orders.iter().map(OfficeOrder::from).collect();
    Ok(page::json(StatusCode::OK, &FoundView { sale, orders, next }))
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    sale: Result<SalePath, Problem>,
    uri: Uri,
) -> Result<Response, Problem> {
    let sale = viewed(&app, &headers, sale)?;
    let fields: SearchFields = query(&uri)?;
    if fields.email.is_some() {
        let detail = "Addresses are written into logs on their way. Send the e-mail address in the body of POST \
                      …/orders/search instead.";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "email_in_address", detail));
    }
    found(&app, sale, fields).await
}

pub(super) async fn search(
    State(app): State<Arc<App>>,
    sale: Result<SalePath, Problem>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let sale = viewed(&app, request.headers(), sale)?;
    let fields: SearchFields = json(request).await?;
    found(&app, sale, fields).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportQuery {
    format: Option<String>,
}

pub(super) async fn export(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    sale: Result<SalePath, Problem>,
    uri: Uri,
) -> Result<Response, Problem> {
    let by = app.operator_keys.authorize(&headers, Role::Viewer)?;
    let sale = viewed(&app, &headers, sale)?;
    let ExportQuery { format } = query(&uri)?;
    let (format, media_type, ending) = match format.as_deref() {
        None | Some("csv") => (ExportFormat::Csv, "text/csv; charset=utf-8; header=present", "csv"),
        Some("jsonl") => (ExportFormat::JsonLines, "application/x-ndjson", "jsonl"),
        Some(_) => return Err(Problem::malformed("`format` is neither csv nor jsonl.")),
    };
    // The first page is asked for before the answer begins, so that a store that is down is a 503.
    app.find_orders(&sale, &Search::default(), None, 1).await?;
    tracing::info!(target: "audit", action = "export orders", %by, id = %sale, format = ending, "operator");
    let name = format!("attachment; filename=\"{sale}-orders.{ending}\"");
    let name = HeaderValue::try_from(name).map_err(|error| Problem::internal().caused_by(&error))?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (header::CONTENT_DISPOSITION, name),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, no-store")),
    ];
    Ok((headers, Body::from_stream(app.export(sale, format))).into_response())
}
