//! Claims on Redis against redis-benchmark, which runs the same script with the same keys and arguments on the same
//! server (`appendfsync always`), with as many calls under way.

use std::{process::Command, sync::Arc};

use lockgate_shared::{store::redis::RedisLink, testing::PrivateRedis};
use lockgate_stock_gate::{RedisSettings, RedisStore, Store, store::redis::claim_script};
use redis::cmd;

use super::{STOCK, claim, claims_per_second, median, open_stock, round_time, rounds, tell};

const KEYS: [&str; 7] = ["stock", "holds", "due", "accounts", "events", "returned", "abandoned"];

async fn prepared(url: &str, settings: RedisSettings) -> (Arc<dyn Store>, RedisLink) {
    let link = RedisLink::connect(url, "b:").await.unwrap();
    link.command::<()>("bench", &cmd("FLUSHALL")).await.unwrap();
    let store = RedisStore::with(link.clone(), settings);
    while open_stock(&store).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    (Arc::new(store), link)
}

/// Calls a second of redis-benchmark, with the arguments the store sends; only claim and account are its own.
async fn yardstick(server: &PrivateRedis, identity: String, clients: u64, calls: u64) -> f64 {
    let (port, clients, calls) = (server.port().to_string(), clients.to_string(), calls.to_string());
    let claim = claim(1).request;
    let mut args: Vec<String> =
        ["-h", "127.0.0.1", "-p", &port, "-c", &clients, "-n", &calls, "-r", "2000000000", "--csv"]
            .map(str::to_owned)
            .into();
    args.extend(["EVALSHA".into(), claim_script().get_hash().into(), KEYS.len().to_string()]);
    args.extend(KEYS.map(|key| format!("b:{{bench}}:{key}")));
    args.extend(
        ["11111111-1111-4111-8111-__rand_int__", "11111111111111111111__rand_int__"].map(str::to_owned),
    );
    args.extend(["phone", "1", "600", "2", &STOCK.to_string(), "", "{}", "7", ""].map(str::to_owned));
    args.extend([claim.token_id.to_string(), String::new(), identity]);
    let run = move || Command::new("redis-benchmark").args(args).output().expect("redis-benchmark");
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().nth(1).unwrap_or_else(|| panic!("{text}"));
    line.split("\",\"").nth(1).and_then(|rate| rate.trim_matches('"').parse().ok()).expect(&text)
}

pub(super) async fn run() {
    let settings = RedisSettings::default();
    for clients in [64, 256] {
        let (mut subject, mut yardsticks) = (Vec::new(), Vec::new());
        let mut memory = Vec::new();
        let mut calls = 50_000;
        for _ in 0..rounds() {
            let server = PrivateRedis::start().await;
            let (store, link) = prepared(server.url(), settings).await;
            subject.push(claims_per_second(&store, clients).await);
            memory.push(bytes_per_claim(&link).await);
            let (_store, link) = prepared(server.url(), settings).await;
            let identity: Option<String> =
                link.command("bench", cmd("HGET").arg("b:{bench}:stock").arg("identity")).await.unwrap();
            let rate = yardstick(&server, identity.unwrap_or_default(), clients, calls).await;
            let held: u64 =
                link.command("bench", cmd("HGET").arg("b:{bench}:stock").arg("claims")).await.unwrap();
            assert!(held * 100 > calls * 99, "redis-benchmark's calls are winning claims: {held} of {calls}");
            calls = (rate * round_time().as_secs_f64()) as u64;
            yardsticks.push(rate);
        }
        tell(&format!("Redis, {clients} under way"), &subject, &yardsticks, Some(0.5));
        println!("  {:.0} bytes of Redis memory per claim", median(memory));
    }
}

async fn bytes_per_claim(link: &RedisLink) -> f64 {
    let info: String = link.command("bench", cmd("INFO").arg("memory")).await.unwrap();
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory_dataset:")).unwrap();
    let claims: f64 = link.command("bench", cmd("HGET").arg("b:{bench}:stock").arg("claims")).await.unwrap();
    used.trim().parse::<f64>().unwrap() / claims
}

/// What waiting for a replica costs: the same claims, answered once one replica has them.
pub(super) async fn with_replica() {
    let (mut subject, mut yardsticks) = (Vec::new(), Vec::new());
    for _ in 0..rounds() {
        let server = PrivateRedis::start().await;
        let port = server.port().to_string();
        let replica = ["--appendonly", "yes", "--appendfsync", "always", "--replicaof", "127.0.0.1", &port];
        let _replica = PrivateRedis::start_with(&replica).await;
        let waits = RedisSettings { replicas_required: 1, ..RedisSettings::default() };
        let (store, _) = prepared(server.url(), waits).await;
        subject.push(claims_per_second(&store, 256).await);
        let (store, _) = prepared(server.url(), RedisSettings::default()).await;
        yardsticks.push(claims_per_second(&store, 256).await);
    }
    tell("Redis with a replica, waited for / not waited for, 256 under way", &subject, &yardsticks, None);
}
