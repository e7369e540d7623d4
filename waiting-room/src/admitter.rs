//! The loops: per sale, follow the store, move the line under a lease, and publish the snapshot.
//!
//! Every process follows. The one that holds the lease also writes: a numbering row when lanes have grown, and the
//! record as far as [`crate::admission::advance`] moves it. The store compares fence and version, so that a process
//! that was frozen and thaws can do nothing, and one with an old view is told so.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use lockgate_shared::{catalog::StoredSale, clock::Timestamp, ids::SaleId, store::StoreError};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    admission::{Settings, advance},
    app::App,
    draw::{
        Draw, Table,
        due::{Patience, Survey, next_row},
    },
    eligibility::Verifier,
    follow::Follower,
    phase::{Phase, phase},
    snapshot::LiveSale,
    store::{Advanced, Move, Recorded},
};

/// How often a sale that people can enter is followed and moved.
const TICK: Duration = Duration::from_millis(200);
/// How often one that nobody can enter is.
const IDLE_TICK: Duration = Duration::from_secs(1);
/// How often the gate is asked for the stock of a sale that is on.
const STOCK_TICK: Duration = Duration::from_millis(500);
/// Life of the lease: after this much silence another process takes over.
const LEASE_MS: u64 = 2_000;
/// The lease is renewed when it is this old.
const RENEW_AFTER: Duration = Duration::from_millis(500);
/// Most rows one step writes: after a loss, the rest follows with the next steps.
const ROWS_PER_STEP_MAX: usize = 500;

/// Runs every loop until `stop` is true or its sender is gone, starting those of new sales as they come.
pub async fn run(app: Arc<App>, mut stop: watch::Receiver<bool>) {
    let mut known: HashSet<SaleId> = HashSet::new();
    let mut loops = JoinSet::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            _ = ticks.tick() => {}
        }
        for sale in app.parts.catalog.sales().iter() {
            if known.insert(sale.definition.id.clone()) {
                loops.spawn(Admitter::new(Arc::clone(&app), sale).run());
                loops.spawn(watch_stock(Arc::clone(&app), sale.definition.id.clone()));
            }
        }
        // A loop ends only by a defect. Then all start again: one sale must not stand still unnoticed.
        if let Some(ended) = loops.try_join_next() {
            tracing::error!(?ended, "a loop of a sale ended; all are started again");
            loops.shutdown().await;
            known.clear();
        }
    }
    loops.shutdown().await;
}

async fn watch_stock(app: Arc<App>, id: SaleId) {
    let mut is_lost = false;
    loop {
        let Ok(sale) = app.sale(&id) else {
            sleep(IDLE_TICK).await;
            continue;
        };
        let doing = phase(&sale.definition, &sale.controls, None, false, app.parts.clock.now());
        if matches!(doing, Phase::Scheduled | Phase::Closed) {
            sleep(IDLE_TICK).await;
            continue;
        }
        match app.parts.gate.stock(&id).await {
            Ok(stock) => {
                app.live(&sale).note_stock(stock);
                is_lost = false;
            }
            Err(error) if !is_lost => {
                tracing::warn!(sale = %id, %error, "the stock cannot be read; what was known is shown");
                is_lost = true;
            }
            Err(_) => {}
        }
        sleep(STOCK_TICK).await;
    }
}

/// Follows and moves one sale.
pub(crate) struct Admitter {
    app: Arc<App>,
    live: Arc<LiveSale>,
    sale: Arc<StoredSale>,
    verifier: Arc<Verifier>,
    follower: Follower,
    patience: Patience,
    /// When the last survey was begun, and whether a lane did not answer it.
    surveyed: (Timestamp, bool),
    lease: Option<Lease>,
    is_lost: bool,
}

#[derive(Clone, Copy)]
struct Lease {
    fence: u64,
    taken: Instant,
}

impl Admitter {
    pub(crate) fn new(app: Arc<App>, sale: &Arc<StoredSale>) -> Self {
        Self {
            live: app.live(sale),
            verifier: app.verifier(sale),
            follower: Follower::new(sale.definition.lanes),
            patience: Patience::default(),
            surveyed: (Timestamp::default(), true),
            sale: Arc::clone(sale),
            app,
            lease: None,
            is_lost: false,
        }
    }

