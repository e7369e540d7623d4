//! Shoppers from the door to the token.

use http::StatusCode;
use lockgate_shared::{
    admission_token::AdmissionToken,
    clock::{Clock as _, Timestamp},
    testing::eventually,
};
use serde_json::json;

use crate::house::{Backend, House, Site, before_opening, eligibility, sale, sale_for_customers};

async fn opened(backend: Backend) -> (Site, House) {
    let site = Site::open(backend, sale(), before_opening()).await;
    let house = site.start("p1");
    (site, house)
}

async fn from_the_door_to_the_token(backend: Backend) {
    let (site, house) = opened(backend).await;
    let mut tickets = Vec::new();
    for _ in 0..15 {
        tickets.push(house.enter().await);
    }
    let started = std::time::Instant::now();
    for (index, ticket) in tickets.iter().enumerate() {
        let status = house.until_state(ticket, "waiting").await;
        assert_eq!(status["phase"], "doors_open");
        assert!(status["number"].as_u64().unwrap() <= 15, "{index}: {status}");
        assert!(status.get("wait_seconds").is_none(), "nothing moves yet: {status}");
    }
    assert!(started.elapsed().as_secs() < 2, "a number comes within 2 s");
    let mut numbers = Vec::new();
    for ticket in &tickets {
        numbers.push(house.status(ticket).await["number"].as_u64().unwrap());
    }
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=15).collect::<Vec<u64>>());
    let by_number = |number: u64| &tickets[numbers.iter().position(|n| *n == number).unwrap()];
    let early = house.with_ticket("admit", by_number(1)).await;
    assert_eq!(early.refusal(), (409, "not_your_turn".into()));
    assert!(early.header("retry-after").parse::<u32>().unwrap() >= 1);

    site.set_after_opening(0);
    house.until_serving(10).await;
    let turn = house.status(by_number(10)).await;
    assert_eq!((turn["state"].as_str(), turn["people_ahead"].as_u64()), (Some("your_turn"), Some(0)));
    let until = Timestamp::parse(turn["turn_expires_at"].as_str().unwrap()).unwrap();
    assert!(until >= sale().opens_at.plus_seconds(60) && until <= sale().opens_at.plus_seconds(62));
    let waits = house.status(by_number(15)).await;
    assert_eq!((waits["state"].as_str(), waits["people_ahead"].as_u64()), (Some("waiting"), Some(4)));
    assert!(waits["wait_seconds"]["low"].as_u64() <= waits["wait_seconds"]["high"].as_u64());

    the_token_is_one(&site, &house, by_number(10)).await;
}

async fn the_token_is_one(site: &Site, house: &House, ticket: &str) {
    let admitted = house.with_ticket("admit", ticket).await;
    assert_eq!((admitted.status, admitted.header("cache-control")), (StatusCode::OK, "private, no-store"));
    let body = admitted.json();
    assert_eq!(body["checkout_url"], "http://127.0.0.1:8080/sale/phone-drop/checkout");
    assert_eq!((body["token_type"].as_str(), body.as_object().unwrap().len()), (Some("Bearer"), 4));
    let verify = |text: &str| AdmissionToken::verify(text, &site.ring, site.clock.now()).unwrap();
    let token = verify(body["token"].as_str().unwrap());
    assert_eq!(token.exp, site.clock.now().seconds() + 600);
    assert_eq!(body["expires_at"], Timestamp::from_seconds(token.exp).to_string());
    assert_eq!(house.status(ticket).await["state"], "admitted");
    site.clock.advance_ms(3_000);
    let again = house.with_ticket("admit", ticket).await.json();
    assert_eq!(verify(again["token"].as_str().unwrap()), token, "the same id and expiry");

    let revoked = house.operate("POST", "/revoke", &json!({})).await;
    assert_eq!(revoked.status, StatusCode::OK);
    let renewed = verify(house.with_ticket("admit", ticket).await.json()["token"].as_str().unwrap());
    assert!(renewed.jti != token.jti && renewed.exp == token.exp && renewed.epoch == 1);
}

