//! Units for whoever paid in time and was heard of late: one behaviour for every back end.

use std::sync::Arc;

use futures::future::join_all;
use lockgate_shared::{
    events::EventKind,
    gate::{ClaimAnswer, CommitAnswer, HoldState, ItemStock, ReclaimAnswer, ReleaseAnswer},
    ids::SaleId,
};

use super::{
    Claim, Restocking,
    testbed::{
        Bench, account, check_invariant, claim, claim_id, conformance, item, open, rebuild, sale, stamp, take,
    },
};
use crate::stock::Limits;

conformance! {
    m5_a_released_claim_gets_its_own_units_back_and_they_are_sold
    m5_a_released_claim_gets_others_when_its_own_are_taken
    m5_a_refused_reclaim_stays_refused
    a_reclaim_of_a_live_hold_commits_it
    a_reclaim_is_bounded_by_the_limits_on_units_alone
    a_claim_nobody_made_is_not_reclaimed
    withdrawn_units_are_not_reclaimed
    what_was_reclaimed_outlives_a_rebuild
    reclaims_and_claims_at_once_sell_each_unit_once
}

const FREE: Limits = Limits { per_account: 1_000, total: None, abandoned_holds: None, live_holds: None };

async fn prepared(bench: &Bench, stock: u32) -> SaleId {
    let sale = sale("demo");
    open(&*bench.store, &sale, &[(item("phone"), stock), (item("case"), 5)]).await;
    sale
}

async fn reclaim(bench: &Bench, sale: &SaleId, n: u32, limits: &Limits) -> ReclaimAnswer {
    bench.store.reclaim(sale, claim_id(n), limits).await.unwrap()
}

fn units(units: &[u32]) -> ReclaimAnswer {
    ReclaimAnswer::Reclaimed { units: units.to_vec() }
}

async fn phone(bench: &Bench, sale: &SaleId) -> ItemStock {
    bench.store.stock(sale, None).await.unwrap().items.swap_remove(0)
}

fn counts(available: u32, held: u32, sold: u32) -> ItemStock {
    ItemStock { item: item("phone"), stock: available + held + sold, available, held, sold }
}

/// A claim for two phones that ran out and was released.
async fn ran_out(bench: &Bench, sale: &SaleId, n: u32) {
    let mut two = Claim { hold_seconds: 0, ..claim(n) };
    two.request.quantity = 2;
    take(bench, sale, &two).await;
    bench.store.expire(sale, 10).await.unwrap();
    bench.store.release(sale, claim_id(n)).await.unwrap();
}

async fn m5_a_released_claim_gets_its_own_units_back_and_they_are_sold(bench: &Bench) {
    let sale = prepared(bench, 6).await;
    ran_out(bench, &sale, 1).await;
    for n in [2, 3] {
        take(bench, &sale, &claim(n)).await;
    }
    ran_out(bench, &sale, 4).await;
    bench.store.release(&sale, claim_id(3)).await.unwrap();
    // 1 is held by claim 2; 2 to 4 came back, 3 and 4 from claim 4. Not the lowest, its own.
    for _ in 0..3 {
        assert_eq!(reclaim(bench, &sale, 4, &FREE).await, units(&[3, 4]));
    }
    assert_eq!(phone(bench, &sale).await, counts(3, 1, 2));
    let hold = bench.store.hold(&sale, claim_id(4)).await.unwrap().unwrap();
    assert_eq!((hold.state, hold.units.as_slice()), (HoldState::Committed, &[3, 4][..]));
    assert_eq!(bench.store.commit(&sale, claim_id(4)).await.unwrap(), CommitAnswer::Committed);
    assert_eq!(bench.store.release(&sale, claim_id(4)).await.unwrap(), ReleaseAnswer::Committed);
    let events = bench.events(&sale).await;
    let last = events.last().unwrap();
    assert_eq!(
        (last.kind, last.claim, last.units.as_slice()),
        (EventKind::Committed, claim_id(4), &[3, 4][..])
    );
    assert_eq!(last.memo, "memo of 4");
    let sold = events.iter().filter(|event| event.kind == EventKind::Committed).count();
    assert_eq!(sold, 1, "recorded once");
    check_invariant(&*bench.store, &sale, (1..=4).map(claim_id)).await;
}

