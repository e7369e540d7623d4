//! Pages for people, JSON for programs: which of the two a request asks for (RFC 9110, section 12.5.1).

use http::{HeaderMap, header};

/// Whether the answer should be HTML: `Accept` names `text/html` (or `text/*`) and ranks it at least as high as
/// JSON. `*/*`, and no `Accept` at all, mean JSON.
#[must_use]
pub fn wants_html(headers: &HeaderMap) -> bool {
    let html = quality(headers, &["text/html", "text/*"]);
    let json = quality(headers, &["application/json", "application/*", "*/*"]);
    html > 0 && html >= json
}

/// Whether the answer may be gzip-coded (RFC 9110, section 12.5.3): `Accept-Encoding` names it, or `*`, and does not
/// rank it at nothing.
#[must_use]
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let ranges = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(parse_range);
    let mut any = false;
    for (name, quality) in ranges {
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            return quality > 0;
        }
        any |= name == "*" && quality > 0;
    }
    any
}

/// The quality, in thousandths, of the most specific of `ranges` (most specific first) that `Accept` names; 0 when
/// it names none.
fn quality(headers: &HeaderMap, ranges: &[&str]) -> u16 {
    for range in ranges {
        let found = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|line| line.split(','))
            .filter_map(parse_range)
            .filter(|(name, _)| name.eq_ignore_ascii_case(range))
            .map(|(_, quality)| quality)
            .max();
        if let Some(quality) = found {
            return quality;
        }
    }
    0
}

pub(crate) fn parse_range(text: &str) -> Option<(&str, u16)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next()?;
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let quality = match weight {
        None => 1_000,
        Some(weight) => {
            let weight: f32 = weight.trim().parse().ok()?;
            if !(0.0..=1.0).contains(&weight) {
                return None;
            }
            // In range by the check above; a thousandth is the finest step a q-value has.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let thousandths = (weight * 1_000.0).round() as u16;
            thousandths
        }
    };
    Some((name, quality))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_given_to_whoever_takes_it() {
        let cases = [
            ("gzip, deflate, br, zstd", true),
            ("GZIP", true),
            ("br;q=1.0, gzip;q=0.1", true),
            ("*", true),
            ("*;q=0.5, gzip;q=0", false),
            ("gzip;q=0", false),
            ("gzip;q=0.000, *", false),
            ("identity", false),
            ("br", false),
            ("gzipped", false),
            ("", false),
        ];
        for (accepts, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, accepts.parse().unwrap());
            assert_eq!(accepts_gzip(&headers), expected, "{accepts}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn c1_accept_lists_and_q_values_are_understood() {
        let cases = [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            ("text/html", true),
            ("TEXT/HTML", true),
            ("text/*", true),
            ("application/json, text/html", true),
            ("text/html;q=0.9, application/json;q=0.9", true),
            ("text/html;q=0.5, application/json", false),
            ("text/html;q=0.5, */*", false),
            ("text/html;q=0", false),
            ("text/html;q=2", false),
            ("*/*", false),
            ("application/json", false),
            ("application/problem+json, application/json", false),
            ("text/plain", false),
            ("", false),
        ];
        for (accept, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(wants_html(&headers), expected, "{accept}");
        }
        assert!(!wants_html(&HeaderMap::new()));
    }
}
