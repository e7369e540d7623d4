//! The loop that compares gate, orders and payments of every sale that runs or ended lately, and repairs what can be
//! repaired safely ([`crate::reconcile`]).
//!
//! One process does it at a time, by a lease in the orders' store; whatever it writes is refused once another has the lease.
//! It costs little: while counts stay as they were nothing more is read than those, holds and orders are read by pages
//! with pauses, and a round is followed by a pause of at least [`PAUSE_TIMES`] its length.
//!
//! - here: rounds, and what is told of them; `reading`: the two sides of a sale; `repairs`: what is done.

mod reading;
mod repairs;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use lockgate_shared::{
    catalog::StoredSale,
    clock::Timestamp,
    gate::{GateError, ItemStock},
    ids::{ClaimId, ItemId, SaleId},
    store::StoreError,
};
use tokio::sync::watch;

use crate::{
    app::App,
    payment::PaymentId,
    reconcile::{ItemDifference, Kind, Reconciled, Standing, Watch},
    store::{ItemBooks, office::Lease},
};

/// What is leased.
const LEASE: &str = "reconciler";
/// How long the lease lasts after a round began: longer than a pause, short enough that another takes over soon.
const LEASE_MS: u64 = 60_000;
/// Pause between rounds.
const EVERY: Duration = Duration::from_secs(10);
/// A pause is at least this many times as long as the round before it.
const PAUSE_TIMES: u32 = 20;
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(45);
/// A sale whose counts do not change is compared as a whole this often all the same.
const WHOLE_EVERY_SECONDS: u64 = 300;
/// The same while attempts are open or money is to go back.
const WHOLE_EVERY_SECONDS_OPEN: u64 = 60;
/// How long after its end a sale is still looked at.
const AFTER_END_SECONDS: u64 = 86_400;

/// What a round came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Whether this process had the lease.
    pub is_ours: bool,
    /// Sales that were compared as a whole.
    pub compared: usize,
    /// Sales whose counts had not changed.
    pub unchanged: usize,
    /// Differences that stand.
    pub standing: usize,
    /// Repairs that were begun.
    pub repaired: usize,
}

/// Why a sale was not compared.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the report cannot be written: {0}")]
    Report(#[from] serde_json::Error),
    #[error("another process reconciles by now")]
    LeaseLost,
}

/// The counts of both sides, by which a sale is known to be as it was.
type Counts = (Vec<ItemStock>, BTreeMap<ItemId, ItemBooks>);

/// What is remembered of a sale.
#[derive(Default)]
struct Watched {
    watch: Watch,
    counts: Option<Counts>,
    whole_at: Timestamp,
    /// Repairs by kind and claim, and when, so that one which does not help is not done again and again.
    repaired: BTreeMap<(Kind, Option<ClaimId>), Timestamp>,
    /// Attempts the gateway was asked about, and when.
    asked: BTreeMap<PaymentId, Timestamp>,
}

/// Compares and repairs, round by round.
pub struct Reconciler {
    app: Arc<App>,
    holder: String,
    fence: Option<u64>,
    watched: BTreeMap<SaleId, Watched>,
}

/// Reconciles until `stop`.
pub async fn run(app: Arc<App>, mut stop: watch::Receiver<bool>) {
    let holder = app.process_id.clone();
    let mut reconciler = Reconciler::new(app, &holder);
    let mut pause = EVERY;
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            () = tokio::time::sleep(pause) => {}
        }
        let started = Instant::now();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            _ = reconciler.round() => {}
        }
        pause = (started.elapsed() * PAUSE_TIMES).clamp(EVERY, PAUSE_MAX);
    }
    reconciler.give_up().await;
}

impl Reconciler {
    /// Under a name that no other process has.
    #[must_use]
    pub fn new(app: Arc<App>, holder: &str) -> Self {
        Self { app, holder: holder.to_owned(), fence: None, watched: BTreeMap::new() }
    }

