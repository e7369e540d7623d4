//! Drives every order to its end: makes attempts unpayable, tells the gate, gives money back. Each step may be
//! repeated, so a lost answer, a kill or a second process doing the same costs nothing.

use std::{collections::HashMap, sync::Arc, time::Duration};

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
/// Orders under way at the same time that wait for the gate alone, so that a slow gateway never keeps units from being
/// sold or given back; and as many that have a payment made unpayable.
const AT_ONCE: usize = 128;
/// Refunds under way at the same time. No unit waits for one, and they may fail for days.
const REFUNDS_AT_ONCE: usize = 32;
/// First pause after a failed step; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest pause between two tries of a refund.
const REFUND_PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long after it fell due a pause is kept: longer than a look at all orders takes.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Rounds one order may take in a row. Four settle the longest way (pay, cancel the others, commit, refund).
const ROUNDS_MAX: usize = 8;

/// Settles orders until `stop`.
pub async fn run(app: Arc<App>, mut stop: watch::Receiver<bool>) {
    let mut settler = Settler {
        app,
        tasks: JoinSet::new(),
        under_way: HashMap::new(),
        lines: Lines::default(),
        pauses: Pauses::default(),
    };
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

/// What an order waits for. Each kind has room of its own, so that none keeps the others waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gate,
    Cancel,
    Refund,
}

impl Kind {
    fn of(order: &OrderRecord) -> Self {
        let steps = order.steps();
        if steps.iter().any(|step| matches!(step, Step::CancelPayment(_))) {
            Self::Cancel
        } else if steps.iter().any(|step| matches!(step, Step::Refund { .. })) {
            Self::Refund
        } else {
            Self::Gate
        }
    }

    fn room(self) -> usize {
        match self {
            Self::Gate | Self::Cancel => AT_ONCE,
            Self::Refund => REFUNDS_AT_ONCE,
        }
    }

    fn pause_max(self) -> Duration {
        match self {
            Self::Gate | Self::Cancel => PAUSE_MAX,
            Self::Refund => REFUND_PAUSE_MAX,
        }
    }
}

/// Where the line of one kind stands.
#[derive(Clone, Copy, Default)]
struct Line {
    under_way: usize,
    /// Orders up to this one had their turn, while there are more than the room.
    passed: Option<ClaimId>,
    /// Whether this look found the room full.
    is_full: bool,
}

/// The lines. Orders come by their ids; those for which there was no room are the first of the next look, so that orders
/// that fail for long take turns with the others.
#[derive(Default)]
struct Lines([Line; 3]);

impl Lines {
    fn of(&mut self, kind: Kind) -> &mut Line {
        &mut self.0[kind as usize]
    }

    /// Whether it is the turn of `order`; then it counts as under way.
    fn take(&mut self, kind: Kind, order: ClaimId) -> bool {
        let line = self.of(kind);
        if line.passed.is_some_and(|passed| order <= passed) {
            return false;
        }
        line.is_full |= line.under_way >= kind.room();
        if !line.is_full {
            line.under_way += 1;
            line.passed = Some(order);
        }
        !line.is_full
    }

    fn done(&mut self, kind: Kind) {
        let line = self.of(kind);
        line.under_way = line.under_way.saturating_sub(1);
    }

    /// A look at all orders begins: where the last one had room for all, at the first of them again.
    fn look(&mut self) {
        for line in &mut self.0 {
            if !line.is_full {
                line.passed = None;
            }
            line.is_full = false;
        }
    }

    fn are_full(&self) -> bool {
        self.0.iter().all(|line| line.is_full)
    }
}

struct Settler {
    app: Arc<App>,
    tasks: JoinSet<(ClaimId, Came)>,
    under_way: HashMap<ClaimId, Kind>,
    lines: Lines,
    pauses: Pauses,
}

/// Orders that failed: when to try again, and the pause that led there.
#[derive(Default)]
struct Pauses(HashMap<ClaimId, (Instant, Duration)>);

impl Pauses {
    fn is_due(&self, order: ClaimId, now: Instant) -> bool {
        self.0.get(&order).is_none_or(|(at, _)| *at <= now)
    }

    fn note(&mut self, order: ClaimId, kind: Kind, came: &Came, now: Instant) {
        let last = self.0.remove(&order).map(|(_, pause)| pause);
        let pause = match came {
            Came::Through => return,
            Came::Further => PAUSE_MIN,
            Came::Nowhere => last.map_or(PAUSE_MIN, |last| (last * 2).min(kind.pause_max())),
        };
        self.0.insert(order, (now + pause, pause));
    }

