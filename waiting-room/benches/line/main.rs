//! What the line costs, in ratios to yardsticks measured in the same run.
//!
//! `cargo bench -p lockgate-waiting-room` runs all of it; a word after `--` only that part: `http`, `edge`,
//! `refusals`, `store`, `tick`, `allowlist`. The server runs in a process of its own, pinned to core 0 with one worker thread; the load (wrk) and
//! redis-server are pinned to core 1. Yardstick and subject take turns in short rounds, and medians are compared.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark fails by panicking")]

mod allowlist;
mod edge;
mod http;
mod server;
mod store;

/// The binary's own allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Reads `name` from the environment, as a number.
fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A field of `/proc/self/status`, in MiB.
fn memory_mib(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<f64>().unwrap() / 1_024.0
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "serve") {
        server::run(&words[1]);
        return;
    }
    // `cargo test` builds benchmarks too, and must not run them.
    if !words.iter().any(|word| word == "--bench") {
        return;
    }
    let parts: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    let wants = |part: &str| parts.is_empty() || parts.contains(&part);
    if wants("edge") {
        edge::run();
    }
    if wants("refusals") {
        edge::refusals();
    }
    if wants("http") {
        http::run();
    }
    if wants("store") || wants("tick") {
        store::run(wants("tick"));
    }
    if wants("allowlist") {
        allowlist::run();
    }
}
