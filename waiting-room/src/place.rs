//! PURE. What a ticket means at a moment: its state, how many are ahead, how long it may take, when to ask again.

use lockgate_shared::{clock::Timestamp, sale::SaleDefinition};

use crate::{
    admission::{AdmissionRecord, Bound},
    draw::is_lottery,
    phase::Phase,
    store::{Seat, SeatState},
};

/// Where somebody stands, as the personal status names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In line, without a number yet.
    Entered,
    /// In line.
    Waiting,
    /// May be admitted now.
    YourTurn,
    /// The turn, or the right it became, has run out; or the account has a later place.
    TurnMissed,
    /// Holds the right to check out.
    Admitted,
    /// Gave the place up.
    Left,
    /// Nothing can be claimed at this moment.
    SoldOut,
    /// The sale is over.
    Closed,
}

impl State {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Entered => "entered",
            Self::Waiting => "waiting",
            Self::YourTurn => "your_turn",
            Self::TurnMissed => "turn_missed",
            Self::Admitted => "admitted",
            Self::Left => "left",
            Self::SoldOut => "sold_out",
            Self::Closed => "closed",
        }
    }
}

/// Everything that decides where somebody stands.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    /// The sale.
    pub definition: &'a SaleDefinition,
    /// What it is doing.
    pub phase: Phase,
    /// How far the line has moved.
    pub record: &'a AdmissionRecord,
    /// The ticket's place in its lane.
    pub seq: u64,
    /// The ticket's number, once it has one.
    pub number: Option<u64>,
    /// Whether the place is known to be given up.
    pub has_left: bool,
    /// What the lane keeps of the account, where that was asked.
    pub seat: Option<&'a Seat>,
    /// The present.
    pub now: Timestamp,
}

/// Where somebody stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The state.
    pub state: State,
    /// The number, counting from 1.
    pub number: Option<u64>,
    /// People whose turn comes before.
    pub people_ahead: Option<u64>,
    /// Between how many and how many seconds it may take, while anything moves.
    pub wait_seconds: Option<(u64, u64)>,
    /// When the turn runs out.
    pub turn_expires_at: Option<Timestamp>,
    /// When to ask again.
    pub poll_after_ms: u64,
}

impl Standing<'_> {
    /// Whether the turn has come, so that only the lane knows what became of it.
    #[must_use]
    pub fn needs_seat(&self) -> bool {
        self.phase != Phase::Closed && !self.has_left && self.was_called()
    }

    /// Whether the turn has come, now or at any time before.
    #[must_use]
    pub fn was_called(&self) -> bool {
        self.number.is_some_and(|number| number <= self.record.now_serving)
    }

    /// Whether the turn came and has run out.
    #[must_use]
    pub fn has_missed(&self) -> bool {
        self.number.is_some_and(|number| number <= self.record.expired_through)
    }

    fn state(&self) -> State {
        let newer = self.seat.filter(|seat| seat.seq >= self.seq);
        let own = newer.filter(|seat| seat.seq == self.seq).map(|seat| &seat.state);
        if self.has_left || own == Some(&SeatState::Left) {
            return State::Left;
        }
        if self.phase == Phase::Closed {
            return State::Closed;
        }
        if let Some(SeatState::Admitted(right)) = own {
            return if right.expires_at > self.now { State::Admitted } else { State::TurnMissed };
        }
        let superseded = newer.is_some_and(|seat| seat.seq > self.seq);
        if superseded || self.has_missed() {
            State::TurnMissed
        } else if self.phase == Phase::SoldOut {
            State::SoldOut
        } else if self.was_called() {
            State::YourTurn
        } else if self.number.is_some() {
            State::Waiting
        } else {
            State::Entered
        }
    }

    /// Where that is.
    #[must_use]
    pub fn place(&self) -> Place {
        let state = self.state();
        let in_line = matches!(state, State::Waiting | State::YourTurn);
        let wait = self.wait_micros().filter(|_| state == State::Waiting && self.phase.admits());
        Place {
            state,
            number: self.number,
            people_ahead: self
                .number
                .filter(|_| in_line)
                .map(|number| (number - 1).saturating_sub(self.record.now_serving)),
            wait_seconds: wait.map(wait_range),
            turn_expires_at: self.number.filter(|_| state == State::YourTurn).and_then(|number| {
                self.record.turn_expires_at(number, self.definition.admission.turn_seconds)
            }),
            poll_after_ms: self.poll_after_ms(state, wait),
        }
    }

    /// What it takes to reach the number: by the rate, or by what was reached lately while the cap or the stock
    /// holds the line.
    fn wait_micros(&self) -> Option<u64> {
        let steps = self.number?.saturating_sub(self.record.now_serving);
        let admission = &self.definition.admission;
        let rate = match self.record.bound {
            Bound::Cap | Bound::Stock => {
                let pace = self.record.pace_per_minute(self.now, admission.turn_seconds);
                pace.min(admission.rate_per_minute)
            }
            _ => admission.rate_per_minute,
        };
        steps.saturating_mul(60_000_000).checked_div(rate)
    }

    fn poll_after_ms(&self, state: State, wait_micros: Option<u64>) -> u64 {
        // However far away: nobody sleeps through the turn, and a change reaches everybody within half a minute.
        let longest = (self.definition.admission.turn_seconds * 250).clamp(POLL_MS_MIN, 30_000);
        let by_distance = |micros: u64| (micros / 8_000).clamp(POLL_MS_MIN, longest);
        let base = match state {
            // Before a draw there is no number to wait for.
            State::Entered if self.phase == Phase::DoorsOpen && is_lottery(self.definition) => {
                by_distance(micros_until(self.definition.opens_at, self.now))
            }
            State::Entered if self.phase == Phase::Drawing => 5_000.min(longest),
            State::Entered => POLL_MS_MIN,
            State::Waiting => match wait_micros {
                Some(micros) => by_distance(micros),
                None if self.phase == Phase::DoorsOpen => {
                    by_distance(micros_until(self.definition.opens_at, self.now))
                }
                None => 5_000.min(longest),
            },
            State::YourTurn => 3_000,
            State::SoldOut => 10_000.min(longest),
            State::Admitted => 15_000,
            State::TurnMissed | State::Left | State::Closed => 60_000,
        };
        spread(base, self.seq)
    }
}

