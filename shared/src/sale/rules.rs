//! Rules between the values of a definition, and between a definition and the one it would replace.

use std::{collections::HashMap, fmt::Display};

use super::{EligibilityAlgorithm, EntryRule, QueueingMethod, SaleDefinition, SaleProblem};

/// A problem and the keys whose values it follows from.
type Finding = (Vec<String>, SaleProblem);

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    /// Notes a problem of the first of `keys` that follows from all of them.
    fn refuse(
        &mut self,
        keys: &[&str],
        value: impl Display,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let relies_on = keys.iter().map(|key| (*key).to_owned()).collect();
        let key = keys.first().copied().unwrap_or_default();
        self.0.push((relies_on, SaleProblem::new(key, value, problem, remedy)));
    }
}

/// Everything in which a definition contradicts itself.
pub(super) fn contradictions(sale: &SaleDefinition) -> Vec<Finding> {
    let mut findings = Findings::default();
    times(sale, &mut findings);
    limits(sale, &mut findings);
    items(sale, &mut findings);
    entry(sale, &mut findings);
    eligibility_keys(sale, &mut findings);
    if sale.queueing_method == QueueingMethod::Fifo && sale.lottery.is_some() {
        findings.refuse(
            &["lottery", "queueing_method"],
            "",
            "has no meaning under queueing_method = \"fifo\"",
            "remove [lottery], or set queueing_method = \"lottery\"",
        );
    }
    findings.0
}

fn times(sale: &SaleDefinition, findings: &mut Findings) {
    if sale.doors_open_at > sale.opens_at {
        findings.refuse(
            &["doors_open_at", "opens_at"],
            sale.doors_open_at,
            format!("is after opens_at ({})", sale.opens_at),
            "let the doors open at or before the opening",
        );
    }
    if sale.opens_at >= sale.closes_at {
        findings.refuse(
            &["closes_at", "opens_at"],
            sale.closes_at,
            format!("is not after opens_at ({})", sale.opens_at),
            "let the sale close after it opens",
        );
    } else if u128::from(sale.hold_seconds) * 1_000 > sale.closes_at.since(sale.opens_at).as_millis() {
        let seconds = sale.closes_at.since(sale.opens_at).as_secs();
        findings.refuse(
            &["hold_seconds", "opens_at", "closes_at"],
            sale.hold_seconds,
            format!("is longer than the sale, which lasts {seconds} seconds"),
            format!("hold units for at most {seconds} seconds, or let the sale last longer"),
        );
    }
    let admission = &sale.admission;
    if admission.token_seconds < admission.turn_seconds {
        findings.refuse(
            &["admission.token_seconds", "admission.turn_seconds"],
            admission.token_seconds,
            format!("makes a token shorter than a turn ({} seconds)", admission.turn_seconds),
            "make token_seconds at least turn_seconds",
        );
    }
    if let Some(longest) = admission.token_seconds_max.filter(|longest| *longest < admission.token_seconds) {
        findings.refuse(
            &["admission.token_seconds_max", "admission.token_seconds"],
            longest,
            format!("is shorter than a token ({} seconds)", admission.token_seconds),
            "make token_seconds_max at least token_seconds, or remove it",
        );
    }
}

fn limits(sale: &SaleDefinition, findings: &mut Findings) {
    let stock = sale.stock_total();
    if let Some(limit) = sale.total_limit.filter(|limit| u64::from(*limit) > stock) {
        findings.refuse(
            &["total_limit", "items"],
            limit,
            format!("is more than all items have together ({stock})"),
            "lower it, or remove it to sell all there is",
        );
    }
}

fn items(sale: &SaleDefinition, findings: &mut Findings) {
    let mut seen = HashMap::new();
    for (index, item) in sale.items.iter().enumerate() {
        let key = format!("items[{index}].item");
        if let Some(first) = seen.insert(&item.item, index) {
            seen.insert(&item.item, first);
            let first = format!("items[{first}].item");
            findings.refuse(
                &[&key, &first],
                format!("\"{}\"", item.item),
                format!("is the id of {first} too"),
                "give every item an id of its own",
            );
        }
    }
    let Some(first) = sale.items.first() else { return };
    for (index, item) in sale.items.iter().enumerate() {
        if item.currency != first.currency {
            findings.refuse(
                &[&format!("items[{index}].currency"), "items[0].currency"],
                format!("\"{}\"", item.currency),
                format!("differs from the currency of items[0] ({})", first.currency),
                "sell all items of a sale in one currency; make a second sale for another",
            );
        }
    }
}

