use standardwebhooks::Webhook;

use super::*;
use crate::outbox::{mail_tests_facts as facts, message::Content};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[test]
fn a_secret_is_what_the_scheme_says_it_is() {
    assert!(WebhookSecret::parse(SECRET).is_ok());
    let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
    assert!(WebhookSecret::parse(&of(64)).is_ok());
    for bad in [&of(23), &of(65), "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_!!", ""] {
        let told = WebhookSecret::parse(bad).unwrap_err();
        assert!(bad.is_empty() || !told.contains(bad), "{told}");
    }
    assert_eq!(format!("{:?}", WebhookSecret::parse(SECRET).unwrap()), "hidden");
}

#[test]
fn both_secrets_of_a_rotation_sign_and_the_reference_library_accepts_each() {
    let other = format!("whsec_{}", STANDARD.encode([9; 32]));
    let body = br#"{"test": 2432232314}"#;
    let now =
        i64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs())
            .unwrap();
    let secrets = [SECRET, &other].map(|text| WebhookSecret::parse(text).unwrap());
    let signed = signatures(&secrets, "msg_1", now, body);
    assert_eq!(signed.split(' ').count(), 2);
    for secret in [SECRET, &other] {
        let mut headers = HeaderMap::new();
        headers.insert(webhook::ID, "msg_1".parse().unwrap());
        headers.insert(webhook::TIMESTAMP, now.into());
        headers.insert(webhook::SIGNATURE, signed.parse().unwrap());
        Webhook::new(secret).unwrap().verify(body, &headers).unwrap();
    }
    // The vector that the scheme publishes.
    assert_eq!(
        signatures(&secrets[..1], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    );
}

#[test]
fn a_body_says_what_changed_and_carries_no_key() {
    let message = facts::message(MessageKind::RefundDue, |content| {
        content.money = Some(content.price.clone());
        content.units_before = Some(vec![1]);
    });
    let body = Hook::body(&message, "https://shop.example").unwrap();
    let read: serde_json::Value = serde_json::from_str(&body).unwrap();
    let order = message.id.order;
    assert_eq!(
        read,
        serde_json::json!({
            "type": "order.refund_due",
            "timestamp": "2026-12-01T10:00:00.000Z",
            "data": {
                "order_id": order, "state": "paid", "sale": "demo", "item": "phone", "units": [417, 418],
                "units_before": [1], "amount": 49_900, "currency": "EUR",
                "refund": {"amount": 49_900, "currency": "EUR"},
                "claimed_at": "2026-12-01T10:00:00.000Z", "hold_expires_at": "2026-12-01T10:10:00.000Z",
                "email": "buyer@example.org", "order_url": format!("https://shop.example/orders/{order}"),
            }
        })
    );
    let paid = facts::message(MessageKind::Paid, |content: &mut Content| content.email = None);
    let read: serde_json::Value =
        serde_json::from_str(&Hook::body(&paid, "https://shop.example").unwrap()).unwrap();
    assert!(read["data"].get("refund").is_none() && read["data"].get("email").is_none(), "{read}");
}

#[test]
fn c2_answers_are_read_as_what_they_say() {
    let now = Timestamp::parse("2026-12-01T10:00:00Z").unwrap();
    let judged = |status: u16, after: Option<&str>| {
        let mut headers = HeaderMap::new();
        if let Some(after) = after {
            headers.insert(header::RETRY_AFTER, after.parse().unwrap());
        }
        let found = judge(StatusCode::from_u16(status).unwrap(), &headers, now);
        (found.is_for_good, found.is_by_receiver, found.not_before_seconds)
    };
    assert_eq!(judged(410, None), (true, false, None));
    assert_eq!(judged(400, None), (false, false, None));
    assert_eq!(judged(422, Some("9")), (false, false, Some(9)));
    for status in [301, 401, 404, 429, 500, 503] {
        assert_eq!(judged(status, Some("120")), (false, true, Some(120)), "{status}");
    }
    assert_eq!(judged(503, Some("Tue, 01 Dec 2026 10:01:30 GMT")), (false, true, Some(90)));
    assert_eq!(judged(503, Some("Tue, 01 Dec 2026 09:00:00 GMT")), (false, true, None), "long past");
    assert_eq!(judged(503, Some("soon")), (false, true, None));
}

#[test]
fn buyers_addresses_travel_encrypted() {
    for good in [
        "https://shop.example",
        "https://shop.example:8443/hook?a=b",
        "http://127.0.0.1:9/x",
        "http://localhost/",
    ] {
        assert_eq!(check_webhook_url(good).as_deref(), Ok(good));
    }
    for bad in [
        "http://shop.example",
        "ftp://shop.example",
        "shop.example",
        "",
        "https://user:pw@shop.example",
        "/x",
    ] {
        assert!(check_webhook_url(bad).is_err(), "{bad}");
    }
}
