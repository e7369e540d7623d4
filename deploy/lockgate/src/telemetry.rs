//! Logs to standard error, metrics for Prometheus.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config::Config;

/// Seconds that latency histograms count by.
const SECONDS_BUCKETS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// What operators do.
const AUDIT: &str = "audit=info";

/// Reads a log filter. What operators do is written whatever it says.
///
/// # Errors
/// The text is no filter.
pub fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    let filter =
        EnvFilter::builder().parse(text).map_err(|error| format!("'{text}' is no log filter: {error}"))?;
    let audit = AUDIT.parse().map_err(|error| format!("'{AUDIT}' is no directive: {error}"))?;
    Ok(filter.add_directive(audit))
}

/// Starts logging and metrics for this process.
///
/// # Errors
/// Either was started before.
pub fn start(config: &Config) -> Result<PrometheusHandle, String> {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(parse_filter(&config.log_filter)?)
        .with_writer(std::io::stderr)
        // A log that nobody reads any more must not end what it is about.
        .log_internal_errors(false)
        .with_target(true);
    let started =
        if config.log_json { subscriber.json().try_init() } else { subscriber.with_ansi(false).try_init() };
    started.map_err(|error| error.to_string())?;
    PrometheusBuilder::new()
        .set_buckets(&SECONDS_BUCKETS)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_operators_do_is_written_whatever_the_filter_says() {
        for text in ["warn", "off", "info,audit=off", "error,lockgate=debug"] {
            let lines = Lines::default();
            let writer = lines.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(parse_filter(text).unwrap())
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(target: "audit", action = "refund order", "operator");
                tracing::info!(target: "other", "noise");
            });
            let written = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
            assert!(written.contains("refund order"), "{text}: {written}");
            assert_eq!(written.contains("noise"), text.starts_with("info"), "{text}: {written}");
        }
        assert!(parse_filter("a=b=c").is_err());
    }
}
