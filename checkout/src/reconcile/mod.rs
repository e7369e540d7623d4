//! PURE: gate against orders against payments, claim by claim, and which repair is safe.
//!
//! - here: the kinds of differences, and what one claim shows;
//! - `watch`: which differences stay, and which were only under way; `report`: what is told.
//!
//! **Safe** means: a repair never frees a unit that somebody may still pay or has paid for, and never moves money. It tells
//! the gate again what an order decided, has an order follow what the gate did, or has a stock rebuilt that lost
//! something. Whatever else is found is reported and left alone.

mod report;
mod watch;

#[cfg(test)]
mod tests;

pub use self::{
    report::{ItemDifference, Listed, Reconciled},
    watch::{ROUNDS_MIN, Standing, Watch},
};

use lockgate_shared::{
    clock::Timestamp,
    gate::{Hold, HoldState},
    ids::{AccountHash, ClaimId, ItemId},
};

use crate::{
    order::{GateSide, OrderRecord, OrderState, words},
    payment::{PaymentId, PaymentState},
};

/// An attempt whose buyer may have paid although nobody said so, if it is open for this long.
pub const UNHEARD_SECONDS: u64 = 60;
/// What is late is a difference only after this long.
pub const LATE_SECONDS: u64 = 300;

words!(
    /// What does not agree.
    Kind {
        /// The gate holds units of a claim that is no order.
        HoldWithoutOrder = "hold_without_order",
        /// The gate sold units of a claim that is no order.
        SoldWithoutOrder = "sold_without_order",
        /// An order owns units, and the gate knows nothing of its claim.
        HoldLost = "hold_lost",
        /// An order waits for its payment, and the gate has given its units back.
        HoldGone = "hold_gone",
        /// An order is sold, and the gate still holds its units.
        CommitLost = "commit_lost",
        /// An order has ended, and the gate still holds its units.
        ReleaseLost = "release_lost",
        /// A paid order's units are not sold at the gate for long.
        CommitLate = "commit_late",
        /// An ended order's units are not given back for long.
        ReleaseLate = "release_late",
        /// An order is paid, and the gate has given its units back.
        BuyerWithoutUnits = "buyer_without_units",
        /// The gate sold units, and their order is not paid.
        SoldUnpaid = "sold_unpaid",
        /// The gate holds units for an order that gave way to another one, which has them.
        DisputedHold = "disputed_hold",
        /// Gate and order name other units, another item or another account.
        OtherUnits = "other_units",
        /// Two live holds of the gate have one unit.
        UnitHeldTwice = "unit_held_twice",
        /// The gate's counts of an item are not what its holds come to.
        CountsDiffer = "counts_differ",
        /// An order is paid, and no money of its price stands behind it.
        PaidWithoutMoney = "paid_without_money",
        /// Money stands behind an order that is not paid.
        MoneyWithoutSale = "money_without_sale",
        /// Money that must go back has not gone back for long.
        RefundLate = "refund_late",
        /// An attempt can still be paid although its order has ended.
        AttemptOpen = "attempt_open",
        /// An attempt is open for long, and nobody said what became of it.
        AttemptUnheard = "attempt_unheard",
    }
);

impl Kind {
    /// Seconds it must stand before it counts.
    #[must_use]
    pub fn patience_seconds(self) -> u64 {
        match self {
            Self::CommitLate | Self::ReleaseLate | Self::RefundLate => LATE_SECONDS,
            Self::AttemptOpen | Self::MoneyWithoutSale => UNHEARD_SECONDS,
            _ => 0,
        }
    }

    /// Whether it is a difference; otherwise it is only a reason to ask the gateway.
    #[must_use]
    pub fn is_difference(self) -> bool {
        self != Self::AttemptUnheard
    }

    /// Whether the gateway is asked about it.
    #[must_use]
    pub fn asks_gateway(self) -> bool {
        matches!(self, Self::AttemptOpen | Self::AttemptUnheard | Self::MoneyWithoutSale | Self::RefundLate)
    }

