//! Reading requests: path segments and bodies, each refusal a problem with its code.

use std::{str::FromStr, time::Duration};

use axum::{
    body::Body,
    extract::{FromRequestParts, RawPathParams},
};
use http::{HeaderMap, Request, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::{
    ids::{ClaimId, SaleId},
    limits::{BODY_BYTES_MAX, BODY_SECONDS_MAX},
    problem::Problem,
};

/// The `{sale}` segment. Anything that is no sale id is a sale that does not exist.
pub struct SalePath(pub SaleId);

/// The `{order_id}` segment. Anything that is no order id is an order that does not exist.
pub struct OrderPath(pub ClaimId);

/// A path segment, read where it stands: every request of every shopper has one.
async fn segment<S: Send + Sync, T: FromStr>(parts: &mut Parts, state: &S, name: &str) -> Option<T> {
    let params = RawPathParams::from_request_parts(parts, state).await.ok()?;
    params.iter().find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok())
}

impl<S: Send + Sync> FromRequestParts<S> for SalePath {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        segment(parts, state, "sale").await.map(Self).ok_or_else(Problem::no_such_sale)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OrderPath {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        segment(parts, state, "order_id").await.map(Self).ok_or_else(no_such_order)
    }
}

/// 404 `no_such_order`: unknown and not-yours look the same.
#[must_use]
pub fn no_such_order() -> Problem {
    let detail =
        "There is no such order for these credentials. Use the link or the access key you were given.";
    Problem::new(StatusCode::NOT_FOUND, "no_such_order", detail)
}

/// How a body was written: it decides how the answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// `application/json`, or no body at all.
    Json,
    /// `application/x-www-form-urlencoded`: a page's form; the answer is a redirect to a page.
    Form,
}

/// The kind of body the headers announce; `None` when they announce none.
///
/// # Errors
/// 415 `unsupported_media_type`.
pub fn body_kind(headers: &HeaderMap) -> Result<Option<BodyKind>, Problem> {
    let unsupported = || {
        Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "Send application/json or application/x-www-form-urlencoded.",
        )
    };
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| unsupported())?;
    let mut parts = text.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    if parts.any(|parameter| {
        parameter.split_once('=').is_some_and(|(name, charset)| {
            name.trim().eq_ignore_ascii_case("charset")
                && !charset.trim_matches([' ', '"']).eq_ignore_ascii_case("utf-8")
        })
    }) {
        return Err(unsupported());
    }
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(Some(BodyKind::Json))
    } else if essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        Ok(Some(BodyKind::Form))
    } else {
        Err(unsupported())
    }
}

/// Reads a body of at most `bytes_max` bytes.
///
/// # Errors
/// 413 `too_large`, 408 `too_slow`, or 400 when it does not arrive.
pub async fn read_bytes(body: Body, bytes_max: usize) -> Result<bytes::Bytes, Problem> {
    let limit = Duration::from_secs(BODY_SECONDS_MAX);
    let Ok(read) = tokio::time::timeout(limit, Limited::new(body, bytes_max).collect()).await else {
        let detail = format!("The body took longer than {BODY_SECONDS_MAX} s. Send the request again.");
        return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", detail));
    };
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("The body is larger than {bytes_max} bytes."),
        )),
        Err(_) => Err(Problem::malformed("The body did not arrive whole. Send the request again.")),
    }
}

/// Refuses what a browser says comes from another site. Browsers too old to say so send an `Origin`, which is `null`
/// where a page hides its address, as ours do; `SameSite` keeps the cookies back there. A request with a credential
/// of its own in `Authorization` relies on no cookie, so nobody can have forged it.
///
/// # Errors
/// 403 `cross_site`.
fn refuse_cross_site(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::AUTHORIZATION) {
        return Ok(());
    }
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_foreign = match (text("sec-fetch-site"), text("origin"), text("host")) {
        (Some(site), ..) => site.eq_ignore_ascii_case("cross-site"),
        (None, Some(origin), Some(host)) if origin != "null" => {
            !origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host))
        }
        _ => false,
    };
    if is_foreign {
        let detail = "This was sent by a page of another site. Open the page here and send it again.";
        return Err(Problem::forbidden("cross_site", detail));
    }
    Ok(())
}

/// Reads a JSON or form body as `T`, unless another site's page had a browser send it. No body reads as the empty object, so that a call which needs nothing may
/// send nothing.
///
/// # Errors
/// 403 `cross_site`, 413 `too_large`, 415 `unsupported_media_type`, 400 `malformed` naming what is wrong.
pub async fn read_body<T: DeserializeOwned>(request: Request<Body>) -> Result<(T, BodyKind), Problem> {
    let (parts, body) = request.into_parts();
    refuse_cross_site(&parts.headers)?;
    let kind = body_kind(&parts.headers)?;
    let bytes = read_bytes(body, BODY_BYTES_MAX).await?;
    let Some(kind) = kind else {
        if !bytes.is_empty() {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "The body has no Content-Type. Send application/json.",
            ));
        }
        return Ok((parse_json(b"{}")?, BodyKind::Json));
    };
    let value = match kind {
        BodyKind::Json if bytes.is_empty() => parse_json(b"{}")?,
        BodyKind::Json => parse_json(&bytes)?,
        BodyKind::Form => parse_form(&bytes)?,
    };
    Ok((value, kind))
}

/// Reads JSON as `T`.
///
/// # Errors
/// 400 `malformed` naming what is wrong.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // serde reads an array as the fields of a struct in their order, and names our own types where it finds neither;
    // the contract has objects only.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::malformed("The JSON body is wrong: it must be an object."));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::malformed(format!("The JSON body is wrong: {error}.")))
}