    /// An order that has long been due and was not tried was settled by another process.
    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, (at, _)| now.saturating_duration_since(*at) < FORGET_AFTER);
    }
}

impl Settler {
    /// Starts what is due and collects what is done.
    async fn look(&mut self) {
        while let Some(done) = self.tasks.try_join_next() {
            match done {
                Ok((order, came)) => self.done(order, &came),
                // A task that panicked has no name; whatever it did comes up again.
                Err(_) => {
                    self.under_way.clear();
                    self.lines = Lines::default();
                }
            }
        }
        self.pauses.forget(Instant::now());
        self.lines.look();
        let mut after = None;
        loop {
            let page = match self.app.store.unsettled(after, self.app.clock.now()).await {
                Ok(page) => page,
                Err(error) => {
                    if let Some(untold) = self.app.troubles.meet("unsettled orders", Instant::now()) {
                        tracing::warn!(%error, untold, "unsettled orders cannot be read for a moment");
                    }
                    return;
                }
            };
            after = page.last().map(|order| order.id);
            let is_last = page.len() < UNSETTLED_MAX;
            for order in page {
                self.start(order);
            }
            if is_last || self.lines.are_full() {
                return;
            }
        }
    }

    fn start(&mut self, order: OrderRecord) {
        let kind = Kind::of(&order);
        if self.under_way.contains_key(&order.id)
            || !self.pauses.is_due(order.id, Instant::now())
            || !self.lines.take(kind, order.id)
        {
            return;
        }
        self.under_way.insert(order.id, kind);
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
        if let Some(kind) = self.under_way.remove(&order) {
            self.lines.done(kind);
            self.pauses.note(order, kind, came, Instant::now());
        }
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
                Err(cause) => tell(app, &order, &step, &cause),
            }
        }
        if order == before {
            return Ok(order);
        }
    }
    Ok(order)
}

/// What hinders one order hinders all that take the same step, so only some of it is told.
fn tell(app: &App, order: &OrderRecord, step: &Step, cause: &str) {
    let kind = match step {
        Step::Commit => "commit",
        Step::Release => "release",
        Step::Reclaim => "reclaim",
        Step::CancelPayment(_) => "cancel a payment",
        Step::Refund { .. } => "refund",
    };
    match app.troubles.meet(kind, Instant::now()) {
        Some(untold) => tracing::warn!(order = %order.id, ?step, cause, untold,
            "a step failed; the units stay as they are and it is tried again"),
        None => tracing::debug!(order = %order.id, ?step, cause, "a step failed"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_with_each_failure_and_is_forgotten_when_another_settled_the_order() {
        let (mut pauses, order, start) =
            (Pauses::default(), ClaimId::from(uuid::Uuid::nil()), Instant::now());
        let kind = Kind::Gate;
        pauses.note(order, kind, &Came::Nowhere, start);
        pauses.note(order, kind, &Came::Nowhere, start);
        assert!(!pauses.is_due(order, start + PAUSE_MIN) && pauses.is_due(order, start + 2 * PAUSE_MIN));
        pauses.forget(start + FORGET_AFTER);
        assert_eq!(pauses.0.len(), 1, "it may be a long list");
        pauses.forget(start + FORGET_AFTER + PAUSE_MAX);
        assert!(pauses.0.is_empty());
        pauses.note(order, kind, &Came::Further, start);
        pauses.note(order, kind, &Came::Through, start);
        assert!(pauses.0.is_empty());
    }

    #[test]
    fn orders_that_fail_for_long_take_turns_and_keep_no_other_kind_waiting() {
        let ids: Vec<ClaimId> = (0..100).map(|n| uuid::Uuid::from_u128(n).into()).collect();
        let mut lines = Lines::default();
        let look = |lines: &mut Lines| -> Vec<ClaimId> {
            lines.look();
            ids.iter().filter(|id| lines.take(Kind::Refund, **id)).copied().collect()
        };
        let mut had = Vec::new();
        for _ in 0..4 {
            let taken = look(&mut lines);
            assert!(lines.take(Kind::Cancel, ids[0]), "there is room for it");
            lines.done(Kind::Cancel);
            if taken.len() == REFUNDS_AT_ONCE {
                assert!(look(&mut lines).is_empty(), "the room is full");
            }
            for _ in &taken {
                lines.done(Kind::Refund);
            }
            had.extend(taken);
        }
        assert_eq!(had, ids, "each had one turn before any had two");
        assert_eq!(look(&mut lines), ids[..REFUNDS_AT_ONCE]);
    }
}
