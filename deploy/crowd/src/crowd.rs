//! The run itself: one task that owns every shopper, a heap of what is due, and a few connections that carry the calls.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    time::Duration,
};

use rand::RngExt as _;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use crate::{
    answer::{Answer, Phase},
    board::Board,
    buy::Purchase,
    connection::{self, Call, Caller, Fault, Outcome},
    figures::{Figures, Kind},
    plan::{People, Plan},
    report::{Report, tau},
    requests::Requests,
    rules::{Rule, Verdict},
    shopper::{Shopper, Step},
    walk::{End, Manners, Next, Scene},
    watch::{WATCH_MS, Watcher},
};

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nobody listens there.
    #[error("cannot reach http://{0}; is Lockgate running there?")]
    Unreachable(String),
    /// The sale cannot be visited.
    #[error("the sale '{sale}' cannot be visited: {status} {words}")]
    NoSale {
        /// The sale.
        sale: String,
        /// The answer's status.
        status: u16,
        /// What it says.
        words: String,
    },
    /// The plan does not make requests.
    #[error("{0}")]
    Plan(String),
}

/// What somebody who looks on is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Came so far.
    pub arrived: u32,
    /// Have got a place.
    pub entered: u32,
    /// Were admitted.
    pub admitted: u32,
    /// Are through.
    pub finished: u32,
    /// Calls made.
    pub calls: u64,
    /// The board.
    pub now_serving: u64,
    /// Rules broken so far.
    pub broken: u64,
}

/// A crowd on its way.
pub(crate) struct Crowd<'a> {
    pub(crate) plan: &'a Plan,
    requests: Requests,
    manners: Manners,
    people: People,
    pub(crate) shoppers: Vec<Shopper>,
    /// (due in ms, shopper): one entry at most per shopper.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// (number, shopper) of those who follow the public status.
    followers: BinaryHeap<Reverse<(u64, u32)>>,
    purchases: HashMap<u32, Purchase>,
    pub(crate) board: Board,
    pub(crate) verdict: Verdict,
    pub(crate) figures: Figures,
    watcher: Watcher,
    watch_due_ms: u64,
    calls: Vec<mpsc::Sender<Call>>,
    idle: Vec<usize>,
    pub(crate) ends: BTreeMap<End, u32>,
    pub(crate) entered: u32,
    pub(crate) admitted: u32,
    /// When the last of those who got a place got it, in milliseconds.
    pub(crate) entered_ms: u64,
    started: Instant,
    closing_ms: Option<u64>,
}

/// Longest the end of a run waits for the board to reach what was given.
const CLOSING_MS_MAX: u64 = 5_000;
/// How often whoever looks on is shown something.
const LOOK_MS: u64 = 200;
/// Outcomes taken at a time.
const OUTCOMES_MAX: usize = 512;

/// Lets the crowd loose, until all are through, the goal is reached, or the time is over. `look` is called a few times a
/// second.
///
/// # Errors
/// The target or the sale cannot be visited at all.
pub async fn run(plan: &Plan, mut look: impl FnMut(&Look)) -> Result<Report, RunError> {
    // Accounts of this run alone, so that a second run with the same seed finds nobody in line already.
    let keys = format!("crowd-{:016x}-{:016x}", plan.seed, rand::rng().random::<u64>());
    let requests = Requests::new(&plan.authority, &plan.sale, keys).map_err(RunError::Plan)?;
    let (outcomes_in, mut outcomes) = mpsc::channel(usize::from(plan.connections) + 1);
    let mut calls = Vec::new();
    let mut connections = tokio::task::JoinSet::new();
    for index in 0..usize::from(plan.connections) {
        let (sender, receiver) = mpsc::channel(1);
        calls.push(sender);
        connections.spawn(connection::run(index, plan.address, receiver, outcomes_in.clone()));
    }
    let mut crowd = Crowd::new(plan, requests, calls);
    crowd.first_look(&mut outcomes).await?;
    let mut batch: Vec<Outcome> = Vec::with_capacity(OUTCOMES_MAX);
    let mut look_due_ms = 0;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let now_ms = crowd.now_ms();
        if crowd.is_over(now_ms) {
            break;
        }
        crowd.send(now_ms);
        if now_ms >= look_due_ms {
            look(&crowd.look());
            look_due_ms = now_ms + LOOK_MS;
        }
        let wake = crowd.started + Duration::from_millis(crowd.next_due_ms(now_ms).min(look_due_ms));
        tokio::select! {
            _ = outcomes.recv_many(&mut batch, OUTCOMES_MAX) => {}
            () = sleep_until(wake) => {}
            _ = &mut interrupted => break,
        }
        for outcome in batch.drain(..) {
            crowd.settle(&outcome);
        }
    }
    look(&crowd.look());
    connections.shutdown().await;
    Ok(crowd.report())
}

