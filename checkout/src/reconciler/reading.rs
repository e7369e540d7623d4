//! Both sides of a sale, read by pages: first the gate's holds, then the orders.

use std::{collections::BTreeMap, time::Duration};

use lockgate_shared::{
    gate::{HoldState, ItemStock},
    ids::{ClaimId, ItemId, SaleId},
};

use super::Trouble;
use crate::{
    app::App,
    payment::PaymentState,
    reconcile::{Finding, HoldView, Kind, of_money, of_units},
    store::ORDERS_PAGE_MAX,
};

/// Pause between two pages, so that a comparison never has gate or database to itself.
const PAGE_PAUSE: Duration = Duration::from_millis(2);

/// What was read.
pub(super) struct Read {
    pub(super) findings: Vec<Finding>,
    /// Whether attempts are open or money is to go back.
    pub(super) is_open: bool,
}

pub(super) async fn read(app: &App, sale: &SaleId, stock: &[ItemStock]) -> Result<Read, Trouble> {
    let mut holds = holds(app, sale).await?;
    let mut findings = by_item(&holds, stock);
    let (mut after, mut is_open) = (None, false);
    loop {
        let page = app.store.orders(sale, after).await?;
        for order in &page {
            let hold = holds.remove(&order.id);
            findings.extend(of_units(order.id, hold.as_ref(), Some(order)));
            findings.extend(of_money(order, app.now()));
            let is_moving = |state| matches!(state, PaymentState::Open | PaymentState::RefundDue);
            is_open |= order.payments.iter().any(|attempt| is_moving(attempt.state));
        }
        after = page.last().map(|order| order.id);
        if page.len() < ORDERS_PAGE_MAX {
            break;
        }
        tokio::time::sleep(PAGE_PAUSE).await;
    }
    findings.extend(holds.iter().filter_map(|(claim, hold)| of_units(*claim, Some(hold), None)));
    Ok(Read { findings, is_open })
}

async fn holds(app: &App, sale: &SaleId) -> Result<BTreeMap<ClaimId, HoldView>, Trouble> {
    let (mut holds, mut after) = (BTreeMap::new(), None);
    loop {
        let page = app.gate.direct().holds(sale, after.as_deref()).await?;
        holds.extend(page.holds.iter().map(|hold| (hold.claim, HoldView::from(hold))));
        after = page.next;
        if after.is_none() {
            return Ok(holds);
        }
        tokio::time::sleep(PAGE_PAUSE).await;
    }
}

/// PURE: what the holds of an item come to, against its counts, and units that two holds have.
fn by_item(holds: &BTreeMap<ClaimId, HoldView>, stock: &[ItemStock]) -> Vec<Finding> {
    let mut sums: BTreeMap<&ItemId, (u64, u64)> = BTreeMap::new();
    let mut owners: BTreeMap<(&ItemId, u32), ClaimId> = BTreeMap::new();
    let mut findings = Vec::new();
    for (claim, hold) in holds.iter().filter(|(_, hold)| hold.is_live()) {
        let (held, sold) = sums.entry(&hold.item).or_default();
        let side = if hold.state == HoldState::Committed { sold } else { held };
        *side += hold.units.len() as u64;
        for unit in &hold.units {
            if let Some(other) = owners.insert((&hold.item, *unit), *claim) {
                let seen = format!("unit {unit} is {other}'s too");
                findings.push(finding(Kind::UnitHeldTwice, Some(*claim), &hold.item, 0, seen));
            }
        }
    }
    for item in stock {
        let (held, sold) = sums.remove(&item.item).unwrap_or_default();
        let counts = (u64::from(item.held), u64::from(item.sold));
        let adds_up = u64::from(item.available) + counts.0 + counts.1 == u64::from(item.stock);
        if counts != (held, sold) || !adds_up {
            let seen = format!(
                "of {}: {} available, {} held, {} sold; holds: {held} held, {sold} sold",
                item.stock, item.available, item.held, item.sold
            );
            let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            let units = signed(counts.0 + counts.1) - signed(held + sold);
            findings.push(finding(Kind::CountsDiffer, None, &item.item, units, seen));
        }
    }
    findings
}

fn finding(kind: Kind, order: Option<ClaimId>, item: &ItemId, units: i64, seen: String) -> Finding {
    Finding { kind, order, payment: None, item: item.clone(), units, money: 0, seen }
}

#[cfg(test)]
mod tests {
    use lockgate_shared::ids::AccountHash;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn counts_that_are_not_what_the_holds_come_to_are_found() {
        let item: ItemId = "phone".parse().unwrap();
        let hold = |n: u8, units: &[u32], state| {
            let account = AccountHash::from_bytes([n; 16]);
            let claim: ClaimId = Uuid::from_bytes([n; 16]).into();
            (claim, HoldView { account, item: item.clone(), units: units.to_vec(), state })
        };
        let stock =
            |available, held, sold| ItemStock { item: item.clone(), stock: 10, available, held, sold };
        let mut holds = BTreeMap::from([
            hold(1, &[1, 2], HoldState::Held),
            hold(2, &[3], HoldState::Committed),
            hold(3, &[4], HoldState::Released),
        ]);
        let kinds = |holds: &_, stock: ItemStock| {
            let found = by_item(holds, &[stock]);
            found.into_iter().map(|one| (one.kind, one.units)).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&holds, stock(7, 2, 1)), []);
        assert_eq!(kinds(&holds, stock(6, 3, 1)), [(Kind::CountsDiffer, 1)]);
        assert_eq!(kinds(&holds, stock(7, 1, 2)), [(Kind::CountsDiffer, 0)]);
        assert_eq!(kinds(&holds, stock(6, 2, 1)), [(Kind::CountsDiffer, 0)], "a unit is nowhere");
        holds.extend([hold(4, &[3], HoldState::Held)]);
        assert_eq!(kinds(&holds, stock(6, 3, 1)), [(Kind::UnitHeldTwice, 0)]);
    }
}
