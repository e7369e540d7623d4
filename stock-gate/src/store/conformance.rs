//! One behaviour for every back end.

use lockgate_shared::{
    events::{Abandoned, EventKind},
    gate::{
        ClaimAnswer, CommitAnswer, ForfeitAnswer, FreezeAnswer, Hold, HoldState, ItemStock, ReleaseAnswer,
    },
    ids::SaleId,
    store::{Effect, StoreError},
};

use super::{
    Claim, FreezeOrder,
    testbed::{
        Bench, account, check_invariant, claim, claim_id, conformance, freeze_order, held, item, open, sale,
        stamp, take, token_id,
    },
};
use crate::hold::Refusal;

conformance! {
    a_new_sale_gets_its_stock_once
    h7_without_stock_every_verb_is_an_error_and_never_sold_out
    a_claim_takes_the_lowest_free_units_and_says_when_it_falls_due
    h2_a_repeated_claim_finds_its_hold_whatever_became_of_it
    claims_are_refused_in_the_agreed_order
    h1_ten_claims_for_the_last_unit
    h4_claimed_and_abandoned_again_and_again
    a_hold_ends_once
    due_holds_are_marked_earliest_first_and_stay_held
    limits_count_what_is_held_and_sold_across_items
    the_snapshot_names_claimants_once_something_is_gone
    every_change_is_an_event_with_the_whole_hold
    memos_come_back_as_they_were
    sales_do_not_touch_each_other
    any_size_of_claim_and_sale_fits
    holds_that_ran_out_cost_the_admission_its_right
    what_is_paid_or_given_back_in_time_is_not_abandoned
    an_admission_given_up_claims_nothing_new
}

async fn prepared(bench: &Bench, stock: u32) -> SaleId {
    let sale = sale("demo");
    let items = [(item("phone"), stock), (item("case"), 5)];
    open(&*bench.store, &sale, &items).await;
    sale
}

fn counts(available: u32, held: u32, sold: u32) -> ItemStock {
    ItemStock { item: item("phone"), stock: available + held + sold, available, held, sold }
}

async fn phone(bench: &Bench, sale: &SaleId) -> ItemStock {
    bench.store.stock(sale, None).await.unwrap().items.swap_remove(0)
}

async fn a_new_sale_gets_its_stock_once(bench: &Bench) {
    let sale = prepared(bench, 3).await;
    take(bench, &sale, &claim(1)).await;
    let new = FreezeOrder { if_generation: Some(0), ..freeze_order(1) };
    assert_eq!(bench.store.freeze(&sale, &new).await.unwrap(), FreezeAnswer::Rebuilt { generation: 1 });
    let snapshot = bench.store.stock(&sale, Some(10)).await.unwrap();
    assert_eq!(snapshot.items[0], counts(2, 1, 0));
    assert_eq!(snapshot.items[1].item, item("case"), "items stay in the order of the sale file");
    assert_eq!(snapshot.total_left, Some(9));
}

async fn h7_without_stock_every_verb_is_an_error_and_never_sold_out(bench: &Bench) {
    let (store, sale, id) = (&bench.store, sale("demo"), claim_id(1));
    fn untouched<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
        assert_eq!(answer.unwrap_err().effect, Effect::None);
    }
    untouched(store.claim(&sale, &claim(1)).await);
    let refused = Claim { refusal: Some(Refusal::NotOpen), ..claim(1) };
    untouched(store.claim(&sale, &refused).await);
    untouched(store.commit(&sale, id).await);
    untouched(store.release(&sale, id).await);
    untouched(store.reclaim(&sale, id, &claim(1).limits).await);
    untouched(store.expire(&sale, 10).await);
    untouched(store.forfeit(&sale, &token_id(1)).await);
    untouched(store.hold(&sale, id).await);
    untouched(store.stock(&sale, None).await);
    store.ready().await.unwrap();
}

