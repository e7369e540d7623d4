//! The loop that puts stock there: of a new sale, and of one that an answer of the gate says is frozen. The stock is put
//! together from the holds that are left, the events nobody has read, and the orders, and uploaded. Of a new sale there
//! are none of them, as far as its catalog knows; one whose catalog was lost with its stock has orders, and so is never
//! given a fresh stock. Any number of processes may do this at once; the first to conclude wins.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use lockgate_shared::{
    gate::{
        ConcludeAnswer, ConcludeRequest, Freeze, FreezeAnswer, FreezeRequest, GateError, Hold, HoldState,
        StageAnswer, StageRequest, ledger::Ledger,
    },
    ids::{ClaimId, ItemId, SaleId},
    limits::{EVENT_BATCH_MAX, HOLDS_PAGE_MAX, LEDGER_PAGE_MAX},
    problem::Problem,
    store::StoreError,
};
use rand::RngExt as _;
use serde::Serialize;
use tokio::{sync::watch, time::MissedTickBehavior};
use uuid::Uuid;

use crate::{
    app::App,
    claim::placement_of_hold,
    intake,
    order::{Intake, OrderEvent, OrderRecord},
    rebuild::{Rebuilt, rebuild},
    store::ORDERS_PAGE_MAX,
};

/// How often the catalog is looked through for sales without stock.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Pause after a rebuild that failed.
const PAUSE: Duration = Duration::from_millis(500);
/// Sales rebuilt at the same time.
const AT_ONCE: usize = 4;
/// Rebuilds begun anew because pages were lost, before it is called a failure.
const TRIES_MAX: usize = 3;
/// Tries of one call to the gate: one lost reply among thousands has nothing begin anew.
const CALL_TRIES: u32 = 3;
/// Pause between them.
const CALL_PAUSE: Duration = Duration::from_millis(50);
/// Longest that batches which other readers have in hand are waited for.
const OTHERS_MAX: Duration = Duration::from_secs(3);
/// How often it is looked whether they are through.
const OTHERS_EVERY: Duration = Duration::from_millis(50);

/// What a rebuild came to.
#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    /// The sale.
    pub sale: SaleId,
    /// How often its stock was put there by now.
    pub generation: u64,
    /// Whether this process did it; otherwise another was faster.
    pub here: bool,
    /// What was found and made; `None` where another process knows.
    #[serde(flatten)]
    pub figures: Option<Figures>,
    /// Time it took, in milliseconds.
    pub took_ms: u64,
}

/// What a rebuild found and made.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Holds that were left in the store.
    pub survived: usize,
    /// Holds that cannot be read and are given up, unless their orders tell what they were.
    pub unreadable: u64,
    /// Orders there are.
    pub orders: usize,
    /// Orders made because a hold had none.
    pub orders_made: usize,
    /// Holds made because an order had none.
    pub holds_made: usize,
    /// Unpaid orders that end because somebody else has their units.
    pub displaced: usize,
    /// Paid orders whose money goes back because somebody else has their units.
    pub unhoused: usize,
    /// Orders that ended unpaid and whose units, sold by the gate all the same, are free again.
    pub given_back: usize,
    /// Units held or sold beyond the stock, which was raised by them.
    pub beyond_stock: u64,
}

/// Why a sale is not open again yet.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The gate.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The orders, or the events.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An order could not be decided.
    #[error("an order cannot be ended: {}", .0.detail)]
    Order(Problem),
    /// The sale is gone from the catalog.
    #[error("the sale is not in the catalog")]
    NoSuchSale,
    /// What was uploaded was lost, again and again.
    #[error("what was uploaded was lost {TRIES_MAX} times")]
    Lost,
}

impl From<Trouble> for Problem {
    fn from(trouble: Trouble) -> Self {
        let detail =
            "The stock could not be rebuilt; the sale stays closed and it is tried again. The log says why.";
        Problem::unavailable("stock_unavailable", detail).caused_by(&trouble)
    }
}

