//! People against a farm of bots: who holds the places of a line that has not opened yet.
//!
//! People come once, and solve a challenge if one is asked for. Bots take place after place, each as somebody new.
//! Hashing is paid for out of two budgets that have nothing to do with each other: the people's own devices, and the
//! farm's cores, which all its bots share. Under a lottery the share of places is the share of all that is won.

pub mod entering;
pub mod report;
pub mod solvers;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use serde::Serialize;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout_at},
};

pub use self::report::{ContestReport, Side};
use self::{entering::Door, solvers::Solvers};
use crate::{
    connection::{Connections, Fault},
    crowd::RunError,
    plan::{Options, Plan},
    requests::Requests,
};

/// What is tried.
#[derive(Clone, Debug, Serialize)]
pub struct Contest {
    /// The target, the people (`shoppers`) and when they come.
    pub plan: Plan,
    /// How many bots come.
    pub bots: u32,
    /// Threads that do all hashing of the bots.
    pub farm_cores: u16,
    /// Threads that do all hashing of the people.
    pub people_cores: u16,
    /// How long both may take places, in seconds.
    pub window_seconds: u64,
}

/// Most bots of one contest.
const BOTS_MAX: u32 = 100_000;
/// Most threads of a side.
const CORES_MAX: u16 = 1_024;
/// Longest window, in seconds: a challenge that waits for a core must still be good when its turn comes.
const WINDOW_SECONDS_MAX: u64 = 240;
/// How long a bot waits after a refusal, whatever it was told, in milliseconds.
const BOT_PAUSE_MS: u64 = 100;
/// How long people wait after silence, in milliseconds.
const SILENCE_MS: u64 = 250;

impl Contest {
    /// The contest these options ask for, if they ask for one.
    ///
    /// # Errors
    /// Every problem, one a line.
    pub fn new(options: &Options) -> Result<Option<Self>, String> {
        let Some(bots) = options.bots else { return Ok(None) };
        let mut problems = Vec::new();
        let mut range = |flag: &str, value: u64, most: u64| {
            if !(1..=most).contains(&value) {
                problems.push(format!("--{flag} {value}: must be between 1 and {most}"));
            }
        };
        range("bots", u64::from(bots), u64::from(BOTS_MAX));
        range("farm-cores", u64::from(options.farm_cores), u64::from(CORES_MAX));
        range("people-cores", u64::from(options.people_cores), u64::from(CORES_MAX));
        range("window-seconds", options.window_seconds, WINDOW_SECONDS_MAX);
        let plan = options.plan().map_err(|told| problems.extend(told.lines().map(str::to_owned)));
        let (Ok(plan), true) = (plan, problems.is_empty()) else { return Err(problems.join("\n")) };
        let Options { farm_cores, people_cores, window_seconds, .. } = *options;
        Ok(Some(Self { plan, bots, farm_cores, people_cores, window_seconds }))
    }
}

/// One side at work.
struct Team {
    solvers: Solvers,
    connections: Connections,
    side: Mutex<Side>,
}

/// What everybody who enters shares.
struct Hall {
    requests: Requests,
    people: Team,
    bots: Team,
    wrong: Mutex<(u64, Option<String>)>,
}

/// Lets both sides loose for the window, and counts who holds places at its end.
///
/// # Errors
/// The target or the sale cannot be visited at all.
pub async fn run(contest: &Contest) -> Result<ContestReport, RunError> {
    let plan = &contest.plan;
    let keys = format!("crowd-{:016x}-{:016x}", plan.seed, rand::rng().random::<u64>());
    let requests = Requests::new(&plan.authority, &plan.sale, keys).map_err(RunError::Plan)?;
    let hall = Arc::new(Hall {
        requests,
        people: Team::new(plan, contest.people_cores, plan.shoppers)?,
        bots: Team::new(plan, contest.farm_cores, contest.bots)?,
        wrong: Mutex::default(),
    });
    hall.first_look(plan).await?;
    let started = Instant::now();
    let until = started + Duration::from_secs(contest.window_seconds);
    let mut everybody = JoinSet::new();
    for index in 0..plan.shoppers {
        let at = started + Duration::from_millis(plan.arrival.due_ms(index, plan.shoppers));
        let (hall, seed) = (Arc::clone(&hall), plan.seed ^ u64::from(index));
        everybody.spawn(async move {
            sleep_until(at).await;
            hall.person(index, seed).await;
        });
    }
    for _ in 0..contest.bots {
        let hall = Arc::clone(&hall);
        everybody.spawn(async move { hall.bot().await });
    }
    // Whoever is still at it when the time is over has come too late.
    let _ = timeout_at(until, async { while everybody.join_next().await.is_some() {} }).await;
    everybody.shutdown().await;
    let wrong = locked(&hall.wrong).clone();
    let seconds = started.elapsed().as_secs_f64();
    Ok(ContestReport::new(contest, seconds, hall.people.account(), hall.bots.account(), wrong))
}

