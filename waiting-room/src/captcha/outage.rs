//! PURE. Whether the provider is out of reach: then one call a second goes on trying, and all others need not wait
//! for a timeout each.
//!
//! What shoppers' calls come to only raises the suspicion: whoever opens enough of them can make some fail. An outage is
//! what calls of our own find, one after the other, with nothing in them that anybody chose.

use std::time::Duration;

use lockgate_shared::clock::Timestamp;

/// Calls for shoppers in a row without an answer that make us try ourselves.
const FAILURES_MIN: u32 = 5;
/// Tries in a row without an answer that make an outage.
const FAILED_TRIES_MIN: u32 = 3;
/// How often we try, in milliseconds.
const TRY_MS: u64 = 1_000;

/// What is known of the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outage {
    failures: u32,
    failed_tries: u32,
    /// Before, nobody tries.
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
        self.failed_tries >= FAILED_TRIES_MIN
    }

    /// Whether to try it first: it may be out of reach, and nobody has tried for a second.
    pub fn must_try(&mut self, now: Timestamp) -> bool {
        (self.failures >= FAILURES_MIN || self.failed_tries > 0) && self.may_try(now)
    }

    /// Whether nobody has tried for a second. Whoever asks tries.
    pub fn may_try(&mut self, now: Timestamp) -> bool {
        let is_due = now >= self.try_at;
        if is_due {
            self.try_at = now.plus(Duration::from_millis(TRY_MS));
        }
        is_due
    }

    /// Takes the outcome of a call for a shopper.
    pub fn note_call(&mut self, is_reachable: bool) -> Turn {
        if is_reachable {
            return self.note_answer();
        }
        self.failures = self.failures.saturating_add(1);
        Turn::Same
    }

    /// Takes the outcome of a try.
    pub fn note_try(&mut self, is_reachable: bool) -> Turn {
        if is_reachable {
            return self.note_answer();
        }
        let was_on = self.is_on();
        self.failed_tries = self.failed_tries.saturating_add(1);
        if self.is_on() && !was_on { Turn::Began } else { Turn::Same }
    }

    fn note_answer(&mut self) -> Turn {
        let turn = if self.is_on() { Turn::Ended } else { Turn::Same };
        (self.failures, self.failed_tries) = (0, 0);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_seconds(1_800_000_000).plus(Duration::from_millis(ms))
    }

    #[test]
    fn calls_that_shoppers_make_are_no_outage_however_many_fail() {
        let mut outage = Outage::default();
        assert!(!outage.must_try(at(0)));
        assert!((0..1_000).all(|_| outage.note_call(false) == Turn::Same) && !outage.is_on());
        assert!(outage.must_try(at(0)) && !outage.must_try(at(999)), "we try, once a second");
        assert_eq!(outage.note_try(true), Turn::Same);
        assert!(!outage.must_try(at(5_000)), "it answers us");
    }

    #[test]
    fn an_outage_begins_with_failed_tries_in_a_row_and_ends_with_any_answer() {
        for answer in [Outage::note_call, Outage::note_try] {
            let mut outage = Outage::default();
            let turns = [false, false, true, false, false].map(|is| outage.note_try(is));
            assert!(turns.iter().all(|turn| *turn == Turn::Same) && !outage.is_on(), "{turns:?}");
            assert_eq!([outage.note_try(false), outage.note_try(false)], [Turn::Began, Turn::Same]);
            let tried: Vec<u64> = (0..3_000).step_by(100).filter(|ms| outage.must_try(at(*ms))).collect();
            assert_eq!(tried, [0, 1_000, 2_000]);
            assert_eq!([answer(&mut outage, true), answer(&mut outage, true)], [Turn::Ended, Turn::Same]);
            assert!(!outage.must_try(at(9_000)));
        }
    }
}
