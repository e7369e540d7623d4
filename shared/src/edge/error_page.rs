//! A problem met by a browser becomes a page that says the same.

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, header};
use http_body_util::BodyExt as _;

use super::layers::STYLE_PATH;
use crate::{limits::BODY_BYTES_MAX, problem::Problem};

/// Whether the answer is a problem for programs.
pub(super) fn is_problem(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json")
}

/// The page that says the same.
pub(super) async fn from_problem(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let bytes = match http_body_util::Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(_) => return Problem::internal().into_response(),
    };
    let problem: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let text = |name: &str| escape(problem.get(name).and_then(serde_json::Value::as_str).unwrap_or_default());
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <link rel=\"stylesheet\" href=\"{STYLE_PATH}\"><title>{title}</title></head>\n\
         <body><main><h1>{title}</h1>\n<p>{detail}</p>\n<p class=\"code\">{code}</p>\n\
         <p><a href=\"/\">All sales</a></p></main></body></html>\n",
        title = text("title"),
        detail = text("detail"),
        code = text("code"),
    );
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(page))
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_cannot_become_markup() {
        assert_eq!(escape("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }
}
