//! Payments that gateways told of and no order came for: counted in every round, and said once in a while.

use lockgate_shared::clock::Timestamp;

use crate::{app::App, store::office::Parked};

/// A notice may come before its order; after this long the order does not come any more.
const WAITED_SECONDS: u64 = 600;
/// How often it is said at most.
const TOLD_EVERY_SECONDS: u64 = 600;

/// When it was said last.
#[derive(Default)]
pub(super) struct Waiting {
    told_at: Option<Timestamp>,
}

impl Waiting {
    /// Counts those that waited too long and says so; answers how many there are.
    pub(super) async fn look(&mut self, app: &App) -> u64 {
        let now = app.now();
        let found = match app.store.parked(now.minus_seconds(WAITED_SECONDS), None).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "payments without an order are counted later");
                return 0;
            }
        };
        show(&found, now);
        if let Some(first) = found.notices.first().filter(|_| self.is_told(now)) {
            let (payment, count) = (first.notice.payment, found.total);
            tracing::warn!(count, oldest = %payment, "payments arrived for orders that never came; lockgate sale parked \
                lists them: find each by its id at the payment service and give it back there");
        }
        found.total
    }

    fn is_told(&mut self, now: Timestamp) -> bool {
        let is_due = self.told_at.is_none_or(|at| now >= at.plus_seconds(TOLD_EVERY_SECONDS));
        if is_due {
            self.told_at = Some(now);
        }
        is_due
    }
}

/// As metrics; none where another process tells.
pub(super) fn show(found: &Parked, now: Timestamp) {
    let oldest = found.notices.first().map_or(0, |first| now.micros().saturating_sub(first.place.0.micros()));
    #[expect(clippy::cast_precision_loss, reason = "figures for a chart")]
    {
        metrics::gauge!("lockgate_parked_payments").set(found.total as f64);
        metrics::gauge!("lockgate_parked_payments_oldest_seconds").set(oldest as f64 / 1e6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_once_and_then_every_ten_minutes() {
        let at = Timestamp::from_seconds;
        let mut waiting = Waiting::default();
        let told = [0, 1, 599, 600, 601, 1_200].map(|second| waiting.is_told(at(second)));
        assert_eq!(told, [true, false, false, true, false, true]);
    }
}
