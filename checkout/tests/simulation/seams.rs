//! What goes wrong between two parts. Every wrapper does the real thing, or does not, or does it and says otherwise.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use lockgate_checkout::{
    order::{Decision, Intake, OrderEvent, OrderRecord},
    payment::{Notice, PaymentId},
    store::{DeadLetter, ItemBooks, Notified, Placed, Store as OrderStore},
};
use lockgate_shared::{
    clock::Timestamp,
    gate::{ClaimAnswer, CommitAnswer, ForfeitAnswer, Hold, ReleaseAnswer, StockSnapshot},
    ids::{ClaimId, ItemId, SaleId, TokenId},
    store::StoreError,
};
use lockgate_stock_gate::store::{Claim, Prepared, Store as GateStore};
use tokio::time::sleep;

use crate::world::{Fault, Seam, World};

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It was not done.
    Refused,
    /// It may have been done, or may yet be.
    Lost,
}

/// Takes one call over `seam`: there, done, and back, with what the weather makes of it.
pub async fn over<T, F>(
    world: &Arc<World>,
    seam: Seam,
    what: &str,
    call: impl Fn() -> F + Send + 'static,
) -> Result<T, Cut>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let fault = world.fault(seam);
    if fault != Fault::None {
        world.note(format!("{seam:?} {what}: {fault:?}"));
    }
    sleep(world.way(seam)).await;
    let answer = match fault {
        Fault::Refused => Err(Cut::Refused),
        Fault::Late => {
            let pause = world.between_ms(1, 3_000);
            tokio::spawn(async move {
                sleep(pause).await;
                call().await;
            });
            Err(Cut::Lost)
        }
        Fault::Lost => {
            call().await;
            Err(Cut::Lost)
        }
        Fault::Twice => {
            let answer = call().await;
            let pause = world.between_ms(1, 3_000);
            tokio::spawn(async move {
                sleep(pause).await;
                call().await;
            });
            Ok(answer)
        }
        Fault::None => Ok(call().await),
    };
    sleep(world.way(seam)).await;
    answer
}

/// Verbs that change nothing, after which nothing needs to be held against the rules.
const READS: [&str; 6] = ["stock", "hold", "order", "order_of", "unsettled", "books"];

fn broken(verb: &'static str, cut: Cut) -> StoreError {
    match cut {
        Cut::Refused => StoreError::untouched(verb, "the simulation refused it"),
        Cut::Lost => StoreError::unknown(verb, "the simulation lost the answer"),
    }
}

/// The gate's store behind bad weather.
pub struct GateSeam {
    pub world: Arc<World>,
    pub inner: Arc<dyn GateStore>,
}

impl GateSeam {
    async fn over<T, F>(
        &self,
        verb: &'static str,
        of: &str,
        call: impl Fn(Arc<dyn GateStore>) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (world, inner) = (Arc::clone(&self.world), Arc::clone(&self.inner));
        let done = move || {
            let (world, doing) = (Arc::clone(&world), call(Arc::clone(&inner)));
            async move {
                let answer = doing.await;
                if !READS.contains(&verb) {
                    world.audit();
                }
                answer
            }
        };
        let answer = over(&self.world, Seam::GateStore, &format!("{verb} {of}"), done).await;
        answer.map_err(|cut| broken(verb, cut))?
    }
}

#[async_trait]
impl GateStore for GateSeam {
    async fn prepare(&self, sale: &SaleId, items: &[(ItemId, u32)]) -> Result<Prepared, StoreError> {
        let (sale, items) = (sale.clone(), items.to_vec());
        self.over("prepare", "", move |store| {
            let (sale, items) = (sale.clone(), items.clone());
            async move { store.prepare(&sale, &items).await }
        })
        .await
    }

