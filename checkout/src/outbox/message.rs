//! PURE: what a message is.

use std::{fmt, str::FromStr};

use lockgate_shared::{
    clock::Timestamp,
    ids::{ClaimId, ItemId, SaleId},
    language::Language,
};
use serde::{Deserialize, Serialize};

use crate::{
    order::{OrderRecord, words},
    payment::Money,
};

words!(
    /// The way a message takes. Each goes on by itself: trouble with one never delays the other.
    Channel {
        /// To the buyer.
        Mail = "mail",
        /// To the shop.
        Webhook = "webhook",
    }
);

words!(
    /// What a message tells.
    MessageKind {
        /// The order is paid.
        Paid = "order.paid",
        /// A paid order has other units than before.
        UnitsChanged = "order.units_changed",
        /// The time to pay ran out.
        Expired = "order.expired",
        /// The order was given up, or could not be kept.
        Cancelled = "order.cancelled",
        /// Money is to go back.
        RefundDue = "order.refund_due",
        /// All money of the order went back.
        Refunded = "order.refunded",
        /// Money went back, and the order stands as before.
        PaymentRefunded = "payment.refunded",
    }
);

/// A message's id: the same however often it is sent, so that its receiver recognises a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// The order it is about.
    pub order: ClaimId,
    /// Which of the order's messages it is, counted from 1.
    pub number: u32,
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "msg_{}_{}", self.order.uuid().as_simple(), self.number)
    }
}

impl FromStr for MessageId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "is no message id such as msg_<32 hexadecimal digits>_1".to_owned();
        let (order, number) =
            text.strip_prefix("msg_").and_then(|rest| rest.split_once('_')).ok_or_else(wrong)?;
        let order = uuid::Uuid::try_parse(order).map_err(|_| wrong())?;
        let id = Self { order: order.into(), number: number.parse().map_err(|_| wrong())? };
        // One id, one spelling.
        if id.to_string() == text { Ok(id) } else { Err(wrong()) }
    }
}

/// The order as it was when the message was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The sale.
    pub sale: SaleId,
    /// What is bought.
    pub item: ItemId,
    /// The order's units.
    pub units: Vec<u32>,
    /// The units it had before, where they are others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units_before: Option<Vec<u32>>,
    /// The price of all units.
    pub price: Money,
    /// The order's state, as it is stored.
    pub state: String,
    /// The money that the message is about, where it is about some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// The order's state before, where it was there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_before: Option<String>,
    /// When the units were claimed.
    pub claimed_at: Timestamp,
    /// Until when they were held.
    pub hold_expires_at: Timestamp,
    /// The buyer's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The buyer's language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
}

impl Content {
    /// What a message says of a change.
    #[must_use]
    pub fn of(before: Option<&OrderRecord>, after: &OrderRecord, money: Option<Money>) -> Self {
        let others = before.filter(|before| before.units != after.units);
        Self {
            sale: after.sale.clone(),
            item: after.item.clone(),
            units: after.units.clone(),
            units_before: others.map(|before| before.units.clone()),
            price: after.price.clone(),
            state: after.state.as_str().to_owned(),
            money,
            state_before: before.map(|before| before.state.as_str().to_owned()),
            claimed_at: after.claimed_at,
            hold_expires_at: after.hold_expires_at,
            email: after.email.clone(),
            language: after.language,
        }
    }

    /// As it is stored.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Texts and numbers always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what was stored.
    ///
    /// # Errors
    /// It was not written by a release that this one understands.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            // Without the parser's words: they repeat what stands there, and an address may.
            format!("its content cannot be read from column {} on", error.column())
        })
    }
}

/// A message that a change brought, before it has its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Its way.
    pub channel: Channel,
    /// What it tells.
    pub kind: MessageKind,
    /// What it says.
    pub content: Content,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// Its way.
    pub channel: Channel,
    /// What it tells.
    pub kind: MessageKind,
    /// What it says.
    pub content: Content,
    /// When the change happened.
    pub created_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_has_one_spelling() {
        let order = ClaimId::from(uuid::Uuid::from_bytes([0xab; 16]));
        let id = MessageId { order, number: 12 };
        let text = id.to_string();
        assert_eq!(text, format!("msg_{}_12", "ab".repeat(16)));
        assert_eq!(text.parse(), Ok(id));
        for bad in ["", "msg_", "msg_ab_1", &text.replace("12", "012"), &text.replace("ab", "AB"), &text[4..]]
        {
            assert!(bad.parse::<MessageId>().is_err(), "{bad}");
        }
    }
}