#[tokio::test]
async fn from_the_door_to_the_token_on_sqlite() {
    from_the_door_to_the_token(Backend::Sqlite).await;
}

#[tokio::test]
async fn from_the_door_to_the_token_on_redis() {
    from_the_door_to_the_token(Backend::Redis).await;
}

#[tokio::test]
async fn entering_costs_one_store_call_and_waiting_none() {
    let (_site, house) = opened(Backend::Sqlite).await;
    let ticket = house.enter().await;
    assert_eq!(house.calls(), 1);
    house.until_state(&ticket, "waiting").await;
    for _ in 0..10 {
        house.status(&ticket).await;
        house.board().await;
        house.with_ticket("admit", &ticket).await;
        house.get("/sale/phone-drop", &[("accept", "text/html")]).await;
    }
    assert_eq!(house.calls(), 1);
    assert_eq!(house.with_ticket("enter", &ticket).await.status, StatusCode::OK);
    assert_eq!(house.calls(), 2);
}

#[tokio::test]
async fn k2_fifty_entries_of_one_account_are_one_place() {
    let site = Site::open(Backend::Redis, sale_for_customers(), before_opening()).await;
    let house = site.start("p1");
    let token = eligibility("ann", site.clock.now().seconds() + 60);
    let body = json!({ "eligibility": token });
    let entries = (0..50).map(|_| house.post_json("/sale/phone-drop/enter", &body, &[]));
    let answers = futures::future::join_all(entries).await;
    let fresh = answers.iter().filter(|answer| answer.status == StatusCode::CREATED).count();
    assert_eq!((fresh, answers.len()), (1, 50));
    eventually("one is waiting", 5, async || house.board().await["waiting"] == 1).await;
    for answer in &answers {
        let ticket = answer.json()["ticket"].as_str().unwrap().to_owned();
        assert_eq!(house.until_state(&ticket, "waiting").await["number"], 1);
    }
}