async fn m5_a_released_claim_gets_others_when_its_own_are_taken(bench: &Bench) {
    let sale = prepared(bench, 6).await;
    ran_out(bench, &sale, 1).await;
    for n in 2..=4 {
        take(bench, &sale, &claim(n)).await;
    }
    bench.store.release(&sale, claim_id(3)).await.unwrap();
    // 1 and 3 are held, 2 came back, 4 to 6 were never given.
    assert_eq!(reclaim(bench, &sale, 1, &FREE).await, units(&[2, 4]), "returned ones first");
    let hold = bench.store.hold(&sale, claim_id(1)).await.unwrap().unwrap();
    assert_eq!((hold.state, hold.units.as_slice()), (HoldState::Committed, &[2, 4][..]));
    assert_eq!(take(bench, &sale, &claim(1)).await.units, [2, 4], "a repeated claim finds what it has");
    assert_eq!(bench.events(&sale).await.last().unwrap().units, [2, 4]);
    assert_eq!(take(bench, &sale, &claim(5)).await.units, [5]);
    let snapshot = check_invariant(&*bench.store, &sale, (1..=5).map(claim_id)).await;
    assert_eq!(snapshot.items[0], counts(1, 3, 2));
}

async fn m5_a_refused_reclaim_stays_refused(bench: &Bench) {
    let sale = prepared(bench, 2).await;
    ran_out(bench, &sale, 1).await;
    take(bench, &sale, &claim(2)).await;
    let told = bench.events(&sale).await.len();
    assert_eq!(reclaim(bench, &sale, 1, &FREE).await, ReclaimAnswer::SoldOut);
    bench.store.release(&sale, claim_id(2)).await.unwrap();
    // The money is on its way back: a call that is repeated or comes late must not take units for nobody.
    assert_eq!(reclaim(bench, &sale, 1, &FREE).await, ReclaimAnswer::SoldOut);
    assert_eq!(bench.store.commit(&sale, claim_id(1)).await.unwrap(), CommitAnswer::Released);
    assert_eq!(bench.events(&sale).await.len(), told + 1, "a refusal is no event");
    assert_eq!(phone(bench, &sale).await, counts(2, 0, 0));
    check_invariant(&*bench.store, &sale, (1..=2).map(claim_id)).await;
}

async fn a_reclaim_of_a_live_hold_commits_it(bench: &Bench) {
    let sale = prepared(bench, 4).await;
    take(bench, &sale, &Claim { hold_seconds: 0, ..claim(1) }).await;
    bench.store.expire(&sale, 10).await.unwrap();
    take(bench, &sale, &claim(2)).await;
    let none = Limits { per_account: 0, total: Some(0), ..FREE };
    for n in [1, 2] {
        assert_eq!(reclaim(bench, &sale, n, &none).await, units(&[n]), "what is held is within the limits");
        assert_eq!(bench.store.release(&sale, claim_id(n)).await.unwrap(), ReleaseAnswer::Committed);
    }
    assert!(bench.store.expire(&sale, 10).await.unwrap().is_empty());
    assert_eq!(bench.events(&sale).await.last().unwrap().kind, EventKind::Committed);
    let snapshot = check_invariant(&*bench.store, &sale, (1..=2).map(claim_id)).await;
    assert_eq!(snapshot.items[0], counts(2, 0, 2));
}

async fn a_reclaim_is_bounded_by_the_limits_on_units_alone(bench: &Bench) {
    let sale = prepared(bench, 9).await;
    for n in 1..=3 {
        ran_out(bench, &sale, n).await;
    }
    let mut held = claim(4);
    (held.request.account, held.request.item) = (account(1), item("case"));
    take(bench, &sale, &held).await;
    let limits = Limits { per_account: 2, total: Some(4), abandoned_holds: Some(1), live_holds: Some(1) };
    let reached = ReclaimAnswer::LimitReached { limit: 2, taken: 1 };
    assert_eq!(reclaim(bench, &sale, 1, &limits).await, reached);
    assert_eq!(reclaim(bench, &sale, 1, &FREE).await, reached, "and stays so");
    assert_eq!(
        reclaim(bench, &sale, 2, &limits).await,
        units(&[1, 2]),
        "abandoned and live holds do not count"
    );
    assert_eq!(reclaim(bench, &sale, 3, &limits).await, ReclaimAnswer::SoldOut, "three of four are taken");
    let mut more = claim(5);
    (more.request.account, more.limits.per_account) = (account(2), 2);
    let full = bench.store.claim(&sale, &more).await.unwrap();
    assert_eq!(full, ClaimAnswer::LimitReached { limit: 2, taken: 2 }, "what is reclaimed counts");
    check_invariant(&*bench.store, &sale, (1..=5).map(claim_id)).await;
}

