//! What a run found: for people as text, for programs as JSON.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::{
    board::kendall_tau,
    crowd::Crowd,
    figures::{CallFigures, Spread},
    plan::Plan,
    rules::Finding,
    shopper::Shopper,
    walk::End,
};

/// Everything a run found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The verdict in a word.
    pub verdict: Outcome,
    /// The plan, with the seed that repeats it.
    pub plan: Plan,
    /// How long it took.
    pub seconds: f64,
    /// What became of people.
    pub people: PeopleFigures,
    /// What the board showed.
    pub board: BoardFigures,
    /// Calls, by kind.
    pub calls: Vec<CallFigures>,
    /// How much later than due calls were sent.
    pub late_ms: Spread,
    /// Most memory this process used, in KiB, where the system tells.
    pub own_memory_kib: Option<u64>,
    /// Every rule.
    pub rules: Vec<Finding>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every rule was kept.
    Kept,
    /// A rule was broken.
    Broken,
    /// No rule was broken, but the run did not get where it should.
    Unfinished,
}

/// What became of people.
#[derive(Debug, Serialize)]
pub struct PeopleFigures {
    /// Came.
    pub arrived: usize,
    /// Got a place.
    pub entered: u32,
    /// Seconds until the last of them had it.
    pub entered_seconds: f64,
    /// Saw their number.
    pub numbered: usize,
    /// Were admitted.
    pub admitted: u32,
    /// Not through when the run ended.
    pub on_their_way: usize,
    /// Ends.
    pub gone: u32,
    /// Gave their place up.
    pub left: u32,
    /// Came too late.
    pub missed: u32,
    /// Found nothing left.
    pub sold_out: u32,
    /// Found the sale over.
    pub closed: u32,
    /// Bought and paid.
    pub bought: u32,
    /// Were refused.
    pub refused: u32,
    /// Kendall's tau between the order of entering and the numbers.
    pub entry_tau: Option<f64>,
    /// Kendall's tau between the order of being admitted and the numbers.
    pub admission_tau: Option<f64>,
}

/// What the board showed.
#[derive(Debug, Serialize)]
pub struct BoardFigures {
    /// Where it stood at the end.
    pub now_serving: u64,
    /// The rate told last.
    pub rate_per_minute: u64,
    /// Most admissions seen in about a second.
    pub peak_per_second: u64,
    /// Whether the pace was judged (`--burst`).
    pub pace_was_judged: bool,
}

/// Kendall's tau of numbers in the order given beside them; those without an order (0) are left out.
pub(crate) fn tau(items: impl Iterator<Item = (u32, u64)>) -> Option<f64> {
    let mut items: Vec<(u32, u64)> = items.filter(|(order, _)| *order > 0).collect();
    items.sort_unstable();
    let numbers: Vec<u64> = items.into_iter().map(|(_, number)| number).collect();
    kendall_tau(&numbers)
}

impl Report {
    pub(crate) fn new(
        crowd: &Crowd<'_>,
        seconds: f64,
        (entry_tau, admission_tau): (Option<f64>, Option<f64>),
    ) -> Self {
        let ends = |end: End| crowd.ends.get(&end).copied().unwrap_or(0);
        let through: u32 = crowd.ends.values().sum();
        let numbered = crowd.shoppers.iter().filter(|shopper: &&Shopper| shopper.number > 0).count();
        let reached = crowd.plan.admissions.is_none_or(|wanted| crowd.admitted >= wanted);
        Self {
            verdict: match crowd.verdict.broken_total() {
                0 if crowd.entered > 0 && reached => Outcome::Kept,
                0 => Outcome::Unfinished,
                _ => Outcome::Broken,
            },
            plan: crowd.plan.clone(),
            seconds,
            people: PeopleFigures {
                arrived: crowd.shoppers.len(),
                entered: crowd.entered,
                entered_seconds: crowd.entered_ms as f64 / 1_000.0,
                numbered,
                admitted: crowd.admitted,
                on_their_way: crowd.shoppers.len() - through as usize,
                gone: ends(End::Gone),
                left: ends(End::Left),
                missed: ends(End::Missed),
                sold_out: ends(End::SoldOut),
                closed: ends(End::Closed),
                bought: ends(End::Bought),
                refused: ends(End::Refused),
                entry_tau,
                admission_tau,
            },
            board: BoardFigures {
                now_serving: crowd.board.now_serving,
                rate_per_minute: crowd.board.rate_per_minute,
                peak_per_second: crowd.board.peak_per_second,
                pace_was_judged: crowd.plan.burst.is_some(),
            },
            calls: crowd.figures.calls(),
            late_ms: crowd.figures.late(),
            own_memory_kib: memory_kib(),
            rules: crowd.verdict.findings(),
        }
    }
}

