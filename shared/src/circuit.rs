//! A circuit breaker and a bound on concurrent calls, so that a dependency in trouble costs its callers nothing.
//!
//! [`Breaker`] is the pure rule, with time as an argument; [`Circuit`] applies it to calls. While a dependency answers,
//! at most so many calls are under way. When half of the last calls failed, the circuit opens: calls are refused at
//! once. After a pause a single call is let through to probe; if it succeeds the circuit closes, if not it stays open
//! for another pause.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Semaphore, time::Instant};

/// How a circuit behaves.
#[derive(Clone, Copy, Debug)]
pub struct CircuitSettings {
    /// Calls under way at a time.
    pub at_once: usize,
    /// Longest a call waits for its turn before it is refused.
    pub wait: Duration,
    /// Pause until an open circuit is probed.
    pub pause: Duration,
}

/// Calls that are looked back at; half of them must have failed for the circuit to open.
const LOOK_BACK: u32 = 20;

/// How a call was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The circuit is closed.
    Usual,
    /// The circuit is open, and this call shows whether it may close.
    Probe,
}

/// PURE: when calls are let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker<T> {
    /// The last calls, newest lowest: 1 for one that failed.
    failures: u32,
    /// How many of them there were, up to [`LOOK_BACK`].
    calls: u32,
    /// When an open circuit may be probed.
    open_until: Option<T>,
    /// Since when a probe is under way.
    probing: bool,
}

impl<T> Default for Breaker<T> {
    fn default() -> Self {
        Self { failures: 0, calls: 0, open_until: None, probing: false }
    }
}

impl<T: Copy + Ord> Breaker<T> {
    /// Whether a call may be made at `now`. What became of it must be said by [`Breaker::note`] or, of a probe, by
    /// [`Breaker::abandon`].
    pub fn admit(&mut self, now: T) -> Option<Pass> {
        match self.open_until {
            None => Some(Pass::Usual),
            Some(until) if now >= until && !self.probing => {
                self.probing = true;
                Some(Pass::Probe)
            }
            Some(_) => None,
        }
    }

    /// A call ended. `until` is when the circuit may be probed if this opens it; answers whether it opened (`true`) or
    /// closed (`false`).
    pub fn note(&mut self, pass: Pass, is_failure: bool, until: T) -> Option<bool> {
        match (pass, self.open_until) {
            (Pass::Probe, _) if is_failure => {
                self.probing = false;
                self.open_until = Some(until);
                return None;
            }
            (Pass::Probe, _) => {
                *self = Self::default();
                return Some(false);
            }
            // It was under way when the circuit opened, and says nothing about now.
            (Pass::Usual, Some(_)) => return None,
            (Pass::Usual, None) => {}
        }
        self.failures = ((self.failures << 1) | u32::from(is_failure)) & ((1 << LOOK_BACK) - 1);
        self.calls = (self.calls + 1).min(LOOK_BACK);
        if self.calls < LOOK_BACK || self.failures.count_ones() * 2 < LOOK_BACK {
            return None;
        }
        self.open_until = Some(until);
        Some(true)
    }

    /// A probe was given up without an answer; the next call may probe.
    pub fn abandon(&mut self) {
        self.probing = false;
    }

    /// Whether calls are refused.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open_until.is_some()
    }
}

/// Why a call was not made. The dependency was not asked: nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The circuit is open.
    Open,
    /// As many calls as may be are under way.
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "not asked: its last calls failed, and it is given a pause",
            Self::Full => "not asked: as many calls as may be are under way",
        })
    }
}

/// One dependency, as one kind of caller reaches it.
#[derive(Debug)]
pub struct Circuit {
    name: &'static str,
    settings: CircuitSettings,
    breaker: Mutex<Breaker<Instant>>,
    turns: Semaphore,
}

/// Gives a probe back if its call is dropped before it ended.
struct Underway<'a>(Option<&'a Circuit>);

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if let Some(circuit) = self.0 {
            circuit.with(Breaker::abandon);
        }
    }
}

impl Circuit {
    /// A closed circuit. `name` stands in logs and metrics.
    #[must_use]
    pub fn new(name: &'static str, settings: CircuitSettings) -> Self {
        Self { name, settings, breaker: Mutex::default(), turns: Semaphore::new(settings.at_once) }
    }

