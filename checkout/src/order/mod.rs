//! PURE: what becomes of an order. One event in, the order afterwards and a verdict out.
//!
//! The order decides and the gate follows: units are given back only once no payment can succeed any more, and a
//! payment that proves paid is committed instead. States only move forward:
//! `awaiting_payment` -> `paid` | `expired` | `cancelled`, and from each of these, where money must go back,
//! `refund_due` -> `refunded`. One way leads from an end to `paid`: an expired order whose payment succeeds late keeps
//! the money and has the gate *reclaim* units for it; if it gets none, the money goes back.
//!
//! - here: what an order is, and what work it has left;
//! - `decide`: the rules.

mod decide;
#[cfg(test)]
pub(crate) mod tests;

pub use self::decide::{decide, dispute, dispute_found, place};

use lockgate_shared::{
    clock::Timestamp,
    gate::{CommitAnswer, ReclaimAnswer, ReleaseAnswer},
    ids::{AccountHash, ClaimId, ItemId, SaleId},
    language::Language,
};

use crate::{
    payment::{Money, Notice, PaymentId, PaymentRecord, PaymentState, Takes, Terms},
    refund,
};

/// The kind of anomaly by which a unit turns out to have been given to two claims.
pub const UNIT_TAKEN: &str = "unit_taken";

/// The kind of anomaly by which a late payment turns out to have got units.
const RECLAIMED: &str = "reclaimed";

/// Most payment attempts one order may make.
pub const ATTEMPTS_MAX: usize = 20;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word stored and shown.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// Reads the stored word.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }
    };
}
pub(crate) use words;

words!(
    /// Where an order stands.
    OrderState {
        /// Its units are held for the buyer.
        AwaitingPayment = "awaiting_payment",
        /// Paid; its units are the buyer's.
        Paid = "paid",
        /// Not paid in time.
        Expired = "expired",
        /// Given up by the buyer.
        Cancelled = "cancelled",
        /// Paid, but its units could not be kept: the money must go back.
        RefundDue = "refund_due",
        /// The money went back.
        Refunded = "refunded",
    }
);

words!(
    /// Why an order ends without being paid.
    EndReason {
        /// Its hold fell due.
        Expire = "expire",
        /// The buyer gave it up.
        Cancel = "cancel",
    }
);

words!(
    /// What the gate knows of the order's units, and what it must still be told.
    GateSide {
        /// Held at the gate.
        Held = "held",
        /// To be committed.
        CommitDue = "commit_due",
        /// Sold at the gate.
        Committed = "committed",
        /// To be released.
        ReleaseDue = "release_due",
        /// Free at the gate.
        Released = "released",
        /// It was paid after it had expired: to be reclaimed, and free at the gate for all that is known.
        ReclaimDue = "reclaim_due",
        /// Another live order owns a unit of this claim. The gate is told nothing: releasing would free a unit that
        /// somebody else has.
        Disputed = "disputed",
    }
);

/// One order with its payments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderRecord {
    /// Claim id, hold id and order id in one.
    pub id: ClaimId,
    /// The sale.
    pub sale: SaleId,
    /// Whose order.
    pub account: AccountHash,
    /// What is bought.
    pub item: ItemId,
    /// The unit numbers, ascending.
    pub units: Vec<u32>,
    /// The price of all units.
    pub price: Money,
    /// Where to write to, if the buyer said so.
    pub email: Option<String>,
    /// In which language.
    pub language: Option<Language>,
    /// When the units were claimed.
    pub claimed_at: Timestamp,
    /// Until when they are held.
    pub hold_expires_at: Timestamp,
    /// Where the order stands.
    pub state: OrderState,
    /// Set once the order began to end without payment.
    pub ending: Option<EndReason>,
    /// What the gate knows.
    pub gate: GateSide,
    /// Payment attempts, oldest first.
    pub payments: Vec<PaymentRecord>,
}

/// A claim as the gate recorded it, with what the claimant wrote into its memo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The claim.
    pub order: ClaimId,
    /// The sale.
    pub sale: SaleId,
    /// Whose claim.
    pub account: AccountHash,
    /// The item.
    pub item: ItemId,
    /// The unit numbers, ascending.
    pub units: Vec<u32>,
    /// The price of all units.
    pub price: Money,
    /// Where to write to.
    pub email: Option<String>,
    /// In which language.
    pub language: Option<Language>,
    /// When the units were claimed.
    pub claimed_at: Timestamp,
    /// Until when they are held.
    pub hold_expires_at: Timestamp,
}

/// What the gate recorded. Each carries the whole claim, because readers may see them out of order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intake {
    /// Units were taken.
    Claimed(Placement),
    /// The hold fell due.
    Expiring(Placement),
    /// The units are sold.
    Committed(Placement),
    /// The units are free.
    Released(Placement),
}

impl Intake {
    /// The claim it is about.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        match self {
            Self::Claimed(claim) | Self::Expiring(claim) | Self::Committed(claim) | Self::Released(claim) => {
                claim
            }
        }
    }
}

