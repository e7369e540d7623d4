//! PURE. What may not change any more once a moment has passed: people stand in line, or are inside, by what was
//! announced.

use super::{SaleDefinition, SaleProblem};
use crate::clock::Timestamp;

/// What a change at `now` would take from people in line or inside.
#[must_use]
pub fn moment_problems(old: &SaleDefinition, new: &SaleDefinition, now: Timestamp) -> Vec<SaleProblem> {
    let mut problems = Vec::new();
    if new.opens_at != old.opens_at && now >= old.opens_at {
        let problem = format!(
            "was {} and has passed: people are being admitted, and the places of a lottery are drawn as of then",
            old.opens_at
        );
        let remedy = format!("put {} back; `lockgate sale pause` stops admissions", old.opens_at);
        problems.push(SaleProblem::new("opens_at", new.opens_at, problem, remedy));
    }
    if new.doors_open_at > now && now >= old.doors_open_at {
        let problem = format!("was {} and has passed: people are in line already", old.doors_open_at);
        let remedy = format!("put {} back; the doors cannot be shut again", old.doors_open_at);
        problems.push(SaleProblem::new("doors_open_at", new.doors_open_at, problem, remedy));
    }
    if new.closes_at <= now && now < old.closes_at && now >= old.doors_open_at {
        let problem = format!("is in the past, and was {}: it would end the sale at once", old.closes_at);
        let remedy = "set a time to come, or end the sale by `lockgate sale close`";
        problems.push(SaleProblem::new("closes_at", new.closes_at, problem, remedy));
    }
    problems
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sale::{EXAMPLE_TOML, parse_toml};

    fn keys(
        change: impl FnOnce(&mut SaleDefinition),
        now: impl FnOnce(&SaleDefinition) -> Timestamp,
    ) -> Vec<String> {
        let old = parse_toml("example", EXAMPLE_TOML).unwrap();
        let mut new = old.clone();
        change(&mut new);
        let now = now(&old);
        moment_problems(&old, &new, now).into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn p4_what_people_lined_up_by_stands_once_it_has_passed() {
        let later = |sale: &mut SaleDefinition| sale.opens_at = sale.opens_at.plus_seconds(60);
        assert_eq!(keys(later, |old| old.opens_at.minus_seconds(1)), [""; 0]);
        assert_eq!(keys(later, |old| old.opens_at), ["opens_at"]);
        let earlier = |sale: &mut SaleDefinition| sale.opens_at = sale.opens_at.minus_seconds(60);
        assert_eq!(keys(earlier, |old| old.opens_at.plus_seconds(5)), ["opens_at"]);
        let shut = |sale: &mut SaleDefinition| sale.doors_open_at = sale.opens_at;
        assert_eq!(keys(shut, |old| old.doors_open_at.minus_seconds(1)), [""; 0]);
        assert_eq!(keys(shut, |old| old.doors_open_at), ["doors_open_at"]);
        let ended = |sale: &mut SaleDefinition| sale.closes_at = sale.opens_at.plus_seconds(1);
        assert_eq!(keys(ended, |old| old.opens_at.plus_seconds(2)), ["closes_at"]);
        assert_eq!(keys(ended, |old| old.opens_at), [""; 0]);
        let longer = |sale: &mut SaleDefinition| sale.closes_at = sale.closes_at.plus_seconds(60);
        assert_eq!(keys(longer, |old| old.opens_at.plus_seconds(2)), [""; 0]);
    }

    proptest! {
        #[test]
        fn the_same_definition_is_never_refused(seconds in -10_000i64..20_000) {
            let at = |old: &SaleDefinition| Timestamp::from_seconds(old.opens_at.seconds() + seconds);
            prop_assert_eq!(keys(|_| {}, at), [""; 0]);
        }
    }
}
