//! Replicas that must have a claim before it is answered.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::join_all;
use lockgate_shared::{
    gate::{ClaimAnswer, CommitAnswer, HoldState, ReleaseAnswer},
    ids::SaleId,
    store::{Effect, StoreError},
    testing::{PrivateCluster, PrivateRedis, PrivateSentinels, eventually},
};

use super::{RedisSettings, servers::proxy};
use crate::stock::Limits;
use crate::store::{
    Claim,
    testbed::{Bench, check_invariant, claim, claim_id, freeze_order, item, open, sale, take, token_id},
};

const ONE_REPLICA: RedisSettings = RedisSettings { replicas_required: 1, restart_freezes: false };
const NONE: RedisSettings = RedisSettings { replicas_required: 0, ..ONE_REPLICA };

/// Starts its replicas at once, not after the five seconds in which others might ask too.
async fn master() -> PrivateRedis {
    let synced = ["--appendonly", "yes", "--appendfsync", "always"];
    PrivateRedis::start_with(&[&synced[..], &["--repl-diskless-sync-delay", "0"]].concat()).await
}

async fn replica_of(master: &PrivateRedis) -> PrivateRedis {
    let port = master.port().to_string();
    let synced = ["--appendonly", "yes", "--appendfsync", "always"];
    PrivateRedis::start_with(&[&synced[..], &["--replicaof", "127.0.0.1", &port]].concat()).await
}

async fn prepared(bench: &Bench, stock: u32) -> SaleId {
    let sale = sale("demo");
    eventually("the replica is connected", 20, async || {
        bench.store.freeze(&sale, &freeze_order(77)).await.is_ok()
    })
    .await;
    open(&*bench.store, &sale, &[(item("phone"), stock)]).await;
    sale
}

/// Refused before anything was written, because too few replicas are connected.
async fn is_refused(bench: &Bench, sale: &SaleId, n: u32) -> bool {
    match bench.store.claim(sale, &claim(n)).await {
        Err(error) => error.effect == Effect::None && error.to_string().contains("0 replicas are connected"),
        Ok(_) => false,
    }
}

#[tokio::test]
async fn what_no_replica_acknowledges_is_unknown_also_when_it_is_asked_again() {
    let master = master().await;
    let replica = replica_of(&master).await;
    let (bench, _) = Bench::on(master.url(), "t:", ONE_REPLICA).await;
    let sale = prepared(&bench, 9).await;
    for n in 1..=3 {
        take(&bench, &sale, &claim(n)).await;
    }
    assert_eq!(bench.store.commit(&sale, claim_id(2)).await.unwrap(), CommitAnswer::Committed);
    replica.freeze();
    let lost = bench.store.claim(&sale, &claim(4)).await.unwrap_err();
    assert_eq!(lost.effect, Effect::Unknown, "{lost}");
    assert!(lost.to_string().contains("fewer than 1 replicas acknowledged"), "{lost}");
    // By a fresh connection, which has written nothing that it could wait for.
    let (other, _) = Bench::on(master.url(), "t:", ONE_REPLICA).await;
    assert_eq!(other.store.claim(&sale, &claim(4)).await.unwrap_err().effect, Effect::Unknown);
    assert_eq!(other.store.commit(&sale, claim_id(2)).await.unwrap_err().effect, Effect::Unknown);
    assert_eq!(other.store.release(&sale, claim_id(3)).await.unwrap_err().effect, Effect::Unknown);
    assert_eq!(other.store.release(&sale, claim_id(3)).await.unwrap_err().effect, Effect::Unknown);
    assert_eq!(other.store.forfeit(&sale, &token_id(5)).await.unwrap_err().effect, Effect::Unknown);
    // Also a refused reclaim, by which money goes back.
    for n in [2, 3, 3] {
        let limits = Limits { total: Some(0), ..claim(n).limits };
        let lost = other.store.reclaim(&sale, claim_id(n), &limits).await;
        assert_eq!(lost.unwrap_err().effect, Effect::Unknown);
    }
    // Refusals and what changes nothing promise nothing.
    assert_eq!(other.store.commit(&sale, claim_id(8)).await.unwrap(), CommitAnswer::NoSuchClaim);
    assert_eq!(other.store.expire(&sale, 10).await.unwrap(), []);
    replica.thaw();
    eventually("the replica has caught up", 10, async || {
        matches!(bench.store.claim(&sale, &claim(4)).await, Ok(ClaimAnswer::Held { replayed: true, .. }))
    })
    .await;
    assert_eq!(bench.store.release(&sale, claim_id(3)).await.unwrap(), ReleaseAnswer::Released);
    let snapshot = check_invariant(&*bench.store, &sale, (1..=9).map(claim_id)).await;
    assert_eq!((snapshot.items[0].held, snapshot.items[0].sold), (2, 1));
}

#[tokio::test]
async fn without_its_replicas_a_master_takes_no_claim() {
    let master = master().await;
    let mut replica = replica_of(&master).await;
    let (bench, _) = Bench::on(master.url(), "t:", ONE_REPLICA).await;
    let sale = prepared(&bench, 9).await;
    take(&bench, &sale, &claim(1)).await;
    replica.kill();
    eventually("the gate sees that the replica is gone", 20, async || is_refused(&bench, &sale, 2).await)
        .await;
    let (free, _) = Bench::on(master.url(), "t:", NONE).await;
    assert!(free.store.hold(&sale, claim_id(9)).await.unwrap().is_none());
    replica.restart().await;
    eventually("claims go on", 20, async || bench.store.claim(&sale, &claim(2)).await.is_ok()).await;
}

