//! Mails over a real SMTP conversation, webhooks to a real receiver, against a whole shop.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod post_office;

use std::{collections::HashSet, sync::Arc, time::Duration};

use http::StatusCode;
use lockgate_checkout::{
    ORDERS_POSTGRES, OutboxSettings, PostgresStore,
    outbox::{Channel, Pace},
};
use lockgate_shared::{
    store::postgres,
    testing::{PrivatePostgres, eventually},
};
use post_office::{Fault, PostOffice, Receiver};
use support::{Ask, HOLD_SECONDS, OPERATOR_KEY, Plan, Shop, VIEWER_KEY};

/// What failed is due again at once, so that no test waits for a pause.
const AT_ONCE: Pace = Pace { first_seconds: 0, most_seconds: 0, attempts_max: 20, lease_seconds: 90 };

struct Scene {
    shop: Shop,
    post: PostOffice,
    receiver: Receiver,
    plan: Plan,
    dir: tempfile::TempDir,
    server: Option<PrivatePostgres>,
}

async fn parts(pace: Pace) -> (PostOffice, Receiver, Plan) {
    let (post, receiver) = (PostOffice::open().await, Receiver::open().await);
    let outbox = OutboxSettings { mail: Some(post.settings()), webhook: Some(receiver.settings()), pace };
    (post, receiver, Plan { stock: 50, outbox, ..Plan::default() })
}

async fn on_sqlite(pace: Pace) -> Scene {
    let (post, receiver, plan) = parts(pace).await;
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &plan).await;
    Scene { shop, post, receiver, plan, dir, server: None }
}

async fn on_postgres() -> Scene {
    let (post, receiver, plan) = parts(AT_ONCE).await;
    let (dir, server) = (tempfile::tempdir().unwrap(), PrivatePostgres::start().await);
    let pool = postgres::connect(server.url(), &[("orders", ORDERS_POSTGRES)]).await.unwrap();
    let store = Arc::new(PostgresStore::new(pool).telling(plan.outbox.wants()));
    let db = Shop::database(dir.path());
    let shop = Shop::with(dir.path(), &plan, support::clock(), db, store, None).await;
    Scene { shop, post, receiver, plan, dir, server: Some(server) }
}

