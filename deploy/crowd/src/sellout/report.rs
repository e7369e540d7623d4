//! What came of it: for people as text, for programs as JSON.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use serde::Serialize;

use super::{Account, End, Fate, SellOut, Taken};
use crate::{figures::CallFigures, report::Outcome};

/// What a run found.
#[derive(Debug, Serialize)]
pub struct SellOutReport {
    /// In a word: [`Outcome::Broken`] where an answer was none of the contract's, or a unit was paid for by two.
    pub verdict: Outcome,
    /// What was tried, with the seed that repeats it.
    pub asked: SellOut,
    /// How long it took.
    pub seconds: f64,
    /// From the first look at the open sale to the first at which nothing could be won any more.
    pub sold_out_seconds: Option<f64>,
    /// How the buyers' days ended; whoever is missing was still at it.
    pub ends: BTreeMap<End, u32>,
    /// Entries, admissions, and how often somebody lined up again.
    pub counts: BTreeMap<&'static str, u64>,
    /// What was held: by fate, then by what its buyer was told last.
    pub holds: BTreeMap<Fate, BTreeMap<String, u64>>,
    /// Units that more than one buyer was told to have paid for.
    pub doubles: u64,
    /// Calls by kind.
    pub calls: Vec<CallFigures>,
    /// Answers that are none of the contract's: how many, and the first few.
    pub wrong: (u64, Vec<String>),
}

impl SellOutReport {
    pub(super) fn new(asked: &SellOut, seconds: f64, account: &Account, claims: &[Taken]) -> Self {
        let mut holds: BTreeMap<Fate, BTreeMap<String, u64>> = BTreeMap::new();
        for taken in claims {
            let told = taken.told.clone().unwrap_or_else(|| "not_looked".into());
            *holds.entry(taken.fate).or_default().entry(told).or_default() += 1;
        }
        let doubles = doubles(claims);
        let through: u32 = account.ends.values().sum();
        let verdict = if account.wrong.0 > 0 || doubles > 0 {
            Outcome::Broken
        } else if through < asked.plan.shoppers || account.ends.contains_key(&End::Closed) {
            Outcome::Unfinished
        } else {
            Outcome::Kept
        };
        Self {
            verdict,
            asked: asked.clone(),
            seconds,
            sold_out_seconds: account.sold_out_seconds,
            ends: account.ends.clone(),
            counts: account.counts.clone(),
            holds,
            doubles,
            calls: account.figures.calls(),
            wrong: account.wrong.clone(),
        }
    }
}

/// Units that more than one buyer was told to have paid for, in time: whoever paid late may have been given others.
fn doubles(claims: &[Taken]) -> u64 {
    let mut owners: HashMap<(&str, u32), u64> = HashMap::new();
    let is_paid = |taken: &&Taken| taken.fate == Fate::Pays && taken.told.as_deref() == Some("paid");
    for taken in claims.iter().filter(is_paid) {
        for unit in &taken.units {
            *owners.entry((&taken.item, *unit)).or_default() += 1;
        }
    }
    owners.values().map(|count| count - 1).sum()
}

fn words<K: Serialize, V: fmt::Display>(counts: &BTreeMap<K, V>) -> String {
    let name = |key: &K| {
        let text = serde_json::to_string(key).unwrap_or_default();
        text.trim_matches('"').replace('_', " ")
    };
    let all: Vec<String> = counts.iter().map(|(key, count)| format!("{} {count}", name(key))).collect();
    all.join(", ")
}

impl fmt::Display for SellOutReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.asked.plan;
        writeln!(
            f,
            "{} buyers in {:.1} s, seed {}: {}",
            plan.shoppers,
            self.seconds,
            plan.seed,
            words(&self.ends)
        )?;
        writeln!(f, "  {}", words(&self.counts))?;
        match self.sold_out_seconds {
            Some(seconds) => writeln!(f, "  all sold {seconds:.1} s after the opening was seen")?,
            None => writeln!(f, "  not seen to be sold out")?,
        }
        for (fate, told) in &self.holds {
            let all: u64 = told.values().sum();
            let fate = match fate {
                Fate::Pays => "paid in time",
                Fate::PaysLate => "paid late",
                Fate::Abandons => "never paid",
            };
            writeln!(f, "  holds {fate:<12} {all:>7}: {}", words(told))?;
        }
        writeln!(
            f,
            "  {:<15} {:>8} {:>8} {:>8} {:>8} {:>8}  answers",
            "call", "count", "p50 ms", "p99", "p99.9", "max"
        )?;
        for call in &self.calls {
            let name = serde_json::to_string(&call.call).unwrap_or_default();
            let mut answers = words(&call.statuses);
            if !call.faults.is_empty() {
                answers = format!("{answers}; without an answer: {}", words(&call.faults));
            }
            let took = &call.took_ms;
            writeln!(
                f,
                "  {:<15} {:>8} {:>8.1} {:>8.1} {:>8.1} {:>8.1}  {answers}",
                name.trim_matches('"'),
                took.count,
                took.p50,
                took.p99,
                took.p999,
                took.max
            )?;
        }
        for example in &self.wrong.1 {
            writeln!(f, "  WRONG  {example}")?;
        }
        let verdict = match self.verdict {
            Outcome::Kept => "every answer was one of the contract's, and every buyer came to an end",
            Outcome::Broken => "BROKEN",
            Outcome::Unfinished => "UNFINISHED: not every buyer came to an end",
        };
        write!(f, "{verdict}; {} units paid for by two, {} wrong answers", self.doubles, self.wrong.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_two_have_paid_for_is_found() {
        let taken = |unit: u32, told: &str| Taken {
            order: String::new(),
            item: "phone".into(),
            units: vec![unit],
            amount: 1,
            who: 1,
            fate: Fate::Pays,
            paid_at_gateway: true,
            told: Some(told.into()),
        };
        assert_eq!(doubles(&[taken(1, "paid"), taken(2, "paid"), taken(1, "expired")]), 0);
        assert_eq!(doubles(&[taken(1, "paid"), taken(2, "paid"), taken(1, "paid")]), 1);
    }
}
