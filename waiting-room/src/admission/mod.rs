//! PURE. How far `now_serving` moves, and why it stops there.
//!
//! Four things bound it: the token bucket of rate and burst, the cap on active shoppers, the stock that can still be
//! won, and the line itself. The bucket fills at the rate while people are admitted and stands still otherwise, so
//! that a pause saves nothing up. It holds the burst, or what flows in between two ticks of the admitter where that is
//! more ([`Settings::capacity`]): a smaller one would spill at every tick, and the rate would never be reached. Everything is an argument: [`Settings`], [`Scene`] and the [`AdmissionRecord`] say
//! all there is, and any process that reads the same comes to the same move.

mod record;
mod turns;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use lockgate_shared::{clock::Timestamp, gate::StockSnapshot, sale::Admission};
use serde::{Deserialize, Serialize};

use self::record::PERMIT;
pub use self::{
    record::{AdmissionRecord, Bucket, Turn},
    turns::{Ended, Turns},
};
use crate::phase::Phase;

/// What an operator sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// People admitted per minute.
    pub rate_per_minute: u64,
    /// People admitted at once after a lull; at least what one tick brings, see [`Settings::capacity`].
    pub burst: u64,
    /// How long a turn may be taken up.
    pub turn_seconds: u64,
    /// Most people whose turn is on or who hold the right to check out; `None` for any number.
    pub max_active: Option<u64>,
    /// Millionths of a person outstanding per unit that can still be won; `None` for any number.
    pub over_admission_micros: Option<u64>,
}

impl From<&Admission> for Settings {
    fn from(admission: &Admission) -> Self {
        // A float between 1 and 100: the cast is exact enough and cannot fail.
        let micros = |factor: f64| (factor * MICROS as f64).round() as u64;
        Self {
            rate_per_minute: admission.rate_per_minute,
            burst: admission.burst_in_force(),
            turn_seconds: admission.turn_seconds,
            max_active: admission.max_active,
            over_admission_micros: admission.over_admission.map(micros),
        }
    }
}

impl Settings {
    /// Permits the bucket holds: the burst, and never less than what the rate brings from one tick of the admitter to
    /// the next. So in any span at most this and what the rate gives in it are admitted.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.burst.max(self.rate_per_minute.saturating_mul(TICK_MS_MAX).div_ceil(60_000))
    }
}

/// What is so when the record is moved.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The present.
    pub now: Timestamp,
    /// What the sale is doing.
    pub phase: Phase,
    /// Numbers given.
    pub total: u64,
    /// What became of numbers and turns, as far as the lanes have told.
    pub turns: &'a Turns,
    /// Units that can still be won ([`winnable`]); `None` while nobody could say.
    pub winnable: Option<u64>,
}

/// Why `now_serving` does not move further at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The sale is not open yet.
    #[default]
    NotOpen,
    /// An operator paused it.
    Pause,
    /// It is over.
    Closed,
    /// Nobody is left to admit.
    Line,
    /// Rate and burst.
    Rate,
    /// As many are active as may be.
    Cap,
    /// Nothing is left to win, or enough people are after what is.
    Stock,
}

impl Bound {
    /// Every one there is.
    pub const ALL: [Self; 7] =
        [Self::NotOpen, Self::Pause, Self::Closed, Self::Line, Self::Rate, Self::Cap, Self::Stock];

    /// Whether the line has acted on what the sale is doing: for a moment after a change the record still names what
    /// held it before.
    #[must_use]
    pub fn belongs_to(self, phase: Phase) -> bool {
        match phase {
            Phase::Open => matches!(self, Self::Line | Self::Rate | Self::Cap | Self::Stock),
            Phase::Paused => self == Self::Pause,
            Phase::SoldOut => self == Self::Stock,
            Phase::Closed => self == Self::Closed,
            Phase::Scheduled | Phase::DoorsOpen | Phase::Drawing => self == Self::NotOpen,
        }
    }

    /// The word for operators.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotOpen => "not_open",
            Self::Pause => "pause",
            Self::Closed => "closed",
            Self::Line => "line",
            Self::Rate => "rate",
            Self::Cap => "cap",
            Self::Stock => "stock",
        }
    }
}

/// Longest time from one tick of the admitter to the next for which the rate is kept, in milliseconds. It pauses for
/// 200 between two ticks; the rest is for the tick's own work on a loaded machine. After a longer gap less than the
/// rate is made up.
const TICK_MS_MAX: u64 = 400;
/// Millionths of one.
const MICROS: u64 = 1_000_000;
/// Turns that weigh as much as all earlier ones in the no-show share: one strange minute does not decide.
const NO_SHOW_WEIGHT: u64 = 200;
/// The share counts for no more than this, in millionths: whoever is called may yet come.
const NO_SHOW_MICROS_MAX: u64 = 900_000;

