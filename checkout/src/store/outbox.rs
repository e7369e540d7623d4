//! Messages that wait to be delivered. They are written by the verbs that change orders, in the same transaction; what
//! is here takes them out, at least once each, and for one order and channel one after the other.

use std::collections::{BTreeMap, btree_map::Entry};

use async_trait::async_trait;
use lockgate_shared::{clock::Timestamp, ids::ClaimId, store::StoreError};

use crate::{
    order::words,
    outbox::{Channel, Draft, Message, MessageId},
};

/// Most messages one call of [`OutboxStore::lease_messages`] answers.
pub const LEASES_MAX: usize = 64;
/// Most dead messages one call of [`OutboxStore::dead_messages`] answers.
pub const DEAD_MESSAGES_MAX: usize = 1_000;
/// Most messages one call of [`OutboxStore::trim_messages`] removes.
pub const TRIMMED_MAX: usize = 1_000;

words!(
    /// Where a message stands.
    MessageState {
        /// To be delivered, now or later.
        Waiting = "waiting",
        /// Delivered.
        Delivered = "delivered",
        /// Given up, until somebody has it tried again.
        Dead = "dead",
    }
);

/// A message to deliver: nobody else is given it until the lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The message.
    pub message: Message,
    /// Which lease of the message this is; what is recorded under an older one is not believed.
    pub lease: u32,
    /// Which attempt this is, counted from 1.
    pub attempts: u32,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It arrived.
    Delivered,
    /// It did not; it is tried again at `at`.
    Later {
        /// When.
        at: Timestamp,
        /// What went wrong.
        problem: String,
    },
    /// It did not, and is not tried again by itself.
    Dead {
        /// What went wrong.
        problem: String,
    },
}

/// A message that was given up, perhaps because this release cannot read it: channel and kind are as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadMessage {
    /// The message.
    pub id: MessageId,
    /// Its way.
    pub channel: String,
    /// What it tells.
    pub kind: String,
    /// When the change happened that it tells of.
    pub created_at: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// What went wrong the last time.
    pub problem: String,
    /// When it was given up.
    pub died_at: Timestamp,
}

/// A channel's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelFigures {
    /// Messages that wait.
    pub waiting: u64,
    /// Since when the oldest of them does.
    pub oldest_at: Option<Timestamp>,
    /// Messages that were given up.
    pub dead: u64,
}

/// Takes messages out.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// Up to `most` (and [`LEASES_MAX`]) messages of `channel` that are due at `now`, theirs until `until`. Of one order
    /// only the first that is neither delivered nor dead. One that this release cannot read is dead from then on.
    ///
    /// # Errors
    /// The store broke; what was leased comes again at `until`.
    async fn lease_messages(
        &self,
        channel: Channel,
        most: usize,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<Leased>, StoreError>;

    /// Writes down what came of an attempt; whether it counted. A failure counts under the newest lease only, a delivery
    /// always.
    ///
    /// # Errors
    /// The store broke; repeating the call is safe.
    async fn record_attempt(
        &self,
        message: MessageId,
        lease: u32,
        attempt: &Attempt,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// The figures of every channel that has messages waiting or dead.
    ///
    /// # Errors
    /// The store broke.
    async fn outbox_figures(&self) -> Result<BTreeMap<Channel, ChannelFigures>, StoreError>;

    /// Up to [`DEAD_MESSAGES_MAX`] dead messages, the longest dead first.
    ///
    /// # Errors
    /// The store broke.
    async fn dead_messages(&self) -> Result<Vec<DeadMessage>, StoreError>;

    /// Has one dead message, or all, tried again from `now` on, with its attempts counted anew; how many there were.
    ///
    /// # Errors
    /// The store broke; repeating the call is safe.
    async fn retry_messages(&self, one: Option<MessageId>, now: Timestamp) -> Result<u64, StoreError>;

    /// Removes up to [`TRIMMED_MAX`] messages that were delivered before `delivered_before` or died before
    /// `dead_before`; how many there were.
    ///
    /// # Errors
    /// The store broke; repeating the call is safe.
    async fn trim_messages(
        &self,
        delivered_before: Timestamp,
        dead_before: Timestamp,
    ) -> Result<u64, StoreError>;
}

#[derive(Clone, Debug)]
struct Entered {
    message: Message,
    state: MessageState,
    due_at: Timestamp,
    lease: u32,
    attempts: u32,
    problem: Option<String>,
    ended_at: Timestamp,
}

/// The reference: messages in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryOutbox {
    messages: BTreeMap<MessageId, Entered>,
    numbers: BTreeMap<ClaimId, u32>,
}

impl MemoryOutbox {
    pub(super) fn write(&mut self, drafts: Vec<(ClaimId, Draft)>, now: Timestamp) {
        for (order, draft) in drafts {
            let number = self.numbers.entry(order).or_default();
            *number += 1;
            let id = MessageId { order, number: *number };
            let Draft { channel, kind, content } = draft;
            let message = Message { id, channel, kind, content, created_at: now };
            let entered = Entered {
                message,
                state: MessageState::Waiting,
                due_at: now,
                lease: 0,
                attempts: 0,
                problem: None,
                ended_at: now,
            };
            self.messages.insert(id, entered);
        }
    }