/// Most memory this process has used so far (Linux).
fn memory_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

fn counts<K: fmt::Display>(counts: &BTreeMap<K, u64>) -> String {
    counts.iter().map(|(name, count)| format!("{name}: {count}")).collect::<Vec<_>>().join("  ")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} shoppers in {:.1} s, seed {}", self.people.arrived, self.seconds, self.plan.seed)?;
        self.people.fmt(f)?;
        self.board.fmt(f)?;
        writeln!(
            f,
            "\n  {:<16} {:>9} {:>9} {:>9} {:>9} {:>9}  answers",
            "call", "count", "p50 ms", "p99", "p99.9", "max"
        )?;
        for calls in &self.calls {
            calls.fmt(f)?;
        }
        let late = self.late_ms;
        writeln!(
            f,
            "  sent later than due: p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms",
            late.p50, late.p99, late.max
        )?;
        writeln!(f, "\n  {:<16} {:>9} {:>9}", "rule", "checked", "broken")?;
        for finding in &self.rules {
            writeln!(
                f,
                "  {:<16} {:>9} {:>9}  {}",
                finding.rule, finding.checked, finding.broken, finding.says
            )?;
            for example in &finding.examples {
                writeln!(f, "      {example}")?;
            }
        }
        let broken = self.rules.iter().filter(|finding| finding.broken > 0).count();
        match self.verdict {
            Outcome::Kept => write!(f, "\nverdict: every rule was kept"),
            Outcome::Broken => write!(f, "\nverdict: {broken} rules were broken"),
            Outcome::Unfinished => {
                write!(f, "\nverdict: no rule was broken, but the run did not get where it should")
            }
        }
    }
}

impl fmt::Display for PeopleFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_second = f64::from(self.entered) / self.entered_seconds.max(0.001);
        let Self { entered, numbered, admitted, bought, .. } = self;
        writeln!(
            f,
            "  entered {entered} ({per_second:.0} a second)  numbered {numbered}  admitted {admitted}  bought {bought}"
        )?;
        let Self { gone, left, missed, sold_out, closed, refused, on_their_way, .. } = self;
        writeln!(
            f,
            "  gone {gone}  left {left}  missed {missed}  sold out {sold_out}  closed {closed}  refused {refused}  on their way {on_their_way}"
        )?;
        let rounded = |tau: Option<f64>| tau.map_or_else(|| "-".into(), |tau| format!("{tau:.4}"));
        writeln!(
            f,
            "  order kept (Kendall's tau): entering {}, admission {}",
            rounded(self.entry_tau),
            rounded(self.admission_tau)
        )
    }
}

impl fmt::Display for BoardFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = if self.pace_was_judged { "" } else { "  (pace not judged: give --burst)" };
        writeln!(
            f,
            "  board {}  rate {} a minute  most in a second {}{hint}",
            self.now_serving, self.rate_per_minute, self.peak_per_second
        )
    }
}

impl fmt::Display for CallFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.took_ms;
        write!(
            f,
            "  {:<16} {:>9} {:>9.1} {:>9.1} {:>9.1} {:>9.1}  {}",
            format!("{:?}", self.call),
            took.count,
            took.p50,
            took.p99,
            took.p999,
            took.max,
            counts(&self.statuses)
        )?;
        if !self.faults.is_empty() {
            write!(f, "  no answer: {}", counts(&self.faults))?;
        }
        writeln!(f)
    }
}