    /// What may be done about it without risk to anybody's unit or money.
    #[must_use]
    pub fn repair(self) -> Option<Repair> {
        match self {
            Self::HoldWithoutOrder => Some(Repair::PlaceOrder),
            // Nobody but a rebuild may take a hold away whose units are another order's.
            Self::HoldLost | Self::DisputedHold => Some(Repair::RebuildStock),
            Self::HoldGone => Some(Repair::EndOrder),
            Self::CommitLost => Some(Repair::CommitAgain),
            Self::ReleaseLost => Some(Repair::ReleaseAgain),
            Self::AttemptOpen | Self::AttemptUnheard => Some(Repair::ApplyNotice),
            _ => None,
        }
    }
}

/// A repair that is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Make the order of a hold, as its lost record would have.
    PlaceOrder,
    /// Have the stock put together again from holds and orders.
    RebuildStock,
    /// End an order whose units are gone: nobody can pay for it any more.
    EndOrder,
    /// Commit a paid order's units once more.
    CommitAgain,
    /// Release an ended order's units once more.
    ReleaseAgain,
    /// Apply what the gateway says of an attempt.
    ApplyNotice,
}

impl Repair {
    /// The kind of anomaly under which it is written down.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PlaceOrder => "repaired_order_missing",
            Self::RebuildStock => "repaired_hold_lost",
            Self::EndOrder => "repaired_hold_gone",
            Self::CommitAgain => "repaired_commit_lost",
            Self::ReleaseAgain => "repaired_release_lost",
            Self::ApplyNotice => "repaired_notice_lost",
        }
    }
}

/// Something that does not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind.
    pub kind: Kind,
    /// The claim; `None` where it is about an item as a whole.
    pub order: Option<ClaimId>,
    /// The attempt, if it is about one.
    pub payment: Option<PaymentId>,
    /// The item.
    pub item: ItemId,
    /// Units the gate counts as held or sold, less those the orders count.
    pub units: i64,
    /// Money that payments keep, less the price of what is sold, in minor units.
    pub money: i64,
    /// What gate and order said; a finding that says something else is another one.
    pub seen: String,
}

/// What a comparison needs of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldView {
    /// Whose it is.
    pub account: AccountHash,
    /// The item.
    pub item: ItemId,
    /// The units.
    pub units: Vec<u32>,
    /// Where it stands.
    pub state: HoldState,
}

impl From<&Hold> for HoldView {
    fn from(hold: &Hold) -> Self {
        let (account, state) = (hold.account, hold.state);
        Self { account, item: hold.item.clone(), units: hold.units.clone(), state }
    }
}

impl HoldView {
    /// Whether its units count as held or sold.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.state != HoldState::Released
    }
}

fn count(units: &[u32]) -> i64 {
    i64::try_from(units.len()).unwrap_or(i64::MAX)
}

/// Units the books count for an order: of live ones, and of ended ones the gate was not told about.
fn counted(order: &OrderRecord) -> i64 {
    match order.gate {
        GateSide::Held | GateSide::CommitDue | GateSide::Committed | GateSide::ReleaseDue => {
            count(&order.units)
        }
        GateSide::Released | GateSide::ReclaimDue | GateSide::Disputed => 0,
    }
}

/// What the gate's hold and the order of one claim show. Never more than one finding about units.
#[must_use]
pub fn of_units(claim: ClaimId, hold: Option<&HoldView>, order: Option<&OrderRecord>) -> Option<Finding> {
    let kind = match (order, hold) {
        (None, None) => return None,
        (None, Some(hold)) => match hold.state {
            HoldState::Held | HoldState::Expiring => Kind::HoldWithoutOrder,
            HoldState::Committed => Kind::SoldWithoutOrder,
            HoldState::Released => return None,
        },
        (Some(order), hold) => kind_of(order, hold)?,
    };
    let item = order.map(|order| &order.item).or_else(|| hold.map(|hold| &hold.item))?.clone();
    let at_gate = hold.filter(|hold| hold.is_live()).map_or(0, |hold| count(&hold.units));
    let seen = format!(
        "gate: {}, order: {}",
        hold.map_or_else(|| "nothing".to_owned(), |hold| format!("{:?} {:?}", hold.state, hold.units)),
        order.map_or_else(
            || "none".to_owned(),
            |order| format!("{}/{} {:?}", order.state.as_str(), order.gate.as_str(), order.units)
        )
    );
    let units = at_gate.saturating_sub(order.map_or(0, counted));
    Some(Finding { kind, order: Some(claim), payment: None, item, units, money: 0, seen })
}

