//! The drills of faults and of money: a short one of each with the binary under test, and the accounts they all end in.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::{path::Path, process::Command};

fn python(arguments: &[&str]) -> (bool, String) {
    let drills = Path::new(env!("CARGO_MANIFEST_DIR")).join("../drills");
    let mut command = Command::new("python3");
    command.current_dir(drills).arg("-B").args(arguments);
    command.env("LOCKGATE_BIN", env!("CARGO_BIN_EXE_lockgate"));
    let output = command.output().expect("python3 is missing; deploy/test installs it");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn the_settlement_finds_what_does_not_agree() {
    let (passed, said) = python(&["-m", "unittest", "fault_parts.test_account"]);
    assert!(passed && said.contains("Ran 5 tests"), "{said}");
}

#[test]
fn h9_m10_killed_roles_a_killed_redis_and_lost_replies_change_no_account() {
    let (passed, said) = python(&["faults", "quick"]);
    assert!(passed, "{said}");
}

#[test]
fn the_account_of_money_finds_what_does_not_agree() {
    let (passed, said) = python(&["-m", "unittest", "money_parts.test_settlement"]);
    assert!(passed && said.contains("Ran 5 tests"), "{said}");
}

#[test]
fn m3_m5_m9_a_gateway_that_fails_repeats_and_forgets_its_answers_changes_no_account() {
    let (passed, said) = python(&["money", "quick"]);
    assert!(passed, "{said}");
}