/// Shortest time between two polls, in milliseconds.
const POLL_MS_MIN: u64 = 1_000;

fn micros_until(then: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(then.since(now).as_micros()).unwrap_or(u64::MAX)
}

/// The wait is said as a range: rates are kept in the mean, and people leave and arrive.
fn wait_range(micros: u64) -> (u64, u64) {
    let low = micros.saturating_mul(4) / 5 / 1_000_000;
    let high = (micros.saturating_mul(5) / 4).div_ceil(1_000_000).saturating_add(2);
    (low, high)
}

/// `base_ms` moved by up to a fifth either way, by the place: neighbours do not ask in the same moment, and the same
/// shopper is always told the same.
fn spread(base_ms: u64, seq: u64) -> u64 {
    let mixed = seq.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    base_ms * (800 + mixed % 401) / 1_000
}

/// When to ask the public status again, in milliseconds.
#[must_use]
pub fn public_poll_after_ms(definition: &SaleDefinition, phase: Phase, now: Timestamp) -> u64 {
    let until = |then: Timestamp| (micros_until(then, now) / 4_000).clamp(2_000, 30_000);
    match phase {
        Phase::Scheduled => until(definition.doors_open_at),
        Phase::DoorsOpen => until(definition.opens_at).min(10_000),
        Phase::Open | Phase::Drawing => 2_000,
        Phase::Paused | Phase::SoldOut => 5_000,
        Phase::Closed => 60_000,
    }
}

#[cfg(test)]
mod tests {
    use lockgate_shared::sale::{EXAMPLE_TOML, parse_toml};
    use proptest::prelude::*;

    use super::*;
    use crate::{
        admission::{Scene, Settings, Turns, advance},
        store::Right,
    };

    fn sale() -> SaleDefinition {
        parse_toml("example", EXAMPLE_TOML).unwrap()
    }

    /// A line of 1,000 that has admitted 100 at the opening, at 100 per second.
    fn record(sale: &SaleDefinition) -> AdmissionRecord {
        let settings =
            Settings { rate_per_minute: 6_000, burst: 100, turn_seconds: 120, ..Settings::default() };
        let (turns, now) = (Turns::new(1), sale.opens_at);
        let scene = Scene { now, phase: Phase::Open, total: 1_000, turns: &turns, winnable: None };
        advance(&AdmissionRecord::default(), &settings, &scene).unwrap()
    }

    fn with_rate(mut sale: SaleDefinition) -> SaleDefinition {
        sale.admission.rate_per_minute = 6_000;
        sale
    }