fn entry(sale: &SaleDefinition, findings: &mut Findings) {
    match (sale.entry, sale.eligibility_keys.is_empty()) {
        (EntryRule::Eligibility, false) | (EntryRule::Open | EntryRule::Allowlist, true) => {}
        (EntryRule::Eligibility, true) => findings.refuse(
            &["entry", "eligibility_keys"],
            "\"eligibility\"",
            "has no keys, so nobody could enter",
            "add [[eligibility_keys]], or set entry = \"open\" or \"allowlist\"",
        ),
        (EntryRule::Open | EntryRule::Allowlist, false) => findings.refuse(
            &["eligibility_keys", "entry"],
            "",
            format!(
                "has no meaning under entry = \"{}\": nobody's eligibility is checked",
                sale.entry.as_str()
            ),
            "set entry = \"eligibility\", or remove [[eligibility_keys]]",
        ),
    }
}

fn eligibility_keys(sale: &SaleDefinition, findings: &mut Findings) {
    let mut seen = HashMap::new();
    for (index, key) in sale.eligibility_keys.iter().enumerate() {
        let path = |field: &str| format!("eligibility_keys[{index}].{field}");
        if let Some(first) = seen.insert(&key.kid, index) {
            seen.insert(&key.kid, first);
            let first = format!("eligibility_keys[{first}].kid");
            findings.refuse(
                &[&path("kid"), &first],
                format!("\"{}\"", key.kid),
                format!("is the kid of {first} too"),
                "give every key a kid of its own",
            );
        }
        let (needed, is_there, foreign, is_foreign_there) = match key.algorithm {
            EligibilityAlgorithm::Hs256 => {
                ("secret_env", key.secret_env.is_some(), "public_key", key.public_key.is_some())
            }
            EligibilityAlgorithm::EdDsa => {
                ("public_key", key.public_key.is_some(), "secret_env", key.secret_env.is_some())
            }
        };
        let algorithm = key.algorithm.as_str();
        if !is_there {
            findings.refuse(
                &[&path(needed), &path("algorithm")],
                "",
                format!("is missing; a key of algorithm {algorithm} cannot verify without it"),
                format!("add {needed}, or change the algorithm"),
            );
        }
        if is_foreign_there {
            findings.refuse(
                &[&path(foreign), &path("algorithm")],
                "",
                format!("does not belong to a key of algorithm {algorithm}"),
                format!("remove {foreign}, or change the algorithm"),
            );
        }
    }
}

/// What would change that may not change once a sale exists: places, numbers, units and orders depend on it.
/// Everything else may.
#[must_use]
pub fn change_problems(old: &SaleDefinition, new: &SaleDefinition) -> Vec<SaleProblem> {
    let mut problems = Vec::new();
    let mut keep = |key: &str, old: String, new: String, reason: &str| {
        if old != new {
            let problem = format!("was {old} and cannot change: {reason}");
            let remedy = format!("put {old} back, or make a sale with another id");
            problems.push(SaleProblem::new(key, new, problem, remedy));
        }
    };
    keep(
        "id",
        format!("\"{}\"", old.id),
        format!("\"{}\"", new.id),
        "tickets, tokens and orders name the sale",
    );
    keep(
        "lanes",
        old.lanes.to_string(),
        new.lanes.to_string(),
        "it would move people to other places in the line",
    );
    let word = |word: &str| format!("\"{word}\"");
    keep(
        "queueing_method",
        word(old.queueing_method.as_str()),
        word(new.queueing_method.as_str()),
        "people lined up under the old method",
    );
    keep(
        "lottery.beacon",
        word(old.lottery.unwrap_or_default().beacon.as_str()),
        word(new.lottery.unwrap_or_default().beacon.as_str()),
        "people lined up for a draw made as it was announced",
    );
    keep("entry", word(old.entry.as_str()), word(new.entry.as_str()), "people entered under the old rule");
    items_kept(old, new, &mut problems);
    problems
}

fn items_kept(old: &SaleDefinition, new: &SaleDefinition, problems: &mut Vec<SaleProblem>) {
    let ids = |sale: &SaleDefinition| {
        sale.items.iter().map(|item| item.item.to_string()).collect::<Vec<_>>().join(", ")
    };
    if !old.items.iter().map(|item| &item.item).eq(new.items.iter().map(|item| &item.item)) {
        let problem = format!("were {} and cannot be added, removed or put in another order", ids(old));
        let remedy = "put the items back as they were; make another sale for other items";
        problems.push(SaleProblem::new("items", ids(new), problem, remedy));
    }
    for (index, item) in new.items.iter().enumerate() {
        let Some(before) = old.item(&item.item) else {
            continue;
        };
        if item.stock != before.stock {
            problems.push(SaleProblem::new(
                format!("items[{index}].stock"),
                item.stock,
                format!("was {} and cannot change here: units may be held or sold", before.stock),
                format!("put {} back, and add or withdraw units by the sale's stock route", before.stock),
            ));
        }
        if item.currency != before.currency {
            problems.push(SaleProblem::new(
                format!("items[{index}].currency"),
                format!("\"{}\"", item.currency),
                format!("was \"{}\" and cannot change: orders were placed in it", before.currency),
                format!("put \"{}\" back, or make a sale with another id", before.currency),
            ));
        }
    }
}