async fn a_claim_takes_the_lowest_free_units_and_says_when_it_falls_due(bench: &Bench) {
    let sale = prepared(bench, 6).await;
    let mut three = claim(1);
    three.request.quantity = 3;
    let hold = take(bench, &sale, &three).await;
    assert_eq!(hold.units, [1, 2, 3]);
    assert_eq!(hold.deadline, hold.claimed_at.plus_seconds(3_600));
    let (memo, state) = ("memo of 1".to_owned(), HoldState::Held);
    let expected =
        Hold { claim: claim_id(1), account: account(1), item: item("phone"), memo, state, ..hold.clone() };
    assert_eq!(hold, expected);
    let fourth = take(bench, &sale, &claim(2)).await;
    assert_eq!(fourth.units, [4]);
    assert!(fourth.claimed_at >= hold.claimed_at);
    bench.store.release(&sale, claim_id(2)).await.unwrap();
    bench.store.release(&sale, claim_id(1)).await.unwrap();
    let mut two = claim(3);
    two.request.quantity = 2;
    assert_eq!(take(bench, &sale, &two).await.units, [1, 2]);
    let mut rest = claim(4);
    rest.request.quantity = 4;
    assert_eq!(take(bench, &sale, &rest).await.units, [3, 4, 5, 6], "returned ones first, then fresh ones");
    check_invariant(&*bench.store, &sale, (1..=4).map(claim_id)).await;
}

async fn h2_a_repeated_claim_finds_its_hold_whatever_became_of_it(bench: &Bench) {
    let (store, sale) = (&bench.store, prepared(bench, 2).await);
    let mut first = claim(1);
    first.hold_seconds = 0;
    let mut hold = take(bench, &sale, &first).await;
    let mut other = first.clone();
    (other.request.quantity, other.request.memo) = (2, "another".into());
    other.refusal = Some(Refusal::NotOpen);
    for state in [HoldState::Held, HoldState::Expiring, HoldState::Released] {
        match state {
            HoldState::Expiring => drop(store.expire(&sale, 10).await.unwrap()),
            HoldState::Released => drop(store.release(&sale, claim_id(1)).await.unwrap()),
            _ => {}
        }
        hold.state = state;
        for again in [&first, &other] {
            let answer = store.claim(&sale, again).await.unwrap();
            let expected = ClaimAnswer::Held { hold: hold.clone(), replayed: true };
            assert_eq!(answer, expected);
        }
        assert_eq!(store.hold(&sale, claim_id(1)).await.unwrap(), Some(hold.clone()));
    }
    take(bench, &sale, &claim(2)).await;
    store.commit(&sale, claim_id(2)).await.unwrap();
    assert_eq!(take(bench, &sale, &claim(2)).await.state, HoldState::Committed);
    let snapshot = check_invariant(&**store, &sale, (1..=2).map(claim_id)).await;
    assert_eq!(snapshot.items[0], counts(1, 0, 1));
}

async fn claims_are_refused_in_the_agreed_order(bench: &Bench) {
    let (store, sale) = (&bench.store, prepared(bench, 1).await);
    let ask = async |claim: &Claim| store.claim(&sale, claim).await.unwrap();
    take(bench, &sale, &claim(1)).await;
    let mut wrong = claim(2);
    wrong.request.item = item("no-such");
    (wrong.limits.per_account, wrong.limits.total) = (0, Some(0));
    wrong.refusal = Some(Refusal::Revoked);
    assert_eq!(ask(&wrong).await, ClaimAnswer::Revoked);
    wrong.refusal = Some(Refusal::NotOpen);
    assert_eq!(ask(&wrong).await, ClaimAnswer::NotOpen);
    wrong.refusal = None;
    assert_eq!(ask(&wrong).await, ClaimAnswer::NoSuchItem);
    wrong.request.item = item("phone");
    assert_eq!(ask(&wrong).await, ClaimAnswer::SoldOut { may_return: true });
    store.commit(&sale, claim_id(1)).await.unwrap();
    assert_eq!(ask(&wrong).await, ClaimAnswer::SoldOut { may_return: false });
    wrong.request.item = item("case");
    assert_eq!(ask(&wrong).await, ClaimAnswer::SoldOut { may_return: false }, "sale-wide");
    wrong.limits.total = None;
    assert_eq!(ask(&wrong).await, ClaimAnswer::LimitReached { limit: 0, taken: 0 });
    assert_eq!(store.hold(&sale, claim_id(2)).await.unwrap(), None);
    wrong.limits.per_account = 1;
    assert_eq!(held(ask(&wrong).await).units, [1], "a refused claim may be made later");
}

