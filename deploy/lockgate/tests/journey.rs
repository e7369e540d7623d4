//! One sale from end to end, through the real binary, on both back ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::{collections::HashSet, sync::Arc};

use common::{Folder, Lockgate, OPERATOR_KEY, Shopper, Stores, Won, client, command, eligibility, sale_file};
use lockgate_shared::testing::eventually;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

async fn start(stores: &Stores, folder: &Folder, sale: &str) -> Lockgate {
    let file = folder.write("sale.toml", sale);
    Lockgate::start(&["serve", "--data", text(&folder.data()), "--sale", text(&file)], &stores.environment())
        .await
}

/// Enters and is admitted; as many at once as the machine bears.
async fn admitted(lockgate: &Lockgate, sale: &str, accounts: std::ops::Range<usize>) -> Vec<Shopper> {
    let mut entering = JoinSet::new();
    for account in accounts {
        let (base, sale) = (lockgate.base.clone(), sale.to_owned());
        entering.spawn(async move {
            let body = json!({ "eligibility": eligibility(&format!("account-{account}"), &sale) });
            let mut shopper = Shopper::enter(&base, &sale, body).await;
            shopper.admit().await;
            shopper
        });
    }
    entering.join_all().await
}

/// Everybody claims at once. Answers who won and how many were refused as sold out.
async fn rush(shoppers: &[Shopper], key: &str) -> (Vec<(Shopper, Won)>, usize) {
    let gate = Arc::new(tokio::sync::Barrier::new(shoppers.len()));
    let mut claiming = JoinSet::new();
    for shopper in shoppers.iter().cloned() {
        let (gate, key) = (Arc::clone(&gate), key.to_owned());
        claiming.spawn(async move {
            gate.wait().await;
            let answer = shopper.checkout(&key, 1).await.unwrap();
            let status = answer.status();
            let body: Value = answer.json().await.unwrap();
            match status {
                StatusCode::ACCEPTED => Some((shopper, Won { answer: body })),
                StatusCode::CONFLICT if body["code"] == "sold_out" => None,
                other => panic!("{other}: {body}"),
            }
        });
    }
    let answers = claiming.join_all().await;
    let refused = answers.iter().filter(|answer| answer.is_none()).count();
    (answers.into_iter().flatten().collect(), refused)
}

fn assert_each_unit_once(won: &[(Shopper, Won)], stock: u64) {
    let units: HashSet<u64> = won.iter().flat_map(|(_, won)| won.units()).collect();
    assert_eq!(units, (1..=stock).collect(), "unit numbers 1..{stock}, each once");
}

