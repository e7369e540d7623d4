//! Messages as rows: plain texts and numbers, the same in every SQL database.

use lockgate_shared::{clock::Timestamp, ids::ClaimId};
use uuid::Uuid;

use super::{
    outbox::{Attempt, MessageState},
    rows::RowError,
};
use crate::outbox::{Channel, Content, Message, MessageId, MessageKind};

/// A message's row.
pub(super) struct MessageRow {
    pub(super) order: Uuid,
    pub(super) number: i64,
    pub(super) channel: String,
    pub(super) kind: String,
    pub(super) content: String,
    pub(super) created_at: i64,
}

impl MessageRow {
    pub(super) fn id(&self) -> Result<MessageId, RowError> {
        Ok(MessageId { order: ClaimId::from(self.order), number: u32::try_from(self.number)? })
    }

    pub(super) fn read(self) -> Result<Message, RowError> {
        let word = |text: &str| format!("'{text}' is no word this release knows");
        Ok(Message {
            id: self.id()?,
            channel: Channel::parse(&self.channel).ok_or_else(|| word(&self.channel))?,
            kind: MessageKind::parse(&self.kind).ok_or_else(|| word(&self.kind))?,
            content: Content::parse(&self.content)?,
            created_at: Timestamp::from_micros(self.created_at),
        })
    }
}

/// What becomes of a message that this release cannot read, such as one of a kind that a later one wrote: it is put
/// aside, for whoever can read it, and the rest of its channel goes on.
pub(super) fn put_aside(id: MessageId, error: &RowError) -> Attempt {
    tracing::warn!(message = %id, %error, "a message cannot be read by this release; it is put aside");
    Attempt::Dead { problem: format!("this release cannot read the message: {error}") }
}

/// What an attempt writes into its message's row.
pub(super) struct AttemptRow<'a> {
    pub(super) state: &'static str,
    /// When it is due again.
    pub(super) due_at: Option<i64>,
    pub(super) problem: Option<&'a str>,
    pub(super) ended_at: Option<i64>,
    /// Whether it counts under any lease.
    pub(super) is_fact: bool,
}

impl<'a> AttemptRow<'a> {
    pub(super) fn of(attempt: &'a Attempt, now: Timestamp) -> Self {
        let (state, due_at, problem) = match attempt {
            Attempt::Delivered => (MessageState::Delivered, None, None),
            Attempt::Later { at, problem } => (MessageState::Waiting, Some(at.micros()), Some(&**problem)),
            Attempt::Dead { problem } => (MessageState::Dead, None, Some(&**problem)),
        };
        Self {
            state: state.as_str(),
            due_at,
            problem,
            ended_at: (state != MessageState::Waiting).then(|| now.micros()),
            is_fact: state == MessageState::Delivered,
        }
    }
}
