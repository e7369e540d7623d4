//! The loop that compares gate, orders and payments of every sale that runs or ended lately, and repairs what can be
//! repaired safely ([`crate::reconcile`]).
//!
//! One process does it at a time, by a lease in the orders' store that it keeps while it lives; whatever it writes is
//! refused once another has the lease.
//! It costs little: while counts stay as they were nothing more is read than those, holds and orders are read by pages
//! with pauses, and a round is followed by a pause of at least [`PAUSE_TIMES`] its length.
//!
//! - here: rounds, and what is told of them; `tenure`: the lease; `looking`: at which sales; `reading`: the two sides of a
//!   sale; `repairs`: what is done; `parked`: payments that no order came for.

mod looking;
mod parked;
mod reading;
mod repairs;
mod tenure;

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

use self::{looking::Looking, parked::Waiting, repairs::Asking, tenure::Tenure};
use crate::{
    app::App,
    payment::PaymentId,
    reconcile::{ItemDifference, Kind, Reconciled, Standing, Watch},
    store::{
        ItemBooks,
        office::{Lease, Parked},
    },
};

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

/// How long the reconciler's steps may take.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long the lease lasts after its holder died. A living one keeps it through rounds and pauses.
    pub lease: Duration,
    /// Longest the gateway is waited for in one round, whatever the number of sales.
    pub asking: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { lease: Duration::from_secs(60), asking: Duration::from_secs(5) }
    }
}

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
    /// Payments that no order came for.
    pub parked: u64,
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
    /// Attempts in doubt that the gateway was asked about, and when.
    asked: BTreeMap<PaymentId, Timestamp>,
}

/// Compares and repairs, round by round.
pub struct Reconciler {
    app: Arc<App>,
    tenure: Tenure,
    asking: Duration,
    fence: Option<u64>,
    watched: BTreeMap<SaleId, Watched>,
    looking: Looking,
    waiting: Waiting,
    /// Rounds begun; each begins with another sale, so that none has the gateway's time to itself.
    turn: usize,
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
            () = reconciler.rest(pause) => {}
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
        Self::paced(app, holder, Pace::default())
    }

    /// The same at another pace.
    #[must_use]
    pub fn paced(app: Arc<App>, holder: &str, pace: Pace) -> Self {
        let tenure = Tenure::new(Arc::clone(&app), holder, pace.lease);
        let (watched, looking, waiting) = (BTreeMap::new(), Looking::default(), Waiting::default());
        Self { app, tenure, asking: pace.asking, fence: None, watched, looking, waiting, turn: 0 }
    }

    /// Looks at every sale once, if no other process does; stops at once when another takes over.
    pub async fn round(&mut self) -> Round {
        let lease = match self.tenure.take().await {
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
        let tenure = self.tenure.clone();
        let is_lost = tokio::select! {
            biased;
            () = tenure.lost(lease.fence) => true,
            is_lost = self.sales(lease, &mut round) => is_lost,
        };
        if is_lost {
            self.forget();
        }
        round
    }

    /// Pauses, and keeps the lease meanwhile.
    pub async fn rest(&mut self, pause: Duration) {
        let until = tokio::time::Instant::now() + pause;
        if let Some(fence) = self.fence {
            tokio::select! {
                () = self.tenure.lost(fence) => self.forget(),
                () = tokio::time::sleep_until(until) => return,
            }
        }
        tokio::time::sleep_until(until).await;
    }

    /// Gives the lease back, so that another process goes on at once.
    pub async fn give_up(&mut self) {
        let limit = Duration::from_secs(1);
        if self.fence.is_some() && tokio::time::timeout(limit, self.tenure.give_back()).await.is_err() {
            tracing::debug!("the reconciler's lease runs out by itself");
        }
        self.forget();
    }

    /// Looks at every sale; answers whether the lease was found lost.
    async fn sales(&mut self, lease: Lease, round: &mut Round) -> bool {
        let mut sales = self.looking.sales(&self.app).await;
        let first = self.turn.checked_rem(sales.len()).unwrap_or(0);
        sales.rotate_left(first);
        self.turn = self.turn.wrapping_add(1);
        round.parked = self.waiting.look(&self.app).await;
        let mut asking = Asking::new(self.asking);
        for sale in sales {
            if let Err(trouble) = self.sale(lease, &sale, &mut asking, round).await {
                tracing::debug!(sale = %sale.definition.id, %trouble, "the books of a sale are compared later");
                metrics::counter!("lockgate_reconciler_rounds_total", "outcome" => "failed").increment(1);
                if matches!(trouble, Trouble::LeaseLost) {
                    return true;
                }
            }
        }
        false
    }

    /// Another process tells the differences now.
    fn forget(&mut self) {
        self.fence = None;
        parked::show(&Parked::default(), self.app.now());
        for sale in std::mem::take(&mut self.watched).into_keys() {
            if let Some(sale) = self.app.catalog.sale(&sale) {
                let nothing = Reconciled::of(self.app.now(), &items_of(&sale), &[], 0);
                show(&sale.definition.id, &nothing.items);
            }
        }
    }

    async fn sale(
        &mut self,
        lease: Lease,
        sale: &StoredSale,
        asking: &mut Asking,
        round: &mut Round,
    ) -> Result<(), Trouble> {
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
        let done = repairs::repair(app, lease, id, watched, &standing, asking).await?;
        let differences: Vec<Standing> =
            standing.into_iter().filter(|one| one.finding.kind.is_difference()).collect();
        let unconfirmed = watched.watch.differences().saturating_sub(differences.len());
        let reconciled = Reconciled::of(now, &items_of(sale), &differences, unconfirmed);
        show(id, &reconciled.items);
        if !app.store.keep(lease, id, &serde_json::to_string(&reconciled)?, now).await? {
            return Err(Trouble::LeaseLost);
        }
        let every = if read.is_open { WHOLE_EVERY_SECONDS_OPEN } else { WHOLE_EVERY_SECONDS };
        let (ends_at, next_at) = (sale.definition.closes_at, now.plus_seconds(every));
        // The settlement waits for a comparison that was made after the end.
        let whole_at = if now < ends_at { next_at.min(ends_at) } else { next_at };
        (watched.counts, watched.whole_at) = (Some(counts), whole_at);
        round.compared += 1;
        round.standing += differences.len();
        round.repaired += done;
        metrics::counter!("lockgate_reconciler_rounds_total", "outcome" => "compared").increment(1);
        Ok(())
    }
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

    /// When an order of a sale was paid, or its money was to go back or went back, last.
    ///
    /// # Errors
    /// The store broke.
    pub async fn changed_at(&self, sale: &SaleId) -> Result<Option<Timestamp>, StoreError> {
        let last = self.store.changes(sale, 0, 1).await?.last;
        let Some(before) = last.checked_sub(1) else { return Ok(None) };
        Ok(self.store.changes(sale, before, 1).await?.changes.last().map(|change| change.at))
    }
}
