//! Bad input at every route: a 4xx problem with the right code, nothing changed, never a 500.

use axum::body::Body;
use http::{Request, StatusCode, header};
use lockgate_shared::{
    clock::Clock as _,
    ids::AccountHash,
    testing::{demo_ring, other_ring},
    ticket::Ticket,
};
use serde_json::json;

use crate::house::{Backend, House, Site, before_opening, sale, sale_for_customers};

const POSTS: [&str; 3] = ["enter", "admit", "leave"];

async fn opened() -> (Site, House) {
    let site = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    let house = site.start("p1");
    (site, house)
}

fn ticket(site: &Site, sale: &str, lane: u16) -> Ticket {
    Ticket {
        sale: sale.parse().unwrap(),
        lane,
        seq: 0,
        account: AccountHash::from_bytes([3; 16]),
        entered_at: site.clock.now(),
    }
}

async fn post(
    house: &House,
    verb: &str,
    kind: Option<&str>,
    body: impl Into<Body>,
    bearer: &str,
) -> (u16, String) {
    let mut request = Request::post(format!("/sale/phone-drop/{verb}"));
    if let Some(kind) = kind {
        request = request.header(header::CONTENT_TYPE, kind);
    }
    if !bearer.is_empty() {
        request = request.header(header::AUTHORIZATION, bearer);
    }
    house.send(request.body(body.into()).unwrap()).await.refusal()
}

#[tokio::test]
async fn bodies_are_refused_by_their_fault() {
    let (_site, house) = opened().await;
    let bearer = format!("Bearer {}", house.enter().await);
    let before = house.calls();
    let form = Some("application/x-www-form-urlencoded");
    for verb in POSTS {
        let json = Some("application/json");
        for bad in [
            "[]",
            "null",
            "7",
            "\"x\"",
            "{",
            "{}x",
            r#"{"x":1}"#,
            r#"{"eligibility":"x"}"#,
            r#"{"code":"a","email":"b"}"#,
        ] {
            assert_eq!(
                post(&house, verb, json, bad, &bearer).await,
                (400, "malformed".into()),
                "{verb} {bad}"
            );
        }
        let not_utf8 = b"{\"\xff\":1}".to_vec();
        assert_eq!(post(&house, verb, json, not_utf8, &bearer).await, (400, "malformed".into()), "{verb}");
        assert_eq!(post(&house, verb, form, "x=1", &bearer).await, (400, "malformed".into()), "{verb}");
        assert_eq!(post(&house, verb, form, "x=%ff", &bearer).await, (400, "malformed".into()), "{verb}");
        for kind in [
            Some("text/plain"),
            Some("multipart/form-data; boundary=x"),
            Some("application/json; charset=utf-16"),
            None,
        ] {
            let refused = post(&house, verb, kind, "{}", &bearer).await;
            assert_eq!(refused, (415, "unsupported_media_type".into()), "{verb} {kind:?}");
        }
        let long = format!("{{\"x\":\"{}\"}}", "y".repeat(20_000));
        assert_eq!(post(&house, verb, json, long, &bearer).await, (413, "too_large".into()), "{verb}");
    }
    assert_eq!(house.calls(), before, "no refusal reached the store");
}

#[tokio::test]
async fn s2_credentials_are_refused_by_their_fault() {
    let (site, house) = opened().await;
    let own = ticket(&site, "phone-drop", 0);
    let good = own.sign(&demo_ring());
    let cases = [
        ("Bearer x".to_owned(), (403, "ticket_invalid")),
        (format!("Bearer {}", own.sign(&other_ring())), (403, "ticket_invalid")),
        (format!("Bearer {}", &good[..good.len() - 1]), (403, "ticket_invalid")),
        (format!("Bearer {good}x"), (403, "ticket_invalid")),
        (format!("Bearer {}", ticket(&site, "other-sale", 0).sign(&demo_ring())), (403, "ticket_wrong_sale")),
        (format!("Bearer {}", ticket(&site, "phone-drop", 4).sign(&demo_ring())), (403, "ticket_invalid")),
        ("Bearer eyJhbGciOiJub25lIn0.e30.".to_owned(), (403, "ticket_invalid")),
        (format!("Bearer {}", "a".repeat(3_000)), (400, "malformed")),
        ("Basic abc".to_owned(), (400, "malformed")),
        ("Bearer".to_owned(), (400, "malformed")),
    ];
    for (bearer, (status, code)) in &cases {
        for verb in POSTS {
            let refused = post(&house, verb, None, "", bearer).await;
            assert_eq!(refused, (*status, (*code).to_owned()), "{verb} {bearer}");
        }
        for path in ["status", "queue"] {
            let answer = house.get(&format!("/sale/phone-drop/{path}"), &[("authorization", bearer)]).await;
            assert_eq!(answer.refusal(), (*status, (*code).to_owned()), "{path} {bearer}");
        }
    }
    for verb in ["admit", "leave"] {
        assert_eq!(post(&house, verb, None, "", "").await, (403, "ticket_missing".into()));
    }
    assert_eq!(house.calls(), 0);
}

