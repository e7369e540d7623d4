//! The back office on both back ends: feed, search, export, settlement.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::sync::Arc;

use http::StatusCode;
use lockgate_checkout::{
    order::OrderEvent,
    payment::{Money, Notice, Outcome, PaymentId, Terms},
    reconciler::Reconciler,
};
use lockgate_shared::{
    gate::{CommitAnswer, ReleaseAnswer},
    ids::ClaimId,
    testing::{PrivatePostgres, PrivateRedis},
};
use serde_json::{Value, json};
use support::{Answer, Ask, Backends, OPERATOR_KEY, Plan, Shop, VIEWER_KEY};
use uuid::Uuid;

const ORDERS: &str = "/operator/v1/sales/demo/orders";

fn by_hand() -> Plan {
    Plan { loops: false, webhooks: false, sweeps: false, ..Plan::default() }
}

/// Buys for account `n` and has the order written.
async fn bought(shop: &Shop, n: u16, item: &str, email: Option<&str>) -> ClaimId {
    let body = json!({ "item": item, "quantity": 1, "email": email });
    let ask = Ask::post("/sale/demo/checkout").bearer(&shop.token(n)).key("k").json(&body.to_string());
    let won = shop.send(ask.build()).await;
    assert_eq!(won.status, StatusCode::ACCEPTED, "{}", won.text);
    while lockgate_checkout::intake::take_batch(&shop.app, &shop.sale).await.unwrap() > 0 {}
    won.text_of("order_id").parse().unwrap()
}

async fn decide(shop: &Shop, order: ClaimId, event: OrderEvent) {
    shop.store.decide(order, &event, shop.now()).await.unwrap().unwrap();
}

/// An attempt that `money` arrives for.
async fn pays(shop: &Shop, order: ClaimId, money: Option<Money>) -> PaymentId {
    let payment = PaymentId::from(Uuid::from_u128(order.uuid().as_u128() + 1));
    let price = shop.store.order(order).await.unwrap().unwrap().price;
    decide(shop, order, OrderEvent::Pay { payment, terms: Terms::default() }).await;
    let outcome = Outcome::Paid(money.unwrap_or(price));
    decide(shop, order, OrderEvent::Notified(Notice { payment, order: None, outcome })).await;
    payment
}

async fn committed(shop: &Shop, order: ClaimId) {
    assert_eq!(shop.gate.commit(&shop.sale, order).await.unwrap(), CommitAnswer::Committed);
    decide(shop, order, OrderEvent::Commit(CommitAnswer::Committed)).await;
}

async fn released(shop: &Shop, order: ClaimId) {
    assert_eq!(shop.gate.release(&shop.sale, order).await.unwrap(), ReleaseAnswer::Released);
    decide(shop, order, OrderEvent::Release(ReleaseAnswer::Released)).await;
}

async fn feed(shop: &Shop, query: &str) -> Value {
    let page = shop.get(&format!("{ORDERS}/feed{query}"), VIEWER_KEY).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    page.json()
}

async fn search(shop: &Shop, body: Value) -> Answer {
    shop.send(Ask::post(&format!("{ORDERS}/search")).bearer(VIEWER_KEY).json(&body.to_string()).build()).await
}

fn names(found: &Value, list: &str) -> Vec<String> {
    let all = found[list].as_array().unwrap().iter();
    all.map(|one| one["order_id"].as_str().or(one["order"]["order_id"].as_str()).unwrap().to_owned())
        .collect()
}

