//! The store a process starts on: what is refused, what is warned of, before a sale is trusted to it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::process::Output;

use common::{Folder, command};
use lockgate_shared::testing::PrivateRedis;

const SYNCED: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn run(arguments: &[&str], url: &str, replicas: &str) -> (Output, String) {
    let folder = Folder::new();
    let mut lockgate = command(arguments);
    if arguments != ["check"] {
        lockgate.args(["--data", folder.data().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    }
    lockgate.env("LOCKGATE_STORE__URL", url).env("LOCKGATE_STORE__REPLICAS_REQUIRED", replicas);
    let output = lockgate.output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, said)
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_a_store_that_evicts_is_refused_with_the_remedy() {
    let store =
        PrivateRedis::start_with(&[&SYNCED[..], &["--maxmemory-policy", "allkeys-lru"]].concat()).await;
    for (arguments, code) in [(["serve"], 1), (["check"], 2)] {
        let (output, said) = run(&arguments, store.url(), "0");
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains("store.url: maxmemory-policy is 'allkeys-lru'"), "{said}");
        assert!(said.contains("set `maxmemory-policy noeviction`"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_weak_persistence_and_missing_replicas_are_warned_of_with_the_remedy() {
    let store = PrivateRedis::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]).await;
    let (output, said) = run(&["check"], store.url(), "1");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("set `appendonly yes` and `appendfsync always`"), "{said}");
    assert!(said.contains("store.replicas_required is 1, and 0 replicas are connected"), "{said}");
    let sound = PrivateRedis::start_with(&SYNCED).await;
    let (_, said) = run(&["check"], sound.url(), "0");
    assert!(said.contains("the configuration is sound") && !said.contains("warning"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_reached_is_no_problem_of_the_configuration() {
    let (output, said) = run(&["check"], "redis://:hunter22@127.0.0.1:1", "0");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("store.url: not looked at") && !said.contains("hunter22"), "{said}");
}
