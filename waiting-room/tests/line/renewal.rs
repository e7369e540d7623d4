//! Admissions that last longer, or end early.

use http::StatusCode;
use lockgate_shared::{admission_token::AdmissionToken, clock::Clock as _, testing::eventually};
use serde_json::{Value, json};

use crate::house::{Answer, Backend, House, OPERATOR, Site, VIEWER, before_opening, sale};

async fn admitted(site: &Site, house: &House, seconds: u64) -> (String, String) {
    let ticket = house.enter().await;
    house.until_numbered(&ticket).await;
    site.set_after_opening(seconds);
    house.until_state(&ticket, "your_turn").await;
    let token = house.with_ticket("admit", &ticket).await.json()["token"].as_str().unwrap().to_owned();
    (ticket, token)
}

async fn post(house: &House, verb: &str, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    house.post_json(&format!("/sale/phone-drop/{verb}"), &json!({}), &[("authorization", &bearer)]).await
}

async fn an_admission_is_renewed_up_to_its_cap(backend: Backend) {
    let mut renewing = sale();
    renewing.admission.token_seconds_max = Some(1_000);
    let site = Site::open(backend, renewing, before_opening()).await;
    let house = site.start("p1");
    let (ticket, token) = admitted(&site, &house, 0).await;
    let read = |token: &str| AdmissionToken::verify(token, &site.ring, site.clock.now()).unwrap();
    let first = read(&token);
    site.set_after_opening(300);
    let renewed = post(&house, "renew", &token).await;
    assert_eq!(renewed.status, StatusCode::OK, "{renewed:?}");
    let token_2 = renewed.json()["token"].as_str().unwrap().to_owned();
    let second = read(&token_2);
    assert_eq!((&second.jti, second.iat), (&first.jti, first.iat), "the same admission");
    assert_eq!(second.exp, first.exp + 300);
    let again = house.with_ticket("admit", &ticket).await.json();
    assert_eq!(read(again["token"].as_str().unwrap()).exp, second.exp);
    site.set_after_opening(800);
    assert_eq!(post(&house, "renew", &token).await.refusal(), (403, "token_expired".into()));
    let last = post(&house, "renew", &token_2).await.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(read(&last).exp, first.iat + 1_000, "never beyond the cap");
    let form =
        house.post_form("/sale/phone-drop/renew", "", &[("authorization", &format!("Bearer {last}"))]).await;
    assert_eq!((form.status, form.header("location")), (StatusCode::SEE_OTHER, "/sale/phone-drop/checkout"));
    site.set_after_opening(1_000);
    assert_eq!(post(&house, "renew", &last).await.refusal(), (403, "token_expired".into()));
    assert_eq!(house.status(&ticket).await["state"], "turn_missed");
}

#[tokio::test]
async fn an_admission_is_renewed_up_to_its_cap_on_sqlite() {
    an_admission_is_renewed_up_to_its_cap(Backend::Sqlite).await;
}

#[tokio::test]
async fn an_admission_is_renewed_up_to_its_cap_on_redis() {
    an_admission_is_renewed_up_to_its_cap(Backend::Redis).await;
}

#[tokio::test]
async fn an_admission_given_back_frees_its_place_at_once() {
    let mut capped = sale();
    (capped.admission.max_active, capped.admission.token_seconds_max) = (Some(1), None);
    let site = Site::open(Backend::Redis, capped, before_opening()).await;
    let house = site.start("p1");
    let (ticket, token) = admitted(&site, &house, 0).await;
    assert_eq!(post(&house, "renew", &token).await.refusal(), (409, "not_renewable".into()));
    let second = house.enter().await;
    house.until_numbered(&second).await;
    site.set_after_opening(5);
    assert_eq!(post(&house, "release", &token).await.status, StatusCode::NO_CONTENT);
    assert_eq!(post(&house, "release", &token).await.status, StatusCode::NO_CONTENT, "again does no harm");
    house.until_state(&second, "your_turn").await;
    assert_eq!(house.with_ticket("enter", &ticket).await.status, StatusCode::CREATED, "the place is used up");
    // The shop's own checkout knows the ids alone.
    let token = house.with_ticket("admit", &second).await.json()["token"].as_str().unwrap().to_owned();
    let claims = AdmissionToken::verify(&token, &site.ring, site.clock.now()).unwrap();
    let ids = |jti: &str| json!({"account": claims.sub.to_string(), "token_id": jti});
    let by_id = async |key: &str, body: Value| {
        let bearer = format!("Bearer {key}");
        let path = "/operator/v1/sales/phone-drop/release";
        house.post_json(path, &body, &[("authorization", &bearer)]).await
    };
    assert_eq!(by_id(VIEWER, ids(&claims.jti)).await.refusal(), (403, "role_too_low".into()));
    assert_eq!(by_id(OPERATOR, ids("another")).await.refusal(), (404, "no_such_admission".into()));
    assert_eq!(by_id(OPERATOR, json!({"account": "x", "token_id": "y"})).await.refusal().0, 400);
    assert_eq!(by_id(OPERATOR, ids(&claims.jti)).await.status, StatusCode::NO_CONTENT);
    assert_eq!(by_id(OPERATOR, ids(&claims.jti)).await.refusal().0, 404);
    eventually("it is over", 5, async || house.status(&second).await["state"] == "turn_missed").await;
}

#[tokio::test]
async fn s2_only_an_admission_token_renews_or_gives_back() {
    let site = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    let house = site.start("p1");
    let ticket = house.enter().await;
    let before = house.calls();
    for verb in ["renew", "release"] {
        let path = format!("/sale/phone-drop/{verb}");
        assert_eq!(house.post_json(&path, &json!({}), &[]).await.refusal(), (403, "token_missing".into()));
        assert_eq!(post(&house, verb, &ticket).await.refusal(), (403, "token_invalid".into()));
        assert_eq!(post(&house, verb, "rubbish").await.refusal(), (403, "token_invalid".into()));
        let body = house.post_json(&path, &json!({"x": 1}), &[("authorization", "Bearer x")]).await;
        assert_eq!(body.refusal(), (400, "malformed".into()));
    }
    assert_eq!(house.calls(), before);
}
