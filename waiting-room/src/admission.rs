//! PURE. How far `now_serving` moves: a token bucket over the numbers, and which turns have run out.
//!
//! The bucket fills at the rate while people are admitted and stands still otherwise, so that a pause saves nothing
//! up. It is read lazily: a record that nothing moved need not be written again.

use std::time::Duration;

use lockgate_shared::clock::Timestamp;
use serde::{Deserialize, Serialize};

/// What an operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// People admitted per minute.
    pub rate_per_minute: u64,
    /// People admitted at once after a lull.
    pub burst: u64,
    /// How long a turn may be taken up.
    pub turn_seconds: u64,
}

/// Where a sale's admission stands. One per sale, moved by compare-and-set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdmissionRecord {
    /// Counts the moves of record and numbering together.
    pub version: u64,
    /// The highest number whose turn has come. Never falls.
    pub now_serving: u64,
    /// The highest number whose turn has run out. Never falls.
    pub expired_through: u64,
    /// Numbers given when it was written, by which a process sees whether its rows are the same.
    pub numbered: u64,
    /// The permits.
    pub bucket: Bucket,
    /// When which number was reached, for the turns that may still be taken; ascending.
    pub history: Vec<Turn>,
}

/// The token bucket. A permit is a million micro-permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// What was in it at `updated_at`.
    pub micro_permits: u64,
    /// When that was, in microseconds since the epoch.
    #[serde(with = "micros")]
    pub updated_at: Timestamp,
    /// Permits per minute that have been flowing in since; 0 while it stands still.
    pub flow_per_minute: u64,
    /// Permits it has held at most since.
    pub capacity: u64,
}

/// `now_serving` reached `number` at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// When.
    #[serde(with = "micros")]
    pub at: Timestamp,
    /// The number.
    pub number: u64,
}

/// Micro-permits of one permit.
const PERMIT: u64 = 1_000_000;
/// Steps a turn is divided into by the history.
const STEPS_PER_TURN: u64 = 128;
/// Shortest step of the history, in microseconds.
const STEP_MICROS_MIN: u64 = 100_000;
/// Most entries of the history, whatever happened to clocks and settings.
const HISTORY_MAX: usize = 512;

impl Default for Bucket {
    fn default() -> Self {
        // A sale opens with a full bucket; the first advance clamps it to the burst.
        Self {
            micro_permits: u64::MAX,
            updated_at: Timestamp::default(),
            flow_per_minute: 0,
            capacity: u64::MAX / PERMIT,
        }
    }
}

impl Bucket {
    /// Micro-permits at `now`. A clock that went back finds what was there.
    fn filled(&self, now: Timestamp) -> u64 {
        let micros = now.since(self.updated_at).as_micros();
        let flowed = micros.saturating_mul(u128::from(self.flow_per_minute)) / 60;
        let flowed = u64::try_from(flowed).unwrap_or(u64::MAX);
        capped(self.micro_permits.saturating_add(flowed), self.capacity)
    }
}

/// What of `micro_permits` a bucket of so many permits keeps. The begun part of one more stays: cut off at every tick, it
/// would cost a line whose rate fills the bucket between two ticks a part of its rate. A new bucket is full and no more.
fn capped(micro_permits: u64, permits: u64) -> u64 {
    let full = permits.saturating_mul(PERMIT);
    let begun = if micro_permits == u64::MAX { 0 } else { micro_permits % PERMIT };
    micro_permits.min(full.saturating_add(begun))
}

