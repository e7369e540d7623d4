//! One seed's world: its dice, its time, its weather, the truth behind every seam, and what happened so far.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use lockgate_checkout::{payment::PaymentId, store::model::ModelStore as Orders};
use lockgate_shared::{
    clock::{Clock, Timestamp},
    ids::{ClaimId, SaleId},
    store::StoreError,
};
use lockgate_stock_gate::store::{
    Suspicion,
    model::{Copied, ModelStore as GateStock},
};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use tokio::time::Instant;

use crate::{audit, bank::Book};

/// Steps of the trace that are kept for the report.
const TRACE_MAX: usize = 200;
/// When every sale of the simulation begins, in seconds since the Unix epoch.
pub const BEGIN_SECONDS: i64 = 1_800_000_000;

/// A clock on tokio's paused time, which may be set.
#[derive(Clone)]
pub struct VirtualClock {
    started: Instant,
    step_ms: Arc<AtomicI64>,
}

impl VirtualClock {
    fn begin() -> Self {
        Self { started: Instant::now(), step_ms: Arc::default() }
    }

    /// Sets the clock to be off by `ms`.
    pub fn set_off_ms(&self, ms: i64) {
        self.step_ms.store(ms, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.started.elapsed().as_micros()).unwrap();
        let off = self.step_ms.load(Ordering::Relaxed) * 1_000;
        Timestamp::from_micros(BEGIN_SECONDS * 1_000_000 + passed + off)
    }

    fn steady(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Where calls cross from one part to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seam {
    /// Checkout to gate, over HTTP.
    GateCall,
    /// Gate to its store.
    GateStore,
    /// Checkout to its database.
    OrderStore,
    /// Checkout to the event log.
    EventLog,
    /// Checkout to the payment gateway.
    Gateway,
}

/// How often what goes wrong at a seam, in thousandths of its calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    refused: u32,
    lost: u32,
    late: u32,
    twice: u32,
    slow: u32,
}

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It is not done.
    Refused,
    /// It is done; its answer is lost.
    Lost,
    /// Its answer is lost, and it is done a while later.
    Late,
    /// It is done, and once more a while later.
    Twice,
}

struct State {
    dice: ChaCha8Rng,
    weather: [Weather; 5],
    trace: VecDeque<String>,
    digest: u64,
    steps: u64,
    faults: BTreeMap<String, u64>,
    violation: Option<String>,
    payments: BTreeMap<PaymentId, usize>,
    claims: BTreeMap<ClaimId, usize>,
    acknowledged: BTreeMap<ClaimId, Vec<u32>>,
}

/// The world.
pub struct World {
    pub seed: u64,
    pub sale: SaleId,
    /// The time of checkout and the gateway.
    pub clock: VirtualClock,
    /// The time of gate processes.
    pub gate_clock: VirtualClock,
    /// The time of the gate's store.
    pub store_clock: VirtualClock,
    /// What the gate's store holds.
    pub gate: GateStock,
    /// What the orders' database holds.
    pub orders: Orders,
    /// What the payment gateway knows.
    pub book: Mutex<Book>,
    /// Whether the store was ever set back.
    pub has_failed_over: AtomicBool,
    /// Whether this seed's store may fail over.
    may_fail_over: bool,
    /// How often, in thousandths, a batch of orders takes so long that a rebuild may overtake it.
    stalls: u32,
    /// Whether the gate's store is another one than the gate last worked with.
    is_strange: AtomicBool,
    /// What a replica may be at: nothing that was answered since is missing in any of these.
    replicas: Mutex<VecDeque<(usize, Copied)>>,
    is_calm: AtomicBool,
    state: Mutex<State>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub fn begin(seed: u64) -> Arc<Self> {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let mut weather = [Weather::default(); 5];
        for seam in &mut weather {
            let mut odds = |values: [u32; 4]| values[dice.random_range(0..4)];
            *seam = Weather {
                refused: odds([0, 5, 20, 80]),
                lost: odds([0, 5, 20, 80]),
                late: odds([0, 5, 20, 80]),
                twice: odds([0, 5, 20, 80]),
                slow: odds([0, 5, 20, 50]),
            };
        }
        let store_clock = VirtualClock::begin();
        Arc::new(Self {
            seed,
            sale: "drop".parse().unwrap(),
            clock: VirtualClock::begin(),
            gate_clock: VirtualClock::begin(),
            gate: GateStock::new(Arc::new(store_clock.clone())),
            store_clock,
            orders: Orders::default(),
            book: Mutex::default(),
            has_failed_over: AtomicBool::new(false),
            may_fail_over: dice.random_range(0..2_u32) == 0,
            stalls: [0, 0, 50, 300][dice.random_range(0..4_usize)],
            is_strange: AtomicBool::new(false),
            replicas: Mutex::default(),
            is_calm: AtomicBool::new(false),
            state: Mutex::new(State {
                dice,
                weather,
                trace: VecDeque::new(),
                digest: 0xcbf2_9ce4_8422_2325,
                steps: 0,
                faults: BTreeMap::new(),
                violation: None,
                payments: BTreeMap::new(),
                claims: BTreeMap::new(),
                acknowledged: BTreeMap::new(),
            }),
        })
    }

