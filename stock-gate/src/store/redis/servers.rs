//! Who is at the other end: servers that were restarted, demoted, promoted, moved or cut off.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use lockgate_shared::{
    gate::ClaimAnswer,
    ids::SaleId,
    store::{Effect, StoreError, redis::RedisLink},
    testing::{PrivateCluster, PrivateRedis, PrivateSentinels, eventually},
};
use redis::{Value, cmd};
use tokio::net::{TcpListener, TcpStream};

use super::RedisSettings;
use crate::store::{
    Claim,
    testbed::{Bench, check_invariant, claim, claim_id, item, open, sale, take, token_id},
};

const FREEZES: RedisSettings = RedisSettings { replicas_required: 0, restart_freezes: true };
const GOES_ON: RedisSettings = RedisSettings { restart_freezes: false, ..FREEZES };

async fn say<const N: usize>(link: &RedisLink, words: [&str; N]) -> Value {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    link.command("test", &command).await.unwrap()
}

async fn stock_field(link: &RedisLink, name: &str) -> Option<String> {
    link.command("test", cmd("HGET").arg("t:{demo}:stock").arg(name)).await.unwrap()
}

async fn prepared(bench: &Bench) -> SaleId {
    let sale = sale("demo");
    open(&*bench.store, &sale, &[(item("phone"), 9)]).await;
    sale
}

async fn is_suspect(bench: &Bench, sale: &SaleId, n: u32) -> bool {
    match bench.store.claim(sale, &claim(n)).await {
        Ok(ClaimAnswer::Held { .. }) => false,
        Ok(other) => panic!("{other:?}"),
        Err(error) => error.to_string().contains("another server process"),
    }
}

/// Every writing verb on a sale where claim 1 is held and claim 2 is due.
async fn every_write(bench: &Bench, sale: &SaleId) -> [Result<(), StoreError>; 6] {
    let store = &bench.store;
    [
        store.claim(sale, &claim(9)).await.map(drop),
        store.claim(sale, &claim(1)).await.map(drop),
        store.commit(sale, claim_id(1)).await.map(drop),
        store.release(sale, claim_id(2)).await.map(drop),
        store.expire(sale, 10).await.map(drop),
        store.forfeit(sale, &token_id(3)).await.map(drop),
    ]
}

#[tokio::test]
async fn h7_a_restarted_server_is_another_one_and_nothing_is_written() {
    let mut server = PrivateRedis::start().await;
    let (bench, link) = Bench::on(server.url(), "t:", FREEZES).await;
    let sale = prepared(&bench).await;
    take(&bench, &sale, &claim(1)).await;
    take(&bench, &sale, &Claim { hold_seconds: 0, ..claim(2) }).await;
    let identity = stock_field(&link, "identity").await;
    server.restart().await;
    eventually("the gate sees the new server", 10, async || is_suspect(&bench, &sale, 9).await).await;
    eventually("every other connection is there again", 10, async || link.ping().await.is_ok()).await;
    let before = say(&link, ["DUMP", "t:{demo}:stock"]).await;
    for answer in every_write(&bench, &sale).await {
        let error = answer.unwrap_err();
        assert_eq!(error.effect, Effect::None);
        assert!(error.to_string().contains("another server process"), "{error}");
    }
    assert_eq!(say(&link, ["DUMP", "t:{demo}:stock"]).await, before);
    // A rebuild writes the identity of the server that it ran on; here the old one's comes back instead.
    open(&*bench.store, &crate::store::testbed::sale("other"), &[(item("phone"), 1)]).await;
    let other: String =
        link.command("test", cmd("HGET").arg("t:{other}:stock").arg("identity")).await.unwrap();
    assert_ne!(Some(&other), identity.as_ref());
    say(&link, ["HSET", "t:{demo}:stock", "identity", &other]).await;
    take(&bench, &sale, &claim(9)).await;
    check_invariant(&*bench.store, &sale, (1..=9).map(claim_id)).await;
}