    async fn run(mut self) {
        loop {
            let phase = self.tick().await;
            let is_idle = matches!(phase, Phase::Scheduled | Phase::Closed);
            sleep(if is_idle { IDLE_TICK } else { TICK }).await;
        }
    }

    /// One round: follow, move, publish.
    pub(crate) async fn tick(&mut self) -> Phase {
        if let Ok(sale) = self.app.sale(&self.sale.definition.id)
            && !Arc::ptr_eq(&sale, &self.sale)
        {
            self.verifier = self.app.verifier(&sale);
            self.sale = sale;
        }
        match self.follow_and_advance().await {
            Ok(()) => self.is_lost = false,
            Err(error) if !self.is_lost => {
                tracing::warn!(sale = %self.sale.definition.id, %error, "the line cannot be read; what was known is shown");
                self.is_lost = true;
            }
            Err(_) => {}
        }
        self.compute_draw().await;
        let now = self.app.parts.clock.now();
        self.measure();
        self.live.publish(Arc::clone(&self.sale), Arc::clone(&self.verifier), &self.follower, now);
        self.live.snapshot().phase(now)
    }

    /// Computes the numbers of a draw this process has just learned of, before anybody is told of it: half a second
    /// of work at a million.
    async fn compute_draw(&mut self) {
        let Some(draw) = self.follower.undrawn().cloned() else { return };
        let id = &self.sale.definition.id;
        let Some(seed) = draw.seed(&self.sale.secrets.draw_secret, id) else { return };
        let pools = draw.pools.clone();
        match tokio::task::spawn_blocking(move || Table::draw(&seed, &pools)).await {
            Ok(Ok(table)) => {
                tracing::info!(sale = %id, entries = table.total(), "the draw was made");
                self.follower.note_table(draw, table);
            }
            Ok(Err(error)) => tracing::error!(sale = %id, %error, "the draw cannot be computed"),
            Err(error) => tracing::error!(sale = %id, %error, "the draw was not computed; it is tried again"),
        }
    }

    fn measure(&self) {
        let sale = self.sale.definition.id.to_string();
        let record = self.follower.record();
        let entered = self.follower.entered();
        metrics::gauge!("lockgate_line_entered", "sale" => sale.clone()).set(entered as f64);
        metrics::gauge!("lockgate_line_now_serving", "sale" => sale.clone()).set(record.now_serving as f64);
        let leads = if self.lease.is_some() { 1.0 } else { 0.0 };
        metrics::gauge!("lockgate_line_admitter", "sale" => sale).set(leads);
    }

    async fn follow_and_advance(&mut self) -> Result<(), StoreError> {
        let id = &self.sale.definition.id;
        let left_read = self.follower.left_read().to_vec();
        let begun_at = self.app.parts.clock.now();
        let (recorded, reports) = tokio::join!(
            read_record(&self.app, id, self.follower.rows_from()),
            self.app.parts.store.survey(id, &left_read),
        );
        self.live.note_survey(&reports);
        self.follower.survey(&reports);
        self.surveyed = (begun_at, reports.iter().any(Option::is_none));
        self.absorb(recorded?);
        self.renew_lease().await?;
        self.advance(self.app.parts.clock.now()).await
    }

    fn absorb(&mut self, recorded: Recorded) {
        let was_behind = self.follower.store_is_behind();
        let sale = &self.sale.definition.id;
        if let Err(error) = self.follower.absorb(recorded) {
            tracing::warn!(%sale, %error, "numbering rows do not follow; all are read anew");
        } else if self.follower.store_is_behind() && !was_behind {
            tracing::warn!(%sale, "the store has lost its last writes; what was shown stands and is put back");
        }
    }

    async fn renew_lease(&mut self) -> Result<(), StoreError> {
        if self.lease.is_some_and(|lease| lease.taken.elapsed() < RENEW_AFTER) {
            return Ok(());
        }
        let taken = Instant::now();
        let parts = &self.app.parts;
        let fence = parts.store.lease(&self.sale.definition.id, &parts.process_id, LEASE_MS).await?;
        self.lease = fence.map(|fence| Lease { fence, taken });
        Ok(())
    }

