//! Keeps event logs small: removes what every group has done with, and readers that are gone.

use std::{sync::Arc, time::Duration};

use lockgate_shared::{
    events::{GROUPS, Trim},
    ids::SaleId,
    limits::EVENTS_KEPT,
    store::StoreError,
};
use tokio::{sync::watch, time::MissedTickBehavior};

use crate::app::App;

/// How often each log is looked after. Any number of processes may: each step is one step of the store.
const TEND_EVERY: Duration = Duration::from_secs(10);
/// A reader that holds nothing and has not asked for this long is gone.
const GONE_MS: u64 = 60_000;
/// Trims in a row, each of a bounded number of events.
const TRIMS_MAX: usize = 100;

/// Looks after the log of every sale until `stop`.
pub(crate) async fn run(app: Arc<App>, mut stop: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(TEND_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => {}
        }
        for sale in app.catalog.sales().iter() {
            let id = &sale.definition.id;
            if let Err(error) = tend(&app, id, EVENTS_KEPT, GONE_MS).await {
                tracing::debug!(sale = %id, %error, "the event log is looked after later");
            }
        }
    }
}

/// Looks after one log; answers how many events were removed.
///
/// # Errors
/// The log or the orders' store broke.
pub async fn tend(app: &App, sale: &SaleId, keep: u64, gone_ms: u64) -> Result<u64, StoreError> {
    let mut removed = 0;
    for _ in 0..TRIMS_MAX {
        match app.events.trim(sale, &GROUPS, keep).await? {
            Trim::Trimmed(0) => break,
            Trim::Trimmed(count) => removed += count,
            Trim::GroupMissing(group) => {
                tracing::debug!(%sale, group, "nothing is trimmed before every group has begun");
                break;
            }
        }
    }
    metrics::counter!("lockgate_events_trimmed_total").increment(removed);
    for group in GROUPS {
        app.events.retire(sale, group, gone_ms).await?;
    }
    let letters = app.store.dead_letters(sale).await?.total;
    #[expect(clippy::cast_precision_loss, reason = "a figure for a chart")]
    metrics::gauge!("lockgate_dead_letters", "sale" => sale.to_string()).set(letters as f64);
    Ok(removed)
}
