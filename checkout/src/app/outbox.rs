//! The outbox as operators see it, and the way back of what was given up.

use std::collections::BTreeMap;

use lockgate_shared::problem::Problem;
use serde::Serialize;

use super::App;
use crate::{
    outbox::{Channel, MessageId},
    store::{ChannelFigures, DeadMessage},
};

/// The outbox.
#[derive(Clone, Debug)]
pub struct OutboxView {
    /// The figures of every channel.
    pub channels: BTreeMap<Channel, ChannelFigures>,
    /// The first dead messages, the longest dead first.
    pub dead: Vec<DeadMessage>,
}

/// How a retry of dead messages ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Requeued {
    /// Messages that are tried again.
    pub retried: u64,
    /// Messages that are still dead.
    pub left: u64,
}

impl App {
    /// The outbox's figures and its dead messages.
    ///
    /// # Errors
    /// 503.
    pub async fn outbox(&self) -> Result<OutboxView, Problem> {
        let found = self.store.outbox_figures().await?;
        let of = |channel: &Channel| (*channel, found.get(channel).copied().unwrap_or_default());
        Ok(OutboxView {
            channels: Channel::ALL.iter().map(of).collect(),
            dead: self.store.dead_messages().await?,
        })
    }

    /// Has one dead message, or all, tried again.
    ///
    /// # Errors
    /// 404 `no_such_message`: the one that is named is not dead. 503.
    pub async fn retry_outbox(&self, one: Option<MessageId>) -> Result<Requeued, Problem> {
        let retried = self.store.retry_messages(one, self.clock.now()).await?;
        if let Some(one) = one
            && retried == 0
        {
            return Err(crate::refusals::no_such_message(one));
        }
        self.outbox.wake();
        let figures = self.store.outbox_figures().await?;
        Ok(Requeued { retried, left: figures.values().map(|of| of.dead).sum() })
    }
}
