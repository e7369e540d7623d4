//! PURE. The rules of the line, and the verdict: how often each was checked, how often broken, and examples.

use serde::Serialize;

/// One rule that answers must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Only status codes (and problem codes) that the contract names for the call.
    Contract,
    /// Bodies have the members and types of the contract.
    Shape,
    /// 429, 503 and "not your turn" say when to come back.
    RetryAfter,
    /// Personal answers are kept by no cache.
    Private,
    /// Public answers carry their tag and cache life, set no cookie, and depend on nobody's cookies.
    Public,
    /// Numbers count from 1.
    NumberFromOne,
    /// A number never changes once it was given.
    NumberFixed,
    /// No two accounts share a number.
    NumberUnique,
    /// A number comes in time under fifo, and not before the draw under a lottery.
    NumberInTime,
    /// People ahead never rise.
    AheadFalls,
    /// People ahead are what number and board say.
    AheadAddsUp,
    /// The board never falls from one snapshot to a later one.
    BoardRises,
    /// States move along allowed edges only.
    Edges,
    /// Entering again gives the same place.
    OnePlace,
    /// No turn before its number was called.
    TurnAfterCall,
    /// Whoever was called is not told to wait.
    CallIsTold,
    /// Nobody waits at a snapshot at which a higher number had its turn.
    InOrder,
    /// Being admitted again gives the same token id and expiry.
    SameRight,
    /// Waits are told only while people are admitted, and are ranges.
    WaitHonest,
    /// Never more admissions than rate and burst allow.
    Rate,
    /// What is no ticket, no body and no address is refused by name.
    GarbageRefused,
    /// No unit is paid for by two.
    UnitOnce,
}

/// How many rules there are.
const RULES: usize = Rule::ALL.len();
/// Examples kept per rule.
const EXAMPLES_MAX: usize = 3;

impl Rule {
    /// Every rule, in the order of the report.
    pub const ALL: [Self; 22] = [
        Self::Contract,
        Self::Shape,
        Self::RetryAfter,
        Self::Private,
        Self::Public,
        Self::NumberFromOne,
        Self::NumberFixed,
        Self::NumberUnique,
        Self::NumberInTime,
        Self::AheadFalls,
        Self::AheadAddsUp,
        Self::BoardRises,
        Self::Edges,
        Self::OnePlace,
        Self::TurnAfterCall,
        Self::CallIsTold,
        Self::InOrder,
        Self::SameRight,
        Self::WaitHonest,
        Self::Rate,
        Self::GarbageRefused,
        Self::UnitOnce,
    ];

    /// The name reports use, and what the rule says.
    #[must_use]
    pub fn says(self) -> (&'static str, &'static str) {
        match self {
            Self::Contract => ("contract", "only answers that the contract names for the call"),
            Self::Shape => ("shape", "bodies have the members and types of the contract"),
            Self::RetryAfter => ("retry-after", "429, 503 and not_your_turn say when to come back"),
            Self::Private => ("private", "personal answers are kept by no cache"),
            Self::Public => ("public", "public answers are tagged, cacheable, and blind to cookies"),
            Self::NumberFromOne => ("number-from-one", "numbers count from 1"),
            Self::NumberFixed => ("number-fixed", "a number never changes once given"),
            Self::NumberUnique => ("number-unique", "no two accounts share a number"),
            Self::NumberInTime => {
                ("number-in-time", "a number comes soon under fifo, with the draw under a lottery")
            }
            Self::AheadFalls => ("ahead-falls", "people ahead never rise"),
            Self::AheadAddsUp => ("ahead-adds-up", "people_ahead = max(0, number - 1 - now_serving)"),
            Self::BoardRises => ("board-rises", "now_serving never falls in a later snapshot"),
            Self::Edges => ("edges", "states move along allowed edges only"),
            Self::OnePlace => ("one-place", "entering again gives the same place"),
            Self::TurnAfterCall => ("turn-after-call", "no turn before its number was called"),
            Self::CallIsTold => ("call-is-told", "whoever was called is not told to wait"),
            Self::InOrder => ("in-order", "nobody waits while a higher number has its turn"),
            Self::SameRight => ("same-right", "admitted again: same token id, same expiry"),
            Self::WaitHonest => ("wait-honest", "waits are told only while people are admitted"),
            Self::Rate => ("rate", "never more admissions than rate and burst allow"),
            Self::GarbageRefused => {
                ("garbage-refused", "what is no ticket, body or address is refused by name")
            }
            Self::UnitOnce => ("unit-once", "no unit is paid for by two"),
        }
    }
}

/// What was found, rule by rule.
#[derive(Clone, Debug)]
pub struct Verdict {
    checked: [u64; RULES],
    broken: [u64; RULES],
    examples: [Vec<String>; RULES],
}

impl Default for Verdict {
    fn default() -> Self {
        Self { checked: [0; RULES], broken: [0; RULES], examples: std::array::from_fn(|_| Vec::new()) }
    }
}

/// One rule's findings, as the report has them.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// What it says.
    pub says: &'static str,
    /// How often it was checked; 0 means this crowd never met a case of it.
    pub checked: u64,
    /// How often it was broken.
    pub broken: u64,
    /// The first cases.
    pub examples: Vec<String>,
}

impl Verdict {
    /// Notes one check; `example` is asked for only when the rule is broken.
    pub fn check(&mut self, rule: Rule, holds: bool, example: impl FnOnce() -> String) -> bool {
        let index = rule as usize;
        self.checked[index] += 1;
        if !holds {
            self.broken[index] += 1;
            if self.examples[index].len() < EXAMPLES_MAX {
                self.examples[index].push(example());
            }
        }
        holds
    }

    /// How often a rule was broken.
    #[must_use]
    pub fn broken(&self, rule: Rule) -> u64 {
        self.broken[rule as usize]
    }

    /// How often any rule was broken.
    #[must_use]
    pub fn broken_total(&self) -> u64 {
        self.broken.iter().sum()
    }

    /// Every rule's findings.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let finding = |rule: Rule| {
            let (name, says) = rule.says();
            let index = rule as usize;
            Finding {
                rule: name,
                says,
                checked: self.checked[index],
                broken: self.broken[index],
                examples: self.examples[index].clone(),
            }
        };
        Rule::ALL.into_iter().map(finding).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_stand_in_their_order_and_have_names_of_their_own() {
        let mut names = std::collections::HashSet::new();
        for (index, rule) in Rule::ALL.into_iter().enumerate() {
            assert_eq!(rule as usize, index, "{rule:?}");
            assert!(names.insert(rule.says().0));
        }
    }

    #[test]
    fn examples_are_few_however_often_a_rule_breaks() {
        let mut verdict = Verdict::default();
        for n in 0..100 {
            verdict.check(Rule::Rate, n % 2 == 0, || format!("case {n}"));
        }
        assert_eq!((verdict.broken(Rule::Rate), verdict.broken_total()), (50, 50));
        let finding = &verdict.findings()[Rule::Rate as usize];
        assert_eq!((finding.checked, finding.examples.len()), (100, 3));
    }
}
