use lockgate_shared::clock::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{super::events, *};
use crate::{
    gateways::{Notification, WebhookError},
    payment::{Notice, Outcome},
};

fn order(hold_seconds: u64) -> PaymentOrder {
    let started_at = Timestamp::from_seconds(1_800_000_000);
    PaymentOrder {
        payment: PaymentId::from(Uuid::from_bytes([1; 16])),
        order: ClaimId::from(Uuid::from_bytes([2; 16])),
        price: Money { amount: 49_900, currency: "EUR".into() },
        description: "1 × Phone, black".into(),
        return_url: "https://shop.example/payment/callback?payment=x".into(),
        expires_at: started_at.plus_seconds(hold_seconds),
        started_at,
        reference: None,
    }
}

fn methods() -> Vec<String> {
    vec!["card".to_owned(), "paypal".to_owned()]
}

fn field(form: &[(String, String)], name: &str) -> String {
    form.iter().find(|(key, _)| key == name).unwrap_or_else(|| panic!("no {name}")).1.clone()
}

#[test]
fn a_session_is_asked_for_with_the_same_form_every_time() {
    let asked = form(&order(600), &methods()).unwrap();
    assert_eq!(asked, form(&order(600), &methods()).unwrap());
    // What is known meanwhile does not change what is asked.
    let later = PaymentOrder { reference: Some("cs_1".into()), ..order(600) };
    assert_eq!(asked, form(&later, &methods()).unwrap());
    let (payment, id) = ("01010101-0101-0101-0101-010101010101", "02020202-0202-0202-0202-020202020202");
    for (name, value) in [
        ("mode", "payment"),
        ("client_reference_id", payment),
        ("metadata[lockgate_payment]", payment),
        ("metadata[lockgate_order]", id),
        ("payment_intent_data[metadata][lockgate_payment]", payment),
        ("payment_intent_data[metadata][lockgate_order]", id),
        ("line_items[0][quantity]", "1"),
        ("line_items[0][price_data][currency]", "eur"),
        ("line_items[0][price_data][unit_amount]", "49900"),
        ("line_items[0][price_data][product_data][name]", "1 × Phone, black"),
        ("success_url", "https://shop.example/payment/callback?payment=x"),
        ("cancel_url", "https://shop.example/payment/callback?payment=x"),
        ("payment_method_types[0]", "card"),
        ("payment_method_types[1]", "paypal"),
        ("expires_at", "1800004200"),
    ] {
        assert_eq!(field(&asked, name), value, "{name}");
    }
    assert_eq!(asked.len(), 15);
    let odd = PaymentOrder { price: Money { amount: 1, currency: "KWD".into() }, ..order(600) };
    assert!(form(&odd, &methods()).unwrap_err().contains("0.001 KWD"));
}

proptest! {
    /// Whenever within its hold it is asked for, by clocks ten minutes apart: 30 minutes to 24 hours ahead, as long as the
    /// hold leaves that choice.
    #[test]
    fn a_session_ends_within_stripe_s_bounds(hold in 1_u64..79_200, at in 0_f64..1.0, skew in -600_i64..600) {
        let asked = form(&order(hold), &[]).unwrap();
        let asked_at = 1_800_000_000 + (hold as f64 * at) as i64 + skew;
        let ahead = field(&asked, "expires_at").parse::<i64>().unwrap() - asked_at;
        prop_assert!(ahead < 86_400);
        prop_assert!(ahead >= 1_800 || hold > 79_200 - 1_800, "{ahead}");
        prop_assert!(field(&asked, "expires_at").parse::<i64>().unwrap() - 1_800_000_000 <= 82_800);
    }
}

fn session(status: &str, payment_status: &str) -> Value {
    json!({
        "id": "cs_test_1", "object": "checkout.session", "status": status, "payment_status": payment_status,
        "amount_total": 49_900, "currency": "eur", "url": "https://checkout.stripe.com/c/pay/cs_test_1#x",
        "payment_intent": "pi_1", "client_reference_id": "x",
        "metadata": {
            "lockgate_payment": "01010101-0101-0101-0101-010101010101",
            "lockgate_order": "02020202-0202-0202-0202-020202020202",
        },
    })
}

fn standing(value: &Value) -> Result<Standing, String> {
    Session::deserialize(value).unwrap().standing()
}

fn euros() -> Money {
    Money { amount: 49_900, currency: "EUR".into() }
}