fn parse_form<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // A percent-coded form may hide bytes that are no UTF-8; a lossy reading would change what the shopper wrote.
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::malformed("The form is not UTF-8."))?;
    if !percent_codes_are_utf8(text) {
        return Err(Problem::malformed("The form is not UTF-8."));
    }
    let uri = http::Uri::builder()
        .path_and_query(format!("/?{text}"))
        .build()
        .map_err(|_| Problem::malformed("The form is not urlencoded."))?;
    axum::extract::Query::try_from_uri(&uri)
        .map(|axum::extract::Query(value)| value)
        .map_err(|error| Problem::malformed(format!("The form is wrong: {}.", error.body_text())))
}

fn percent_codes_are_utf8(text: &str) -> bool {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = [bytes.next(), bytes.next()].map(|digit| digit.and_then(|d| char::from(d).to_digit(16)));
        let [Some(high), Some(low)] = digits else {
            return false;
        };
        decoded.push(u8::try_from(high * 16 + low).unwrap_or(0));
    }
    std::str::from_utf8(&decoded).is_ok()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(default)]
        n: u32,
        #[serde(default)]
        t: String,
    }

    async fn read(content_type: Option<&str>, body: impl Into<Body>) -> Result<(Sample, BodyKind), Problem> {
        let mut request = Request::builder();
        if let Some(kind) = content_type {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        read_body(request.body(body.into()).unwrap()).await
    }

    #[tokio::test]
    async fn json_forms_and_nothing_are_read() {
        let json = "application/json; charset=utf-8";
        assert_eq!(
            read(Some(json), r#"{"n":1}"#).await.unwrap(),
            (Sample { n: 1, t: String::new() }, BodyKind::Json)
        );
        let form = "application/x-www-form-urlencoded";
        let (sample, kind) = read(Some(form), "n=2&t=%C3%A4+b").await.unwrap();
        assert_eq!((sample, kind), (Sample { n: 2, t: "ä b".into() }, BodyKind::Form));
        assert_eq!(read(None, "").await.unwrap().0.n, 0);
        assert_eq!(read(Some(json), "").await.unwrap().0.n, 0);
    }

    #[tokio::test]
    async fn posts_forged_by_another_site_are_refused() {
        let cases: [(&[(&str, &str)], bool); 9] = [
            (&[("sec-fetch-site", "cross-site")], false),
            (
                &[
                    ("sec-fetch-site", "Cross-Site"),
                    ("origin", "http://shop.example"),
                    ("host", "shop.example"),
                ],
                false,
            ),
            (&[("sec-fetch-site", "cross-site"), ("authorization", "Bearer x")], true),
            (
                &[("sec-fetch-site", "same-origin"), ("origin", "http://shop.example"), ("host", "inner:80")],
                true,
            ),
            (&[("sec-fetch-site", "none")], true),
            (&[("origin", "https://evil.example"), ("host", "shop.example")], false),
            (&[("origin", "https://shop.example.evil.example"), ("host", "shop.example")], false),
            (&[("origin", "https://shop.example"), ("host", "SHOP.example")], true),
            (&[("origin", "null"), ("host", "shop.example")], true),
        ];
        for (headers, is_let_in) in cases {
            let mut request = Request::builder();
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let read = read_body::<Sample>(request.body(Body::empty()).unwrap()).await;
            assert_eq!(
                read.map(|_| "let in").map_err(|problem| problem.code).err(),
                (!is_let_in).then_some("cross_site"),
                "{headers:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn f4_a_body_that_never_ends_is_given_up() {
        let endless = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        assert_eq!(read_bytes(Body::from_stream(endless), 100).await.unwrap_err().code, "too_slow");
    }

    #[tokio::test]
    async fn what_is_no_object_is_refused_in_the_contract_s_words() {
        for bad in ["null", "5", "\"x\"", "true", " [1]", "x"] {
            let problem = read(Some("application/json"), bad).await.unwrap_err();
            assert_eq!(problem.code, "malformed", "{bad}");
            assert_eq!(problem.detail, "The JSON body is wrong: it must be an object.", "{bad}");
        }
    }

    #[tokio::test]
    async fn every_refusal_has_its_code() {
        let json = Some("application/json");
        let form = Some("application/x-www-form-urlencoded");
        let code = |result: Result<(Sample, BodyKind), Problem>| result.unwrap_err().code;
        for bad in [
            r#"{"n":"1"}"#,
            r#"{"n":-1}"#,
            r#"{"x":1}"#,
            "[",
            "null",
            "[]",
            " [1]",
            r#"{"n":1,"n":2}"#,
            r#"{"n":1} x"#,
        ] {
            assert_eq!(code(read(json, bad).await), "malformed", "{bad}");
        }
        assert_eq!(code(read(json, b"{\"t\":\"\xff\"}".to_vec()).await), "malformed");
        for bad in ["n=x", "y=1", "t=%ff", "t=%f", "n=1&n=2"] {
            assert_eq!(code(read(form, bad).await), "malformed", "{bad}");
        }
        assert_eq!(code(read(Some("text/plain"), "n=1").await), "unsupported_media_type");
        assert_eq!(
            code(read(Some("application/json; charset=latin-1"), "{}").await),
            "unsupported_media_type"
        );
        assert_eq!(code(read(None, "{}").await), "unsupported_media_type");
        assert_eq!(code(read(json, vec![b' '; BODY_BYTES_MAX + 1]).await), "too_large");
    }
}
