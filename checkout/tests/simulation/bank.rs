//! The payment gateway: it charges buyers, and it misbehaves in its calls and its webhooks, but its own book is true.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::HeaderMap;
use lockgate_checkout::{
    Gateway,
    gateways::{CancelOutcome, GatewayError, Notification, PaymentOrder, PaymentStatus, WebhookError},
    payment::{Money, Notice, Outcome, PaymentId},
};
use lockgate_shared::{clock::Timestamp, ids::ClaimId};
use tokio::time::sleep;

use crate::{
    house::Checkouts,
    seams::over,
    world::{Seam, World, lock},
};

/// Tries until a webhook is given up.
const TRIES_MAX: u32 = 8;
/// In a thousand attempts to pay what was made unpayable, those whose money arrives all the same.
const LATE_SUCCESS: u32 = 700;

/// Where a payment stands at the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Can be paid.
    Open,
    /// The buyer is charged.
    Paid,
    /// Tried in vain.
    Failed,
    /// Can never be paid.
    Cancelled,
    /// The buyer has the money back.
    Refunded,
}

/// One payment at the gateway.
#[derive(Clone, Debug)]
pub struct Entry {
    pub payment: PaymentId,
    /// What it was opened for; `None` when it was cancelled before.
    pub opened: Option<(ClaimId, Money)>,
    pub stage: Stage,
    /// What the buyer was charged.
    pub charged: Option<Money>,
    /// Whether the money arrived after the payment had been made unpayable.
    pub is_late: bool,
}

impl Entry {
    /// Whether what was charged is what was asked for.
    pub fn is_exact(&self) -> bool {
        self.opened.as_ref().map(|(_, price)| price) == self.charged.as_ref()
    }

    fn status(&self) -> PaymentStatus {
        match (self.stage, &self.charged) {
            (Stage::Open, _) => {
                PaymentStatus::Open { redirect_url: format!("pay/{}", self.payment), reference: None }
            }
            (Stage::Paid | Stage::Refunded, Some(money)) => {
                PaymentStatus::Ended(Outcome::Paid(money.clone()))
            }
            (Stage::Failed, _) => PaymentStatus::Ended(Outcome::Failed),
            _ => PaymentStatus::Ended(Outcome::Unpayable),
        }
    }
}

/// Every payment, in the order in which they came.
pub type Book = Vec<Entry>;

fn find(book: &mut Book, payment: PaymentId) -> Option<&mut Entry> {
    book.iter_mut().find(|entry| entry.payment == payment)
}

/// The gateway as checkout calls it.
pub struct Bank {
    pub world: Arc<World>,
}

impl Bank {
    async fn call<T: Send + 'static>(
        &self,
        verb: &'static str,
        payment: PaymentId,
        act: impl Fn(&World) -> T + Clone + Send + Sync + 'static,
    ) -> Result<T, GatewayError> {
        let (world, name) = (Arc::clone(&self.world), self.world.payment(payment));
        let what = format!("{verb} {name}");
        let called = over(&self.world, Seam::Gateway, &what, move || {
            let answer = act(&world);
            let stage = find(&mut lock(&world.book), payment).map(|entry| entry.stage);
            world.note(format!("bank: {verb} {} -> {stage:?}", world.payment(payment)));
            world.audit();
            async move { answer }
        });
        called.await.map_err(|cut| GatewayError { verb, cause: format!("{cut:?}") })
    }
}

#[async_trait]
impl Gateway for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    async fn start(&self, order: &PaymentOrder) -> Result<PaymentStatus, GatewayError> {
        let (payment, opened) = (order.payment, (order.order, order.price.clone()));
        self.call("start", payment, move |world| {
            let mut book = lock(&world.book);
            if find(&mut book, payment).is_none() {
                let opened = Some(opened.clone());
                book.push(Entry { payment, opened, stage: Stage::Open, charged: None, is_late: false });
            }
            find(&mut book, payment).unwrap().status()
        })
        .await
    }

    async fn cancel(&self, order: &PaymentOrder) -> Result<CancelOutcome, GatewayError> {
        let payment = order.payment;
        self.call("cancel", payment, move |world| cancel(world, payment)).await
    }

    async fn state(&self, order: &PaymentOrder) -> Result<PaymentStatus, GatewayError> {
        let payment = order.payment;
        self.call("state", payment, move |world| {
            find(&mut lock(&world.book), payment).map_or(PaymentStatus::Unknown, |entry| entry.status())
        })
        .await
    }

    async fn refund(&self, order: &PaymentOrder, money: &Money) -> Result<(), GatewayError> {
        let (payment, money) = (order.payment, money.clone());
        let done = self.call("refund", payment, move |world| {
            let mut book = lock(&world.book);
            let entry = find(&mut book, payment).filter(|entry| entry.charged.as_ref() == Some(&money));
            let Some(entry) = entry else { return false };
            entry.stage = Stage::Refunded;
            true
        });
        if done.await? {
            return Ok(());
        }
        Err(GatewayError { verb: "refund", cause: "no such money was taken".to_owned() })
    }

    fn verify(&self, _: &HeaderMap, body: &[u8], _: Timestamp) -> Result<Notification, WebhookError> {
        read(body).ok_or(WebhookError::Body)
    }
}