/// Moves the record to `now`: `total` numbers are given, and people are admitted if `admits`. `None` when nothing
/// moves and nothing need be written.
#[must_use]
pub fn advance(
    record: &AdmissionRecord,
    settings: &Settings,
    admits: bool,
    total: u64,
    now: Timestamp,
) -> Option<AdmissionRecord> {
    let mut next = record.clone();
    let flow_per_minute = if admits { settings.rate_per_minute } else { 0 };
    let permits = capped(record.bucket.filled(now), settings.burst);
    let waiting = total.saturating_sub(record.now_serving);
    let admitted = if admits { waiting.min(permits / PERMIT) } else { 0 };
    next.now_serving += admitted;
    next.numbered = next.numbered.max(total);
    if admitted > 0 {
        next.note_turn(now, settings.turn_seconds);
    }
    next.expire(now, settings.turn_seconds);
    let bucket = Bucket {
        micro_permits: permits - admitted * PERMIT,
        updated_at: now,
        flow_per_minute,
        capacity: settings.burst,
    };
    // Whatever changes how the bucket fills from now on must be written; mere filling is found again by reading.
    let old = &record.bucket;
    let refills_otherwise = (old.flow_per_minute, old.capacity) != (flow_per_minute, settings.burst)
        || (flow_per_minute > 0 && now < old.updated_at);
    if admitted > 0 || refills_otherwise {
        next.bucket = bucket;
    }
    (next != *record).then(|| {
        next.version = record.version.saturating_add(1);
        next
    })
}

impl AdmissionRecord {
    /// When the turn of `number` runs out; `None` before it has come and after it is forgotten.
    #[must_use]
    pub fn turn_expires_at(&self, number: u64, turn_seconds: u64) -> Option<Timestamp> {
        let index = self.history.partition_point(|turn| turn.number < number);
        let turn = self.history.get(index)?;
        Some(turn.at.plus_seconds(turn_seconds))
    }

    /// Laid over a record that may have lost its last writes: nothing that was shown ever falls back.
    #[must_use]
    pub fn restored_over(&self, stored: &Self) -> Self {
        let ahead = if stored.now_serving > self.now_serving { stored } else { self };
        Self {
            version: self.version.max(stored.version),
            expired_through: self.expired_through.max(stored.expired_through),
            numbered: self.numbered.max(stored.numbered),
            ..ahead.clone()
        }
    }

    fn note_turn(&mut self, now: Timestamp, turn_seconds: u64) {
        // A turn begins at the end of its step, never earlier than it came: what is shown once stays true, and the
        // history stays short however long a turn is.
        let step = (turn_seconds.saturating_mul(1_000_000) / STEPS_PER_TURN).max(STEP_MICROS_MIN);
        let micros = u64::try_from(now.micros()).unwrap_or(0).div_ceil(step).saturating_mul(step);
        let at = Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX));
        let number = self.now_serving;
        // After a clock step back: what came before came no later than this.
        for turn in &mut self.history {
            turn.at = turn.at.min(at);
        }
        match self.history.last_mut() {
            Some(last) if last.at == at => last.number = number,
            _ => self.history.push(Turn { at, number }),
        }
        if self.history.len() > HISTORY_MAX {
            self.history.remove(0);
        }
    }

    fn expire(&mut self, now: Timestamp, turn_seconds: u64) {
        let span = Duration::from_secs(turn_seconds);
        let expired =
            self.history.iter().filter(|turn| turn.at.plus(span) <= now).map(|turn| turn.number).max();
        if let Some(expired) = expired {
            self.expired_through = self.expired_through.max(expired);
            let through = self.expired_through;
            self.history.retain(|turn| turn.number > through);
        }
    }
}

