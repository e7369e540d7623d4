//! What a winning claim costs, in ratios to yardsticks measured in the same run.
//!
//! `cargo bench -p lockgate-stock-gate` runs all of it; a word after `--` only that part: `redis`, `replica`,
//! `sqlite`. Yardstick and subject take turns in short rounds over a stock that never runs out, each on one thread of
//! its own besides the store's; the median of the rounds' ratios is told.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark fails by panicking")]

mod redis;
mod sqlite;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lockgate_shared::{
    gate::{ClaimAnswer, ClaimRequest, ConcludeRequest, FreezeAnswer, ledger::Ledger},
    ids::{AccountHash, ItemId, SaleId},
    store::StoreError,
};
use lockgate_stock_gate::{
    Store,
    stock::Limits,
    store::{Claim, FreezeOrder},
};
use uuid::Uuid;

/// Units of the one item: more than any run can take.
const STOCK: u32 = 100_000_000;

/// Reads `name` from the environment, as a number.
fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

fn rounds() -> u64 {
    setting("ROUNDS", 7)
}

fn round_time() -> Duration {
    Duration::from_secs(setting("ROUND_SECONDS", 3))
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn sale() -> SaleId {
    "bench".parse().unwrap()
}

fn item() -> ItemId {
    "phone".parse().unwrap()
}

/// Puts the stock there that the claims are made of.
async fn open_stock(store: &dyn Store) -> Result<(), StoreError> {
    let order = FreezeOrder { id: Uuid::nil(), if_generation: None, at_least: 0, why: "a benchmark".into() };
    let FreezeAnswer::Frozen(freeze) = store.freeze(&sale(), &order).await? else {
        return Ok(());
    };
    let ledger = Ledger::of([], &[(item(), STOCK)]);
    store.conclude(&sale(), &ConcludeRequest::of(freeze, Uuid::nil(), 0, &ledger)).await.map(drop)
}

/// The claim number `n`, by an account of its own.
fn claim(n: u64) -> Claim {
    let mut bytes = [0x11; 16];
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    Claim {
        request: ClaimRequest {
            claim: uuid::Uuid::from_bytes(bytes).into(),
            account: AccountHash::from_bytes(bytes),
            item: item(),
            quantity: 1,
            epoch: 0,
            admitted_at: 7,
            token_id: format!("token-{n:016x}").parse().unwrap(),
            memo: "{}".into(),
        },
        hold_seconds: 600,
        limits: Limits { per_account: 2, total: Some(STOCK), abandoned_holds: None, live_holds: None },
        refusal: None,
    }
}

/// Claims a second, with so many under way at a time.
async fn claims_per_second(store: &Arc<dyn Store>, under_way: u64) -> f64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let (started, time) = (Instant::now(), round_time());
    let shoppers = (0..under_way).map(|_| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut made = 0_u64;
            while started.elapsed() < time {
                let claim = claim(NEXT.fetch_add(1, Ordering::Relaxed));
                let answer = store.claim(&sale(), &claim).await.unwrap();
                assert!(matches!(answer, ClaimAnswer::Held { replayed: false, .. }), "{answer:?}");
                made += 1;
            }
            made
        })
    });
    let made = futures::future::join_all(shoppers).await;
    let made: u64 = made.into_iter().map(Result::unwrap).sum();
    made as f64 / started.elapsed().as_secs_f64()
}

/// On a runtime with one thread, as the yardsticks have one.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn tell(what: &str, subject: &[f64], yardstick: &[f64], wanted: Option<f64>) {
    let ratios = subject.iter().zip(yardstick).map(|(subject, yardstick)| subject / yardstick).collect();
    let wanted = wanted.map_or_else(String::new, |wanted| format!(" (wanted: {:.0} %)", wanted * 100.0));
    println!(
        "{what}: {:.0} claims/s, yardstick {:.0}/s, ratio {:.1} %{wanted}",
        median(subject.to_vec()),
        median(yardstick.to_vec()),
        median(ratios) * 100.0
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` builds benchmarks too, and must not run them.
    if !words.iter().any(|word| word == "--bench") {
        return;
    }
    let parts: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    let wants = |part: &str| parts.is_empty() || parts.contains(&part);
    if wants("redis") {
        block_on(redis::run());
    }
    if wants("replica") {
        block_on(redis::with_replica());
    }
    if wants("sqlite") {
        block_on(sqlite::run());
    }
}
