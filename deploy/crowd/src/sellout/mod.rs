//! Buyers who come back until each has bought or all is sold. What is held for them they pay, pay when the hold is over,
//! or never pay, as the dice say; whoever has bought goes home.
//!
//! | file | what it does |
//! |---|---|
//! | `fate.rs` | PURE: the dice, and the bodies of the contract that only buyers read |
//! | `buyer.rs` | one buyer: enter, wait, be admitted, claim again and again |
//! | `paying.rs` | one buyer's way from a won claim to its end |
//! | `report.rs` | what came of it |
//!
//! Everybody waits as told: `Retry-After` and `poll_after_ms`, and then up to half as long again. Whoever has a number
//! follows the public status, which one watcher asks for, as pages do.

pub mod buyer;
pub mod fate;
pub mod paying;
pub mod report;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use lockgate_shared::allowlist::Reader;
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use serde::Serialize;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, sleep_until, timeout_at},
};

use self::{
    buyer::Buyer,
    fate::{Shares, Shown},
};
pub use self::{
    fate::{End, Fate, Taken},
    report::SellOutReport,
};
use crate::{
    answer::Public,
    connection::Connections,
    crowd::RunError,
    figures::{Figures, Kind},
    plan::{Options, Plan},
    requests::Requests,
};

/// What is tried.
#[derive(Clone, Debug, Serialize)]
pub struct SellOut {
    /// The target, the buyers (`shoppers`) and when they come.
    pub plan: Plan,
    /// What becomes of what is held.
    pub shares: Shares,
    /// The buyers' codes and addresses; empty where anybody enters.
    #[serde(skip)]
    pub codes: Vec<(String, String)>,
}

impl SellOut {
    /// The run these options ask for, if they ask for one.
    ///
    /// # Errors
    /// Every problem, one a line.
    pub fn new(options: &Options) -> Result<Option<Self>, String> {
        if !options.sell_out {
            return Ok(None);
        }
        let mut problems = Vec::new();
        let shares = Shares { abandon: options.abandon, pay_late: options.pay_late, pairs: options.pairs };
        for (flag, percent) in [
            ("abandon", shares.abandon),
            ("pay-late", shares.pay_late),
            ("pairs", shares.pairs),
            ("abandon and --pay-late together", shares.abandon + shares.pay_late),
        ] {
            if !(0.0..=100.0).contains(&percent) {
                problems.push(format!("--{flag} {percent}: must be between 0 and 100"));
            }
        }
        let codes = options.codes.as_deref().map_or(Ok(Vec::new()), read_codes);
        let codes = codes.map_err(|problem| problems.push(problem)).unwrap_or_default();
        let count = u32::try_from(codes.len()).unwrap_or(u32::MAX);
        if problems.is_empty() && options.codes.is_some() && count < options.shoppers {
            problems.push(format!("--shoppers {}: --codes holds {count} codes only", options.shoppers));
        }
        let plan = options.plan().map_err(|told| problems.extend(told.lines().map(str::to_owned)));
        let (Ok(plan), true) = (plan, problems.is_empty()) else { return Err(problems.join("\n")) };
        Ok(Some(Self { plan, shares, codes }))
    }
}

fn read_codes(path: &Path) -> Result<Vec<(String, String)>, String> {
    let name = path.display();
    let bytes = std::fs::read(path)
        .map_err(|error| format!("--codes {name}: {error}; name a list of code,email lines"))?;
    let (mut reader, mut codes) = (Reader::default(), Vec::new());
    reader.feed(&bytes, &mut |row| codes.push((row.code, row.email)));
    reader.finish(&mut |row| codes.push((row.code, row.email))).map_err(|found| {
        format!("--codes {name}: {} lines are wrong; write one code,email a line", found.total)
    })?;
    Ok(codes)
}

/// What all buyers share.
pub(crate) struct Hall {
    pub(crate) requests: Requests,
    pub(crate) connections: Connections,
    pub(crate) authority: String,
    pub(crate) asked: SellOut,
    /// The public status, as its watcher saw it last.
    pub(crate) shown: watch::Sender<Shown>,
    pub(crate) account: Mutex<Account>,
}

/// What is counted.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) figures: Figures,
    pub(crate) ends: BTreeMap<End, u32>,
    pub(crate) claims: Vec<Taken>,
    /// Entries, admissions and orders to line up again.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// Answers that are none of the contract's, or contradict one another: how many, and the first few.
    pub(crate) wrong: (u64, Vec<String>),
    /// Seconds from the first look at the open sale to the first look at which nothing could be won any more.
    pub(crate) opened_at: Option<Instant>,
    pub(crate) sold_out_seconds: Option<f64>,
}