async fn h1_ten_claims_for_the_last_unit(bench: &Bench) {
    let sale = prepared(bench, 1).await;
    let claims: Vec<Claim> = (1..=10).map(claim).collect();
    let answers = futures::future::join_all(claims.iter().map(|c| bench.store.claim(&sale, c))).await;
    let (won, lost): (Vec<_>, Vec<_>) =
        answers.into_iter().map(Result::unwrap).partition(|a| matches!(a, ClaimAnswer::Held { .. }));
    assert_eq!(won.len(), 1);
    assert!(lost.iter().all(|answer| *answer == ClaimAnswer::SoldOut { may_return: true }));
    check_invariant(&*bench.store, &sale, (1..=10).map(claim_id)).await;
}

async fn h4_claimed_and_abandoned_again_and_again(bench: &Bench) {
    let sale = prepared(bench, 3).await;
    for round in 0..40 {
        let ids = [round * 3 + 1, round * 3 + 2, round * 3 + 3];
        let mut units = Vec::new();
        for n in ids {
            units.extend(take(bench, &sale, &claim(n)).await.units);
        }
        assert_eq!(units, [1, 2, 3]);
        for n in ids {
            assert_eq!(bench.store.release(&sale, claim_id(n)).await.unwrap(), ReleaseAnswer::Released);
        }
    }
    let snapshot = check_invariant(&*bench.store, &sale, (1..=120).map(claim_id)).await;
    assert_eq!(snapshot.items[0], counts(3, 0, 0));
}

async fn a_hold_ends_once(bench: &Bench) {
    let (store, sale) = (&bench.store, prepared(bench, 2).await);
    assert_eq!(store.commit(&sale, claim_id(9)).await.unwrap(), CommitAnswer::NoSuchClaim);
    assert_eq!(store.release(&sale, claim_id(9)).await.unwrap(), ReleaseAnswer::NoSuchClaim);
    take(bench, &sale, &claim(1)).await;
    take(bench, &sale, &claim(2)).await;
    for _ in 0..2 {
        assert_eq!(store.commit(&sale, claim_id(1)).await.unwrap(), CommitAnswer::Committed);
        assert_eq!(store.release(&sale, claim_id(1)).await.unwrap(), ReleaseAnswer::Committed);
        assert_eq!(store.release(&sale, claim_id(2)).await.unwrap(), ReleaseAnswer::Released);
        assert_eq!(store.commit(&sale, claim_id(2)).await.unwrap(), CommitAnswer::Released);
    }
    assert_eq!(phone(bench, &sale).await, counts(1, 0, 1));
    assert_eq!(bench.events(&sale).await.len(), 4, "an ending is recorded once");
}

async fn due_holds_are_marked_earliest_first_and_stay_held(bench: &Bench) {
    let (store, sale) = (&bench.store, prepared(bench, 6).await);
    for n in [3, 1, 2, 5] {
        let due = Claim { hold_seconds: 0, ..claim(n) };
        take(bench, &sale, &due).await;
    }
    take(bench, &sale, &claim(4)).await;
    store.release(&sale, claim_id(5)).await.unwrap();
    assert_eq!(store.expire(&sale, 2).await.unwrap(), [claim_id(3), claim_id(1)]);
    assert_eq!(store.expire(&sale, 2).await.unwrap(), [claim_id(2)]);
    assert!(store.expire(&sale, 2).await.unwrap().is_empty());
    let state = async |n| store.hold(&sale, claim_id(n)).await.unwrap().unwrap().state;
    assert_eq!(state(1).await, HoldState::Expiring);
    assert_eq!(state(4).await, HoldState::Held);
    assert_eq!(phone(bench, &sale).await, counts(2, 4, 0));
    assert_eq!(store.commit(&sale, claim_id(1)).await.unwrap(), CommitAnswer::Committed);
    assert_eq!(store.release(&sale, claim_id(2)).await.unwrap(), ReleaseAnswer::Released);
    let snapshot = check_invariant(&**store, &sale, (1..=5).map(claim_id)).await;
    assert_eq!(snapshot.items[0], counts(3, 2, 1));
}

