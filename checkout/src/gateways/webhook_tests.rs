use standardwebhooks::Webhook;

use super::*;

const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

fn headers(pairs: &[(&HeaderName, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(*name, value.parse().unwrap());
    }
    map
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

fn check(id: &str, timestamp: &str, signature: &str, body: &[u8], now: i64) -> Result<String, WebhookError> {
    let map = headers(&[(&ID, id), (&TIMESTAMP, timestamp), (&SIGNATURE, signature)]);
    verify([&SECRET[..]], &map, body, at(now))
}

#[test]
fn the_published_vector_of_standard_webhooks_verifies() {
    let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let body = br#"{"test": 2432232314}"#;
    let signature = sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
    assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    let map = headers(&[
        (&ID, "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        (&TIMESTAMP, "1614265330"),
        (&SIGNATURE, &signature),
    ]);
    assert!(verify([&secret[..]], &map, body, at(1_614_265_330)).is_ok());
}

#[test]
fn the_reference_library_and_we_accept_one_another() {
    let now =
        i64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs())
            .unwrap();
    let reference = Webhook::from_bytes(SECRET.to_vec()).unwrap();
    for body in [&b"{}"[..], br#"{"type":"payment.paid"}"#, b""] {
        let ours = sign(SECRET, "msg_1", now, body);
        let theirs = reference.sign("msg_1", now, body).unwrap();
        assert_eq!(ours, theirs);
        let text = now.to_string();
        let map = headers(&[(&ID, "msg_1"), (&TIMESTAMP, &text), (&SIGNATURE, &ours)]);
        reference.verify(body, &map).unwrap();
        assert_eq!(check("msg_1", &text, &theirs, body, now).as_deref(), Ok("msg_1"));
    }
}

#[test]
fn s2_anything_changed_is_refused() {
    let body = br#"{"type":"payment.paid"}"#;
    let good = sign(SECRET, "msg_1", 1_000, body);
    assert!(check("msg_1", "1000", &good, body, 1_000).is_ok());
    assert!(check("msg_1", "1000", &good, body, 1_300).is_ok());
    assert_eq!(check("msg_1", "1000", &good, body, 1_301), Err(WebhookError::Time));
    assert_eq!(check("msg_1", "1000", &good, body, 699), Err(WebhookError::Time));
    assert_eq!(check("msg_2", "1000", &good, body, 1_000), Err(WebhookError::Signature));
    assert_eq!(check("msg_1", "1001", &good, body, 1_000), Err(WebhookError::Signature));
    assert_eq!(check("msg_1", "1000", &good, b"{}", 1_000), Err(WebhookError::Signature));
    let foreign = sign(b"another secret", "msg_1", 1_000, body);
    assert_eq!(check("msg_1", "1000", &foreign, body, 1_000), Err(WebhookError::Signature));
    for bad in ["", "v1,", "v1,!!", "v1a,AAAA", &good[3..], &good.replace("v1", "v2")] {
        assert_eq!(check("msg_1", "1000", bad, body, 1_000), Err(WebhookError::Signature), "{bad}");
    }
    for time in ["", "+1000", " 1000", "1000 ", "1e3", "-1", "9999999999999", "１０００"] {
        let map = headers(&[(&ID, "msg_1"), (&SIGNATURE, &good)]);
        let mut map = map;
        if let Ok(value) = http::HeaderValue::from_bytes(time.as_bytes()) {
            map.insert(TIMESTAMP, value);
        }
        assert_eq!(verify([&SECRET[..]], &map, body, at(1_000)), Err(WebhookError::Headers), "{time}");
    }
    for id in ["", "a.b", &"x".repeat(129)] {
        assert_eq!(check(id, "1000", &good, body, 1_000), Err(WebhookError::Headers), "{id}");
    }
}

#[test]
fn several_signatures_and_several_keys_serve_a_rotation() {
    let (body, other) = (b"{}", &b"another secret of thirty-two byt"[..]);
    let (old, new) = (sign(other, "m", 5, body), sign(SECRET, "m", 5, body));
    let both = format!("{old} {new}");
    assert!(check("m", "5", &both, body, 5).is_ok());
    let map = headers(&[(&ID, "m"), (&TIMESTAMP, "5"), (&SIGNATURE, &old)]);
    assert!(verify([&SECRET[..], other], &map, body, at(5)).is_ok());
    assert!(verify([], &map, body, at(5)).is_err());
    let twice = headers(&[(&ID, "m"), (&TIMESTAMP, "5"), (&SIGNATURE, &old), (&SIGNATURE, &new)]);
    assert_eq!(verify([&SECRET[..]], &twice, body, at(5)), Err(WebhookError::Headers));
}