/// Examples kept of what is wrong.
const EXAMPLES_MAX: usize = 10;
/// Longest pause of the watcher, in milliseconds.
const WATCH_MS_MAX: u64 = 2_000;

impl Hall {
    pub(crate) fn account(&self) -> MutexGuard<'_, Account> {
        // Counts stand whoever panicked while holding them.
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, what: &'static str) {
        *self.account().counts.entry(what).or_default() += 1;
    }

    pub(crate) fn wrong(&self, words: String) {
        let mut account = self.account();
        account.wrong.0 += 1;
        if account.wrong.1.len() < EXAMPLES_MAX {
            account.wrong.1.push(words);
        }
    }

    /// One look at the public status; how long until the next, in milliseconds.
    async fn look(&self) -> Result<u64, String> {
        let (answer, took) = self.connections.timed(self.requests.public_status(None, false)).await;
        self.account().figures.note(Kind::PublicStatus, &answer, took);
        let Ok(answer) = answer else { return Ok(WATCH_MS_MAX) };
        if matches!(answer.status, 429 | 503) {
            return Ok(answer.retry_after_seconds.map_or(WATCH_MS_MAX, |seconds| u64::from(seconds) * 1_000));
        }
        if answer.status != 200 {
            return Err(format!("{} {}", answer.status, answer.excerpt()));
        }
        let public: Public<'_> = answer.json()?;
        let shown = Shown::of(&public);
        let mut account = self.account();
        if shown.is_open() {
            account.opened_at.get_or_insert_with(Instant::now);
        }
        if shown.is_over() && account.sold_out_seconds.is_none() {
            account.sold_out_seconds = account.opened_at.map(|at| at.elapsed().as_secs_f64());
        }
        drop(account);
        self.shown.send_if_modified(|before| {
            let is_news = shown.is_news_to(before);
            *before = shown;
            is_news
        });
        Ok(public.poll_after_ms.clamp(200, WATCH_MS_MAX))
    }

    async fn watch(&self) {
        loop {
            let pause_ms = match self.look().await {
                Ok(pause_ms) => pause_ms,
                Err(words) => {
                    self.wrong(format!("public status: {words}"));
                    WATCH_MS_MAX
                }
            };
            sleep(Duration::from_millis(pause_ms)).await;
        }
    }
}

/// Lets the buyers loose, until each is through or the time is over. Answers what came of it, and every claim that was
/// won.
///
/// # Errors
/// The target or the sale cannot be visited at all.
pub async fn run(asked: SellOut) -> Result<(SellOutReport, Vec<Taken>), RunError> {
    let plan = asked.plan.clone();
    let keys = format!("crowd-{:016x}-{:016x}", plan.seed, rand::rng().random::<u64>());
    let hall = Arc::new(Hall {
        requests: Requests::new(&plan.authority, &plan.sale, keys).map_err(RunError::Plan)?,
        connections: Connections::new(plan.address, plan.connections),
        authority: plan.authority.clone(),
        asked,
        shown: watch::Sender::new(Shown::default()),
        account: Mutex::default(),
    });
    first_look(&hall, &plan).await?;
    let started = tokio::time::Instant::now();
    let until = started + Duration::from_secs(plan.seconds_max);
    let watcher = {
        let hall = Arc::clone(&hall);
        tokio::spawn(async move { hall.watch().await })
    };
    let mut buyers = JoinSet::new();
    for who in 0..plan.shoppers {
        let at = started + Duration::from_millis(plan.arrival.due_ms(who, plan.shoppers));
        let dice = ChaCha8Rng::seed_from_u64(plan.seed ^ (u64::from(who) << 20));
        let hall = Arc::clone(&hall);
        buyers.spawn(async move {
            sleep_until(at).await;
            let end = Buyer::new(&hall, who, dice).shop().await;
            *hall.account().ends.entry(end).or_default() += 1;
        });
    }
    let _ = timeout_at(until, async { while buyers.join_next().await.is_some() {} }).await;
    buyers.shutdown().await;
    watcher.abort();
    let mut account = hall.account();
    let claims = std::mem::take(&mut account.claims);
    Ok((SellOutReport::new(&hall.asked, started.elapsed().as_secs_f64(), &account, &claims), claims))
}

/// A mistyped target must not end as a sale at which nobody bought anything.
async fn first_look(hall: &Hall, plan: &Plan) -> Result<(), RunError> {
    let answer = hall.connections.call(hall.requests.public_status(None, false)).await;
    let answer = answer.map_err(|_| RunError::Unreachable(plan.authority.clone()))?;
    if matches!(answer.status, 400..=499) && answer.status != 429 {
        let (status, words) = (answer.status, answer.excerpt());
        return Err(RunError::NoSale { sale: plan.sale.clone(), status, words });
    }
    Ok(())
}