fn kind_of(order: &OrderRecord, hold: Option<&HoldView>) -> Option<Kind> {
    use HoldState::{Committed, Expiring, Held, Released};
    let state = hold.map(|hold| hold.state);
    let kind = match (order.gate, state) {
        (GateSide::Held | GateSide::CommitDue | GateSide::Committed, None) => Some(Kind::HoldLost),
        (GateSide::Held, Some(Released)) => Some(Kind::HoldGone),
        (GateSide::Held, Some(Committed)) => Some(Kind::SoldUnpaid),
        (GateSide::CommitDue | GateSide::Committed, Some(Released)) => Some(Kind::BuyerWithoutUnits),
        (GateSide::CommitDue, Some(_)) | (GateSide::ReclaimDue, Some(Held | Expiring | Committed)) => {
            Some(Kind::CommitLate)
        }
        (GateSide::Committed, Some(Held | Expiring)) => Some(Kind::CommitLost),
        (GateSide::ReleaseDue, Some(Held | Expiring | Released) | None) => Some(Kind::ReleaseLate),
        (GateSide::Released, Some(Held | Expiring)) => Some(Kind::ReleaseLost),
        (GateSide::ReleaseDue | GateSide::Released | GateSide::Disputed, Some(Committed)) => {
            Some(Kind::SoldUnpaid)
        }
        (GateSide::Disputed, Some(Held | Expiring)) => Some(Kind::DisputedHold),
        (GateSide::Held, Some(Held | Expiring))
        | (GateSide::Committed, Some(Committed))
        | (GateSide::Released | GateSide::ReclaimDue | GateSide::Disputed, Some(Released) | None) => None,
    };
    let is_other = |hold: &HoldView| {
        hold.units != order.units || hold.item != order.item || hold.account != order.account
    };
    let owns = matches!(order.gate, GateSide::Held | GateSide::CommitDue | GateSide::Committed);
    kind.or_else(|| hold.filter(|hold| owns && hold.is_live() && is_other(hold)).map(|_| Kind::OtherUnits))
}

/// What the order and its payments show.
#[must_use]
pub fn of_money(order: &OrderRecord, now: Timestamp) -> Vec<Finding> {
    let finding = |kind, payment, money, seen| Finding {
        kind,
        order: Some(order.id),
        payment,
        item: order.item.clone(),
        units: 0,
        money,
        seen,
    };
    let mut found = Vec::new();
    let kept = order.payments.iter().filter(|attempt| attempt.state == PaymentState::Succeeded);
    let kept: Vec<_> = kept.filter_map(|attempt| attempt.paid.as_ref()).collect();
    let sum = kept.iter().fold(0_i64, |sum, money| sum.saturating_add(money.amount));
    let is_paid = order.state == OrderState::Paid;
    if is_paid && kept != [&order.price] {
        let seen = format!("{} asked for, {} payments kept, {sum} together", order.price, kept.len());
        found.push(finding(Kind::PaidWithoutMoney, None, sum.saturating_sub(order.price.amount), seen));
    } else if !is_paid && !kept.is_empty() {
        let seen = format!("the order is {}, {} payments kept", order.state.as_str(), kept.len());
        found.push(finding(Kind::MoneyWithoutSale, None, sum, seen));
    }
    let has_ended = order.state != OrderState::AwaitingPayment;
    for attempt in &order.payments {
        let kind = match attempt.state {
            PaymentState::Open if has_ended => Kind::AttemptOpen,
            PaymentState::Open if attempt.created_at.plus_seconds(UNHEARD_SECONDS) < now => {
                Kind::AttemptUnheard
            }
            PaymentState::RefundDue => Kind::RefundLate,
            _ => continue,
        };
        let money = match (&attempt.paid, kind) {
            (Some(paid), Kind::RefundLate) => paid.amount,
            _ => 0,
        };
        let seen = format!("the order is {}, the attempt {}", order.state.as_str(), attempt.state.as_str());
        found.push(finding(kind, Some(attempt.id), money, seen));
    }
    found
}
