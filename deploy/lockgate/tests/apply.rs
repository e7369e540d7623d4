//! `lockgate sale apply` through the real binary: what it shows, what it refuses, and two operators at once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::{path::Path, process::Output};

use common::{Folder, Lockgate, OPERATOR_KEY, Stores, client, command, sale_file};
use lockgate_shared::testing::eventually;
use serde_json::Value;
use tokio::task::JoinSet;

async fn start(stores: &Stores, folder: &Folder, data: &str, file: &Path) -> Lockgate {
    let data = folder.path().join(data);
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    let mut environment = stores.environment();
    environment.push(("LOCKGATE_KEYS__FILE", folder.path().join("keys.toml").to_str().unwrap().to_owned()));
    Lockgate::start(&arguments, &environment).await
}

fn new_keys(folder: &Folder) {
    let file = folder.path().join("keys.toml");
    assert!(command(&["keys", "new", "--file", file.to_str().unwrap()]).output().unwrap().status.success());
}

async fn sale(base: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut words = vec!["sale"];
    words.extend(arguments);
    words.extend(["--url", base, "--key", OPERATOR_KEY]);
    let mut command = command(&words);
    let output: Output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

async fn version(lockgate: &Lockgate) -> String {
    let url = lockgate.url("/operator/v1/sales/drop");
    let answer = client().get(url).bearer_auth(OPERATOR_KEY).send().await.unwrap();
    answer.headers()["etag"].to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_compared_shown_and_applied_and_harm_is_refused() {
    let folder = Folder::new();
    let text = sale_file("drop", "open", 5, 1, 600);
    let file = folder.write("sale.toml", &text);
    new_keys(&folder);
    let lockgate = start(&Stores::Sqlite, &folder, "data", &file).await;
    let name = file.to_str().unwrap();
    // The stock's opening is a change too.
    eventually("the stock is there", 10, async || version(&lockgate).await == "\"2\"").await;
    let same = sale(&lockgate.base, &["apply", name]).await;
    assert_eq!(same, (Some(0), "sale 'drop' (version 2): nothing to change\n".into()));
    assert_eq!(sale(&lockgate.base, &["apply", name, "--dry-run"]).await.0, Some(0));

    let faster = text
        .replace("rate_per_minute = 600000", "rate_per_minute = 1200")
        .replace("hold_seconds = 600", "hold_seconds = 90");
    folder.write("sale.toml", &faster);
    let shown = "sale 'drop' (version 2):\n  admission.rate_per_minute: 600000 a minute -> 1200 a minute\n  \
                 hold_seconds: 10 min -> 1 min 30 s\n";
    let dry = sale(&lockgate.base, &["apply", name, "--dry-run"]).await;
    assert_eq!(dry, (Some(0), format!("{shown}dry run: nothing was changed\n")));
    assert_eq!(version(&lockgate).await, "\"2\"");
    assert_eq!(sale(&lockgate.base, &["apply", name]).await, (Some(0), format!("{shown}changed\n")));
    assert_eq!(version(&lockgate).await, "\"3\"");

    for (from, to, key, reason) in [
        ("lanes = 4", "lanes = 8", "lanes", "move people to other places"),
        ("\"fifo\"", "\"lottery\"", "queueing_method", "people lined up under the old method"),
        ("stock = 5", "stock = 9", "items[0].stock", "units may be held or sold"),
        ("opens_at = 2", "opens_at = 3", "", "after closes_at"),
    ] {
        assert!(faster.contains(from), "{from}");
        folder.write("sale.toml", &faster.replace(from, to));
        for flags in [&["apply", name, "--dry-run"][..], &["apply", name]] {
            let (code, words) = sale(&lockgate.base, flags).await;
            assert_eq!(code, Some(2), "{key}: {words}");
            assert!(words.contains(key) && words.contains(reason) || key.is_empty(), "{key}: {words}");
        }
    }
    let later = jiff::Timestamp::from_second(common::now_seconds() + 60).unwrap();
    let opens = faster.lines().find(|line| line.starts_with("opens_at")).unwrap();
    folder.write("sale.toml", &faster.replace(opens, &format!("opens_at = {later}")));
    let (code, words) = sale(&lockgate.base, &["apply", name]).await;
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("opens_at") && words.contains("has passed"), "p4: {words}");
    assert_eq!(version(&lockgate).await, "\"3\"", "nothing was changed");
    let misspelt = lockgate.url("/operator/v1/sales/drop?dryrun=true");
    let refused = client().put(misspelt).bearer_auth(OPERATOR_KEY).json(&Value::Null).send().await.unwrap();
    assert_eq!(refused.status(), 400, "a misspelt dry run changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_change_a_sale_at_once_and_neither_overwrites_the_other() {
    let folder = Folder::new();
    let text = sale_file("drop", "open", 5, 1, 600);
    let file = folder.write("sale.toml", &text);
    new_keys(&folder);
    let stores = Stores::redis_postgres().await;
    let (one, two) =
        tokio::join!(start(&stores, &folder, "one", &file), start(&stores, &folder, "two", &file));
    eventually("the stock is there", 10, async || {
        version(&one).await == "\"2\"" && version(&two).await == "\"2\""
    })
    .await;
    let named = |name: &str| {
        let text = text.replace("name = \"Test drop\"", &format!("name = \"{name}\""));
        folder.write(&format!("{name}.toml"), &text).to_str().unwrap().to_owned()
    };
    // Both have looked at version 2; the second has to look again.
    let (ann, bob) = (named("Ann"), named("Bob"));
    for (lockgate, file) in [(&one, &ann), (&two, &bob)] {
        let (code, words) = sale(&lockgate.base, &["apply", file, "--dry-run"]).await;
        assert!(code == Some(0) && words.contains("(version 2)"), "{words}");
    }
    assert_eq!(sale(&one.base, &["apply", &ann, "--from-version", "2"]).await.0, Some(0));
    let (code, words) = sale(&two.base, &["apply", &bob, "--from-version", "2"]).await;
    assert_eq!(code, Some(1), "{words}");
    assert!(
        words.contains("somebody else has changed sale 'drop'") && words.contains("--dry-run"),
        "{words}"
    );
    let (_, shown) = sale(&two.base, &["apply", &bob, "--dry-run"]).await;
    assert!(shown.contains("name: \"Ann\" -> \"Bob\"") && shown.contains("(version 3)"), "{shown}");
    // Every process sees the change.
    eventually("the other process shows it", 5, async || {
        let page = client().get(two.url("/sale/drop")).header("accept", "text/html").send().await.unwrap();
        page.text().await.unwrap().contains("<h1>Ann</h1>")
    })
    .await;

    // All at once: whoever goes through raised the version by one, and everybody else was told.
    let mut racing = JoinSet::new();
    for n in 0..8 {
        let (base, file) = ([&one, &two][n % 2].base.clone(), named(&format!("Racer {n}")));
        racing.spawn(async move { sale(&base, &["apply", &file]).await });
    }
    let outcomes = racing.join_all().await;
    let changed = outcomes.iter().filter(|(code, _)| *code == Some(0)).count();
    for (code, words) in &outcomes {
        assert!(
            (*code == Some(0) && words.contains("changed"))
                || (*code == Some(1) && words.contains("somebody else has changed")),
            "{code:?}: {words}"
        );
    }
    assert!(changed >= 1);
    let expected = format!("\"{}\"", 3 + changed);
    eventually("both are there", 5, async || {
        version(&one).await == expected && version(&two).await == expected
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sales_are_made_and_listed() {
    let folder = Folder::new();
    let file = folder.write("sale.toml", &sale_file("drop", "open", 5, 1, 600));
    new_keys(&folder);
    let lockgate = start(&Stores::Sqlite, &folder, "data", &file).await;
    let client = client();
    for n in 0..60 {
        let text = sale_file(&format!("sale-{n}"), "open", 5, 1, 600);
        let definition = lockgate_shared::sale::parse_toml("x", &text).unwrap();
        let url = lockgate.url(&format!("/operator/v1/sales/sale-{n}"));
        let answer = client.put(&url).bearer_auth(OPERATOR_KEY).json(&definition).send().await.unwrap();
        assert_eq!(answer.status(), 201);
        if n == 0 {
            let again = client.put(&url).bearer_auth(OPERATOR_KEY).json(&definition).send().await.unwrap();
            assert_eq!(again.status(), 428, "made by somebody else meanwhile");
        }
    }
    let (code, words) = sale(&lockgate.base, &["list"]).await;
    let list: Value = serde_json::from_str(&words).unwrap();
    assert_eq!((code, list["sales"].as_array().unwrap().len()), (Some(0), 61));
    let page = client.get(lockgate.url("/")).header("accept", "text/html").send().await.unwrap();
    assert_eq!(page.text().await.unwrap().matches("<h2>").count(), 61);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_a_file_that_was_applied_before_undoes_nothing() {
    let folder = Folder::new();
    let text = sale_file("drop", "open", 5, 1, 600);
    let file = folder.write("sale.toml", &text);
    new_keys(&folder);
    let lockgate = start(&Stores::Sqlite, &folder, "data", &file).await;
    ask_for_work(&lockgate, 2_000).await;
    let slower =
        folder.write("slower.toml", &text.replace("rate_per_minute = 600000", "rate_per_minute = 600"));
    // The file says nothing of proof of work, so applying it on purpose ends it.
    let applied = sale(&lockgate.base, &["apply", slower.to_str().unwrap()]).await;
    assert!(applied.1.contains("proof_of_work"), "{}", applied.1);
    ask_for_work(&lockgate, 3_000).await;
    assert!(lockgate.terminate().await.success());

    let lockgate = start(&Stores::Sqlite, &folder, "data", &file).await;
    let definition = definition(&lockgate).await;
    assert_eq!(definition["admission"]["rate_per_minute"], 600, "{definition}");
    assert_eq!(definition["proof_of_work"]["difficulty"], 3_000, "{definition}");
    assert!(lockgate.terminate().await.success());

    let newer = folder.write("sale.toml", &text.replace("hold_seconds = 600", "hold_seconds = 90"));
    let lockgate = start(&Stores::Sqlite, &folder, "data", &newer).await;
    let definition = self::definition(&lockgate).await;
    assert_eq!(
        (&definition["hold_seconds"], &definition["admission"]["rate_per_minute"]),
        (&90.into(), &600_000.into())
    );
}

async fn ask_for_work(lockgate: &Lockgate, difficulty: u64) {
    let url = lockgate.url("/operator/v1/sales/drop/proof_of_work");
    let body = serde_json::json!({ "difficulty": difficulty });
    let answer = client().patch(url).bearer_auth(OPERATOR_KEY).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}

async fn definition(lockgate: &Lockgate) -> Value {
    let url = lockgate.url("/operator/v1/sales/drop");
    client().get(url).bearer_auth(OPERATOR_KEY).send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn l5_whoever_starts_over_an_emptied_store_gives_nobody_a_place_that_is_taken() {
    let folder = Folder::new();
    let file = folder.write("sale.toml", &sale_file("drop", "open", 5, 1, 600));
    new_keys(&folder);
    let stores = Stores::redis_postgres().await;
    let old = start(&stores, &folder, "data-1", &file).await;
    let number = async |lockgate: &Lockgate| {
        let answer = client().post(lockgate.url("/sale/drop/enter")).send().await.unwrap();
        let ticket = answer.json::<Value>().await.unwrap()["ticket"].as_str().unwrap().to_owned();
        let mut number = None;
        eventually("a number", 10, async || {
            let status =
                client().get(lockgate.url("/sale/drop/status")).bearer_auth(&ticket).send().await.unwrap();
            number = status.json::<Value>().await.unwrap()["number"].as_u64();
            number.is_some()
        })
        .await;
        number.unwrap()
    };
    for _ in 0..20 {
        number(&old).await;
    }
    let Stores::RedisPostgres { redis, .. } = &stores else { unreachable!() };
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    let fresh = start(&stores, &folder, "data-2", &file).await;
    let newcomer = number(&fresh).await;
    assert!(newcomer > 20, "number {newcomer} is somebody else's");
}
