//! The settlement: JSON, CSV, or a page to print and sign.

use std::sync::Arc;

use askama::Template;
use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use lockgate_shared::{
    clock::Timestamp, negotiate::wants_html, problem::Problem, request::SalePath, wording::moment_text,
};
use serde::Deserialize;

use super::{
    office::{query, viewed},
    page,
};
use crate::{
    app::App,
    settlement::{Settlement, csv, money_text, state_words},
};

/// The page carries its own style, so that it reads the same from a file, and nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
);

#[derive(Clone, Copy)]
enum Format {
    Json,
    Csv,
    Html,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FormatQuery {
    format: Option<String>,
}

fn format(headers: &HeaderMap, uri: &Uri) -> Result<Format, Problem> {
    let FormatQuery { format } = query(uri)?;
    match format.as_deref() {
        Some("json") => Ok(Format::Json),
        Some("csv") => Ok(Format::Csv),
        Some("html") => Ok(Format::Html),
        Some(_) => Err(Problem::malformed("`format` is none of json, csv and html.")),
        None if wants_html(headers) => Ok(Format::Html),
        None => {
            let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
            let is_csv = accepts.flat_map(|line| line.split(',')).any(|range| {
                range.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case("text/csv"))
            });
            Ok(if is_csv { Format::Csv } else { Format::Json })
        }
    }
}

#[derive(Template)]
#[template(path = "settlement.html")]
struct SettlementPage<'a> {
    report: &'a Settlement,
    zone: Option<&'a str>,
}

impl SettlementPage<'_> {
    fn money(&self, amount: &i128, currency: &str) -> String {
        money_text(*amount, currency)
    }

    fn moment(&self, moment: &Timestamp) -> String {
        moment_text(*moment, self.zone)
    }

    fn state(&self, state: &str) -> &'static str {
        state_words(state)
    }
}

pub(super) async fn settlement(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    sale: Result<SalePath, Problem>,
    uri: Uri,
) -> Result<Response, Problem> {
    let sale = viewed(&app, &headers, sale)?;
    let format = format(&headers, &uri)?;
    let report = app.settlement(&sale).await?;
    let (media_type, body) = match format {
        Format::Json => return Ok(page::json(StatusCode::OK, &report)),
        Format::Csv => ("text/csv; charset=utf-8; header=present", csv(&report)),
        Format::Html => {
            let stored = app.catalog.sale(&sale);
            let zone = stored.as_ref().and_then(|stored| stored.definition.time_zone.as_deref());
            let page = SettlementPage { report: &report, zone };
            (
                "text/html; charset=utf-8",
                page.render().map_err(|error| Problem::internal().caused_by(&error))?,
            )
        }
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, no-store")),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::VARY, HeaderValue::from_static("Accept")),
    ];
    Ok((headers, body).into_response())
}
