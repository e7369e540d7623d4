//! How fast orders are made at most: for a shop whose own systems take no more.

use std::{num::NonZeroU32, time::Duration};

use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};
use lockgate_shared::limits::EVENT_BATCH_MAX;

/// A batch takes so many parts of a second's worth at most: short enough that nobody takes its work for stalled.
const BATCHES_A_SECOND: u32 = 4;

/// The pace of one process.
pub(crate) struct Pace {
    limiter: Option<DefaultDirectRateLimiter>,
    batch: u32,
}

impl Pace {
    pub(crate) fn new(orders_per_second: Option<NonZeroU32>) -> Self {
        let most = u32::try_from(EVENT_BATCH_MAX).unwrap_or(u32::MAX);
        let batch = orders_per_second.map_or(most, |pace| (pace.get() / BATCHES_A_SECOND).clamp(1, most));
        let limiter = orders_per_second.map(|pace| {
            let burst = NonZeroU32::new(batch).unwrap_or(NonZeroU32::MIN);
            RateLimiter::direct(Quota::per_second(pace).allow_burst(burst))
        });
        Self { limiter, batch }
    }

    /// Most events to read at a time.
    pub(crate) fn batch(&self) -> usize {
        self.batch as usize
    }

    /// Waits until so many orders may be made; at most [`Pace::batch`].
    pub(crate) async fn wait(&self, orders: usize) {
        let (Some(limiter), Some(orders)) =
            (&self.limiter, u32::try_from(orders).ok().and_then(NonZeroU32::new))
        else {
            return;
        };
        let clock = DefaultClock::default();
        while let Ok(Err(early)) = limiter.check_n(orders) {
            tokio::time::sleep(early.wait_time_from(clock.now()).max(Duration::from_millis(1))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_part_of_a_second() {
        let batch = |pace| Pace::new(NonZeroU32::new(pace)).batch();
        assert_eq!([batch(1), batch(3), batch(200), batch(1_000_000)], [1, 1, 50, EVENT_BATCH_MAX]);
        assert_eq!(Pace::new(None).batch(), EVENT_BATCH_MAX);
    }

    #[tokio::test]
    async fn a_pace_lets_a_batch_pass_and_then_so_many_a_second() {
        let pace = Pace::new(NonZeroU32::new(1));
        pace.wait(1).await;
        let limiter = pace.limiter.as_ref().unwrap();
        assert!(limiter.check().is_err(), "a second's worth is used up");
        Pace::new(None).wait(1_000_000).await;
    }
}
