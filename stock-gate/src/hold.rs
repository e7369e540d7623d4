//! PURE: the life of a hold, and when a claim may make one at all.
//!
//! ```text
//! held -> expiring -> committed | released
//!   \------------------^----------^
//! ```
//!
//! Each step happens once. The gate never ends a hold on its own: `expiring` is still held, until the order has
//! decided. One way leads back: a released hold is reclaimed, once, for a buyer who paid in time and was heard of late.
//! It is sold at once.

use lockgate_shared::{
    clock::Timestamp,
    events::Abandoned,
    gate::{CommitAnswer, HoldState, ReleaseAnswer},
};

/// What a verb finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<A> {
    /// The hold moves now.
    Moves,
    /// It had moved before; this is the answer, and nothing changes.
    Stands(A),
}

/// Whether the units belong to somebody who may still pay for them.
#[must_use]
pub fn is_live(state: HoldState) -> bool {
    matches!(state, HoldState::Held | HoldState::Expiring)
}

/// What a commit finds.
#[must_use]
pub fn commit(state: HoldState) -> Step<CommitAnswer> {
    match state {
        HoldState::Held | HoldState::Expiring => Step::Moves,
        HoldState::Committed => Step::Stands(CommitAnswer::Committed),
        HoldState::Released => Step::Stands(CommitAnswer::Released),
    }
}

/// What a release finds.
#[must_use]
pub fn release(state: HoldState) -> Step<ReleaseAnswer> {
    match state {
        HoldState::Held | HoldState::Expiring => Step::Moves,
        HoldState::Committed => Step::Stands(ReleaseAnswer::Committed),
        HoldState::Released => Step::Stands(ReleaseAnswer::Released),
    }
}

/// What a reclaim finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// The units are the claim's already.
    Stands,
    /// The hold lives: it is committed.
    Commits,
    /// The hold was released: its units, or others, are taken and sold.
    Takes,
}

/// What a reclaim finds.
#[must_use]
pub fn reclaim(state: HoldState) -> Reclaim {
    match state {
        HoldState::Held | HoldState::Expiring => Reclaim::Commits,
        HoldState::Committed => Reclaim::Stands,
        HoldState::Released => Reclaim::Takes,
    }
}

/// Whether the sweep marks a hold in this state with this deadline.
#[must_use]
pub fn is_due(state: HoldState, deadline: Timestamp, now: Timestamp) -> bool {
    state == HoldState::Held && deadline <= now
}

/// Whether a release says that the hold ran out unpaid: what was given back before its deadline was not abandoned,
/// and what proved paid after it is committed.
#[must_use]
pub fn is_abandoned(state: HoldState) -> bool {
    state == HoldState::Expiring
}

/// What an account has abandoned when one more hold of the admission given at `admitted_at` (seconds) ran out, by
/// what was `known`. Each admission counts for itself; `None` when the account has claimed by a later one since.
#[must_use]
pub fn abandoned(known: Option<Abandoned>, admitted_at: i64) -> Option<Abandoned> {
    match known {
        Some(known) if known.admitted_at > admitted_at => None,
        Some(known) if known.admitted_at == admitted_at => {
            Some(Abandoned { admitted_at, holds: known.holds.saturating_add(1) })
        }
        _ => Some(Abandoned { admitted_at, holds: 1 }),
    }
}

/// Holds abandoned under the admission given at `admitted_at`, by what is `known` of the account.
#[must_use]
pub fn abandoned_under(known: Option<Abandoned>, admitted_at: i64) -> u32 {
    known.filter(|known| known.admitted_at == admitted_at).map_or(0, |known| known.holds)
}

/// A time that never goes back: a store's clock may be set back, the time of a sale is not.
#[must_use]
pub fn monotone(clock: Timestamp, last: Timestamp) -> Timestamp {
    clock.max(last)
}

/// What decides whether a sale takes claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// From when.
    pub opens_at: Timestamp,
    /// Until when.
    pub closes_at: Timestamp,
    /// Whether an operator closed it. Pausing stops admissions only, never claims.
    pub closed: bool,
    /// The epoch below which tokens are revoked.
    pub epoch: u32,
}

/// Why a claim may make no hold, whatever the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The sale is not open for claims.
    NotOpen,
    /// The token's epoch is over.
    Revoked,
}

impl Refusal {
    /// The word a store is given.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotOpen => "not_open",
            Self::Revoked => "revoked",
        }
    }
}

/// Whether a token of `epoch` may make a hold at `now`. A higher epoch than the sale's comes from a process that has
/// read a newer definition, and stands.
#[must_use]
pub fn refusal(opening: &Opening, epoch: u32, now: Timestamp) -> Option<Refusal> {
    if epoch < opening.epoch {
        return Some(Refusal::Revoked);
    }
    let open = opening.opens_at <= now && now < opening.closes_at && !opening.closed;
    (!open).then_some(Refusal::NotOpen)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STATES: [HoldState; 4] =
        [HoldState::Held, HoldState::Expiring, HoldState::Committed, HoldState::Released];

    #[test]
    fn a_hold_ends_once_and_the_first_ending_stands() {
        for state in STATES {
            assert_eq!(commit(state) == Step::Moves, is_live(state));
            assert_eq!(release(state) == Step::Moves, is_live(state));
        }
        assert_eq!(commit(HoldState::Released), Step::Stands(CommitAnswer::Released));
        assert_eq!(release(HoldState::Committed), Step::Stands(ReleaseAnswer::Committed));
    }

    #[test]
    fn a_reclaim_sells_a_hold_whatever_became_of_it_and_none_twice() {
        for state in STATES {
            assert_eq!(reclaim(state) == Reclaim::Commits, is_live(state));
        }
        assert_eq!(reclaim(HoldState::Committed), Reclaim::Stands);
        assert_eq!(reclaim(HoldState::Released), Reclaim::Takes);
    }

    #[test]
    fn only_a_held_hold_falls_due_and_at_its_deadline() {
        let at = Timestamp::from_seconds;
        for state in STATES {
            assert_eq!(is_due(state, at(10), at(10)), state == HoldState::Held);
            assert!(!is_due(state, at(10), at(9)));
        }
    }

    #[test]
    fn what_was_abandoned_counts_for_one_admission() {
        let first = abandoned(None, 5).unwrap();
        let second = abandoned(Some(first), 5).unwrap();
        assert_eq!((first.holds, second.holds), (1, 2));
        assert_eq!(abandoned(Some(second), 4), None, "an old admission's hold changes nothing");
        assert_eq!(abandoned(Some(second), 6), Some(Abandoned { admitted_at: 6, holds: 1 }));
        assert_eq!(abandoned_under(Some(second), 5), 2);
        assert_eq!(abandoned_under(Some(second), 6) + abandoned_under(None, 6), 0);
        for state in STATES {
            assert_eq!(is_abandoned(state), state == HoldState::Expiring);
        }
    }

    proptest! {
        #[test]
        fn claims_are_taken_exactly_while_the_sale_is_open(
            opens in 0_i64..100, length in 1_i64..100, now in 0_i64..300, closed: bool, epoch in 0_u32..3, token in 0_u32..3,
        ) {
            let at = Timestamp::from_seconds;
            let opening = Opening { opens_at: at(opens), closes_at: at(opens + length), closed, epoch };
            let expected = if token < epoch {
                Some(Refusal::Revoked)
            } else if closed || now < opens || now >= opens + length {
                Some(Refusal::NotOpen)
            } else {
                None
            };
            prop_assert_eq!(refusal(&opening, token, at(now)), expected);
        }
    }
}
