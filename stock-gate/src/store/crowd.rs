//! Many at once, on both back ends.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::join_all;
use lockgate_shared::gate::{ClaimAnswer, ReleaseAnswer};

use super::{
    Claim,
    testbed::{Bench, check_invariant, claim, claim_id, held, item, open, sale},
};

async fn five_hundred_accounts_for_fifty_units(bench: Bench) {
    let (store, sale) = (&bench.store, sale("rush"));
    open(&**store, &sale, &[(item("phone"), 50)]).await;
    // Everybody asks twice at the same moment with the same claim id, as impatient clients do.
    let ask = |n: u32| {
        let (store, sale) = (Arc::clone(store), sale.clone());
        tokio::spawn(async move {
            let mut made = claim(n);
            made.limits.per_account = 1;
            let (one, two) = tokio::join!(store.claim(&sale, &made), store.claim(&sale, &made));
            (one.unwrap(), two.unwrap())
        })
    };
    let answers = join_all((1..=500).map(ask)).await;
    let mut units = Vec::new();
    for (one, two) in answers.into_iter().map(Result::unwrap) {
        match (one, two) {
            (
                ClaimAnswer::Held { hold, replayed },
                ClaimAnswer::Held { hold: again, replayed: replayed_again },
            ) => {
                assert_eq!(hold, again, "one claim, one hold");
                assert_ne!(replayed, replayed_again, "exactly one of the two made it");
                units.extend(hold.units);
            }
            (one, two) => {
                assert_eq!(one, ClaimAnswer::SoldOut { may_return: true });
                assert_eq!(two, one);
            }
        }
    }
    units.sort_unstable();
    assert_eq!(units, (1..=50).collect::<Vec<u32>>());
    let snapshot = check_invariant(&**store, &sale, (1..=500).map(claim_id)).await;
    assert_eq!((snapshot.items[0].available, snapshot.items[0].held), (0, 50));
    assert_eq!(snapshot.claimants.iter().collect::<BTreeSet<_>>().len(), 50);
    assert_eq!(bench.events(&sale).await.len(), 50);
    h3_units_of_unpaid_holds_go_to_others(&bench).await;
}

async fn h3_units_of_unpaid_holds_go_to_others(bench: &Bench) {
    let (store, sale) = (&bench.store, sale("second"));
    open(&**store, &sale, &[(item("phone"), 20)]).await;
    for n in 1..=20 {
        let due = Claim { hold_seconds: 0, ..claim(n) };
        store.claim(&sale, &due).await.unwrap();
    }
    let marked = store.expire(&sale, 100).await.unwrap();
    assert_eq!(marked.len(), 20);
    let released = join_all(marked.iter().map(|claim| store.release(&sale, *claim))).await;
    assert!(released.into_iter().all(|answer| answer.unwrap() == ReleaseAnswer::Released));
    let claims: Vec<Claim> = (101..=130).map(claim).collect();
    let answers = join_all(claims.iter().map(|claim| store.claim(&sale, claim))).await;
    let mut units: Vec<u32> = answers
        .into_iter()
        .map(Result::unwrap)
        .filter(|answer| matches!(answer, ClaimAnswer::Held { .. }))
        .flat_map(|answer| held(answer).units)
        .collect();
    units.sort_unstable();
    assert_eq!(units, (1..=20).collect::<Vec<u32>>());
    check_invariant(&**store, &sale, (1..=130).map(claim_id)).await;
}

async fn commits_releases_and_sweeps_race(bench: Bench) {
    let (store, sale) = (&bench.store, sale("race"));
    open(&**store, &sale, &[(item("phone"), 30)]).await;
    let live = |n: u32| {
        let (store, sale) = (Arc::clone(store), sale.clone());
        tokio::spawn(async move {
            let due = Claim { hold_seconds: 0, ..claim(n) };
            store.claim(&sale, &due).await.unwrap();
            let id = claim_id(n);
            let (swept, committed, released) =
                tokio::join!(store.expire(&sale, 3), store.commit(&sale, id), store.release(&sale, id));
            assert!(swept.is_ok() && committed.is_ok() && released.is_ok());
            if n.is_multiple_of(3) {
                store.release(&sale, id).await.unwrap();
            }
        })
    };
    for ended in join_all((1..=200).map(live)).await {
        ended.unwrap();
    }
    let snapshot = check_invariant(&**store, &sale, (1..=200).map(claim_id)).await;
    assert_eq!(snapshot.items[0].held, 0, "commit and release race, and one of them ends each hold");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_accounts_for_fifty_units_on_sqlite() {
    five_hundred_accounts_for_fifty_units(Bench::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_accounts_for_fifty_units_on_redis() {
    five_hundred_accounts_for_fifty_units(Bench::redis().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_releases_and_sweeps_race_on_sqlite() {
    commits_releases_and_sweeps_race(Bench::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_releases_and_sweeps_race_on_redis() {
    commits_releases_and_sweeps_race(Bench::redis().await).await;
}