    /// **advance**: moves the record and appends rows, if this process holds the lease and anything moves.
    async fn advance(&mut self, now: Timestamp) -> Result<(), StoreError> {
        // Without the lease too: whoever takes over has waited for a silent lane as long as the one before.
        let draw = self.next_draw(now);
        let Some(lease) = self.lease else { return Ok(()) };
        if !self.fold(lease).await? {
            return Ok(());
        }
        let Some(step) = self.step(lease.fence, draw, now) else {
            return Ok(());
        };
        match self.app.parts.store.advance(&self.sale.definition.id, &step).await? {
            Advanced::Advanced => {
                let rows_total = self.follower.stored().1 + step.rows.len();
                let from = self.follower.rows_from();
                if from == self.follower.stored().1 {
                    let rows_first = self.follower.numbering().rows_first();
                    self.absorb(Recorded { record: step.record, rows_total, rows_first, rows: step.rows });
                }
            }
            Advanced::Fenced => self.lease = None,
            Advanced::Stale => {}
        }
        Ok(())
    }

    /// **fold**: drops rows long since called from the store. The next reading tells every process, this one too.
    /// False when nothing else can be written before that.
    async fn fold(&mut self, lease: Lease) -> Result<bool, StoreError> {
        let Some(rows_first) = self.follower.fold_due() else { return Ok(true) };
        let id = &self.sale.definition.id;
        if self.app.parts.store.fold(id, lease.fence, rows_first).await? == Advanced::Fenced {
            self.lease = None;
            return Ok(false);
        }
        Ok(self.follower.stored().1 >= rows_first)
    }

    /// What a lottery that waits for its draw comes to, if anything new.
    fn next_draw(&mut self, now: Timestamp) -> Option<Draw> {
        if self.phase(now) != Phase::Drawing {
            return None;
        }
        let (begun_at, is_partial) = self.surveyed;
        let counts = self.follower.entered_by_lane();
        let survey = Survey { begun_at, counts: &counts, is_partial };
        self.patience.next(&self.sale, self.follower.record().draw.as_ref(), survey, now)
    }

    fn phase(&self, now: Timestamp) -> Phase {
        let is_drawn = self.follower.record().is_drawn();
        phase(&self.sale.definition, &self.sale.controls, self.live.stock().as_deref(), is_drawn, now)
    }

    /// What to write now, if anything.
    fn step(&self, fence: u64, draw: Option<Draw>, now: Timestamp) -> Option<Move> {
        let follower = &self.follower;
        let (stored, stored_rows) = follower.stored();
        let mut base = follower.record().restored_over(stored);
        let is_news = draw.is_some();
        base.draw = draw.or(base.draw);
        // What the store lost comes first, in its old order; then what is new.
        let mut rows: Vec<Vec<u64>> =
            follower.numbering().counts_from(stored_rows).map(<[u64]>::to_vec).collect();
        let (numbering, counts) = (follower.numbering(), follower.counts());
        rows.extend(next_row(&self.sale.definition, base.draw.as_ref(), numbering, counts));
        rows.truncate(ROWS_PER_STEP_MAX);
        let total = rows.last().map_or(follower.numbering().total(), |row| row.iter().sum());
        let admission = &self.sale.definition.admission;
        let settings = Settings {
            rate_per_minute: admission.rate_per_minute,
            burst: admission.burst,
            turn_seconds: admission.turn_seconds,
        };
        let record = match advance(&base, &settings, self.phase(now).admits(), total, now) {
            Some(record) => record,
            None if is_news || follower.store_is_behind() || !rows.is_empty() => {
                let version = base.version.saturating_add(1);
                crate::admission::AdmissionRecord { version, ..base }
            }
            None => return None,
        };
        Some(Move { fence, expected_version: stored.version, record, rows })
    }
}

/// The record with all rows from `from` on, in as many calls as that takes.
async fn read_record(app: &App, sale: &SaleId, from: usize) -> Result<Recorded, StoreError> {
    let mut all = app.parts.store.record(sale, from).await?;
    let first = from.max(all.rows_first);
    while first + all.rows.len() < all.rows_total {
        let more = app.parts.store.record(sale, first + all.rows.len()).await?;
        // Folded in between: what was read so far is a beginning that others have let go; the next tick reads anew.
        if more.rows.is_empty() || more.rows_first > first + all.rows.len() {
            break;
        }
        all.rows.extend(more.rows);
        (all.record, all.rows_total) = (more.record, more.rows_total);
    }
    Ok(all)
}
