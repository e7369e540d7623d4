//! Freeze, conclude and restock as a gate process does them: against a catalog that others change, that is behind, or that
//! has lost a sale.

use std::sync::Arc;

use lockgate_shared::{
    catalog::{Catalog, MemoryCatalog},
    gate::{
        ConcludeAnswer, ConcludeRequest, Freeze, FreezeAnswer, FreezeRequest, GateError, RestockAnswer,
        RestockRequest, ledger::Ledger,
    },
    sale::{EXAMPLE_TOML, parse_toml},
};
use redis::cmd;
use uuid::Uuid;

use crate::{
    store::{Restocking, testbed::Bench},
    testbed::{Gate, just_opened},
};

/// Two gate processes over one store and one catalog, the second of which does not look at it by itself.
async fn two_gates(bench: &Bench) -> (Gate, Gate) {
    let (rows, clock) = (Arc::new(MemoryCatalog::default()), just_opened());
    let catalog = || Arc::new(Catalog::new(Arc::<MemoryCatalog>::clone(&rows), Arc::new(clock.clone())));
    let (one, two) = (catalog(), catalog());
    one.apply(parse_toml("example", EXAMPLE_TOML).unwrap(), None).await.unwrap();
    two.refresh().await.unwrap();
    let gate = |catalog| Gate::with(Arc::clone(&bench.store), catalog, clock.clone());
    let (one, two) = (gate(one), gate(two));
    one.open().await;
    two.catalog.refresh().await.unwrap();
    (one, two)
}

fn change(n: u128, change: i64) -> RestockRequest {
    RestockRequest { id: Uuid::from_u128(n), item: "phone-black".parse().unwrap(), change }
}

async fn frozen(gate: &Gate) -> Freeze {
    let request = FreezeRequest { if_generation: None, why: "a test".into() };
    match gate.client().freeze(&gate.sale, &request).await.unwrap() {
        FreezeAnswer::Frozen(freeze) => freeze,
        other => panic!("{other:?}"),
    }
}

/// A stock without holds, of so many black phones.
async fn conclude(gate: &Gate, freeze: Freeze, stock: u32) -> ConcludeAnswer {
    let definition = &gate.catalog.sale(&gate.sale).unwrap().definition;
    let mut items: Vec<_> = definition.items.iter().map(|item| (item.item.clone(), item.stock)).collect();
    items[0].1 = stock;
    let request = ConcludeRequest::of(freeze, Uuid::nil(), 0, &Ledger::of([], &items));
    gate.client().conclude(&gate.sale, &request).await.unwrap()
}

fn defined(gate: &Gate) -> u32 {
    gate.catalog.sale(&gate.sale).unwrap().definition.items[0].stock
}

#[tokio::test]
async fn h2_a_stock_counted_from_an_older_definition_is_not_concluded() {
    let bench = Bench::redis().await;
    let (one, two) = two_gates(&bench).await;
    one.client().restock(&one.sale, &change(1, 5)).await.unwrap();
    let freeze = frozen(&one).await;
    assert_eq!(conclude(&two, freeze, 1_000).await, ConcludeAnswer::Incomplete, "5 were added");
    assert_eq!(conclude(&two, freeze, 1_005).await, ConcludeAnswer::Reopened { generation: 2 });
    assert_eq!(one.client().stock(&one.sale).await.unwrap().items[0].stock, 1_005);
}

