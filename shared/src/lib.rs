//! What every Lockgate service shares. A module stands here once two services need it.
//!
//! | to find | look in |
//! |---|---|
//! | what a sale is, and where definitions are kept | [`sale`], [`catalog`] |
//! | an allowlist as operators write it | [`allowlist`] |
//! | identifiers, time, every bound | [`ids`], [`clock`], [`limits`] |
//! | credentials: place in line, right to check out, calls between services | [`ticket`], [`admission_token`], [`service_token`], over [`keys`] and [`jwt`] |
//! | where credentials travel in a request; the token of one | [`credentials`], [`operator`], [`admission_check`] |
//! | work that whoever enters must do | [`proof_of_work`] |
//! | what the gate is asked and answers; what it records | [`gate`], [`events`] |
//! | calls between services; what keeps a dependency's trouble to itself | [`service_call`], [`circuit`] |
//! | languages, prices and times in words | [`language`], [`wording`] |
//! | errors as HTTP says them | [`problem`] |
//! | reading requests, choosing page or JSON, the listener | [`request`], [`negotiate`], [`edge`] |
//! | SQLite, Redis, PostgreSQL, migrations | [`store`] |
//! | private servers for tests | `testing` (feature `testing`) |

pub mod admission_check;
pub mod admission_token;
pub mod allowlist;
pub mod catalog;
pub mod circuit;
pub mod clock;
pub mod credentials;
pub mod edge;
pub mod events;
pub mod gate;
pub mod ids;
pub mod jwt;
pub mod keys;
pub mod language;
pub mod limits;
pub mod negotiate;
pub mod operator;
pub mod problem;
pub mod proof_of_work;
pub mod request;
pub mod sale;
pub mod service_call;
pub mod service_token;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod ticket;
pub mod wording;
