//! From the gate's records to orders: read, one transaction per batch, acknowledge after the commit.

use std::{collections::HashMap, sync::Arc, time::Duration};

use lockgate_shared::{events::Batch, ids::SaleId, store::StoreError};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};

use crate::{
    app::App,
    claim::intake_of_event,
    store::{DeadLetter, Placed},
};

/// The group under which checkout reads the event log.
pub const GROUP: &str = "checkout";
/// Pause after a read that brought nothing; it grows while nothing comes.
const PAUSE_MIN: Duration = Duration::from_millis(25);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Longest pause after an error.
const ERROR_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often the catalog is asked for new sales.
const SALES_EVERY: Duration = Duration::from_millis(200);

/// Reads every sale's records until `stop`, one task per sale; sales may come and go meanwhile.
pub async fn run(app: Arc<App>, mut stop: watch::Receiver<bool>) {
    let mut tasks = JoinSet::new();
    let mut running: HashMap<SaleId, AbortHandle> = HashMap::new();
    loop {
        let sales = app.catalog.sales();
        running.retain(|sale, task| {
            let is_known = sales.iter().any(|known| known.definition.id == *sale);
            if !is_known {
                task.abort();
            }
            is_known && !task.is_finished()
        });
        for sale in sales.iter().map(|sale| &sale.definition.id) {
            if !running.contains_key(sale) {
                let task = tasks.spawn(follow(Arc::clone(&app), sale.clone(), stop.clone()));
                running.insert(sale.clone(), task);
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

async fn follow(app: Arc<App>, sale: SaleId, mut stop: watch::Receiver<bool>) {
    let (mut pause, mut error_pause) = (PAUSE_MIN, PAUSE_MIN);
    while !*stop.borrow() {
        let wait = match take_batch(&app, &sale).await {
            Ok(0) => {
                error_pause = PAUSE_MIN;
                pause = (pause * 5 / 4).min(PAUSE_MAX);
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
            () = app.claimed.notified() => pause = PAUSE_MIN,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Takes one batch in and answers how many records it had.
pub(crate) async fn take_batch(app: &App, sale: &SaleId) -> Result<usize, StoreError> {
    let batch = app.events.read(sale, GROUP, &app.process_id).await?;
    let count = batch.events.len() + batch.poison.len();
    if count == 0 {
        return Ok(0);
    }
    let placed = place(app, sale, &batch).await?;
    let ids: Vec<String> = batch
        .events
        .iter()
        .map(|event| event.id.clone())
        .chain(batch.poison.into_iter().map(|poison| poison.id))
        .collect();
    app.placed(&placed);
    app.events.acknowledge(sale, GROUP, &ids).await?;
    Ok(count)
}

async fn place(app: &App, sale: &SaleId, batch: &Batch) -> Result<Placed, StoreError> {
    let mut dead: Vec<DeadLetter> = batch
        .poison
        .iter()
        .map(|poison| DeadLetter { event: poison.id.clone(), problem: poison.problem.clone() })
        .collect();
    let mut intakes = Vec::with_capacity(batch.events.len());
    for event in &batch.events {
        match intake_of_event(sale, event) {
            Ok(intake) => intakes.push(intake),
            Err(problem) => dead.push(DeadLetter { event: event.id.clone(), problem }),
        }
    }
    for letter in &dead {
        metrics::counter!("lockgate_dead_letters_total").increment(1);
        tracing::error!(%sale, event = letter.event, problem = letter.problem,
            "a record of the gate cannot become an order; it is kept as a dead letter");
    }
    app.store.place(sale, &intakes, &dead, app.clock.now()).await
}