async fn limits_count_what_is_held_and_sold_across_items(bench: &Bench) {
    let (store, sale) = (&bench.store, prepared(bench, 9).await);
    let ask = async |n: u32, name: &str, quantity: u32| {
        let mut claim = claim(n);
        (claim.request.account, claim.request.item) = (account(n / 10), item(name));
        claim.request.quantity = quantity;
        (claim.limits.per_account, claim.limits.total) = (3, Some(5));
        store.claim(&sale, &claim).await.unwrap()
    };
    held(ask(10, "phone", 1).await);
    held(ask(11, "case", 1).await);
    store.commit(&sale, claim_id(10)).await.unwrap();
    let reached = ClaimAnswer::LimitReached { limit: 3, taken: 2 };
    assert_eq!(ask(12, "phone", 2).await, reached);
    held(ask(13, "phone", 1).await);
    held(ask(20, "phone", 2).await);
    assert_eq!(
        ask(30, "phone", 1).await,
        ClaimAnswer::SoldOut { may_return: true },
        "five are taken across items"
    );
    assert_eq!(store.stock(&sale, Some(5)).await.unwrap().total_left, Some(0));
    store.release(&sale, claim_id(11)).await.unwrap();
    assert_eq!(ask(14, "case", 2).await, ClaimAnswer::SoldOut { may_return: true });
    held(ask(15, "case", 1).await);
    assert_eq!(store.stock(&sale, Some(2)).await.unwrap().total_left, Some(0), "never below 0");
}

async fn the_snapshot_names_claimants_once_something_is_gone(bench: &Bench) {
    let (store, sale) = (&bench.store, prepared(bench, 2).await);
    take(bench, &sale, &claim(1)).await;
    assert!(store.stock(&sale, Some(2)).await.unwrap().claimants.is_empty());
    assert_eq!(
        store.stock(&sale, Some(1)).await.unwrap().claimants,
        [account(1).short()],
        "the sale-wide limit counts too"
    );
    take(bench, &sale, &claim(2)).await;
    store.commit(&sale, claim_id(1)).await.unwrap();
    let mut snapshot = store.stock(&sale, None).await.unwrap();
    snapshot.claimants.sort_unstable();
    assert_eq!(snapshot.claimants, [account(1).short(), account(2).short()]);
    assert!(snapshot.sold_out(&snapshot.items[0]) && snapshot.may_return());
    store.release(&sale, claim_id(2)).await.unwrap();
    assert!(store.stock(&sale, None).await.unwrap().claimants.is_empty());
    take(bench, &sale, &claim(3)).await;
    let mut snapshot = store.stock(&sale, None).await.unwrap();
    snapshot.claimants.sort_unstable();
    let everybody = [account(1).short(), account(2).short(), account(3).short()];
    assert_eq!(
        snapshot.claimants, everybody,
        "an answered claim is answered the same after its hold has ended"
    );
}

async fn every_change_is_an_event_with_the_whole_hold(bench: &Bench) {
    let (store, sale) = (&bench.store, prepared(bench, 4).await);
    let mut two = claim(1);
    (two.request.quantity, two.hold_seconds) = (2, 0);
    let hold = take(bench, &sale, &two).await;
    take(bench, &sale, &claim(2)).await;
    store.expire(&sale, 10).await.unwrap();
    store.release(&sale, claim_id(1)).await.unwrap();
    store.commit(&sale, claim_id(2)).await.unwrap();
    let events = bench.events(&sale).await;
    let kinds: Vec<(EventKind, u32)> = [
        (EventKind::Claimed, 1),
        (EventKind::Claimed, 2),
        (EventKind::Expiring, 1),
        (EventKind::Released, 1),
        (EventKind::Committed, 2),
    ]
    .into();
    let found: Vec<_> = events.iter().map(|event| (event.kind, event.claim)).collect();
    let expected: Vec<_> = kinds.iter().map(|(kind, n)| (*kind, claim_id(*n))).collect();
    assert_eq!(found, expected);
    for event in events.iter().filter(|event| event.claim == hold.claim) {
        assert_eq!((&event.units, &event.memo), (&vec![1, 2], &hold.memo));
        assert_eq!((event.account, &event.item), (hold.account, &hold.item));
        assert_eq!((event.claimed_at, event.deadline), (hold.claimed_at, hold.deadline));
    }
}

async fn memos_come_back_as_they_were(bench: &Bench) {
    let sale = prepared(bench, 9).await;
    for (n, memo) in ["", "|a|1,2|", "a\nb\r\n\0ü", r#"{"email":"a@b.example"}"#].into_iter().enumerate() {
        let mut claim = claim(u32::try_from(n).unwrap());
        claim.request.memo = memo.into();
        take(bench, &sale, &claim).await;
        bench.store.commit(&sale, claim.request.claim).await.unwrap();
        let hold = bench.store.hold(&sale, claim.request.claim).await.unwrap().unwrap();
        assert_eq!((hold.memo.as_str(), hold.state), (memo, HoldState::Committed));
        assert_eq!(bench.events(&sale).await.last().unwrap().memo, memo);
    }
}

