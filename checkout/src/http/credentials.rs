//! What a request may see of an order.

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
    token,
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
