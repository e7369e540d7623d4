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
    admission::{AdmissionRecord, Bound, Scene, Settings, Turns, advance, winnable},
    app::App,
    draw::{
        Draw, Table,
        due::{Patience, Survey, next_row},
    },
    eligibility::Verifier,
    follow::Follower,
    phase::{Phase, phase},
    purchases,
    snapshot::{Figures, LiveSale},
    store::{Advanced, LaneReport, Move, Recorded},
};

/// How often a sale that people can enter is followed and moved.
const TICK: Duration = Duration::from_millis(200);
/// How often one that nobody can enter is.
const IDLE_TICK: Duration = Duration::from_secs(1);
/// How often the gate is asked for the stock of a sale that is on.
const STOCK_TICK: Duration = Duration::from_millis(500);
/// How often a process that does not lead asks the lanes: it only has to know them when it takes over.
const SURVEY_TICK: Duration = Duration::from_secs(1);
/// Life of the lease: after this much silence another process takes over. Two losses in a row stay below the 3 s for
/// which the line may stand still; whoever loses the lease for nothing costs a tick.
const LEASE_MS: u64 = 1_200;
/// The lease is renewed when it is this old.
const RENEW_AFTER: Duration = Duration::from_millis(300);
/// A process follows for this long before it may lead. One that has just started knows only what the store says; if
/// the store has lost its last writes, whoever has them in memory must get there first. Longer than three ticks.
const FOLLOWS_BEFORE_LEADING: Duration = Duration::from_secs(1);
/// A process that finds no record of a sale that is older than [`YOUNG`] tells nobody anything for this long: the store
/// may have lost it, and whoever remembers puts it back within a few ticks.
const HEARS_OTHERS_FOR: Duration = Duration::from_secs(2);
/// A younger sale need not have a record yet.
const YOUNG: Duration = Duration::from_secs(3);
/// A clock that differs by this much from the steady one was set; less is drift, or a process that was held up.
const CLOCK_STEP_MICROS_MIN: u64 = 1_000_000;
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
                loops.spawn(purchases::follow(Arc::clone(&app), sale.definition.id.clone()));
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
            // A stock that was never put on sale is not lost.
            Err(error) if !is_lost && sale.controls.stock_opened_at.is_some() => {
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
    surveyed_at: Option<Instant>,
    turns: Turns,
    /// The clock and the steady clock when the line was last followed.
    followed_at: Option<(Timestamp, Duration)>,
    /// By how much the clock was set and the record not yet, in microseconds.
    clock_step: i64,
    /// When this process first read the record.
    follows_since: Option<Instant>,
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
            surveyed_at: None,
            turns: Turns::new(sale.definition.lanes),
            followed_at: None,
            clock_step: 0,
            sale: Arc::clone(sale),
            app,
            follows_since: None,
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
        // Once more: the draw may have been made just now, by this process.
        self.compute_draw().await;
        self.settle();
        let now = self.app.parts.clock.now();
        self.measure();
        if self.knows_the_line(now) {
            self.live.publish(Arc::clone(&self.sale), Arc::clone(&self.verifier), &self.follower, now);
        }
        self.live.snapshot().phase(now)
    }

    fn knows_the_line(&self, now: Timestamp) -> bool {
        let is_young = now.since(self.sale.created_at) < YOUNG;
        let has_record = self.follower.record().version > 0;
        self.follows_since.is_some_and(|since| has_record || is_young || since.elapsed() >= HEARS_OTHERS_FOR)
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

    /// Notes what operators see of the line.
    fn measure(&self) {
        let record = self.follower.record();
        let figures = Figures {
            active: self.turns.active(),
            pending_turns: self.turns.pending(record.expired_through, record.now_serving),
            winnable: self.live.stock().as_deref().map(winnable),
            leads: self.lease.is_some(),
        };
        let sale = self.sale.definition.id.to_string();
        let show = |name: &'static str, value: f64| metrics::gauge!(name, "sale" => sale.clone()).set(value);
        show("lockgate_line_entered", self.follower.entered() as f64);
        show("lockgate_line_now_serving", record.now_serving as f64);
        show("lockgate_line_active", figures.active as f64);
        show("lockgate_line_pending_turns", figures.pending_turns as f64);
        show("lockgate_line_no_show_share", record.no_show_share());
        show("lockgate_line_admitter", if figures.leads { 1.0 } else { 0.0 });
        for bound in Bound::ALL {
            let is_it = if record.bound == bound { 1.0 } else { 0.0 };
            metrics::gauge!("lockgate_line_bound", "sale" => sale.clone(), "by" => bound.as_str()).set(is_it);
        }
        self.live.note_figures(figures);
    }

    async fn follow_and_advance(&mut self) -> Result<(), StoreError> {
        // Before anything is read: whoever takes over acts on lanes asked just now.
        let leased = self.renew_lease().await;
        let id = &self.sale.definition.id;
        let (recorded, reports) =
            tokio::join!(read_record(&self.app, id, self.follower.rows_from()), self.survey());
        if let Some((begun_at, reports)) = reports {
            self.live.note_survey(&reports);
            self.follower.survey(&reports);
            self.surveyed = (begun_at, reports.iter().any(Option::is_none));
            self.surveyed_at = Some(Instant::now());
            self.turns.survey(&reports);
        }
        self.absorb(recorded?);
        self.compute_draw().await;
        self.settle();
        leased?;
        self.advance().await
    }

    /// Asks the lanes, if it is time to.
    async fn survey(&self) -> Option<(Timestamp, Vec<Option<LaneReport>>)> {
        if self.lease.is_none() && self.surveyed_at.is_some_and(|at| at.elapsed() < SURVEY_TICK) {
            return None;
        }
        let (read, now) = (self.turns.read(), self.app.parts.clock.now());
        Some((now, self.app.parts.store.survey(&self.sale.definition.id, &read, now).await))
    }

    /// By how much the clock was set since it was last looked at, in microseconds; 0 for what may be chance.
    fn clock_set_by(&mut self, now: Timestamp) -> i64 {
        let steady = self.app.parts.clock.steady();
        let Some((then, steady_then)) = self.followed_at.replace((now, steady)) else { return 0 };
        let passed = i64::try_from(steady.saturating_sub(steady_then).as_micros()).unwrap_or(i64::MAX);
        let step = now.micros().saturating_sub(then.micros()).saturating_sub(passed);
        if step.unsigned_abs() < CLOCK_STEP_MICROS_MIN { 0 } else { step }
    }

    fn absorb(&mut self, recorded: Recorded) {
        self.follows_since.get_or_insert_with(Instant::now);
        let was_behind = self.follower.store_is_behind();
        let sale = &self.sale.definition.id;
        if let Err(error) = self.follower.absorb(recorded) {
            tracing::warn!(%sale, %error, "numbering rows do not follow; all are read anew");
        } else if self.follower.store_is_behind() && !was_behind {
            tracing::warn!(%sale, "the store has lost its last writes; what was shown stands and is put back");
        }
    }

    /// Brings the turns to the numbers that are given, drawn ones too.
    fn settle(&mut self) {
        let record = self.follower.record();
        self.turns.settle(&self.follower.numbers(), record.expired_through, record.now_serving);
    }

    async fn renew_lease(&mut self) -> Result<(), StoreError> {
        if self.lease.is_some_and(|lease| lease.taken.elapsed() < RENEW_AFTER) {
            return Ok(());
        }
        if self.follows_since.is_none_or(|since| since.elapsed() < FOLLOWS_BEFORE_LEADING) {
            return Ok(());
        }
        let taken = Instant::now();
        let (parts, knows) = (&self.app.parts, self.follower.record().version);
        let fence = parts.store.lease(&self.sale.definition.id, &parts.process_id, LEASE_MS, knows).await?;
        self.lease = fence.map(|fence| Lease { fence, taken });
        Ok(())
    }

    /// **advance**: moves the record and appends rows, if this process holds the lease and anything moves.
    async fn advance(&mut self) -> Result<(), StoreError> {
        let now = self.app.parts.clock.now();
        let set_by = self.clock_set_by(now);
        self.clock_step = self.clock_step.saturating_add(set_by);
        // Without the lease too: whoever takes over has waited for a silent lane as long as the one before.
        let draw = self.next_draw(now);
        let Some(lease) = self.lease else {
            // The turns are told by the clock of whoever leads.
            self.clock_step = 0;
            return Ok(());
        };
        // Nobody is called by numbers that are not known here: who of them has left, or came, could not be told.
        if self.follower.undrawn().is_some() || !self.fold(lease).await? {
            return Ok(());
        }
        let Some(step) = self.step(lease.fence, draw, now) else {
            return Ok(());
        };
        match self.app.parts.store.advance(&self.sale.definition.id, &step).await? {
            Advanced::Advanced => {
                self.clock_step = 0;
                let rows_total = step.rows_from + step.rows.len();
                if self.follower.rows_from() == step.rows_from {
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
        let is_unheard = self.follower.counts().iter().any(Option::is_none);
        let survey = Survey { begun_at, counts: &counts, is_partial, is_unheard };
        self.patience.next(&self.sale, self.follower.record().draw.as_ref(), survey, now)
    }

    fn phase(&self, now: Timestamp) -> Phase {
        let is_drawn = self.follower.record().is_drawn();
        phase(&self.sale.definition, &self.sale.controls, self.live.stock().as_deref(), is_drawn, now)
    }

    /// What to write now, if anything.
    fn step(&self, fence: u64, draw: Option<Draw>, now: Timestamp) -> Option<Move> {
        let follower = &self.follower;
        let (stored, _) = follower.stored();
        let mut base = follower.record().restored_over(stored);
        let is_news = draw.is_some();
        base.draw = draw.or(base.draw);
        if self.clock_step != 0 {
            let (sale, micros) = (&self.sale.definition.id, self.clock_step);
            tracing::warn!(%sale, micros, "the clock was set; turns keep the time they have left");
            base = base.shifted(micros);
        }
        // What the store lost comes first, in its old order; then what is new.
        let rows_from = follower.rows_kept()?;
        let mut rows: Vec<Vec<u64>> =
            follower.numbering().counts_from(rows_from).map(<[u64]>::to_vec).collect();
        let (numbering, counts) = (follower.numbering(), follower.counts());
        rows.extend(next_row(&self.sale.definition, base.draw.as_ref(), numbering, counts));
        rows.truncate(ROWS_PER_STEP_MAX);
        let total = rows.last().map_or(follower.numbering().total(), |row| row.iter().sum());
        let settings = Settings::from(&self.sale.definition.admission);
        let stock = self.live.stock();
        let scene = Scene {
            now,
            phase: self.phase(now),
            total,
            turns: &self.turns,
            winnable: stock.as_deref().map(winnable),
        };
        let record = match advance(&base, &settings, &scene) {
            Some(record) => record,
            None if is_news || follower.store_is_behind() || !rows.is_empty() || self.clock_step != 0 => {
                let version = base.version.saturating_add(1);
                AdmissionRecord { version, ..base }
            }
            None => return None,
        };
        Some(Move { fence, expected_version: stored.version, record, rows_from, rows })
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
