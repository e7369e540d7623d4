//! The stock gate: every unit of a sale is taken, held, sold and given back here, each in one atomic step.
//!
//! | to find | look in |
//! |---|---|
//! | one method per verb: claim, commit, release, reclaim, expire, forfeit, restock, hold, stock; freeze, holds, stage, conclude | [`app`] |
//! | the counts and the limits (pure) | [`stock`] |
//! | the life of a hold, and when a sale takes claims (pure) | [`hold`] |
//! | the loop that marks due holds | [`expirer`] |
//! | the atomic steps, on SQLite and Redis, and the model they must equal | [`store`] |
//! | the routes | [`http`] |
//!
//! The messages and the client that speaks them are in [`lockgate_shared::gate`], the events in
//! [`lockgate_shared::events`].

pub mod app;
pub mod expirer;
pub mod hold;
pub mod http;
pub mod stock;
pub mod store;

pub use self::{
    app::{App, AppParts},
    expirer::run,
    http::router,
    store::{
        Store,
        redis::{RedisSettings, RedisStore},
        sqlite::{STOCK_SQLITE, SqliteStore},
    },
};

#[cfg(test)]
mod testbed;
