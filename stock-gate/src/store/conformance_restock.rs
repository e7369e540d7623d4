//! Changed stock, and the limit on live holds: one behaviour for every back end.

use lockgate_shared::{
    gate::{ClaimAnswer, ItemStock, RestockAnswer, RestockRequest},
    ids::SaleId,
    limits::{RESTOCKS_MAX, STOCK_MAX},
    store::Effect,
};
use uuid::Uuid;

use super::{
    Restocking,
    testbed::{
        Bench, account, check_invariant, claim, claim_id, conformance, freeze, item, open, rebuild, sale,
        stamp, take,
    },
};

conformance! {
    added_units_are_sold_under_new_numbers
    withdrawn_are_free_units_only_and_never_more
    a_change_is_made_once_for_each_id
    h3_what_was_made_before_is_known_to_store_or_definition_and_outlives_a_rebuild
    h4_units_below_the_sale_wide_limit_stay_and_a_known_change_is_answered_first
    a_stock_is_changed_so_many_times
    live_holds_are_limited_until_they_are_paid_or_given_back
}

fn change(n: u128, change: i64) -> RestockRequest {
    RestockRequest { id: Uuid::from_u128(n), item: item("phone"), change }
}

async fn restock(bench: &Bench, sale: &SaleId, request: &RestockRequest) -> RestockAnswer {
    bench.store.restock(sale, &asked(request)).await.unwrap()
}

fn asked(request: &RestockRequest) -> Restocking {
    Restocking { request: request.clone(), is_defined: false, total_limit: None }
}

fn counts(available: u32, held: u32, sold: u32) -> ItemStock {
    ItemStock { item: item("phone"), stock: available + held + sold, available, held, sold }
}

fn changed(counts: ItemStock) -> RestockAnswer {
    RestockAnswer::Changed { counts, replayed: false }
}

async fn prepared(bench: &Bench, stock: u32) -> SaleId {
    let sale = sale("demo");
    open(&*bench.store, &sale, &[(item("phone"), stock), (item("case"), 5)]).await;
    sale
}

async fn added_units_are_sold_under_new_numbers(bench: &Bench) {
    let sale = sale("demo");
    let early = bench.store.restock(&sale, &asked(&change(1, 1))).await;
    assert_eq!(early.unwrap_err().effect, Effect::None, "h7: no stock is there yet");
    let sale = prepared(bench, 2).await;
    for n in 1..=2 {
        take(bench, &sale, &claim(n)).await;
    }
    let sold_out = bench.store.claim(&sale, &claim(3)).await.unwrap();
    assert_eq!(sold_out, ClaimAnswer::SoldOut { may_return: true });
    assert_eq!(restock(bench, &sale, &change(1, 2)).await, changed(counts(2, 2, 0)));
    let mut two = claim(3);
    two.request.quantity = 2;
    assert_eq!(take(bench, &sale, &two).await.units, [3, 4], "a sold-out sale goes on");
    let mut odd = change(2, 1);
    odd.item = item("no-such");
    assert_eq!(restock(bench, &sale, &odd).await, RestockAnswer::NoSuchItem);
    check_invariant(&*bench.store, &sale, (1..=3).map(claim_id)).await;
}

async fn withdrawn_are_free_units_only_and_never_more(bench: &Bench) {
    let sale = prepared(bench, 6).await;
    for n in 1..=4 {
        take(bench, &sale, &claim(n)).await;
    }
    bench.store.commit(&sale, claim_id(1)).await.unwrap();
    for n in 2..=3 {
        bench.store.release(&sale, claim_id(n)).await.unwrap();
    }
    // 1 is sold, 4 is held; 2 and 3 came back, 5 and 6 were never given.
    let too_many = restock(bench, &sale, &change(1, -5)).await;
    assert_eq!(too_many, RestockAnswer::Taken { counts: counts(4, 1, 1), least: 2 });
    assert_eq!(restock(bench, &sale, &change(2, -3)).await, changed(counts(1, 1, 1)));
    assert_eq!(take(bench, &sale, &claim(5)).await.units, [2], "3 was withdrawn with 5 and 6");
    assert!(matches!(bench.store.claim(&sale, &claim(6)).await.unwrap(), ClaimAnswer::SoldOut { .. }));
    assert_eq!(restock(bench, &sale, &change(3, 1)).await, changed(counts(1, 2, 1)));
    assert_eq!(take(bench, &sale, &claim(6)).await.units, [5], "above every number that was ever given");
    let full = restock(bench, &sale, &change(4, i64::from(STOCK_MAX))).await;
    assert_eq!(full, RestockAnswer::TooMany { counts: counts(0, 3, 1), most: STOCK_MAX });
    check_invariant(&*bench.store, &sale, (1..=6).map(claim_id)).await;
    let mut rest = change(5, -5);
    rest.item = item("case");
    let last = restock(bench, &sale, &rest).await;
    assert!(matches!(last, RestockAnswer::Taken { least: 1, .. }), "one unit stays: {last:?}");
}

