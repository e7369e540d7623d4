//! Checkout scaled out: stock and events in a real Redis, orders in a real PostgreSQL.
//!
//! - `intake`: workers die and stall, records cannot be taken in, streams are trimmed and fail over;
//! - `outage`: the database is down or hangs, the gate hangs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod intake;
mod outage;
