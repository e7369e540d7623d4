//! What Redis does to us: broken keys, lost keys, refusals, lost replies. The gate never writes half a step, never
//! says "sold out" and never opens a fresh stock.

use std::{collections::BTreeMap, process::Command, time::Duration};

use lockgate_shared::{
    gate::{ClaimAnswer, CommitAnswer, FreezeAnswer, ReleaseAnswer},
    ids::SaleId,
    store::{Effect, StoreError, redis::RedisLink},
    testing::{PrivateRedis, eventually},
};
use redis::cmd;

use crate::store::{
    Claim, FreezeOrder,
    testbed::{
        Bench, check_invariant, claim, claim_id, freeze_order, item, open, rebuild, sale, take, token_id,
    },
};

const KEYS: [&str; 6] = ["stock", "holds", "due", "accounts", "events", "returned"];

fn key(name: &str) -> String {
    format!("t:{{demo}}:{name}")
}

fn server(bench: &Bench) -> (&PrivateRedis, &RedisLink) {
    let (server, link) = bench.redis.as_ref().unwrap();
    (server, link)
}

async fn say(bench: &Bench, words: &[&str]) -> redis::Value {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    server(bench).1.command("test", &command).await.unwrap()
}

/// Every key with its bytes.
async fn everything(bench: &Bench) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let keys: Vec<String> = server(bench).1.command("test", cmd("KEYS").arg("*")).await.unwrap();
    for key in keys {
        let bytes: Vec<u8> = server(bench).1.command("test", cmd("DUMP").arg(&key)).await.unwrap();
        all.insert(key, bytes);
    }
    all
}

/// A sale of four phones: unit 1 came back, unit 2 is held and due (claim 2), unit 3 is held (claim 3).
async fn running(bench: &Bench) -> SaleId {
    let sale = sale("demo");
    open(&*bench.store, &sale, &[(item("phone"), 4)]).await;
    for n in 1..=3 {
        let due = Claim { hold_seconds: if n == 3 { 3_600 } else { 0 }, ..claim(n) };
        take(bench, &sale, &due).await;
    }
    bench.store.release(&sale, claim_id(1)).await.unwrap();
    sale
}

/// Every writing verb where it would write, and what it said.
async fn every_write(bench: &Bench, sale: &SaleId) -> [Result<(), StoreError>; 6] {
    let [claimed, committed, released, expired, reclaimed] = every_append(bench, sale).await;
    let forfeited = bench.store.forfeit(sale, &token_id(3)).await.map(drop);
    [claimed, committed, released, expired, reclaimed, forfeited]
}

/// Those that append an event.
async fn every_append(bench: &Bench, sale: &SaleId) -> [Result<(), StoreError>; 5] {
    let mut two = claim(9);
    two.request.quantity = 2;
    let claimed = bench.store.claim(sale, &two).await.map(drop);
    let [committed, released, expired] = every_ending(bench, sale).await;
    let reclaimed = bench.store.reclaim(sale, claim_id(1), &claim(1).limits).await.map(drop);
    [claimed, committed, released, expired, reclaimed]
}

async fn every_ending(bench: &Bench, sale: &SaleId) -> [Result<(), StoreError>; 3] {
    [
        bench.store.commit(sale, claim_id(3)).await.map(drop),
        bench.store.release(sale, claim_id(2)).await.map(drop),
        bench.store.expire(sale, 10).await.map(drop),
    ]
}

#[tokio::test]
async fn h5_a_key_of_another_type_stops_every_verb_before_its_first_write() {
    for broken in KEYS.into_iter().chain(["abandoned"]) {
        let bench = Bench::redis().await;
        let sale = running(&bench).await;
        say(&bench, &["DEL", &key(broken)]).await;
        say(&bench, &["SET", &key(broken), "nonsense"]).await;
        let before = everything(&bench).await;
        for answer in every_write(&bench, &sale).await {
            assert_eq!(answer.unwrap_err().effect, Effect::None, "{broken}");
        }
        assert_eq!(everything(&bench).await, before, "{broken}");
    }
}