/// Puts the stock of new sales there, and rebuilds what the gate says is frozen, until `stop`.
pub async fn run(app: Arc<App>, mut stop: watch::Receiver<bool>) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut troubles = Troubles::default();
    // Each sale by itself: one whose rebuild takes long keeps no other closed.
    let (mut work, mut under_way) = (FuturesUnordered::new(), BTreeSet::new());
    loop {
        let mut is_new = false;
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            Some((sale, done)) = work.next(), if !work.is_empty() => {
                under_way.remove(&sale);
                troubles.note(sale, done);
            }
            () = app.gate.direct().frozen().arrived() => {}
            _ = looks.tick() => is_new = true,
        }
        let mut begins = |sale: &SaleId| under_way.len() < AT_ONCE && under_way.insert(sale.clone());
        let mut sales = app.gate.direct().frozen().take(&mut begins);
        if is_new {
            for sale in app.catalog.sales().iter().filter(|sale| sale.controls.stock_opened_at.is_none()) {
                if begins(&sale.definition.id) {
                    sales.insert(sale.definition.id.clone(), Some(0));
                }
            }
        }
        for (sale, generation) in sales {
            let app = Arc::clone(&app);
            work.push(async move {
                let done = tend(&app, &sale, generation).await;
                (sale, done)
            });
        }
    }
}

/// What keeps sales closed, so that each trouble is said once.
#[derive(Default)]
struct Troubles(HashMap<SaleId, String>);

impl Troubles {
    fn note(&mut self, sale: SaleId, done: Result<Recovery, Trouble>) {
        match done {
            Ok(done) => {
                self.0.remove(&sale);
                let (generation, took_ms) = (done.generation, done.took_ms);
                match done.figures {
                    Some(done) if generation > 1 || done.orders > 0 => {
                        tracing::warn!(%sale, generation, took_ms, survived = done.survived, orders = done.orders,
                            orders_made = done.orders_made, holds_made = done.holds_made,
                            "the stock of a frozen sale is rebuilt");
                    }
                    Some(_) => {}
                    None => tracing::debug!(%sale, generation, "another process has put the stock there"),
                }
            }
            Err(trouble) => {
                let words = trouble.to_string();
                if self.0.get(&sale) != Some(&words) {
                    tracing::error!(%sale, %trouble, "the stock of a sale cannot be put there yet; it stays closed");
                    self.0.insert(sale, words);
                }
            }
        }
    }
}

async fn tend(app: &App, sale: &SaleId, generation: Option<u64>) -> Result<Recovery, Trouble> {
    let why = match generation {
        Some(0) => "a new sale",
        Some(_) => "the store is not as the gate left it",
        None => "the gate gave a unit to two claims",
    };
    let done = recover(app, sale, generation, why).await;
    if done.is_err() {
        tokio::time::sleep(PAUSE).await;
        app.gate.direct().frozen().note(sale, generation);
    }
    done
}

/// Freezes a sale (of that generation, if one is given), rebuilds its stock and opens it again.
///
/// # Errors
/// See [`Trouble`]; the sale stays frozen.
pub async fn recover(
    app: &App,
    sale: &SaleId,
    if_generation: Option<u64>,
    why: &str,
) -> Result<Recovery, Trouble> {
    let started = Instant::now();
    let request = FreezeRequest { if_generation, why: why.to_owned() };
    for _ in 0..TRIES_MAX {
        let (answer, _) = again(|| app.gate.direct().freeze(sale, &request)).await?;
        let freeze = match answer {
            FreezeAnswer::Frozen(freeze) => freeze,
            FreezeAnswer::Rebuilt { generation } => return Ok(elsewhere(sale, generation, started)),
        };
        if let Some(recovery) = reopen(app, sale, freeze, started).await? {
            return Ok(recovery);
        }
    }
    Err(Trouble::Lost)
}

fn elsewhere(sale: &SaleId, generation: u64, started: Instant) -> Recovery {
    Recovery { sale: sale.clone(), generation, here: false, figures: None, took_ms: millis(started) }
}

/// The answer of a call that may be repeated, and how often it was asked for.
async fn again<T, F>(call: impl Fn() -> F) -> Result<(T, u32), GateError>
where
    F: Future<Output = Result<T, GateError>>,
{
    let mut tries = 1;
    loop {
        match call().await {
            Ok(answer) => return Ok((answer, tries)),
            Err(error) if tries >= CALL_TRIES => return Err(error),
            Err(_) => tokio::time::sleep(CALL_PAUSE).await,
        }
        tries += 1;
    }
}