/// Buys for account `n` with an address: the order's id and access key.
async fn buy(shop: &Shop, n: u16, language: &str) -> (String, String) {
    let body = format!(r#"{{"item":"phone","quantity":1,"email":"buyer{n}@example.org"}}"#);
    let ask = Ask::post("/sale/demo/checkout").bearer(&shop.token(n)).key("k1").json(&body);
    let won = shop.send(ask.header("accept-language", language).build()).await;
    assert_eq!(won.status, StatusCode::ACCEPTED, "{}", won.text);
    (won.text_of("order_id"), won.text_of("access_key"))
}

async fn buy_and_pay(shop: &Shop, n: u16, language: &str) -> (String, String) {
    let (order, access) = buy(shop, n, language).await;
    let page = shop.pay(&order, &access).await;
    shop.finish(&page, "paid").await;
    shop.reaches(&order, &access, "paid").await;
    (order, access)
}

async fn waiting(shop: &Shop, channel: Channel) -> u64 {
    shop.store.outbox_figures().await.unwrap().get(&channel).map_or(0, |of| of.waiting)
}

async fn all_delivered(shop: &Shop) {
    eventually("everything is delivered", 10, async || {
        waiting(shop, Channel::Mail).await + waiting(shop, Channel::Webhook).await == 0
    })
    .await;
}

async fn m2_a_paid_order_is_told_once(scene: &Scene) {
    let Scene { shop, post, receiver, .. } = scene;
    shop.behave(r#"{"duplicate_webhooks":4}"#).await;
    let (order, access) = buy(shop, 1, "de-AT, en;q=0.5").await;
    let page = shop.pay(&order, &access).await;
    // The gateway's five webhooks and three returns, all in the same moment.
    let back = shop.finish(&page, "paid").await.location().replace(&shop.url, "");
    futures::future::join_all((0..3).map(|_| shop.send(Ask::get(&back).build()))).await;
    shop.reaches(&order, &access, "paid").await;
    eventually("the mail came", 5, async || !post.taken().is_empty()).await;
    all_delivered(shop).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mails = post.taken();
    assert_eq!((mails.len(), receiver.came().len()), (1, 1), "{mails:?}");
    let (mail, came) = (&mails[0], &receiver.came()[0]);
    let plain_order = order.replace('-', "");
    assert_eq!(mail.header("Message-ID"), format!("<msg_{plain_order}_1@shop.example>"));
    assert_eq!(came.id, format!("msg_{plain_order}_2"));
    assert_eq!(
        (mail.to.as_str(), mail.header("Subject").as_str()),
        ("buyer1@example.org", "Bezahlt: Phone drop")
    );
    assert!(mail.decoded().contains("499,00 EUR"), "{}", mail.decoded());
    assert_eq!(came.kind(), "order.paid");
    let data = &came.body["data"];
    assert_eq!((data["state"].as_str(), data["amount"].as_i64()), (Some("paid"), Some(49_900)));
    assert_eq!((data["email"].as_str(), data["language"].as_str()), (Some("buyer1@example.org"), Some("de")));
    // The mail's link opens the order without anything else.
    let decoded = mail.decoded();
    let link = decoded.split_whitespace().find(|word| word.contains("/orders/")).unwrap();
    let opened = shop.send(Ask::get(&link.replace(&shop.url, "")).page().build()).await;
    assert_eq!((opened.status, opened.location()), (StatusCode::SEE_OTHER, format!("/orders/{order}")));
    assert!(opened.headers.contains_key("set-cookie"));
}

#[tokio::test(flavor = "multi_thread")]
async fn m2_a_paid_order_is_told_once_on_sqlite() {
    m2_a_paid_order_is_told_once(&on_sqlite(AT_ONCE).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m1_m2_a_paid_order_is_told_once_on_postgres_also_when_it_was_notified_first() {
    let scene = on_postgres().await;
    m2_a_paid_order_is_told_once(&scene).await;
    // A batch that finds the notification waiting: the order is paid the moment it is there.
    let Scene { shop, post, .. } = &scene;
    let money = lockgate_checkout::payment::Money { amount: 49_900, currency: "EUR".into() };
    let account = lockgate_shared::ids::AccountHash::from_bytes([7; 16]);
    let placement = lockgate_checkout::order::Placement {
        order: lockgate_shared::ids::ClaimId::from(uuid::Uuid::from_bytes([7; 16])),
        sale: shop.sale.clone(),
        account,
        item: "phone".parse().unwrap(),
        units: vec![40],
        price: money.clone(),
        email: Some("early@example.org".into()),
        language: None,
        claimed_at: shop.now(),
        hold_expires_at: shop.now().plus_seconds(600),
    };
    let notice = lockgate_checkout::payment::Notice {
        payment: lockgate_checkout::payment::PaymentId::from_random([8; 16]),
        order: Some(placement.order),
        outcome: lockgate_checkout::payment::Outcome::Paid(money),
    };
    shop.store.notify("g", "e", &notice, shop.now()).await.unwrap();
    let claimed = lockgate_checkout::order::Intake::Claimed(placement);
    let batch = [claimed.clone(), claimed];
    for _ in 0..2 {
        shop.store.place(&shop.sale, &batch, &[], shop.now()).await.unwrap();
    }
    all_delivered(shop).await;
    let early = post.taken().iter().filter(|mail| mail.to == "early@example.org").count();
    assert_eq!(early, 1);
    assert!(scene.server.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_an_order_s_messages_come_in_order_however_often_the_first_fails() {
    let Scene { shop, post, receiver, .. } = &on_sqlite(AT_ONCE).await;
    receiver.answer(&[(500, None), (302, None), (422, None)]);
    post.faults(&[Fault::AtRecipient("451 greylisted"), Fault::AtData("452 no room")]);
    // The money arrives for an order that ended meanwhile, buys the same units, and is given back.
    let (order, access) = buy(shop, 1, "en").await;
    shop.reaches(&order, &access, "awaiting_payment").await;
    let id = order.parse().unwrap();
    let late = lockgate_checkout::payment::Notice {
        payment: lockgate_checkout::payment::PaymentId::from_random([5; 16]),
        order: Some(id),
        outcome: lockgate_checkout::payment::Outcome::Paid(lockgate_checkout::payment::Money {
            amount: 49_900,
            currency: "EUR".into(),
        }),
    };
    let refunded = lockgate_checkout::order::OrderEvent::Refunded { payment: late.payment };
    shop.store.decide(id, &lockgate_checkout::order::OrderEvent::Expire, shop.now()).await.unwrap();
    shop.store.notify("g", "late", &late, shop.now()).await.unwrap();
    shop.reaches(&order, &access, "paid").await;
    shop.store
        .decide(id, &lockgate_checkout::order::OrderEvent::Refund { why: "a test".into() }, shop.now())
        .await
        .unwrap();
    shop.store.decide(id, &refunded, shop.now()).await.unwrap();
    all_delivered(shop).await;
    let mut kinds = receiver.kinds_of(&order);
    assert_eq!(kinds.iter().filter(|kind| *kind == "order.expired").count(), 4, "{kinds:?}");
    kinds.dedup();
    assert_eq!(kinds, ["order.expired", "order.paid", "order.refund_due", "order.refunded"]);
    let came = receiver.came();
    let first: HashSet<&String> = came[..4].iter().map(|came| &came.id).collect();
    assert_eq!(first.len(), 1, "the same message under the same id");
    assert!(came[..4].iter().all(|again| again.body == came[0].body));
    assert_eq!(came.last().unwrap().body["data"]["refund"]["amount"], 49_900);
    let subjects: Vec<String> = post.taken().iter().map(|mail| mail.header("Subject")).collect();
    let told = ["Not paid in time: Phone drop", "Paid: Phone drop", "Your money goes back: Phone drop"];
    assert_eq!(subjects, told);
}

#[tokio::test(flavor = "multi_thread")]
async fn m9_a_mail_whose_answer_is_lost_comes_again_under_the_same_id() {
    let Scene { shop, post, .. } = &on_sqlite(AT_ONCE).await;
    post.faults(&[Fault::CutAfterData]);
    buy_and_pay(shop, 1, "en").await;
    eventually("it was sent again", 10, async || post.taken().len() == 2).await;
    all_delivered(shop).await;
    let mails = post.taken();
    assert_eq!(mails.len(), 2);
    for name in ["Message-ID", "Date", "Subject", "To"] {
        assert_eq!(mails[0].header(name), mails[1].header(name));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m10_a_sender_killed_before_it_wrote_it_down_sends_again_under_the_same_id() {
    let Scene { shop, post, receiver, plan, dir, .. } = on_sqlite(AT_ONCE).await;
    receiver.hang(true);
    let (order, _) = buy_and_pay(&shop, 1, "en").await;
    eventually("the webhook is under way", 5, async || receiver.came().len() == 1).await;
    eventually("the mail was delivered", 5, async || waiting(&shop, Channel::Mail).await == 0).await;
    let clock = shop.clock.clone();
    shop.kill().await;
    receiver.hang(false);
    let shop = Shop::reopen(dir.path(), &plan, clock, Shop::database(dir.path())).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(receiver.came().len(), 1, "nobody takes what may still be under way");
    shop.clock.advance_ms(91_000);
    eventually("another sender took over", 5, async || receiver.came().len() == 2).await;
    all_delivered(&shop).await;
    let came = receiver.came();
    assert_eq!(came[0].id, came[1].id);
    assert_eq!(came[0].body["timestamp"], came[1].body["timestamp"]);
    assert_eq!(receiver.kinds_of(&order), ["order.paid", "order.paid"]);
    assert_eq!(post.taken().len(), 1, "what was written down is not sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn m11_what_is_refused_for_good_is_put_aside_and_comes_back_when_asked() {
    let Scene { shop, post, receiver, .. } = &on_sqlite(AT_ONCE).await;
    post.faults(&[Fault::AtRecipient("550 5.1.1 <buyer1@example.org> unknown here")]);
    receiver.answer(&[(410, None)]);
    let (order, _) = buy_and_pay(shop, 1, "en").await;
    let view = async || shop.get("/operator/v1/outbox", VIEWER_KEY).await.json();
    eventually("both are dead", 10, async || view().await["dead"].as_array().unwrap().len() == 2).await;
    let found = view().await;
    for (channel, place) in [("mail", 0), ("webhook", 1)] {
        let of = &found["channels"][place];
        let figures =
            (of["channel"].as_str(), of["configured"].as_bool(), of["waiting"].as_u64(), of["dead"].as_u64());
        assert_eq!(figures, (Some(channel), Some(true), Some(0), Some(1)), "{found}");
    }
    let text = found.to_string();
    assert!(text.contains("550") && text.contains("410") && text.contains("order.paid"), "{text}");
    assert!(!text.contains("buyer1@"), "no address: {text}");
    let dead = found["dead"].as_array().unwrap().iter().find(|dead| dead["channel"] == "mail").unwrap();
    assert_eq!((dead["order_id"].as_str(), dead["attempts"].as_u64()), (Some(order.as_str()), Some(1)));

    let retry = async |key: &str, body: &str| {
        shop.send(Ask::post("/operator/v1/outbox/retry").bearer(key).json(body).build()).await
    };
    shop.get("/operator/v1/outbox", "").await.is(401, "operator_key_missing");
    retry(VIEWER_KEY, "{}").await.is(403, "role_too_low");
    retry(OPERATOR_KEY, r#"{"message":"x"}"#).await.is(400, "malformed");
    retry(OPERATOR_KEY, r#"{"massage":"x"}"#).await.is(400, "malformed");
    let unknown = format!(r#"{{"message":"msg_{}_9"}}"#, order.replace('-', ""));
    retry(OPERATOR_KEY, &unknown).await.is(404, "no_such_message");
    assert_eq!(view().await["dead"].as_array().unwrap().len(), 2, "nothing changed");
    let one = format!(r#"{{"message":{}}}"#, dead["message"]);
    assert_eq!(retry(OPERATOR_KEY, &one).await.text, r#"{"retried":1,"left":1}"#);
    eventually("the mail came", 5, async || post.taken().len() == 1).await;
    assert_eq!(retry(OPERATOR_KEY, "{}").await.text, r#"{"retried":1,"left":0}"#);
    eventually("the webhook came again", 5, async || receiver.came().len() == 2).await;
    all_delivered(shop).await;
    assert_eq!(shop.post("/operator/v1/outbox/retry", OPERATOR_KEY).await.text, r#"{"retried":0,"left":0}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn m8_a_mail_server_that_refuses_the_shop_costs_no_mail() {
    let Scene { shop, post, .. } = &on_sqlite(AT_ONCE).await;
    post.faults(&[
        Fault::AtGreeting("554 no service for you"),
        Fault::AtGreeting("421 closing"),
        Fault::AtSender("550 5.7.1 <orders@shop.example> may not write here"),
        Fault::AtSender("553 5.1.8 who is that"),
    ]);
    buy_and_pay(shop, 1, "en").await;
    eventually("the mail came", 15, async || post.taken().len() == 1).await;
    all_delivered(shop).await;
    assert_eq!(shop.store.dead_messages().await.unwrap(), []);
    // A connection that was used is kept, and one refused mail takes none of the others with it.
    post.faults(&[Fault::AtRecipient("550 unknown here")]);
    buy_and_pay(shop, 2, "en").await;
    eventually("the next one is dead", 10, async || shop.store.dead_messages().await.unwrap().len() == 1)
        .await;
    buy_and_pay(shop, 3, "en").await;
    eventually("the third came", 10, async || post.taken().len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_server_that_hangs_slows_neither_the_sale_nor_the_webhooks() {
    let Scene { shop, post, receiver, .. } = &on_sqlite(AT_ONCE).await;
    post.hang();
    let started = std::time::Instant::now();
    for n in 1..=12 {
        buy_and_pay(shop, n, "en").await;
    }
    eventually("every webhook came", 5, async || receiver.came().len() == 12).await;
    eventually("and was written down", 5, async || waiting(shop, Channel::Webhook).await == 0).await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!((waiting(shop, Channel::Mail).await, post.taken().len()), (12, 0));
    let oldest = shop.get("/operator/v1/outbox", VIEWER_KEY).await.json()["channels"][0]["oldest_at"].clone();
    assert!(oldest.is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn c2_a_shop_that_asks_for_a_pause_gets_it() {
    let Scene { shop, receiver, .. } = &on_sqlite(AT_ONCE).await;
    receiver.answer(&[(503, Some(2))]);
    buy_and_pay(shop, 1, "en").await;
    eventually("the first attempt", 5, async || receiver.came().len() == 1).await;
    eventually("is written down", 5, async || {
        let dead = shop.store.dead_messages().await.unwrap();
        dead.is_empty() && waiting(shop, Channel::Webhook).await == 1
    })
    .await;
    let other = async || buy_and_pay(shop, 2, "en").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    other().await;
    shop.clock.advance_ms(10_000);
    eventually("then all come", 8, async || receiver.came().len() == 3).await;
    let came = receiver.came();
    for later in &came[1..] {
        assert!(later.at - came[0].at >= Duration::from_millis(1_900), "also those of other orders");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_an_order_nobody_paid_is_told_to_who_left_an_address() {
    let Scene { shop, post, receiver, .. } = &on_sqlite(AT_ONCE).await;
    let (told, access) = buy(shop, 1, "en").await;
    let (silent, silent_access) = shop.buy(2, "k1", 1).await;
    let (cancelled, cancelled_access) = buy(shop, 3, "en").await;
    shop.reaches(&cancelled, &cancelled_access, "awaiting_payment").await;
    shop.post(&format!("/orders/{cancelled}/cancel"), &cancelled_access).await;
    // Before the clock jumps over the lease of its delivery.
    all_delivered(shop).await;
    shop.clock.advance_ms(i64::try_from(HOLD_SECONDS * 1_000).unwrap() + 1);
    shop.reaches(&told, &access, "expired").await;
    shop.reaches(&silent, &silent_access, "expired").await;
    eventually("the mail came", 5, async || post.taken().len() == 1).await;
    all_delivered(shop).await;
    assert_eq!(receiver.kinds_of(&told), ["order.expired"]);
    assert_eq!(receiver.kinds_of(&silent), [] as [&str; 0]);
    assert_eq!(receiver.kinds_of(&cancelled), ["order.cancelled"]);
    let mails = post.taken();
    assert_eq!((mails.len(), mails[0].to.as_str()), (1, "buyer1@example.org"));
    assert!(mails[0].decoded().contains("Nothing was charged."));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_set_up_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan::default()).await;
    buy_and_pay(&shop, 1, "en").await;
    assert!(shop.store.outbox_figures().await.unwrap().is_empty());
    let found = shop.get("/operator/v1/outbox", VIEWER_KEY).await.json();
    assert_eq!(found["channels"][0]["configured"], false);
    assert_eq!(found["dead"], serde_json::json!([]));
}