#[tokio::test]
async fn h5_unreadable_fields_and_records_stop_a_verb_before_its_first_write() {
    let bench = Bench::redis().await;
    let sale = running(&bench).await;
    let fields = ["clock", "due", "held", "total", "accounts", "held:phone", "available:phone", "claims"];
    for field in fields {
        let good: String =
            server(&bench).1.command("test", cmd("HGET").arg(key("stock")).arg(field)).await.unwrap();
        say(&bench, &["HSET", &key("stock"), field, "x"]).await;
        let before = everything(&bench).await;
        let answer = bench.store.claim(&sale, &claim(9)).await;
        assert_eq!(answer.unwrap_err().effect, Effect::None, "{field}");
        assert_eq!(everything(&bench).await, before, "{field}");
        say(&bench, &["HSET", &key("stock"), field, &good]).await;
    }
    for n in [2, 3] {
        say(&bench, &["HSET", &key("holds"), &claim_id(n).to_string(), "held|nonsense"]).await;
    }
    let before = everything(&bench).await;
    for answer in every_ending(&bench, &sale).await {
        assert_eq!(answer.unwrap_err().effect, Effect::None);
    }
    assert_eq!(everything(&bench).await, before);
}

#[tokio::test]
async fn h5_an_unreadable_count_of_abandoned_holds_stops_a_verb_before_its_first_write() {
    let bench = Bench::redis().await;
    let sale = running(&bench).await;
    let mut strict = Claim { hold_seconds: 0, ..claim(5) };
    strict.limits.abandoned_holds = Some(1);
    let account = take(&bench, &sale, &strict).await.account.to_string();
    bench.store.expire(&sale, 10).await.unwrap();
    say(&bench, &["HSET", &key("abandoned"), &account, "nonsense"]).await;
    strict.request.claim = claim_id(6);
    let before = everything(&bench).await;
    assert_eq!(bench.store.claim(&sale, &strict).await.unwrap_err().effect, Effect::None);
    assert_eq!(bench.store.release(&sale, claim_id(5)).await.unwrap_err().effect, Effect::None);
    assert_eq!(everything(&bench).await, before);
    say(&bench, &["HDEL", &key("abandoned"), &account]).await;
    assert_eq!(bench.store.release(&sale, claim_id(5)).await.unwrap(), ReleaseAnswer::Released);
    assert_eq!(bench.store.claim(&sale, &strict).await.unwrap(), ClaimAnswer::LineUpAgain { abandoned: 1 });
}

#[tokio::test]
async fn h5_one_unreadable_hold_among_the_due_ones_marks_none() {
    let bench = Bench::redis().await;
    let sale = running(&bench).await;
    let due = Claim { hold_seconds: 0, ..claim(4) };
    take(&bench, &sale, &due).await;
    say(&bench, &["HDEL", &key("holds"), &claim_id(4).to_string()]).await;
    let before = everything(&bench).await;
    assert_eq!(bench.store.expire(&sale, 10).await.unwrap_err().effect, Effect::None);
    assert_eq!(everything(&bench).await, before);
}

#[tokio::test]
async fn h5_an_error_raised_inside_a_script_leaves_nothing_half_written() {
    let bench = Bench::redis().await;
    let sale = running(&bench).await;
    // With its ids used up a stream takes nothing more, and says so only when something is appended.
    let last = format!("{}-{}", u64::MAX, u64::MAX);
    say(&bench, &["XSETID", &key("events"), &last]).await;
    let before = everything(&bench).await;
    for answer in every_append(&bench, &sale).await {
        assert!(answer.is_err());
    }
    assert_eq!(everything(&bench).await, before);
}

#[tokio::test]
async fn h7_a_sale_that_lost_any_of_its_keys_is_closed_and_not_sold_out() {
    for lost in KEYS {
        let bench = Bench::redis().await;
        let sale = running(&bench).await;
        say(&bench, &["DEL", &key(lost)]).await;
        let before = everything(&bench).await;
        let answer = bench.store.claim(&sale, &claim(9)).await;
        assert_eq!(answer.unwrap_err().effect, Effect::None, "{lost}");
        if lost == "stock" {
            assert!(bench.store.stock(&sale, None).await.is_err());
        }
        if lost == "holds" {
            assert!(bench.store.hold(&sale, claim_id(3)).await.is_err());
            assert!(bench.store.commit(&sale, claim_id(3)).await.is_err());
            assert!(bench.store.release(&sale, claim_id(3)).await.is_err());
        }
        assert_eq!(everything(&bench).await, before, "{lost}");
    }
}

