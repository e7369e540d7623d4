//! Who has the places: for people as text, for programs as JSON.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::Contest;
use crate::report::Outcome;

/// What one side got, and what it cost them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Side {
    /// People, or bots.
    pub entrants: u32,
    /// Places they hold.
    pub places: u64,
    /// Requests sent.
    pub calls: u64,
    /// Challenges solved.
    pub solved: u64,
    /// How long their threads were at work, all together.
    pub core_seconds: f64,
    /// Refusals by code, and calls without an answer.
    pub refused: BTreeMap<String, u64>,
}

/// What a contest found.
#[derive(Debug, Serialize)]
pub struct ContestReport {
    /// In a word: [`Outcome::Broken`] where an answer was none of the contract's.
    pub verdict: Outcome,
    /// What was tried, with the seed that repeats it.
    pub contest: Contest,
    /// How long it took.
    pub seconds: f64,
    /// Those who want one place.
    pub people: Side,
    /// Those who want all.
    pub bots: Side,
    /// The people's share of all places, between 0 and 1; none where nobody has one.
    pub people_share: Option<f64>,
    /// Answers that are none of the contract's: how many, and the first.
    pub wrong: (u64, Option<String>),
}

impl ContestReport {
    pub(super) fn new(
        contest: &Contest,
        seconds: f64,
        people: Side,
        bots: Side,
        wrong: (u64, Option<String>),
    ) -> Self {
        let places = people.places + bots.places;
        Self {
            verdict: match (wrong.0, places) {
                (0, 0) => Outcome::Unfinished,
                (0, _) => Outcome::Kept,
                _ => Outcome::Broken,
            },
            contest: contest.clone(),
            seconds,
            people_share: (places > 0).then(|| people.places as f64 / places as f64),
            people,
            bots,
            wrong,
        }
    }
}

impl fmt::Display for ContestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Contest { plan, bots, farm_cores, people_cores, .. } = &self.contest;
        writeln!(
            f,
            "{} people against {bots} bots in {:.1} s, seed {}; computing for {people_cores} and {farm_cores} cores",
            plan.shoppers, self.seconds, plan.seed
        )?;
        writeln!(
            f,
            "  {:<8} {:>9} {:>9} {:>9} {:>9} {:>13}  refused",
            "side", "entrants", "places", "calls", "solved", "core seconds"
        )?;
        for (name, side) in [("people", &self.people), ("bots", &self.bots)] {
            let Side { entrants, places, calls, solved, core_seconds, refused } = side;
            let refused: Vec<String> =
                refused.iter().map(|(code, count)| format!("{code}: {count}")).collect();
            writeln!(
                f,
                "  {name:<8} {entrants:>9} {places:>9} {calls:>9} {solved:>9} {core_seconds:>13.1}  {}",
                refused.join("  ")
            )?;
        }
        if let (count, Some(first)) = &self.wrong {
            writeln!(f, "  {count} answers are none of the contract's, the first: {first}")?;
        }
        match self.people_share {
            Some(share) => write!(f, "\npeople hold {:.2} % of the places", share * 100.0),
            None => write!(f, "\nnobody holds a place"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::plan::Options;

    fn report(people: u64, bots: u64, wrong: u64) -> ContestReport {
        let arguments = ["lockgate-crowd", "http://127.0.0.1:1", "test", "--bots", "40", "--shoppers", "2"];
        let options = Options::try_parse_from(arguments).unwrap();
        let contest = Contest::new(&options).unwrap().unwrap();
        let side = |places| Side { places, ..Side::default() };
        let first = (wrong > 0).then(|| "418".to_owned());
        ContestReport::new(&contest, 1.0, side(people), side(bots), (wrong, first))
    }

    #[test]
    fn shares_add_up_and_nothing_is_no_share() {
        assert_eq!(report(1, 3, 0).people_share, Some(0.25));
        assert!(report(1, 3, 0).to_string().contains("people hold 25.00 % of the places"));
        assert_eq!((report(0, 0, 0).people_share, report(0, 0, 0).verdict), (None, Outcome::Unfinished));
        assert_eq!((report(1, 3, 0).verdict, report(1, 3, 2).verdict), (Outcome::Kept, Outcome::Broken));
    }
}