async fn a_claim_nobody_made_is_not_reclaimed(bench: &Bench) {
    let sale = prepared(bench, 2).await;
    assert_eq!(reclaim(bench, &sale, 9, &FREE).await, ReclaimAnswer::NoSuchClaim);
    assert_eq!(phone(bench, &sale).await, counts(2, 0, 0));
    assert!(bench.events(&sale).await.is_empty());
}

async fn withdrawn_units_are_not_reclaimed(bench: &Bench) {
    let sale = prepared(bench, 4).await;
    take(bench, &sale, &claim(1)).await;
    ran_out(bench, &sale, 2).await;
    let request = lockgate_shared::gate::RestockRequest {
        id: uuid::Uuid::from_u128(1),
        item: item("phone"),
        change: -2,
    };
    let change = Restocking { request, is_defined: false, total_limit: None };
    bench.store.restock(&sale, &change).await.unwrap();
    // 3 was withdrawn with 4, which nobody had; 2 is left.
    assert_eq!(reclaim(bench, &sale, 2, &FREE).await, ReclaimAnswer::SoldOut);
    assert_eq!(take(bench, &sale, &claim(3)).await.units, [2]);
    check_invariant(&*bench.store, &sale, (1..=3).map(claim_id)).await;
}

async fn what_was_reclaimed_outlives_a_rebuild(bench: &Bench) {
    let sale = prepared(bench, 4).await;
    ran_out(bench, &sale, 1).await;
    ran_out(bench, &sale, 2).await;
    take(bench, &sale, &claim(3)).await;
    assert_eq!(reclaim(bench, &sale, 1, &FREE).await, units(&[2, 3]));
    assert_eq!(reclaim(bench, &sale, 2, &FREE).await, ReclaimAnswer::SoldOut);
    rebuild(&*bench.store, &sale, &[(item("phone"), 4), (item("case"), 5)]).await;
    bench.store.release(&sale, claim_id(3)).await.unwrap();
    assert_eq!(reclaim(bench, &sale, 1, &FREE).await, units(&[2, 3]));
    assert_eq!(reclaim(bench, &sale, 2, &FREE).await, ReclaimAnswer::SoldOut);
    check_invariant(&*bench.store, &sale, (1..=3).map(claim_id)).await;
}

async fn reclaims_and_claims_at_once_sell_each_unit_once(bench: &Bench) {
    let sale = prepared(bench, 10).await;
    for n in 1..=5 {
        let mut two = claim(n);
        two.request.quantity = 2;
        take(bench, &sale, &two).await;
    }
    for n in 1..=5 {
        bench.store.release(&sale, claim_id(n)).await.unwrap();
    }
    let ask = |n: u32| {
        let (store, sale) = (Arc::clone(&bench.store), sale.clone());
        async move {
            if n > 10 {
                store.claim(&sale, &claim(n)).await.map(|answer| matches!(answer, ClaimAnswer::Held { .. }))
            } else {
                let answer = store.reclaim(&sale, claim_id(n.div_ceil(2)), &FREE).await;
                answer.map(|answer| matches!(answer, ReclaimAnswer::Reclaimed { .. }))
            }
        }
    };
    // Every reclaim is asked for twice at the same moment, as two processes do.
    let won: Vec<bool> = join_all((1..=18).map(ask)).await.into_iter().map(Result::unwrap).collect();
    for pair in won[..10].chunks(2) {
        assert_eq!(pair[0], pair[1], "one answer for each claim");
    }
    let claims = (1..=5).chain(11..=18).map(claim_id);
    let snapshot = check_invariant(&*bench.store, &sale, claims).await;
    let sold = 2 * u32::try_from(won[..10].iter().filter(|won| **won).count() / 2).unwrap();
    let held = u32::try_from(won[10..].iter().filter(|won| **won).count()).unwrap();
    assert_eq!(snapshot.items[0], counts(10 - sold - held, held, sold));
}