#[tokio::test]
async fn a_stock_without_an_identity_is_adopted_once() {
    let mut server = PrivateRedis::start().await;
    let (old, link) = Bench::on(server.url(), "t:", GOES_ON).await;
    let sale = prepared(&old).await;
    assert_eq!(stock_field(&link, "generation").await.as_deref(), Some("1"));
    // As stocks were before generations and identities.
    say(&link, ["HDEL", "t:{demo}:stock", "generation"]).await;
    take(&old, &sale, &claim(1)).await;
    assert_eq!(stock_field(&link, "identity").await, None);
    let (bench, _) = Bench::on(server.url(), "t:", FREEZES).await;
    assert_eq!(bench.store.expire(&sale, 10).await.unwrap(), []);
    assert_eq!(stock_field(&link, "identity").await, None, "looking adopts nothing");
    take(&bench, &sale, &claim(2)).await;
    assert!(stock_field(&link, "identity").await.is_some());
    assert_eq!(stock_field(&link, "generation").await.as_deref(), Some("1"));
    server.restart().await;
    eventually("the gate sees the new server", 10, async || is_suspect(&bench, &sale, 3).await).await;
}

#[tokio::test]
async fn h8_a_server_demoted_and_promoted_again_is_another_one() {
    let server = PrivateRedis::start().await;
    let (bench, link) = Bench::on(server.url(), "t:", FREEZES).await;
    let sale = prepared(&bench).await;
    take(&bench, &sale, &claim(1)).await;
    say(&link, ["REPLICAOF", "127.0.0.1", "1"]).await;
    say(&link, ["REPLICAOF", "NO", "ONE"]).await;
    // The process and its connections are the same, only the history it stands for is another.
    eventually("the living connection is looked at", 10, async || is_suspect(&bench, &sale, 2).await).await;
}

#[tokio::test]
async fn h8_a_demoted_master_keeps_its_connections_and_writes_find_the_new_one() {
    let master = PrivateRedis::start_with(&["--repl-diskless-sync-delay", "0"]).await;
    let to = master.port().to_string();
    let replica = PrivateRedis::start_with(&["--replicaof", "127.0.0.1", &to]).await;
    let sentinels = PrivateSentinels::watch(&master).await;
    let (bench, link) = Bench::on(&sentinels.url(), "t:", GOES_ON).await;
    let sale = prepared(&bench).await;
    take(&bench, &sale, &claim(1)).await;
    let one = RedisLink::connect(&sentinels.url().replace("/main", "/unknown"), "t:").await;
    assert!(one.err().unwrap().to_string().contains("sentinel monitor"));
    sentinels.fail_over().await;
    sentinels.name(replica.port()).await;
    let direct = RedisLink::connect(replica.url(), "t:").await.unwrap();
    // Until the old master hears that it was demoted it takes what nobody will see again; the same claim settles it.
    eventually("claims go to the new master", 20, async || {
        let made = bench.store.claim(&sale, &claim(2)).await.is_ok();
        made && say(&direct, ["HEXISTS", "t:{demo}:holds", &claim_id(2).to_string()]).await == Value::Int(1)
    })
    .await;
    eventually("every other call goes there too", 20, async || {
        let set = link.command::<()>("test", cmd("SET").arg("t:x").arg("y")).await.is_ok();
        set && say(&direct, ["GET", "t:x"]).await != Value::Nil
    })
    .await;
    let snapshot = check_invariant(&*bench.store, &sale, (1..=2).map(claim_id)).await;
    assert_eq!(snapshot.items[0].held, 2);
}

/// Passes bytes on; the first `cut` callers are cut off without a word when it grows, and counted then.
pub(super) async fn proxy(to: u16, cut: Arc<AtomicUsize>, done: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        for number in 0.. {
            let (mut client, _) = listener.accept().await.unwrap();
            let (cut, done) = (Arc::clone(&cut), Arc::clone(&done));
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
                    () = async { while cut.load(Ordering::SeqCst) <= number {
                        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                    } } => {}
                }
                done.fetch_add(1, Ordering::SeqCst);
                // Both ends stay open, and nothing passes.
                std::future::pending::<()>().await;
            });
        }
    });
    port
}