    /// From now on nothing goes wrong any more.
    pub fn calm(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
        self.note("the weather calms down");
    }

    pub fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    /// A number below `n`.
    pub fn below(&self, n: u32) -> u32 {
        lock(&self.state).dice.random_range(0..n.max(1))
    }

    /// Whether something that happens `per_mille` times in a thousand happens now.
    pub fn chance(&self, per_mille: u32) -> bool {
        self.below(1_000) < per_mille
    }

    /// The same, but never once the weather is calm.
    pub fn mishap(&self, per_mille: u32) -> bool {
        !self.is_calm() && self.chance(per_mille)
    }

    pub fn between_ms(&self, from: u32, to: u32) -> Duration {
        Duration::from_millis(u64::from(from + self.below(to - from)))
    }

    /// What goes wrong with the next call at `seam`.
    pub fn fault(&self, seam: Seam) -> Fault {
        if self.is_calm() {
            return Fault::None;
        }
        let mut state = lock(&self.state);
        let weather = state.weather[seam as usize];
        let roll = state.dice.random_range(0..1_000_u32);
        let mut edge = 0;
        let kinds = [
            (weather.refused, Fault::Refused),
            (weather.lost, Fault::Lost),
            (weather.late, Fault::Late),
            (weather.twice, Fault::Twice),
        ];
        for (odds, fault) in kinds {
            edge += odds;
            if roll < edge {
                *state.faults.entry(format!("{seam:?} {fault:?}")).or_default() += 1;
                return fault;
            }
        }
        Fault::None
    }

    /// How long a call is under way in one direction.
    pub fn way(&self, seam: Seam) -> Duration {
        if self.is_calm() {
            return Duration::from_millis(1);
        }
        let slow = lock(&self.state).weather[seam as usize].slow;
        if self.chance(slow) {
            self.count(&format!("{seam:?} Slow"));
            return self.between_ms(200, 4_000);
        }
        self.between_ms(0, 12)
    }

    /// How long a batch of orders lies before the database takes it.
    pub fn stall(&self) -> Duration {
        if !self.mishap(self.stalls) {
            return Duration::ZERO;
        }
        self.count("OrderStore Stall");
        self.between_ms(500, 8_000)
    }

    /// The store's identity is checked on each connection before its first use.
    pub fn check_identity(&self) -> Result<(), Suspicion> {
        if self.is_strange.load(Ordering::Relaxed) {
            return Err(Suspicion("it is another store than before".to_owned()));
        }
        Ok(())
    }

    /// Before a write: a replica may stay behind at this point.
    pub fn remember(&self) {
        if self.may_fail_over && self.mishap(400) {
            let count = self.gate.event_count(&self.sale);
            let mut replicas = lock(&self.replicas);
            if replicas.back().is_none_or(|(last, _)| *last != count) {
                replicas.push_back((count, self.gate.copy()));
            }
            if replicas.len() > 6 {
                replicas.pop_front();
            }
        }
    }

    /// A claim is answered once every replica has it; false if a fail-over was faster.
    pub fn replicate(&self, claim: ClaimId) -> bool {
        let is_there = self.gate.all_holds(&self.sale).iter().any(|hold| hold.claim == claim);
        if is_there {
            lock(&self.replicas).clear();
        }
        is_there
    }

    /// The master dies, and a replica that may lack the last writes takes its place. Answers how many events are left.
    pub fn fail_over(&self) -> Option<usize> {
        let copy = {
            let mut replicas = lock(&self.replicas);
            let n = self.below(u32::try_from(replicas.len()).unwrap()) as usize;
            let (_, copy) = replicas.remove(n)?;
            replicas.clear();
            copy
        };
        let before = self.gate.event_count(&self.sale);
        self.gate.set_back(&copy);
        let left = self.gate.event_count(&self.sale);
        self.is_strange.store(true, Ordering::Relaxed);
        self.has_failed_over.store(true, Ordering::Relaxed);
        self.count(if left < before { "fail-over that loses writes" } else { "fail-over" });
        self.note(format!("the store fails over; {} of {before} events are lost", before - left));
        Some(left)
    }

    /// A rebuilt stock stands.
    pub fn reopened(&self) {
        self.is_strange.store(false, Ordering::Relaxed);
    }

