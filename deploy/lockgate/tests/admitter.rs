//! L7 with real processes: whoever moves the line is killed, or frozen and thawed, again and again, under load.
//!
//! A quarter of a minute, or two minutes with `LOCKGATE_FULL=1`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::{
    collections::{HashMap, HashSet},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use common::{Folder, Lockgate, command, sale_file};
use lockgate_shared::testing::{PrivateRedis, eventually};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

const SALE: &str = "drop";
const RATE_PER_SECOND: u64 = 60;
const BURST: u64 = 30;
const PROCESSES: usize = 3;
/// Longest the line may stand still when its admitter is lost.
const GAP_MAX: Duration = Duration::from_secs(3);

/// The processes and what they share.
struct Fleet {
    redis: PrivateRedis,
    folder: Folder,
    gate: Lockgate,
    rooms: Vec<Lockgate>,
    /// Where the rooms are at this moment.
    bases: Arc<Mutex<Vec<String>>>,
    started: usize,
}

/// What the load does and learns.
#[derive(Default)]
struct Line {
    tickets: Mutex<Vec<String>>,
    /// The token id by ticket.
    admitted: Mutex<HashMap<String, String>>,
    stop: AtomicBool,
}

impl Fleet {
    async fn start() -> Self {
        let (redis, folder) = (PrivateRedis::start().await, Folder::new());
        let keys = folder.path().join("keys.toml");
        let made = command(&["keys", "new", "--file", keys.to_str().unwrap()]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let sale = sale_file(SALE, "open", 1_000_000, 1, 600)
            .replace("rate_per_minute = 600000", &format!("rate_per_minute = {}", RATE_PER_SECOND * 60))
            .replace("burst = 1000", &format!("burst = {BURST}"))
            .replace("turn_seconds = 60", "turn_seconds = 300");
        let sale = folder.write("sale.toml", &sale);
        let mut environment = environment(&redis, &folder);
        let data = folder.path().join("gate");
        let arguments = ["stock-gate", "--data", data.to_str().unwrap(), "--sale", sale.to_str().unwrap()];
        let gate = Lockgate::start(&arguments, &environment).await;
        environment.clear();
        let mut fleet = Self { redis, folder, gate, rooms: Vec::new(), bases: Arc::default(), started: 0 };
        for _ in 0..PROCESSES {
            let room = fleet.room().await;
            fleet.rooms.push(room);
        }
        fleet.publish();
        fleet
    }

    async fn room(&mut self) -> Lockgate {
        self.started += 1;
        let data = self.folder.path().join(format!("room-{}", self.started));
        let mut environment = environment(&self.redis, &self.folder);
        environment.push(("LOCKGATE_GATE__URL", self.gate.base.clone()));
        Lockgate::start(&["waiting-room", "--data", data.to_str().unwrap()], &environment).await
    }

    fn publish(&self) {
        *self.bases.lock().unwrap() = self.rooms.iter().map(|room| room.base.clone()).collect();
    }

    /// Kills the room, and starts another in its place.
    async fn replace(&mut self, index: usize) {
        self.rooms.remove(index).kill();
        self.publish();
        let room = self.room().await;
        self.rooms.push(room);
        self.publish();
    }

    /// The room that holds the lease, by the process id it signs with.
    async fn admitter(&self, store: &mut Store) -> Option<usize> {
        let holder: Option<String> = store.line("holder").await;
        let pid: u32 = holder?.split('-').next()?.parse().ok()?;
        self.rooms.iter().position(|room| room.pid() == pid)
    }
}

fn environment(redis: &PrivateRedis, folder: &Folder) -> Vec<(&'static str, String)> {
    vec![
        ("LOCKGATE_STORE__URL", redis.url().to_owned()),
        ("LOCKGATE_KEYS__FILE", folder.path().join("keys.toml").display().to_string()),
    ]
}

/// A look into the store itself.
struct Store(redis::aio::MultiplexedConnection);

impl Store {
    async fn open(redis: &PrivateRedis) -> Self {
        let client = redis::Client::open(redis.url()).unwrap();
        Self(client.get_multiplexed_async_connection().await.unwrap())
    }

    async fn line(&mut self, field: &str) -> Option<String> {
        let key = format!("lockgate:{{{SALE}}}:line");
        redis::cmd("HGET").arg(key).arg(field).query_async(&mut self.0).await.unwrap()
    }

