//! The waiting room over HTTP, with real stores and a gate that answers for the stock alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod active;
mod allowlist;
mod captcha;
mod cost;
mod eligible;
mod house;
mod journeys;
mod lottery;
mod operators;
mod pages;
mod processes;
mod proof;
mod refusals;
mod renewal;
mod watched;