/// What happens to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderEvent {
    /// The buyer wants to pay; `payment` names the attempt if a new one is made.
    Pay {
        /// The id for a new attempt.
        payment: PaymentId,
        /// What a new attempt is opened with.
        terms: Terms,
    },
    /// The gateway opened an attempt.
    Started {
        /// The attempt.
        payment: PaymentId,
        /// Where the buyer pays.
        redirect_url: String,
        /// The gateway's own name for it, if it has one.
        reference: Option<String>,
    },
    /// The gateway can never open this attempt. Counts as long as nobody was shown where to pay it.
    NotStarted {
        /// The attempt.
        payment: PaymentId,
    },
    /// The gateway said what became of an attempt.
    Notified(Notice),
    /// The hold fell due.
    Expire,
    /// The buyer gives up.
    Cancel,
    /// An operator gives it up for the buyer.
    CancelFor {
        /// Who, and why.
        why: String,
    },
    /// The gate answered a commit.
    Commit(CommitAnswer),
    /// The gate answered a release.
    Release(ReleaseAnswer),
    /// The gate answered a reclaim.
    Reclaim(ReclaimAnswer),
    /// A rebuilt stock has given back what the gate had sold to this order, which ended unpaid.
    GivenBack,
    /// An operator has all that was paid given back.
    Refund {
        /// Who, and why.
        why: String,
    },
    /// The gateway gave the money of this attempt back.
    Refunded {
        /// The attempt.
        payment: PaymentId,
    },
}

/// Why an order takes no payment, no cancellation or no refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is paid.
    Paid,
    /// Its hold fell due.
    Expired,
    /// It was given up.
    Cancelled,
    /// It made [`ATTEMPTS_MAX`] attempts.
    TooManyAttempts,
    /// Nothing was paid that could go back.
    NotPaid,
    /// Units are being reclaimed for it; whether it gets any is known in a moment.
    Reclaiming,
}

/// What the event came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Applied, or already so.
    Done,
    /// Ask the gateway to open this attempt.
    Start(PaymentId),
    /// The buyer goes on paying here.
    Resume {
        /// Where the buyer pays.
        redirect_url: String,
    },
    /// The order does not allow it.
    Refused(Refusal),
}

/// Something that should not have happened, and what was done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The attempt it is about, if one.
    pub payment: Option<PaymentId>,
    /// A stable word for it.
    pub kind: &'static str,
    /// What was found and what was done.
    pub detail: String,
}

/// The order after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What the event came to.
    pub verdict: Verdict,
    /// The order afterwards.
    pub after: OrderRecord,
    /// What should not have happened.
    pub anomalies: Vec<Anomaly>,
}

/// Work an order still has outside its own store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make this attempt unpayable at the gateway.
    CancelPayment(PaymentId),
    /// Tell the gate that the units are sold.
    Commit,
    /// Tell the gate that the units are free.
    Release,
    /// Have the gate sell units to it although it expired.
    Reclaim,
    /// Have the gateway give this money back.
    Refund {
        /// The attempt.
        payment: PaymentId,
        /// What was paid.
        money: Money,
    },
}

impl OrderRecord {
    /// The order a claim makes.
    #[must_use]
    pub fn placed(claim: &Placement) -> Self {
        Self {
            id: claim.order,
            sale: claim.sale.clone(),
            account: claim.account,
            item: claim.item.clone(),
            units: claim.units.clone(),
            price: claim.price.clone(),
            email: claim.email.clone(),
            language: claim.language,
            claimed_at: claim.claimed_at,
            hold_expires_at: claim.hold_expires_at,
            state: OrderState::AwaitingPayment,
            ending: None,
            gate: GateSide::Held,
            payments: Vec::new(),
        }
    }

    /// Whether it owns its units: at most one order does so for each unit.
    #[must_use]
    pub fn owns_units(&self) -> bool {
        matches!(self.state, OrderState::AwaitingPayment | OrderState::Paid)
    }

    /// Everything it still has to do elsewhere, most urgent first.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.gate == GateSide::CommitDue {
            steps.push(Step::Commit);
        }
        if self.is_reclaiming() {
            steps.push(Step::Reclaim);
        }
        if self.state != OrderState::AwaitingPayment || self.ending.is_some() {
            steps.extend(self.open_payments().map(|open| Step::CancelPayment(open.id)));
        }
        if self.gate == GateSide::ReleaseDue {
            steps.push(Step::Release);
        }
        steps.extend(refund::due(self).map(|(payment, money)| Step::Refund { payment, money }));
        steps
    }

    /// Whether [`OrderRecord::steps`] holds anything.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        !self.steps().is_empty()
    }

    /// Whether units are being reclaimed for it: it was paid after it had expired, and none are its own yet.
    #[must_use]
    pub fn is_reclaiming(&self) -> bool {
        self.gate == GateSide::ReclaimDue
    }

    /// What it does with money that arrives for it.
    pub(crate) fn takes(&self) -> Takes {
        match (self.state, self.gate) {
            (OrderState::AwaitingPayment, _) => Takes::Payment,
            (OrderState::Paid, _) | (_, GateSide::ReclaimDue) => Takes::NoMore,
            (OrderState::Expired, GateSide::ReleaseDue | GateSide::Released) => Takes::LatePayment,
            _ => Takes::Nothing,
        }
    }

    /// Whether it was given up and its units are back.
    #[must_use]
    pub fn is_cancelled_for_good(&self) -> bool {
        self.state == OrderState::Cancelled && self.gate != GateSide::ReleaseDue
    }

    /// Attempts that may still succeed.
    pub fn open_payments(&self) -> impl Iterator<Item = &PaymentRecord> {
        self.payments.iter().filter(|payment| payment.state == PaymentState::Open)
    }

    /// Why it takes no payment at `now`, if it takes none.
    #[must_use]
    pub fn refuses_payment(&self, now: Timestamp) -> Option<Refusal> {
        let by_reason = match self.ending {
            Some(EndReason::Cancel) => Refusal::Cancelled,
            _ => Refusal::Expired,
        };
        match self.state {
            OrderState::Paid => Some(Refusal::Paid),
            OrderState::AwaitingPayment if self.ending.is_none() && now < self.hold_expires_at => None,
            _ => Some(by_reason),
        }
    }
}
