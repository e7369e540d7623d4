//! A crowd for Lockgate: shoppers by the hundred thousand who walk through the HTTP contract with bounded memory and
//! hold every answer against the rules of the line.
//!
//! | file | what it does |
//! |---|---|
//! | `plan.rs` | the command line, checked; when people come, how they behave |
//! | `crowd.rs` | the run: one task, a heap of what is due, a few connections |
//! | `shopper.rs`, `walk.rs`, `buy.rs` | PURE: one shopper's memory, steps and checks |
//! | `board.rs`, `watch.rs` | PURE: what all have seen together: board, numbers, pace; the public status |
//! | `answer.rs`, `requests.rs` | PURE: the contract's bodies; each step as a request |
//! | `rules.rs` | PURE: the rules and the verdict |
//! | `connection.rs` | one keep-alive connection |
//! | `figures.rs`, `report.rs` | what is counted; what is told |
//! | `sellout/` | another run: buyers who come back until all is sold, and pay, pay late or never |
//! | `contest/` | another run: people against a farm of bots, and who holds the places |

pub mod answer;
pub mod board;
pub mod buy;
pub mod connection;
pub mod contest;
pub mod crowd;
pub mod figures;
pub mod plan;
pub mod report;
pub mod requests;
pub mod rules;
pub mod sellout;
pub mod shopper;
pub mod walk;
pub mod watch;

pub use contest::{Contest, ContestReport};
pub use crowd::{Look, RunError, run};
pub use plan::{Options, Plan};
pub use report::{Outcome, Report};
pub use sellout::{SellOut, SellOutReport};