async fn orders_are_fed_found_and_taken_away(shop: &Shop) {
    let first = bought(shop, 1, "phone", Some("=1+1@example.org")).await;
    let second = bought(shop, 2, "case", Some("Ann@Example.org")).await;
    let third = bought(shop, 3, "phone", None).await;
    let empty = feed(shop, "").await;
    assert_eq!((&empty["changes"], &empty["more"]), (&json!([]), &json!(false)));
    let begin = empty["next"].as_str().unwrap().to_owned();
    assert_eq!(feed(shop, &format!("?after={begin}")).await["next"], begin.as_str(), "the same cursor");

    let payment = pays(shop, second, None).await;
    pays(shop, first, None).await;
    let page = feed(shop, &format!("?after={begin}&limit=1")).await;
    assert_eq!((names(&page, "changes"), &page["more"]), (vec![second.to_string()], &json!(true)));
    let change = &page["changes"][0];
    assert_eq!((&change["change"], &change["units"]), (&json!("paid"), &json!([1])));
    assert_eq!(
        (&change["order"]["amount"], &change["order"]["email"]),
        (&json!(1900), &json!("Ann@Example.org"))
    );
    let next = page["next"].as_str().unwrap();
    let rest = feed(shop, &format!("?after={next}")).await;
    assert_eq!((names(&rest, "changes"), &rest["more"]), (vec![first.to_string()], &json!(false)));
    let end = rest["next"].as_str().unwrap().to_owned();
    decide(shop, second, OrderEvent::Commit(CommitAnswer::Released)).await;
    decide(shop, second, OrderEvent::Refunded { payment }).await;
    let later = feed(shop, &format!("?after={end}")).await;
    let words: Vec<_> = later["changes"].as_array().unwrap().iter().map(|change| &change["change"]).collect();
    assert_eq!(words, ["refund_due", "refunded"]);

    let get = async |path: &str, key: &str| shop.get(&format!("{ORDERS}{path}"), key).await;
    get("/feed?after=x", VIEWER_KEY).await.is(400, "cursor_invalid");
    get("/feed?limit=0", VIEWER_KEY).await.is(400, "malformed");
    get("/feed?afer=x", VIEWER_KEY).await.is(400, "malformed");
    get("/feed", "").await.is(401, "operator_key_missing");
    shop.get("/operator/v1/sales/nothing/orders/feed", VIEWER_KEY).await.is(404, "no_such_sale");
    let ahead = lockgate_checkout::office::cursor::write(&shop.sale, 1_000_000);
    get(&format!("/feed?after={ahead}"), VIEWER_KEY).await.is(409, "cursor_ahead");

    let found = search(shop, json!({"email": "ann@example.org"})).await.json();
    assert_eq!((names(&found, "orders"), &found["next"]), (vec![second.to_string()], &Value::Null));
    get("?email=ann@example.org", VIEWER_KEY).await.is(400, "email_in_address");
    let waiting = get("?state=awaiting_payment&item=phone", VIEWER_KEY).await.json();
    assert_eq!(names(&waiting, "orders"), [third.to_string()]);
    let unit = get("?item=phone&unit=1", VIEWER_KEY).await.json();
    assert_eq!(names(&unit, "orders"), [first.to_string()]);
    let page = get("?limit=2", VIEWER_KEY).await.json();
    let rest = get(&format!("?limit=2&after={}", page["next"].as_str().unwrap()), VIEWER_KEY).await.json();
    assert_eq!((names(&page, "orders").len(), names(&rest, "orders").len()), (2, 1));
    get("?unit=1", VIEWER_KEY).await.is(400, "malformed");
    get("?state=lost", VIEWER_KEY).await.is(400, "malformed");
    search(shop, json!({"mail": "x"})).await.is(400, "malformed");
    search(shop, json!({"email": "a\0b@c"})).await.is(400, "malformed");

    let table = get("/export", OPERATOR_KEY).await;
    assert_eq!(table.headers["content-type"], "text/csv; charset=utf-8; header=present");
    assert!(table.headers["content-disposition"].to_str().unwrap().contains("demo-orders.csv"));
    let lines: Vec<&str> = table.text.split("\r\n").collect();
    assert_eq!((lines.len(), lines[4]), (5, ""), "{}", table.text);
    assert!(lines[0].starts_with("order_id,sale,item,units,quantity,state,amount,currency,price,email,"));
    let own = |order: ClaimId| *lines.iter().find(|line| line.starts_with(&order.to_string())).unwrap();
    assert!(own(first).contains(",phone,1,1,paid,49900,EUR,499.00,'=1+1@example.org,"), "{}", own(first));
    assert!(own(second).contains(",refunded,1900,EUR,19.00,") && own(second).ends_with(",1900,1900,1"));
    let text = get("/export?format=jsonl", VIEWER_KEY).await.text;
    let json: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(json.len(), 3);
    assert!(json.iter().any(|order| order["email"] == "=1+1@example.org"), "programs get it as it is");
    get("/export?format=xlsx", VIEWER_KEY).await.is(400, "malformed");
}

/// Until somebody compared the books since the end, the settlement says that nobody did.
async fn is_compared_after_the_end(shop: &Shop) {
    let report = shop.get("/operator/v1/sales/demo/settlement", VIEWER_KEY).await.json();
    assert_eq!(
        (&report["status"], &report["compared"]),
        (&json!("preliminary"), &json!(false)),
        "{report:#}"
    );
    let page = shop.get("/operator/v1/sales/demo/settlement?format=html", VIEWER_KEY).await;
    assert!(
        page.text.contains("were not compared") && !page.text.contains("payments agree"),
        "{}",
        page.text
    );
    assert!(Reconciler::new(Arc::clone(&shop.app), "a").round().await.is_ours);
}