    /// Whether the stock waits to be rebuilt.
    pub fn is_closed(&self) -> bool {
        self.is_strange.load(Ordering::Relaxed) || self.gate.is_frozen(&self.sale)
    }

    /// Writes down what the gate's store did.
    pub fn note_gate<T: std::fmt::Debug>(&self, what: &str, answer: &Result<T, StoreError>) {
        // Ids that are random would differ from run to run, and sweeps that find nothing tell nothing.
        match answer {
            Ok(_) if what.starts_with("freeze") || what.starts_with("stage") => {
                self.note(format!("gate: {what}"));
            }
            Ok(done) => {
                let words = format!("{done:?}");
                if words != "[]" {
                    self.note(format!("gate: {what} -> {}", short(&words)));
                }
            }
            Err(error) => self.note(format!("gate: {what} -> {}", error.causes())),
        }
    }

    /// Counts something that went wrong.
    pub fn count(&self, what: &str) {
        *lock(&self.state).faults.entry(what.to_owned()).or_default() += 1;
    }

    /// Writes a step down.
    pub fn note(&self, what: impl AsRef<str>) {
        let line = format!("{:>9.3}s {}", self.clock.steady().as_secs_f64(), what.as_ref());
        let mut state = lock(&self.state);
        for byte in line.bytes() {
            state.digest = (state.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        state.steps += 1;
        if state.trace.len() == TRACE_MAX {
            state.trace.pop_front();
        }
        state.trace.push_back(line);
    }

    /// A payment's name in the trace: ids are random and would differ from run to run.
    pub fn payment(&self, id: PaymentId) -> String {
        let mut state = lock(&self.state);
        let next = state.payments.len() + 1;
        format!("payment {}", state.payments.entry(id).or_insert(next))
    }

    /// A claim's name in the trace.
    pub fn claim(&self, id: ClaimId) -> String {
        let mut state = lock(&self.state);
        let next = state.claims.len() + 1;
        format!("claim {}", state.claims.entry(id).or_insert(next))
    }

    /// A shopper was told that these units are held.
    pub fn acknowledge(&self, claim: ClaimId, units: &[u32]) {
        let before = lock(&self.state).acknowledged.entry(claim).or_insert(units.to_vec()).clone();
        if before != units && !audit::is_paid_late(self, claim) {
            self.violate(&format!("{} was acknowledged with other units before", self.claim(claim)));
        }
        self.audit();
    }

    pub fn acknowledged(&self) -> BTreeMap<ClaimId, Vec<u32>> {
        lock(&self.state).acknowledged.clone()
    }

    /// Whether a shopper was told that the claim was won.
    pub fn was_acknowledged(&self, claim: ClaimId) -> bool {
        lock(&self.state).acknowledged.contains_key(&claim)
    }

    /// Writes down what must never be. The first such thing ends the seed.
    pub fn violate(&self, what: &str) {
        let line = format!("VIOLATION: {what}");
        self.note(&line);
        lock(&self.state).violation.get_or_insert(line);
    }

    pub fn violation(&self) -> Option<String> {
        lock(&self.state).violation.clone()
    }

    /// Holds the whole truth against the rules. Called after every step that changes any of it.
    pub fn audit(&self) {
        if self.violation().is_none()
            && let Err(problem) = audit::step(self)
        {
            self.violate(&problem);
        }
    }

    /// What the seed came to.
    pub fn outcome(&self) -> Outcome {
        let state = lock(&self.state);
        Outcome {
            seed: self.seed,
            digest: state.digest,
            steps: state.steps,
            faults: state.faults.clone(),
            violation: state.violation.clone(),
            trace: state.trace.iter().cloned().collect(),
            tally: audit::tally(self),
        }
    }
}

/// The first words of a long answer, without the memo.
fn short(words: &str) -> &str {
    words.split(", claimed_at").next().unwrap_or(words)
}

/// What a seed came to.
#[derive(Debug)]
pub struct Outcome {
    pub seed: u64,
    /// Of all steps.
    pub digest: u64,
    pub steps: u64,
    pub faults: BTreeMap<String, u64>,
    pub violation: Option<String>,
    /// The last steps.
    pub trace: Vec<String>,
    pub tally: audit::Tally,
}

impl Outcome {
    /// Everything that helps whoever looks for the cause.
    pub fn report(&self) -> String {
        format!(
            "seed {}: {}\n{} steps, the last {}:\n{}\n\nReplay it: LOCKGATE_SEED={} cargo test -p lockgate-checkout --test simulation -- --nocapture every_seed\n",
            self.seed,
            self.violation.as_deref().unwrap_or("no violation"),
            self.steps,
            self.trace.len(),
            self.trace.join("\n"),
            self.seed,
        )
    }
}
