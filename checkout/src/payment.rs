//! PURE: one payment attempt. It only moves forward: `open` -> `failed` -> `unpayable` -> `succeeded` ->
//! `refund_due` -> `refunded`, skipping what does not happen.

use std::{fmt, str::FromStr};

use lockgate_shared::{clock::Timestamp, ids::ClaimId, wording::price_text};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::order::{Anomaly, words};

/// A payment attempt's id: ours, and the key by which the gateway is asked again after a lost answer. Random,
/// because it stands in the address of the page to pay on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PaymentId(Uuid);

impl PaymentId {
    /// From random bytes.
    #[must_use]
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(Uuid::new_v8(bytes))
    }

    /// The UUID.
    #[must_use]
    pub fn uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for PaymentId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for PaymentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl FromStr for PaymentId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() != 36 {
            return Err("is not a UUID of 36 characters".to_owned());
        }
        Uuid::try_parse(text).map(Self).map_err(|_| "is not a UUID".to_owned())
    }
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Money {
    /// Minor units (cents).
    pub amount: i64,
    /// ISO 4217 code.
    pub currency: String,
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&price_text(self.amount, &self.currency))
    }
}

words!(
    /// Where an attempt stands. The order of the values is the order in which they may follow one another.
    PaymentState {
        /// May still succeed.
        Open = "open",
        /// The gateway says it failed for good.
        Failed = "failed",
        /// Cancelled before it could succeed.
        Unpayable = "unpayable",
        /// The buyer's money arrived.
        Succeeded = "succeeded",
        /// The money must go back.
        RefundDue = "refund_due",
        /// The money went back.
        Refunded = "refunded",
    }
);

/// What an attempt is opened with, beside what its order says. Written down with the attempt, so that a gateway that
/// is asked again is asked the same, whatever was renamed or configured anew in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// What the buyer reads.
    pub description: String,
    /// Where the buyer returns to.
    pub return_url: String,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentRecord {
    /// Its id.
    pub id: PaymentId,
    /// Where it stands.
    pub state: PaymentState,
    /// Where the buyer pays, once the gateway opened it.
    pub redirect_url: Option<String>,
    /// The gateway's own name for it, once the gateway opened it and if it has one.
    pub reference: Option<String>,
    /// What it is opened with; absent when its row was lost or is older than this column.
    pub terms: Option<Terms>,
    /// What arrived, once something did.
    pub paid: Option<Money>,
    /// When it was made.
    pub created_at: Timestamp,
}

impl PaymentRecord {
    /// A new attempt.
    #[must_use]
    pub fn open(id: PaymentId, now: Timestamp) -> Self {
        Self {
            id,
            state: PaymentState::Open,
            redirect_url: None,
            reference: None,
            terms: None,
            paid: None,
            created_at: now,
        }
    }
}

/// The kind of anomaly that says that a refund failed later.
pub const REFUND_FAILED: &str = "refund_failed";

/// What the gateway says became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was paid.
    Paid(Money),
    /// It failed for good.
    Failed,
    /// It can never be paid any more.
    Unpayable,
    /// A refund of it that had been taken on did not go through: the gateway has that money again.
    RefundFailed,
}

impl Outcome {
    /// Whether money is there that belongs to somebody else while no order knows of it.
    #[must_use]
    pub fn is_money(&self) -> bool {
        matches!(self, Self::Paid(_) | Self::RefundFailed)
    }
}

/// The gateway's word on an attempt, proven to be the gateway's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The attempt.
    pub payment: PaymentId,
    /// The order the gateway names, where it names one.
    pub order: Option<ClaimId>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What an attempt's news means for its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    Pays,
    OwesRefund,
    PaysLate,
}

/// What an order does with money that arrives for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// It is paid by it.
    Payment,
    /// It expired: the money is kept while units are reclaimed for it.
    LatePayment,
    /// It was paid already.
    NoMore,
    /// It ended, and takes none.
    Nothing,
}

pub(crate) struct Applied {
    pub(crate) effect: Effect,
    pub(crate) anomaly: Option<Anomaly>,
}

/// Applies `notice` to the attempt it is about. `order` and `price` are the order's own, `takes` what
/// it does with money.
pub(crate) fn apply(
    attempt: &mut PaymentRecord,
    notice: &Notice,
    order: ClaimId,
    price: &Money,
    takes: Takes,
) -> Applied {
    let money = match &notice.outcome {
        Outcome::Failed => return fall(attempt, PaymentState::Failed),
        Outcome::Unpayable => return fall(attempt, PaymentState::Unpayable),
        Outcome::RefundFailed => return refund_failed(attempt),
        Outcome::Paid(money) => money,
    };
    if attempt.state >= PaymentState::Succeeded {
        return Applied { effect: Effect::Nothing, anomaly: None };
    }
    attempt.paid = Some(money.clone());
    let problem = if notice.order.is_some_and(|named| named != order) {
        Some(("wrong_order", "the payment names another order".to_owned()))
    } else if money != price {
        Some(("wrong_amount", format!("{money} arrived, {price} was asked for")))
    } else {
        match takes {
            Takes::Payment | Takes::LatePayment => None,
            Takes::NoMore => Some(("paid_twice", "the order was paid already".to_owned())),
            Takes::Nothing => Some(("paid_late", "the order had ended".to_owned())),
        }
    };
    match problem {
        None if takes == Takes::LatePayment => {
            attempt.state = PaymentState::Succeeded;
            let detail = "the order had expired; units are reclaimed for it, or the money goes back".into();
            let anomaly = Anomaly { payment: Some(attempt.id), kind: "paid_late", detail };
            Applied { effect: Effect::PaysLate, anomaly: Some(anomaly) }
        }
        None => {
            attempt.state = PaymentState::Succeeded;
            Applied { effect: Effect::Pays, anomaly: None }
        }
        Some((kind, found)) => {
            attempt.state = PaymentState::RefundDue;
            Applied {
                effect: Effect::OwesRefund,
                anomaly: Some(Anomaly {
                    payment: Some(attempt.id),
                    kind,
                    detail: format!("{found}; the money goes back"),
                }),
            }
        }
    }
}

fn fall(attempt: &mut PaymentRecord, to: PaymentState) -> Applied {
    attempt.state = attempt.state.max(to);
    Applied { effect: Effect::Nothing, anomaly: None }
}

/// The attempt stays where it is: asking again by itself would fail again, because the buyer's card or account is gone.
fn refund_failed(attempt: &PaymentRecord) -> Applied {
    let detail = "a refund of this payment failed later at the gateway; look there whether the money went back, and if it \
                  did not, give it back another way";
    let anomaly = (attempt.state >= PaymentState::RefundDue).then(|| Anomaly {
        payment: Some(attempt.id),
        kind: REFUND_FAILED,
        detail: detail.into(),
    });
    Applied { effect: Effect::Nothing, anomaly }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_written_in_the_currency_s_own_digits() {
        let show = |amount, currency: &str| Money { amount, currency: currency.into() }.to_string();
        assert_eq!(show(49_900, "EUR"), "499.00 EUR");
        assert_eq!(show(5, "EUR"), "0.05 EUR");
        assert_eq!(show(49_900, "JPY"), "49900 JPY");
        assert_eq!(show(1_234, "KWD"), "1.234 KWD");
    }
}
