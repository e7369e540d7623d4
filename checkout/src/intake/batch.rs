//! One batch: read, place in one transaction, acknowledge after the commit. A record that makes the transaction fail is
//! found by halving, tried by itself, and put aside, so that the rest goes on.

use std::{ops::Range, time::Duration};

use lockgate_shared::{
    events::{Batch, Event, EventKind, Poison},
    ids::SaleId,
    limits::EVENT_BATCH_MAX,
    store::StoreError,
};

use super::GROUP;
use crate::{
    app::App,
    claim::intake_of_event,
    order::Intake,
    store::{DeadLetter, is_of_data},
};

/// Tries of a record that the store refuses by itself.
const TRIES: u32 = 8;
/// Pause after the first of them; it doubles.
const TRY_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause.
const TRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Takes one batch in, as fast as it goes, and answers how many records it had: for whoever must see a sale's records as
/// orders. The loop's own workers read under names of their own.
///
/// # Errors
/// The log or the store broke. What was placed is placed, and all of the batch comes again.
pub async fn take_batch(app: &App, sale: &SaleId) -> Result<usize, StoreError> {
    let batch = app.events.read(sale, GROUP, &format!("{}-drain", app.process_id), EVENT_BATCH_MAX).await?;
    take(app, sale, batch).await
}

/// Takes one batch in as `consumer`, at the pace that is set, and answers how many records it had.
///
/// # Errors
/// As [`take_batch`].
pub async fn take_batch_as(app: &App, sale: &SaleId, consumer: &str) -> Result<usize, StoreError> {
    let batch = app.events.read(sale, GROUP, consumer, app.pace.batch()).await?;
    let claims = batch.events.iter().filter(|event| event.kind == EventKind::Claimed).count();
    app.pace.wait(claims).await;
    take(app, sale, batch).await
}

async fn take(app: &App, sale: &SaleId, batch: Batch) -> Result<usize, StoreError> {
    let count = batch.events.len() + batch.poison.len();
    if count == 0 {
        return Ok(0);
    }
    let (records, dead) = sorted(app, sale, &batch);
    match app.store.place(sale, &records.intakes, &dead, app.clock.now()).await {
        Ok(placed) => {
            app.placed(&placed);
            report(sale, &dead, &placed.buried);
        }
        Err(error) => place_apart(app, sale, &records, &dead, error).await?,
    }
    let poison = batch.poison.into_iter().map(|poison| poison.id);
    let ids: Vec<String> = batch.events.iter().map(|event| event.id.clone()).chain(poison).collect();
    app.events.acknowledge(sale, GROUP, &ids).await?;
    metrics::counter!("lockgate_intake_records_total").increment(count as u64);
    Ok(count)
}

/// Records with their events, side by side.
struct Records<'a> {
    intakes: Vec<Intake>,
    events: Vec<&'a Event>,
}

/// What orders can be made of, and what not.
fn sorted<'a>(app: &App, sale: &SaleId, batch: &'a Batch) -> (Records<'a>, Vec<DeadLetter>) {
    let mut records = Records { intakes: Vec::with_capacity(batch.events.len()), events: Vec::new() };
    let mut dead: Vec<DeadLetter> =
        batch.poison.iter().map(|poison| letter_of(app, poison.clone())).collect();
    for event in &batch.events {
        match intake_of_event(sale, event) {
            Ok(intake) => {
                records.intakes.push(intake);
                records.events.push(event);
            }
            Err(problem) => dead.push(letter_of(app, poison_of(event, problem))),
        }
    }
    (records, dead)
}

fn poison_of(event: &Event, problem: String) -> Poison {
    Poison { id: event.id.clone(), problem, record: event.record() }
}

fn letter_of(app: &App, poison: Poison) -> DeadLetter {
    DeadLetter { event: poison.id, problem: poison.problem, record: poison.record, found_at: app.clock.now() }
}

/// Writes dead letters down. Each is counted once, however many workers find it.
async fn bury(app: &App, sale: &SaleId, dead: &[DeadLetter]) -> Result<(), StoreError> {
    let placed = app.store.place(sale, &[], dead, app.clock.now()).await?;
    report(sale, dead, &placed.buried);
    Ok(())
}

fn report(sale: &SaleId, dead: &[DeadLetter], buried: &[String]) {
    for letter in dead.iter().filter(|letter| buried.contains(&letter.event)) {
        metrics::counter!("lockgate_dead_letters_total").increment(1);
        tracing::error!(%sale, event = letter.event, problem = letter.problem,
            "a record of the gate cannot become an order; it is kept as a dead letter: lockgate sale dead-letters {sale}");
    }
}

/// An error that speaks against the records. Any other is the store's own trouble: the whole batch comes again.
fn blame(error: StoreError) -> Result<StoreError, StoreError> {
    if is_of_data(&error) { Ok(error) } else { Err(error) }
}

/// Places a batch that failed as a whole, in halves of halves.
async fn place_apart(
    app: &App,
    sale: &SaleId,
    records: &Records<'_>,
    dead: &[DeadLetter],
    error: StoreError,
) -> Result<(), StoreError> {
    let error = blame(error)?;
    tracing::warn!(%sale, %error, records = records.intakes.len(), "a batch of orders failed; its records are tried apart");
    if !dead.is_empty() {
        bury(app, sale, dead).await?;
    }
    // The next to be tried is the last; left halves come before right ones.
    let mut untried: Vec<Range<usize>> = halves(0..records.intakes.len());
    while let Some(part) = untried.pop() {
        if part.len() == 1 {
            place_alone(app, sale, &records.intakes[part.clone()], records.events[part.start]).await?;
            continue;
        }
        match app.store.place(sale, &records.intakes[part.clone()], &[], app.clock.now()).await {
            Ok(placed) => app.placed(&placed),
            Err(error) => {
                blame(error)?;
                untried.extend(halves(part));
            }
        }
    }
    Ok(())
}

fn halves(part: Range<usize>) -> Vec<Range<usize>> {
    let middle = part.start + part.len() / 2;
    let mut halves = vec![middle..part.end, part.start..middle];
    halves.retain(|half| !half.is_empty());
    halves
}

/// Places a record that failed together with others, by itself; puts it aside if it goes on failing.
async fn place_alone(app: &App, sale: &SaleId, record: &[Intake], event: &Event) -> Result<(), StoreError> {
    let mut pause = TRY_PAUSE;
    for left in (0..TRIES).rev() {
        match app.store.place(sale, record, &[], app.clock.now()).await {
            Ok(placed) => {
                app.placed(&placed);
                return Ok(());
            }
            Err(error) => {
                let error = blame(error)?;
                if left == 0 {
                    return bury(app, sale, &[letter_of(app, poison_of(event, error.to_string()))]).await;
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(TRY_PAUSE_MAX);
    }
    Ok(())
}
