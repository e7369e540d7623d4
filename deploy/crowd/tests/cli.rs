//! The program: exit codes, messages, the report file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod house;

use std::process::{Command, Output};

use lockgate_crowd::rules::Rule;

async fn crowd(arguments: Vec<String>) -> Output {
    let run = move || Command::new(env!("CARGO_BIN_EXE_lockgate-crowd")).args(arguments).output().unwrap();
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_run_ends_with_0_and_writes_its_report() {
    let address = house::open(None).await;
    let folder = std::env::temp_dir().join(format!("lockgate-crowd-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("report.json");
    let arguments =
        format!("http://{address} test --shoppers 20 --think-ms 50 --seed 7 --report {}", file.display());
    let output = crowd(words(&arguments)).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("seed 7\n") && text.contains("every rule was kept"), "{text}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&report["verdict"], &report["plan"]["seed"]), (&"kept".into(), &7.into()));
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_rule_ends_with_1_and_is_named() {
    let address = house::open(Some(Rule::NumberUnique)).await;
    let output = crowd(words(&format!("http://{address} test --shoppers 20 --think-ms 50"))).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("which another shopper has"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goal_that_is_not_reached_ends_with_1() {
    let address = house::open(None).await;
    let arguments = "test --shoppers 20 --think-ms 50 --no-shows 100 --leavers 0 --programs 0 --admissions 5";
    let output = crowd(words(&format!("http://{address} {arguments}"))).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("did not get where it should"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told_with_a_remedy() {
    let address = house::open(None).await;
    let cases = [
        (format!("http://{address}"), 2, "SALE"),
        (format!("http://{address} test --shopers 3"), 2, "--shoppers"),
        (format!("http://{address} test --programs 101"), 2, "--programs 101"),
        ("http://192.0.2.1 test".into(), 2, "--i-own-this-target"),
        ("http://127.0.0.1:1 test".into(), 1, "is Lockgate running there?"),
        (format!("http://{address} nowhere"), 1, "no_such_sale"),
        (format!("http://{address} test --bots 0"), 2, "--bots 0"),
        (format!("http://{address} test --farm-cores 2"), 2, "--bots"),
        ("http://127.0.0.1:1 test --bots 5".into(), 1, "is Lockgate running there?"),
        (format!("http://{address} nowhere --bots 5"), 1, "no_such_sale"),
    ];
    for (arguments, code, word) in cases {
        let output = crowd(words(&arguments)).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
        assert!(said.contains(word), "{arguments}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l4_bots_take_place_after_place_and_people_one_each() {
    let address = house::open(None).await;
    let arguments = "test --shoppers 3 --bots 5 --window-seconds 1 --seed 7";
    let output = crowd(words(&format!("http://{address} {arguments}"))).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let places = |side: &str| -> u64 {
        let line = text.lines().find(|line| line.trim_start().starts_with(side)).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    };
    assert!(places("people ") == 3 && places("bots ") > 5, "{text}");
    assert!(text.contains("% of the places"), "{text}");
}

#[test]
fn cargo_run_at_the_root_means_lockgate() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let metadata = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = Command::new(env!("CARGO")).args(metadata).current_dir(root).output().unwrap();
    let workspace: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let default = workspace["workspace_default_members"].as_array().unwrap();
    let packages = workspace["packages"].as_array().unwrap();
    let targets = packages.iter().filter(|package| default.contains(&package["id"]));
    let programs: Vec<&str> = targets
        .flat_map(|package| package["targets"].as_array().unwrap())
        .filter(|target| target["kind"][0] == "bin")
        .map(|target| target["name"].as_str().unwrap())
        .collect();
    assert_eq!(programs, ["lockgate"]);
}
