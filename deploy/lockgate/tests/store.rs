//! The store a process starts on: what is refused, what is warned of, before a sale is trusted to it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::process::Output;

use common::{Folder, Lockgate, OPERATOR_KEY, Shopper, Won, client, command, sale_file};
use lockgate_shared::testing::{PrivatePostgres, PrivateRedis, eventually};
use serde_json::{Value, json};

const SYNCED: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn run(arguments: &[&str], url: &str, replicas: &str) -> (Output, String) {
    let (url, replicas) = (url.to_owned(), replicas.to_owned());
    run_with(arguments, &[("LOCKGATE_STORE__URL", url), ("LOCKGATE_STORE__REPLICAS_REQUIRED", replicas)])
}

fn run_with(arguments: &[&str], environment: &[(&str, String)]) -> (Output, String) {
    let folder = Folder::new();
    let mut lockgate = command(arguments);
    if arguments != ["check"] {
        lockgate.args(["--data", folder.data().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    }
    let output = lockgate.envs(environment.iter().map(|(key, value)| (key, value))).output().unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn m14_claims_are_served_by_a_process_that_started_without_its_database() {
    let (redis, mut postgres) = tokio::join!(PrivateRedis::start(), PrivatePostgres::start());
    let folder = Folder::new();
    let (data, file) = (folder.data(), folder.write("one.toml", &sale_file("one", "open", 5, 2, 600)));
    let data = ["--data", data.to_str().unwrap()];
    let with_sale = [&data[..], &["--sale", file.to_str().unwrap()]].concat();
    let over = |orders: &str| {
        vec![("LOCKGATE_STORE__URL", redis.url().to_owned()), ("LOCKGATE_ORDERS__URL", orders.to_owned())]
    };
    let first = Lockgate::start(&with_sale, &over(postgres.url())).await;
    // A stock that is opened for the first time asks the orders.
    eventually("the stock is open", 20, async || {
        let books = client().get(first.url("/operator/v1/sales/one/books")).bearer_auth(OPERATOR_KEY);
        books.send().await.unwrap().status().is_success()
    })
    .await;
    assert!(first.terminate().await.success());
    // A database without a single table, and away.
    let orders = over(&postgres.schema("empty").await);
    postgres.stop();
    let lockgate = Lockgate::launch(&data, &orders);
    let ready = client().get(lockgate.url("/readyz")).send().await.unwrap();
    assert_eq!(ready.status().as_u16(), 503);
    let ready: Value = ready.json().await.unwrap();
    assert_eq!(ready["waiting_for"], "orders' store", "{ready}");
    let mut shopper = Shopper::enter(&lockgate.base, "one", json!({})).await;
    shopper.admit().await;
    let answer = shopper.checkout("k", 1).await.unwrap();
    let status = answer.status().as_u16();
    let won = Won { answer: answer.json().await.unwrap() };
    assert_eq!(status, 202, "{won:?}");
    let order = client().get(lockgate.url(&format!("/orders/{}", won.text("order_id"))));
    let page = order.bearer_auth(won.text("access_key")).header("accept", "text/html").send().await.unwrap();
    assert_eq!(page.status().as_u16(), 503, "a page that says so");
    postgres.start_again().await;
    eventually("it is ready", 20, async || {
        client().get(lockgate.url("/readyz")).send().await.unwrap().status().is_success()
    })
    .await;
    eventually("the claim is an order", 15, async || {
        shopper.order(&won).await["state"] == "awaiting_payment"
    })
    .await;
    let log = lockgate.log.lock().unwrap().clone();
    assert!(log.contains("orders.url: ") && log.contains("claims are served meanwhile"), "{log}");
    assert!(lockgate.terminate().await.success());
    let (output, said) =
        run_with(&["serve"], &[("LOCKGATE_ORDERS__URL", postgres.url().replace("/postgres", "/nowhere"))]);
    assert_eq!(output.status.code(), Some(1), "what does not pass by itself ends the start: {said}");
    assert!(said.contains("orders.url: ") && said.contains("nowhere"), "{said}");
}