    async fn record(&mut self) -> Value {
        self.line("record").await.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    }
}

fn signal(room: &Lockgate, name: &str) {
    let sent = Command::new("kill").args([name, &room.pid().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// A client that does not wait long for a process that stands still.
fn impatient() -> Client {
    Client::builder().no_proxy().timeout(Duration::from_secs(2)).build().unwrap()
}

fn any<T: Clone>(rng: &mut ChaCha8Rng, of: &[T]) -> Option<T> {
    (!of.is_empty()).then(|| of[rng.random_range(0..of.len())].clone())
}

/// Enters again and again, wherever somebody answers.
async fn enter(line: Arc<Line>, bases: Arc<Mutex<Vec<String>>>, seed: u64) {
    let (client, mut rng) = (impatient(), ChaCha8Rng::seed_from_u64(seed));
    while !line.stop.load(Ordering::SeqCst) {
        let base = any(&mut rng, &bases.lock().unwrap());
        if let Some(base) = base
            && let Ok(answer) = client.post(format!("{base}/sale/{SALE}/enter")).json(&json!({})).send().await
            && answer.status() == StatusCode::CREATED
            && let Ok(body) = answer.json::<Value>().await
        {
            line.tickets.lock().unwrap().push(body["ticket"].as_str().unwrap().to_owned());
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Asks for admission with any ticket anywhere, and remembers the token's id: there is one for each.
async fn admit(line: Arc<Line>, bases: Arc<Mutex<Vec<String>>>, seed: u64) {
    let (client, mut rng) = (impatient(), ChaCha8Rng::seed_from_u64(seed));
    while !line.stop.load(Ordering::SeqCst) {
        let base = any(&mut rng, &bases.lock().unwrap());
        let ticket = {
            let tickets = line.tickets.lock().unwrap();
            any(&mut rng, &tickets[..tickets.len().min(200)])
        };
        if let (Some(base), Some(ticket)) = (base, ticket)
            && let Ok(answer) =
                client.post(format!("{base}/sale/{SALE}/admit")).bearer_auth(&ticket).send().await
            && answer.status() == StatusCode::OK
            && let Ok(body) = answer.json::<Value>().await
        {
            let claims = body["token"].as_str().unwrap().split('.').nth(1).unwrap();
            let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
            let jti = claims["jti"].as_str().unwrap().to_owned();
            let mut admitted = line.admitted.lock().unwrap();
            let first = admitted.entry(ticket).or_insert_with(|| jti.clone());
            assert_eq!(*first, jti, "one ticket, one right");
        }
        sleep(Duration::from_millis(25)).await;
    }
}

/// What an observer sees of the record while all this goes on.
#[derive(Default)]
struct Seen {
    /// When, now_serving.
    moves: Vec<(Instant, u64)>,
    gap_max: Duration,
}

/// Reads the record 40 times a second. Time in which this observer itself was held up counts for nobody.
async fn observe(mut store: Store, line: Arc<Line>) -> Seen {
    let (mut seen, mut version, mut stalled) = (Seen::default(), 0, Duration::ZERO);
    let (mut looked, mut moved) = (Instant::now(), Instant::now());
    while !line.stop.load(Ordering::SeqCst) {
        let record = store.record().await;
        let now = Instant::now();
        stalled += now.duration_since(looked).saturating_sub(Duration::from_millis(60));
        looked = now;
        let (serving, numbered) =
            (record["now_serving"].as_u64().unwrap(), record["numbered"].as_u64().unwrap());
        let last = seen.moves.last().map_or(0, |(_, last)| *last);
        assert!(serving >= last && record["version"].as_u64().unwrap() >= version, "nothing falls: {record}");
        version = record["version"].as_u64().unwrap();
        if serving > last || numbered == serving {
            (moved, stalled) = (now, Duration::ZERO);
        }
        seen.gap_max = seen.gap_max.max(now.duration_since(moved).saturating_sub(stalled));
        if serving > last {
            seen.moves.push((now, serving));
        }
        sleep(Duration::from_millis(25)).await;
    }
    seen
}

impl Seen {
    /// Between any two looks: not more than the burst and what the rate gives in that time. A look may come a little
    /// after the move it sees.
    fn expect_rate(&self) {
        for (index, (from, before)) in self.moves.iter().enumerate() {
            for (to, after) in &self.moves[index + 1..] {
                let seconds = to.duration_since(*from).as_secs_f64() + 0.5;
                let most = BURST as f64 + RATE_PER_SECOND as f64 * seconds;
                assert!(((after - before) as f64) <= most, "{before} to {after} in {seconds} s");
            }
        }
    }
}

/// Every process gives the same number for every ticket, and no number twice.
async fn expect_the_same_numbers_everywhere(fleet: &Fleet, tickets: &[String]) {
    let client = common::client();
    let mut given = HashSet::new();
    for ticket in tickets {
        let mut numbers = HashSet::new();
        for room in &fleet.rooms {
            let url = room.url(&format!("/sale/{SALE}/status"));
            eventually("the ticket has a number", 10, async || {
                let answer = client.get(&url).bearer_auth(ticket).send().await.unwrap();
                let number = answer.json::<Value>().await.unwrap()["number"].as_u64();
                number.map(|number| numbers.insert(number)).is_some()
            })
            .await;
        }
        assert_eq!(numbers.len(), 1, "{numbers:?}");
        assert!(numbers.iter().all(|number| given.insert(*number)), "a number was given twice");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l7_killed_and_frozen_admitters_neither_stop_the_line_nor_admit_twice() {
    let is_full = std::env::var_os("LOCKGATE_FULL").is_some_and(|value| value != "0");
    let lasts = Duration::from_secs(if is_full { 120 } else { 15 });
    let seed = std::env::var("LOCKGATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_201);
    println!("ChaCha8, seed {seed} (LOCKGATE_SEED sets another); {lasts:?}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut fleet = Fleet::start().await;
    let line = Arc::new(Line::default());
    let mut load = JoinSet::new();
    for worker in 0..3 {
        load.spawn(enter(Arc::clone(&line), Arc::clone(&fleet.bases), seed + worker));
    }
    load.spawn(admit(Arc::clone(&line), Arc::clone(&fleet.bases), seed + 9));
    let mut store = Store::open(&fleet.redis).await;
    eventually("the line moves", 10, async || store.record().await["now_serving"].as_u64() > Some(0)).await;
    let observer = tokio::spawn(observe(Store::open(&fleet.redis).await, Arc::clone(&line)));

    let (started, mut kills, mut freezes) = (Instant::now(), 0, 0);
    while started.elapsed() < lasts {
        sleep(Duration::from_millis(rng.random_range(200..1_500))).await;
        let Some(leader) = fleet.admitter(&mut store).await else { continue };
        let before = store.record().await["now_serving"].as_u64();
        if rng.random_bool(0.5) {
            fleet.replace(leader).await;
            kills += 1;
        } else {
            signal(&fleet.rooms[leader], "-STOP");
            sleep(Duration::from_millis(rng.random_range(500..3_500))).await;
            signal(&fleet.rooms[leader], "-CONT");
            freezes += 1;
        }
        // One loss at a time: the next admitter has moved the line before it is lost too.
        eventually("the line goes on", 10, async || store.record().await["now_serving"].as_u64() > before)
            .await;
    }
    line.stop.store(true, Ordering::SeqCst);
    let seen = observer.await.unwrap();
    while let Some(ended) = load.join_next().await {
        ended.unwrap();
    }
    let tickets = line.tickets.lock().unwrap().clone();
    let admitted = line.admitted.lock().unwrap().clone();
    let called = seen.moves.last().unwrap().1;
    println!(
        "{kills} kills, {freezes} freezes, {} entered, {called} called, {} admitted, longest gap {:?}",
        tickets.len(),
        admitted.len(),
        seen.gap_max
    );
    seen.expect_rate();
    assert!(seen.gap_max <= GAP_MAX, "the line stood still for {:?}", seen.gap_max);
    assert!(kills + freezes >= 3 && admitted.len() >= 10);
    assert_eq!(admitted.values().collect::<HashSet<_>>().len(), admitted.len(), "one right, one ticket");
    let sample: Vec<String> = tickets.iter().step_by((tickets.len() / 300).max(1)).cloned().collect();
    expect_the_same_numbers_everywhere(&fleet, &sample).await;
}
