//! Who may enter and who may claim, through the real binary: uploaded lists, and holds that ran out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::process::Output;

use common::{Folder, Lockgate, OPERATOR_KEY, Shopper, Stores, Won, client, command, sale_file};
use lockgate_shared::testing::eventually;
use reqwest::StatusCode;
use serde_json::{Value, json};

async fn start(stores: &Stores, folder: &Folder, sale: &str) -> Lockgate {
    let (file, data) = (folder.write("sale.toml", sale), folder.data());
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    Lockgate::start(&arguments, &stores.environment()).await
}

/// Runs `lockgate sale …` against a running one.
async fn sale(lockgate: &Lockgate, arguments: &[&str]) -> Output {
    let mut words = vec!["sale"];
    words.extend(arguments);
    words.extend(["--url", &lockgate.base, "--key", OPERATOR_KEY]);
    let mut command = command(&words);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn said(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

async fn enter(lockgate: &Lockgate, code: &str, email: &str) -> StatusCode {
    let url = lockgate.url("/sale/club/enter");
    client().post(url).json(&json!({ "code": code, "email": email })).send().await.unwrap().status()
}

async fn a_list_is_checked_here_and_uploaded_in_parts(stores: Stores) {
    let folder = Folder::new();
    let lockgate = start(&stores, &folder, &sale_file("club", "allowlist", 5, 1, 600)).await;
    let wrong = folder.write("wrong.csv", "code,email\ncode-1,a@x.org\nhunter2\ncode-1,b@x.org\n");
    let (code, words) = said(&sale(&lockgate, &["allowlist", "club", wrong.to_str().unwrap()]).await);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("wrong.csv:3: ") && words.contains("wrong.csv:4: "), "{words}");
    assert!(words.contains("nothing was uploaded") && !words.contains("hunter2"), "{words}");
    assert_eq!(
        enter(&lockgate, "code-1", "a@x.org").await,
        StatusCode::SERVICE_UNAVAILABLE,
        "no list is there"
    );

    // Three parts, with a code that only quotation marks can carry.
    let mut text = String::from("\u{feff}Code,Email\r\n\"a,\"\"b\",Odd@x.org\r\n");
    for n in 0..25_000 {
        text.push_str(&format!("code-{n},User{n}@Example.org\r\n"));
    }
    let list = folder.write("list.csv", &text);
    let upload = async || {
        let output = sale(&lockgate, &["allowlist", "club", list.to_str().unwrap()]).await;
        assert_eq!(output.status.code(), Some(0), "{}", said(&output).1);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let first = upload().await;
    assert_eq!(
        first,
        json!({"sale": "club", "codes": 25_001, "added": 25_001, "unchanged": 0, "changed": 0})
    );
    assert_eq!(upload().await["unchanged"], 25_001, "again changes nothing");
    for (code, email) in
        [("code-0", "user0@example.org"), ("code-24999", "USER24999@example.org"), ("a,\"b", "odd@x.org")]
    {
        assert_eq!(enter(&lockgate, code, email).await, StatusCode::CREATED, "{code}");
    }
    assert_eq!(enter(&lockgate, "code-1", "user2@example.org").await, StatusCode::FORBIDDEN);
    let log = lockgate.log.lock().unwrap().clone();
    assert!(!log.contains("@example.org") && !log.contains("code-1"), "no code or address reaches the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_checked_here_and_uploaded_in_parts_on_sqlite() {
    a_list_is_checked_here_and_uploaded_in_parts(Stores::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_checked_here_and_uploaded_in_parts_on_redis_and_postgresql() {
    a_list_is_checked_here_and_uploaded_in_parts(Stores::redis_postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_cannot_be_are_refused_by_their_fault() {
    let folder = Folder::new();
    let lockgate = start(&Stores::Sqlite, &folder, &sale_file("rush", "open", 5, 1, 600)).await;
    let list = folder.write("list.csv", "code-1,a@x.org\n");
    let empty = folder.write("empty.csv", "code,email\n\n");
    let list = list.to_str().unwrap();
    for (arguments, exit, words) in [
        (["allowlist", "rush", list], 1, "no list is asked"),
        (["allowlist", "none", list], 1, "no sale at this address"),
        (["allowlist", "rush", "nowhere.csv"], 2, "nowhere.csv: cannot be read"),
        (["allowlist", "rush", empty.to_str().unwrap()], 2, "holds no code"),
    ] {
        let (code, said) = said(&sale(&lockgate, &arguments).await);
        assert_eq!(code, Some(exit), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

async fn won(shopper: &Shopper, key: &str) -> Won {
    let answer = shopper.checkout(key, 1).await.unwrap();
    let status = answer.status();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    Won { answer }
}

/// What a claim is refused with.
async fn refusal(shopper: &Shopper, key: &str) -> (StatusCode, Value) {
    let answer = shopper.checkout(key, 1).await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

async fn whoever_lets_a_hold_run_out_lines_up_again(stores: Stores) {
    let folder = Folder::new();
    let file =
        sale_file("club", "open", 5, 2, 1).replace("lanes = 4\n", "lanes = 4\nabandoned_holds_limit = 1\n");
    let lockgate = start(&stores, &folder, &file).await;
    let mut shopper = Shopper::enter(&lockgate.base, "club", json!({})).await;
    shopper.admit().await;
    // Given back in time: nothing is held against anybody.
    let first = won(&shopper, "first").await;
    let cancel = format!("{}/orders/{}/cancel", lockgate.base, first.text("order_id"));
    let cancelled = client().post(cancel).bearer_auth(first.text("access_key")).send().await.unwrap();
    assert!(cancelled.status().is_success());
    let second = won(&shopper, "second").await;
    eventually("the hold runs out", 30, async || shopper.order(&second).await["state"] == "expired").await;
    eventually("its units are back", 10, async || lockgate.books("club").await["items"][0]["available"] == 5)
        .await;
    let (status, body) = refusal(&shopper, "third").await;
    assert_eq!((status, &body["code"]), (StatusCode::CONFLICT, &json!("line_up_again")), "{body}");
    assert_eq!(body["abandoned"], 1);
    assert_eq!(
        won(&shopper, "second").await.units(),
        second.units(),
        "what was answered is answered the same"
    );

    eventually("the place is used up", 10, async || shopper.status().await["state"] == "turn_missed").await;
    let enter = format!("{}/sale/club/enter", lockgate.base);
    let again = client().post(enter).bearer_auth(&shopper.ticket).json(&json!({})).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::CREATED, "a new place");
    let again: Value = again.json().await.unwrap();
    let old_token = shopper.token.clone();
    again["ticket"].as_str().unwrap().clone_into(&mut shopper.ticket);
    shopper.admit().await;
    let paid = won(&shopper, "fourth").await;
    shopper.pay(&paid).await;
    eventually("paid", 10, async || shopper.order(&paid).await["state"] == "paid").await;
    let old = Shopper { token: old_token, ..shopper.clone() };
    assert_eq!(refusal(&old, "fifth").await.1["code"], "line_up_again", "the old token stays used up");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lets_a_hold_run_out_lines_up_again_on_sqlite() {
    whoever_lets_a_hold_run_out_lines_up_again(Stores::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lets_a_hold_run_out_lines_up_again_on_redis_and_postgresql() {
    whoever_lets_a_hold_run_out_lines_up_again(Stores::redis_postgres().await).await;
}