#[test]
fn what_a_session_means() {
    let url = "https://checkout.stripe.com/c/pay/cs_test_1#x".to_owned();
    assert_eq!(standing(&session("open", "unpaid")), Ok(Standing::Open { url }));
    assert_eq!(standing(&session("expired", "unpaid")), Ok(Standing::Expired));
    assert_eq!(standing(&session("complete", "paid")), Ok(Standing::Paid(euros())));
    assert_eq!(standing(&session("complete", "no_payment_required")), Ok(Standing::Paid(euros())));
    assert_eq!(standing(&session("complete", "unpaid")), Ok(Standing::Pending));
    for (status, expected) in [
        ("processing", Standing::Pending),
        ("requires_action", Standing::Pending),
        ("requires_payment_method", Standing::Failed),
        ("canceled", Standing::Failed),
    ] {
        let mut shown = session("complete", "unpaid");
        shown["payment_intent"] = json!({"id": "pi_1", "status": status, "amount": 49_900});
        assert_eq!(standing(&shown), Ok(expected), "{status}");
    }
    let mut without = session("open", "unpaid");
    without["url"] = Value::Null;
    assert!(standing(&without).is_err());
    without["url"] = json!("javascript:alert(1)");
    assert!(standing(&without).is_err());
    let mut odd = session("complete", "paid");
    odd["currency"] = Value::Null;
    assert!(standing(&odd).is_err() && standing(&session("new", "paid")).is_err());
}

fn event(kind: &str, object: &Value, livemode: bool) -> Vec<u8> {
    json!({"id": "evt_1", "object": "event", "type": kind, "livemode": livemode, "data": {"object": object}})
        .to_string()
        .into_bytes()
}

fn read(kind: &str, object: &Value) -> Option<Notice> {
    let Notification { event, notice } = events::read(&event(kind, object, false), false).unwrap();
    assert_eq!(event, "evt_1");
    notice
}

#[test]
fn what_an_event_means() {
    let notice = |outcome| Some(Notice { payment: order(1).payment, order: Some(order(1).order), outcome });
    let paid = || notice(Outcome::Paid(euros()));
    let kind = |name: &str| format!("checkout.session.{name}");
    for (name, object, expected) in [
        ("completed", session("complete", "paid"), paid()),
        ("completed", session("complete", "no_payment_required"), paid()),
        ("completed", session("complete", "unpaid"), None),
        ("async_payment_succeeded", session("complete", "paid"), paid()),
        ("async_payment_failed", session("complete", "unpaid"), notice(Outcome::Failed)),
        ("expired", session("expired", "unpaid"), notice(Outcome::Unpayable)),
        ("invented", session("complete", "paid"), None),
    ] {
        assert_eq!(read(&kind(name), &object), expected, "{name}");
    }
    for other in ["payment_intent.succeeded", "charge.refunded", "invoice.paid", "", "checkout"] {
        assert_eq!(read(other, &json!({"id": "pi_1"})), None, "{other}");
    }
    let mut refund = json!({"id": "re_1", "object": "refund", "amount": 5, "status": "failed"});
    assert_eq!(read("refund.failed", &refund), None, "made at Stripe's own pages");
    refund["metadata"] = json!({"lockgate_payment": order(1).payment.to_string()});
    let failed = Notice { payment: order(1).payment, order: None, outcome: Outcome::RefundFailed };
    assert_eq!(read("refund.failed", &refund), Some(failed));
    assert_eq!(read("refund.created", &refund), None);
    let mut foreign = session("complete", "paid");
    for metadata in [Value::Null, json!({}), json!({"lockgate_payment": "no uuid"})] {
        foreign["metadata"] = metadata;
        assert_eq!(read("checkout.session.completed", &foreign), None);
    }
}

#[test]
fn the_other_mode_s_events_are_no_news() {
    let completed = event("checkout.session.completed", &session("complete", "paid"), true);
    assert_eq!(events::read(&completed, false).unwrap().notice, None);
    assert!(events::read(&completed, true).unwrap().notice.is_some());
}

#[test]
fn what_cannot_be_read_is_refused() {
    let mut no_amount = session("complete", "paid");
    no_amount["amount_total"] = json!("much");
    let odd_id = br#"{"id":"evt 1/..","type":"x","data":{"object":{}}}"#.to_vec();
    let numbers = event("checkout.session.completed", &json!([1]), false);
    let bodies = [b"".to_vec(), b"{}".to_vec(), b"[]".to_vec(), b"\xff".to_vec(), odd_id, numbers];
    for body in bodies.iter().chain([&event("checkout.session.completed", &no_amount, false)]) {
        let text = String::from_utf8_lossy(body);
        assert_eq!(events::read(body, false), Err(WebhookError::Body), "{text}");
    }
}