    async fn claim(&self, sale: &SaleId, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
        let of = self.world.claim(claim.request.claim);
        let (sale, claim, world, name) = (sale.clone(), claim.clone(), Arc::clone(&self.world), of.clone());
        self.over("claim", &of, move |store| {
            let (sale, claim, world, name) = (sale.clone(), claim.clone(), Arc::clone(&world), name.clone());
            async move {
                let answer = store.claim(&sale, &claim).await;
                world.note(format!("gate: {name} -> {}", said(&answer)));
                answer
            }
        })
        .await
    }

    async fn commit(&self, sale: &SaleId, claim: ClaimId) -> Result<CommitAnswer, StoreError> {
        let of = self.world.claim(claim);
        let (sale, world, name) = (sale.clone(), Arc::clone(&self.world), of.clone());
        self.over("commit", &of, move |store| {
            let (sale, world, name) = (sale.clone(), Arc::clone(&world), name.clone());
            async move {
                let answer = store.commit(&sale, claim).await;
                world.note(format!("gate: commit {name} -> {answer:?}"));
                answer
            }
        })
        .await
    }

    async fn release(&self, sale: &SaleId, claim: ClaimId) -> Result<ReleaseAnswer, StoreError> {
        let of = self.world.claim(claim);
        let (sale, world, name) = (sale.clone(), Arc::clone(&self.world), of.clone());
        self.over("release", &of, move |store| {
            let (sale, world, name) = (sale.clone(), Arc::clone(&world), name.clone());
            async move {
                let answer = store.release(&sale, claim).await;
                world.note(format!("gate: release {name} -> {answer:?}"));
                answer
            }
        })
        .await
    }

    async fn expire(&self, sale: &SaleId, max: usize) -> Result<Vec<ClaimId>, StoreError> {
        let (sale, world) = (sale.clone(), Arc::clone(&self.world));
        self.over("expire", "", move |store| {
            let (sale, world) = (sale.clone(), Arc::clone(&world));
            async move {
                let due = store.expire(&sale, max).await?;
                for claim in &due {
                    world.note(format!("gate: {} is expiring", world.claim(*claim)));
                }
                Ok(due)
            }
        })
        .await
    }

    async fn forfeit(&self, sale: &SaleId, token_id: &TokenId) -> Result<ForfeitAnswer, StoreError> {
        let (sale, token_id) = (sale.clone(), token_id.clone());
        self.over("forfeit", "", move |store| {
            let (sale, token_id) = (sale.clone(), token_id.clone());
            async move { store.forfeit(&sale, &token_id).await }
        })
        .await
    }

    async fn hold(&self, sale: &SaleId, claim: ClaimId) -> Result<Option<Hold>, StoreError> {
        let sale = sale.clone();
        self.over("hold", &self.world.claim(claim), move |store| {
            let sale = sale.clone();
            async move { store.hold(&sale, claim).await }
        })
        .await
    }

    async fn stock(&self, sale: &SaleId, total_limit: Option<u32>) -> Result<StockSnapshot, StoreError> {
        let sale = sale.clone();
        self.over("stock", "", move |store| {
            let sale = sale.clone();
            async move { store.stock(&sale, total_limit).await }
        })
        .await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.inner.ready().await
    }
}

fn said(answer: &Result<ClaimAnswer, StoreError>) -> String {
    match answer {
        Ok(ClaimAnswer::Held { hold, replayed }) => {
            format!("held {} {:?}, replayed: {replayed}", hold.item, hold.units)
        }
        Ok(refused) => format!("{refused:?}"),
        Err(error) => error.causes(),
    }
}

/// The orders' database behind bad weather.
pub struct OrderSeam {
    pub world: Arc<World>,
}

impl OrderSeam {
    async fn over<T, F>(
        &self,
        verb: &'static str,
        of: &str,
        call: impl Fn(Arc<World>) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let world = Arc::clone(&self.world);
        let done = move || {
            let (world, doing) = (Arc::clone(&world), call(Arc::clone(&world)));
            async move {
                let answer = doing.await;
                if !READS.contains(&verb) {
                    world.audit();
                }
                answer
            }
        };
        let answer = over(&self.world, Seam::OrderStore, &format!("{verb} {of}"), done).await;
        answer.map_err(|cut| broken(verb, cut))?
    }
}