impl Team {
    fn new(plan: &Plan, cores: u16, entrants: u32) -> Result<Self, RunError> {
        Ok(Self {
            solvers: Solvers::start(cores).map_err(|error| RunError::Plan(error.to_string()))?,
            // Connections of its own: people do not stand in line behind bots before they reach the server.
            connections: Connections::new(plan.address, plan.connections),
            side: Mutex::new(Side { entrants, ..Side::default() }),
        })
    }

    fn refused(&self, code: String) {
        *locked(&self.side).refused.entry(code).or_default() += 1;
    }

    /// What the side got, with what it spent.
    fn account(&self) -> Side {
        let (solved, core_seconds) = self.solvers.done();
        Side { solved, core_seconds, ..locked(&self.side).clone() }
    }
}

impl Hall {
    /// One look at the public status before anybody is sent: a mistyped target must not end as a contest nobody won.
    async fn first_look(&self, plan: &Plan) -> Result<(), RunError> {
        let answer = self.people.connections.call(self.requests.public_status(None, false)).await;
        let answer = answer.map_err(|_| RunError::Unreachable(plan.authority.clone()))?;
        if matches!(answer.status, 400..=499) && answer.status != 429 {
            let (status, words) = (answer.status, answer.excerpt());
            return Err(RunError::NoSale { sale: plan.sale.clone(), status, words });
        }
        Ok(())
    }

    /// Wants one place, under a key of its own, so that a lost answer is asked for again and counts once.
    async fn person(&self, index: u32, seed: u64) {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let mut proof = None;
        loop {
            let wait_ms = match self.ask(&self.people, Some(index), &mut proof).await {
                Asked::In | Asked::Over => return,
                Asked::Again(told_ms) => told_ms,
            };
            if wait_ms > 0 {
                sleep(Duration::from_millis(wait_ms + dice.random_range(0..=wait_ms / 2))).await;
            }
        }
    }

    /// Wants every place, each as somebody nobody has seen before.
    async fn bot(&self) {
        let mut proof = None;
        loop {
            match self.ask(&self.bots, None, &mut proof).await {
                Asked::In => proof = None,
                Asked::Over => return,
                Asked::Again(0) => {}
                Asked::Again(_) => sleep(Duration::from_millis(BOT_PAUSE_MS)).await,
            }
        }
    }

    /// One request, and the work it brings.
    async fn ask(&self, team: &Team, who: Option<u32>, proof: &mut Option<String>) -> Asked {
        let answer = team.connections.call(self.requests.enter(who, proof.as_deref())).await;
        locked(&team.side).calls += 1;
        let door = match answer {
            Ok(answer) => Door::read(&answer),
            Err(Fault::Refused | Fault::Broken | Fault::TimedOut) => {
                team.refused("no answer".into());
                return Asked::Again(SILENCE_MS);
            }
        };
        match door {
            Door::In => {
                locked(&team.side).places += 1;
                Asked::In
            }
            Door::Work(challenge) => {
                team.refused("proof_required".into());
                *proof = team.solvers.solve(challenge).await;
                if proof.is_some() { Asked::Again(0) } else { Asked::Over }
            }
            Door::Later(told_ms) => {
                team.refused("busy".into());
                Asked::Again(told_ms)
            }
            Door::No(code) => {
                team.refused(code);
                Asked::Over
            }
            Door::Wrong(words) => {
                let mut wrong = locked(&self.wrong);
                wrong.0 += 1;
                wrong.1.get_or_insert(words);
                Asked::Over
            }
        }
    }
}

/// What became of a request.
enum Asked {
    In,
    /// Again, after so many milliseconds.
    Again(u64),
    Over,
}

/// Counts stand whoever panicked while holding them.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn contest(arguments: &[&str]) -> Result<Option<Contest>, String> {
        let all = ["lockgate-crowd", "http://127.0.0.1:8080", "demo"].iter().chain(arguments);
        Contest::new(&Options::try_parse_from(all).map_err(|error| error.to_string())?)
    }

    #[test]
    fn a_contest_is_asked_for_by_its_bots_and_every_problem_is_told() {
        assert!(contest(&[]).unwrap().is_none());
        let found = contest(&["--bots", "40", "--shoppers", "2", "--window-seconds", "9"]).unwrap().unwrap();
        assert_eq!((found.bots, found.farm_cores, found.people_cores, found.window_seconds), (40, 1, 1, 9));
        let told = contest(&[
            "--bots",
            "0",
            "--farm-cores",
            "0",
            "--people-cores",
            "0",
            "--window-seconds",
            "999",
            "--shoppers",
            "0",
        ])
        .unwrap_err();
        for flag in ["--bots 0", "--farm-cores 0", "--people-cores 0", "--window-seconds 999", "--shoppers 0"]
        {
            assert!(told.contains(flag), "{flag}: {told}");
        }
        assert!(
            contest(&["--farm-cores", "2"]).unwrap_err().contains("--bots"),
            "without bots it means nothing"
        );
    }
}
