//! The README's transcript, run as written, on both back ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::process::Command;

use common::{Folder, Lockgate, Stores};

/// The shell block that follows the README's mark.
fn transcript() -> String {
    let readme = include_str!("../../../README.md");
    let after = readme.split("<!-- transcript -->").nth(1).expect("README.md marks its transcript");
    let block = after.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(block.contains("BASE=http://127.0.0.1:8080"), "{block}");
    block.to_owned()
}

async fn run(stores: Stores) {
    let folder = Folder::new();
    let data = folder.data();
    let lockgate = Lockgate::start(&["--data", data.to_str().unwrap()], &stores.environment()).await;
    let script = transcript().replace("BASE=http://127.0.0.1:8080", &format!("BASE={}", lockgate.base));
    let output = tokio::task::spawn_blocking(move || {
        Command::new("bash").args(["-euo", "pipefail", "-c", &script]).output()
    })
    .await
    .unwrap()
    .unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(said.trim_end().ends_with("paid"), "{said}\n{errors}");
    assert!(lockgate.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shopper_with_curl_buys_a_unit_on_sqlite() {
    run(Stores::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shopper_with_curl_buys_a_unit_on_redis_and_postgres() {
    run(Stores::redis_postgres().await).await;
}