/// What an event is called in the trace.
fn name(world: &World, event: &OrderEvent) -> String {
    match event {
        OrderEvent::Pay { payment } => format!("pay by {}", world.payment(*payment)),
        OrderEvent::Started { payment, .. } => format!("{} was started", world.payment(*payment)),
        OrderEvent::Notified(notice) => {
            format!("{} is {:?}", world.payment(notice.payment), notice.outcome)
        }
        OrderEvent::Refunded { payment } => format!("{} was refunded", world.payment(*payment)),
        other => format!("{other:?}"),
    }
}

#[async_trait]
impl OrderStore for OrderSeam {
    async fn place(
        &self,
        sale: &SaleId,
        batch: &[Intake],
        dead: &[DeadLetter],
        now: Timestamp,
    ) -> Result<Placed, StoreError> {
        let (sale, batch, dead) = (sale.clone(), batch.to_vec(), dead.to_vec());
        self.over("place", &format!("{} records", batch.len()), move |world| {
            let (sale, batch, dead) = (sale.clone(), batch.clone(), dead.clone());
            async move {
                let placed = world.orders.place(&sale, &batch, &dead, now).await?;
                for order in &placed.changed {
                    world.note(format!(
                        "orders: {} {:?}/{:?}",
                        world.claim(order.id),
                        order.state,
                        order.gate
                    ));
                }
                Ok(placed)
            }
        })
        .await
    }

    async fn decide(
        &self,
        order: ClaimId,
        event: &OrderEvent,
        now: Timestamp,
    ) -> Result<Option<Decision>, StoreError> {
        let event = event.clone();
        let of = format!("{} {}", self.world.claim(order), name(&self.world, &event));
        let words = of.clone();
        self.over("decide", &of, move |world| {
            let (event, words) = (event.clone(), words.clone());
            async move {
                let decided = world.orders.decide(order, &event, now).await?;
                if let Some(decision) = &decided {
                    let after = &decision.after;
                    world.note(format!("orders: {words} -> {:?}/{:?}", after.state, after.gate));
                }
                Ok(decided)
            }
        })
        .await
    }

    async fn notify(
        &self,
        gateway: &str,
        event: &str,
        notice: &Notice,
        now: Timestamp,
    ) -> Result<Notified, StoreError> {
        let (gateway, event, notice) = (gateway.to_owned(), event.to_owned(), notice.clone());
        self.over("notify", &event.clone(), move |world| {
            let (gateway, event, notice) = (gateway.clone(), event.clone(), notice.clone());
            async move {
                let notified = world.orders.notify(&gateway, &event, &notice, now).await?;
                let came = match &notified {
                    Notified::Applied(decision) => {
                        format!("{:?}/{:?}", decision.after.state, decision.after.gate)
                    }
                    other => format!("{other:?}"),
                };
                world.note(format!("orders: webhook {event} of {} -> {came}", world.payment(notice.payment)));
                Ok(notified)
            }
        })
        .await
    }

    async fn order(&self, order: ClaimId) -> Result<Option<OrderRecord>, StoreError> {
        self.over(
            "order",
            &self.world.claim(order),
            move |world| async move { world.orders.order(order).await },
        )
        .await
    }

    async fn order_of(&self, payment: PaymentId) -> Result<Option<ClaimId>, StoreError> {
        self.over("order_of", "", move |world| async move { world.orders.order_of(payment).await }).await
    }

    async fn unsettled(
        &self,
        after: Option<ClaimId>,
        now: Timestamp,
    ) -> Result<Vec<OrderRecord>, StoreError> {
        self.over("unsettled", "", move |world| async move { world.orders.unsettled(after, now).await }).await
    }

    async fn books(&self, sale: &SaleId) -> Result<BTreeMap<ItemId, ItemBooks>, StoreError> {
        let sale = sale.clone();
        self.over("books", "", move |world| {
            let sale = sale.clone();
            async move { world.orders.books(&sale).await }
        })
        .await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.world.orders.ping().await
    }
}