async fn a_sale_is_settled(shop: &Shop) {
    let phone = bought(shop, 1, "phone", None).await;
    let case = bought(shop, 2, "case", None).await;
    let expired = bought(shop, 3, "phone", None).await;
    let cancelled = bought(shop, 4, "phone", None).await;
    let wrong = bought(shop, 5, "phone", None).await;
    let gone = bought(shop, 6, "phone", None).await;
    let report = shop.get("/operator/v1/sales/demo/settlement", VIEWER_KEY).await.json();
    assert_eq!((&report["status"], &report["differences"]), (&json!("preliminary"), &json!(0)), "{report}");
    assert!(report["preliminary_because"][0].as_str().unwrap().contains("not over"), "{report}");

    for order in [phone, case] {
        pays(shop, order, None).await;
        committed(shop, order).await;
    }
    for (order, event) in [(expired, OrderEvent::Expire), (cancelled, OrderEvent::Cancel)] {
        decide(shop, order, event).await;
        released(shop, order).await;
    }
    // Dollars arrived for euros: they went back, and the order ran out.
    let dollars = Money { amount: 49_900, currency: "USD".into() };
    let payment = pays(shop, wrong, Some(dollars)).await;
    decide(shop, wrong, OrderEvent::Refunded { payment }).await;
    decide(shop, wrong, OrderEvent::Expire).await;
    released(shop, wrong).await;
    // Paid, but the units had been given back.
    let payment = pays(shop, gone, None).await;
    shop.gate.release(&shop.sale, gone).await.unwrap();
    decide(shop, gone, OrderEvent::Commit(CommitAnswer::Released)).await;
    let owed = shop.get("/operator/v1/sales/demo/settlement", VIEWER_KEY).await.json();
    assert_eq!(
        (&owed["items"][0]["refund_due"], &owed["differences"]),
        (&json!(49_900), &json!(0)),
        "{owed}"
    );
    decide(shop, gone, OrderEvent::Refunded { payment }).await;
    shop.clock.advance_ms(3 * 3_600_000);
    is_compared_after_the_end(shop).await;

    let report = shop.get("/operator/v1/sales/demo/settlement", VIEWER_KEY).await.json();
    assert_eq!((&report["status"], &report["differences"]), (&json!("final"), &json!(0)), "{report:#}");
    let line = |item: &str, currency: &str| {
        let mut lines = report["items"].as_array().unwrap().iter();
        lines.find(|line| line["item"] == item && line["currency"] == currency).unwrap().clone()
    };
    let euros = line("phone", "EUR");
    for (key, value) in
        [("units_sold", 1), ("gross", 99_800), ("refunded", 49_900), ("net", 49_900), ("refunds", 1)]
    {
        assert_eq!(euros[key], json!(value), "{key} {euros}");
    }
    assert_eq!((&line("phone", "USD")["net"], &line("case", "EUR")["net"]), (&json!(0), &json!(1_900)));
    let states: Vec<_> =
        report["orders"].as_array().unwrap().iter().map(|line| line["orders"].as_u64().unwrap()).collect();
    assert_eq!((states, &report["orders_total"]), (vec![0, 2, 2, 1, 0, 1], &json!(6)));
    let kinds: Vec<_> = report["anomalies"].as_array().unwrap().iter().map(|line| &line["kind"]).collect();
    assert_eq!(kinds, ["paid_but_released", "wrong_amount"]);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));

    let ask = |accept: &str| {
        Ask::get("/operator/v1/sales/demo/settlement").header("accept", accept).bearer(VIEWER_KEY)
    };
    let table = shop.send(ask("text/csv").build()).await;
    assert!(
        table.text.contains("total,EUR,\"\",EUR,\"\",2,\"\",1017.00,\"\",499.00,0.00,518.00\r\n"),
        "{}",
        table.text
    );
    let page = shop.send(ask("text/html,*/*;q=0.8").build()).await;
    for words in ["<strong>Final.</strong>", "Differences: 0.", "518.00 EUR", "Signature", "Phone, black"] {
        assert!(page.text.contains(words), "{words}: {}", page.text);
    }
    assert!(!page.text.contains("differs</strong>") && !page.text.contains("<script"));
    let named = shop.get("/operator/v1/sales/demo/settlement?format=csv", VIEWER_KEY).await;
    assert_eq!(named.headers["content-type"], "text/csv; charset=utf-8; header=present");
    shop.get("/operator/v1/sales/demo/settlement?format=pdf", VIEWER_KEY).await.is(400, "malformed");
    shop.get("/operator/v1/sales/demo/settlement", "").await.is(401, "operator_key_missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_fed_found_and_taken_away_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    orders_are_fed_found_and_taken_away(&Shop::open(dir.path(), &by_hand()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_is_settled_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    a_sale_is_settled(&Shop::open(dir.path(), &by_hand()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_back_office_works_scaled_out() {
    let (redis, postgres) = tokio::join!(PrivateRedis::start(), PrivatePostgres::start());
    for round in ["feed", "settlement"] {
        let dir = tempfile::tempdir().unwrap();
        let link = lockgate_shared::store::redis::RedisLink::connect(redis.url(), "t:").await.unwrap();
        link.command::<redis::Value>("test", &redis::cmd("FLUSHALL")).await.unwrap();
        let backends = Backends::scaled_out(&redis, &postgres.schema(round).await).await;
        let shop = Shop::over(dir.path(), &by_hand(), support::clock(), backends, None).await;
        match round {
            "feed" => orders_are_fed_found_and_taken_away(&shop).await,
            _ => a_sale_is_settled(&shop).await,
        }
    }
}