#[tokio::test]
async fn s6_a_ticket_in_the_address_is_not_a_ticket() {
    let (site, house) = opened().await;
    let text = ticket(&site, "phone-drop", 0).sign(&demo_ring());
    let queue = house.get(&format!("/sale/phone-drop/queue?ticket={text}"), &[]).await;
    assert_eq!(queue.refusal(), (403, "ticket_missing".into()));
    assert!(!queue.text.contains(&text));
}

#[tokio::test]
async fn addresses_that_are_none_are_404_and_methods_405() {
    let (_site, house) = opened().await;
    for sale in
        ["other", "PHONE-DROP", "%2e%2e", "phone-drop%00", "ph%6Fne-dro%50", "%ff", "a%2Fb", &"a".repeat(300)]
    {
        for path in ["", "/status", "/queue"] {
            let answer = house.get(&format!("/sale/{sale}{path}"), &[]).await;
            assert_eq!(answer.refusal(), (404, "no_such_sale".into()), "{sale}{path}");
        }
        for verb in POSTS {
            let answer = house.post_json(&format!("/sale/{sale}/{verb}"), &json!({}), &[]).await;
            assert_eq!(answer.refusal(), (404, "no_such_sale".into()), "{sale}/{verb}");
        }
    }
    for (method, path) in
        [("GET", "enter"), ("DELETE", "status"), ("PUT", "admit"), ("POST", "queue"), ("OPTIONS", "status")]
    {
        let answer = house.call(method, &format!("/sale/phone-drop/{path}"), &json!({}), &[]).await;
        assert_eq!(answer.refusal(), (405, "method_not_allowed".into()), "{method} {path}");
        assert!(!answer.header("allow").is_empty());
    }
    let head = Request::head("/sale/phone-drop/status").body(Body::empty()).unwrap();
    let head = house.send(head).await;
    assert_eq!((head.status, head.text.len()), (StatusCode::OK, 0));
    for path in ["//sale/phone-drop/status", "/sale//status", "/sale/phone-drop/enter/"] {
        assert_eq!(house.get(path, &[]).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn idempotency_keys_and_eligibility_have_their_form() {
    let (_site, house) = opened().await;
    let path = "/sale/phone-drop/enter";
    for key in ["", " ", "a b", &"k".repeat(129)] {
        let refused = house.post_json(path, &json!({}), &[("idempotency-key", key)]).await;
        assert_eq!(refused.refusal(), (400, "malformed".into()), "{key:?}");
    }
    assert_eq!(house.calls(), 0);
    let site = Site::open(Backend::Sqlite, sale_for_customers(), before_opening()).await;
    let house = site.start("p1");
    for body in [json!({"eligibility": 7}), json!({"eligibility": "a", "x": 1}), json!({"code": "a"})] {
        assert_eq!(house.post_json(path, &body, &[]).await.refusal(), (400, "malformed".into()), "{body}");
    }
    for token in [String::new(), "a.b.c".into(), "a".repeat(5_000), crate::house::eligibility("", i64::MAX)] {
        let refused = house.post_json(path, &json!({"eligibility": token}), &[]).await;
        assert_eq!(refused.refusal(), (403, "not_eligible".into()));
    }
    assert_eq!(house.calls(), 0);
}

#[tokio::test]
async fn forms_of_other_sites_are_refused() {
    let (_site, house) = opened().await;
    let cases: [(&[(&str, &str)], bool); 9] = [
        (&[("sec-fetch-site", "cross-site")], false),
        (&[("sec-fetch-site", "same-origin"), ("origin", "null"), ("host", "shop.example")], true),
        (&[("sec-fetch-site", "same-site")], true),
        (&[("sec-fetch-site", "none")], true),
        (&[("origin", "https://evil.example"), ("host", "shop.example")], false),
        (&[("origin", "https://shop.example.evil"), ("host", "shop.example")], false),
        (&[("origin", "https://shop.example"), ("host", "shop.example")], true),
        (&[("origin", "null"), ("host", "shop.example")], true),
        (&[], true),
    ];
    for (headers, allowed) in cases {
        let answer = house.post_form("/sale/phone-drop/enter", "", headers).await;
        if allowed {
            assert_eq!(answer.status, StatusCode::SEE_OTHER, "{headers:?}");
        } else {
            assert_eq!(answer.refusal(), (403, "cross_site".into()), "{headers:?}");
        }
    }
}
