//! The edge: what every request passes before a handler sees it, and the listener itself.

mod error_page;
pub mod layers;
mod meter;
pub mod rate_limit;
pub mod serve;
