//! The scripts of the pages.

use axum::response::{IntoResponse as _, Response};
use http::header;

/// Has the sale's challenge solved while the shopper reads.
pub(super) async fn enter() -> Response {
    script(include_str!("../../web/enter.js"))
}

/// Takes an entry pass out of the sale page's address.
pub(super) async fn pass() -> Response {
    script(include_str!("../../web/pass.js"))
}

/// Solves challenges. From the ALTCHA project, under its licence, which lies beside it.
pub(super) async fn altcha() -> Response {
    script(include_str!("../../web/vendor/altcha-pbkdf2.js"))
}

fn script(text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/javascript; charset=utf-8"),
        (header::CACHE_CONTROL, "public, max-age=3600"),
    ];
    (headers, text).into_response()
}
