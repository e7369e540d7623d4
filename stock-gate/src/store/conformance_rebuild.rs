//! Freezing and rebuilding: one behaviour for every back end.

use lockgate_shared::{
    clock::Timestamp,
    gate::{ClaimAnswer, ConcludeAnswer, FreezeAnswer, Hold, HoldState, HoldsPage, StageAnswer},
    ids::{ItemId, SaleId},
    store::Effect,
};

use super::{
    Claim, FreezeOrder,
    testbed::{
        Bench, account, all_holds, check_invariant, claim, claim_id, conformance, freeze, freeze_order, held,
        item, open, rebuild, rebuilt, sale, stamp, take, token_id,
    },
};

conformance! {
    a_frozen_sale_does_nothing_until_it_is_rebuilt
    h7_a_sale_is_rebuilt_from_its_holds_and_goes_on
    h7_a_sale_without_anything_left_is_rebuilt_from_what_is_known
    one_rebuild_wins_and_an_old_one_replaces_nothing
    what_was_not_staged_whole_is_not_concluded
    a_freeze_of_a_generation_that_is_gone_freezes_nothing
    what_is_known_of_admissions_outlives_a_rebuild
}

fn items(stock: u32) -> [(ItemId, u32); 2] {
    [(item("phone"), stock), (item("case"), 5)]
}

/// Six phones: 1 is sold, 2 came back, 3 is expiring, 4 and 5 are held.
async fn running(bench: &Bench) -> SaleId {
    let (store, sale) = (&bench.store, sale("demo"));
    open(&**store, &sale, &items(6)).await;
    for n in 1..=4 {
        take(bench, &sale, &Claim { hold_seconds: if n == 3 { 0 } else { 3_600 }, ..claim(n) }).await;
    }
    let mut second = claim(5);
    second.request.account = account(4);
    take(bench, &sale, &second).await;
    store.commit(&sale, claim_id(1)).await.unwrap();
    store.release(&sale, claim_id(2)).await.unwrap();
    assert_eq!(store.expire(&sale, 9).await.unwrap(), [claim_id(3)]);
    sale
}

async fn a_frozen_sale_does_nothing_until_it_is_rebuilt(bench: &Bench) {
    let (store, sale) = (&bench.store, running(bench).await);
    assert_eq!(store.generation(&sale).await.unwrap(), Some(1));
    let freeze = freeze(&**store, &sale).await;
    assert_eq!(freeze.generation, 1);
    let again = store.freeze(&sale, &freeze_order(99)).await.unwrap();
    assert_eq!(again, FreezeAnswer::Frozen(freeze), "the freeze that stands");
    let untouched = [
        store.claim(&sale, &claim(9)).await.map(drop),
        store.claim(&sale, &claim(1)).await.map(drop),
        store.commit(&sale, claim_id(4)).await.map(drop),
        store.release(&sale, claim_id(4)).await.map(drop),
        store.expire(&sale, 9).await.map(drop),
        store.forfeit(&sale, &token_id(9)).await.map(drop),
        store.hold(&sale, claim_id(1)).await.map(drop),
        store.stock(&sale, None).await.map(drop),
    ];
    for answer in untouched {
        assert_eq!(answer.unwrap_err().effect, Effect::None);
    }
    let before = bench.events(&sale).await;
    let reopened = rebuild(&**store, &sale, &items(6)).await;
    assert_eq!(reopened, ConcludeAnswer::Reopened { generation: 2 });
    assert_eq!(store.generation(&sale).await.unwrap(), Some(2));
    assert_eq!(bench.events(&sale).await, before, "the events stay");
    held(store.claim(&sale, &claim(9)).await.unwrap());
}