#[tokio::test]
async fn h3_a_change_that_was_cut_before_the_definition_said_so_is_rebuilt_and_its_repetition_is_true() {
    let bench = Bench::redis().await;
    let (one, two) = two_gates(&bench).await;
    let cut = Restocking { request: change(1, 5), is_defined: false, total_limit: None };
    bench.store.restock(&one.sale, &cut).await.unwrap();
    assert_eq!(defined(&one), 1_000, "its process was killed here");
    let freeze = frozen(&one).await;
    assert_eq!(defined(&one), 1_005);
    assert_eq!(conclude(&two, freeze, 1_005).await, ConcludeAnswer::Reopened { generation: 2 });
    for gate in [&two, &one] {
        let again = gate.client().restock(&gate.sale, &cut.request).await.unwrap();
        let RestockAnswer::Changed { counts, replayed: true } = again else { panic!("{again:?}") };
        assert_eq!((counts.stock, defined(gate)), (1_005, 1_005));
    }
    // A store that forgot it, with everything else, is rebuilt with it, and does not make it again.
    let (_, link) = bench.redis.as_ref().unwrap();
    link.command::<String>("test", &cmd("FLUSHALL")).await.unwrap();
    let freeze = frozen(&two).await;
    conclude(&two, freeze, 1_005).await;
    let again = two.client().restock(&two.sale, &cut.request).await.unwrap();
    assert!(matches!(again, RestockAnswer::Changed { replayed: true, .. }), "{again:?}");
    assert_eq!(two.client().stock(&two.sale).await.unwrap().items[0].stock, 1_005);
}

#[tokio::test]
async fn h4_a_withdrawal_that_was_made_is_finished_whatever_the_sale_wide_limit_says_by_then() {
    let bench = Bench::redis().await;
    let (one, two) = two_gates(&bench).await;
    // 1,700 units, of which 1,500 are sold. Two withdraw at once, before there was a limit; the first is written down.
    let cut = |n| Restocking { request: change(n, -150), is_defined: false, total_limit: None };
    for n in 1..=2 {
        bench.store.restock(&one.sale, &cut(n)).await.unwrap();
    }
    for n in [1, 2, 2] {
        let made = two.client().restock(&two.sale, &change(n, -150)).await.unwrap();
        assert!(matches!(made, RestockAnswer::Changed { .. }), "{made:?}");
    }
    let definition = two.catalog.sale(&two.sale).unwrap().definition.clone();
    assert_eq!((definition.items[0].stock, definition.total_limit), (700, Some(1_400)));
    let refused = one.client().restock(&one.sale, &change(3, -1)).await.unwrap();
    assert_eq!(refused, RestockAnswer::BelowTotalLimit { limit: 1_400, total: 1_399 });
}

#[tokio::test]
async fn m2_a_stock_whose_catalog_was_lost_is_not_opened_by_an_older_file() {
    let bench = Bench::redis().await;
    let (one, _) = two_gates(&bench).await;
    one.client().restock(&one.sale, &change(1, 5)).await.unwrap();
    let again = Gate::over(Arc::clone(&bench.store)).await;
    let request = FreezeRequest { if_generation: Some(0), why: "a new sale".into() };
    let answer = again.client().freeze(&again.sale, &request).await.unwrap();
    let FreezeAnswer::Frozen(freeze) = answer else { panic!("{answer:?}") };
    assert_eq!((freeze.generation, defined(&again)), (1, 1_000), "the file says how many there are");
    assert_eq!(conclude(&again, freeze, 1_000).await, ConcludeAnswer::Reopened { generation: 2 });
    assert_eq!(again.client().stock(&again.sale).await.unwrap().items[0].stock, 1_000);
    let freeze = frozen(&again).await;
    assert_eq!((freeze.generation, defined(&again)), (2, 1_000), "what the file may include is not added");
}

#[tokio::test]
async fn an_item_that_the_store_lost_closes_the_sale_and_is_not_unknown() {
    let bench = Bench::redis().await;
    let (gate, _) = two_gates(&bench).await;
    let (_, link) = bench.redis.as_ref().unwrap();
    let mut lose = cmd("HDEL");
    lose.arg(format!("t:{{{}}}:stock", gate.sale)).arg("place:phone-black");
    link.command::<u32>("test", &lose).await.unwrap();
    let claimed = gate.client().claim(&gate.sale, &gate.claim(1)).await;
    assert!(matches!(claimed, Err(GateError::Frozen(1))), "{claimed:?}");
    let changed = gate.client().restock(&gate.sale, &change(1, 5)).await;
    assert!(matches!(changed, Err(GateError::Frozen(1))), "{changed:?}");
    let mut odd = change(2, 5);
    odd.item = "no-such".parse().unwrap();
    assert_eq!(gate.client().restock(&gate.sale, &odd).await.unwrap(), RestockAnswer::NoSuchItem);
}
