//! How far the orders are behind the gate: above a bound no further claims are taken, so that what a shopper is told
//! stays true.
//!
//! Measured a few times a second, never per claim. What was won here since the last look is counted on top, so a process
//! alone keeps the bound; several together may pass it by what they win within one look.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use futures::{StreamExt as _, stream};
use lockgate_shared::{events::CHECKOUT_GROUP, ids::SaleId};
use tokio::{sync::watch, time::MissedTickBehavior};

use crate::{app::App, stock_view::is_open};

/// How often the backlog is measured.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Sales measured at the same time.
const AT_ONCE: usize = 16;
/// What a refused claim is told to wait where no pace says more.
const RETRY_AFTER_SECONDS: u32 = 5;
/// The same, at most.
const RETRY_AFTER_SECONDS_MAX: u32 = 30;

/// What was last seen of each sale.
pub(crate) struct BacklogView {
    most: u64,
    orders_per_second: Option<u64>,
    seen: ArcSwap<HashMap<SaleId, Arc<Seen>>>,
}

#[derive(Default)]
struct Seen {
    behind: u64,
    won_since: AtomicU64,
}

impl BacklogView {
    pub(crate) fn new(most: u64, orders_per_second: Option<u64>) -> Self {
        Self { most, orders_per_second, seen: ArcSwap::default() }
    }

    /// Seconds after which a claim may be tried again, if the orders are too far behind to take it.
    pub(crate) fn refuses(&self, sale: &SaleId) -> Option<u32> {
        let seen = self.seen.load();
        let behind = seen.get(sale)?.total();
        if behind < self.most {
            return None;
        }
        let seconds = self.orders_per_second.map_or(RETRY_AFTER_SECONDS, |pace| {
            u32::try_from((behind - self.most) / pace.max(1)).unwrap_or(u32::MAX).saturating_add(1)
        });
        Some(seconds.min(RETRY_AFTER_SECONDS_MAX))
    }

    /// A claim was won here.
    pub(crate) fn won(&self, sale: &SaleId) {
        if let Some(seen) = self.seen.load().get(sale) {
            seen.won_since.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was won so far since the last look.
    fn won_since(&self, sale: &SaleId) -> u64 {
        self.seen.load().get(sale).map_or(0, |seen| seen.won_since.load(Ordering::Relaxed))
    }

    /// Takes a measurement that began when `won_before` claims had been won since the last one.
    fn saw(&self, sale: &SaleId, behind: u64, won_before: u64) {
        self.seen.rcu(|known| {
            let won = known.get(sale).map_or(0, |seen| seen.won_since.load(Ordering::Relaxed));
            let won_since = AtomicU64::new(won.saturating_sub(won_before));
            let mut known = HashMap::clone(known);
            known.insert(sale.clone(), Arc::new(Seen { behind, won_since }));
            known
        });
    }

    fn is_behind(&self, sale: &SaleId) -> bool {
        self.seen.load().get(sale).is_some_and(|seen| seen.total() > 0)
    }

    /// Measures open sales, and others until they are through, until `stop`.
    pub(crate) async fn run(&self, app: &App, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                _ = ticks.tick() => {}
            }
            let now = app.clock.now();
            let sales: Vec<SaleId> = app
                .catalog
                .sales()
                .iter()
                .filter(|sale| is_open(sale, now) || self.is_behind(&sale.definition.id))
                .map(|sale| sale.definition.id.clone())
                .collect();
            stream::iter(sales)
                .for_each_concurrent(AT_ONCE, |sale| async move {
                    let won_before = self.won_since(&sale);
                    // A log that cannot be asked is the gate's own store: the claim itself says what is wrong.
                    if let Ok(backlog) = app.events.backlog(&sale, CHECKOUT_GROUP).await {
                        let gauge = metrics::gauge!("lockgate_intake_backlog", "sale" => sale.to_string());
                        #[expect(clippy::cast_precision_loss, reason = "a figure for a chart")]
                        gauge.set(backlog.total() as f64);
                        self.saw(&sale, backlog.total(), won_before);
                    }
                })
                .await;
        }
    }
}

impl Seen {
    fn total(&self) -> u64 {
        self.behind.saturating_add(self.won_since.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m14_what_was_won_since_the_last_look_counts_until_it_is_seen() {
        let view = BacklogView::new(10, None);
        let sale: SaleId = "demo".parse().unwrap();
        assert_eq!(view.refuses(&sale), None, "nothing was seen yet");
        view.saw(&sale, 8, 0);
        view.won(&sale);
        assert_eq!(view.refuses(&sale), None);
        view.won(&sale);
        assert_eq!(view.refuses(&sale), Some(RETRY_AFTER_SECONDS));
        // A look that began before the second win may not have seen it.
        view.saw(&sale, 9, 1);
        assert_eq!(view.refuses(&sale), Some(RETRY_AFTER_SECONDS));
        view.saw(&sale, 3, view.won_since(&sale));
        assert_eq!(view.refuses(&sale), None);
        assert_eq!(view.refuses(&"other".parse().unwrap()), None);
    }

    #[test]
    fn a_refused_claim_is_told_when_the_pace_will_have_made_room() {
        let sale: SaleId = "demo".parse().unwrap();
        let asks = |behind| {
            let view = BacklogView::new(1_000, Some(100));
            view.saw(&sale, behind, 0);
            view.refuses(&sale)
        };
        assert_eq!(
            [asks(999), asks(1_000), asks(1_950), asks(1_000_000)],
            [None, Some(1), Some(10), Some(30)]
        );
    }
}