async fn a_change_is_made_once_for_each_id(bench: &Bench) {
    let sale = prepared(bench, 2).await;
    assert_eq!(restock(bench, &sale, &change(1, 3)).await, changed(counts(5, 0, 0)));
    take(bench, &sale, &claim(1)).await;
    let again = restock(bench, &sale, &change(1, 3)).await;
    assert_eq!(again, RestockAnswer::Changed { counts: counts(4, 1, 0), replayed: true });
    assert_eq!(restock(bench, &sale, &change(1, 4)).await, RestockAnswer::Mismatch);
    let mut other = change(1, 3);
    other.item = item("case");
    assert_eq!(restock(bench, &sale, &other).await, RestockAnswer::Mismatch);
}

async fn h3_what_was_made_before_is_known_to_store_or_definition_and_outlives_a_rebuild(bench: &Bench) {
    let sale = prepared(bench, 2).await;
    assert_eq!(bench.store.restocks(&sale).await.unwrap(), []);
    let (one, two) = (change(1, 3), change(2, -1));
    restock(bench, &sale, &one).await;
    restock(bench, &sale, &two).await;
    freeze(&*bench.store, &sale).await;
    let made = async || {
        let mut made = bench.store.restocks(&sale).await.unwrap();
        made.sort_by_key(|request| request.id);
        made
    };
    assert_eq!(made().await, [one.clone(), two.clone()], "also while it is frozen");
    rebuild(&*bench.store, &sale, &[(item("phone"), 4), (item("case"), 5)]).await;
    assert_eq!(made().await, [one, two]);
    let lost = Restocking { request: change(3, 5), is_defined: true, total_limit: None };
    let answer = bench.store.restock(&sale, &lost).await.unwrap();
    assert_eq!(answer, RestockAnswer::Changed { counts: counts(4, 0, 0), replayed: true });
    assert_eq!(bench.store.restocks(&super::testbed::sale("elsewhere")).await.unwrap(), []);
}

async fn h4_units_below_the_sale_wide_limit_stay_and_a_known_change_is_answered_first(bench: &Bench) {
    let sale = prepared(bench, 6).await;
    let limited = async |n, units, limit| {
        let change = Restocking { request: change(n, units), is_defined: false, total_limit: Some(limit) };
        bench.store.restock(&sale, &change).await.unwrap()
    };
    // 5 cases count too.
    assert_eq!(limited(1, -3, 9).await, RestockAnswer::BelowTotalLimit { limit: 9, total: 8 });
    assert_eq!(limited(2, -2, 9).await, changed(counts(4, 0, 0)));
    assert_eq!(limited(3, -1, 9).await, RestockAnswer::BelowTotalLimit { limit: 9, total: 8 });
    let again = RestockAnswer::Changed { counts: counts(4, 0, 0), replayed: true };
    assert_eq!(limited(2, -2, 9).await, again, "whatever the limit says by now");
    assert_eq!(limited(4, 1, 30).await, changed(counts(5, 0, 0)), "adding is never too few");
}

async fn a_stock_is_changed_so_many_times(bench: &Bench) {
    let sale = prepared(bench, 2).await;
    let most = RESTOCKS_MAX;
    for n in 0..most as u128 {
        let word = restock(bench, &sale, &change(n, if n % 2 == 0 { 1 } else { -1 })).await;
        assert!(matches!(word, RestockAnswer::Changed { replayed: false, .. }), "{word:?}");
    }
    assert_eq!(restock(bench, &sale, &change(9_999, 1)).await, RestockAnswer::TooManyChanges { most });
    assert_eq!(check_invariant(&*bench.store, &sale, []).await.items[0], counts(2, 0, 0));
}

async fn live_holds_are_limited_until_they_are_paid_or_given_back(bench: &Bench) {
    let sale = prepared(bench, 9).await;
    let ask = |n| {
        let mut made = claim(n);
        made.limits.live_holds = Some(2);
        made.request.account = account(1);
        made
    };
    let refused = async |n, live| {
        let answer = bench.store.claim(&sale, &ask(n)).await.unwrap();
        assert_eq!(answer, ClaimAnswer::LiveHoldsReached { limit: 2, live });
    };
    let mut short = ask(1);
    short.hold_seconds = 0;
    take(bench, &sale, &short).await;
    take(bench, &sale, &ask(2)).await;
    refused(3, 2).await;
    assert_eq!(bench.store.expire(&sale, 9).await.unwrap(), [claim_id(1)]);
    refused(3, 2).await;
    bench.store.release(&sale, claim_id(1)).await.unwrap();
    take(bench, &sale, &ask(3)).await;
    refused(4, 2).await;
    bench.store.commit(&sale, claim_id(2)).await.unwrap();
    take(bench, &sale, &ask(4)).await;
    take(bench, &sale, &claim(5)).await;
    bench.store.commit(&sale, claim_id(2)).await.unwrap();
    refused(6, 2).await;
    let mut free = claim(6);
    free.request.account = account(1);
    take(bench, &sale, &free).await;
    refused(7, 3).await;
}
