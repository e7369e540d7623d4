//! The reference's outbox.

use std::collections::BTreeMap;

use async_trait::async_trait;
use lockgate_shared::{clock::Timestamp, store::StoreError};

use super::{
    model::ModelStore,
    outbox::{Attempt, ChannelFigures, DeadMessage, Leased, OutboxStore},
};
use crate::outbox::{Channel, MessageId};

#[async_trait]
impl OutboxStore for ModelStore {
    async fn lease_messages(
        &self,
        channel: Channel,
        most: usize,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<Leased>, StoreError> {
        Ok(self.with(|state| state.outbox.lease(channel, most, now, until)))
    }

    async fn record_attempt(
        &self,
        message: MessageId,
        lease: u32,
        attempt: &Attempt,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        Ok(self.with(|state| state.outbox.record(message, lease, attempt, now)))
    }

    async fn outbox_figures(&self) -> Result<BTreeMap<Channel, ChannelFigures>, StoreError> {
        Ok(self.with(|state| state.outbox.figures()))
    }

    async fn dead_messages(&self) -> Result<Vec<DeadMessage>, StoreError> {
        Ok(self.with(|state| state.outbox.dead()))
    }

    async fn retry_messages(&self, one: Option<MessageId>, now: Timestamp) -> Result<u64, StoreError> {
        Ok(self.with(|state| state.outbox.retry(one, now)))
    }

    async fn trim_messages(
        &self,
        delivered_before: Timestamp,
        dead_before: Timestamp,
    ) -> Result<u64, StoreError> {
        Ok(self.with(|state| state.outbox.trim(delivered_before, dead_before)))
    }
}
