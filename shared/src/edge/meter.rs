//! How long answers take, by method, route and status. The metric of each is looked up once and kept: looking it up
//! by its labels costs more than everything else the edge does.

use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Method, StatusCode};
use metrics::Histogram;

/// The metrics of one route.
#[derive(Default)]
pub(super) struct Meter {
    known: ArcSwap<Vec<Known>>,
}

#[derive(Clone)]
struct Known {
    method: &'static str,
    route: Box<str>,
    status: StatusCode,
    seconds: Histogram,
}

impl Meter {
    /// Counts one answer. By route pattern, never by address: an address may hold an order's id, and their number has
    /// no bound.
    pub(super) fn note(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        let (method, seconds) = (method_name(method), took.as_secs_f64());
        tracing::debug!(method, route, status = status.as_u16(), seconds, "answered");
        let is_it =
            |known: &&Known| known.status == status && known.method == method && *known.route == *route;
        if let Some(known) = self.known.load().iter().find(is_it) {
            known.seconds.record(seconds);
            return;
        }
        let labels = [
            ("method", method.to_owned()),
            ("route", route.to_owned()),
            ("status", status.as_str().to_owned()),
        ];
        let histogram = metrics::histogram!("lockgate_http_request_seconds", &labels);
        histogram.record(seconds);
        let found = Known { method, route: route.into(), status, seconds: histogram };
        self.known.rcu(|known| {
            let mut known = Vec::clone(known);
            if !known.iter().any(|known| is_it(&known)) {
                known.push(found.clone());
            }
            known
        });
    }
}

/// The method as a label. What clients make up has one name: labels must be few.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_looked_up_once_and_made_up_methods_are_one() {
        let meter = Meter::default();
        let note = |method: &str, route: &str, status| {
            meter.note(&method.parse().unwrap(), route, status, Duration::from_millis(1));
        };
        for made_up in ["BREW", "WHEN", "PROPFIND"] {
            note(made_up, "/sale/{sale}", StatusCode::METHOD_NOT_ALLOWED);
        }
        for _ in 0..3 {
            note("GET", "/sale/{sale}", StatusCode::OK);
            note("GET", "/sale/{sale}", StatusCode::NOT_FOUND);
            note("GET", "none", StatusCode::NOT_FOUND);
        }
        let known = meter.known.load();
        let kept: Vec<_> =
            known.iter().map(|known| (known.method, &*known.route, known.status.as_u16())).collect();
        assert_eq!(
            kept,
            [
                ("other", "/sale/{sale}", 405),
                ("GET", "/sale/{sale}", 200),
                ("GET", "/sale/{sale}", 404),
                ("GET", "none", 404)
            ]
        );
    }
}