async fn sales_do_not_touch_each_other(bench: &Bench) {
    let one = prepared(bench, 1).await;
    let other = sale("demo-2");
    open(&*bench.store, &other, &[(item("phone"), 1)]).await;
    assert_eq!(take(bench, &one, &claim(1)).await.units, [1]);
    let answer = bench.store.claim(&other, &claim(1)).await.unwrap();
    assert!(matches!(answer, ClaimAnswer::Held { replayed: false, .. }));
    bench.store.commit(&one, claim_id(1)).await.unwrap();
    bench.store.release(&other, claim_id(1)).await.unwrap();
    assert_eq!(phone(bench, &one).await, counts(0, 0, 1));
    assert_eq!(phone(bench, &other).await, counts(1, 0, 0));
    assert_eq!(bench.events(&other).await.len(), 2);
}

async fn any_size_of_claim_and_sale_fits(bench: &Bench) {
    use lockgate_shared::limits::{ITEMS_MAX, QUANTITY_MAX, STOCK_MAX};
    let sale = sale("large");
    let items: Vec<_> =
        (0..ITEMS_MAX).map(|n| (item(&format!("{n}-{}", "i".repeat(60))), STOCK_MAX)).collect();
    open(&*bench.store, &sale, &items).await;
    let mut large = claim(1);
    (large.request.quantity, large.request.item) = (QUANTITY_MAX, items[ITEMS_MAX - 1].0.clone());
    (large.request.memo, large.hold_seconds) = ("m".repeat(crate::app::MEMO_BYTES_MAX), 0);
    let hold = take(bench, &sale, &large).await;
    assert_eq!(hold.units, (1..=QUANTITY_MAX).collect::<Vec<_>>());
    assert_eq!(bench.store.expire(&sale, 256).await.unwrap(), [claim_id(1)]);
    bench.store.release(&sale, claim_id(1)).await.unwrap();
    large.request.claim = claim_id(2);
    assert_eq!(take(bench, &sale, &large).await.units, hold.units);
    let total = bench.store.stock(&sale, Some(u32::MAX)).await.unwrap().total_left;
    assert_eq!(total, Some(u32::MAX - QUANTITY_MAX));
}

/// A claim by account 1 under an admission, in a sale that lets two holds run out; due at once.
fn strict(n: u32, admitted_at: i64) -> Claim {
    let mut claim = claim(n);
    (claim.request.account, claim.request.admitted_at) = (account(1), admitted_at);
    (claim.hold_seconds, claim.limits.abandoned_holds) = (0, Some(2));
    claim
}

async fn holds_that_ran_out_cost_the_admission_its_right(bench: &Bench) {
    let (store, sale) = (&bench.store, prepared(bench, 9).await);
    let ask = async |claim: &Claim| store.claim(&sale, claim).await.unwrap();
    for n in 1..=2 {
        take(bench, &sale, &strict(n, 50)).await;
        assert_eq!(store.expire(&sale, 10).await.unwrap(), [claim_id(n)]);
        store.release(&sale, claim_id(n)).await.unwrap();
        store.release(&sale, claim_id(n)).await.unwrap();
    }
    let refused = ClaimAnswer::LineUpAgain { abandoned: 2 };
    assert_eq!(ask(&strict(3, 50)).await, refused);
    assert!(
        matches!(ask(&strict(2, 50)).await, ClaimAnswer::Held { replayed: true, .. }),
        "known claims stand"
    );
    let mut three = strict(3, 50);
    three.limits.abandoned_holds = Some(3);
    held(ask(&three).await);
    let mut other = strict(4, 50);
    other.request.account = account(2);
    held(ask(&other).await);
    held(ask(&strict(5, 60)).await);
    // Claim 3 belongs to the admission before: it runs out after the account was admitted anew, and costs nothing.
    store.expire(&sale, 10).await.unwrap();
    store.release(&sale, claim_id(5)).await.unwrap();
    store.release(&sale, claim_id(3)).await.unwrap();
    held(ask(&strict(6, 60)).await);
    store.expire(&sale, 10).await.unwrap();
    store.release(&sale, claim_id(6)).await.unwrap();
    assert_eq!(ask(&strict(7, 60)).await, refused);
    let mut gone = strict(8, 60);
    gone.request.quantity = 100;
    assert!(matches!(ask(&gone).await, ClaimAnswer::SoldOut { .. }), "nobody lines up for what is not there");
    let told: Vec<Option<(i64, u32)>> = bench
        .events(&sale)
        .await
        .iter()
        .filter(|event| event.kind == EventKind::Released)
        .map(|event| event.abandoned.map(|Abandoned { admitted_at, holds }| (admitted_at, holds)))
        .collect();
    assert_eq!(told, [Some((50, 1)), Some((50, 2)), Some((60, 1)), None, Some((60, 2))]);
    check_invariant(&**store, &sale, (1..=8).map(claim_id)).await;
}