    /// Looks at every sale once, if no other process does.
    pub async fn round(&mut self) -> Round {
        let lease = match self.app.store.lease(LEASE, &self.holder, LEASE_MS, self.app.now()).await {
            Ok(Some(lease)) => lease,
            Ok(None) => {
                self.forget();
                return Round::default();
            }
            Err(error) => {
                tracing::debug!(%error, "the books are compared later");
                return Round::default();
            }
        };
        if self.fence.replace(lease.fence) != Some(lease.fence) {
            self.watched.clear();
        }
        let mut round = Round { is_ours: true, ..Round::default() };
        let now = self.app.now();
        for sale in self.app.catalog.sales().iter().filter(|sale| is_looked_at(sale, now)) {
            if let Err(trouble) = self.sale(lease, sale, &mut round).await {
                tracing::debug!(sale = %sale.definition.id, %trouble, "the books of a sale are compared later");
                metrics::counter!("lockgate_reconciler_rounds_total", "outcome" => "failed").increment(1);
                if matches!(trouble, Trouble::LeaseLost) {
                    self.forget();
                    return round;
                }
            }
        }
        round
    }

    /// Gives the lease back, so that another process goes on at once.
    pub async fn give_up(&mut self) {
        let limit = Duration::from_secs(1);
        if self.fence.is_some() {
            let back = self.app.store.lease(LEASE, &self.holder, 0, self.app.now());
            if tokio::time::timeout(limit, back).await.is_err() {
                tracing::debug!("the reconciler's lease runs out by itself");
            }
        }
        self.forget();
    }

    /// Another process tells the differences now.
    fn forget(&mut self) {
        self.fence = None;
        for sale in std::mem::take(&mut self.watched).into_keys() {
            if let Some(sale) = self.app.catalog.sale(&sale) {
                let nothing = Reconciled::of(self.app.now(), &items_of(&sale), &[]);
                show(&sale.definition.id, &nothing.items);
            }
        }
    }

    async fn sale(&mut self, lease: Lease, sale: &StoredSale, round: &mut Round) -> Result<(), Trouble> {
        let (app, id, now) = (&self.app, &sale.definition.id, self.app.now());
        let stock = app.gate.direct().stock(id).await?;
        let counts = (stock.items, app.store.books(id).await?);
        let watched = self.watched.entry(id.clone()).or_default();
        let is_same = watched.counts.as_ref() == Some(&counts);
        if is_same && watched.watch.is_quiet() && now < watched.whole_at {
            round.unchanged += 1;
            return Ok(());
        }
        let read = reading::read(app, id, &counts.0).await?;
        let standing = watched.watch.round(read.findings, now);
        let done = repairs::repair(app, lease, id, watched, &standing).await?;
        let differences: Vec<Standing> =
            standing.into_iter().filter(|one| one.finding.kind.is_difference()).collect();
        let reconciled = Reconciled::of(now, &items_of(sale), &differences);
        show(id, &reconciled.items);
        if !app.store.keep(lease, id, &serde_json::to_string(&reconciled)?, now).await? {
            return Err(Trouble::LeaseLost);
        }
        let every = if read.is_open { WHOLE_EVERY_SECONDS_OPEN } else { WHOLE_EVERY_SECONDS };
        (watched.counts, watched.whole_at) = (Some(counts), now.plus_seconds(every));
        round.compared += 1;
        round.standing += differences.len();
        round.repaired += done;
        metrics::counter!("lockgate_reconciler_rounds_total", "outcome" => "compared").increment(1);
        Ok(())
    }
}

/// Whether a sale runs, or ended lately.
fn is_looked_at(sale: &StoredSale, now: Timestamp) -> bool {
    let definition = &sale.definition;
    let until = definition.closes_at.plus_seconds(definition.hold_seconds + AFTER_END_SECONDS);
    definition.opens_at <= now && now <= until
}

/// The differences by item as metrics; items without any say 0.
fn show(sale: &SaleId, items: &[ItemDifference]) {
    for line in items {
        for (measure, value) in [("units", line.units), ("money", line.money), ("count", line.count)] {
            let (sale, item) = (sale.to_string(), line.item.to_string());
            #[expect(clippy::cast_precision_loss, reason = "a figure for a chart")]
            metrics::gauge!("lockgate_books_difference", "sale" => sale, "item" => item, "measure" => measure)
                .set(value as f64);
        }
    }
}

fn items_of(sale: &StoredSale) -> Vec<ItemId> {
    sale.definition.items.iter().map(|item| item.item.clone()).collect()
}

impl App {
    /// What the reconciler found in a sale last, whichever process it runs in.
    ///
    /// # Errors
    /// The store broke.
    pub async fn reconciled(&self, sale: &SaleId) -> Result<Option<Reconciled>, StoreError> {
        let kept = self.store.kept(sale).await?;
        // A newer release may have written it otherwise; it is there again with the next round.
        Ok(kept.and_then(|kept| serde_json::from_str(&kept.text).ok()))
    }
}
