//! PURE: what holds a sale has, by what is left of them and by its orders.
//!
//! For each claim the order decides: an order that owns its units has a hold, one that ended has none that lives, also
//! where the gate is still to be told so. A hold without an order stays. Where two claims have a unit in common, the paid
//! one keeps it, then the order that claimed earlier, then the hold without an order, then what is to be given back;
//! the other is released.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_shared::{
    gate::{Hold, HoldState},
    ids::{ClaimId, ItemId},
};

use crate::{
    claim::{Memo, Wish},
    order::{GateSide, OrderRecord, OrderState},
    payment::PaymentState,
};

/// A sale's holds, put together again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Every hold, by claim.
    pub holds: Vec<Hold>,
    /// Unpaid orders whose units somebody else has: they must end before anybody pays for them.
    pub displaced: Vec<ClaimId>,
    /// Paid orders whose units somebody else has: their money must go back.
    pub unhoused: Vec<ClaimId>,
    /// Orders that ended unpaid and whose units the gate had sold all the same: nobody has them any more.
    pub given_back: Vec<ClaimId>,
}

/// Who keeps a unit that two claims name: the lower.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Paid,
    Owned,
    Sold,
    Held,
    ToBeReleased,
}

/// Puts the holds of a sale together from those that `survived` and from its `orders`. `kid` names the key with which
/// access keys are made, for holds that are made from their orders alone.
#[must_use]
pub fn rebuild(
    survived: &BTreeMap<ClaimId, Hold>,
    orders: &BTreeMap<ClaimId, OrderRecord>,
    kid: &str,
) -> Rebuilt {
    let claims: BTreeSet<&ClaimId> = survived.keys().chain(orders.keys()).collect();
    let mut ranked = Vec::with_capacity(claims.len());
    for claim in claims {
        let ranked_hold = match (orders.get(claim), survived.get(claim)) {
            (Some(order), hold) => Some(by_order(order, hold, kid)),
            (None, Some(hold)) => Some((without_order(hold), hold.clone())),
            (None, None) => None,
        };
        ranked.extend(ranked_hold);
    }
    ranked.sort_by(|(rank_a, a), (rank_b, b)| {
        (rank_a, a.claimed_at, a.claim).cmp(&(rank_b, b.claimed_at, b.claim))
    });
    let (mut rebuilt, mut owned) = (Rebuilt::default(), BTreeSet::new());
    let mut wrongly_sold = Vec::new();
    for (rank, mut hold) in ranked {
        let (order, known) = (orders.get(&hold.claim), survived.get(&hold.claim));
        let was_sold = known.is_some_and(|hold| hold.state == HoldState::Committed);
        if was_sold && order.is_some_and(is_unpaid_in_dispute) {
            wrongly_sold
                .push((hold.claim, hold.units.iter().map(|unit| (hold.item.clone(), *unit)).collect()));
        }
        if hold.state != HoldState::Released && !take(&mut owned, &hold) {
            hold.state = HoldState::Released;
            match rank {
                Rank::Paid => rebuilt.unhoused.push(hold.claim),
                Rank::Owned => rebuilt.displaced.push(hold.claim),
                Rank::Sold | Rank::Held | Rank::ToBeReleased => {}
            }
        }
        rebuilt.holds.push(hold);
    }
    rebuilt.holds.sort_by_key(|hold| hold.claim);
    // Where another order has such a unit, the dispute goes on: the gate is never told to free it for this one.
    let free = wrongly_sold.into_iter().filter(|(_, units): &(_, BTreeSet<_>)| units.is_disjoint(&owned));
    rebuilt.given_back = free.map(|(claim, _)| claim).collect();
    rebuilt
}

/// Whether the gate sold the units of an order that ended, and no money stands behind it.
fn is_unpaid_in_dispute(order: &OrderRecord) -> bool {
    let keeps_money = order.payments.iter().any(|attempt| attempt.state == PaymentState::Succeeded);
    order.gate == GateSide::Disputed && !order.owns_units() && !keeps_money
}

/// Takes all units of a hold, or none.
fn take(owned: &mut BTreeSet<(ItemId, u32)>, hold: &Hold) -> bool {
    let units: BTreeSet<(ItemId, u32)> = hold.units.iter().map(|unit| (hold.item.clone(), *unit)).collect();
    let is_free = units.len() == hold.units.len() && units.is_disjoint(owned);
    if is_free {
        owned.extend(units);
    }
    is_free
}

fn without_order(hold: &Hold) -> Rank {
    if hold.state == HoldState::Committed { Rank::Sold } else { Rank::Held }
}

/// The hold of an order. Its memo is what survived, or what the order knows of it.
fn by_order(order: &OrderRecord, survived: Option<&Hold>, kid: &str) -> (Rank, Hold) {
    let known = survived.map(|hold| hold.state);
    let live = match known {
        Some(state @ (HoldState::Held | HoldState::Expiring)) => state,
        _ => HoldState::Held,
    };
    let (rank, state) = match (order.state, order.gate) {
        (OrderState::AwaitingPayment, _) => (Rank::Owned, live),
        (_, GateSide::Committed) => (Rank::Paid, HoldState::Committed),
        (_, GateSide::CommitDue) | (OrderState::Paid, GateSide::Held) => {
            let is_sold = known == Some(HoldState::Committed);
            (Rank::Paid, if is_sold { HoldState::Committed } else { live })
        }
        // The reclaim was done and its answer lost, or the first release never came: asked again, the gate finds it.
        // Whoever owns a unit by an order keeps it; then other units are looked for.
        (_, GateSide::ReclaimDue) => match known {
            Some(HoldState::Committed) => (Rank::Sold, HoldState::Committed),
            Some(HoldState::Held | HoldState::Expiring) => (Rank::Held, live),
            _ => (Rank::ToBeReleased, HoldState::Released),
        },
        // The gate has sold what is paid for. What nobody paid for comes back; where the gate was never told, the units
        // are another's.
        (_, GateSide::Disputed) if known == Some(HoldState::Committed) && !is_unpaid_in_dispute(order) => {
            (Rank::ToBeReleased, HoldState::Committed)
        }
        // Also where the gate is still to be told: left live, the hold would stay for good if what the gate had
        // recorded of an earlier release were taken in after this.
        _ => (Rank::ToBeReleased, HoldState::Released),
    };
    // What was reclaimed may be other units than the order knows of yet.
    let units = match survived {
        Some(hold) if order.is_reclaiming() => &hold.units,
        _ => &order.units,
    };
    let hold = Hold {
        claim: order.id,
        account: order.account,
        item: order.item.clone(),
        units: units.clone(),
        state,
        claimed_at: order.claimed_at,
        deadline: order.hold_expires_at,
        memo: survived.map_or_else(|| memo_of(order, kid).to_text(), |hold| hold.memo.clone()),
    };
    (rank, hold)
}

/// What the claimant wrote, as far as the order tells.
fn memo_of(order: &OrderRecord, kid: &str) -> Memo {
    let quantity = u32::try_from(order.units.len()).unwrap_or(u32::MAX);
    let wish =
        Wish { item: order.item.clone(), quantity, email: order.email.clone(), language: order.language };
    Memo {
        fingerprint: wish.fingerprint(),
        amount: order.price.amount,
        currency: order.price.currency.clone(),
        email: order.email.clone(),
        language: order.language,
        kid: kid.to_owned(),
    }
}

#[cfg(test)]
mod tests;
