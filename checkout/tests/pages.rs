//! The way through the pages, as a browser without JavaScript takes it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use http::StatusCode;
use support::{Answer, Ask, Plan, Shop};

fn cookie(answer: &Answer) -> String {
    let line = answer.headers["set-cookie"].to_str().unwrap();
    assert!(line.contains("Secure; HttpOnly; SameSite=Lax"), "{line}");
    line.split(';').next().unwrap().to_owned()
}

fn field<'a>(page: &'a str, name: &str) -> &'a str {
    let start = page.find(&format!("name=\"{name}\" value=\"")).expect(name);
    page[start..].split('"').nth(3).unwrap()
}

async fn page(shop: &Shop, path: &str, cookies: &str) -> Answer {
    shop.send(Ask::get(path).page().header("cookie", cookies).build()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_without_scripts_buys_a_unit() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let token = format!("__Host-lockgate-token-demo={}", shop.token(1));
    let choose = page(&shop, "/sale/demo/checkout", &token).await;
    assert_eq!(choose.status, StatusCode::OK, "{}", choose.text);
    assert!(choose.text.contains("Phone, black, 499.00 EUR"), "{}", choose.text);
    assert_eq!(choose.headers["cache-control"], "private, no-store");
    let key = field(&choose.text, "idempotency_key").to_owned();
    let again = page(&shop, "/sale/demo/checkout", &token).await;
    assert_ne!(field(&again.text, "idempotency_key"), key);

    let several = format!("item=phone&quantity=1&email=a%40b.example%2C+d%40e.example&idempotency_key={key}");
    let several = Ask::post("/sale/demo/checkout").page().header("cookie", &token).form(&several).build();
    let told = shop.send(several).await;
    assert_eq!(told.status, StatusCode::BAD_REQUEST);
    assert!(told.text.contains("more than one address; give one"), "{}", told.text);
    let form = format!("item=phone&quantity=1&email=&idempotency_key={key}");
    let send = || Ask::post("/sale/demo/checkout").page().header("cookie", &token).form(&form).build();
    let ordered = shop.send(send()).await;
    assert_eq!(ordered.status, StatusCode::SEE_OTHER, "{}", ordered.text);
    assert_eq!(shop.send(send()).await.location(), ordered.location(), "sent twice, ordered once");
    let (path, opened) = (ordered.location(), cookie(&ordered));
    assert!(opened.starts_with("__Host-lockgate-order-"));

    for cookies in [&opened, &token] {
        let order = page(&shop, &path, cookies).await;
        assert!(order.text.contains("Held for you") && order.text.contains("499.00 EUR"), "{}", order.text);
    }
    let stranger = page(&shop, &path, "").await;
    assert_eq!(stranger.status, StatusCode::NOT_FOUND);
    let pay = Ask::post(&format!("{path}/pay")).page().header("cookie", &opened).form("");
    let paying = shop.send(pay.build()).await;
    assert_eq!(paying.status, StatusCode::SEE_OTHER);
    let hosted = paying.location().replace(&shop.url, "");
    let shown = page(&shop, &hosted, "").await;
    assert!(shown.text.contains("1 × Phone, black") && shown.text.contains("499.00 EUR"), "{}", shown.text);
    let paid = shop.finish(&hosted, "paid").await;
    let returned = page(&shop, &paid.location().replace(&shop.url, ""), &opened).await;
    assert_eq!(returned.location(), path);
    assert!(page(&shop, &path, &opened).await.text.contains("Paid. Thank you!"));
    let over = page(&shop, &hosted, "").await;
    assert!(over.text.contains("This is paid.") && over.text.contains("/payment/callback"), "{}", over.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_gives_an_order_up() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let (order, access) = shop.buy(1, "k1", 2).await;
    let exchanged = shop.send(Ask::get(&format!("/orders/{order}?key={access}")).page().build()).await;
    assert_eq!((exchanged.status, exchanged.location()), (StatusCode::SEE_OTHER, format!("/orders/{order}")));
    assert_eq!(exchanged.headers["cache-control"], "private, no-store");
    let opened = cookie(&exchanged);
    let cancel = Ask::post(&format!("/orders/{order}/cancel")).page().header("cookie", &opened).form("");
    assert_eq!(shop.send(cancel.build()).await.location(), format!("/orders/{order}"));
    let shown = page(&shop, &format!("/orders/{order}"), &opened).await;
    assert!(shown.text.contains("Order cancelled"), "{}", shown.text);
}

/// What was charged and goes back is told in every state of the order, and nothing else is said beside it.
#[tokio::test(flavor = "multi_thread")]
async fn h4_a_wrong_amount_is_told_until_it_is_back_also_when_the_order_ends() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let (order, access) = shop.buy(1, "k1", 1).await;
    shop.reaches(&order, &access, "awaiting_payment").await;
    let id = order.parse().unwrap();
    let wrong = lockgate_checkout::payment::Notice {
        payment: lockgate_checkout::payment::PaymentId::from_random([5; 16]),
        order: Some(id),
        outcome: lockgate_checkout::payment::Outcome::Paid(lockgate_checkout::payment::Money {
            amount: 1_234,
            currency: "EUR".into(),
        }),
    };
    let path = format!("/orders/{order}");
    let json = async || shop.get(&path, &access).await.json();
    let shown = async |name: &str| {
        let text = shop.send(Ask::get(&path).bearer(&access).page().build()).await.text;
        // LOCKGATE_SCREENSHOTS=dir keeps the pages, to be looked at.
        if let Some(folder) = std::env::var_os("LOCKGATE_SCREENSHOTS") {
            std::fs::write(std::path::Path::new(&folder).join(format!("order-{name}.html")), &text).unwrap();
        }
        text
    };
    assert_eq!(json().await.get("refunds"), None);
    shop.store.notify("g", "wrong", &wrong, shop.now()).await.unwrap();
    let told = json().await;
    assert_eq!(told["state"], "awaiting_payment");
    assert_eq!(
        told["refunds"],
        serde_json::json!([{"amount": 1_234, "currency": "EUR", "state": "refund_due"}])
    );
    let going = "A payment of 12.34 EUR could not be used for this order. It is on its way back";
    let page = shown("wrong-amount").await;
    assert!(page.contains(going) && page.contains("Held for you"), "{page}");
    shop.post(&format!("{path}/cancel"), &access).await;
    shop.reaches(&order, &access, "cancelled").await;
    let page = shown("wrong-amount-cancelled").await;
    assert!(page.contains(going) && page.contains("Order cancelled"), "{page}");
    assert!(!page.contains("Nothing was charged") && page.contains("The units are free again."), "{page}");
    let refunded = lockgate_checkout::order::OrderEvent::Refunded { payment: wrong.payment };
    shop.store.decide(id, &refunded, shop.now()).await.unwrap();
    assert_eq!(json().await["refunds"][0]["state"], "refunded");
    let page = shown("wrong-amount-back").await;
    assert!(page.contains("It went back to you in full.") && !page.contains("Nothing was charged"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_the_page_leads_back_to_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let lost = page(&shop, "/sale/demo/checkout", "").await;
    assert_eq!(lost.status, StatusCode::FORBIDDEN);
    assert!(lost.text.contains("href=\"/sale/demo/queue\""), "{}", lost.text);
    shop.get("/sale/demo/checkout", "").await.is(403, "token_missing");
    let program = shop.get("/sale/demo/checkout", &shop.token(1)).await.json();
    assert_eq!(program["items"][0]["price"], 49_900);
    page(&shop, "/sale/nowhere/checkout", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_programs_are_never_redirected_into_pages() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    let ask = Ask::post("/sale/demo/checkout")
        .page()
        .bearer(&shop.token(1))
        .key("k")
        .json(r#"{"item":"phone","quantity":1}"#);
    let won = shop.send(ask.build()).await;
    assert_eq!(won.status, StatusCode::ACCEPTED);
    let (order, access) = (won.text_of("order_id"), won.text_of("access_key"));
    shop.reaches(&order, &access, "awaiting_payment").await;
    let pay = Ask::post(&format!("/orders/{order}/pay")).page().bearer(&access).json("{}");
    let paying = shop.send(pay.build()).await;
    assert_eq!(paying.status, StatusCode::OK);
    let hosted = paying.text_of("redirect_url").replace(&shop.url, "");
    let back = shop.finish(&hosted, "paid").await.location().replace(&shop.url, "");
    let pointer = shop.get(&back, "").await;
    assert_eq!((pointer.status, pointer.text_of("order_id")), (StatusCode::OK, order));
    assert!(pointer.json().get("units").is_none(), "an address alone does not open an order");
    assert_eq!(shop.get(&back, &access).await.text_of("state"), "paid");
}
