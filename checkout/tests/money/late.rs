//! A payment that succeeds after its order expired: the same units, others, or one refund; on both back ends.

use lockgate_shared::{
    gate::HoldState,
    store::redis::RedisLink,
    testing::{PrivatePostgres, PrivateRedis, eventually},
};
use serde_json::{Value, json};

use crate::support::{Answer, Ask, Backends, HOLD_SECONDS, Plan, Shop, VIEWER_KEY};

/// Neither webhook nor return arrives by itself, and the gateway takes money for what was made unpayable.
const LATE: &str = r#"{"webhook_delay_ms":86400000,"drop_callback":true,"late_success":true}"#;

struct Order {
    id: String,
    access: String,
    page: String,
}

impl Order {
    fn payment(&self) -> &str {
        self.page.rsplit('/').next().unwrap()
    }
}

async fn wait_for_available(shop: &Shop, available: u32) {
    eventually("the units are back", 10, async || shop.phone_books().await["available"] == available).await;
}

/// Lets every hold of the shop run out.
async fn time_passes(shop: &Shop) {
    shop.clock.advance_ms(i64::try_from(HOLD_SECONDS * 1_000).unwrap() + 1);
}

/// An order that ran out although its buyer had begun to pay.
async fn ran_out(shop: &Shop, n: u16, quantity: u32, run_out: &impl AsyncFn()) -> Order {
    let (id, access) = shop.buy(n, "k", quantity).await;
    let page = shop.pay(&id, &access).await;
    run_out().await;
    shop.reaches(&id, &access, "expired").await;
    Order { id, access, page }
}

/// A signed webhook as the gateway would send it, under the id `event`.
async fn webhook(shop: &Shop, event: &str, order: &Order, amount: i64) -> Answer {
    let at = shop.now().seconds();
    let body = json!({
        "type": "payment.paid", "payment": order.payment(), "order": order.id,
        "price": { "amount": amount, "currency": "EUR" },
    })
    .to_string();
    let secret = shop.ring.active().simulated_webhook();
    let signature = lockgate_checkout::gateways::webhook::sign(secret, event, at, body.as_bytes());
    let ask = Ask::post("/payment/webhook")
        .header("webhook-id", event)
        .header("webhook-timestamp", &at.to_string())
        .header("webhook-signature", &signature)
        .json(&body);
    shop.send(ask.build()).await
}

/// The money arrives although the order has expired, and the gateway says so five times.
async fn pays_late(shop: &Shop, order: &Order, amount: i64) {
    shop.finish(&order.page, "paid").await;
    for n in 0..5 {
        let event = format!("late-{}-{}", order.id, n / 3);
        assert_eq!(webhook(shop, &event, order, amount).await.status.as_u16(), 204);
    }
}

async fn shown(shop: &Shop, order: &Order) -> Value {
    shop.get(&format!("/orders/{}", order.id), &order.access).await.json()
}

async fn kinds(shop: &Shop, order: &Order) -> Vec<String> {
    let found = shop.get("/operator/v1/sales/demo/anomalies", VIEWER_KEY).await.json();
    let all = found["anomalies"].as_array().unwrap();
    let own = all.iter().filter(|anomaly| anomaly["order_id"] == order.id.as_str());
    own.map(|anomaly| anomaly["kind"].as_str().unwrap().to_owned()).collect()
}