    struct Case<'a> {
        sale: &'a SaleDefinition,
        record: &'a AdmissionRecord,
    }

    impl<'a> Case<'a> {
        fn standing(&self, number: Option<u64>, phase: Phase) -> Standing<'a> {
            Standing {
                definition: self.sale,
                phase,
                record: self.record,
                seq: 7,
                number,
                has_left: false,
                seat: None,
                now: self.sale.opens_at,
            }
        }

        fn state(&self, number: Option<u64>, phase: Phase) -> State {
            self.standing(number, phase).place().state
        }
    }

    #[test]
    fn every_state_has_its_cause() {
        let sale = with_rate(sale());
        let record = record(&sale);
        let case = Case { sale: &sale, record: &record };
        assert_eq!(case.state(None, Phase::Open), State::Entered);
        assert_eq!(case.state(Some(101), Phase::Open), State::Waiting);
        assert_eq!(case.state(Some(100), Phase::Open), State::YourTurn);
        assert_eq!(case.state(Some(100), Phase::Paused), State::YourTurn);
        assert_eq!(case.state(Some(500), Phase::SoldOut), State::SoldOut);
        assert_eq!(case.state(Some(500), Phase::Closed), State::Closed);
        let left = Standing { has_left: true, ..case.standing(Some(500), Phase::Closed) };
        assert_eq!(left.place().state, State::Left);
        let expired = AdmissionRecord { expired_through: 100, ..record.clone() };
        let late = Case { sale: &sale, record: &expired };
        assert_eq!(late.state(Some(100), Phase::Open), State::TurnMissed);
    }

    #[test]
    fn the_lane_has_the_last_word_on_a_turn() {
        let sale = with_rate(sale());
        let record = AdmissionRecord { expired_through: 50, ..record(&sale) };
        let case = Case { sale: &sale, record: &record };
        let right = |seconds| {
            SeatState::Admitted(Right {
                jti: "j".into(),
                issued_at: sale.opens_at,
                expires_at: sale.opens_at.plus_seconds(seconds),
                epoch: 0,
            })
        };
        let state = |number, seq, state, phase| {
            let seat = Seat { seq, state };
            Standing { seat: Some(&seat), ..case.standing(Some(number), phase) }.place().state
        };
        assert_eq!(state(10, 7, right(60), Phase::Open), State::Admitted, "admitted before the turn ran out");
        assert_eq!(state(60, 7, right(60), Phase::SoldOut), State::Admitted);
        assert_eq!(state(60, 7, right(0), Phase::Open), State::TurnMissed);
        assert_eq!(state(60, 9, SeatState::Waiting, Phase::Open), State::TurnMissed, "superseded");
        assert_eq!(state(60, 7, SeatState::Left, Phase::Open), State::Left);
        assert_eq!(
            state(60, 3, SeatState::Left, Phase::Open),
            State::YourTurn,
            "an older seat was lost by the store"
        );
        assert_eq!(state(10, 7, SeatState::Waiting, Phase::Open), State::TurnMissed);
    }

    #[test]
    fn p3_no_wait_is_told_while_nothing_moves() {
        let sale = with_rate(sale());
        let record = record(&sale);
        let case = Case { sale: &sale, record: &record };
        let open = case.standing(Some(701), Phase::Open).place();
        assert_eq!(open.people_ahead, Some(600));
        assert_eq!(open.wait_seconds, Some((4, 10)));
        for phase in [Phase::DoorsOpen, Phase::Paused, Phase::SoldOut, Phase::Closed] {
            assert_eq!(case.standing(Some(701), phase).place().wait_seconds, None, "{phase:?}");
        }
        assert_eq!(case.standing(Some(701), Phase::Paused).place().people_ahead, Some(600));
    }

    #[test]
    fn a_turn_says_until_when() {
        let sale = with_rate(sale());
        let record = record(&sale);
        let case = Case { sale: &sale, record: &record };
        let place = case.standing(Some(3), Phase::Open).place();
        let until = place.turn_expires_at.unwrap();
        assert!(until >= sale.opens_at.plus_seconds(120) && until <= sale.opens_at.plus_seconds(121));
        assert_eq!(place.people_ahead, Some(0));
    }

    proptest! {
        #[test]
        fn polls_are_spread_and_bounded(seq in any::<u64>(), number in prop::option::of(1u64..10_000_000)) {
            let sale = with_rate(sale());
            let record = record(&sale);
            let case = Case { sale: &sale, record: &record };
            for phase in [Phase::DoorsOpen, Phase::Open, Phase::Paused, Phase::SoldOut, Phase::Closed] {
                let standing = Standing { seq, ..case.standing(number, phase) };
                let first = standing.place().poll_after_ms;
                prop_assert!((800..=72_000).contains(&first));
                prop_assert_eq!(first, standing.place().poll_after_ms);
                let turn_ms = sale.admission.turn_seconds * 1_000;
                prop_assert!(standing.place().state != State::Waiting || first <= turn_ms / 3);
            }
        }

        #[test]
        fn p1_nobody_gets_further_back(number in 1u64..2_000, steps in prop::collection::vec(0u64..400, 1..20)) {
            let sale = with_rate(sale());
            let mut record = AdmissionRecord::default();
            let mut last = u64::MAX;
            for step in steps {
                record.now_serving += step;
                let case = Case { sale: &sale, record: &record };
                if let Some(ahead) = case.standing(Some(number), Phase::Open).place().people_ahead {
                    prop_assert!(ahead <= last);
                    last = ahead;
                }
            }
        }
    }
}