/// Units that can still be won: those nobody has, as far as the sale-wide limit goes, and those that are held, which
/// may return.
#[must_use]
pub fn winnable(stock: &StockSnapshot) -> u64 {
    let available: u64 = stock.items.iter().map(|item| u64::from(item.available)).sum();
    let held: u64 = stock.items.iter().map(|item| u64::from(item.held)).sum();
    available.min(stock.total_left.map_or(u64::MAX, u64::from)) + held
}

/// Moves the record to the present. `None` when nothing moves and nothing need be written.
#[must_use]
pub fn advance(record: &AdmissionRecord, settings: &Settings, scene: &Scene<'_>) -> Option<AdmissionRecord> {
    let (now, admits) = (scene.now, scene.phase.admits());
    let mut next = record.clone();
    next.expire(now, settings.turn_seconds);
    let ended = scene.turns.ended(record.expired_through, next.expired_through);
    // A lane that is silent has not said who took up a turn: then nothing is learnt of no-shows.
    if scene.turns.is_current() {
        next.no_show_micros = smoothed(record.no_show_micros, &ended);
    }
    let flow_per_minute = if admits { settings.rate_per_minute } else { 0 };
    let capacity = settings.capacity();
    let permits = record::capped(record.bucket.filled(now), capacity);
    let (room, tightest) = room(&next, settings, scene, permits / PERMIT);
    let (now_serving, admitted) = if admits {
        scene.turns.reach(record.now_serving, room, scene.total)
    } else {
        (record.now_serving, 0)
    };
    let is_all = now_serving >= scene.total.max(record.now_serving);
    next.bound = if admits && is_all { Bound::Line } else { tightest };
    next.numbered = next.numbered.max(scene.total);
    if now_serving > record.now_serving {
        next.now_serving = now_serving;
        next.note_turn(now, settings.turn_seconds);
    }
    // Whatever changes how the bucket fills from now on must be written; mere filling is found again by reading.
    let old = &record.bucket;
    let refills_otherwise = (old.flow_per_minute, old.capacity) != (flow_per_minute, capacity)
        || (flow_per_minute > 0 && now < old.updated_at);
    if admitted > 0 || refills_otherwise {
        next.bucket =
            Bucket { micro_permits: permits - admitted * PERMIT, updated_at: now, flow_per_minute, capacity };
    }
    (next != *record).then(|| {
        next.version = record.version.saturating_add(1);
        next
    })
}

/// How many people may be called, and what does not let it be more.
fn room(record: &AdmissionRecord, settings: &Settings, scene: &Scene<'_>, permits: u64) -> (u64, Bound) {
    match scene.phase {
        Phase::Open => {}
        Phase::Paused => return (0, Bound::Pause),
        Phase::SoldOut => return (0, Bound::Stock),
        Phase::Closed => return (0, Bound::Closed),
        _ => return (0, Bound::NotOpen),
    }
    let pending = scene.turns.pending(record.expired_through, record.now_serving);
    let active = scene.turns.active();
    let cap = settings.max_active.map_or(u64::MAX, |max| max.saturating_sub(pending).saturating_sub(active));
    let stock = settings.over_admission_micros.map_or(u64::MAX, |factor| {
        // Unknown stock is no stock: a process that has not read it yet must not call people for nothing.
        stock_room(pending, active, factor, scene.winnable.unwrap_or(0), record.no_show_micros)
    });
    // On a tie the bound is named that lasts longest.
    [(stock, Bound::Stock), (cap, Bound::Cap), (permits, Bound::Rate)]
        .into_iter()
        .min_by_key(|(room, _)| *room)
        .unwrap_or((0, Bound::Rate))
}

/// Turns that may be called until those outstanding, of whom a share will not come, are `factor` per unit.
fn stock_room(pending: u64, active: u64, factor_micros: u64, winnable: u64, no_show_micros: u64) -> u64 {
    let shows = u128::from(MICROS - no_show_micros.min(NO_SHOW_MICROS_MAX));
    let limit = u128::from(factor_micros) * u128::from(winnable);
    let outstanding = u128::from(pending) * shows + u128::from(active) * u128::from(MICROS);
    u64::try_from(limit.saturating_sub(outstanding) / shows).unwrap_or(u64::MAX)
}

/// The share of turns that nobody took up, after some more have ended. Each turn counts once, and early ones fade.
fn smoothed(share_micros: u64, ended: &Ended) -> u64 {
    let counted = ended.redeemed.saturating_add(ended.missed);
    if counted == 0 {
        return share_micros;
    }
    let sum =
        u128::from(share_micros) * u128::from(NO_SHOW_WEIGHT) + u128::from(ended.missed) * u128::from(MICROS);
    let share = sum / u128::from(counted.saturating_add(NO_SHOW_WEIGHT));
    u64::try_from(share).unwrap_or(NO_SHOW_MICROS_MAX).min(NO_SHOW_MICROS_MAX)
}
