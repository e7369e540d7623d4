//! The loop beside the requests: marks holds whose deadline has passed. Any number of processes may run it; each step is atomic in the store.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, stream};
use lockgate_shared::{
    catalog::StoredSale,
    clock::Timestamp,
    gate::FreezeRequest,
    ids::SaleId,
    limits::{SPAN_SECONDS_MAX, SWEEP_BATCH_MAX},
    problem::Problem,
    store::StoreError,
};
use tokio::{sync::watch, time::MissedTickBehavior};

use crate::app::{App, is_suspicion};

/// Time between two sweeps.
const SWEEP_MS: u64 = 200;
/// Sales swept at the same time.
const SWEEPS_AT_ONCE: usize = 16;
/// A sale that closed longer ago than any hold lasts is swept once in so many rounds.
const QUIET_ROUNDS: u64 = 300;

/// Runs until `stop` is true or its sender is gone. A store that breaks is logged when it breaks and when it is back;
/// the next round tries again, so deadlines that passed meanwhile (or while no process ran) are found then.
pub async fn run(app: Arc<App>, stop: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(SWEEP_MS));
    // After an outage one round is enough, not one for every tick that was missed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut expirer = Expirer::new(app);
    loop {
        let mut stopping = stop.clone();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => {}
        }
        expirer.round().await;
    }
}

/// What the loop remembers between rounds.
pub(crate) struct Expirer {
    app: Arc<App>,
    rounds: u64,
    /// Sales in trouble, so that each trouble is said once, with what was said.
    troubled: HashMap<SaleId, String>,
}

impl Expirer {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app, rounds: 0, troubled: HashMap::new() }
    }

    /// One round over every sale.
    pub(crate) async fn round(&mut self) {
        let now = self.app.clock.now();
        let is_thorough = self.rounds.is_multiple_of(QUIET_ROUNDS);
        self.rounds += 1;
        let sales = self.app.catalog.sales();
        let mut busy: Vec<(Arc<App>, Arc<StoredSale>)> = Vec::with_capacity(sales.len());
        for sale in sales.iter().filter(|sale| is_thorough || !is_quiet(sale, now)) {
            busy.push((Arc::clone(&self.app), Arc::clone(sale)));
        }
        let outcomes: Vec<(SaleId, Result<(), Trouble>)> = stream::iter(busy)
            .map(|(app, sale)| async move { (sale.definition.id.clone(), tend(&app, &sale).await) })
            .buffer_unordered(SWEEPS_AT_ONCE)
            .collect()
            .await;
        for (sale, outcome) in outcomes {
            self.note(sale, outcome);
        }
        let known: HashSet<&SaleId> = sales.iter().map(|sale| &sale.definition.id).collect();
        self.troubled.retain(|sale, _| known.contains(sale));
    }

    fn note(&mut self, sale: SaleId, outcome: Result<(), Trouble>) {
        match outcome {
            Ok(()) => {
                if self.troubled.remove(&sale).is_some() {
                    tracing::info!(%sale, "the stock of the sale can be tended again");
                }
            }
            Err(trouble) => {
                let words = trouble.to_string();
                if self.troubled.get(&sale) != Some(&words) {
                    tracing::error!(%sale, trouble = %words, "the sale takes no claims or ends no holds until this is over");
                    self.troubled.insert(sale, words);
                }
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the sale could not be frozen: {}", .0.detail)]
    Freeze(Problem),
}

impl From<Problem> for Trouble {
    fn from(problem: Problem) -> Self {
        Self::Freeze(problem)
    }
}

fn is_quiet(sale: &StoredSale, now: Timestamp) -> bool {
    sale.definition.closes_at.plus_seconds(SPAN_SECONDS_MAX) < now
}

async fn tend(app: &App, sale: &StoredSale) -> Result<(), Trouble> {
    let id = &sale.definition.id;
    if sale.controls.stock_opened_at.is_none() {
        return Ok(());
    }
    loop {
        let marked = app.expire(id, SWEEP_BATCH_MAX).await;
        if let Err(error) = &marked
            && is_suspicion(error)
        {
            // Whatever is asked of the sale next is told that it is frozen, and has it rebuilt.
            // A store that says no generation has none; by the time it is frozen it may have been rebuilt.
            let generation = app.store.generation(id).await?.unwrap_or(0);
            let request = FreezeRequest { if_generation: Some(generation), why: error.causes() };
            app.freeze(id, &request).await?;
        }
        let marked = marked?;
        if marked.len() < SWEEP_BATCH_MAX {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
