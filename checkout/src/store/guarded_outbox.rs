//! The outbox past the circuit: its senders are few, they pause by themselves, and they never take every connection.

use std::collections::BTreeMap;

use async_trait::async_trait;
use lockgate_shared::{clock::Timestamp, store::StoreError};

use super::{
    Guarded,
    outbox::{Attempt, ChannelFigures, DeadMessage, Leased, OutboxStore},
};
use crate::outbox::{Channel, MessageId};

/// Calls for the outbox at a time.
pub(super) const OUTBOX_AT_ONCE: usize = 2;

impl Guarded {
    async fn in_turn<T>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let turn = self.outbox.acquire().await;
        let _turn = turn.map_err(|error| StoreError::untouched(verb, error))?;
        call.await
    }
}

#[async_trait]
impl OutboxStore for Guarded {
    async fn lease_messages(
        &self,
        channel: Channel,
        most: usize,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<Leased>, StoreError> {
        self.in_turn("lease messages", self.store.lease_messages(channel, most, now, until)).await
    }

    async fn record_attempt(
        &self,
        message: MessageId,
        lease: u32,
        attempt: &Attempt,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.in_turn("record attempt", self.store.record_attempt(message, lease, attempt, now)).await
    }

    async fn outbox_figures(&self) -> Result<BTreeMap<Channel, ChannelFigures>, StoreError> {
        self.in_turn("outbox figures", self.store.outbox_figures()).await
    }

    async fn dead_messages(&self) -> Result<Vec<DeadMessage>, StoreError> {
        self.in_turn("dead messages", self.store.dead_messages()).await
    }

    async fn retry_messages(&self, one: Option<MessageId>, now: Timestamp) -> Result<u64, StoreError> {
        self.in_turn("retry messages", self.store.retry_messages(one, now)).await
    }

    async fn trim_messages(
        &self,
        delivered_before: Timestamp,
        dead_before: Timestamp,
    ) -> Result<u64, StoreError> {
        self.in_turn("trim messages", self.store.trim_messages(delivered_before, dead_before)).await
    }
}
