//! A message for the tests of mails and webhooks.

use lockgate_shared::clock::Timestamp;
use uuid::Uuid;

use super::{Channel, Content, Message, MessageId, MessageKind};
use crate::payment::Money;

pub(super) fn message(kind: MessageKind, change: impl FnOnce(&mut Content)) -> Message {
    let at = Timestamp::parse("2026-12-01T10:00:00Z").unwrap();
    let mut content = Content {
        sale: "demo".parse().unwrap(),
        item: "phone".parse().unwrap(),
        units: vec![417, 418],
        units_before: None,
        price: Money { amount: 49_900, currency: "EUR".into() },
        state: "paid".into(),
        money: None,
        state_before: Some("awaiting_payment".into()),
        claimed_at: at,
        hold_expires_at: at.plus_seconds(600),
        email: Some("buyer@example.org".into()),
        language: None,
    };
    change(&mut content);
    let order = Uuid::from_bytes([0xab; 16]).into();
    Message { id: MessageId { order, number: 3 }, channel: Channel::Mail, kind, content, created_at: at }
}