#[tokio::test]
async fn a_ticket_suffices_for_its_place_and_the_shops_word_for_another_counts() {
    let site = Site::open(Backend::Sqlite, sale_for_customers(), before_opening()).await;
    let house = site.start("p1");
    let exp = site.clock.now().seconds() + 60;
    let enter = async |account: &str, headers: &[(&str, &str)]| {
        let body = json!({ "eligibility": eligibility(account, exp) });
        house.post_json("/sale/phone-drop/enter", &body, headers).await
    };
    let ann = enter("ann", &[]).await.json()["ticket"].as_str().unwrap().to_owned();
    let cookie = format!("__Host-lockgate-ticket-phone-drop={ann}");
    let path = "/sale/phone-drop/enter";
    assert_eq!(house.post_json(path, &json!({}), &[("cookie", &cookie)]).await.status, StatusCode::OK);
    let stale = json!({ "eligibility": eligibility("ann", exp - 120) });
    assert_eq!(house.post_json(path, &stale, &[("cookie", &cookie)]).await.status, StatusCode::OK);
    assert_eq!(enter("bob", &[("cookie", &cookie)]).await.status, StatusCode::CREATED);
    assert_eq!(house.post_json(path, &stale, &[]).await.refusal(), (403, "not_eligible".into()));
    assert_eq!(house.post_json(path, &json!({}), &[]).await.refusal(), (403, "not_eligible".into()));
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_by_its_key_but_a_name_opens_nothing() {
    let (_site, house) = opened(Backend::Sqlite).await;
    let enter = async |key: &str| {
        house.post_json("/sale/phone-drop/enter", &json!({}), &[("idempotency-key", key)]).await.status
    };
    assert_eq!(enter("0190c3f2-aaaa-bbbb").await, StatusCode::CREATED);
    assert_eq!(enter("0190c3f2-aaaa-bbbb").await, StatusCode::OK);
    assert_eq!(enter("ann").await, StatusCode::CREATED);
    assert_eq!(enter("ann").await, StatusCode::CREATED);
}

#[tokio::test]
async fn k4_a_missed_turn_says_so_and_lines_up_again() {
    let (site, house) = opened(Backend::Sqlite).await;
    let ticket = house.enter().await;
    let kept = house.enter().await;
    house.until_state(&kept, "waiting").await;
    site.set_after_opening(0);
    house.until_serving(2).await;
    assert_eq!(house.with_ticket("admit", &kept).await.status, StatusCode::OK);
    site.set_after_opening(62);
    house.until_state(&ticket, "turn_missed").await;
    assert_eq!(house.with_ticket("admit", &ticket).await.refusal(), (410, "turn_missed".into()));
    assert_eq!(house.status(&kept).await["state"], "admitted", "admitted in time");
    assert_eq!(house.with_ticket("admit", &kept).await.status, StatusCode::OK);
    assert_eq!(
        house.with_ticket("enter", &kept).await.status,
        StatusCode::OK,
        "whoever holds the right keeps it"
    );
    let again = house.with_ticket("enter", &ticket).await;
    assert_eq!(again.status, StatusCode::CREATED);
    let fresh = again.json()["ticket"].as_str().unwrap().to_owned();
    assert_eq!(house.with_ticket("enter", &ticket).await.status, StatusCode::OK, "the same new place");
    assert_eq!(house.until_state(&fresh, "your_turn").await["number"], 3);
    assert_eq!(house.status(&ticket).await["state"], "turn_missed", "superseded");
    // The right of the other runs out unused.
    site.set_after_opening(601);
    house.until_state(&kept, "turn_missed").await;
    assert_eq!(house.with_ticket("admit", &kept).await.refusal(), (410, "turn_missed".into()));
    assert_eq!(house.with_ticket("enter", &kept).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn leaving_frees_the_place_and_entering_again_goes_to_the_end() {
    let (site, house) = opened(Backend::Redis).await;
    let other = site.start("p2");
    let (ticket, behind) = (house.enter().await, house.enter().await);
    house.until_state(&ticket, "waiting").await;
    other.until_state(&behind, "waiting").await;
    assert_eq!(house.with_ticket("leave", &ticket).await.status, StatusCode::NO_CONTENT);
    assert_eq!(house.with_ticket("leave", &ticket).await.status, StatusCode::NO_CONTENT);
    assert_eq!(house.status(&ticket).await["state"], "left");
    other.until_state(&ticket, "left").await;
    eventually("one is waiting", 5, async || other.board().await["waiting"] == 1).await;
    assert_eq!(other.with_ticket("admit", &ticket).await.refusal(), (410, "left".into()));
    let again = other.with_ticket("enter", &ticket).await;
    assert_eq!(again.status, StatusCode::CREATED);
    let fresh = again.json()["ticket"].as_str().unwrap().to_owned();
    assert_eq!(house.until_state(&fresh, "waiting").await["number"], 3);
    assert_eq!(house.status(&ticket).await["state"], "left");
}

#[tokio::test]
async fn sold_out_stops_the_line_and_returned_units_move_it_on() {
    let (site, house) = opened(Backend::Sqlite).await;
    let mut tickets = Vec::new();
    for _ in 0..15 {
        tickets.push(house.enter().await);
    }
    eventually("all have numbers", 5, async || house.status(&tickets[14]).await["number"].is_u64()).await;
    site.set_after_opening(0);
    house.until_serving(10).await;
    let mut called = Vec::new();
    for ticket in &tickets {
        if house.status(ticket).await["state"] == "your_turn" {
            called.push(ticket);
        }
    }
    let first = house.with_ticket("admit", called[0]).await.json();
    site.set_available(0);
    eventually("sold out", 5, async || house.board().await["phase"] == "sold_out").await;
    assert_eq!(house.board().await["items"][0]["state"], "all_held");
    site.set_after_opening(5);
    assert_eq!(house.status(called[1]).await["state"], "sold_out");
    assert_eq!(house.with_ticket("admit", called[1]).await.refusal(), (409, "sold_out".into()));
    let again = house.with_ticket("admit", called[0]).await.json();
    assert_eq!(again["expires_at"], first["expires_at"], "whoever is in gets the token again");
    assert_eq!(house.board().await["now_serving"], 10);
    site.set_available(1);
    house.until_serving(10).await;
    eventually("open", 5, async || house.board().await["phase"] == "open").await;
    assert_eq!(house.status(called[1]).await["state"], "your_turn");
    site.set_after_opening(6);
    house.until_serving(15).await;
}

#[tokio::test]
async fn l6_pausing_stops_admissions_only_and_saves_nothing_up() {
    let (site, house) = opened(Backend::Sqlite).await;
    let mut tickets = Vec::new();
    for _ in 0..40 {
        tickets.push(house.enter().await);
    }
    eventually("all have numbers", 5, async || house.status(&tickets[39]).await["number"].is_u64()).await;
    site.set_after_opening(0);
    house.until_serving(10).await;
    assert_eq!(house.operate("POST", "/pause", &json!({})).await.status, StatusCode::OK);
    eventually("paused", 2, async || house.board().await["phase"] == "paused").await;
    // The pause is on record before time moves on, as it is when a clock ticks by itself.
    eventually("the bucket stands", 2, async || {
        let sale = house.app.sale(&"phone-drop".parse().unwrap()).unwrap();
        house.app.live(&sale).snapshot().record.bucket.flow_per_minute == 0
    })
    .await;
    site.set_after_opening(50);
    let mut called = 0;
    for ticket in &tickets {
        let status = house.status(ticket).await;
        assert!(status.get("wait_seconds").is_none(), "p3: {status}");
        if status["state"] == "your_turn" && called == 0 {
            assert_eq!(
                house.with_ticket("admit", ticket).await.status,
                StatusCode::OK,
                "a turn given stands"
            );
            called += 1;
        }
    }
    assert_eq!(house.operate("POST", "/resume", &json!({})).await.status, StatusCode::OK);
    eventually("open", 2, async || house.board().await["phase"] == "open").await;
    assert_eq!(house.board().await["now_serving"], 10, "not 50 seconds' worth");
    let faster = json!({ "rate_per_minute": 6_000 });
    assert_eq!(house.operate("PATCH", "/admission", &faster).await.json()["burst"], 100);
    eventually("the new rate", 2, async || {
        let sale = house.app.sale(&"phone-drop".parse().unwrap()).unwrap();
        house.app.live(&sale).snapshot().record.bucket.flow_per_minute == 6_000
    })
    .await;
    site.clock.advance_ms(200);
    house.until_serving(30).await;
}

#[tokio::test]
async fn the_doors_and_the_end() {
    let site = Site::open(Backend::Sqlite, sale(), sale().doors_open_at.minus_seconds(1)).await;
    let house = site.start("p1");
    let early = house.post_json("/sale/phone-drop/enter", &json!({}), &[]).await;
    assert_eq!(early.refusal(), (409, "doors_closed".into()));
    assert_eq!(early.json()["doors_open_at"], sale().doors_open_at.to_string());
    site.clock.advance_ms(1_000);
    let ticket = house.enter().await;
    house.until_state(&ticket, "waiting").await;
    assert_eq!(house.operate("POST", "/close", &json!({})).await.status, StatusCode::OK);
    house.until_state(&ticket, "closed").await;
    assert_eq!(house.with_ticket("admit", &ticket).await.refusal(), (410, "sale_closed".into()));
    assert_eq!(house.with_ticket("enter", &ticket).await.refusal(), (410, "sale_closed".into()));
    assert_eq!(house.board().await["phase"], "closed");
}
