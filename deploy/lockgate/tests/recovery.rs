//! Through the real binary: a sold-out sale goes on with added units, and a stock that is lost is rebuilt.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::time::Duration;

use common::{Folder, Lockgate, OPERATOR_KEY, Shopper, Stores, Won, client, command, sale_file};
use lockgate_shared::{store::redis::RedisLink, testing::eventually};
use reqwest::StatusCode;
use serde_json::{Value, json};

async fn start(stores: &Stores, folder: &Folder, stock: u32) -> Lockgate {
    let (file, data) = (folder.path().join("sale.toml"), folder.data());
    if !file.exists() {
        folder.write("sale.toml", &sale_file("drop", "open", stock, 1, 600));
    }
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    Lockgate::start(&arguments, &stores.environment()).await
}

/// `lockgate sale …`: its exit code and everything it said.
async fn sale(base: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut words = vec!["sale"];
    words.extend(arguments);
    words.extend(["--url", base, "--key", OPERATOR_KEY]);
    let mut command = command(&words);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (output.status.code(), String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).unwrap())
}

async fn buy(base: &str, key: &str) -> (Shopper, Won) {
    let mut shopper = Shopper::enter(base, "drop", json!({})).await;
    shopper.admit().await;
    let answer = shopper.checkout(key, 1).await.unwrap();
    let status = answer.status();
    let won = Won { answer: answer.json().await.unwrap() };
    assert_eq!(status, StatusCode::ACCEPTED, "{}", won.answer);
    (shopper, won)
}

