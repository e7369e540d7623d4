//! The edge: what every request passes before a handler sees it, and the listener itself.

pub mod layers;
pub mod rate_limit;
pub mod serve;
