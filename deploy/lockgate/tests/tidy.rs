//! The shape of the tree, kept by a test: what a reviewer would otherwise have to say again and again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

const CRATES: [&str; 6] =
    ["shared", "waiting-room", "stock-gate", "checkout", "deploy/lockgate", "deploy/crowd"];
const VISIBLE: [&str; 10] = [
    "Cargo.toml",
    "Cargo.lock",
    "README.md",
    "LICENSE",
    "waiting-room",
    "stock-gate",
    "checkout",
    "shared",
    "deploy",
    "target",
];
const LINES_MAX: usize = 500;

/// Rules that never read a clock, a random generator, a store or a socket.
const PURE: [&str; 56] = [
    "shared/src/allowlist.rs",
    "shared/src/sale/difference.rs",
    "shared/src/sale/moments.rs",
    "waiting-room/src/captcha/mod.rs",
    "waiting-room/src/captcha/outage.rs",
    "waiting-room/src/captcha/passed.rs",
    "waiting-room/src/draw.rs",
    "waiting-room/src/draw/due.rs",
    "waiting-room/src/draw/record.rs",
    "waiting-room/src/numbers.rs",
    "waiting-room/src/phase.rs",
    "waiting-room/src/place.rs",
    "waiting-room/src/numbering.rs",
    "waiting-room/src/admission/mod.rs",
    "waiting-room/src/admission/record.rs",
    "waiting-room/src/admission/turns.rs",
    "shared/src/edge/class.rs",
    "shared/src/edge/client.rs",
    "shared/src/edge/networks.rs",
    "stock-gate/src/stock.rs",
    "stock-gate/src/hold.rs",
    "checkout/src/gateways/stripe/amounts.rs",
    "checkout/src/gateways/stripe/events.rs",
    "checkout/src/gateways/stripe/session.rs",
    "checkout/src/gateways/stripe/signature.rs",
    "checkout/src/order/decide.rs",
    "checkout/src/order/mod.rs",
    "checkout/src/outbox/letter.rs",
    "checkout/src/outbox/message.rs",
    "checkout/src/outbox/pace.rs",
    "checkout/src/outbox/rule.rs",
    "checkout/src/payment.rs",
    "checkout/src/office/csv.rs",
    "checkout/src/office/cursor.rs",
    "checkout/src/office/mod.rs",
    "checkout/src/office/order_view.rs",
    "checkout/src/rebuild.rs",
    "checkout/src/reconcile/mod.rs",
    "checkout/src/reconcile/report.rs",
    "checkout/src/reconcile/watch.rs",
    "checkout/src/settlement/checks.rs",
    "checkout/src/settlement/mod.rs",
    "checkout/src/settlement/table.rs",
    "checkout/src/settlement/tally.rs",
    "checkout/src/settlement/words.rs",
    "checkout/src/refund.rs",
    "shared/src/gate/ledger.rs",
    "deploy/crowd/src/answer.rs",
    "deploy/crowd/src/board.rs",
    "deploy/crowd/src/buy.rs",
    "deploy/crowd/src/contest/entering.rs",
    "deploy/crowd/src/requests.rs",
    "deploy/crowd/src/rules.rs",
    "deploy/crowd/src/shopper.rs",
    "deploy/crowd/src/walk.rs",
    "deploy/crowd/src/watch.rs",
];
const IMPURE: [&str; 12] = [
    "tokio::",
    "axum",
    "redis::",
    "rusqlite",
    "tokio_postgres",
    "reqwest",
    "rand::",
    "SystemClock",
    "dyn Clock",
    "std::time::Instant",
    "std::fs",
    "std::net",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') && name != "node_modules" {
            files(&path, ending, found);
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

fn sources(ending: &str) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    for krate in CRATES {
        files(&root.join(krate), ending, &mut found);
    }
    assert!(!found.is_empty(), "no {ending} file was found under {}", root.display());
    let name = |path: &Path| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
    found.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn the_visible_top_level_is_fixed() {
    let names =
        fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let strays: Vec<String> = names
        .filter(|name| !name.starts_with('.') && !VISIBLE.contains(&name.as_str()) && name != "lockgate-data")
        .collect();
    assert_none(&strays);
}

#[test]
fn files_stay_short() {
    let mut problems = Vec::new();
    for ending in [".rs", ".lua", ".sql", ".css", ".html"] {
        let found =
            if ending == ".rs" || ending == ".lua" { sources(ending) } else { sources_if_any(ending) };
        for (name, text) in found {
            let lines = text.lines().count();
            if lines > LINES_MAX {
                problems.push(format!("{name} has {lines} lines; {LINES_MAX} at most: split it"));
            }
        }
    }
    assert_none(&problems);
}

fn sources_if_any(ending: &str) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    for krate in CRATES {
        files(&root.join(krate), ending, &mut found);
    }
    found.into_iter().map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn pure_rules_stay_pure() {
    let mut problems = Vec::new();
    for name in PURE {
        let text =
            fs::read_to_string(root().join(name)).unwrap_or_else(|_| panic!("{name} is part of the layout"));
        let rules = text.split("#[cfg(test)]").next().unwrap_or_default();
        for word in IMPURE {
            let used = rules.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(word));
            if used {
                problems.push(format!(
                    "{name} uses `{word}`: rules get time and randomness as arguments and touch nothing"
                ));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn layers_point_one_way() {
    let mut problems = Vec::new();
    let is_test = |name: &str| {
        ["tests.rs", "conformance", "testbed", "sequences", "crowd.rs", "random.rs"]
            .iter()
            .any(|word| name.contains(word))
    };
    for (name, text) in sources(".rs").into_iter().filter(|(name, _)| !is_test(name)) {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code =
            text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        if name.contains("/src/store/") && name.contains("src/store") && !name.starts_with("shared/") {
            for word in ["axum", "crate::http", "crate::app"] {
                if code.contains(word) {
                    problems.push(format!("{name} uses `{word}`: a store knows nothing above it"));
                }
            }
        }
        if name.contains("/src/http/") {
            for word in
                ["rusqlite", "redis::", "tokio_postgres", "crate::store::sqlite", "crate::store::redis"]
            {
                if code.contains(word) {
                    problems.push(format!("{name} uses `{word}`: a handler calls the app, never a back end"));
                }
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn every_script_says_what_it_takes_and_gives() {
    let mut problems = Vec::new();
    for (name, text) in sources(".lua") {
        if !text.starts_with("#!lua") {
            problems
                .push(format!("{name} does not begin with #!lua, so it would write under OOM or READONLY"));
        }
        let header: String = text.lines().skip(1).take_while(|line| line.starts_with("--")).collect();
        for word in ["KEYS", "ARGV", "Output"] {
            if !header.contains(word) {
                problems.push(format!("{name}: its header does not say `{word}`"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn every_store_verb_is_in_the_conformance_suite() {
    let mut problems = Vec::new();
    for krate in ["waiting-room", "stock-gate", "checkout"] {
        let store = fs::read_to_string(root().join(krate).join("src/store/mod.rs")).unwrap();
        let body = store.split("pub trait Store").nth(1).expect("store/mod.rs has `pub trait Store`");
        let office = fs::read_to_string(root().join(krate).join("src/store/office.rs")).unwrap_or_default();
        let more = office.split("pub trait Office").nth(1).unwrap_or("\n}");
        let trait_ends = |text: &str| text.find("\n}").unwrap();
        let verbs: Vec<&str> = [&body[..trait_ends(body)], &more[..trait_ends(more)]]
            .into_iter()
            .flat_map(str::lines)
            .filter_map(|l| l.trim().strip_prefix("async fn ")?.split(['(', '<']).next())
            .collect();
        assert!(verbs.len() >= 5, "{krate}: only {verbs:?} were found in `trait Store`");
        let outbox = fs::read_to_string(root().join(krate).join("src/store/outbox.rs")).unwrap_or_default();
        let part = outbox.split("pub trait OutboxStore").nth(1).and_then(|body| body.split("\n}").next());
        let more = part.unwrap_or_default().lines().filter_map(|l| l.trim().strip_prefix("async fn "));
        let verbs = verbs.into_iter().chain(more.filter_map(|l| l.split(['(', '<']).next()));
        let mut suite = String::new();
        let mut found = Vec::new();
        files(&root().join(krate).join("src/store"), ".rs", &mut found);
        for path in found.iter().filter(|path| path.to_string_lossy().contains("conformance")) {
            suite.push_str(&fs::read_to_string(path).unwrap());
        }
        for verb in verbs {
            if !suite.contains(&format!(".{verb}(")) {
                problems.push(format!("{krate}: Store::{verb} is not called by the conformance suite"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn names_say_what_things_are() {
    let mut problems = Vec::new();
    for (name, text) in sources(".rs").into_iter().filter(|(name, _)| !name.ends_with("tidy.rs")) {
        for (number, line) in text.lines().enumerate() {
            let declares = ["struct ", "enum ", "trait ", "mod "].iter().any(|word| line.contains(word));
            let vague = ["Manager", "Helper", "Util", "mod utils", "mod helpers", "mod common_"];
            let own = !line.contains("ConnectionManager") && !line.contains("use ");
            if declares && own && vague.iter().any(|word| line.contains(word)) {
                problems.push(format!("{name}:{}: a vague name: {}", number + 1, line.trim()));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn every_crate_opens_with_a_map() {
    let mut problems = Vec::new();
    for krate in CRATES {
        let entry = if krate == "deploy/lockgate" { "src/main.rs" } else { "src/lib.rs" };
        let text = fs::read_to_string(root().join(krate).join(entry)).unwrap();
        let map: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        if map.len() < 5 {
            problems.push(format!("{krate}/{entry} does not open with a map of the crate"));
        }
    }
    assert_none(&problems);
}
