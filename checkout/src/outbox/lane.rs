//! One channel's lane: leases what is due, delivers several at a time, writes down what came of it.

use std::{sync::Arc, time::Duration};

use lockgate_shared::clock::Timestamp;
use rand::RngExt as _;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{Channel, Undelivered, mail::Facts, message::Message, pace::JITTER_PARTS};
use crate::{
    app::App,
    store::{Attempt, Leased},
};

/// Deliveries of one channel under way at a time.
const AT_ONCE: usize = 8;
/// How often the store is asked when nobody points at a message: what another process left behind, what is due again.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longest one delivery may take in all; shorter than a lease.
const DELIVERY_LIMIT: Duration = Duration::from_secs(45);
/// Failures of the receiver in a row after which it is left alone for a while, and then tried with one message.
const TROUBLES: u32 = 4;
/// First pause of a lane whose receiver is in trouble; it doubles.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Longest a lane that stops waits for what is under way. What is cut off is delivered again.
const DRAIN: Duration = Duration::from_secs(10);
/// How often it is tried to write down what came of a delivery.
const RECORDS_MAX: u32 = 5;

struct Lane {
    app: Arc<App>,
    channel: Channel,
    tasks: JoinSet<Result<(), Undelivered>>,
    /// Failures of the receiver in a row.
    troubles: u32,
    paused_until: Option<Instant>,
}

/// Runs the lane of `channel` until `stop`.
pub(super) async fn run(app: Arc<App>, channel: Channel, mut stop: watch::Receiver<bool>) {
    let mut lane = Lane { app, channel, tasks: JoinSet::new(), troubles: 0, paused_until: None };
    let app = Arc::clone(&lane.app);
    loop {
        lane.start().await;
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            Some(ended) = lane.tasks.join_next() => {
                // A task that panicked left its message leased; it comes again.
                if let Ok(came) = ended {
                    lane.note(&came);
                }
            }
            () = app.outbox.due(channel).notified() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
    let _ = timeout(DRAIN, async { while lane.tasks.join_next().await.is_some() {} }).await;
}

impl Lane {
    /// Starts what is due and has room.
    async fn start(&mut self) {
        if self.paused_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let room = if self.troubles < TROUBLES { AT_ONCE } else { 1 };
        let room = room.saturating_sub(self.tasks.len());
        if room == 0 {
            return;
        }
        let now = self.app.now();
        let until = now.plus_seconds(self.app.outbox.pace.lease_seconds);
        match self.app.store.lease_messages(self.channel, room, now, until).await {
            Ok(leased) => {
                for leased in leased {
                    let (app, channel) = (Arc::clone(&self.app), self.channel);
                    self.tasks.spawn(async move { deliver(&app, channel, leased).await });
                }
            }
            Err(error) => {
                if let Some(untold) = self.app.troubles.meet("messages", Instant::now()) {
                    let channel = self.channel.as_str();
                    tracing::warn!(channel, %error, untold, "messages cannot be read for a moment");
                }
                self.paused_until = Some(Instant::now() + PAUSE_MIN);
            }
        }
    }

    /// Leaves a receiver in trouble alone for a while: its messages keep their attempts, and it keeps its breath.
    fn note(&mut self, came: &Result<(), Undelivered>) {
        let Err(Undelivered { is_by_receiver: true, not_before_seconds, .. }) = came else {
            self.troubles = 0;
            return;
        };
        self.troubles = self.troubles.saturating_add(1);
        let asked = Duration::from_secs(not_before_seconds.unwrap_or_default());
        let own = match self.troubles.checked_sub(TROUBLES) {
            None => Duration::ZERO,
            Some(more) => (PAUSE_MIN * (1 << more.min(10))).min(PAUSE_MAX),
        };
        let pause = own.max(asked.min(PAUSE_MAX));
        if !pause.is_zero() {
            let until = Instant::now() + pause;
            self.paused_until = Some(self.paused_until.map_or(until, |earlier| earlier.max(until)));
        }
    }
}

async fn deliver(app: &App, channel: Channel, leased: Leased) -> Result<(), Undelivered> {
    let sent = match timeout(DELIVERY_LIMIT, send(app, &leased.message)).await {
        Ok(sent) => sent,
        Err(_) => Err(Undelivered::by_receiver("the delivery took too long".into(), None)),
    };
    let attempt = judge(app, &leased, &sent, app.now());
    let outcome = match &attempt {
        Attempt::Delivered => "delivered",
        Attempt::Later { .. } => "failed",
        Attempt::Dead { .. } => "dead",
    };
    metrics::counter!("lockgate_outbox_attempts_total", "channel" => channel.as_str(), "outcome" => outcome)
        .increment(1);
    let message = leased.message.id;
    if let Err(failure) = &sent {
        tracing::warn!(%message, channel = channel.as_str(), attempts = leased.attempts, outcome,
            problem = failure.problem, "a message was not delivered");
    }
    for n in 1..=RECORDS_MAX {
        match app.store.record_attempt(message, leased.lease, &attempt, app.now()).await {
            Ok(_) => break,
            // It stays leased, and is delivered again under the same id.
            Err(error) if n == RECORDS_MAX => {
                tracing::warn!(%message, %error, "what came of a delivery could not be written down");
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200) * n).await,
        }
    }
    sent
}

async fn send(app: &App, message: &Message) -> Result<(), Undelivered> {
    match (message.channel, &app.outbox.mail, &app.outbox.hook) {
        (Channel::Mail, Some(mailer), _) => {
            let content = &message.content;
            let sale = app.catalog.sale(&content.sale);
            let definition = sale.as_ref().map(|sale| &sale.definition);
            let item = definition.and_then(|sale| sale.item(&content.item));
            let order = message.id.order;
            let link =
                format!("{}/orders/{order}?key={}", app.public_url, app.access.key(order, app.access.kid()));
            let facts = Facts {
                sale: definition.map_or(content.sale.as_str(), |sale| &sale.name),
                item: item.map_or(content.item.as_str(), |item| &item.name),
                zone: definition.and_then(|sale| sale.time_zone.as_deref()),
                link: &link,
            };
            mailer.send(&mailer.compose(message, &facts)?).await
        }
        (Channel::Webhook, _, Some(hook)) => hook.send(message, &app.public_url, app.now()).await,
        _ => Err(Undelivered::for_now("the channel is not set up".into())),
    }
}

fn judge(app: &App, leased: &Leased, sent: &Result<(), Undelivered>, now: Timestamp) -> Attempt {
    let Err(failure) = sent else {
        return Attempt::Delivered;
    };
    let problem = failure.problem.clone();
    if failure.is_for_good {
        return Attempt::Dead { problem };
    }
    let jitter = rand::rng().random_range(0..=JITTER_PARTS);
    match app.outbox.pace.next(leased.attempts, now, jitter, failure.not_before_seconds) {
        Some(at) => Attempt::Later { at, problem },
        None => Attempt::Dead { problem },
    }
}