fn millis(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// One rebuild under a freeze; `None` when what was uploaded is not there any more.
async fn reopen(
    app: &App,
    sale: &SaleId,
    freeze: Freeze,
    started: Instant,
) -> Result<Option<Recovery>, Trouble> {
    // What the gate recorded and nobody has read becomes orders first.
    if drain(app, sale).await.is_err() {
        // A reader whose group went with the stream learns of it by failing once.
        drain(app, sale).await?;
    }
    let (survived, unreadable) = surviving_holds(app, sale).await?;
    let mut orders = all_orders(app, sale).await?;
    let orders_made = place_missing(app, sale, &survived, &mut orders).await?;
    let rebuilt = rebuild(&survived, &orders, app.access.kid());
    // Before the sale opens: should this be cut off, the next rebuild does it.
    end_losers(app, &rebuilt, &orders).await?;
    // What operators changed until the freeze is in the definition by now.
    app.catalog.refresh().await?;
    let definition = app.catalog.sale(sale).ok_or(Trouble::NoSuchSale)?;
    let items: Vec<(ItemId, u32)> =
        definition.definition.items.iter().map(|item| (item.item.clone(), item.stock)).collect();
    let ledger = Ledger::of(&rebuilt.holds, &items);
    let upload = Upload { app, sale, freeze, token: Uuid::new_v8(rand::rng().random()) };
    let generation = match upload.conclude(&rebuilt.holds, &items, &ledger).await? {
        ConcludeAnswer::Reopened { generation } => generation,
        ConcludeAnswer::Incomplete => return Ok(None),
        ConcludeAnswer::Stale => return Ok(Some(elsewhere(sale, freeze.generation + 1, started))),
    };
    settle_given_back(app, &rebuilt, &orders).await;
    app.stock.returned(sale);
    app.work.notify_one();
    let figures = Figures {
        survived: survived.len(),
        unreadable,
        orders: orders.len(),
        orders_made,
        holds_made: rebuilt.holds.len() - survived.len(),
        displaced: rebuilt.displaced.len(),
        unhoused: rebuilt.unhoused.len(),
        given_back: rebuilt.given_back.len(),
        beyond_stock: ledger.beyond,
    };
    Ok(Some(Recovery { here: true, figures: Some(figures), ..elsewhere(sale, generation, started) }))
}

/// Takes in what nobody has read, and waits a while for what other readers have in hand: their claims would not be among
/// the orders yet.
async fn drain(app: &App, sale: &SaleId) -> Result<(), StoreError> {
    let mut waited = Duration::ZERO;
    loop {
        while intake::take_batch(app, sale).await? > 0 {}
        if waited >= OTHERS_MAX || app.events.backlog(sale, intake::GROUP).await?.pending == 0 {
            return Ok(());
        }
        tokio::time::sleep(OTHERS_EVERY).await;
        waited += OTHERS_EVERY;
    }
}

async fn surviving_holds(app: &App, sale: &SaleId) -> Result<(BTreeMap<ClaimId, Hold>, u64), Trouble> {
    let (mut holds, mut unreadable, mut after) = (BTreeMap::new(), 0, None);
    loop {
        let (page, _) = again(|| app.gate.direct().holds(sale, after.as_deref())).await?;
        holds.extend(page.holds.into_iter().map(|hold| (hold.claim, hold)));
        unreadable += page.unreadable;
        after = page.next;
        if after.is_none() {
            return Ok((holds, unreadable));
        }
    }
}

async fn all_orders(app: &App, sale: &SaleId) -> Result<BTreeMap<ClaimId, OrderRecord>, Trouble> {
    let mut orders = BTreeMap::new();
    let mut after = None;
    loop {
        let page = app.store.orders(sale, after).await?;
        after = page.last().map(|order| order.id);
        let is_last = page.len() < ORDERS_PAGE_MAX;
        orders.extend(page.into_iter().map(|order| (order.id, order)));
        if is_last {
            return Ok(orders);
        }
    }
}

/// Makes the orders of live holds that have none, as their lost events would have, and answers how many.
async fn place_missing(
    app: &App,
    sale: &SaleId,
    survived: &BTreeMap<ClaimId, Hold>,
    orders: &mut BTreeMap<ClaimId, OrderRecord>,
) -> Result<usize, Trouble> {
    let mut missing = Vec::new();
    // Of two holds with one unit the earlier gets it.
    let mut by_time: Vec<&Hold> =
        survived.values().filter(|hold| !orders.contains_key(&hold.claim)).collect();
    by_time.sort_by_key(|hold| (hold.claimed_at, hold.claim));
    for hold in by_time {
        // A hold whose memo cannot be read has no order until it falls due; then it gets one that has ended.
        let Ok(placement) = placement_of_hold(sale, hold) else { continue };
        match hold.state {
            HoldState::Held => missing.push(Intake::Claimed(placement)),
            HoldState::Expiring => missing.push(Intake::Expiring(placement)),
            HoldState::Committed | HoldState::Released => {}
        }
    }
    let mut made = 0;
    for batch in missing.chunks(EVENT_BATCH_MAX) {
        let placed = app.store.place(sale, batch, &[], app.now()).await?;
        app.placed(&placed);
        made += placed.changed.len();
        orders.extend(placed.changed.into_iter().map(|order| (order.id, order)));
    }
    Ok(made)
}

/// Ends the orders that lost their units: nobody may pay for them, and what was paid goes back.
async fn end_losers(
    app: &App,
    rebuilt: &Rebuilt,
    orders: &BTreeMap<ClaimId, OrderRecord>,
) -> Result<(), Trouble> {
    for claim in rebuilt.displaced.iter().chain(&rebuilt.unhoused) {
        tracing::error!(order = %claim, "another order has the units of this one; it ends, and what was paid goes back");
        if let Some(order) = orders.get(claim) {
            app.decide(order, &OrderEvent::Expire).await.map_err(Trouble::Order)?;
        }
    }
    Ok(())
}

/// Ends the dispute of orders whose units are free again. One whose record is not written stays in dispute, where stock and
/// books agree all the same.
async fn settle_given_back(app: &App, rebuilt: &Rebuilt, orders: &BTreeMap<ClaimId, OrderRecord>) {
    for claim in &rebuilt.given_back {
        tracing::warn!(order = %claim, "the gate had sold the units of this order, which ended unpaid; they are free again");
        let Some(order) = orders.get(claim) else { continue };
        if let Err(problem) = app.decide(order, &OrderEvent::GivenBack).await {
            tracing::warn!(order = %claim, code = problem.code, "the order stays in dispute");
        }
    }
}

/// A rebuilt stock on its way to the gate.
struct Upload<'a> {
    app: &'a App,
    sale: &'a SaleId,
    freeze: Freeze,
    token: Uuid,
}

