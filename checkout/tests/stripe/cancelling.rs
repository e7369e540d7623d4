//! A unit is freed once its payment can never succeed any more, not before.

use lockgate_shared::testing::eventually;

use crate::{Scene, bank::Fault, scene, support::Plan};

const EXPIRE: &str = "/expire";

async fn is_back(scene: &Scene) {
    eventually("the unit is back", 8, async || {
        let books = scene.shop.books().await;
        books["items"][0]["available"] == 10 && books["balanced"] == true
    })
    .await;
}

/// Whether a unit of phone number one is held while `faults` stand between the hold's end and the session's.
async fn is_held_meanwhile(scene: &Scene, until: usize) {
    eventually("Stripe was asked in vain", 8, async || {
        assert_eq!(scene.shop.books().await["items"][0]["held"], 1, "freed while it can be paid");
        scene.bank.faults_left() <= until
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_the_session_is_expired_before_its_unit_is_freed() {
    let scene = scene(Plan::default()).await;
    let (order, access, _) = scene.paying(1).await;
    scene.bank.go_wrong(EXPIRE, &[Fault::Fail, Fault::TooMany]);
    scene.let_holds_run_out();
    is_held_meanwhile(&scene, 0).await;
    scene.shop.reaches(&order, &access, "expired").await;
    assert_eq!(scene.bank.session(0).status, "expired");
    is_back(&scene).await;
    let expired = scene.bank.expired(0);
    assert_eq!(scene.deliver(&expired).await, 204, "Stripe tells of it, too");
    assert_eq!(scene.shop.state(&order, &access).await, "expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_a_session_paid_a_moment_before_is_not_expired_but_counts() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    scene.bank.pay(&page);
    let cancelled = scene.shop.post(&format!("/orders/{order}/cancel"), &access).await;
    cancelled.is(409, "order_paid");
    scene.shop.reaches(&order, &access, "paid").await;
    let expires = scene.bank.calls(EXPIRE);
    // The settler and the one who asked may both have tried.
    assert!(!expires.is_empty() && expires.iter().all(|call| call.status == 400), "{expires:?}");
    eventually("it is sold", 5, async || scene.shop.phone_books().await["sold"] == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_an_expiry_whose_answer_is_lost_or_spoilt_is_asked_for_again() {
    for fault in [Fault::LoseAnswer, Fault::FailForGood] {
        let scene = scene(Plan::default()).await;
        let (order, access, _) = scene.paying(1).await;
        scene.bank.go_wrong(EXPIRE, &[fault]);
        scene.let_holds_run_out();
        scene.shop.reaches(&order, &access, "expired").await;
        assert_eq!(scene.bank.session(0).status, "expired", "{fault:?}");
        is_back(&scene).await;
        let calls = scene.bank.calls(EXPIRE);
        let keys: Vec<&str> = calls.iter().map(|call| call.key.as_deref().unwrap()).collect();
        assert!(keys[0] == keys[1] && keys[0].ends_with("expire-1"), "{keys:?}");
        let spoilt = fault == Fault::FailForGood;
        assert_eq!(keys.last().unwrap().ends_with("expire-2"), spoilt, "{keys:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_a_session_whose_id_was_lost_is_found_by_its_key_and_expired() {
    let scene = scene(Plan::default()).await;
    let (order, access) = scene.order(1).await;
    scene.bank.go_wrong("POST /v1/checkout/sessions", &[Fault::LoseAnswer]);
    scene.shop.post(&format!("/orders/{order}/pay"), &access).await.is(503, "payment_unavailable");
    assert_eq!(scene.bank.session(0).status, "open");
    scene.let_holds_run_out();
    scene.shop.reaches(&order, &access, "expired").await;
    assert_eq!((scene.bank.sessions(), scene.bank.session(0).status), (1, "expired"));
    is_back(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_a_start_still_on_its_way_finds_its_session_expired() {
    let scene = scene(Plan::default()).await;
    let (order, access) = scene.order(1).await;
    scene.bank.go_wrong("POST /v1/checkout/sessions", &[Fault::Fail]);
    scene.shop.post(&format!("/orders/{order}/pay"), &access).await.is(503, "payment_unavailable");
    assert_eq!(scene.bank.sessions(), 0);
    scene.let_holds_run_out();
    scene.shop.reaches(&order, &access, "expired").await;
    assert_eq!((scene.bank.sessions(), scene.bank.session(0).status), (1, "expired"), "its tombstone");
    is_back(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_a_lost_session_of_yesterday_keeps_no_unit() {
    let scene = scene(Plan::default()).await;
    let (order, access) = scene.order(1).await;
    scene.bank.go_wrong("POST /v1/checkout/sessions", &[Fault::LoseAnswer]);
    scene.shop.post(&format!("/orders/{order}/pay"), &access).await.is(503, "payment_unavailable");
    // A day later nothing is remembered, and it is too late for a session of those words.
    scene.shop.clock.advance_ms(86_400_000);
    scene.bank.forget_keys();
    scene.shop.reaches(&order, &access, "expired").await;
    assert_eq!((scene.bank.sessions(), scene.bank.session(0).status), (1, "expired"), "it ended by itself");
    is_back(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_money_that_takes_its_time_keeps_the_unit_until_it_is_known() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    let through = scene.bank.pay_slowly(&page);
    assert_eq!(scene.deliver(&through).await, 204);
    assert!(scene.come_back(0).await.text.contains("awaiting_payment"));
    scene.let_holds_run_out();
    eventually("Stripe was asked to stop it", 8, async || scene.bank.calls("/cancel").len() >= 2).await;
    assert_eq!(scene.shop.books().await["items"][0]["held"], 1);
    let arrived = scene.bank.arrive(0);
    assert_eq!(scene.deliver(&arrived).await, 204);
    scene.shop.reaches(&order, &access, "paid").await;
    eventually("it is sold", 5, async || scene.shop.phone_books().await["sold"] == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m6_money_that_does_not_arrive_after_all_frees_the_unit() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    scene.bank.pay_slowly(&page);
    scene.let_holds_run_out();
    eventually("Stripe was asked to stop it", 8, async || !scene.bank.calls("/cancel").is_empty()).await;
    scene.bank.bounce(0);
    // No webhook: the settler asks again, and stops what could be tried again.
    scene.shop.reaches(&order, &access, "expired").await;
    is_back(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_payment_that_fails_leaves_room_for_another() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    scene.bank.pay_slowly(&page);
    let failed = scene.bank.bounce(0);
    assert_eq!(scene.deliver(&failed).await, 204);
    let next = scene.shop.pay(&order, &access).await;
    let paid = scene.bank.pay(&next);
    scene.deliver(&paid).await;
    scene.shop.reaches(&order, &access, "paid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_price_that_stripe_refuses_keeps_no_unit_for_ever() {
    let scene = scene(Plan::default()).await;
    scene.bank.with(|inner| inner.books.least = 60_000);
    let (order, access) = scene.order(1).await;
    scene.shop.post(&format!("/orders/{order}/pay"), &access).await.is(503, "payment_unavailable");
    scene.let_holds_run_out();
    scene.shop.reaches(&order, &access, "expired").await;
    assert_eq!(scene.bank.sessions(), 0);
    is_back(&scene).await;
}
