//! The edge: what every request passes before a handler sees it, and the listener itself.
//!
//! | to find | look in |
//! |---|---|
//! | the listener: connections, heads, slow readers, drain | [`serve`], [`slots`], `stall` |
//! | the one layer that every request passes | [`layers`] |
//! | what it decides, in which order | [`policy`], over [`settings`] |
//! | who calls | [`client`], over sets of [`networks`] |
//! | kinds of work | [`class`] |
//! | limits per network and account, and their bounded tables | [`rate_limit`], `table` |
//! | networks let through or refused by operators | [`lists`] |
//! | load shedding | `load` |
//! | the content delivery network's secret | [`origin`] |
//! | names of requests; measurements; problems as pages | [`request_id`], `meter`, `error_page` |

pub mod class;
pub mod client;
mod error_page;
pub mod layers;
pub mod lists;
mod load;
mod meter;
pub mod networks;
pub mod origin;
pub mod policy;
pub mod rate_limit;
pub mod request_id;
pub mod serve;
pub mod settings;
pub mod slots;
mod stall;
mod table;

pub use self::{client::Caller, policy::Edge, settings::EdgeSettings};