/// All three endings, one after the other, in a shop of four phones.
async fn m5_every_ending(shop: &Shop, run_out: &impl AsyncFn()) {
    shop.behave(LATE).await;
    // The same units, although lower ones are free.
    let other = ran_out(shop, 1, 1, run_out).await;
    let (first, _) = shop.buy(2, "k", 1).await;
    let same = ran_out(shop, 3, 2, run_out).await;
    wait_for_available(shop, 4).await;
    assert!(!first.is_empty());
    pays_late(shop, &same, 99_800).await;
    shop.reaches(&same.id, &same.access, "paid").await;
    assert_eq!(shown(shop, &same).await["units"], json!([2, 3]));
    assert_eq!(kinds(shop, &same).await, ["paid_late", "reclaimed"]);

    // Another unit: its own, 1, is held by somebody else by now.
    let (held, held_access) = shop.buy(4, "k", 1).await;
    shop.reaches(&held, &held_access, "awaiting_payment").await;
    assert_eq!(shown(shop, &other).await["units"], json!([1]));
    pays_late(shop, &other, 49_900).await;
    shop.reaches(&other.id, &other.access, "paid").await;
    assert_eq!(shown(shop, &other).await["units"], json!([4]));
    let hold = shop.gate.hold(&shop.sale, other.id.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!((hold.state, hold.units.as_slice()), (HoldState::Committed, &[4][..]));

    // Nothing is left: the money goes back, once.
    shop.post(&format!("/orders/{held}/cancel"), &held_access).await;
    wait_for_available(shop, 1).await;
    let none = ran_out(shop, 5, 1, run_out).await;
    wait_for_available(shop, 1).await;
    let (last, last_access) = shop.buy(6, "k", 1).await;
    let page = shop.pay(&last, &last_access).await;
    shop.behave("{}").await;
    shop.finish(&page, "paid").await;
    shop.reaches(&last, &last_access, "paid").await;
    shop.behave(LATE).await;
    pays_late(shop, &none, 49_900).await;
    shop.reaches(&none.id, &none.access, "refunded").await;
    assert_eq!(kinds(shop, &none).await, ["paid_late", "not_reclaimed"]);
    assert_eq!(webhook(shop, "much-later", &none, 49_900).await.status.as_u16(), 204);
    assert_eq!(shop.state(&none.id, &none.access).await, "refunded");

    let phone = shop.phone_books().await;
    assert_eq!((&phone["sold"], &phone["held"], &phone["difference"]), (&json!(4), &json!(0), &json!(0)));
    assert_eq!(phone["orders"], json!({"paid": 3, "refunded": 1, "expired": 1, "cancelled": 1}), "{phone}");
    let unit_of = async |order: &Order| shown(shop, order).await["units"].clone();
    assert_eq!((unit_of(&same).await, unit_of(&other).await), (json!([2, 3]), json!([4])), "and stays so");
}

fn plan() -> Plan {
    Plan { stock: 4, ..Plan::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_a_late_success_ends_in_every_way_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &plan()).await;
    m5_every_ending(&shop, &async || time_passes(&shop).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_a_late_success_ends_in_every_way_scaled_out() {
    let (redis, postgres) = tokio::join!(PrivateRedis::start(), PrivatePostgres::start());
    let dir = tempfile::tempdir().unwrap();
    let backends = Backends::scaled_out(&redis, postgres.url()).await;
    let shop = Shop::over(dir.path(), &plan(), crate::support::clock(), backends, None).await;
    // Redis goes by a clock of its own: every deadline is moved into the past.
    let link = RedisLink::connect(redis.url(), "t:").await.unwrap();
    let run_out = async || {
        let due = link.key("{demo}:due");
        let claims: Vec<String> =
            link.command("test", redis::cmd("ZRANGE").arg(&due).arg(0).arg(-1)).await.unwrap();
        for claim in claims {
            let mut past = redis::cmd("ZADD");
            past.arg(&due).arg("XX").arg(0).arg(claim);
            link.command::<u64>("test", &past).await.unwrap();
        }
    };
    m5_every_ending(&shop, &run_out).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_the_buyer_s_return_tells_of_a_late_success_too() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &plan()).await;
    shop.behave(LATE).await;
    let order = ran_out(&shop, 1, 1, &async || time_passes(&shop).await).await;
    wait_for_available(&shop, 4).await;
    shop.catalog.change(&shop.sale, |sale| sale.controls.closed = true).await.unwrap();
    shop.finish(&order.page, "paid").await;
    assert_eq!(shop.state(&order.id, &order.access).await, "expired");
    shop.get(&format!("/payment/callback?payment={}", order.payment()), "").await;
    shop.reaches(&order.id, &order.access, "paid").await;
    assert_eq!(shop.phone_books().await["sold"], 1, "also in a sale that is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_while_units_are_reclaimed_page_and_api_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &plan()).await;
    shop.behave(LATE).await;
    let order = ran_out(&shop, 1, 1, &async || time_passes(&shop).await).await;
    wait_for_available(&shop, 4).await;
    let clock = shop.clock.clone();
    shop.kill().await;
    // Without its loops nobody asks the gate.
    let still = Plan { loops: false, ..plan() };
    let db = Shop::database(dir.path());
    let store = std::sync::Arc::new(lockgate_checkout::SqliteStore::new(db.clone()));
    let shop = Shop::with(dir.path(), &still, clock, db, store, None).await;
    assert_eq!(webhook(&shop, "late", &order, 49_900).await.status.as_u16(), 204);
    let found = shown(&shop, &order).await;
    assert_eq!((&found["state"], &found["reclaiming"]), (&json!("expired"), &json!(true)));
    assert_eq!(found["units"], json!([]), "none are the buyer's yet");
    let path = format!("/orders/{}", order.id);
    let page = shop.send(Ask::get(&path).bearer(&order.access).page().build()).await.text;
    assert!(page.contains("Your payment has arrived") && page.contains("looking for units"), "{page}");
    assert!(!page.contains("Nothing was charged") && page.contains("http-equiv=\"refresh\""), "{page}");
    for act in ["pay", "cancel"] {
        shop.post(&format!("{path}/{act}"), &order.access).await.is(409, "order_expired");
    }
}

/// News of one payment by webhook and by the buyer's return: one transition, one sale at the gate.
async fn m2_webhook_and_return(apart_ms: i64, is_webhook_first: bool) {
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(dir.path(), &Plan { webhooks: false, ..plan() }).await;
    shop.behave(r#"{"drop_callback":true}"#).await;
    let (id, access) = shop.buy(1, "k", 1).await;
    let page = shop.pay(&id, &access).await;
    let order = Order { id, access, page };
    shop.finish(&order.page, "paid").await;
    let back = format!("/payment/callback?payment={}", order.payment());
    let tell = async |by_webhook: bool| {
        let answer =
            if by_webhook { webhook(&shop, "paid", &order, 49_900).await } else { shop.get(&back, "").await };
        assert!(answer.status.is_success() || answer.status.is_redirection(), "{}", answer.text);
    };
    if apart_ms == 0 {
        tokio::join!(tell(is_webhook_first), tell(!is_webhook_first));
    } else {
        tell(is_webhook_first).await;
    }
    eventually("the gate sold it", 5, async || shop.phone_books().await["sold"] == 1).await;
    let before = shop.store.order(order.id.parse().unwrap()).await.unwrap().unwrap();
    assert!(!before.is_unsettled());
    shop.clock.advance_ms(apart_ms);
    tell(!is_webhook_first).await;
    assert_eq!(shop.store.order(before.id).await.unwrap(), Some(before), "nothing moves a second time");
    assert_eq!(kinds(&shop, &order).await, [""; 0]);
    assert_eq!(shop.phone_books().await["orders"], json!({"paid": 1}));
}

#[tokio::test(flavor = "multi_thread")]
async fn m2_webhook_and_return_in_the_same_second_are_one_transition() {
    tokio::join!(m2_webhook_and_return(0, true), m2_webhook_and_return(0, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn m2_webhook_and_return_three_seconds_apart_are_one_transition_in_either_order() {
    tokio::join!(m2_webhook_and_return(3_000, true), m2_webhook_and_return(3_000, false));
}
