//! Logs to standard error, metrics for Prometheus.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config::Config;

/// Seconds that latency histograms count by.
const SECONDS_BUCKETS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// Reads a log filter.
///
/// # Errors
/// The text is no filter.
pub fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(text).map_err(|error| format!("'{text}' is no log filter: {error}"))
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
