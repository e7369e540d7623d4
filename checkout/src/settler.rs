//! Drives every order to its end: makes attempts unpayable, tells the gate, gives money back. Each step may be
//! repeated, so a lost answer, a kill or a second process doing the same costs nothing.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use lockgate_shared::{
    gate::{CommitAnswer, FreezeAnswer, FreezeRequest, HoldState, ReclaimAnswer},
    ids::ClaimId,
    problem::Problem,
};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::{
    app::App,
    gateways::CancelOutcome,
    order::{OrderEvent, OrderRecord, OrderState, Step},
    payment::{Notice, Outcome},
    store::UNSETTLED_MAX,
};

/// How often the store is asked for unsettled orders when nobody points at one.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Orders that begin to have work within this time are looked for together.
const GATHER_FOR: Duration = Duration::from_millis(10);
/// Orders under way at the same time that may wait for the gateway; as many again may wait for the gate alone, so
/// that a slow gateway never keeps units from being sold or given back.
const AT_ONCE: usize = 128;
/// First pause after a failed step; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Rounds one order may take in a row. Four settle the longest way (pay, cancel the others, commit, refund).
const ROUNDS_MAX: usize = 8;

/// Settles orders until `stop`.
pub async fn run(app: Arc<App>, mut stop: watch::Receiver<bool>) {
    let mut settler =
        Settler { app, tasks: JoinSet::new(), under_way: HashSet::new(), pauses: HashMap::new() };
    let app = Arc::clone(&settler.app);
    loop {
        settler.look().await;
        let gathered = async {
            app.work.notified().await;
            tokio::time::sleep(GATHER_FOR).await;
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            () = gathered => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// How far one go at an order came.
enum Came {
    Through,
    Further,
    Nowhere,
}

struct Settler {
    app: Arc<App>,
    tasks: JoinSet<(ClaimId, Came)>,
    under_way: HashSet<ClaimId>,
    /// Orders that failed: when to try again, and the pause that led there.
    pauses: HashMap<ClaimId, (Instant, Duration)>,
}

impl Settler {
    /// Starts what is due and collects what is done.
    async fn look(&mut self) {
        while let Some(done) = self.tasks.try_join_next() {
            match done {
                Ok((order, came)) => self.done(order, &came),
                // A task that panicked has no name; whatever it did comes up again.
                Err(_) => self.under_way.clear(),
            }
        }
        let mut after = None;
        loop {
            let page = match self.app.store.unsettled(after, self.app.clock.now()).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(%error, "unsettled orders cannot be read for a moment");
                    return;
                }
            };
            after = page.last().map(|order| order.id);
            let is_last = page.len() < UNSETTLED_MAX;
            for order in page {
                self.start(order);
            }
            if is_last || self.under_way.len() >= 2 * AT_ONCE {
                return;
            }
        }
    }

    fn start(&mut self, order: OrderRecord) {
        let needs_gateway =
            order.steps().iter().any(|step| matches!(step, Step::CancelPayment(_) | Step::Refund { .. }));
        let room = if needs_gateway { AT_ONCE } else { 2 * AT_ONCE };
        let is_due = self.pauses.get(&order.id).is_none_or(|(at, _)| *at <= Instant::now());
        if !is_due || self.under_way.len() >= room || !self.under_way.insert(order.id) {
            return;
        }
        let app = Arc::clone(&self.app);
        self.tasks.spawn(async move {
            let settled = settle(&app, order.clone()).await;
            app.work.notify_one();
            let came = match settled {
                Ok(after) if !after.is_unsettled() => Came::Through,
                Ok(after) if after != order => Came::Further,
                Ok(_) | Err(_) => Came::Nowhere,
            };
            (order.id, came)
        });
    }

    fn done(&mut self, order: ClaimId, came: &Came) {
        self.under_way.remove(&order);
        let last = self.pauses.remove(&order).map(|(_, pause)| pause);
        let pause = match came {
            Came::Through => return,
            Came::Further => PAUSE_MIN,
            Came::Nowhere => last.map_or(PAUSE_MIN, |last| (last * 2).min(PAUSE_MAX)),
        };
        self.pauses.insert(order, (Instant::now() + pause, pause));
    }
}

/// Takes every step an order has left, as far as gate and gateway answer, and answers the order afterwards.
///
/// # Errors
/// The store broke.
pub async fn settle(app: &App, mut order: OrderRecord) -> Result<OrderRecord, Problem> {
    let now = app.clock.now();
    let waits = order.state == OrderState::AwaitingPayment && order.ending.is_none();
    if waits && order.hold_expires_at < now && is_due_at_the_gate(app, &order).await {
        order = app.decide(&order, &OrderEvent::Expire).await?;
    }
    for _ in 0..ROUNDS_MAX {
        let steps = order.steps();
        if steps.is_empty() {
            return Ok(order);
        }
        let before = order.clone();
        for step in steps {
            match take(app, &order, &step).await {
                Ok(event) => order = app.decide(&order, &event).await?,
                Err(cause) => {
                    tracing::warn!(order = %order.id, ?step, %cause, "a step failed; the units stay as they are and it is tried again");
                }
            }
        }
        if order == before {
            return Ok(order);
        }
    }
    Ok(order)
}

/// Whether the gate, too, says that the hold is due. Holds fall due by the store's clock; by ours alone, which may have
/// been set forward, no order ends.
async fn is_due_at_the_gate(app: &App, order: &OrderRecord) -> bool {
    match app.gate.hold(&order.sale, order.id).await {
        Ok(Some(hold)) => hold.state != HoldState::Held,
        Ok(None) => true,
        Err(error) => {
            tracing::debug!(order = %order.id, %error, "an overdue order ends once the gate can be asked");
            false
        }
    }
}

/// Takes one step and answers what it tells the order.
async fn take(app: &App, order: &OrderRecord, step: &Step) -> Result<OrderEvent, String> {
    match step {
        Step::Commit => {
            match app.gate.commit(&order.sale, order.id).await {
                // A gate that does not know a paid claim has lost data; the units stay this buyer's meanwhile.
                Ok(CommitAnswer::NoSuchClaim) => {
                    freeze_forgetful(app, order).await?;
                    Err("the gate does not know this claim; its stock is rebuilt".to_owned())
                }
                Ok(answer) => Ok(OrderEvent::Commit(answer)),
                Err(error) => Err(error.to_string()),
            }
        }
        Step::Release => {
            let answer = app.gate.release(&order.sale, order.id).await;
            app.stock.returned(&order.sale);
            answer.map(OrderEvent::Release).map_err(|error| error.to_string())
        }
        Step::Reclaim => {
            match app.gate.reclaim(&order.sale, order.id).await {
                // Every order was a claim once, so the gate has lost data; what is rebuilt from the orders knows it.
                Ok(ReclaimAnswer::NoSuchClaim) => {
                    freeze_forgetful(app, order).await?;
                    Err("the gate does not know this claim; its stock is rebuilt".to_owned())
                }
                Ok(answer) => Ok(OrderEvent::Reclaim(answer)),
                Err(error) => Err(error.to_string()),
            }
        }
        Step::CancelPayment(payment) => {
            let answer = app.gateway.cancel(&app.asked(order, *payment)).await;
            let outcome = match answer.map_err(|error| error.to_string())? {
                CancelOutcome::Unpayable => Outcome::Unpayable,
                CancelOutcome::Paid(money) => Outcome::Paid(money),
            };
            Ok(OrderEvent::Notified(Notice { payment: *payment, order: None, outcome }))
        }
        Step::Refund { payment, money } => {
            let answer = app.gateway.refund(&app.asked(order, *payment), money).await;
            answer.map(|()| OrderEvent::Refunded { payment: *payment }).map_err(|error| error.to_string())
        }
    }
}

/// Closes a sale whose stock has forgotten a paid claim, and has it rebuilt.
async fn freeze_forgetful(app: &App, order: &OrderRecord) -> Result<(), String> {
    let request = FreezeRequest {
        if_generation: None,
        why: format!("the store does not know the paid claim {}", order.id),
    };
    let answer = app.gate.direct().freeze(&order.sale, &request).await.map_err(|error| error.to_string())?;
    if let FreezeAnswer::Frozen(freeze) = answer {
        app.gate.direct().frozen().note(&order.sale, Some(freeze.generation));
    }
    Ok(())
}