mod micros {
    use lockgate_shared::clock::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(moment: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(moment.micros())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(deserializer).map(Timestamp::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: i64 = 1_800_000_000;

    fn at_ms(ms: i64) -> Timestamp {
        Timestamp::from_micros(START * 1_000_000 + ms * 1_000)
    }

    fn settings(rate_per_minute: u64, burst: u64) -> Settings {
        Settings { rate_per_minute, burst, turn_seconds: 60 }
    }

    /// One tick; the record after it.
    fn tick(
        record: &AdmissionRecord,
        settings: &Settings,
        admits: bool,
        total: u64,
        ms: i64,
    ) -> AdmissionRecord {
        advance(record, settings, admits, total, at_ms(ms)).unwrap_or_else(|| record.clone())
    }

    #[test]
    fn opens_with_a_burst_and_then_keeps_the_rate() {
        let settings = settings(6_000, 100);
        let mut record = AdmissionRecord::default();
        for ms in (0..=10_000).step_by(200) {
            record = tick(&record, &settings, true, 1_000_000, ms);
            assert_eq!(record.now_serving, 100 + ms as u64 / 10);
        }
    }

    #[test]
    fn l6_a_pause_saves_nothing_up_and_a_new_rate_counts_from_its_tick() {
        let before = settings(6_000, 100);
        let record = tick(&AdmissionRecord::default(), &before, true, 1_000_000, 0);
        assert_eq!(record.now_serving, 100);
        let paused = tick(&record, &before, false, 1_000_000, 200);
        assert_eq!(paused.now_serving, 100);
        let resumed = tick(&paused, &before, true, 1_000_000, 3_600_000);
        assert_eq!(resumed.now_serving, 120, "the 200 ms before the pause, not the hour after");
        let after = settings(60_000, 1_000);
        let raised = tick(&resumed, &after, true, 1_000_000, 3_600_200);
        assert_eq!(raised.now_serving, 140, "200 ms at the old rate");
        assert_eq!(tick(&raised, &after, true, 1_000_000, 3_600_400).now_serving, 340);
    }

    #[test]
    fn l6_a_raised_burst_is_not_full_at_once() {
        let record = tick(&AdmissionRecord::default(), &settings(60, 10), true, 0, 0);
        let raised = tick(&record, &settings(60, 1_000), true, 0, 3_600_000);
        assert_eq!(tick(&raised, &settings(60, 1_000), true, 5_000, 3_600_000).now_serving, 10);
    }

    #[test]
    fn nothing_is_written_while_nothing_moves() {
        let settings = settings(60, 1);
        let record = tick(&AdmissionRecord::default(), &settings, true, 5, 0);
        assert_eq!(record.now_serving, 1);
        assert_eq!(advance(&record, &settings, true, 5, at_ms(900)), None);
        assert_eq!(tick(&record, &settings, true, 5, 1_000).now_serving, 2, "and the filling is not lost");
        let all = tick(&record, &settings, true, 1, 1_000);
        assert_eq!(all, record);
    }

    #[test]
    fn a_clock_that_goes_back_does_no_harm() {
        let settings = settings(6_000, 100);
        let record = tick(&AdmissionRecord::default(), &settings, true, 1_000_000, 3_600_000);
        let back = tick(&record, &settings, true, 1_000_000, 0);
        assert_eq!(back.now_serving, 100);
        let on = tick(&back, &settings, true, 1_000_000, 1_000);
        assert_eq!(on.now_serving, 200, "the rate goes on from the earlier clock at once");
        assert_eq!(
            tick(&on, &settings, true, 1_000_000, 63_000).expired_through,
            200,
            "no turn lasts an hour"
        );
    }

    #[test]
    fn l1_turns_run_out_after_their_time_and_not_before() {
        let settings = settings(6_000, 100);
        let record = tick(&AdmissionRecord::default(), &settings, true, 150, 0);
        let expires_at = record.turn_expires_at(100, 60).unwrap();
        assert!(expires_at >= at_ms(60_000) && expires_at <= at_ms(60_500));
        let record = tick(&record, &settings, true, 150, 30_000);
        assert_eq!(record.now_serving, 150);
        assert_eq!(record.turn_expires_at(100, 60), Some(expires_at), "what was shown stays true");
        assert_eq!(record.turn_expires_at(151, 60), None);
        let just_before = Timestamp::from_micros(expires_at.micros() - 1);
        assert_eq!(advance(&record, &settings, true, 150, just_before), None);
        let record = advance(&record, &settings, true, 150, expires_at).unwrap();
        assert_eq!((record.expired_through, record.now_serving), (100, 150));
        assert_eq!(record.turn_expires_at(150, 60).map(|at| at > expires_at), Some(true));
    }

    #[test]
    fn the_record_reads_back() {
        let record = tick(&AdmissionRecord::default(), &settings(600, 7), true, 100, 1);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<AdmissionRecord>(&text).unwrap(), record);
        let first = serde_json::to_string(&AdmissionRecord::default()).unwrap();
        assert_eq!(serde_json::from_str::<AdmissionRecord>(&first).unwrap(), AdmissionRecord::default());
    }

    #[test]
    fn l5_a_store_that_lost_writes_does_not_turn_the_board_back() {
        let settings = settings(600, 5);
        let early = tick(&AdmissionRecord::default(), &settings, true, 50, 0);
        let late = tick(&early, &settings, true, 50, 500);
        let restored = late.restored_over(&early);
        assert_eq!(restored, late);
        assert_eq!(early.restored_over(&late), late);
    }

    #[derive(Clone, Debug)]
    struct Step {
        ms: i64,
        arrivals: u64,
        admits: bool,
        rate_per_minute: u64,
        burst: u64,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let ms = prop_oneof![8 => 0i64..1_000, 1 => -100_000i64..0, 1 => 0i64..100_000];
        let rate = prop_oneof![Just(60u64), Just(6_000), Just(120_000), 1u64..1_000];
        (ms, 0u64..500, prop::bool::weighted(0.8), rate, 1u64..300).prop_map(
            |(ms, arrivals, admits, rate_per_minute, burst)| Step {
                ms,
                arrivals,
                admits,
                rate_per_minute,
                burst,
            },
        )
    }

    #[test]
    fn a_rate_that_fills_the_bucket_between_two_ticks_is_reached() {
        let settings = settings(6_506, 22);
        let mut record = AdmissionRecord::default();
        for tick_count in 0..=156 {
            record = tick(&record, &settings, true, 3_355, tick_count * 200);
        }
        assert_eq!(record.now_serving, 3_355);
    }

    proptest! {
        #[test]
        fn p1_now_serving_and_expired_through_never_fall(steps in prop::collection::vec(any_step(), 1..60)) {
            let (mut record, mut total, mut ms) = (AdmissionRecord::default(), 0, 0);
            for step in steps {
                (total, ms) = (total + step.arrivals, ms + step.ms);
                let next = tick(&record, &settings(step.rate_per_minute, step.burst), step.admits, total, ms);
                prop_assert!(next.now_serving >= record.now_serving && next.now_serving <= total);
                prop_assert!(next.expired_through >= record.expired_through && next.expired_through <= next.now_serving);
                prop_assert!(step.admits || next.now_serving == record.now_serving);
                prop_assert!(next.history.len() <= HISTORY_MAX);
                prop_assert!(next.history.is_sorted_by(|a, b| a.number < b.number && a.at <= b.at));
                record = next;
            }
        }

        #[test]
        fn never_more_than_burst_and_rate_in_any_window(
            rate in 1u64..10_000, burst in 1u64..100,
            steps in prop::collection::vec((0i64..3_000, prop::bool::weighted(0.7)), 1..60),
        ) {
            let settings = settings(rate, burst);
            let (mut record, mut ms) = (AdmissionRecord::default(), 0);
            let mut seen = vec![(0i64, 0u64)];
            for (step_ms, admits) in steps {
                ms += step_ms;
                record = tick(&record, &settings, admits, u64::MAX / 2, ms);
                for (earlier_ms, earlier) in &seen {
                    let flowed = u128::from(rate) * (ms - earlier_ms) as u128 / 60_000;
                    prop_assert!(u128::from(record.now_serving - earlier) <= u128::from(burst) + flowed + 1);
                }
                seen.push((ms, record.now_serving));
            }
        }

        #[test]
        fn l2_nobody_waits_while_there_are_permits(
            rate in 60u64..100_000, burst in 1u64..1_000, waiting in 1u64..10_000,
        ) {
            // However the ticks fall, everybody is served in the time the rate takes, without anybody asking.
            let settings = settings(rate, burst);
            let mut record = AdmissionRecord::default();
            let needed_ms = (waiting * 60_000).div_ceil(rate.min(burst * 300)) as i64 + 200;
            let mut ms = 0;
            while ms <= needed_ms {
                record = tick(&record, &settings, true, waiting, ms);
                ms += 200;
            }
            prop_assert_eq!(record.now_serving, waiting);
        }
    }
}
