//! Checkout's verbs: claim, order, pay, cancel, notify, callback, books.
//!
//! - here: the parts, what a request may see, and reading an order;
//! - `claim`, `pay` (and cancel), `notices` (webhooks and the buyer's return), `letters` (dead ones),
//!   `operator` (refund and cancel by operators, anomalies), `office` (feed, search, exports), `settlement`.

mod claim;
mod letters;
mod notices;
mod office;
mod operator;
mod outbox;
mod pay;
mod restock;
mod settlement;

pub use self::{
    claim::Claimed,
    letters::Retried,
    office::{ExportFormat, FeedPage},
    outbox::{OutboxView, Requeued},
    pay::Cancelled,
};

use std::{sync::Arc, time::Duration};

use lockgate_shared::{
    catalog::Catalog,
    clock::{Clock, Timestamp},
    edge::{rate_limit::AccountLimit, settings::ACCOUNT_LIMIT},
    events::EventLog,
    gate::GateClient,
    ids::{AccountHash, ClaimId, SaleId},
    keys::KeyRing,
    operator::OperatorKeys,
    problem::Problem,
    request::no_such_order,
};
use tokio::{sync::Notify, time::Instant};

use crate::{
    access::OrderAccess,
    claim::placement_of_hold,
    gate::Gate,
    gateways::Gateway,
    intake::{IntakeSettings, backlog::BacklogView, pace::Pace},
    order::{Anomaly, OrderEvent, OrderRecord, Placement, UNIT_TAKEN, Verdict},
    outbox::Outbox,
    stock_view::StockView,
    store::{Guarded, Placed, Store},
    troubles::Troubles,
};

/// Longest a reader waits for an order whose claim was won a moment ago.
pub const SHOW_WAIT: Duration = Duration::from_secs(1);
/// How often the store is asked again while waiting, for orders that another process takes in.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What checkout is made of.
pub struct AppParts {
    /// The sales.
    pub catalog: Arc<Catalog>,
    /// Where orders are kept.
    pub store: Arc<dyn Store>,
    /// The stock gate.
    pub gate: GateClient,
    /// What the gate records.
    pub events: Arc<dyn EventLog>,
    /// Who takes the money.
    pub gateway: Arc<dyn Gateway>,
    /// Verifies tokens, makes access keys.
    pub ring: Arc<KeyRing>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The address under which shoppers reach Lockgate.
    pub public_url: String,
    /// Who may look at the books.
    pub operator_keys: Arc<OperatorKeys>,
    /// Names this process among the readers of the event log.
    pub process_id: String,
}

/// Checkout.
pub struct App {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) gate: Gate,
    pub(crate) events: Arc<dyn EventLog>,
    pub(crate) gateway: Arc<dyn Gateway>,
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) public_url: String,
    pub(crate) operator_keys: Arc<OperatorKeys>,
    pub(crate) process_id: String,
    pub(crate) access: OrderAccess,
    pub(crate) stock: StockView,
    pub(crate) intake: IntakeSettings,
    pub(crate) backlog: BacklogView,
    pub(crate) pace: Pace,
    pub(crate) accounts: Arc<AccountLimit>,
    pub(crate) outbox: Outbox,
    pub(crate) troubles: Troubles,
    /// Orders were taken in.
    pub(crate) arrivals: Notify,
    /// A claim was won here.
    pub(crate) claimed: Notify,
    /// An order has work left.
    pub(crate) work: Notify,
}

/// What a request may see: proven by an access key or by admission tokens.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// Whether it holds the order's access key.
    pub has_access_key: bool,
    /// Whose tokens it holds.
    pub accounts: Vec<(SaleId, AccountHash)>,
}

impl Grant {
    fn is_nothing(&self) -> bool {
        !self.has_access_key && self.accounts.is_empty()
    }

    pub(crate) fn covers(&self, sale: &SaleId, account: AccountHash) -> bool {
        self.has_access_key || self.accounts.iter().any(|(of, whose)| of == sale && *whose == account)
    }
}

/// An order as a reader finds it.
#[derive(Clone, Debug)]
pub enum Found {
    /// It is there.
    Order(Box<OrderRecord>),
    /// Its claim was won; its row is on the way. What the claim says, where it could be asked.
    Placing(Option<Box<Placement>>),
}

impl App {
    /// Checkout over its parts. Spawn [`crate::run`] for its loops.
    #[must_use]
    pub fn new(parts: AppParts) -> Arc<Self> {
        Self::with_account_limit(parts, Arc::new(AccountLimit::new(Some(ACCOUNT_LIMIT))))
    }

    /// The same, holding each account to `accounts`, which others may share.
    #[must_use]
    pub fn with_account_limit(parts: AppParts, accounts: Arc<AccountLimit>) -> Arc<Self> {
        Self::with_settings(parts, accounts, IntakeSettings::default())
    }

    /// The same, taking the gate's records in as `intake` says.
    #[must_use]
    pub fn with_settings(parts: AppParts, accounts: Arc<AccountLimit>, intake: IntakeSettings) -> Arc<Self> {
        Self::with_outbox(parts, accounts, intake, Outbox::default())
    }