#[tokio::test]
async fn h8_a_connection_that_only_times_out_is_made_anew() {
    let server = PrivateRedis::start().await;
    let (cut, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let port = proxy(server.port(), Arc::clone(&cut), Arc::clone(&done)).await;
    let (bench, link) = Bench::on(&format!("redis://127.0.0.1:{port}"), "t:", FREEZES).await;
    let sale = prepared(&bench).await;
    take(&bench, &sale, &claim(1)).await;
    cut.store(2, Ordering::SeqCst);
    eventually("both connections are cut off", 5, async || done.load(Ordering::SeqCst) == 2).await;
    let lost = bench.store.claim(&sale, &claim(2)).await;
    assert_eq!(lost.unwrap_err().effect, Effect::Unknown);
    eventually("a new connection answers", 20, async || bench.store.claim(&sale, &claim(2)).await.is_ok())
        .await;
    eventually("for every other call too", 20, async || link.ping().await.is_ok()).await;
    assert_eq!(check_invariant(&*bench.store, &sale, (1..=2).map(claim_id)).await.items[0].held, 2);
}

#[tokio::test]
async fn calls_beyond_what_may_wait_are_refused_at_once() {
    let server = PrivateRedis::start().await;
    let (bench, _) = Bench::on(server.url(), "t:", GOES_ON).await;
    let sale = prepared(&bench).await;
    take(&bench, &sale, &claim(1)).await;
    server.freeze();
    let claims: Vec<Claim> = (1..5_000).map(claim).collect();
    let answers = futures::future::join_all(claims.iter().map(|c| bench.store.claim(&sale, c))).await;
    let errors: Vec<StoreError> = answers.into_iter().map(Result::unwrap_err).collect();
    let of = |words: &str| errors.iter().filter(|error| error.to_string().contains(words)).count();
    assert!(of("waiting already") >= 5_000 - 4_096 - 256 - 1, "{}", of("waiting already"));
    assert!(of("waited too long") > 3_000, "those behind the silent call were never sent");
    let unknown = errors.iter().filter(|error| error.effect == Effect::Unknown).count();
    assert!((1..=512).contains(&unknown), "{unknown}");
    server.thaw();
    take(&bench, &sale, &claim(1)).await;
}

/// Moves the slot of `key` with everything in it from one node to another, as resharding does.
async fn move_slot(cluster: &PrivateCluster, key: &str) {
    let mut links = Vec::new();
    for node in cluster.nodes() {
        links.push(RedisLink::connect(node.url(), "t:").await.unwrap());
    }
    let Value::Int(slot) = say(&links[0], ["CLUSTER", "KEYSLOT", key]).await else { panic!("no slot") };
    let from = usize::try_from(slot / 5_461).unwrap().min(2);
    let to = (from + 1) % 3;
    let slot = slot.to_string();
    let mut ids = Vec::new();
    for link in &links {
        let id: String = link.command("test", cmd("CLUSTER").arg("MYID")).await.unwrap();
        ids.push(id);
    }
    say(&links[to], ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[from]]).await;
    say(&links[from], ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[to]]).await;
    let mut list = cmd("CLUSTER");
    list.arg("GETKEYSINSLOT").arg(&slot).arg(100);
    let keys: Vec<String> = links[from].command("test", &list).await.unwrap();
    assert!(!keys.is_empty());
    let mut migrate = cmd("MIGRATE");
    migrate.arg("127.0.0.1").arg(cluster.nodes()[to].port()).arg("").arg(0).arg(5_000).arg("KEYS").arg(keys);
    links[from].command::<Value>("test", &migrate).await.unwrap();
    for link in &links {
        say(link, ["CLUSTER", "SETSLOT", &slot, "NODE", &ids[to]]).await;
    }
}

#[tokio::test]
async fn a_sale_that_moved_to_another_node_of_the_cluster_is_found_there() {
    let cluster = PrivateCluster::start().await;
    let (bench, _) = Bench::on(&cluster.url(), "t:", GOES_ON).await;
    let (strict, _) = Bench::on(&cluster.url(), "t:", FREEZES).await;
    let sale = prepared(&strict).await;
    take(&bench, &sale, &claim(1)).await;
    move_slot(&cluster, "t:{demo}:stock").await;
    eventually("the new owner is found", 10, async || bench.store.claim(&sale, &claim(2)).await.is_ok())
        .await;
    // Another node is another server: what moved is as suspicious as what was restored.
    eventually("its identity is seen", 10, async || is_suspect(&strict, &sale, 3).await).await;
}