async fn phase(lockgate: &Lockgate) -> Value {
    let status = client().get(lockgate.url("/sale/drop/status")).send().await.unwrap();
    status.json::<Value>().await.unwrap()["phase"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sold_out_sale_and_its_line_go_on_with_added_units() {
    let folder = Folder::new();
    let lockgate = start(&Stores::Sqlite, &folder, 1).await;
    let (buyer, won) = buy(&lockgate.base, "k").await;
    buyer.pay(&won).await;
    eventually("the line knows that it is sold out", 10, async || phase(&lockgate).await == "sold_out").await;
    let mut waiting = Shopper::enter(&lockgate.base, "drop", json!({})).await;
    let (code, words) = sale(&lockgate.base, &["stock", "drop", "phone", "-1"]).await;
    assert!(code == Some(1) && words.contains("At most 0 can be withdrawn"), "{words}");
    let (code, words) = sale(&lockgate.base, &["stock", "drop", "phone", "+2"]).await;
    assert_eq!((code, words.contains("\"stock\": 3")), (Some(0), true), "{words}");
    eventually("the line goes on", 10, async || phase(&lockgate).await == "open").await;
    waiting.admit().await;
    let answer = waiting.checkout("k", 1).await.unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    // It outlives a restart with the file of before; what is applied must say the stock there is.
    lockgate.terminate().await;
    let lockgate = start(&Stores::Sqlite, &folder, 1).await;
    let file = folder.path().join("sale.toml");
    let (code, words) = sale(&lockgate.base, &["apply", file.to_str().unwrap()]).await;
    assert!(code == Some(2) && words.contains("was 3 and cannot change here"), "{words}");
    let text = std::fs::read_to_string(&file).unwrap().replace("stock = 1", "stock = 3");
    folder.write("sale.toml", &text);
    let (code, words) = sale(&lockgate.base, &["apply", file.to_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{words}");
    let (code, words) = sale(&lockgate.base, &["recover", "drop"]).await;
    assert_eq!((code, words.contains("\"generation\": 2")), (Some(0), true), "{words}");
    eventually("the books balance", 10, async || {
        let books = lockgate.books("drop").await;
        books["balanced"] == true && books["items"][0]["sold"] == 1 && books["items"][0]["stock"] == 3
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_refunded_and_cancelled_on_the_command_line() {
    let folder = Folder::new();
    let lockgate = start(&Stores::Sqlite, &folder, 3).await;
    let (buyer, bought) = buy(&lockgate.base, "a").await;
    buyer.pay(&bought).await;
    eventually("paid", 10, async || buyer.order(&bought).await["state"] == "paid").await;
    let (other, held) = buy(&lockgate.base, "b").await;
    eventually("placed", 10, async || other.order(&held).await["state"] == "awaiting_payment").await;
    let id = |won: &Won| won.answer["order_id"].as_str().unwrap().to_owned();
    let act = async |verb: &str, won: &Won| {
        sale(&lockgate.base, &[verb, &id(won), "--reason", "asked by mail"]).await
    };
    let (code, words) = act("cancel-order", &bought).await;
    assert!(code == Some(1) && words.contains("This order is paid."), "{words}");
    let (code, words) = act("refund", &held).await;
    assert!(code == Some(1) && words.contains("Nothing was paid"), "{words}");
    for _ in 0..2 {
        let (code, words) = act("refund", &bought).await;
        assert_eq!((code, words.contains("\"state\": \"refunded\"")), (Some(0), true), "{words}");
        let (code, words) = act("cancel-order", &held).await;
        assert_eq!((code, words.contains("\"state\": \"cancelled\"")), (Some(0), true), "{words}");
    }
    let log = lockgate.log.lock().unwrap().clone();
    assert!(log.contains("refund order") && log.contains("asked by mail"), "the audit log has it: {log}");
    let (code, words) = sale(&lockgate.base, &["refund", &id(&held)]).await;
    assert!(code == Some(2) && words.contains("--reason"), "{words}");
    let (code, words) = sale(&lockgate.base, &["anomalies", "drop", "--after", "0"]).await;
    let written_down = words.matches(": asked by mail").count();
    assert_eq!((code, written_down), (Some(0), 2), "once each, although asked twice: {words}");
    let books = lockgate.books("drop").await;
    let line = &books["items"][0];
    assert_eq!((&books["balanced"], &line["sold"], &line["available"]), (&json!(true), &json!(1), &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_redis_emptied_in_the_middle_of_a_sale_loses_no_order_and_sells_nothing_twice() {
    let stores = Stores::redis_postgres().await;
    let Stores::RedisPostgres { redis, .. } = &stores else { unreachable!() };
    let folder = Folder::new();
    let lockgate = start(&stores, &folder, 4).await;
    let (first, paid) = buy(&lockgate.base, "a").await;
    first.pay(&paid).await;
    eventually("paid", 10, async || first.order(&paid).await["state"] == "paid").await;
    let (second, held) = buy(&lockgate.base, "b").await;
    eventually("placed", 10, async || second.order(&held).await["state"] == "awaiting_payment").await;
    let mut third = Shopper::enter(&lockgate.base, "drop", json!({})).await;
    third.admit().await;
    let link = RedisLink::connect(redis.url(), "").await.unwrap();
    link.command::<String>("test", &redis::cmd("FLUSHALL")).await.unwrap();
    let started = std::time::Instant::now();
    let units = loop {
        let answer = third.checkout("c", 1).await.unwrap();
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        if status == StatusCode::ACCEPTED {
            break body["units"].clone();
        }
        assert_eq!(
            (status, &body["code"]),
            (StatusCode::SERVICE_UNAVAILABLE, &json!("stock_unavailable")),
            "{body}"
        );
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "not open again:\n{}",
            lockgate.log.lock().unwrap()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(units, json!([3]));
    second.pay(&held).await;
    eventually("what was held is paid", 10, async || second.order(&held).await["state"] == "paid").await;
    eventually("the books balance", 10, async || {
        let books = lockgate.books("drop").await;
        let line = &books["items"][0];
        books["balanced"] == true
            && (&line["sold"], &line["held"], &line["available"]) == (&json!(2), &json!(1), &json!(1))
    })
    .await;
}