    /// The same, delivering messages by `outbox`. The store must have been told the same channels, or it writes no
    /// messages for them.
    #[must_use]
    pub fn with_outbox(
        parts: AppParts,
        accounts: Arc<AccountLimit>,
        intake: IntakeSettings,
        outbox: Outbox,
    ) -> Arc<Self> {
        let pace = intake.pace_per_second;
        Arc::new(Self {
            access: OrderAccess::new(Arc::clone(&parts.ring)),
            catalog: parts.catalog,
            store: Arc::new(Guarded::new(parts.store)),
            gate: Gate::new(parts.gate),
            events: parts.events,
            gateway: parts.gateway,
            ring: parts.ring,
            clock: parts.clock,
            public_url: parts.public_url.trim_end_matches('/').to_owned(),
            operator_keys: parts.operator_keys,
            process_id: parts.process_id,
            stock: StockView::default(),
            intake,
            backlog: BacklogView::new(intake.backlog_max, pace.map(|pace| pace.get().into())),
            pace: Pace::new(pace),
            accounts,
            outbox,
            troubles: Troubles::default(),
            arrivals: Notify::new(),
            claimed: Notify::new(),
            work: Notify::new(),
        })
    }

    /// The order, if `grant` may see it; waits up to `wait` for one whose claim was won a moment ago.
    ///
    /// # Errors
    /// 404 `no_such_order`: unknown and not-yours look the same. 503 when a store cannot be asked.
    pub async fn order(&self, id: ClaimId, grant: &Grant, wait: Duration) -> Result<Found, Problem> {
        if grant.is_nothing() {
            return Err(no_such_order());
        }
        if let Some(order) = self.store.order(id).await? {
            return seen(order, grant);
        }
        let claim = match self.claim_of(id, grant).await {
            // Its buyer, without a doubt: what the gate would say is only a better answer.
            Err(_) if grant.has_access_key => None,
            other => other?,
        };
        if claim.is_none() && !grant.has_access_key {
            return Err(no_such_order());
        }
        let deadline = Instant::now() + wait;
        while Instant::now() < deadline {
            let arrived = self.arrivals.notified();
            if let Some(order) = self.store.order(id).await? {
                return seen(order, grant);
            }
            let _ = tokio::time::timeout(LOOK_EVERY, arrived).await;
        }
        Ok(Found::Placing(claim.map(Box::new)))
    }

    /// What the gate says of a claim, for whoever holds its account's token.
    async fn claim_of(&self, id: ClaimId, grant: &Grant) -> Result<Option<Placement>, Problem> {
        for (sale, account) in &grant.accounts {
            if let Some(hold) = self.gate.hold(sale, id).await?
                && hold.account == *account
            {
                return placement_of_hold(sale, &hold)
                    .map(Some)
                    .map_err(|error| Problem::internal().caused_by(&error));
            }
        }
        Ok(None)
    }

    /// Decides `event` for an order that exists and answers the order afterwards.
    pub(crate) async fn decide(
        &self,
        order: &OrderRecord,
        event: &OrderEvent,
    ) -> Result<OrderRecord, Problem> {
        let mut order = order.clone();
        self.verdict(&mut order, event).await?;
        Ok(order)
    }

    async fn verdict(&self, order: &mut OrderRecord, event: &OrderEvent) -> Result<Verdict, Problem> {
        let decided = self.store.decide(order.id, event, self.clock.now()).await?;
        let decision = decided.ok_or_else(no_such_order)?;
        self.report(&decision.after, &decision.anomalies);
        *order = decision.after;
        Ok(decision.verdict)
    }

    /// Wakes whoever waits for orders that came in.
    pub(crate) fn placed(&self, placed: &Placed) {
        for (order, anomaly) in &placed.anomalies {
            log_anomaly(*order, anomaly);
            if let Some(order) = placed.changed.iter().find(|changed| changed.id == *order) {
                self.suspect(order, anomaly);
            }
        }
        if placed.changed.iter().any(OrderRecord::is_unsettled) {
            self.work.notify_one();
        }
        self.arrivals.notify_waiters();
        self.outbox.wake();
    }

    fn report(&self, order: &OrderRecord, anomalies: &[Anomaly]) {
        for anomaly in anomalies {
            log_anomaly(order.id, anomaly);
            self.suspect(order, anomaly);
        }
        if order.is_unsettled() {
            self.work.notify_one();
        }
        self.outbox.wake();
    }

    /// A gate that gives one unit to two claims has forgotten one of them: its stock is rebuilt.
    fn suspect(&self, order: &OrderRecord, anomaly: &Anomaly) {
        if anomaly.kind == UNIT_TAKEN {
            self.gate.direct().frozen().note(&order.sale, None);
        }
    }

    /// The present moment.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn seen(order: OrderRecord, grant: &Grant) -> Result<Found, Problem> {
    if grant.covers(&order.sale, order.account) {
        Ok(Found::Order(Box::new(order)))
    } else {
        Err(no_such_order())
    }
}

pub(crate) fn log_anomaly(order: ClaimId, anomaly: &Anomaly) {
    metrics::counter!("lockgate_anomalies_total", "kind" => anomaly.kind).increment(1);
    tracing::error!(%order, payment = ?anomaly.payment.map(|payment| payment.to_string()), kind = anomaly.kind,
        detail = anomaly.detail, "an anomaly was found and handled");
}
