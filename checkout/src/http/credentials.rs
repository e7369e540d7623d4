//! What a request may see of an order, and whether a form comes from our own pages.

use http::{HeaderMap, HeaderValue, header};
use lockgate_shared::{
    admission_token::AdmissionToken,
    credentials::{bearer, cookie, order_cookie, set_cookie},
    ids::{ClaimId, SaleId},
    problem::Problem,
    request::no_such_order,
};

use crate::{
    app::{App, Grant},
    refusals, token,
};

/// Token cookies looked at in one request.
const TOKENS_MAX: usize = 8;
/// What the names of token cookies begin with (see [`lockgate_shared::credentials::token_cookie`]).
const TOKEN_COOKIE_PREFIX: &str = "__Host-lockgate-token-";
/// Life of an order's cookie: a buyer comes back to see how the order stands.
const ORDER_COOKIE_SECONDS: u64 = 30 * 86_400;

/// What the request may see of `order`: by its bearer credential (an access key or a token), else by its cookies.
///
/// # Errors
/// 404 `no_such_order` when the bearer credential opens nothing: it is not quietly replaced by a cookie.
pub(super) fn grant(app: &App, order: ClaimId, headers: &HeaderMap) -> Result<Grant, Problem> {
    let Some(given) = bearer(headers).map_err(|_| no_such_order())? else {
        return Ok(by_cookies(app, order, headers));
    };
    if app.access.opens(order, given) {
        return Ok(Grant { has_access_key: true, accounts: Vec::new() });
    }
    match valid_token(app, given) {
        Some(token) => Ok(Grant { has_access_key: false, accounts: vec![(token.sale, token.sub)] }),
        None => Err(no_such_order()),
    }
}

fn by_cookies(app: &App, order: ClaimId, headers: &HeaderMap) -> Grant {
    let has_access_key =
        cookie(headers, &order_cookie(order)).is_some_and(|given| app.access.opens(order, given));
    let accounts = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter_map(|(name, value)| Some((name.strip_prefix(TOKEN_COOKIE_PREFIX)?, value)))
        .take(TOKENS_MAX)
        .filter_map(|(sale, value)| {
            let sale: SaleId = sale.parse().ok()?;
            let token = valid_token(app, value)?;
            (token.sale == sale).then_some((sale, token.sub))
        })
        .collect();
    Grant { has_access_key, accounts }
}

fn valid_token(app: &App, text: &str) -> Option<AdmissionToken> {
    let token = AdmissionToken::verify(text, &app.ring, app.now()).ok()?;
    let sale = app.catalog.sale(&token.sale)?;
    (!token::is_revoked(&token, &sale)).then_some(token)
}

/// The cookie that opens `order`.
pub(super) fn cookie_for(order: ClaimId, access_key: &str) -> Option<HeaderValue> {
    set_cookie(&order_cookie(order), access_key, ORDER_COOKIE_SECONDS)
}

/// Refuses a form that another site had the browser send.
///
/// `Sec-Fetch-Site` says it where the browser sends it. Otherwise the origin is compared; an opaque one (`null`) is
/// what our own pages send too, since they ask for no referrer, and there `SameSite` keeps the cookies back.
///
/// # Errors
/// 403 `cross_site`.
pub(super) fn check_same_site(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = text(header::HeaderName::from_static("sec-fetch-site"));
    if site == Some("cross-site") {
        return Err(refusals::cross_site());
    }
    let Some(origin) = text(header::ORIGIN) else {
        return Ok(());
    };
    if origin == "null" {
        return if site == Some("same-site") { Err(refusals::cross_site()) } else { Ok(()) };
    }
    let authority = |url: &str| url.split_once("://").map(|(_, rest)| rest.to_ascii_lowercase());
    let given = authority(origin).ok_or_else(refusals::cross_site)?;
    let host = text(header::HOST).unwrap_or_default().to_ascii_lowercase();
    if given == host || authority(&app.public_url) == Some(given) {
        return Ok(());
    }
    Err(refusals::cross_site())
}
