//! `max_active` is a cap: whoever gives an admission up frees a place, and claims nothing by it any more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use common::{Folder, Lockgate, OPERATOR_KEY, Shopper, Stores, Won, client, sale_file};
use lockgate_shared::testing::eventually;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const ACCOUNTS: usize = 12;

async fn start(stores: &Stores, folder: &Folder) -> Lockgate {
    let file = sale_file("club", "open", 50, 2, 600)
        .replace("token_seconds = 600\n", "token_seconds = 600\nmax_active = 2\n");
    let (file, data) = (folder.write("sale.toml", &file), folder.data());
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    Lockgate::start(&arguments, &stores.environment()).await
}

/// A call to the line that carries a credential.
async fn post(shopper: &Shopper, verb: &str, credential: &str) -> (StatusCode, Value) {
    let url = format!("{}/sale/club/{verb}", shopper.base);
    let answer = client().post(url).bearer_auth(credential).json(&json!({})).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap_or_default())
}

/// Gives the admission back by the `n`th of the ways there are.
async fn give_up(shopper: &Shopper, n: usize) {
    let status = match n % 3 {
        0 => post(shopper, "leave", &shopper.ticket).await.0,
        1 => post(shopper, "release", &shopper.token).await.0,
        _ => {
            let claims = shopper.token.split('.').nth(1).unwrap();
            let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
            let url = format!("{}/operator/v1/sales/club/release", shopper.base);
            let ids = json!({"account": claims["sub"], "token_id": claims["jti"]});
            client().post(url).bearer_auth(OPERATOR_KEY).json(&ids).send().await.unwrap().status()
        }
    };
    assert_eq!(status, StatusCode::NO_CONTENT);
}

async fn checkout(shopper: &Shopper, key: &str) -> (StatusCode, Value) {
    let answer = shopper.checkout(key, 1).await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

async fn l4_what_was_given_up_claims_nothing(stores: Stores) {
    let folder = Folder::new();
    let lockgate = start(&stores, &folder).await;
    // One buys before leaving: what is held stands.
    let mut buyer = Shopper::enter(&lockgate.base, "club", json!({})).await;
    buyer.admit().await;
    let (status, answer) = checkout(&buyer, "before").await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    give_up(&buyer, 0).await;
    assert_eq!(checkout(&buyer, "before").await, (StatusCode::ACCEPTED, answer.clone()), "the same answer");
    assert_eq!(checkout(&buyer, "after").await.1["code"], "line_up_again");
    let won = Won { answer };
    buyer.pay(&won).await;
    eventually("paid", 10, async || buyer.order(&won).await["state"] == "paid").await;

    // Twelve pass through a cap of two, which only works because each frees a place; none of them can claim.
    let mut passing = JoinSet::new();
    for n in 0..ACCOUNTS {
        let base = lockgate.base.clone();
        passing.spawn(async move {
            let mut shopper = Shopper::enter(&base, "club", json!({})).await;
            shopper.admit().await;
            give_up(&shopper, n).await;
            shopper
        });
    }
    let shoppers = passing.join_all().await;
    let mut claims = JoinSet::new();
    for shopper in shoppers.clone() {
        claims.spawn(async move { checkout(&shopper, "after").await });
    }
    for (status, body) in claims.join_all().await {
        assert_eq!((status, &body["code"]), (StatusCode::CONFLICT, &json!("line_up_again")), "{body}");
        assert!(body["detail"].as_str().unwrap().contains("given up"), "{body}");
    }
    let books = lockgate.books("club").await;
    assert_eq!((&books["balanced"], &books["items"][0]["available"]), (&json!(true), &json!(49)), "{books}");

    // Whoever lines up again has a new place and a token that claims; the old one stays what it is.
    for shopper in &shoppers[..3] {
        let (status, entered) = post(shopper, "enter", &shopper.ticket).await;
        assert_eq!(status, StatusCode::CREATED, "{entered}");
        let mut again = Shopper { ticket: entered["ticket"].as_str().unwrap().to_owned(), ..shopper.clone() };
        again.admit().await;
        assert_eq!(checkout(shopper, "old").await.1["code"], "line_up_again");
        assert_eq!(checkout(&again, "after").await.0, StatusCode::ACCEPTED);
        give_up(&again, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l4_what_was_given_up_claims_nothing_on_sqlite() {
    l4_what_was_given_up_claims_nothing(Stores::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l4_what_was_given_up_claims_nothing_on_redis_and_postgresql() {
    l4_what_was_given_up_claims_nothing(Stores::redis_postgres().await).await;
}