#[tokio::test]
async fn h7_a_sale_that_lost_what_was_given_up_is_closed() {
    let bench = Bench::redis().await;
    let sale = running(&bench).await;
    bench.store.forfeit(&sale, &token_id(9)).await.unwrap();
    assert_eq!(bench.store.claim(&sale, &claim(9)).await.unwrap(), ClaimAnswer::Forfeited);
    say(&bench, &["DEL", &key("abandoned")]).await;
    let before = everything(&bench).await;
    assert_eq!(bench.store.claim(&sale, &claim(9)).await.unwrap_err().effect, Effect::None);
    assert_eq!(everything(&bench).await, before);
}

#[tokio::test]
async fn h7_a_read_only_replica_refuses_and_changes_nothing() {
    let bench = Bench::redis().await;
    let sale = running(&bench).await;
    let before = everything(&bench).await;
    // A master that cannot be reached leaves the data as it is, and the server read-only.
    say(&bench, &["REPLICAOF", "127.0.0.1", "1"]).await;
    for answer in every_write(&bench, &sale).await {
        assert_eq!(answer.unwrap_err().effect, Effect::None);
    }
    say(&bench, &["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(everything(&bench).await, before);
    // It has another history now: what it holds may be what another master left it, so the sale waits to be rebuilt.
    eventually("the connection to the master is there again", 10, async || {
        let error = bench.store.claim(&sale, &claim(9)).await.unwrap_err();
        assert_eq!(error.effect, Effect::None);
        error.causes().contains("left by another server process")
    })
    .await;
    assert_eq!(everything(&bench).await, before);
}

#[tokio::test]
async fn h7_full_memory_stops_claims_while_holds_still_end() {
    let bench = Bench::redis().await;
    let sale = running(&bench).await;
    say(&bench, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let answer = bench.store.claim(&sale, &claim(9)).await;
    assert_eq!(answer.unwrap_err().effect, Effect::None);
    assert_eq!(bench.store.expire(&sale, 10).await.unwrap(), [claim_id(2)]);
    assert_eq!(bench.store.release(&sale, claim_id(2)).await.unwrap(), ReleaseAnswer::Released);
    assert_eq!(bench.store.commit(&sale, claim_id(3)).await.unwrap(), CommitAnswer::Committed);
    say(&bench, &["CONFIG", "SET", "maxmemory", "0"]).await;
    take(&bench, &sale, &claim(9)).await;
    check_invariant(&*bench.store, &sale, (1..=9).map(claim_id)).await;
}

#[tokio::test]
async fn h7_a_server_that_cannot_persist_or_replicate_refuses_claims() {
    let bench = Bench::redis_with(&["--enable-protected-configs", "yes"]).await;
    let sale = running(&bench).await;
    say(&bench, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let answer = bench.store.claim(&sale, &claim(9)).await;
    assert_eq!(answer.unwrap_err().effect, Effect::None, "NOREPLICAS");
    say(&bench, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;

    let gone = tempfile::tempdir().unwrap();
    say(&bench, &["CONFIG", "SET", "dir", gone.path().to_str().unwrap()]).await;
    gone.close().unwrap();
    say(&bench, &["CONFIG", "SET", "save", "3600 1"]).await;
    say(&bench, &["BGSAVE"]).await;
    eventually("the server refuses writes because it cannot save", 10, async || {
        match bench.store.claim(&sale, &claim(10)).await {
            Err(error) => error.effect == Effect::None,
            Ok(ClaimAnswer::Held { .. }) => false,
            Ok(other) => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test]
async fn h7_a_flushed_server_is_closed_for_the_sale() {
    let bench = Bench::redis().await;
    let sale = running(&bench).await;
    say(&bench, &["FLUSHALL"]).await;
    say(&bench, &["SCRIPT", "FLUSH"]).await;
    for answer in every_write(&bench, &sale).await {
        assert_eq!(answer.unwrap_err().effect, Effect::None);
    }
    assert!(everything(&bench).await.is_empty());
    assert!(bench.store.stock(&sale, None).await.is_err());
    assert!(bench.store.hold(&sale, claim_id(3)).await.is_err());
}

#[tokio::test]
async fn h7_a_server_restarted_without_its_data_is_closed_for_the_sale() {
    let mut bench = Bench::redis().await;
    let sale = running(&bench).await;
    let (old, link) = bench.redis.take().unwrap();
    let port = old.port().to_string();
    drop(old);
    let lost = bench.store.claim(&sale, &claim(9)).await;
    assert!(lost.is_err(), "a server that is gone is not sold out");
    let dir = tempfile::tempdir().unwrap();
    let mut again = Command::new("redis-server")
        .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(dir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually("the link finds the new server", 20, async || link.ping().await.is_ok()).await;
    let answer = bench.store.claim(&sale, &claim(9)).await;
    assert!(answer.unwrap_err().to_string().contains("no stock"));
    again.kill().unwrap();
    again.wait().unwrap();
}

#[tokio::test]
async fn h9_a_claim_that_timed_out_and_ran_counts_once() {
    let bench = Bench::redis().await;
    let sale = running(&bench).await;
    say(&bench, &["CLIENT", "PAUSE", "2600", "WRITE"]).await;
    let lost = bench.store.claim(&sale, &claim(9)).await;
    assert_eq!(lost.unwrap_err().effect, Effect::Unknown);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let answer = bench.store.claim(&sale, &claim(9)).await.unwrap();
    assert!(matches!(answer, ClaimAnswer::Held { replayed: true, .. }), "{answer:?}");
    let snapshot = check_invariant(&*bench.store, &sale, (1..=9).map(claim_id)).await;
    assert_eq!(snapshot.items[0].held, 3);
}

#[tokio::test]
async fn h2_a_claim_is_exactly_one_script_call() {
    let bench = Bench::redis().await;
    let sale = sale("demo");
    open(&*bench.store, &sale, &[(item("phone"), 20)]).await;
    take(&bench, &sale, &claim(1)).await;
    say(&bench, &["CONFIG", "RESETSTAT"]).await;
    for n in 2..=41 {
        bench.store.claim(&sale, &claim(n)).await.unwrap();
    }
    let stats: String = server(&bench).1.command("test", cmd("INFO").arg("commandstats")).await.unwrap();
    let calls = |name: &str| {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:")));
        line.and_then(|line| line.split(['=', ',']).nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    assert_eq!((calls("evalsha"), calls("eval"), calls("script|load")), (40, 0, 0), "{stats}");
}

#[tokio::test]
async fn the_event_stream_may_be_there_before_the_stock() {
    let bench = Bench::redis().await;
    let sale = sale("demo");
    assert!(bench.events(&sale).await.is_empty(), "a reader makes its group");
    open(&*bench.store, &sale, &[(item("phone"), 2)]).await;
    take(&bench, &sale, &claim(1)).await;
    assert_eq!(bench.events(&sale).await.len(), 1);
}

#[tokio::test]
async fn m3_what_is_no_log_and_a_freeze_that_nobody_can_name_keep_no_sale_closed() {
    let bench = Bench::redis().await;
    let sale = running(&bench).await;
    say(&bench, &["SET", &key("events"), "x"]).await;
    say(&bench, &["HSET", &key("stock"), "frozen", "by hand"]).await;
    // Also by whoever believes in another generation.
    let order = FreezeOrder { if_generation: Some(7), ..freeze_order(9) };
    let FreezeAnswer::Frozen(freeze) = bench.store.freeze(&sale, &order).await.unwrap() else { panic!() };
    assert_eq!((freeze.id, freeze.generation), (order.id, 1));
    assert!(bench.events(&sale).await.is_empty(), "readers find a log");
    let again = bench.store.freeze(&sale, &freeze_order(10)).await.unwrap();
    assert_eq!(again, FreezeAnswer::Frozen(freeze), "the freeze that stands");
    rebuild(&*bench.store, &sale, &[(item("phone"), 4)]).await;
    check_invariant(&*bench.store, &sale, (1..=3).map(claim_id)).await;
}
