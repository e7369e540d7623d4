//! PURE. Where a sale's admission stands: the board, the permits, the turns that are on.

use lockgate_shared::clock::Timestamp;
use serde::{Deserialize, Serialize};

use super::Bound;
use crate::draw::Draw;

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
    /// The share of turns that nobody takes up, smoothed, in millionths.
    #[serde(default)]
    pub no_show_micros: u64,
    /// Why the board did not move further.
    #[serde(default)]
    pub bound: Bound,
    /// How far the lottery has come, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draw: Option<Draw>,
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
    /// How long the turn was to last when it came. It never lasts less, whatever an operator sets afterwards; 0 in
    /// records from before this was kept.
    #[serde(default)]
    pub seconds: u64,
}

impl Turn {
    /// When it has run out, by itself, in a sale whose turns last `turn_seconds` now.
    fn ends_at(&self, turn_seconds: u64) -> Timestamp {
        self.at.plus_seconds(self.seconds.max(turn_seconds))
    }
}

/// Micro-permits of one permit.
pub(super) const PERMIT: u64 = 1_000_000;
/// Steps a turn is divided into by the history.
const STEPS_PER_TURN: u64 = 128;
/// Shortest step of the history, in microseconds.
const STEP_MICROS_MIN: u64 = 100_000;
/// Most entries of the history, whatever happened to clocks and settings.
pub(super) const HISTORY_MAX: usize = 512;
/// Longest look back from which the pace of the line is told, in seconds.
const PACE_SECONDS_MAX: u64 = 60;

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

/// What of `micro_permits` a bucket of so many permits keeps. The begun part of one more stays: cut off at every tick, it
/// would cost a line whose rate fills the bucket between two ticks a part of its rate. A new bucket is full and no more.
pub(super) fn capped(micro_permits: u64, permits: u64) -> u64 {
    let full = permits.saturating_mul(PERMIT);
    let begun = if micro_permits == u64::MAX { 0 } else { micro_permits % PERMIT };
    micro_permits.min(full.saturating_add(begun))
}

impl Bucket {
    /// Micro-permits at `now`. A clock that went back finds what was there.
    pub(super) fn filled(&self, now: Timestamp) -> u64 {
        let micros = now.since(self.updated_at).as_micros();
        let flowed = micros.saturating_mul(u128::from(self.flow_per_minute)) / 60;
        let flowed = u64::try_from(flowed).unwrap_or(u64::MAX);
        capped(self.micro_permits.saturating_add(flowed), self.capacity)
    }
}

impl AdmissionRecord {
    /// Whether a lottery's draw was made.
    #[must_use]
    pub fn is_drawn(&self) -> bool {
        self.draw.as_ref().is_some_and(|draw| draw.drawn.is_some())
    }

    /// When the turn of `number` runs out; `None` before it has come and after it is forgotten.
    #[must_use]
    pub fn turn_expires_at(&self, number: u64, turn_seconds: u64) -> Option<Timestamp> {
        let index = self.history.partition_point(|turn| turn.number < number);
        // Numbers run out in their order: never before one that came earlier.
        self.history.get(..=index)?.iter().map(|turn| turn.ends_at(turn_seconds)).max()
    }

    /// The share of turns that nobody takes up, between 0 and 1.
    #[must_use]
    pub fn no_show_share(&self) -> f64 {
        self.no_show_micros as f64 / 1e6
    }

    /// Numbers per minute that were reached lately: what a wait is told by while something else than the rate
    /// holds the line. 0 while nothing moves.
    #[must_use]
    pub fn pace_per_minute(&self, now: Timestamp, turn_seconds: u64) -> u64 {
        let seconds = turn_seconds.clamp(1, PACE_SECONDS_MAX);
        let past = self.history.iter().filter(|turn| turn.at.plus_seconds(seconds) <= now);
        let then = past.map(|turn| turn.number).max().unwrap_or(0).max(self.expired_through);
        self.now_serving.saturating_sub(then).saturating_mul(60) / seconds
    }

    /// The same line after its admitter's clock was set by `micros`: turns keep the time they have left, and no
    /// permits flow in for the difference.
    #[must_use]
    pub fn shifted(&self, micros: i64) -> Self {
        let shift = |at: Timestamp| Timestamp::from_micros(at.micros().saturating_add(micros));
        let mut shifted = self.clone();
        shifted.bucket.updated_at = shift(self.bucket.updated_at);
        for turn in &mut shifted.history {
            turn.at = shift(turn.at);
        }
        shifted
    }

    /// Laid over a record that may have lost its last writes: nothing that was shown ever falls back.
    #[must_use]
    pub fn restored_over(&self, stored: &Self) -> Self {
        let ahead = if stored.now_serving > self.now_serving { stored } else { self };
        Self {
            version: self.version.max(stored.version),
            expired_through: self.expired_through.max(stored.expired_through),
            numbered: self.numbered.max(stored.numbered),
            draw: Draw::kept(self.draw.as_ref(), stored.draw.as_ref()),
            ..ahead.clone()
        }
    }

    pub(super) fn note_turn(&mut self, now: Timestamp, turn_seconds: u64) {
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
            Some(last) if last.at == at => {
                (last.number, last.seconds) = (number, last.seconds.max(turn_seconds));
            }
            _ => self.history.push(Turn { at, number, seconds: turn_seconds }),
        }
        if self.history.len() > HISTORY_MAX {
            self.history.remove(0);
        }
    }

    pub(super) fn expire(&mut self, now: Timestamp, turn_seconds: u64) {
        let over = self.history.iter().take_while(|turn| turn.ends_at(turn_seconds) <= now);
        if let Some(last) = over.last() {
            self.expired_through = self.expired_through.max(last.number);
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
