//! From the gate's records to orders: read, one transaction per batch, acknowledge after the commit.
//!
//! - here: the workers of each sale;
//! - `batch`: one batch, and what becomes of a record that cannot be taken in;
//! - `backlog`, `pace`: how far orders may be behind, and how fast they are made;
//! - `tend`: keeps the event logs small.

pub(crate) mod backlog;
mod batch;
pub(crate) mod pace;
pub(crate) mod tend;

pub use self::{
    batch::{take_batch, take_batch_as},
    tend::tend,
};

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc, time::Duration};

use lockgate_shared::{events::CHECKOUT_GROUP, ids::SaleId, limits::BACKLOG_DEFAULT};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};

use crate::app::App;

/// The group under which checkout reads the event log.
pub const GROUP: &str = CHECKOUT_GROUP;

/// How records are taken in.
#[derive(Clone, Copy, Debug)]
pub struct IntakeSettings {
    /// Workers for each sale in this process, where a log shares its work among several.
    pub workers: usize,
    /// Events not yet orders above which claims of a sale are refused.
    pub backlog_max: u64,
    /// Orders this process makes in a second at most.
    pub pace_per_second: Option<NonZeroU32>,
}

impl Default for IntakeSettings {
    fn default() -> Self {
        Self { workers: 2, backlog_max: BACKLOG_DEFAULT, pace_per_second: None }
    }
}

/// Pause after a read that brought nothing; it grows while nothing comes.
const PAUSE_MIN: Duration = Duration::from_millis(25);
/// Longest pause of a sale's first worker.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Longest pause of the others, which are there for a crowd.
const FURTHER_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest pause after an error.
const ERROR_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often the catalog is asked for new sales.
const SALES_EVERY: Duration = Duration::from_millis(200);

/// Takes every sale's records in until `stop`; sales may come and go meanwhile.
pub async fn run(app: Arc<App>, mut stop: watch::Receiver<bool>) {
    let mut tasks = JoinSet::new();
    let mut running: BTreeMap<(SaleId, usize), AbortHandle> = BTreeMap::new();
    let workers = if app.events.shares_work() { app.intake.workers.max(1) } else { 1 };
    loop {
        let sales = app.catalog.sales();
        running.retain(|(sale, _), task| {
            let is_known = sales.iter().any(|known| known.definition.id == *sale);
            if !is_known {
                task.abort();
            }
            is_known && !task.is_finished()
        });
        for sale in sales.iter().map(|sale| &sale.definition.id) {
            for worker in 0..workers {
                running.entry((sale.clone(), worker)).or_insert_with(|| {
                    tasks.spawn(follow(Arc::clone(&app), sale.clone(), worker, stop.clone()))
                });
            }
        }
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = tasks.join_next() => {}
            () = tokio::time::sleep(SALES_EVERY) => {}
        }
    }
    // A batch under way commits and is acknowledged; one that is cut off comes again.
    while tasks.join_next().await.is_some() {}
}

async fn follow(app: Arc<App>, sale: SaleId, worker: usize, mut stop: watch::Receiver<bool>) {
    let consumer = format!("{}-{worker}", app.process_id);
    let pause_max = if worker == 0 { PAUSE_MAX } else { FURTHER_PAUSE_MAX };
    let (mut pause, mut error_pause) = (PAUSE_MIN, PAUSE_MIN);
    while !*stop.borrow() {
        let wait = match take_batch_as(&app, &sale, &consumer).await {
            Ok(0) => {
                error_pause = PAUSE_MIN;
                pause = (pause * 5 / 4).min(pause_max);
                pause
            }
            Ok(_) => {
                (pause, error_pause) = (PAUSE_MIN, PAUSE_MIN);
                continue;
            }
            Err(error) => {
                tracing::warn!(%sale, %error, "orders cannot be taken in for a moment");
                error_pause = (error_pause * 2).min(ERROR_PAUSE_MAX);
                error_pause
            }
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            // A claim was won in this process, so its record is there already.
            () = app.claimed.notified(), if worker == 0 => pause = PAUSE_MIN,
            () = tokio::time::sleep(wait) => {}
        }
    }
}
