//! PURE. Whether the provider is out of reach: then one call a second goes on trying, and all others need not wait
//! for a timeout each.

use std::time::Duration;

use lockgate_shared::clock::Timestamp;

/// Calls in a row without an answer that make an outage.
const FAILURES_MIN: u32 = 5;
/// How often an unreachable provider is tried, in milliseconds.
const TRY_MS: u64 = 1_000;

/// What is known of the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outage {
    failures: u32,
    /// Before, nobody tries: during an outage; and nobody without a response ever.
    try_at: Timestamp,
}

/// What an outcome changes, for the log: each outage is said once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// An outage has begun.
    Began,
    /// It is over.
    Ended,
    /// Nothing new.
    Same,
}

impl Outage {
    /// Whether the provider is known to be out of reach.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.failures >= FAILURES_MIN
    }

    /// Whether to call the provider for a response: always, but during an outage once in a while only.
    pub fn may_ask(&mut self, now: Timestamp) -> bool {
        !self.is_on() || self.may_try(now)
    }

    /// Whether to call the provider only to learn whether it is there: once in a while.
    pub fn may_try(&mut self, now: Timestamp) -> bool {
        let is_due = now >= self.try_at;
        if is_due {
            self.try_at = now.plus(Duration::from_millis(TRY_MS));
        }
        is_due
    }

    /// Takes the outcome of a call.
    pub fn note(&mut self, is_reachable: bool) -> Turn {
        let was_on = self.is_on();
        self.failures = if is_reachable { 0 } else { self.failures.saturating_add(1) };
        match (was_on, self.is_on()) {
            (false, true) => Turn::Began,
            (true, false) => Turn::Ended,
            _ => Turn::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_begins_after_failures_in_a_row_and_ends_with_one_answer() {
        let mut outage = Outage::default();
        let turns: Vec<Turn> =
            [false, false, true, false, false, false, false].map(|is| outage.note(is)).to_vec();
        assert!(turns.iter().all(|turn| *turn == Turn::Same) && !outage.is_on(), "{turns:?}");
        assert_eq!([outage.note(false), outage.note(false)], [Turn::Began, Turn::Same]);
        assert_eq!([outage.note(true), outage.note(true)], [Turn::Ended, Turn::Same]);
    }

    #[test]
    fn during_an_outage_one_call_a_second_goes_on_trying() {
        let mut outage = Outage::default();
        let at = |ms| Timestamp::from_seconds(1_800_000_000).plus(Duration::from_millis(ms));
        assert!(outage.may_ask(at(0)) && outage.may_ask(at(0)), "while it answers everybody asks");
        for _ in 0..FAILURES_MIN {
            outage.note(false);
        }
        let asked: Vec<u64> = (0..3_000).step_by(100).filter(|ms| outage.may_ask(at(*ms))).collect();
        assert_eq!(asked, [0, 1_000, 2_000]);
        outage.note(true);
        assert!(outage.may_ask(at(2_100)) && outage.may_ask(at(2_100)));
    }
}