impl<'a> Crowd<'a> {
    fn new(plan: &'a Plan, requests: Requests, calls: Vec<mpsc::Sender<Call>>) -> Self {
        Self {
            manners: Manners {
                follows_public_status: plan.follow_public_status,
                buys: plan.buy,
                think_ms_max: plan.think_ms,
                sale: plan.sale.clone(),
                authority: plan.authority.clone(),
            },
            requests,
            people: People::new(plan),
            shoppers: Vec::with_capacity(plan.shoppers as usize),
            timers: BinaryHeap::new(),
            followers: BinaryHeap::new(),
            purchases: HashMap::new(),
            board: Board::new(plan.burst),
            verdict: Verdict::default(),
            figures: Figures::default(),
            watcher: Watcher::default(),
            watch_due_ms: 0,
            idle: (0..calls.len()).collect(),
            calls,
            ends: BTreeMap::new(),
            entered: 0,
            admitted: 0,
            entered_ms: 0,
            started: Instant::now(),
            closing_ms: None,
            plan,
        }
    }

    /// One look at the public status before anybody is sent: a mistyped target must not end as a million failures.
    async fn first_look(&mut self, outcomes: &mut mpsc::Receiver<Outcome>) -> Result<(), RunError> {
        self.send_watcher(0);
        let Some(outcome) = outcomes.recv().await else {
            return Err(RunError::Unreachable(self.plan.authority.clone()));
        };
        match &outcome.answer {
            Err(Fault::Refused | Fault::TimedOut | Fault::Broken) => {
                return Err(RunError::Unreachable(self.plan.authority.clone()));
            }
            Ok(answer) if matches!(answer.status, 400..=499) && answer.status != 429 => {
                let (status, words) = (answer.status, answer.excerpt());
                return Err(RunError::NoSale { sale: self.plan.sale.clone(), status, words });
            }
            Ok(_) => {}
        }
        self.settle(&outcome);
        if let Some(expected) = &self.plan.queueing_method {
            let found = if self.board.is_lottery { "lottery" } else { "fifo" };
            self.verdict.check(Rule::Contract, found == expected, || {
                format!("a {found} sale where {expected} was expected")
            });
        }
        self.started = Instant::now();
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn look(&self) -> Look {
        Look {
            arrived: u32::try_from(self.shoppers.len()).unwrap_or(u32::MAX),
            entered: self.entered,
            admitted: self.admitted,
            finished: self.ends.values().sum(),
            calls: self.figures.total,
            now_serving: self.board.now_serving,
            broken: self.verdict.broken_total(),
        }
    }

    /// Whether the run ends now. What was given ahead of the board is watched for a moment more.
    fn is_over(&mut self, now_ms: u64) -> bool {
        if let Some(since) = self.closing_ms {
            return !self.board.has_early() || now_ms >= since + CLOSING_MS_MAX;
        }
        let all = self.ends.values().sum::<u32>() >= self.plan.shoppers;
        let goal = self.plan.admissions.is_some_and(|wanted| self.admitted >= wanted);
        let time = now_ms >= self.plan.seconds_max * 1_000;
        if all || goal || time {
            self.closing_ms = Some(now_ms);
            return !self.board.has_early();
        }
        false
    }

    fn next_arrival_ms(&self) -> Option<u64> {
        let index = u32::try_from(self.shoppers.len()).ok()?;
        (index < self.plan.shoppers).then(|| self.plan.arrival.due_ms(index, self.plan.shoppers))
    }

    fn next_due_ms(&self, now_ms: u64) -> u64 {
        if self.idle.is_empty() {
            return now_ms + LOOK_MS;
        }
        let timer = self.timers.peek().map(|Reverse((due, _))| *due);
        let people = self.next_arrival_ms().into_iter().chain(timer).filter(|_| self.closing_ms.is_none());
        people.chain([self.watch_due_ms, now_ms + LOOK_MS]).min().unwrap_or(now_ms)
    }

    /// Sends what is due while connections are free; whoever has waited longest goes first.
    fn send(&mut self, now_ms: u64) {
        if self.watch_due_ms <= now_ms && !self.idle.is_empty() {
            self.send_watcher(now_ms);
        }
        while self.closing_ms.is_none() && !self.idle.is_empty() {
            let timer = self.timers.peek().map(|Reverse((due, _))| *due).filter(|due| *due <= now_ms);
            let arrival = self.next_arrival_ms().filter(|due| *due <= now_ms);
            let who = match (arrival, timer) {
                (Some(arrival), timer) if timer.is_none_or(|timer| arrival <= timer) => self.arrive(arrival),
                (_, Some(_)) => match self.timers.pop() {
                    Some(Reverse((_, who))) => who,
                    None => return,
                },
                _ => return,
            };
            let shopper = &mut self.shoppers[who as usize];
            shopper.asks();
            self.figures.note_late(now_ms.saturating_sub(shopper.due_ms));
            let request = self.requests.of(who, shopper, &self.board, &self.purchases);
            self.call(Call { caller: Caller::Shopper(who), request });
        }
    }

    fn arrive(&mut self, due_ms: u64) -> u32 {
        let who = u32::try_from(self.shoppers.len()).unwrap_or(u32::MAX);
        let (habit, patience, dice) = self.people.draw();
        let mut shopper = Shopper::new(habit, patience, dice);
        shopper.due_ms = due_ms;
        self.shoppers.push(shopper);
        who
    }

    fn send_watcher(&mut self, now_ms: u64) {
        let ask = self.watcher.ask();
        let request = self.requests.public_status(ask.etag, ask.cookie);
        self.call(Call { caller: Caller::Watcher, request });
        // The next one is due once this one was answered.
        self.watch_due_ms = now_ms.saturating_add(3_600_000);
    }

    fn call(&mut self, call: Call) {
        let Some(connection) = self.idle.pop() else { return };
        // A free connection waits for its next call, so this has room.
        let _ = self.calls[connection].try_send(call);
    }

    fn settle(&mut self, outcome: &Outcome) {
        self.idle.push(outcome.connection);
        let now_ms = self.now_ms();
        match outcome.caller {
            Caller::Watcher => {
                self.figures.note(Kind::PublicStatus, &outcome.answer, outcome.took);
                if let Ok(answer) = &outcome.answer {
                    let sale = &self.plan.sale;
                    self.watcher.take(answer, sale, now_ms, &mut self.board, &mut self.verdict);
                }
                self.watch_due_ms = now_ms + WATCH_MS;
                self.wake_followers(now_ms);
            }
            Caller::Shopper(who) => {
                let step = self.shoppers[who as usize].step;
                self.figures.note(step.into(), &outcome.answer, outcome.took);
                let next = self.walk(who, &outcome.answer, now_ms);
                self.go_on(who, next, now_ms);
            }
        }
    }

    fn walk(&mut self, who: u32, answer: &Result<Answer, Fault>, now_ms: u64) -> Next {
        let shopper = &mut self.shoppers[who as usize];
        let Ok(answer) = answer else { return shopper.missed_answer() };
        let before = self.entered;
        let mut scene = Scene {
            who,
            now_ms,
            board: &mut self.board,
            verdict: &mut self.verdict,
            manners: &self.manners,
            purchases: &mut self.purchases,
            entered: &mut self.entered,
            admitted: &mut self.admitted,
        };
        let next = shopper.take(answer, &mut scene);
        if self.entered != before {
            self.entered_ms = now_ms;
        }
        next
    }

    fn go_on(&mut self, who: u32, next: Next, now_ms: u64) {
        let shopper = &mut self.shoppers[who as usize];
        let (wait_ms, step) = match next {
            Next::After(wait_ms, step) => (wait_ms, step),
            Next::WhenCalled if shopper.number > self.board.now_serving => {
                shopper.step = Step::Status;
                self.followers.push(Reverse((shopper.number, who)));
                return;
            }
            Next::WhenCalled => (shopper.throw(WATCH_MS), Step::Status),
            Next::Done(end) => {
                *self.ends.entry(end).or_default() += 1;
                shopper.ticket = None;
                return;
            }
        };
        shopper.step = step;
        shopper.due_ms = now_ms + wait_ms;
        self.timers.push(Reverse((shopper.due_ms, who)));
    }

    /// Whoever follows the public status and was called, or must learn that there is nothing more to come, asks.
    fn wake_followers(&mut self, now_ms: u64) {
        let is_over = matches!(self.board.phase, Some(Phase::Closed | Phase::SoldOut));
        while let Some(Reverse((number, who))) = self.followers.peek().copied() {
            if number > self.board.now_serving && !is_over {
                return;
            }
            self.followers.pop();
            let shopper = &mut self.shoppers[who as usize];
            let wait_ms = shopper.throw(WATCH_MS);
            self.go_on(who, Next::After(wait_ms, Step::Status), now_ms);
        }
    }

    fn report(mut self) -> Report {
        self.board.close(&mut self.verdict);
        let seconds = self.started.elapsed().as_secs_f64();
        let orders = |order: fn(&Shopper) -> u32| {
            tau(self.shoppers.iter().filter(|s| s.number > 0).map(|s| (order(s), s.number)))
        };
        let taus = (orders(|shopper| shopper.entered_order), orders(|shopper| shopper.admitted_order));
        Report::new(&self, seconds, taus)
    }
}
