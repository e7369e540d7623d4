//! Lockgate with Stripe: the real binary against a local server that answers like Stripe, and what it refuses.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "only a part of it is used here")]
#[path = "../../../checkout/tests/stripe/bank.rs"]
mod bank;
#[allow(dead_code, reason = "only a part of it is used here")]
#[path = "../../../checkout/tests/stripe/books.rs"]
mod books;
mod common;

use bank::{Bank, KEY, WEBHOOK_SECRET};
use common::{Folder, Lockgate, OPERATOR_KEY, Shopper, Won, client, command, eligibility, sale_file};
use lockgate_shared::{
    clock::{Clock as _, SystemClock},
    testing::{ManualClock, eventually},
};
use reqwest::StatusCode;
use serde_json::{Value, json};

const LIVE_KEY: &str = "rk_live_0123456789abcdefghij";

fn stripe(key: &str, api_url: &str) -> Vec<(&'static str, String)> {
    vec![
        ("LOCKGATE_GATEWAY__KIND", "stripe".to_owned()),
        ("LOCKGATE_STRIPE__SECRET_KEY", key.to_owned()),
        ("LOCKGATE_STRIPE__WEBHOOK_SECRET", WEBHOOK_SECRET.to_owned()),
        ("LOCKGATE_STRIPE__API_URL", api_url.to_owned()),
    ]
}

/// Runs `lockgate`, which must refuse: its exit code and everything it said.
fn refused(arguments: &[&str], environment: &[(&str, String)]) -> (Option<i32>, String) {
    let mut command = command(arguments);
    command.args(["--listen", "127.0.0.1:0"]).env("LOCKGATE_OPERATOR_KEY", OPERATOR_KEY);
    command.envs(environment.iter().map(|(name, value)| (*name, value)));
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

async fn pay(lockgate: &Lockgate, won: &Won) -> String {
    let path = format!("/orders/{}/pay", won.text("order_id"));
    let asked = client().post(lockgate.url(&path)).bearer_auth(won.text("access_key")).send().await.unwrap();
    assert_eq!(asked.status(), StatusCode::OK);
    asked.json::<Value>().await.unwrap()["redirect_url"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_all_in_one_sells_by_stripe_and_writes_no_key_into_its_log() {
    let bank = Bank::open(ManualClock::at(SystemClock.now())).await;
    let folder = Folder::new();
    let (file, data) = (folder.write("one.toml", &sale_file("one", "eligibility", 5, 2, 6)), folder.data());
    let mut environment = stripe(KEY, &bank.url);
    environment.push(("LOCKGATE_LOG__FILTER", "trace".to_owned()));
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    let lockgate = Lockgate::start(&arguments, &environment).await;
    let mut shopper =
        Shopper::enter(&lockgate.base, "one", json!({ "eligibility": eligibility("a", "one") })).await;
    shopper.admit().await;
    let mut won = Vec::new();
    for key in ["k1", "k2"] {
        let answer = shopper.checkout(key, 1).await.unwrap().json().await.unwrap();
        won.push(Won { answer });
    }
    let page = pay(&lockgate, &won[0]).await;
    let paid = bank.pay(&page);
    pay(&lockgate, &won[1]).await;
    assert_eq!(bank.deliver_signed(&lockgate.base, &paid.to_string(), "t=1,v1=00").await, 403);
    assert_eq!(bank.deliver(&lockgate.base, &paid).await, 204);
    eventually("the first is paid", 10, async || shopper.order(&won[0]).await["state"] == "paid").await;
    eventually("the second runs out", 20, async || shopper.order(&won[1]).await["state"] == "expired").await;
    assert_eq!(bank.session(1).status, "expired");
    eventually("the books balance", 10, async || {
        let books = lockgate.books("one").await;
        books["balanced"] == true && books["items"][0]["sold"] == 1 && books["items"][0]["available"] == 4
    })
    .await;
    let behaviour = client().get(lockgate.url("/simulated-gateway/behaviour")).bearer_auth(OPERATOR_KEY);
    assert_eq!(
        behaviour.send().await.unwrap().status(),
        StatusCode::NOT_FOUND,
        "there is no simulated gateway"
    );
    let log = lockgate.log.lock().unwrap().clone();
    assert!(log.len() > 1_000, "everything is logged");
    for secret in [&KEY["rk_test_".len()..], &WEBHOOK_SECRET["whsec_".len()..], "buyer@example.org"] {
        assert!(!log.contains(secret), "{secret} stands in the log");
    }
    assert!(lockgate.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn live_keys_refuse_the_demo_a_house_without_sales_and_plain_addresses() {
    let folder = Folder::new();
    let data = folder.data();
    let data = data.to_str().unwrap();
    let https = ("LOCKGATE_PUBLIC_URL", "https://shop.example".to_owned());
    let mut live = stripe(LIVE_KEY, "https://api.stripe.com");
    let (code, said) = refused(&["serve", "--data", data], &live);
    assert!(code == Some(2) && said.contains("public_url: is missing"), "{said}");
    live.push(https);
    let (code, said) = refused(&["serve", "--data", data], &live);
    assert!(code == Some(2) && said.contains("only the demo sale would be served"), "{said}");
    let empty = folder.write("empty.toml", "");
    let (code, said) = refused(&["serve", "--config", empty.to_str().unwrap(), "--data", data], &live);
    assert!(code == Some(2) && said.contains("no sale is defined") && said.contains("--sale"), "{said}");
    let demo = folder.write("demo.toml", &sale_file("demo", "open", 5, 2, 600));
    let (code, said) = refused(&["serve", "--data", data, "--sale", demo.to_str().unwrap()], &live);
    assert!(code == Some(2) && said.contains("the demo sale 'demo'"), "{said}");
    assert!(!said.contains("0123456789"), "{said}");
}

#[test]
fn no_role_mixes_the_simulated_gateway_and_stripe() {
    let folder = Folder::new();
    let data = folder.data();
    let data = data.to_str().unwrap();
    let both = stripe(KEY, "https://api.stripe.com");
    let (code, said) = refused(&["simulated-gateway", "--data", data], &both);
    assert!(code == Some(2) && said.contains("next to which no simulated gateway runs"), "{said}");
    // A checkout that runs alone needs no simulated gateway's address then; the rest it still names.
    let (code, said) = refused(&["checkout", "--data", data], &both);
    assert!(code == Some(2) && said.contains("orders.url") && !said.contains("gateway.url"), "{said}");
    let (_, said) = refused(&["checkout", "--data", data], &[]);
    assert!(said.contains("gateway.url: is missing") && said.contains("gateway.kind"), "{said}");
}

#[test]
fn check_names_every_problem_of_a_stripe_configuration() {
    let folder = Folder::new();
    let config = folder.write(
        "lockgate.toml",
        "public_url = \"http://shop.example\"\n[gateway]\nkind = \"stripe\"\nurl = \"http://gateway:8082\"\n\
         [stripe]\nsecret_key = \"sk_live_0123456789abcdefghij\"\n",
    );
    let output = command(&["check", "--config", config.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    for word in
        ["stripe.webhook_secret: is missing", "gateway.url: belongs to", "public_url: 'http://shop.example'"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!said.contains("0123456789"), "{said}");
    let odd = sale_file("odd", "open", 5, 2, 600)
        .replace("\"EUR\"", "\"KWD\"")
        .replace("price = 49900", "price = 49901");
    let sale = folder.write("odd.toml", &odd);
    let mut check = command(&["check", "--sale", sale.to_str().unwrap()]);
    check.envs(stripe(KEY, "https://api.stripe.com"));
    let output = check.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("49.901 KWD"), "{said}");
}
