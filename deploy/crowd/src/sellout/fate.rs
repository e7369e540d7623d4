//! PURE. The dice, what the board shows to buyers, and the bodies of the contract that only they read.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::answer::{Phase, Public};

/// Percentages: what becomes of what is held, and who wants two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// Holds that are never paid.
    pub abandon: f64,
    /// Holds that are paid when they are over.
    pub pay_late: f64,
    /// Buyers who want two units at first.
    pub pairs: f64,
}

/// What becomes of one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It is paid.
    Pays,
    /// The gateway's page is opened in time, and paid on when the hold is over.
    PaysLate,
    /// It runs out.
    Abandons,
}

impl Shares {
    /// The fate of a hold; `percent` is uniform in 0..100.
    #[must_use]
    pub fn fate(&self, percent: f64) -> Fate {
        if percent < self.abandon {
            Fate::Abandons
        } else if percent < self.abandon + self.pay_late {
            Fate::PaysLate
        } else {
            Fate::Pays
        }
    }
}

/// How a buyer's day ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With a paid order.
    Bought,
    /// Nothing was left, and nothing could return.
    SoldOut,
    /// The sale was closed.
    Closed,
    /// With an answer that is none of the contract's.
    Wrong,
}

/// A claim that was won, and what its buyer was told since.
#[derive(Clone, Debug, Serialize)]
pub struct Taken {
    /// The order.
    pub order: String,
    /// What of.
    pub item: String,
    /// Which units.
    pub units: Vec<u32>,
    /// What is to be paid for them, in minor units.
    pub amount: i64,
    /// Who.
    pub who: u32,
    /// What becomes of it.
    pub fate: Fate,
    /// Whether the gateway sent the buyer back as one who has paid.
    pub paid_at_gateway: bool,
    /// The order's state when the buyer looked last.
    pub told: Option<String>,
}

/// What the public status shows, as far as buyers act on it.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The board.
    pub now_serving: u64,
    /// What the sale is doing; `None` before the first look.
    pub phase: Option<Phase>,
    /// Items of which something can be had at this moment.
    pub available: Vec<String>,
    /// Whether something may yet return.
    may_return: bool,
}

impl Shown {
    /// What an answer shows.
    #[must_use]
    pub fn of(public: &Public<'_>) -> Self {
        let in_state = |state: &'static str| public.items.iter().filter(move |item| item.state == state);
        Self {
            now_serving: public.now_serving,
            phase: Some(public.phase),
            available: in_state("available").map(|item| item.item.to_string()).collect(),
            may_return: in_state("all_held").next().is_some(),
        }
    }

    /// Whether people are admitted.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Some(Phase::Open)
    }

    /// Whether nothing can be won any more: all is sold, or the sale is closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let has_sold_all =
            self.phase == Some(Phase::SoldOut) && self.available.is_empty() && !self.may_return;
        has_sold_all || self.phase == Some(Phase::Closed)
    }

    /// Whether somebody who waits might act on it. The board may be seen to fall by a cache; people keep the largest.
    #[must_use]
    pub fn is_news_to(&self, before: &Self) -> bool {
        self.now_serving > before.now_serving
            || self.phase != before.phase
            || self.available != before.available
            || self.may_return != before.may_return
    }
}

/// The answer to entering, as far as buyers read it.
#[derive(Debug, Deserialize)]
pub struct Place<'a> {
    /// The ticket.
    #[serde(borrow)]
    pub ticket: Cow<'a, str>,
}

/// The answer to a won claim.
#[derive(Debug, Deserialize)]
pub struct Held<'a> {
    /// The order.
    #[serde(borrow)]
    pub order_id: Cow<'a, str>,
    /// Which units.
    pub units: Vec<u32>,
    /// What is to be paid.
    pub amount: i64,
    /// Until when they are held.
    #[serde(borrow)]
    pub hold_expires_at: Cow<'a, str>,
    /// The key to the order.
    #[serde(borrow)]
    pub access_key: Cow<'a, str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fates_follow_their_shares() {
        let shares = Shares { abandon: 20.0, pay_late: 5.0, pairs: 0.0 };
        let fates = [0.0, 19.9, 20.0, 24.9, 25.0, 99.9].map(|percent| shares.fate(percent));
        use Fate::{Abandons, Pays, PaysLate};
        assert_eq!(fates, [Abandons, Abandons, PaysLate, PaysLate, Pays, Pays]);
    }

    fn shown(phase: &str, states: [&str; 2]) -> Shown {
        let items = states.map(|state| serde_json::json!({ "item": "phone", "state": state }));
        let body = serde_json::json!({
            "sale": "exam", "phase": phase, "snapshot": 1, "server_time": "2026-12-01T10:00:00.000Z",
            "queueing_method": "fifo", "waiting": 0, "now_serving": 4, "admissions_per_minute": 60,
            "items": items, "poll_after_ms": 1000,
        });
        Shown::of(&serde_json::from_str::<Public<'_>>(&body.to_string()).unwrap())
    }

    #[test]
    fn it_is_over_only_when_nothing_can_return() {
        assert!(shown("sold_out", ["sold_out", "sold_out"]).is_over());
        assert!(!shown("sold_out", ["sold_out", "all_held"]).is_over());
        assert!(!shown("open", ["sold_out", "available"]).is_over());
        assert!(shown("closed", ["available", "available"]).is_over());
        assert!(!Shown::default().is_over());
    }

    #[test]
    fn what_waiting_people_could_act_on_is_news() {
        let before = shown("open", ["sold_out", "available"]);
        assert!(!shown("open", ["sold_out", "available"]).is_news_to(&before));
        assert!(shown("open", ["sold_out", "all_held"]).is_news_to(&before));
        assert!(!Shown { now_serving: 3, ..before.clone() }.is_news_to(&before));
        assert!(Shown { now_serving: 5, ..before.clone() }.is_news_to(&before));
    }
}
