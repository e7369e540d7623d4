//! From the start of a payment to a paid order.

use lockgate_shared::testing::eventually;
use serde_json::json;

use crate::{
    Scene,
    bank::{Fault, members, sign},
    scene, shop, shop_with,
    support::Plan,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_is_paid_and_known_by_webhook() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    let call = scene.bank.calls("POST /v1/checkout/sessions").remove(0);
    let asked = members(&call.body);
    let payment = &asked["client_reference_id"];
    assert_eq!(call.key.unwrap(), format!("lockgate-{payment}-start"));
    assert_eq!(asked["metadata[lockgate_order]"], order);
    assert_eq!(asked["line_items[0][price_data][unit_amount]"], "49900");
    assert_eq!(scene.bank.session(0).name, "1 × Phone, black");
    assert_eq!(
        scene.shop.pay(&order, &access).await,
        page,
        "an open attempt is resumed without asking Stripe"
    );
    let paid = scene.bank.pay(&page);
    assert_eq!(scene.deliver(&paid).await, 204);
    scene.shop.reaches(&order, &access, "paid").await;
    assert!(scene.come_back(0).await.text.contains("paid"));
    eventually("it is sold at the gate", 5, async || scene.shop.phone_books().await["sold"] == 1).await;
    let (paths, calls) = (scene.bank.calls(""), 1);
    assert_eq!(paths.len(), calls, "nothing else was asked: {paths:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_no_webhook_tells_of_is_known_when_the_buyer_returns() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    assert!(scene.come_back(0).await.text.contains("awaiting_payment"), "back without having paid");
    scene.bank.pay(&page);
    assert!(scene.come_back(0).await.text.contains("\"paid\""));
    assert_eq!(scene.shop.state(&order, &access).await, "paid");
}

#[tokio::test(flavor = "multi_thread")]
async fn m3_the_same_webhook_five_times_pays_once() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    let paid = scene.bank.pay(&page);
    for _ in 0..5 {
        assert_eq!(scene.deliver(&paid).await, 204);
    }
    scene.shop.reaches(&order, &access, "paid").await;
    eventually("it is sold at the gate", 5, async || scene.shop.phone_books().await["sold"] == 1).await;
    assert!(scene.kinds_of_anomalies(&order).await.is_empty());
    assert!(scene.bank.refunds().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn m3_an_event_larger_than_other_bodies_is_acted_on() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    let mut paid = scene.bank.pay(&page);
    paid["data"]["object"]["payment_method_options"] = json!({ "padding": "x".repeat(100_000) });
    assert_eq!(scene.deliver(&paid).await, 204);
    scene.shop.reaches(&order, &access, "paid").await;
    paid["data"]["object"]["payment_method_options"] = json!({ "padding": "x".repeat(300_000) });
    assert_eq!(scene.deliver(&paid).await, 413, "there is a bound all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn m1_a_webhook_before_the_order_is_kept_until_the_order_comes() {
    let Scene { shop: first, bank, dir } = scene(Plan { loops: false, ..Plan::default() }).await;
    let (order, access) = first.buy(1, "k", 1).await;
    let event = json!({
        "id": "evt_early", "object": "event", "type": "checkout.session.completed", "livemode": false,
        "data": {"object": {
            "id": "cs_test_lost", "status": "complete", "payment_status": "paid", "amount_total": 49_900,
            "currency": "eur", "payment_intent": "pi_lost",
            "metadata": {"lockgate_payment": "0198c0de-0000-8000-8000-000000000001", "lockgate_order": order},
        }},
    });
    assert_eq!(bank.deliver(&first.url, &event).await, 204);
    assert_eq!(first.state(&order, &access).await, "placing");
    first.kill().await;
    let second = shop(dir.path(), &bank, Plan::default()).await;
    second.reaches(&order, &access, "paid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_a_webhook_ten_minutes_late_keeps_the_unit() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    let paid = scene.bank.pay(&page);
    scene.let_holds_run_out();
    // Asked at the hold's end, before Stripe says so by itself.
    scene.shop.reaches(&order, &access, "paid").await;
    assert_eq!(scene.deliver(&paid).await, 204);
    assert_eq!(scene.shop.state(&order, &access).await, "paid");
    assert!(scene.bank.refunds().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_whose_answer_is_lost_is_repeated_in_the_same_words_even_after_a_restart() {
    let Scene { shop: first, bank, dir } = scene(Plan::default()).await;
    let (order, access) = first.buy(1, "k", 1).await;
    first.reaches(&order, &access, "awaiting_payment").await;
    bank.go_wrong("POST /v1/checkout/sessions", &[Fault::LoseAnswer, Fault::LoseAnswer]);
    for _ in 0..2 {
        first.post(&format!("/orders/{order}/pay"), &access).await.is(503, "payment_unavailable");
    }
    first.kill().await;
    // On another address, with time gone by: what was asked then is asked now.
    bank.clock.advance_ms(120_000);
    let second = shop(dir.path(), &bank, Plan::default()).await;
    let page = second.pay(&order, &access).await;
    let calls = bank.calls("POST /v1/checkout/sessions");
    assert_eq!((calls.len(), bank.sessions()), (3, 1));
    assert!(calls.iter().all(|call| (&call.key, &call.body) == (&calls[0].key, &calls[0].body)), "{calls:?}");
    assert_eq!(
        bank.calls("GET /v1/checkout/sessions/cs_test_a1").len(),
        1,
        "what is replayed may be long over"
    );
    let paid = bank.pay(&page);
    assert_eq!(bank.deliver(&second.url, &paid).await, 204);
    second.reaches(&order, &access, "paid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_stripe_failed_at_makes_room_for_another_attempt() {
    let scene = scene(Plan::default()).await;
    let (order, access) = scene.order(1).await;
    scene.bank.go_wrong("POST /v1/checkout/sessions", &[Fault::FailForGood]);
    scene.shop.post(&format!("/orders/{order}/pay"), &access).await.is(503, "payment_unavailable");
    let page = scene.shop.pay(&order, &access).await;
    let calls = scene.bank.calls("POST /v1/checkout/sessions");
    assert_eq!(calls.iter().map(|call| call.status).collect::<Vec<_>>(), [500, 500, 200]);
    assert!(calls[0].key == calls[1].key && calls[1].key != calls[2].key, "the key of the first is spent");
    let paid = scene.bank.pay(&page);
    scene.deliver(&paid).await;
    scene.shop.reaches(&order, &access, "paid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_lost_in_other_words_makes_room_for_another_attempt() {
    let Scene { shop: first, bank, dir } = scene(Plan::default()).await;
    let (paying, leaving) = (first.buy(1, "k", 1).await, first.buy(2, "k", 1).await);
    for (order, access) in [&paying, &leaving] {
        first.reaches(order, access, "awaiting_payment").await;
        bank.go_wrong("POST /v1/checkout/sessions", &[Fault::LoseAnswer]);
        first.post(&format!("/orders/{order}/pay"), access).await.is(503, "payment_unavailable");
    }
    first.kill().await;
    // Set up otherwise: the same key would come with another form.
    let second = shop_with(dir.path(), &bank, Plan::default(), &["card", "paypal"]).await;
    let page = second.pay(&paying.0, &paying.1).await;
    assert!(page.contains("cs_test_a3"), "not one of the two that nobody was shown: {page}");
    let paid = bank.pay(&page);
    assert_eq!(bank.deliver(&second.url, &paid).await, 204);
    second.reaches(&paying.0, &paying.1, "paid").await;
    let cancelled = second.post(&format!("/orders/{}/cancel", leaving.0), &leaving.1).await;
    assert_eq!(cancelled.text_of("state"), "cancelled", "{}", cancelled.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stripe_that_is_slow_busy_or_broken_costs_a_503_and_no_second_session() {
    let scene = scene(Plan::default()).await;
    let (order, access) = scene.order(1).await;
    let path = format!("/orders/{order}/pay");
    let faults = [Fault::Slow, Fault::Fail, Fault::TooMany, Fault::InUse];
    scene.bank.go_wrong("POST /v1/checkout/sessions", &faults);
    for _ in faults {
        let refused = scene.shop.post(&path, &access).await;
        refused.is(503, "payment_unavailable");
        assert!(!refused.text.contains("rk_test") && !refused.text.contains("Stripe"), "{}", refused.text);
    }
    let page = scene.shop.pay(&order, &access).await;
    assert_eq!(scene.bank.sessions(), 1);
    scene.bank.pay(&page);
    scene.come_back(0).await;
    scene.shop.reaches(&order, &access, "paid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_a_webhook_that_is_not_stripe_s_changes_nothing() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    let event = scene.bank.pay(&page).to_string();
    let now = scene.bank.clock_seconds();
    let forged = sign("whsec_somebody_elses_secret_0000", now, &event);
    let (old, url) = (sign(crate::WEBHOOK_SECRET, now - 301, &event), &scene.shop.url);
    for header in [forged.as_str(), &old, "", "t=1,v1=00", &format!("t={now}")] {
        assert_eq!(scene.bank.deliver_signed(url, &event, header).await, 403, "{header}");
    }
    let good = sign(crate::WEBHOOK_SECRET, now, &event);
    let altered = event.replace("49900", "00001");
    assert_eq!(scene.bank.deliver_signed(url, &altered, &good).await, 403);
    assert_eq!(scene.shop.state(&order, &access).await, "awaiting_payment");
    let before_the_rotation = sign("whsec_the_one_before_0123456789", now, &event);
    assert_eq!(scene.bank.deliver_signed(url, &event, &before_the_rotation).await, 204);
    scene.shop.reaches(&order, &access, "paid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_events_of_the_account_are_taken_and_mean_nothing() {
    let scene = scene(Plan::default()).await;
    let (order, access, _) = scene.paying(1).await;
    for event in [
        json!({"id": "evt_a", "type": "payment_intent.succeeded", "livemode": false, "data": {"object": {"id": "pi_1"}}}),
        json!({"id": "evt_b", "type": "checkout.session.completed", "livemode": false, "data": {"object": {
            "id": "cs_x", "status": "complete", "payment_status": "paid", "amount_total": 1, "currency": "eur",
            "metadata": {"order_id": "another shop's"}}}}),
    ] {
        assert_eq!(scene.deliver(&event).await, 204, "{event}");
    }
    assert_eq!(scene.shop.state(&order, &access).await, "awaiting_payment");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_stripe_expired_makes_room_for_another() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    scene.bank.with(|inner| inner.books.expire_until(i64::MAX));
    let expired = scene.bank.expired(0);
    assert_eq!(scene.deliver(&expired).await, 204);
    let next = scene.shop.pay(&order, &access).await;
    assert_ne!(page, next);
    let paid = scene.bank.pay(&next);
    scene.deliver(&paid).await;
    scene.shop.reaches(&order, &access, "paid").await;
}