async fn what_is_paid_or_given_back_in_time_is_not_abandoned(bench: &Bench) {
    let (store, sale) = (&bench.store, prepared(bench, 9).await);
    for n in 1..=3 {
        take(bench, &sale, &Claim { hold_seconds: 3_600, ..strict(n, 50) }).await;
        store.release(&sale, claim_id(n)).await.unwrap();
        take(bench, &sale, &strict(n + 10, 50)).await;
        store.expire(&sale, 10).await.unwrap();
        assert_eq!(store.commit(&sale, claim_id(n + 10)).await.unwrap(), CommitAnswer::Committed);
    }
    // A claim that came without a limit is not counted, whatever the sale allows later.
    for n in 21..=23 {
        let mut free = strict(n, 50);
        free.limits.abandoned_holds = None;
        take(bench, &sale, &free).await;
        store.expire(&sale, 10).await.unwrap();
        store.release(&sale, claim_id(n)).await.unwrap();
    }
    take(bench, &sale, &strict(30, 50)).await;
    assert!(bench.events(&sale).await.iter().all(|event| event.abandoned.is_none()));
}

async fn an_admission_given_up_claims_nothing_new(bench: &Bench) {
    let (store, sale) = (&bench.store, prepared(bench, 2).await);
    let ask = async |claim: &Claim| store.claim(&sale, claim).await.unwrap();
    let by = |n: u32, token: u32| {
        let mut claim = claim(n);
        (claim.request.account, claim.request.token_id) = (account(1), token_id(token));
        claim
    };
    let before = take(bench, &sale, &by(1, 1)).await;
    take(bench, &sale, &by(2, 1)).await;
    for _ in 0..2 {
        assert_eq!(store.forfeit(&sale, &token_id(1)).await.unwrap(), ForfeitAnswer::Forfeited);
    }
    let told = bench.events(&sale).await.len();
    // Nothing is left of the item: what was given up is said first, and refusals of the sale before that.
    assert_eq!(ask(&by(3, 1)).await, ClaimAnswer::Forfeited);
    let mut wrong = by(3, 1);
    wrong.request.item = item("no-such");
    assert_eq!(ask(&wrong).await, ClaimAnswer::Forfeited);
    wrong.refusal = Some(Refusal::Revoked);
    assert_eq!(ask(&wrong).await, ClaimAnswer::Revoked);
    let replayed = ClaimAnswer::Held { hold: before, replayed: true };
    assert_eq!(ask(&by(1, 1)).await, replayed, "what was claimed before stands");
    assert_eq!(store.commit(&sale, claim_id(1)).await.unwrap(), CommitAnswer::Committed);
    assert_eq!(store.release(&sale, claim_id(2)).await.unwrap(), ReleaseAnswer::Released);
    assert_eq!(ask(&by(3, 1)).await, ClaimAnswer::Forfeited);
    let other = super::testbed::sale("other");
    open(&**store, &other, &[(item("phone"), 1)]).await;
    assert!(
        matches!(store.claim(&other, &by(3, 1)).await.unwrap(), ClaimAnswer::Held { .. }),
        "another sale"
    );
    // A refused claim may be made by the account's next admission, under the same id.
    assert_eq!(take(bench, &sale, &by(3, 2)).await.units, [2]);
    assert_eq!(store.forfeit(&sale, &token_id(3)).await.unwrap(), ForfeitAnswer::Forfeited, "one never seen");
    assert_eq!(ask(&by(4, 3)).await, ClaimAnswer::Forfeited);
    assert_eq!(bench.events(&sale).await.len(), told + 3, "giving up is no event");
    check_invariant(&**store, &sale, (1..=4).map(claim_id)).await;
}
