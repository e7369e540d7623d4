//! The line: a place in it, one's turn, and the right to check out.
//!
//! # Layout
//!
//! A line works like a bakery's: everyone gets a number, a board says who is being served, your turn has come when
//! the board reaches your number.
//!
//! | to find | look in |
//! |---|---|
//! | the verbs: enter, status, redeem (public: admit), leave | [`app`], their answers [`answers`] |
//! | what a sale is doing; where somebody stands | [`phase`], [`place`] |
//! | which number a place has; how far the board moves | [`numbering`], [`admission`] |
//! | the loops that move it (advance), and how a process follows | [`admitter`], [`follow`] |
//! | who has bought, and is no longer active | [`purchases`] |
//! | what every process keeps ready to answer from | [`snapshot`] |
//! | the shop's word that an account may enter | [`eligibility`] |
//! | what is stored, in memory, SQLite and Redis | [`store`] |
//! | routes, pages, refusals in words | `http`, [`pages`], [`refusal`] |
//!
//! `http -> app -> pure files and the store`. [`phase`], [`place`], [`numbering`], [`admission`] and [`follow`] are
//! pure: no clock, no randomness, no input or output.

pub mod admission;
pub mod admitter;
pub mod answers;
pub mod app;
pub mod eligibility;
pub mod follow;
mod http;
pub mod numbering;
pub mod pages;
pub mod phase;
pub mod place;
pub mod purchases;
pub mod refusal;
pub mod snapshot;
pub mod store;

pub use self::{
    admitter::run,
    app::{App, AppParts},
    http::{operator_router, router},
};
