//! Money that comes at the wrong moment, and money that operators give back.
//!
//! - `late`: a payment that succeeds after its order expired, on SQLite and scaled out; news that comes twice;
//! - `acts`: refund and cancel by operators, and the anomalies they look at.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod acts;
mod late;