    pub(super) fn lease(
        &mut self,
        channel: Channel,
        most: usize,
        now: Timestamp,
        until: Timestamp,
    ) -> Vec<Leased> {
        let mut heads: BTreeMap<ClaimId, &Entered> = BTreeMap::new();
        let waits =
            |entry: &&Entered| entry.state == MessageState::Waiting && entry.message.channel == channel;
        for entry in self.messages.values().filter(waits) {
            if let Entry::Vacant(place) = heads.entry(entry.message.id.order) {
                place.insert(entry);
            }
        }
        let mut due: Vec<(Timestamp, MessageId)> = heads
            .values()
            .filter(|entry| entry.due_at <= now)
            .map(|entry| (entry.due_at, entry.message.id))
            .collect();
        due.sort_unstable();
        due.truncate(most.min(LEASES_MAX));
        let mut leased = Vec::new();
        for (_, id) in due {
            let Some(entry) = self.messages.get_mut(&id) else { continue };
            entry.due_at = until;
            entry.lease += 1;
            entry.attempts += 1;
            leased.push(Leased {
                message: entry.message.clone(),
                lease: entry.lease,
                attempts: entry.attempts,
            });
        }
        sort(&mut leased);
        leased
    }

    pub(super) fn record(&mut self, id: MessageId, lease: u32, attempt: &Attempt, now: Timestamp) -> bool {
        let Some(entry) = self.messages.get_mut(&id).filter(|entry| entry.state == MessageState::Waiting)
        else {
            return false;
        };
        match attempt {
            Attempt::Delivered => (entry.state, entry.problem) = (MessageState::Delivered, None),
            _ if entry.lease != lease => return false,
            Attempt::Later { at, problem } => {
                (entry.due_at, entry.problem) = (*at, Some(problem.clone()));
                return true;
            }
            Attempt::Dead { problem } => {
                (entry.state, entry.problem) = (MessageState::Dead, Some(problem.clone()));
            }
        }
        entry.ended_at = now;
        true
    }

    pub(super) fn figures(&self) -> BTreeMap<Channel, ChannelFigures> {
        let mut figures: BTreeMap<Channel, ChannelFigures> = BTreeMap::new();
        for entry in self.messages.values().filter(|entry| entry.state != MessageState::Delivered) {
            let of = figures.entry(entry.message.channel).or_default();
            if entry.state == MessageState::Dead {
                of.dead += 1;
            } else {
                of.waiting += 1;
                let at = entry.message.created_at;
                of.oldest_at = Some(of.oldest_at.map_or(at, |oldest| oldest.min(at)));
            }
        }
        figures
    }

    pub(super) fn dead(&self) -> Vec<DeadMessage> {
        let mut dead: Vec<DeadMessage> = self
            .messages
            .values()
            .filter(|entry| entry.state == MessageState::Dead)
            .map(|entry| DeadMessage {
                id: entry.message.id,
                channel: entry.message.channel.as_str().to_owned(),
                kind: entry.message.kind.as_str().to_owned(),
                created_at: entry.message.created_at,
                attempts: entry.attempts,
                problem: entry.problem.clone().unwrap_or_default(),
                died_at: entry.ended_at,
            })
            .collect();
        dead.sort_by_key(|dead| (dead.died_at, dead.id));
        dead.truncate(DEAD_MESSAGES_MAX);
        dead
    }

    pub(super) fn retry(&mut self, one: Option<MessageId>, now: Timestamp) -> u64 {
        let mut count = 0;
        for entry in self.messages.values_mut().filter(|entry| entry.state == MessageState::Dead) {
            if one.is_none_or(|one| one == entry.message.id) {
                (entry.state, entry.due_at, entry.attempts) = (MessageState::Waiting, now, 0);
                count += 1;
            }
        }
        count
    }

    pub(super) fn trim(&mut self, delivered_before: Timestamp, dead_before: Timestamp) -> u64 {
        let is_over = |entry: &Entered| match entry.state {
            MessageState::Waiting => false,
            MessageState::Delivered => entry.ended_at < delivered_before,
            MessageState::Dead => entry.ended_at < dead_before,
        };
        let over: Vec<MessageId> = self
            .messages
            .iter()
            .filter(|(_, entry)| is_over(entry))
            .map(|(id, _)| *id)
            .take(TRIMMED_MAX)
            .collect();
        over.iter().filter_map(|id| self.messages.remove(id)).count() as u64
    }
}

/// As every store answers leased messages: the oldest first.
pub(super) fn sort(leased: &mut [Leased]) {
    leased.sort_by_key(|leased| (leased.message.created_at, leased.message.id));
}
