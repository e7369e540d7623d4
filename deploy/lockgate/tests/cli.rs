//! Commands as somebody types them: what they print, where, and how they end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::process::{Command, Output, Stdio};

use common::{Folder, Lockgate, OPERATOR_KEY, Shopper, Stores, client, command, sale_file};
use lockgate_shared::testing::{PrivateRedis, eventually};
use serde_json::{Value, json};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command whose standard output nobody reads, and on demand its standard error neither.
fn unread(mut command: Command, hears_errors: bool) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer.try_clone().unwrap());
    command.stderr(if hears_errors { Stdio::piped() } else { writer.into() });
    command.spawn().unwrap().wait_with_output().unwrap()
}

async fn opened() -> (Lockgate, Folder, std::path::PathBuf) {
    let folder = Folder::new();
    let file = folder.write("one.toml", &sale_file("one", "open", 5, 2, 600));
    let data = folder.data();
    let arguments = ["--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    let lockgate = Lockgate::start(&arguments, &Stores::Sqlite.environment()).await;
    // Its stock is there a moment later, which is a change of the sale.
    eventually("the stock is there", 10, async || {
        sale(&lockgate, &["books", "one"]).output().unwrap().status.success()
    })
    .await;
    (lockgate, folder, file)
}

fn sale(lockgate: &Lockgate, arguments: &[&str]) -> Command {
    let mut command = command(&["sale"]);
    command.args(arguments).args(["--url", &lockgate.base, "--key", OPERATOR_KEY]);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_goes_away_makes_no_command_panic() {
    let (lockgate, folder, file) = opened().await;
    let (ring, file) = (folder.path().join("ring.toml"), file.to_str().unwrap());
    let keys = |action: &str| command(&["keys", action, "--file", ring.to_str().unwrap()]);
    let commands = [
        keys("new"),
        keys("list"),
        command(&["check", "--sale", file]),
        sale(&lockgate, &["apply", file]),
        sale(&lockgate, &["list"]),
        sale(&lockgate, &["show", "one"]),
        sale(&lockgate, &["books", "one"]),
    ];
    for command in commands {
        let shown = format!("{command:?}");
        let output = unread(command, true);
        assert_eq!(output.status.code(), Some(0), "{shown}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("panicked"), "{shown}: {}", text(&output.stderr));
    }
    let nonsense = folder.write("nonsense.toml", "id = 7");
    let bad = command(&["check", "--sale", nonsense.to_str().unwrap()]);
    assert_eq!(unread(bad, false).status.code(), Some(2), "what failed fails all the same");
    assert!(lockgate.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_is_shown_as_it_was_written_and_what_was_switched_beside_it() {
    let (lockgate, folder, _) = opened().await;
    assert!(sale(&lockgate, &["pause", "one"]).output().unwrap().status.success());
    let shown = sale(&lockgate, &["show", "one"]).output().unwrap();
    assert!(shown.status.success());
    let definition: Value = serde_json::from_slice(&shown.stdout).expect("nothing but the definition");
    assert_eq!((&definition["id"], &definition["admission"]["burst"]), (&"one".into(), &1_000.into()));
    let switched = text(&shown.stderr);
    for line in ["# paused = true", "# closed = false", "# epoch = 0", "# phase = \"paused\""] {
        assert!(switched.lines().any(|shown| shown == line), "{line}: {switched}");
    }
    let without = sale_file("one", "open", 5, 2, 600).replace("burst = 1000\n", "");
    let file = folder.write("without.toml", &without);
    assert!(sale(&lockgate, &["apply", file.to_str().unwrap()]).output().unwrap().status.success());
    let shown = sale(&lockgate, &["show", "one"]).output().unwrap();
    let definition: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(definition["admission"].get("burst"), None, "nobody wrote one");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_books_leave_by_the_command_line() {
    let (lockgate, _folder, _) = opened().await;
    let mut shopper = Shopper::enter(&lockgate.base, "one", json!({})).await;
    shopper.admit().await;
    let body = json!({ "item": "phone", "quantity": 1, "email": "ann@example.org" });
    let won = client()
        .post(lockgate.url("/sale/one/checkout"))
        .bearer_auth(&shopper.token)
        .header("idempotency-key", "k")
        .json(&body);
    let won: Value = won.send().await.unwrap().json().await.unwrap();
    let order = won["order_id"].as_str().unwrap_or_else(|| panic!("{won}")).to_owned();
    let done = |arguments: &[&str]| {
        let output = sale(&lockgate, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    eventually("the order is found by its address", 10, async || {
        let found: Value =
            serde_json::from_str(&done(&["orders", "one", "--email", "Ann@example.org"])).unwrap();
        found["orders"][0]["order_id"] == order.as_str()
    })
    .await;
    let none = done(&["orders", "one", "--state", "paid", "--item", "phone", "--unit", "1"]);
    assert_eq!(serde_json::from_str::<Value>(&none).unwrap()["orders"], json!([]));
    let table = done(&["export", "one"]);
    assert!(table.starts_with("order_id,sale,") && table.contains(&order), "{table}");
    let line: Value = serde_json::from_str(&done(&["export", "one", "--format", "jsonl"])).unwrap();
    assert_eq!(line["email"], "ann@example.org");
    let report: Value = serde_json::from_str(&done(&["settlement", "one"])).unwrap();
    assert_eq!((&report["status"], &report["differences"]), (&json!("preliminary"), &json!(0)));
    assert!(done(&["settlement", "one", "--format", "csv"]).starts_with("section,key,text"));
    assert!(done(&["settlement", "one", "--format", "html"]).contains("<strong>Preliminary.</strong>"));
    let wrong = sale(&lockgate, &["export", "two"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("There is no sale"), "{}", text(&wrong.stderr));
    let log = lockgate.log.lock().unwrap().clone();
    assert!(!log.contains("example.org"), "no address reaches the log: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_runs_alone_names_its_own_listener() {
    let (folder, redis) = (Folder::new(), PrivateRedis::start().await);
    let (ring, data) = (folder.path().join("keys.toml"), folder.data());
    let ring = ring.to_str().unwrap();
    assert!(command(&["keys", "new", "--file", ring]).status().unwrap().success());
    let environment = [
        ("LOCKGATE_STORE__URL", redis.url().to_owned()),
        ("LOCKGATE_KEYS__FILE", ring.to_owned()),
        ("LOCKGATE_PUBLIC_URL", "https://shop.example".to_owned()),
    ];
    // It is ready at the address it has printed.
    let gate = Lockgate::start(&["stock-gate", "--data", data.to_str().unwrap()], &environment).await;
    assert!(gate.base.starts_with("http://127.0.0.1:"), "{}", gate.base);
    assert!(gate.terminate().await.success());
}

/// What a command that must fail says.
fn said(mut command: Command, code: i32) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_to_the_wrong_role_hears_which_to_ask() {
    let (folder, redis) = (Folder::new(), PrivateRedis::start().await);
    let ring = folder.path().join("keys.toml");
    let ring = ring.to_str().unwrap();
    assert!(command(&["keys", "new", "--file", ring]).status().unwrap().success());
    let nowhere = "http://127.0.0.1:1".to_owned();
    let environment = [
        ("LOCKGATE_STORE__URL", redis.url().to_owned()),
        ("LOCKGATE_KEYS__FILE", ring.to_owned()),
        ("LOCKGATE_ORDERS__URL", "postgres://lockgate@127.0.0.1:1/away".to_owned()),
        ("LOCKGATE_GATE__URL", nowhere.clone()),
        ("LOCKGATE_GATEWAY__URL", nowhere),
    ];
    let role = |name: &str| {
        let data = folder.path().join(name);
        Lockgate::launch(&[name, "--data", data.to_str().unwrap()], &environment)
    };
    let (line, checkout, gate) = (role("waiting-room"), role("checkout"), role("stock-gate"));
    for arguments in [&["books", "one"][..], &["stock", "one", "phone", "+1"], &["outbox"]] {
        for role in [&line, &gate] {
            let said = said(sale(role, arguments), 1);
            assert!(
                said.contains("404") && said.contains("Ask") && said.contains("a checkout for"),
                "{said}"
            );
        }
    }
    let file = folder.write("one.toml", &sale_file("one", "open", 5, 2, 600));
    for arguments in [&["list"][..], &["pause", "one"], &["apply", file.to_str().unwrap(), "--dry-run"]] {
        let said = said(sale(&checkout, arguments), 1);
        assert!(said.contains("This is a checkout") && said.contains("Ask a waiting room"), "{said}");
    }
    let unknown = client().get(line.url("/nowhere")).send().await.unwrap().text().await.unwrap();
    assert!(unknown.contains("Check the link"), "shoppers hear nothing of roles: {unknown}");
}

#[test]
fn a_server_that_cannot_be_reached_and_a_look_at_the_stock_are_answered_with_the_remedy() {
    let to = |arguments: &[&str]| {
        let mut command = command(&["sale"]);
        command.args(arguments).args(["--url", "http://127.0.0.1:1", "--key", OPERATOR_KEY]);
        command
    };
    for arguments in [&["list"][..], &["export", "one"]] {
        let said = said(to(arguments), 1);
        assert!(said.contains("http://127.0.0.1:1 cannot be reached (Connection refused"), "{said}");
        assert!(said.contains("LOCKGATE_OPERATOR_URL"), "{said}");
    }
    for arguments in [&["stock", "my-sale"][..], &["stock", "my-sale", "phone"]] {
        let said = said(to(arguments), 2);
        assert!(said.contains("lockgate sale books my-sale"), "{said}");
    }
}
