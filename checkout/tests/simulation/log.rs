//! The event log: what the gate's store recorded, handed to groups of consumers. Entries come again after a lost
//! reply, to another consumer after a stall, and now and then to two at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use lockgate_shared::{
    events::{Backlog, Batch, Event, EventLog, Trim},
    ids::{ClaimId, SaleId},
    store::StoreError,
};
use tokio::time::Instant;

use crate::{
    seams::{broken, over},
    world::{Seam, World, lock},
};

/// What a consumer works on for longer goes to another.
const TAKE_OVER: Duration = Duration::from_secs(5);
/// Most entries of one read: small, so that consumers overtake each other.
const BATCH_MAX: u32 = 6;

#[derive(Default)]
struct Groups {
    /// A copy of the log, brought up to date by each read.
    events: Vec<Event>,
    /// How often its tail was cut off. Part of the ids, so that none is given twice.
    cuts: u32,
    done: BTreeSet<(String, String)>,
    given: BTreeMap<(String, String), (String, Instant)>,
}

/// The log of the world's gate.
#[derive(Clone)]
pub struct Log {
    world: Arc<World>,
    groups: Arc<Mutex<Groups>>,
}

impl Log {
    pub fn of(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world), groups: Arc::default() }
    }

    /// A fail-over leaves the first `count` entries, and forgets some of what was acknowledged.
    pub fn cut(&self, count: usize) {
        let mut groups = lock(&self.groups);
        groups.events.truncate(count);
        groups.cuts += 1;
        groups.given.clear();
        let Groups { events, done, .. } = &mut *groups;
        done.retain(|(_, id)| events.iter().any(|event| event.id == *id) && !self.world.chance(100));
    }

    fn hand_out(&self, sale: &SaleId, group: &str, consumer: &str, max: usize) -> Vec<Event> {
        let most = if self.world.is_calm() { max } else { max.min(1 + self.world.below(BATCH_MAX) as usize) };
        let mut groups = lock(&self.groups);
        let news = self.world.gate.events_after(sale, groups.events.len());
        let cuts = groups.cuts;
        groups
            .events
            .extend(news.into_iter().map(|event| Event { id: format!("{cuts}-{}", event.id), ..event }));
        let Groups { events: log, done, given, .. } = &mut *groups;
        let mut events = Vec::new();
        for event in log.iter() {
            let key = (group.to_owned(), event.id.clone());
            if done.contains(&key) {
                continue;
            }
            let is_others = given
                .get(&key)
                .is_some_and(|(whose, since)| whose != consumer && since.elapsed() < TAKE_OVER);
            if is_others && !self.world.mishap(20) {
                continue;
            }
            given.insert(key, (consumer.to_owned(), Instant::now()));
            events.push(event.clone());
            if events.len() >= most {
                break;
            }
        }
        events
    }

    fn done(&self, group: &str, ids: &[String]) {
        for id in ids {
            let mut groups = lock(&self.groups);
            if groups.events.iter().any(|event| event.id == *id) {
                groups.done.insert((group.to_owned(), id.clone()));
            }
        }
        let orders: BTreeSet<ClaimId> = self.world.orders.all_orders().iter().map(|order| order.id).collect();
        for event in lock(&self.groups).events.iter().filter(|event| ids.contains(&event.id)) {
            if !orders.contains(&event.claim) {
                self.world.violate(&format!(
                    "the record {:?} of {} is acknowledged, but there is no order",
                    event.kind,
                    self.world.claim(event.claim)
                ));
            }
        }
    }
}

#[async_trait]
impl EventLog for Log {
    async fn read(
        &self,
        sale: &SaleId,
        group: &str,
        consumer: &str,
        max: usize,
    ) -> Result<Batch, StoreError> {
        let reader = consumer.to_owned();
        let (log, sale, group, consumer) =
            (self.clone(), sale.clone(), group.to_owned(), consumer.to_owned());
        let handed = over(&self.world, Seam::EventLog, "read", move || {
            let events = log.hand_out(&sale, &group, &consumer, max);
            async move { events }
        })
        .await;
        let events = handed.map_err(|cut| broken("read events", cut))?;
        if !events.is_empty() {
            let names: Vec<String> =
                events.iter().map(|e| format!("{} {:?}", self.world.claim(e.claim), e.kind)).collect();
            self.world.note(format!("log: {reader} is given {}", names.join(", ")));
        }
        Ok(Batch { events, poison: Vec::new() })
    }

    async fn acknowledge(&self, _: &SaleId, group: &str, ids: &[String]) -> Result<(), StoreError> {
        let (log, group, ids) = (self.clone(), group.to_owned(), ids.to_vec());
        let done = over(&self.world, Seam::EventLog, "acknowledge", move || {
            log.done(&group, &ids);
            async {}
        })
        .await;
        done.map_err(|cut| broken("acknowledge events", cut))
    }

    async fn backlog(&self, sale: &SaleId, group: &str) -> Result<Backlog, StoreError> {
        let groups = lock(&self.groups);
        let news = self.world.gate.events_after(sale, groups.events.len()).len() as u64;
        let is_done = |event: &&Event| groups.done.contains(&(group.to_owned(), event.id.clone()));
        let is_given = |event: &&Event| groups.given.contains_key(&(group.to_owned(), event.id.clone()));
        let open: Vec<&Event> = groups.events.iter().filter(|event| !is_done(event)).collect();
        let pending = open.iter().filter(|event| is_given(event)).count() as u64;
        Ok(Backlog { unread: news + open.len() as u64 - pending, pending })
    }

    /// Everything is kept here: what a trim may remove is shown on the real logs.
    async fn trim(&self, _: &SaleId, _: &[&str], _: u64) -> Result<Trim, StoreError> {
        Ok(Trim::Trimmed(0))
    }

    async fn retire(&self, _: &SaleId, _: &str, _: u64) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn shares_work(&self) -> bool {
        true
    }
}