async fn h7_a_sale_is_rebuilt_from_its_holds_and_goes_on(bench: &Bench) {
    let (store, sale) = (&bench.store, running(bench).await);
    let before = (all_holds(&**store, &sale).await, store.stock(&sale, None).await.unwrap());
    rebuild(&**store, &sale, &items(6)).await;
    assert_eq!((all_holds(&**store, &sale).await, store.stock(&sale, None).await.unwrap()), before);
    check_invariant(&**store, &sale, (1..9).map(claim_id)).await;
    let again = store.claim(&sale, &claim(2)).await.unwrap();
    assert!(matches!(again, ClaimAnswer::Held { replayed: true, .. }), "answers are remembered: {again:?}");
    let mut limited = claim(6);
    (limited.request.account, limited.limits.live_holds) = (account(4), Some(2));
    let answer = store.claim(&sale, &limited).await.unwrap();
    assert_eq!(answer, ClaimAnswer::LiveHoldsReached { limit: 2, live: 2 });
    assert_eq!(take(bench, &sale, &claim(7)).await.units, [2], "what came back is given first");
    assert_eq!(take(bench, &sale, &claim(8)).await.units, [6]);
    assert!(matches!(store.claim(&sale, &claim(9)).await.unwrap(), ClaimAnswer::SoldOut { .. }));
    store.release(&sale, claim_id(3)).await.unwrap();
    store.commit(&sale, claim_id(4)).await.unwrap();
    assert_eq!(take(bench, &sale, &Claim { hold_seconds: 0, ..claim(9) }).await.units, [3]);
    assert_eq!(store.expire(&sale, 9).await.unwrap(), [claim_id(9)]);
    check_invariant(&**store, &sale, (1..=9).map(claim_id)).await;
}

async fn h7_a_sale_without_anything_left_is_rebuilt_from_what_is_known(bench: &Bench) {
    let (store, sale) = (&bench.store, sale("lost"));
    let order = FreezeOrder { at_least: 4, if_generation: Some(0), ..freeze_order(1) };
    let FreezeAnswer::Frozen(freeze) = store.freeze(&sale, &order).await.unwrap() else { panic!() };
    assert_eq!(freeze.generation, 4, "what the catalog knows");
    assert_eq!(store.holds(&sale, None, 9).await.unwrap(), HoldsPage::default());
    let at = Timestamp::from_seconds(4_000_000_000);
    let hold = Hold {
        claim: claim_id(1),
        account: account(1),
        item: item("phone"),
        units: vec![2, 5],
        state: HoldState::Held,
        claimed_at: at,
        deadline: at.plus_seconds(3_600),
        memo: "a | memo \u{1f512} with '%s' and \"quotes\"".into(),
    };
    let (pages, conclusion) = rebuilt(freeze, 2, std::slice::from_ref(&hold), &items(6));
    for page in &pages {
        store.stage(&sale, page).await.unwrap();
    }
    let reopened = store.conclude(&sale, &conclusion).await.unwrap();
    assert_eq!(reopened, ConcludeAnswer::Reopened { generation: 5 });
    assert_eq!(store.hold(&sale, claim_id(1)).await.unwrap(), Some(hold));
    let mut four = claim(2);
    four.request.quantity = 4;
    let taken = take(bench, &sale, &four).await;
    assert_eq!(taken.units, [1, 3, 4, 6]);
    assert!(taken.claimed_at >= at, "a sale's time does not go back");
    store.commit(&sale, claim_id(1)).await.unwrap();
    check_invariant(&**store, &sale, (1..=2).map(claim_id)).await;
}