impl Upload<'_> {
    async fn conclude(
        &self,
        holds: &[Hold],
        items: &[(ItemId, u32)],
        ledger: &Ledger,
    ) -> Result<ConcludeAnswer, Trouble> {
        let blank = || StageRequest {
            freeze: self.freeze.id,
            token: self.token,
            items: items.iter().map(|(item, _)| item.clone()).collect(),
            holds: Vec::new(),
            accounts: Vec::new(),
            returned: Vec::new(),
        };
        let holds_pages =
            holds.chunks(HOLDS_PAGE_MAX).map(|part| StageRequest { holds: part.to_vec(), ..blank() });
        let accounts_pages = ledger
            .accounts
            .chunks(LEDGER_PAGE_MAX)
            .map(|part| StageRequest { accounts: part.to_vec(), ..blank() });
        let returned_pages = ledger
            .returned
            .chunks(LEDGER_PAGE_MAX)
            .map(|part| StageRequest { returned: part.to_vec(), ..blank() });
        for page in holds_pages.chain(accounts_pages).chain(returned_pages) {
            let (answer, _) = again(|| self.app.gate.direct().stage(self.sale, &page)).await?;
            if answer == StageAnswer::Stale {
                return Ok(ConcludeAnswer::Stale);
            }
        }
        let request = ConcludeRequest::of(self.freeze, self.token, holds.len(), ledger);
        let (answer, tries) = again(|| self.app.gate.direct().conclude(self.sale, &request)).await?;
        Ok(match answer {
            // It was concluded, and of all that may have done it, this is what was asked for and had no answer.
            ConcludeAnswer::Stale if tries > 1 => {
                ConcludeAnswer::Reopened { generation: self.freeze.generation + 1 }
            }
            answer => answer,
        })
    }
}
