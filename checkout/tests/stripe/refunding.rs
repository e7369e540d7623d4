//! Money goes back once.

use lockgate_shared::testing::eventually;

use crate::{Scene, bank::Fault, scene, support::Plan};

const REFUND: &str = "POST /v1/refunds";

/// An order that was paid with another amount: its money must go back. Answers the session's amount.
async fn overcharged(scene: &Scene) -> (String, String) {
    let (order, access, page) = scene.paying(1).await;
    let paid = scene.bank.pay_other(&page, 50_000, "eur");
    assert_eq!(scene.deliver(&paid).await, 204);
    (order, access)
}

async fn went_back(scene: &Scene, amount: i64) {
    eventually("the money is back", 10, async || {
        scene.bank.with(|inner| inner.books.given("pi_1")) == amount
    })
    .await;
    assert_eq!(scene.bank.refunds().iter().filter(|refund| refund.status != "failed").count(), 1);
}

/// Whether everything is done: nothing unsettled is left.
async fn is_settled(scene: &Scene) {
    eventually("nothing is left to do", 10, async || {
        scene.shop.store.unsettled(None, scene.shop.now()).await.unwrap().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m7_a_wrong_amount_goes_back_and_does_not_pay() {
    let scene = scene(Plan::default()).await;
    let (order, access) = overcharged(&scene).await;
    went_back(&scene, 50_000).await;
    assert_eq!(scene.kinds_of_anomalies(&order).await, ["wrong_amount"]);
    assert_eq!(scene.shop.state(&order, &access).await, "awaiting_payment", "it can still be paid");
    let next = scene.shop.pay(&order, &access).await;
    let paid = scene.bank.pay(&next);
    scene.deliver(&paid).await;
    scene.shop.reaches(&order, &access, "paid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m7_a_wrong_currency_goes_back_and_does_not_pay() {
    let scene = scene(Plan::default()).await;
    let (order, _, page) = scene.paying(1).await;
    let paid = scene.bank.pay_other(&page, 49_900, "usd");
    scene.deliver(&paid).await;
    went_back(&scene, 49_900).await;
    assert_eq!(scene.kinds_of_anomalies(&order).await, ["wrong_amount"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn m9_refunds_whose_answers_are_lost_are_one_refund() {
    let scene = scene(Plan::default()).await;
    scene.bank.go_wrong(REFUND, &[Fault::LoseAnswer, Fault::Fail, Fault::InUse]);
    overcharged(&scene).await;
    went_back(&scene, 50_000).await;
    is_settled(&scene).await;
    assert_eq!(scene.bank.refunds().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn m9_a_refund_asked_for_again_after_the_key_is_forgotten_is_still_one() {
    let scene = scene(Plan::default()).await;
    scene.bank.go_wrong(REFUND, &[Fault::LoseAnswer]);
    overcharged(&scene).await;
    eventually("it was refunded once", 8, async || scene.bank.refunds().len() == 1).await;
    scene.bank.forget_keys();
    is_settled(&scene).await;
    assert_eq!(scene.bank.refunds().len(), 1);
    let listed = scene.bank.calls("GET /v1/refunds").len();
    assert!(listed >= 2, "the list was asked {listed} times");
}

#[tokio::test(flavor = "multi_thread")]
async fn m9_a_refund_that_stripe_failed_at_is_asked_for_under_another_key() {
    let scene = scene(Plan::default()).await;
    scene.bank.go_wrong(REFUND, &[Fault::FailForGood]);
    overcharged(&scene).await;
    went_back(&scene, 50_000).await;
    is_settled(&scene).await;
    let keys: Vec<String> = scene.bank.calls(REFUND).into_iter().filter_map(|call| call.key).collect();
    assert!(keys[0] == keys[1] && keys[1] != keys[2], "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn m9_a_refund_that_bounced_is_made_again() {
    let scene = scene(Plan::default()).await;
    scene.bank.with(|inner| inner.books.next_refund = Some("failed"));
    overcharged(&scene).await;
    went_back(&scene, 50_000).await;
    is_settled(&scene).await;
    assert_eq!(scene.bank.refunds().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn m9_a_refund_that_comes_back_later_is_listed_for_somebody_to_look_at() {
    let scene = scene(Plan::default()).await;
    scene.bank.with(|inner| inner.books.next_refund = Some("pending"));
    let (order, _) = overcharged(&scene).await;
    went_back(&scene, 50_000).await;
    is_settled(&scene).await;
    let came_back = scene.bank.refund_came_back(0);
    for _ in 0..2 {
        assert_eq!(scene.deliver(&came_back).await, 204);
    }
    assert_eq!(scene.kinds_of_anomalies(&order).await, ["wrong_amount", "refund_failed"]);
    is_settled(&scene).await;
    assert_eq!(scene.bank.calls(REFUND).len(), 1, "a card that is gone is not asked again");
}

#[tokio::test(flavor = "multi_thread")]
async fn m9_money_given_back_at_stripe_s_own_pages_is_not_given_twice() {
    let scene = scene(Plan::default()).await;
    let (_, _, page) = scene.paying(1).await;
    let paid = scene.bank.pay_other(&page, 50_000, "eur");
    scene.bank.with(|inner| {
        let refund = crate::books::Refund {
            intent: "pi_1".into(),
            amount: 50_000,
            status: "pending",
            payment: String::new(),
        };
        inner.books.refunds.push(refund);
    });
    scene.deliver(&paid).await;
    eventually("the refund was looked for", 8, async || !scene.bank.calls("GET /v1/refunds").is_empty())
        .await;
    is_settled(&scene).await;
    assert!(scene.bank.calls(REFUND).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_a_payment_after_its_order_ended_gets_its_units_again() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    let mut paid = scene.bank.pay_other(&page, 49_900, "eur");
    // A Stripe that forgets itself: it had expired the session, and says later that it was paid.
    scene.bank.with(|inner| inner.books.sessions[0].status = "open");
    scene.let_holds_run_out();
    scene.shop.reaches(&order, &access, "expired").await;
    scene.bank.with(|inner| inner.books.sessions[0].status = "complete");
    paid["id"] = "evt_late".into();
    assert_eq!(scene.deliver(&paid).await, 204);
    scene.shop.reaches(&order, &access, "paid").await;
    assert_eq!(scene.kinds_of_anomalies(&order).await, ["paid_late", "reclaimed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_whose_row_was_lost_is_found_by_what_stripe_noted_and_goes_back() {
    let scene = scene(Plan::default()).await;
    let (order, access, page) = scene.paying(1).await;
    let paid = scene.bank.pay_other(&page, 50_000, "eur");
    let db = crate::Shop::database(scene.dir.path());
    db.write("test", |db| db.execute("DELETE FROM payments", []).map(drop)).await.unwrap();
    assert_eq!(scene.deliver(&paid).await, 204);
    went_back(&scene, 50_000).await;
    is_settled(&scene).await;
    assert_eq!(scene.shop.state(&order, &access).await, "awaiting_payment");
}