    fn with<T>(&self, op: impl FnOnce(&mut Breaker<Instant>) -> T) -> T {
        op(&mut self.breaker.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a call, unless the circuit refuses it. `is_trouble` tells an error that speaks against the dependency from
    /// one that speaks against the call.
    ///
    /// # Errors
    /// The call was not made.
    pub async fn call<T, E>(
        &self,
        is_trouble: impl FnOnce(&E) -> bool,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, Refused> {
        let Some(pass) = self.with(|breaker| breaker.admit(Instant::now())) else {
            return Err(self.refuse(Refused::Open));
        };
        let mut underway = Underway((pass == Pass::Probe).then_some(self));
        let turn = match self.turns.try_acquire() {
            Ok(turn) => turn,
            Err(_) => match tokio::time::timeout(self.settings.wait, self.turns.acquire()).await {
                Ok(Ok(turn)) => turn,
                _ => return Err(self.refuse(Refused::Full)),
            },
        };
        let answer = call.await;
        drop(turn);
        underway.0 = None;
        self.note(pass, answer.as_ref().is_err_and(is_trouble));
        Ok(answer)
    }

    /// Whether calls are refused at this moment, but for a probe.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.with(|breaker| breaker.is_open())
    }

    fn note(&self, pass: Pass, is_failure: bool) {
        let until = Instant::now() + self.settings.pause;
        match self.with(|breaker| breaker.note(pass, is_failure, until)) {
            Some(true) => {
                tracing::warn!(
                    circuit = self.name,
                    "half of the last calls failed: calls are refused until one succeeds"
                );
                metrics::counter!("lockgate_circuit_opened_total", "circuit" => self.name).increment(1);
            }
            Some(false) => tracing::info!(circuit = self.name, "calls succeed again"),
            None => {}
        }
    }

    fn refuse(&self, why: Refused) -> Refused {
        let word = match why {
            Refused::Open => "open",
            Refused::Full => "full",
        };
        metrics::counter!("lockgate_circuit_refused_total", "circuit" => self.name, "why" => word)
            .increment(1);
        why
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use proptest::prelude::*;

    use super::*;

    const SETTINGS: CircuitSettings =
        CircuitSettings { at_once: 2, wait: Duration::from_millis(10), pause: Duration::from_secs(1) };

    proptest! {
        #[test]
        fn an_open_circuit_lets_one_probe_at_a_time_through_and_closes_only_on_success(
            steps in prop::collection::vec((0_u32..3, any::<bool>()), 1..200)
        ) {
            let mut breaker = Breaker::<u32>::default();
            let (mut now, mut recent) = (0, Vec::new());
            for (passed, fails) in steps {
                now += passed;
                let was_open = breaker.open_until;
                let admitted = breaker.admit(now);
                match was_open {
                    None => prop_assert_eq!(admitted, Some(Pass::Usual)),
                    Some(until) => prop_assert_eq!(admitted, (now >= until).then_some(Pass::Probe)),
                }
                let Some(pass) = admitted else { continue };
                if was_open.is_some() {
                    prop_assert_eq!(breaker.admit(now), None, "one probe at a time");
                    prop_assert_eq!(breaker.note(Pass::Usual, false, now), None, "a call from before");
                    recent.clear();
                }
                let turned = breaker.note(pass, fails, now + 2);
                if was_open.is_some() {
                    prop_assert_eq!(turned, (!fails).then_some(false));
                } else {
                    recent.push(fails);
                    let last = &recent[recent.len().saturating_sub(LOOK_BACK as usize)..];
                    let failed = last.iter().filter(|failed| **failed).count() as u32;
                    let opens = last.len() == LOOK_BACK as usize && failed * 2 >= LOOK_BACK;
                    prop_assert_eq!(turned, opens.then_some(true));
                }
                prop_assert_eq!(breaker.is_open(), breaker.open_until.is_some());
            }
        }
    }

    async fn fail(circuit: &Circuit) -> Result<Result<(), ()>, Refused> {
        circuit.call(|()| true, async { Err(()) }).await
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_opens_it_one_success_closes_it_and_refusals_of_the_call_are_no_trouble() {
        let circuit = Circuit::new("test", SETTINGS);
        for _ in 0..100 {
            let refused: Result<(), ()> = circuit.call(|()| false, async { Err(()) }).await.unwrap();
            assert!(refused.is_err());
        }
        for _ in 0..LOOK_BACK / 2 {
            assert!(!circuit.is_open());
            assert_eq!(fail(&circuit).await, Ok(Err(())));
        }
        assert_eq!(fail(&circuit).await, Err(Refused::Open));
        tokio::time::advance(SETTINGS.pause).await;
        assert_eq!(fail(&circuit).await, Ok(Err(())), "a probe");
        assert_eq!(fail(&circuit).await, Err(Refused::Open));
        tokio::time::advance(SETTINGS.pause).await;
        // A probe whose caller goes away leaves room for the next.
        let gone = circuit.call(|()| true, std::future::pending::<Result<(), ()>>());
        assert!(tokio::time::timeout(Duration::from_millis(1), gone).await.is_err());
        assert_eq!(circuit.call(|()| true, async { Ok(()) }).await, Ok(Ok(())));
        assert!(!circuit.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_calls_are_under_way_than_may_be() {
        let circuit = std::sync::Arc::new(Circuit::new("test", SETTINGS));
        let (ends, most) =
            (std::sync::Arc::new(AtomicBool::new(false)), std::sync::Arc::new(AtomicU32::new(0)));
        let calls: Vec<_> = (0..5)
            .map(|_| {
                let (circuit, ends, most) = (circuit.clone(), ends.clone(), most.clone());
                tokio::spawn(async move {
                    let call = async {
                        most.fetch_add(1, Ordering::SeqCst);
                        while !ends.load(Ordering::SeqCst) {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                        Ok::<(), ()>(())
                    };
                    circuit.call(|()| true, call).await
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(most.load(Ordering::SeqCst), 2);
        ends.store(true, Ordering::SeqCst);
        let mut refused = 0;
        for call in calls {
            refused += u32::from(call.await.unwrap() == Err(Refused::Full));
        }
        assert_eq!(refused, 3);
    }
}
