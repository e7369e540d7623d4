//! PURE: when a message that was not delivered is tried again, and when it is given up.

use lockgate_shared::clock::Timestamp;

/// How messages are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The pause after the first failure; it doubles.
    pub first_seconds: u64,
    /// The longest pause, before jitter.
    pub most_seconds: u64,
    /// Attempts after which a message is dead.
    pub attempts_max: u32,
    /// How long a leased message is another's; longer than one delivery may take.
    pub lease_seconds: u64,
}

impl Default for Pace {
    /// 5 s, 10 s, 20 s … an hour: thirty attempts in about a day.
    fn default() -> Self {
        Self { first_seconds: 5, most_seconds: 3_600, attempts_max: 30, lease_seconds: 90 }
    }
}

/// Longest a receiver's `Retry-After` is obeyed, in seconds.
pub const RETRY_AFTER_SECONDS_MAX: u64 = 86_400;
/// What jitter counts in.
pub const JITTER_PARTS: u64 = 1_000;

impl Pace {
    /// When a message is tried again whose attempt number `attempts` failed at `now`; `None` when that was the last.
    /// `jitter` (0 to [`JITTER_PARTS`]) adds up to half the pause, after the cap, so that what failed together does not
    /// come back together. Never before `not_before_seconds` from now, what the receiver asked for.
    #[must_use]
    pub fn next(
        &self,
        attempts: u32,
        now: Timestamp,
        jitter: u64,
        not_before_seconds: Option<u64>,
    ) -> Option<Timestamp> {
        if attempts >= self.attempts_max {
            return None;
        }
        let doublings = attempts.saturating_sub(1).min(32);
        let pause = self.first_seconds.saturating_mul(1 << doublings).min(self.most_seconds);
        let asked = not_before_seconds.unwrap_or_default().min(RETRY_AFTER_SECONDS_MAX);
        let pause_ms = pause.max(asked).saturating_mul(1_000);
        let extra_ms = pause_ms / 2 * jitter.min(JITTER_PARTS) / JITTER_PARTS;
        Some(now.plus(std::time::Duration::from_millis(pause_ms + extra_ms)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pauses_double_up_to_a_cap_and_what_the_receiver_asked_for_is_kept(
            attempts in 1_u32..40, jitter in 0_u64..=1_500, asked in prop::option::of(0_u64..200_000)
        ) {
            let (pace, now) = (Pace::default(), Timestamp::from_seconds(1_000));
            let next = pace.next(attempts, now, jitter, asked);
            prop_assert_eq!(next.is_none(), attempts >= pace.attempts_max);
            if let Some(next) = next {
                let pause = next.since(now).as_millis() as u64;
                let wanted = asked.unwrap_or_default().min(RETRY_AFTER_SECONDS_MAX);
                let base = (5_u64 << (attempts - 1).min(20)).min(3_600).max(wanted) * 1_000;
                prop_assert!((base..=base + base / 2).contains(&pause), "{} not from {}", pause, base);
                if jitter >= JITTER_PARTS {
                    prop_assert_eq!(pause, base + base / 2);
                }
            }
        }
    }

    #[test]
    fn a_message_is_tried_for_about_a_day() {
        let pace = Pace::default();
        let (mut now, mut attempts) = (Timestamp::from_seconds(0), 1);
        while let Some(next) = pace.next(attempts, now, JITTER_PARTS / 2, None) {
            (now, attempts) = (next, attempts + 1);
        }
        assert_eq!(attempts, 30);
        assert!((20..30).contains(&(now.seconds() / 3_600)), "{} s", now.seconds());
    }
}
