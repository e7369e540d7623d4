//! PURE: which messages a change of an order brings.
//!
//! The rule sees the order before and after, and nothing else: what changes nothing brings nothing, however often it is
//! repeated. A store writes what it answers in the same transaction as the change.
//!
//! - Buyers are written to where they left an address: paid (also late, also with other units), not paid in time, given
//!   up by us, and money that goes back. One mail tells of money that goes back, when it is sure to; a second one a moment
//!   later would tell nothing new. Who gives an order up by hand is told on the page.
//! - The shop hears of every end, except of a claim that nobody began to pay for and nobody can be written to about: it
//!   never was anybody's order.

use super::message::{Channel, Content, Draft, MessageKind};
use crate::{
    order::{GateSide, OrderRecord, OrderState},
    payment::{Money, PaymentRecord, PaymentState},
};

/// Which channels are set up. What is not costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Mails to buyers.
    pub mail: bool,
    /// Webhooks to the shop.
    pub webhook: bool,
}

impl Wants {
    /// Both.
    pub const ALL: Self = Self { mail: true, webhook: true };

    /// Whether anything is set up.
    #[must_use]
    pub fn any(self) -> bool {
        self.mail || self.webhook
    }
}

/// The messages that the change from `before` (`None`: it was not there) to `after` brings, in their order.
#[must_use]
pub fn messages(before: Option<&OrderRecord>, after: &OrderRecord, wants: Wants) -> Vec<Draft> {
    if !wants.any() || before == Some(after) {
        return Vec::new();
    }
    let mut drafts = Vec::new();
    let mut add = |channel, kind, money| {
        drafts.push(Draft { channel, kind, content: Content::of(before, after, money) });
    };
    if wants.mail && after.email.is_some() {
        for (kind, money) in mails(before, after) {
            add(Channel::Mail, kind, money);
        }
    }
    if wants.webhook {
        for (kind, money) in webhooks(before, after) {
            add(Channel::Webhook, kind, money);
        }
    }
    drafts
}

type Told = (MessageKind, Option<Money>);

fn mails(before: Option<&OrderRecord>, after: &OrderRecord) -> Vec<Told> {
    let mut told = Vec::new();
    match change(before, after) {
        Some(kind @ (MessageKind::Paid | MessageKind::UnitsChanged)) => told.push((kind, None)),
        Some(MessageKind::Expired) => told.push((MessageKind::Expired, returned(after))),
        // The buyer did not do it, and may still believe in what was held.
        Some(MessageKind::Cancelled) if after.gate == GateSide::Disputed => {
            told.push((MessageKind::Cancelled, returned(after)));
        }
        _ => {}
    }
    let owed = entered(before, after, |attempt| attempt.state >= PaymentState::RefundDue);
    if !owed.is_empty() {
        told.push((MessageKind::RefundDue, sum(&owed)));
    }
    told
}

fn webhooks(before: Option<&OrderRecord>, after: &OrderRecord) -> Vec<Told> {
    let mut told = Vec::new();
    let back = sum(&entered(before, after, |attempt| attempt.state == PaymentState::Refunded));
    let owed = sum(&entered(before, after, |attempt| attempt.state >= PaymentState::RefundDue));
    match change(before, after) {
        Some(MessageKind::Expired) if after.email.is_none() && after.payments.is_empty() => {}
        Some(MessageKind::Refunded) => return vec![(MessageKind::Refunded, back)],
        Some(MessageKind::RefundDue) => told.push((MessageKind::RefundDue, owed)),
        Some(kind) => told.push((kind, None)),
        None => {}
    }
    if back.is_some() {
        told.push((MessageKind::PaymentRefunded, back));
    }
    told
}

/// What the change of the order itself is called, if it is one that is told.
fn change(before: Option<&OrderRecord>, after: &OrderRecord) -> Option<MessageKind> {
    if before.map(|before| before.state) == Some(after.state) {
        let has_others = before.is_some_and(|before| before.units != after.units);
        return (has_others && after.state == OrderState::Paid).then_some(MessageKind::UnitsChanged);
    }
    match after.state {
        OrderState::AwaitingPayment => None,
        OrderState::Paid => Some(MessageKind::Paid),
        OrderState::Expired => Some(MessageKind::Expired),
        OrderState::Cancelled => Some(MessageKind::Cancelled),
        OrderState::RefundDue => Some(MessageKind::RefundDue),
        OrderState::Refunded => Some(MessageKind::Refunded),
    }
}

/// The attempts of `after` that `is_in`, and of which it was not true before.
fn entered<'a>(
    before: Option<&OrderRecord>,
    after: &'a OrderRecord,
    is_in: impl Fn(&PaymentRecord) -> bool,
) -> Vec<&'a PaymentRecord> {
    let old = before.map_or(&[][..], |before| &before.payments);
    let was_in = |attempt: &PaymentRecord| old.iter().any(|old| old.id == attempt.id && is_in(old));
    after.payments.iter().filter(|attempt| is_in(attempt) && !was_in(attempt)).collect()
}

/// What had been paid and goes back, such as a wrong amount: "nothing was charged" would not be true then.
fn returned(order: &OrderRecord) -> Option<Money> {
    sum(&entered(None, order, |attempt| attempt.state >= PaymentState::RefundDue))
}

/// What arrived with these attempts. Money of several currencies is not added up: each comes by itself in practice,
/// and the first then stands for the notice.
fn sum(attempts: &[&PaymentRecord]) -> Option<Money> {
    let mut paid = attempts.iter().filter_map(|attempt| attempt.paid.clone());
    let first = paid.next()?;
    Some(paid.fold(first, |sum, money| {
        if money.currency == sum.currency {
            Money { amount: sum.amount.saturating_add(money.amount), ..sum }
        } else {
            sum
        }
    }))
}

#[cfg(test)]
#[path = "rule_tests.rs"]
mod tests;
