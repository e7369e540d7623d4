//! Answers: pages, redirects, and JSON that holds a credential or somebody's order.

use askama::Template;
use axum::{
    Json,
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, StatusCode, header};
use lockgate_shared::{edge::layers::PAYING_POLICY, problem::Problem};
use serde::Serialize;

const PRIVATE: HeaderValue = HeaderValue::from_static("private, no-store");

/// A page for one person.
pub(crate) fn render(page: &impl Template) -> Result<Response, Problem> {
    let html = page.render().map_err(|error| Problem::internal().caused_by(&error))?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CACHE_CONTROL, PRIVATE),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAYING_POLICY)),
    ];
    Ok((headers, html).into_response())
}

/// JSON for one person.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    (status, [(header::CACHE_CONTROL, PRIVATE)], Json(body)).into_response()
}

/// 303 to another address, with a cookie where there is one.
pub(crate) fn see_other(location: &str, cookie: Option<HeaderValue>) -> Result<Response, Problem> {
    let location = HeaderValue::try_from(location).map_err(|error| Problem::internal().caused_by(&error))?;
    let headers = [(header::LOCATION, location), (header::CACHE_CONTROL, PRIVATE)];
    let mut response = (StatusCode::SEE_OTHER, headers).into_response();
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
