//! The outbox's figures, and the end of what was delivered.

use std::{sync::Arc, time::Duration};

use lockgate_shared::store::StoreError;
use tokio::{sync::watch, time::MissedTickBehavior};

use super::Channel;
use crate::{app::App, store::TRIMMED_MAX};

/// How often.
const TEND_EVERY: Duration = Duration::from_secs(10);
/// How long a delivered message is kept, so that "was it sent?" has an answer.
const DELIVERED_SECONDS: u64 = 7 * 86_400;
/// How long a dead one is kept: it holds a buyer's address.
const DEAD_SECONDS: u64 = 90 * 86_400;
/// Trims in a row.
const TRIMS_MAX: usize = 100;

/// Looks after the outbox until `stop`, where a channel is set up.
pub(super) async fn run(app: Arc<App>, mut stop: watch::Receiver<bool>) {
    if !Channel::ALL.iter().any(|channel| app.outbox.has(*channel)) {
        return;
    }
    let mut ticks = tokio::time::interval(TEND_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => {}
        }
        if let Err(error) = tend(&app).await {
            tracing::debug!(%error, "the outbox is looked after later");
        }
    }
}

async fn tend(app: &App) -> Result<(), StoreError> {
    let figures = app.store.outbox_figures().await?;
    let now = app.now();
    for channel in Channel::ALL {
        let of = figures.get(channel).copied().unwrap_or_default();
        let oldest = of.oldest_at.map_or(0.0, |at| now.since(at).as_secs_f64());
        let name = channel.as_str();
        #[expect(clippy::cast_precision_loss, reason = "figures for a chart")]
        {
            metrics::gauge!("lockgate_outbox_waiting", "channel" => name).set(of.waiting as f64);
            metrics::gauge!("lockgate_outbox_dead", "channel" => name).set(of.dead as f64);
        }
        metrics::gauge!("lockgate_outbox_oldest_seconds", "channel" => name).set(oldest);
    }
    let (delivered, dead) = (now.minus_seconds(DELIVERED_SECONDS), now.minus_seconds(DEAD_SECONDS));
    for _ in 0..TRIMS_MAX {
        if app.store.trim_messages(delivered, dead).await? < TRIMMED_MAX as u64 {
            break;
        }
    }
    Ok(())
}
