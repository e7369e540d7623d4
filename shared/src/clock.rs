//! Time as a value: [`Timestamp`] in microseconds, and the [`Clock`] that only the outermost layer reads.
//!
//! Pure code takes a `Timestamp`; nothing below an app reads a clock itself.

use std::{
    fmt,
    sync::LazyLock,
    time::{Duration, Instant},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A moment, in microseconds since the Unix epoch. On the wire: RFC 3339 UTC with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// 9999-12-31T23:59:59Z in microseconds: the last moment RFC 3339 can write.
const LAST_MICROS: i64 = 253_402_300_799_000_000;

impl Timestamp {
    /// The moment `micros` microseconds after the epoch, kept within the years RFC 3339 can write.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(0, LAST_MICROS))
    }

    /// The moment `seconds` seconds after the epoch.
    #[must_use]
    pub fn from_seconds(seconds: i64) -> Self {
        Self::from_micros(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// This moment, later by `span`.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// This moment, later by `seconds`.
    #[must_use]
    pub fn plus_seconds(self, seconds: u64) -> Self {
        self.plus(Duration::from_secs(seconds))
    }

    /// This moment, earlier by `seconds`; never before the epoch.
    #[must_use]
    pub fn minus_seconds(self, seconds: u64) -> Self {
        let micros = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        Self::from_micros(self.0.saturating_sub(micros))
    }

    /// How long after `earlier` this moment is; zero when it is not after.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Reads RFC 3339, any offset.
    ///
    /// # Errors
    /// What is wrong with the text, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let moment: jiff::Timestamp =
            text.parse().map_err(|_| format!("'{text}' is not a time such as 2026-12-01T10:00:00Z"))?;
        let micros = moment.as_microsecond();
        if !(0..=LAST_MICROS).contains(&micros) {
            return Err(format!("'{text}' is outside the years 1970 to 9999"));
        }
        Ok(Self(micros))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = jiff::Timestamp::from_microsecond(self.0).unwrap_or_default();
        write!(f, "{moment:.3}")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// Where the outermost layer gets the time from.
pub trait Clock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment, as a clock tells it that nobody sets: against it a step of [`Clock::now`]
    /// shows. Where there is no such clock, time itself, which shows none.
    fn steady(&self) -> Duration {
        self.now().since(Timestamp::default())
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(jiff::Timestamp::now().as_microsecond())
    }

    fn steady(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_milliseconds_and_reads_any_offset() {
        let moment = Timestamp::parse("2026-12-01T11:00:00.1234+01:00").unwrap();
        assert_eq!(moment.to_string(), "2026-12-01T10:00:00.123Z");
        assert_eq!(moment.micros() % 1_000_000, 123_400);
    }

    #[test]
    fn refuses_what_is_not_a_time() {
        for text in ["", "tomorrow", "2026-13-01T00:00:00Z", "1960-01-01T00:00:00Z", "2026-12-01T10:00:00"] {
            assert!(Timestamp::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let last = Timestamp::from_micros(i64::MAX);
        assert_eq!(last.plus_seconds(u64::MAX), last);
        assert_eq!(Timestamp::from_micros(5).minus_seconds(u64::MAX).micros(), 0);
        assert_eq!(Timestamp::from_micros(5).since(last), Duration::ZERO);
    }
}
