//! A million waiting: what an account takes in Redis, what a tick costs, what the process takes.

use std::{sync::Arc, time::Duration};

use lockgate_shared::{
    clock::{Clock as _, SystemClock},
    ids::AccountHash,
    store::redis::RedisLink,
    testing::PrivateRedis,
};
use lockgate_waiting_room::store::{Entry, LaneView, RedisStore, Store as _};

use crate::{memory_mib, server, setting};

const LANES: u16 = 64;

/// CPU time of this process, all threads, in seconds.
fn cpu_seconds() -> f64 {
    let mut nanos = 0.0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    }
    nanos / 1e9
}

pub(crate) async fn redis_memory(link: &RedisLink) -> u64 {
    let info: String = link.command("info", redis::cmd("INFO").arg("memory")).await.unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    line.trim().parse().unwrap()
}

async fn fill(store: &RedisStore, accounts: u64) {
    let id = server::sale(LANES, 0).id;
    for batch in 0..accounts.div_ceil(256) {
        let lane = u16::try_from(batch % u64::from(LANES)).unwrap();
        let entries: Vec<Entry> = (batch * 256..(batch * 256 + 256).min(accounts))
            .map(|n| {
                let mixed = u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
                Entry {
                    account: AccountHash::from_bytes(mixed.to_be_bytes()),
                    ticket_seq: None,
                    missed_seq: None,
                    listed_as: None,
                }
            })
            .collect();
        store.enter(&id, lane, &entries, LaneView::default(), SystemClock.now()).await.unwrap();
    }
}

pub(crate) fn run(with_ticks: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = PrivateRedis::start_with(&[]).await;
        let link = RedisLink::connect(redis.url(), "bench:").await.unwrap();
        let store = RedisStore::new(link.clone());
        let accounts = setting("ACCOUNTS", 1_000_000);
        let before = redis_memory(&link).await;
        let started = std::time::Instant::now();
        fill(&store, accounts).await;
        let seconds = started.elapsed().as_secs_f64();
        let bytes = (redis_memory(&link).await - before) as f64 / accounts as f64;
        println!("\n{accounts} accounts waiting in {LANES} lanes");
        println!("Redis memory per waiting account: {bytes:.1} bytes");
        println!("entered through the store in batches of 256 in {seconds:.1} s");
        if with_ticks {
            ticks(redis.url(), accounts).await;
        }
    });
}

/// Lets the loops run over a sale that is open and admits 2,000 a second, and divides what they used by their ticks.
async fn ticks(redis_url: &str, accounts: u64) {
    let app = server::app(redis_url, server::sale(LANES, -60)).await;
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    tokio::spawn(lockgate_waiting_room::run(Arc::clone(&app), stopped));
    let sale = app.sale(&server::sale(LANES, 0).id).unwrap();
    let live = app.live(&sale);
    while live.snapshot().record.now_serving == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (seconds, ticks_per_second) = (20, 5.0);
    let (cpu, served) = (cpu_seconds(), live.snapshot().record.now_serving);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let used = cpu_seconds() - cpu;
    let admitted = live.snapshot().record.now_serving - served;
    let per_tick = used * 1_000.0 / (seconds as f64 * ticks_per_second);
    println!(
        "one tick over {LANES} lanes, {accounts} entered, {admitted} admitted meanwhile: {per_tick:.2} ms of CPU (wanted: 5)"
    );
    println!("this process then: {:.1} MiB (highest: {:.1})", memory_mib("VmRSS:"), memory_mib("VmHWM:"));
}
