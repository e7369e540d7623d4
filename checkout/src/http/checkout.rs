//! `/sale/{sale}/checkout`: the page to choose on, and the claim.

use std::sync::Arc;

use askama::Template;
use axum::{
    extract::{Request, State},
    response::Response,
};
use http::{HeaderMap, StatusCode, Uri};
use lockgate_shared::{
    catalog::StoredSale,
    clock::Timestamp,
    credentials::{check_idempotency_key, idempotency_key},
    ids::{ClaimId, ItemId, SaleId},
    language::Language,
    limits::QUANTITY_MAX,
    negotiate::wants_html,
    problem::Problem,
    request::{BodyKind, SalePath, body_kind, read_body},
};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};

use super::{credentials, page};
use crate::{
    app::{App, Claimed},
    claim::{Wish, check_email},
    payment::{Money, PaymentId},
    refusals,
    stock_view::is_open,
    token,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimJson {
    item: String,
    quantity: u32,
    #[serde(default)]
    email: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimForm {
    item: String,
    quantity: u32,
    #[serde(default)]
    email: Option<String>,
    idempotency_key: Option<String>,
}

#[derive(Serialize)]
struct ClaimView {
    order_id: ClaimId,
    hold_id: ClaimId,
    item: ItemId,
    units: Vec<u32>,
    amount: i64,
    currency: String,
    hold_expires_at: Timestamp,
    order_url: String,
    payment_url: String,
    access_key: String,
}

impl ClaimView {
    fn of(app: &App, claimed: Claimed) -> Self {
        let order = claimed.hold.claim;
        let order_url = format!("{}/orders/{order}", app.public_url);
        Self {
            order_id: order,
            hold_id: order,
            item: claimed.hold.item,
            units: claimed.hold.units,
            amount: claimed.price.amount,
            currency: claimed.price.currency,
            hold_expires_at: claimed.hold.deadline,
            payment_url: format!("{order_url}/pay"),
            order_url,
            access_key: claimed.access_key,
        }
    }
}

fn sale_of(app: &App, id: &SaleId) -> Result<Arc<StoredSale>, Problem> {
    app.catalog.sale(id).ok_or_else(Problem::no_such_sale)
}

pub(super) async fn claim(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let sale = sale_of(&app, &sale)?;
    let token = token::check(&headers, &sale, &app.ring, app.now())?;
    let language = Language::asked_for(request.uri().query(), &headers);
    let (wish, key, kind) = read_claim(&headers, request).await?;
    let wish = Wish { language, ..wish };
    let claimed = app.claim(&sale, &token, &key, &wish).await?;
    if kind == BodyKind::Json {
        return Ok(page::json(StatusCode::ACCEPTED, &ClaimView::of(&app, claimed)));
    }
    let order = claimed.hold.claim;
    let cookie = credentials::cookie_for(order, &claimed.access_key);
    page::see_other(&format!("/orders/{order}"), cookie)
}

/// Reads what is asked for and the key it is asked under: a header, or a form's hidden field.
async fn read_claim(headers: &HeaderMap, request: Request) -> Result<(Wish, String, BodyKind), Problem> {
    let header_key = idempotency_key(headers)?.map(str::to_owned);
    if body_kind(headers).ok().flatten() == Some(BodyKind::Form) {
        let (form, kind) = read_body::<ClaimForm>(request).await?;
        let key = header_key.or(form.idempotency_key).ok_or_else(key_missing)?;
        check_idempotency_key(key.as_bytes())?;
        return Ok((wish(&form.item, form.quantity, form.email.as_deref())?, key, kind));
    }
    let key = header_key.ok_or_else(key_missing)?;
    let (body, kind) = read_body::<ClaimJson>(request).await?;
    Ok((wish(&body.item, body.quantity, body.email.as_deref())?, key, kind))
}

fn key_missing() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "idempotency_key_missing",
        "Send an Idempotency-Key of your own, such as a UUID, and the same one whenever you repeat this order.",
    )
}

fn wish(item: &str, quantity: u32, email: Option<&str>) -> Result<Wish, Problem> {
    if !(1..=QUANTITY_MAX).contains(&quantity) {
        return Err(Problem::malformed(format!("quantity must be 1 to {QUANTITY_MAX}, not {quantity}.")));
    }
    let email = check_email(email.unwrap_or_default())
        .map_err(|problem| Problem::malformed(format!("email {problem}.")))?;
    Ok(Wish { item: item.parse().map_err(|_| refusals::no_such_item())?, quantity, email, language: None })
}

#[derive(Template)]
#[template(path = "checkout.html")]
struct ChoosePage<'a> {
    sale: &'a StoredSale,
    prices: Vec<Money>,
    is_open: bool,
    expires_at: Timestamp,
    idempotency_key: String,
    /// What the address asks for, kept on the way to the claim.
    language: Option<Language>,
}

#[derive(Template)]
#[template(path = "no_token.html")]
struct NoTokenPage<'a> {
    sale: &'a StoredSale,
    why: String,
}

#[derive(Serialize)]
struct ChooseView<'a> {
    sale: &'a SaleId,
    items: Vec<ItemView<'a>>,
    per_account_limit: u32,
    token_expires_at: Timestamp,
}

#[derive(Serialize)]
struct ItemView<'a> {
    item: &'a ItemId,
    name: &'a str,
    price: i64,
    currency: &'a str,
}

impl<'a> ItemView<'a> {
    fn of(item: &'a lockgate_shared::sale::Item) -> Self {
        Self { item: &item.item, name: &item.name, price: item.price, currency: &item.currency }
    }
}

pub(super) async fn choose(
    State(app): State<Arc<App>>,
    SalePath(sale): SalePath,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let sale = sale_of(&app, &sale)?;
    let is_page = wants_html(&headers);
    let token = match token::check(&headers, &sale, &app.ring, app.now()) {
        Ok(token) => token,
        Err(problem) if is_page => {
            let mut response = page::render(&NoTokenPage { sale: &sale, why: problem.detail })?;
            *response.status_mut() = problem.status;
            return Ok(response);
        }
        Err(problem) => return Err(problem),
    };
    let expires_at = Timestamp::from_seconds(token.exp);
    if !is_page {
        return Ok(page::json(StatusCode::OK, &choose_view(&sale, expires_at)));
    }
    let price =
        |item: &lockgate_shared::sale::Item| Money { amount: item.price, currency: item.currency.clone() };
    page::render(&ChoosePage {
        sale: &sale,
        prices: sale.definition.items.iter().map(price).collect(),
        is_open: is_open(&sale, app.now()),
        expires_at,
        // Fresh with each page: sending one page twice is one order, two pages are two.
        idempotency_key: PaymentId::from_random(rand::rng().random()).to_string(),
        language: Language::asked_for(uri.query(), &HeaderMap::new()),
    })
}

fn choose_view(sale: &StoredSale, expires_at: Timestamp) -> ChooseView<'_> {
    ChooseView {
        sale: &sale.definition.id,
        items: sale.definition.items.iter().map(ItemView::of).collect(),
        per_account_limit: sale.definition.per_account_limit,
        token_expires_at: expires_at,
    }
}
