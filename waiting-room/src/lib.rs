//! The line: a place in it, one's turn, and the right to check out.
//!
//! # Layout
//!
//! A line works like a bakery's: everyone gets a number, a board says who is being served, your turn has come when
//! the board reaches your number.
//!
//! | to find | look in |
//! |---|---|
//! | the verbs: enter, status, redeem (public: admit), leave, forfeit | [`app`], their answers [`answers`] |
//! | what a sale is doing; where somebody stands | [`phase`], [`place`] |
//! | which number a place has; how far the board moves | [`numbers`], [`numbering`], [`admission`] |
//! | the verifiable lottery | [`draw`] |
//! | the loops that move it (advance), and how a process follows | [`admitter`], [`follow`] |
//! | how calls that wait at the same moment travel together | `calls`, `coalesce` |
//! | who has bought, and is no longer active | [`purchases`] |
//! | what every process keeps ready to answer from | [`snapshot`] |
//! | bytes that are the same for everyone | [`prepared`] |
//! | the shop's word that an account may enter | [`eligibility`] |
//! | a CAPTCHA: the provider's word, outages, what was solved | [`captcha`] |
//! | codes and e-mail addresses that may enter, and their upload (allow) | `allowlist` |
//! | what is stored, in memory, SQLite and Redis | [`store`] |
//! | routes, pages, refusals in words | `http`, [`pages`], [`refusal`] |
//!
//! `http -> app -> pure files and the store`. [`phase`], [`place`], [`numbering`], [`numbers`], [`draw`],
//! [`admission`] and [`follow`] are pure: no clock, no randomness, no input or output.

pub mod admission;
pub mod admitter;
mod allowlist;
pub mod answers;
pub mod app;
mod calls;
pub mod captcha;
mod coalesce;
pub mod draw;
pub mod eligibility;
pub mod follow;
mod http;
pub mod numbering;
pub mod numbers;
pub mod pages;
pub mod phase;
pub mod place;
pub mod prepared;
pub mod purchases;
pub mod refusal;
pub mod snapshot;
pub mod store;

pub use self::{
    admitter::run,
    app::{App, AppParts, CaptchaDoor},
    http::{operator_router, router},
};
