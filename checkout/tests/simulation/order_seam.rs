//! The orders' database behind bad weather.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use lockgate_checkout::{
    order::{Decision, Intake, OrderEvent, OrderRecord},
    outbox::{Channel, MessageId},
    payment::{Notice, PaymentId},
    store::{
        AnomalyRecord, Attempt, ChannelFigures, DeadLetter, DeadLetters, DeadMessage, ItemBooks, Leased,
        Notified, OutboxStore, Placed, Store as OrderStore,
    },
};
use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
    store::StoreError,
};

use crate::{
    seams::{READS, broken, over},
    world::{Seam, World},
};

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
        OrderEvent::Pay { payment, .. } => format!("pay by {}", world.payment(*payment)),
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
        tokio::time::sleep(self.world.stall()).await;
        self.over("place", &format!("{} records", batch.len()), move |world| {
            let (sale, batch, dead) = (sale.clone(), batch.clone(), dead.clone());
            async move {
                let placed = world.orders.place(&sale, &batch, &dead, now).await?;
                for _ in &placed.anomalies {
                    world.count("unit given to two claims");
                }
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

    async fn orders(&self, sale: &SaleId, after: Option<ClaimId>) -> Result<Vec<OrderRecord>, StoreError> {
        let sale = sale.clone();
        self.over("orders", "", move |world| {
            let sale = sale.clone();
            async move { world.orders.orders(&sale, after).await }
        })
        .await
    }

    async fn books(&self, sale: &SaleId) -> Result<BTreeMap<ItemId, ItemBooks>, StoreError> {
        let sale = sale.clone();
        self.over("books", "", move |world| {
            let sale = sale.clone();
            async move { world.orders.books(&sale).await }
        })
        .await
    }

    async fn anomalies(&self, sale: &SaleId, after: Option<u64>) -> Result<Vec<AnomalyRecord>, StoreError> {
        self.world.orders.anomalies(sale, after).await
    }

    async fn dead_letters(&self, sale: &SaleId) -> Result<DeadLetters, StoreError> {
        self.world.orders.dead_letters(sale).await
    }

    async fn clear(&self, sale: &SaleId, event: &str) -> Result<(), StoreError> {
        self.world.orders.clear(sale, event).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.world.orders.ping().await
    }
}

#[async_trait]
impl OutboxStore for OrderSeam {
    async fn lease_messages(
        &self,
        channel: Channel,
        most: usize,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<Leased>, StoreError> {
        self.world.orders.lease_messages(channel, most, now, until).await
    }

    async fn record_attempt(
        &self,
        message: MessageId,
        lease: u32,
        attempt: &Attempt,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.world.orders.record_attempt(message, lease, attempt, now).await
    }

    async fn outbox_figures(&self) -> Result<BTreeMap<Channel, ChannelFigures>, StoreError> {
        self.world.orders.outbox_figures().await
    }

    async fn dead_messages(&self) -> Result<Vec<DeadMessage>, StoreError> {
        self.world.orders.dead_messages().await
    }

    async fn retry_messages(&self, one: Option<MessageId>, now: Timestamp) -> Result<u64, StoreError> {
        self.world.orders.retry_messages(one, now).await
    }

    async fn trim_messages(
        &self,
        delivered_before: Timestamp,
        dead_before: Timestamp,
    ) -> Result<u64, StoreError> {
        self.world.orders.trim_messages(delivered_before, dead_before).await
    }
}