async fn one_rebuild_wins_and_an_old_one_replaces_nothing(bench: &Bench) {
    let (store, sale) = (&bench.store, running(bench).await);
    let first = freeze(&**store, &sale).await;
    let holds = all_holds(&**store, &sale).await;
    let (pages_a, conclusion_a) = rebuilt(first, 1, &holds, &items(6));
    let (pages_b, conclusion_b) = rebuilt(first, 2, &holds, &items(6));
    for page in pages_a.iter().chain(&pages_b) {
        assert_eq!(store.stage(&sale, page).await.unwrap(), StageAnswer::Staged);
    }
    let reopened = store.conclude(&sale, &conclusion_a).await.unwrap();
    assert_eq!(reopened, ConcludeAnswer::Reopened { generation: 2 });
    take(bench, &sale, &claim(9)).await;
    for (page, conclusion) in [(&pages_b[0], &conclusion_b), (&pages_a[0], &conclusion_a)] {
        assert_eq!(store.stage(&sale, page).await.unwrap(), StageAnswer::Stale);
        assert_eq!(store.conclude(&sale, conclusion).await.unwrap(), ConcludeAnswer::Stale);
    }
    // Frozen once more, it is another freeze.
    store.freeze(&sale, &freeze_order(8)).await.unwrap();
    assert_eq!(store.stage(&sale, &pages_b[0]).await.unwrap(), StageAnswer::Stale);
    assert_eq!(store.conclude(&sale, &conclusion_b).await.unwrap(), ConcludeAnswer::Stale);
    rebuild(&**store, &sale, &items(6)).await;
    assert!(store.hold(&sale, claim_id(9)).await.unwrap().is_some());
    check_invariant(&**store, &sale, (1..=9).map(claim_id)).await;
}

async fn what_was_not_staged_whole_is_not_concluded(bench: &Bench) {
    let (store, sale) = (&bench.store, running(bench).await);
    let freeze = freeze(&**store, &sale).await;
    let (pages, conclusion) = rebuilt(freeze, 1, &all_holds(&**store, &sale).await, &items(6));
    assert_eq!(store.conclude(&sale, &conclusion).await.unwrap(), ConcludeAnswer::Incomplete);
    // Cut off half-way, and begun anew by another.
    store.stage(&sale, &pages[1]).await.unwrap();
    assert_eq!(store.conclude(&sale, &conclusion).await.unwrap(), ConcludeAnswer::Incomplete);
    assert!(store.stock(&sale, None).await.is_err(), "it stays frozen");
    assert_eq!(rebuild(&**store, &sale, &items(6)).await, ConcludeAnswer::Reopened { generation: 2 });
    check_invariant(&**store, &sale, (1..=5).map(claim_id)).await;
}

async fn a_freeze_of_a_generation_that_is_gone_freezes_nothing(bench: &Bench) {
    let (store, sale) = (&bench.store, running(bench).await);
    rebuild(&**store, &sale, &items(6)).await;
    let old = FreezeOrder { if_generation: Some(1), ..freeze_order(1) };
    assert_eq!(store.freeze(&sale, &old).await.unwrap(), FreezeAnswer::Rebuilt { generation: 2 });
    check_invariant(&**store, &sale, (1..=5).map(claim_id)).await;
    let now = FreezeOrder { if_generation: Some(2), ..freeze_order(1) };
    assert!(matches!(store.freeze(&sale, &now).await.unwrap(), FreezeAnswer::Frozen(_)));
}

async fn what_is_known_of_admissions_outlives_a_rebuild(bench: &Bench) {
    let (store, sale) = (&bench.store, running(bench).await);
    store.forfeit(&sale, &token_id(9)).await.unwrap();
    let strict = |n| {
        let mut made = Claim { hold_seconds: 0, ..claim(n) };
        (made.request.account, made.limits.abandoned_holds) = (account(7), Some(1));
        made
    };
    take(bench, &sale, &strict(6)).await;
    store.expire(&sale, 9).await.unwrap();
    rebuild(&**store, &sale, &items(6)).await;
    store.release(&sale, claim_id(6)).await.unwrap();
    assert_eq!(store.claim(&sale, &claim(9)).await.unwrap(), ClaimAnswer::Forfeited);
    rebuild(&**store, &sale, &items(6)).await;
    assert_eq!(store.claim(&sale, &strict(8)).await.unwrap(), ClaimAnswer::LineUpAgain { abandoned: 1 });
}