type Outcomes = Vec<(Claim, Result<ClaimAnswer, StoreError>)>;

/// The next fifty claims, all at once.
async fn fifty(bench: &Bench, sale: &SaleId, outcomes: &mut Outcomes) {
    let before = u32::try_from(outcomes.len()).unwrap();
    let claims: Vec<Claim> = (1..=50).map(|n| claim(before + n)).collect();
    let answers = join_all(claims.iter().map(|claim| bench.store.claim(sale, claim))).await;
    outcomes.extend(claims.into_iter().zip(answers));
}

/// What was answered stands on the promoted server, and what is unknown settles there. How many were held, unknown,
/// untouched.
async fn settle(after: &Bench, sale: &SaleId, outcomes: &Outcomes) -> [usize; 3] {
    let mut counts = [0, 0, 0];
    for (asked, answer) in outcomes {
        let claim = asked.request.claim;
        match answer {
            Ok(ClaimAnswer::Held { hold, .. }) => {
                counts[0] += 1;
                assert_eq!(after.store.hold(sale, claim).await.unwrap().as_ref(), Some(hold));
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) if error.effect == Effect::Unknown => {
                counts[1] += 1;
                let settled = take(after, sale, asked).await;
                assert_eq!(settled.state, HoldState::Held);
                assert_eq!(take(after, sale, asked).await, settled, "settled once");
            }
            Err(_) => counts[2] += 1,
        }
    }
    let ids = outcomes.iter().map(|(asked, _)| asked.request.claim);
    check_invariant(&*after.store, sale, ids).await;
    counts
}

#[tokio::test]
async fn h6_master_frozen_then_killed_and_its_replica_promoted_loses_no_acknowledged_claim() {
    let mut master = master().await;
    let replica = replica_of(&master).await;
    let sentinels = PrivateSentinels::watch(&master).await;
    let (bench, _) = Bench::on(&sentinels.url(), "t:", ONE_REPLICA).await;
    let sale = prepared(&bench, 5_000).await;
    let mut outcomes = Outcomes::new();
    for batch in 0..6 {
        if batch == 3 {
            master.freeze();
        }
        fifty(&bench, &sale, &mut outcomes).await;
    }
    master.kill();
    sentinels.name(replica.port()).await;
    let (after, _) = Bench::on(&sentinels.url(), "t:", NONE).await;
    let counts = settle(&after, &sale, &outcomes).await;
    assert!(counts[0] >= 150 && counts[1] >= 1, "{counts:?}");
    eventually("the promoted server has no replica, and one is required", 20, async || {
        is_refused(&bench, &sale, 9_999).await
    })
    .await;
}

#[tokio::test]
async fn h6_what_had_not_reached_the_promoted_replica_was_never_answered() {
    let mut master = master().await;
    let (cut, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let port = proxy(master.port(), Arc::clone(&cut), Arc::clone(&done)).await.to_string();
    let replica = PrivateRedis::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    let (bench, _) = Bench::on(master.url(), "t:", ONE_REPLICA).await;
    let sale = prepared(&bench, 5_000).await;
    let mut outcomes = Outcomes::new();
    fifty(&bench, &sale, &mut outcomes).await;
    // The replica's connection stays open while nothing passes: the master goes on alone.
    cut.store(1, Ordering::SeqCst);
    eventually("the replica is cut off", 5, async || done.load(Ordering::SeqCst) == 1).await;
    fifty(&bench, &sale, &mut outcomes).await;
    let (alone, _) = Bench::on(master.url(), "t:", NONE).await;
    assert_eq!(alone.store.stock(&sale, None).await.unwrap().items[0].held, 100, "the master has all");
    master.freeze();
    fifty(&bench, &sale, &mut outcomes).await;
    master.kill();
    let (after, link) = Bench::on(replica.url(), "t:", NONE).await;
    let mut promote = redis::cmd("REPLICAOF");
    promote.arg("NO").arg("ONE");
    link.command::<()>("test", &promote).await.unwrap();
    assert_eq!(after.store.stock(&sale, None).await.unwrap().items[0].held, 50, "the promoted one half");
    let counts = settle(&after, &sale, &outcomes).await;
    assert_eq!((counts[0], counts[1] >= 50), (50, true), "{counts:?}");
}

#[tokio::test]
async fn h6_a_node_of_a_cluster_dies_and_its_promoted_replica_knows_every_acknowledged_claim() {
    let mut cluster = PrivateCluster::start().await;
    let (_replica, owner) = cluster.replica_for("t:{demo}:stock").await;
    let (bench, _) = Bench::on(&cluster.url(), "t:", ONE_REPLICA).await;
    let sale = prepared(&bench, 5_000).await;
    let mut outcomes = Outcomes::new();
    for batch in 0..4 {
        if batch == 2 {
            cluster.nodes()[owner].freeze();
        }
        fifty(&bench, &sale, &mut outcomes).await;
    }
    cluster.kill(owner);
    // The node that was killed may be one of the two that the address names.
    let (after, _) = Bench::on(&cluster.url(), "t:", NONE).await;
    eventually("the promoted replica takes claims, and every connection knows it", 30, async || {
        after.store.claim(&sale, &claim(9_999)).await.is_ok()
            && after.store.hold(&sale, claim_id(1)).await.is_ok()
    })
    .await;
    outcomes.push((claim(9_999), after.store.claim(&sale, &claim(9_999)).await));
    let counts = settle(&after, &sale, &outcomes).await;
    assert!(counts[0] >= 101 && counts[1] >= 1, "{counts:?}");
}