/// Makes a payment unpayable for ever, unless it is paid.
pub fn cancel(world: &World, payment: PaymentId) -> CancelOutcome {
    let mut book = lock(&world.book);
    let Some(entry) = find(&mut book, payment) else {
        book.push(Entry { payment, opened: None, stage: Stage::Cancelled, charged: None, is_late: false });
        return CancelOutcome::Unpayable;
    };
    if let Some(money) = &entry.charged {
        return CancelOutcome::Paid(money.clone());
    }
    entry.stage = Stage::Cancelled;
    CancelOutcome::Unpayable
}

/// The buyer finishes a payment on the gateway's page; the gateway tells the shop by webhooks that come when they like.
pub fn finish(world: &Arc<World>, checkouts: &Arc<Checkouts>, payment: PaymentId, is_paid: bool) {
    // Money that was on its way when the payment was made unpayable.
    let may_be_late = is_paid && world.chance(LATE_SUCCESS);
    let (message, is_late) = {
        let mut book = lock(&world.book);
        let is_payable = |entry: &&mut Entry| {
            let is_closed = entry.stage == Stage::Cancelled && entry.opened.is_some();
            entry.stage == Stage::Open || (may_be_late && is_closed)
        };
        let Some(entry) = find(&mut book, payment).filter(is_payable) else {
            drop(book);
            world.note(format!("buyer: {} cannot be paid any more", world.payment(payment)));
            return;
        };
        let (order, price) = entry.opened.clone().unwrap();
        entry.is_late = entry.stage == Stage::Cancelled;
        if is_paid {
            let is_odd = world.mishap(15);
            let amount = price.amount - i64::from(is_odd);
            entry.stage = Stage::Paid;
            entry.charged = Some(Money { amount, currency: price.currency });
            (format!("{payment} {order} paid {amount}"), entry.is_late)
        } else {
            entry.stage = Stage::Failed;
            (format!("{payment} {order} failed 0"), false)
        }
    };
    if is_late {
        world.count("late success");
    }
    world.note(format!("buyer: {} {}", world.payment(payment), if is_paid { "is paid" } else { "fails" }));
    world.audit();
    let event =
        format!("{}-{}", world.payment(payment).replace(' ', "-"), if is_paid { "paid" } else { "failed" });
    announce(world, checkouts, &format!("evt-{event} {message}"), is_late);
}

/// A late success is told until it is heard: nobody asks for it.
fn announce(world: &Arc<World>, checkouts: &Arc<Checkouts>, message: &str, is_late: bool) {
    if !is_late && world.mishap(120) {
        world.count("webhook dropped");
        return;
    }
    let copies = if world.mishap(200) { 1 + world.below(3) } else { 1 };
    for _ in 0..copies {
        let pause = match world.below(4) {
            0 => Duration::ZERO,
            1 if !world.is_calm() => world.between_ms(1_000, 15_000),
            _ => world.between_ms(1, 800),
        };
        if copies > 1 {
            world.count("webhook copied");
        }
        let tries = if is_late { u32::MAX } else { TRIES_MAX };
        tokio::spawn(deliver(Arc::clone(checkouts), Arc::clone(world), message.to_owned(), pause, tries));
    }
}

async fn deliver(checkouts: Arc<Checkouts>, world: Arc<World>, body: String, pause: Duration, tries: u32) {
    sleep(pause).await;
    for n in 1..=tries {
        let bytes = body.clone();
        let took = checkouts
            .ask(&world, move |app| async move { app.notify(&HeaderMap::new(), bytes.as_bytes()).await });
        if matches!(took.await, Ok(Ok(()))) {
            return;
        }
        sleep(world.between_ms(100, 400) * n.min(TRIES_MAX)).await;
    }
    world.count("webhook given up");
}

/// Reads a webhook's body: event, payment, order, what became of it, the amount.
fn read(body: &[u8]) -> Option<Notification> {
    let text = std::str::from_utf8(body).ok()?;
    let [event, payment, order, word, amount] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let outcome = match word {
        "paid" => Outcome::Paid(Money { amount: amount.parse().ok()?, currency: "EUR".to_owned() }),
        _ => Outcome::Failed,
    };
    let notice = Notice { payment: payment.parse().ok()?, order: Some(order.parse().ok()?), outcome };
    Some(Notification { event: event.to_owned(), notice: Some(notice) })
}