/// Claims whose reader died with them become orders once another has taken its work over, so this may wait.
async fn books_balance(lockgate: &Lockgate, sale: &str, available: u64, held: u64, sold: u64) {
    let mut books = Value::Null;
    let expected = json!([true, 0, available, held, sold]);
    for _ in 0..10 {
        books = lockgate.books(sale).await;
        let item = &books["items"][0];
        if json!([books["balanced"], item["difference"], item["available"], item["held"], item["sold"]])
            == expected
        {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    panic!("the books do not become [balanced, difference, available, held, sold] = {expected}: {books}");
}

async fn five_hundred_for_fifty(stores: Stores) {
    let folder = Folder::new();
    let lockgate = start(&stores, &folder, &sale_file("rush", "eligibility", 50, 1, 6)).await;
    let shoppers = admitted(&lockgate, "rush", 0..500).await;
    let (won, refused) = rush(&shoppers, "first").await;
    assert_eq!((won.len(), refused), (50, 450));
    assert_each_unit_once(&won, 50);
    books_balance(&lockgate, "rush", 0, 50, 0).await;

    // Half of the winners pay; the others let their holds run out, and the units go to others.
    let (paying, leaving) = won.split_at(25);
    for (shopper, won) in paying {
        shopper.pay(won).await;
        eventually("a paid order says so", 10, async || shopper.order(won).await["state"] == "paid").await;
    }
    for (shopper, won) in leaving {
        eventually("an unpaid order expires", 30, async || shopper.order(won).await["state"] == "expired")
            .await;
    }
    eventually("the units are back", 10, async || {
        lockgate.books("rush").await["items"][0]["available"] == 25
    })
    .await;
    books_balance(&lockgate, "rush", 25, 0, 25).await;

    let losers: Vec<Shopper> = shoppers
        .iter()
        .filter(|shopper| !won.iter().any(|(winner, _)| winner.ticket == shopper.ticket))
        .take(100)
        .cloned()
        .collect();
    eventually("the sale sees that units returned", 5, async || {
        let answer =
            losers[0].client.get(format!("{}/sale/rush/status", lockgate.base)).send().await.unwrap();
        answer.json::<Value>().await.unwrap()["items"][0]["state"] == "available"
    })
    .await;
    let (second, _) = rush(&losers, "second").await;
    assert_eq!(second.len(), 25);
    let mut owners: Vec<(Shopper, Won)> = paying.to_vec();
    owners.extend(second);
    assert_each_unit_once(&owners, 50);

    // A replay answers the same whatever happened since: paid, expired, or held by somebody else by now.
    for (shopper, won) in won.iter().take(30) {
        let answer = shopper.checkout("first", 1).await.unwrap();
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
        assert_eq!(answer.json::<Value>().await.unwrap(), won.answer);
    }
    let other_body = won[0].0.checkout("first", 2).await.unwrap();
    assert_eq!(other_body.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(lockgate.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_accounts_for_fifty_units_on_sqlite() {
    five_hundred_for_fifty(Stores::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_accounts_for_fifty_units_on_redis_and_postgres() {
    five_hundred_for_fifty(Stores::redis_postgres().await).await;
}

async fn killed_in_the_rush(stores: Stores) {
    let folder = Folder::new();
    let sale = sale_file("crash", "eligibility", 50, 1, 60);
    let lockgate = start(&stores, &folder, &sale).await;
    let shoppers = admitted(&lockgate, "crash", 0..200).await;
    // One buys and pays before the crash: money must survive it.
    let (early, _) = rush(&shoppers[..1], "early").await;
    early[0].0.pay(&early[0].1).await;

    let mut claiming = JoinSet::new();
    for shopper in shoppers[1..].iter().cloned() {
        claiming.spawn(async move {
            // A lost reply is no answer: the shopper asks again with the same key after the restart.
            let answer = shopper.checkout("rush", 1).await.ok()?;
            let status = answer.status();
            let body: Value = answer.json().await.ok()?;
            (status == StatusCode::ACCEPTED).then_some((shopper, Won { answer: body }))
        });
    }
    let mut answered: Vec<(Shopper, Won)> = Vec::new();
    while answered.len() < 10 {
        answered.extend(claiming.join_next().await.expect("fewer than ten won").unwrap());
    }
    lockgate.kill();
    answered.extend(claiming.join_all().await.into_iter().flatten());

    let lockgate = start(&stores, &folder, &sale).await;
    let moved = |shopper: &Shopper| Shopper { base: lockgate.base.clone(), ..shopper.clone() };
    let same_but_for_the_port = |answer: &Value| -> Value {
        let mut answer = answer.clone();
        for field in ["order_url", "payment_url"] {
            answer[field] = answer[field].as_str().unwrap().split("/orders/").nth(1).unwrap().into();
        }
        answer
    };
    for (shopper, won) in &answered {
        let replay = moved(shopper).checkout("rush", 1).await.unwrap();
        assert_eq!(replay.status(), StatusCode::ACCEPTED, "an answered claim was lost");
        assert_eq!(same_but_for_the_port(&replay.json().await.unwrap()), same_but_for_the_port(&won.answer));
    }
    let paid = Won { answer: early[0].1.answer.clone() };
    let buyer = moved(&early[0].0);
    eventually("what was paid before the crash is paid after it", 20, async || {
        buyer.order(&paid).await["state"] == "paid"
    })
    .await;

    // The line goes on: those who lost their reply ask again, and newcomers enter and are admitted.
    let back: Vec<Shopper> = shoppers[1..].iter().map(moved).collect();
    let (won, _) = rush(&back, "rush").await;
    assert_eq!(won.len(), 49);
    let mut owners = won;
    owners.push((buyer, paid));
    assert_each_unit_once(&owners, 50);
    books_balance(&lockgate, "crash", 0, 49, 1).await;
    let body = json!({ "eligibility": eligibility("newcomer", "crash") });
    let newcomer = Shopper::enter(&lockgate.base, "crash", body).await;
    eventually("a newcomer's number goes on where the numbers stopped", 5, async || {
        newcomer.status().await["number"] == 201
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_in_the_rush_loses_nothing_on_sqlite() {
    killed_in_the_rush(Stores::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_in_the_rush_loses_nothing_on_redis_and_postgres() {
    killed_in_the_rush(Stores::redis_postgres().await).await;
}

async fn calls_are_counted(stores: Stores) {
    let folder = Folder::new();
    let lockgate = start(&stores, &folder, &sale_file("count", "open", 5, 5, 600)).await;
    let mut buyer = Shopper::enter(&lockgate.base, "count", json!({})).await;
    buyer.admit().await;
    let late = {
        let mut late = Shopper::enter(&lockgate.base, "count", json!({})).await;
        late.admit().await;
        late
    };
    let pause = format!("{}/operator/v1/sales/count/pause", lockgate.base);
    let paused = client().post(pause).bearer_auth(OPERATOR_KEY).send().await.unwrap();
    assert!(paused.status().is_success());
    eventually("the pause is seen", 5, async || buyer.status().await["phase"] == "paused").await;

    let before = lockgate.store_calls().await;
    let since = async |before: &std::collections::HashMap<String, u64>, verb: &str| {
        lockgate.store_calls().await.get(verb).copied().unwrap_or(0) - before.get(verb).copied().unwrap_or(0)
    };
    let waiting = Shopper::enter(&lockgate.base, "count", json!({})).await;
    assert_eq!(since(&before, "enter").await, 1, "entering is one store call");
    for _ in 0..50 {
        assert!(matches!(waiting.status().await["state"].as_str(), Some("entered" | "waiting")));
    }
    assert_eq!(
        since(&before, "enter").await + since(&before, "seat").await,
        1,
        "waiting costs no store call"
    );
    assert_eq!(buyer.checkout("k1", 5).await.unwrap().status(), StatusCode::ACCEPTED);
    assert_eq!(since(&before, "claim").await, 1, "a claim is one store call");
    eventually("sold out is seen", 5, async || buyer.status().await["phase"] == "sold_out").await;
    // The checkout's own view is as young as the waiting room's; give it the one refresh it may be behind.
    eventually("the checkout sees it too", 5, async || {
        let before = lockgate.store_calls().await;
        let answer = late.checkout("k2", 1).await.unwrap();
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        since(&before, "claim").await == 0
    })
    .await;
    let before = lockgate.store_calls().await;
    for n in 0..20 {
        let answer = late.checkout(&format!("late-{n}"), 1).await.unwrap();
        let body: Value = answer.json().await.unwrap();
        assert_eq!(
            (body["code"].as_str(), body["may_return"].as_bool()),
            (Some("sold_out"), Some(true)),
            "{body}"
        );
    }
    for verb in ["claim", "hold", "order", "enter", "redeem", "seat"] {
        assert_eq!(since(&before, verb).await, 0, "a sold-out checkout made a store call: {verb}");
    }
    // The winner's retry is not refused by what keeps the others out.
    assert_eq!(buyer.checkout("k1", 5).await.unwrap().status(), StatusCode::ACCEPTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn store_calls_are_as_few_as_promised_on_sqlite() {
    calls_are_counted(Stores::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn store_calls_are_as_few_as_promised_on_redis() {
    calls_are_counted(Stores::redis_postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_the_same_folder_is_refused() {
    let folder = Folder::new();
    let lockgate = start(&Stores::Sqlite, &folder, &sale_file("one", "open", 5, 1, 600)).await;
    let second =
        command(&["serve", "--listen", "127.0.0.1:0", "--data", text(&folder.data())]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let words = String::from_utf8(second.stderr).unwrap();
    assert!(words.contains(text(&folder.data())), "{words}");
    assert!(lockgate.terminate().await.success(), "SIGTERM ends with 0");
}

#[test]
fn bad_usage_and_configuration_end_with_2_and_name_every_problem() {
    let folder = Folder::new();
    let config = folder.write("lockgate.toml", "listn = \"x\"\npublic_url = \"ftp://x\"\n");
    let sale = folder.write("sale.toml", &sale_file("Bad Id", "open", 0, 1, 600));
    let bad = command(&["check", "--config", text(&config)]).output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
    let words = String::from_utf8(bad.stderr).unwrap();
    assert!(
        words.contains("listn") && words.contains("public_url") && words.contains("lockgate.toml"),
        "{words}"
    );
    let bad = command(&["check", "--sale", text(&sale)]).output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
    let words = String::from_utf8(bad.stderr).unwrap();
    assert!(words.contains("sale.toml") && words.contains("stock") && words.contains("id"), "{words}");
    assert_eq!(command(&["fly"]).output().unwrap().status.code(), Some(2));
    assert_eq!(command(&["checkout", "--listen", "127.0.0.1:0"]).output().unwrap().status.code(), Some(2));
    let good = folder.write("good.toml", &sale_file("good", "open", 1, 1, 600));
    assert_eq!(command(&["check", "--sale", text(&good)]).output().unwrap().status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_credential_reaches_the_log() {
    let folder = Folder::new();
    let mut environment = Stores::Sqlite.environment();
    environment.push(("LOCKGATE_LOG__FILTER", "trace".into()));
    let file = folder.write("sale.toml", &sale_file("quiet", "open", 5, 1, 600));
    let data = folder.data();
    let arguments = ["serve", "--data", text(&data), "--sale", text(&file)];
    let lockgate = Lockgate::start(&arguments, &environment).await;
    let mut shopper = Shopper::enter(&lockgate.base, "quiet", json!({})).await;
    shopper.admit().await;
    let answer = shopper.checkout("k1", 1).await.unwrap();
    let won = Won { answer: answer.json().await.unwrap() };
    shopper.pay(&won).await;
    let with_key =
        format!("{}/orders/{}?key={}", lockgate.base, won.text("order_id"), won.text("access_key"));
    assert_eq!(client().get(with_key).send().await.unwrap().status(), StatusCode::SEE_OTHER);
    eventually("the order is paid", 10, async || shopper.order(&won).await["state"] == "paid").await;
    let log = Arc::clone(&lockgate.log);
    assert!(lockgate.terminate().await.success());
    let log = log.lock().unwrap();
    assert!(log.len() > 1_000, "the log was not written at all");
    for secret in [&shopper.ticket, &shopper.token, &won.text("access_key"), OPERATOR_KEY] {
        assert!(!log.contains(secret), "a credential stands in the log");
    }
}
