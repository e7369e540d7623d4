//! The waiting room over HTTP, with real stores and a gate that says what is in stock and hears what is given up.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod active;
mod allowlist;
mod captcha;
mod cost;
mod eligible;
mod gate;
mod giving_up;
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
