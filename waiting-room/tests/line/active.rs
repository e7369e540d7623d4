//! The cap on active shoppers, the stock that bounds the line, and clocks that are set: through the whole process.

use http::StatusCode;
use lockgate_shared::{
    admission_token::AdmissionToken,
    clock::Clock as _,
    events::{Abandoned, EventKind},
    ids::AccountHash,
    testing::eventually,
};
use serde_json::{Value, json};

use crate::house::{Backend, House, Site, VIEWER, before_opening, sale};

/// A line of so many, in the order of their numbers.
async fn lined_up(house: &House, people: usize) -> Vec<String> {
    let mut tickets = Vec::new();
    for _ in 0..people {
        tickets.push(house.enter().await);
    }
    let mut by_number = Vec::new();
    for ticket in tickets {
        let number = house.until_state(&ticket, "waiting").await["number"].as_u64().unwrap();
        by_number.push((number, ticket));
    }
    by_number.sort();
    by_number.into_iter().map(|(_, ticket)| ticket).collect()
}

async fn redeem(site: &Site, house: &House, ticket: &str) -> AccountHash {
    admission(site, house, ticket).await.sub
}

async fn admission(site: &Site, house: &House, ticket: &str) -> AdmissionToken {
    let admitted = house.with_ticket("admit", ticket).await;
    assert_eq!(admitted.status, StatusCode::OK, "{admitted:?}");
    let token = admitted.json()["token"].as_str().unwrap().to_owned();
    AdmissionToken::verify(&token, &site.ring, site.clock.now()).unwrap()
}

async fn figures(house: &House) -> Value {
    let bearer = format!("Bearer {VIEWER}");
    let path = "/operator/v1/sales/phone-drop/admission";
    house.get(path, &[("authorization", &bearer)]).await.json()
}

async fn until_bound(house: &House, bound: &str, active: u64, pending: u64) {
    eventually(&format!("{bound}, {active} active, {pending} pending"), 10, async || {
        let figures = figures(house).await;
        (figures["bound_by"].as_str(), figures["active"].as_u64(), figures["pending_turns"].as_u64())
            == (Some(bound), Some(active), Some(pending))
    })
    .await;
}

async fn every_end_frees_a_place_at_once(backend: Backend) {
    let mut capped = sale();
    capped.admission.max_active = Some(5);
    let site = Site::open(backend, capped, before_opening()).await;
    let (house, other) = (site.start("p1"), site.start("p2"));
    let tickets = lined_up(&house, 30).await;
    assert_eq!(figures(&house).await["bound_by"], "not_open");
    site.set_after_opening(0);
    house.until_serving(5).await;
    until_bound(&house, "cap", 0, 5).await;
    until_bound(&other, "cap", 0, 5).await;
    let waits = house.status(&tickets[20]).await;
    assert!(waits["wait_seconds"]["high"].as_u64() != Some(4), "p3: not the rate's word: {waits}");
    let first = redeem(&site, &house, &tickets[0]).await;
    redeem(&site, &other, &tickets[1]).await;
    until_bound(&house, "cap", 2, 3).await;
    assert_eq!(house.board().await["now_serving"], 5, "taken up is not freed");
    site.set_after_opening(2);
    assert_eq!(house.with_ticket("leave", &tickets[2]).await.status, StatusCode::NO_CONTENT);
    house.until_serving(6).await;
    assert_eq!(house.with_ticket("leave", &tickets[1]).await.status, StatusCode::NO_CONTENT);
    house.until_serving(7).await;
    site.tell(EventKind::Claimed, first);
    site.tell(EventKind::Committed, first);
    house.until_serving(8).await;
    until_bound(&house, "cap", 0, 5).await;
    assert_eq!(house.status(&tickets[0]).await["state"], "admitted", "the right itself stands");
    // Whoever left before the turn is passed over, and the turns of those who never came run out.
    assert_eq!(house.with_ticket("leave", &tickets[8]).await.status, StatusCode::NO_CONTENT);
    redeem(&site, &house, &tickets[7]).await;
    until_bound(&house, "cap", 1, 4).await;
    site.set_after_opening(63);
    eventually("l1: turns run out and the line goes on", 10, async || {
        house.board().await["now_serving"].as_u64() >= Some(13)
    })
    .await;
    until_bound(&house, "cap", 1, 4).await;
    assert_eq!(house.status(&tickets[4]).await["state"], "turn_missed");
    // Changed on the way: more at once, then no cap at all.
    house.operate("PATCH", "/admission", &json!({"max_active": 8})).await;
    until_bound(&house, "cap", 1, 7).await;
    house.operate("PATCH", "/admission", &json!({"max_active": null})).await;
    site.set_after_opening(64);
    eventually("the rate", 10, async || figures(&house).await["bound_by"] != "cap").await;
}

#[tokio::test]
async fn every_end_frees_a_place_at_once_on_sqlite() {
    every_end_frees_a_place_at_once(Backend::Sqlite).await;
}

#[tokio::test]
async fn every_end_frees_a_place_at_once_on_redis() {
    every_end_frees_a_place_at_once(Backend::Redis).await;
}

#[tokio::test]
async fn no_more_are_called_than_the_stock_bears() {
    let mut careful = sale();
    careful.admission.over_admission = Some(1.5);
    let site = Site::open(Backend::Sqlite, careful, before_opening()).await;
    {
        let mut stock = site.stock.lock().unwrap();
        for (item, available) in stock.items.iter_mut().zip([2, 0]) {
            (item.available, item.held, item.sold) = (available, 0, item.stock - available);
        }
    }
    let house = site.start("p1");
    let tickets = lined_up(&house, 12).await;
    site.set_after_opening(0);
    house.until_serving(3).await;
    until_bound(&house, "stock", 0, 3).await;
    assert_eq!(figures(&house).await["winnable"], 2);
    assert_eq!(house.with_ticket("leave", &tickets[0]).await.status, StatusCode::NO_CONTENT);
    house.until_serving(4).await;
    site.stock.lock().unwrap().items[0].available = 4;
    house.until_serving(7).await;
    until_bound(&house, "stock", 0, 6).await;
    site.set_available(0);
    eventually("sold out", 5, async || house.board().await["phase"] == "sold_out").await;
    until_bound(&house, "stock", 0, 6).await;
}

#[tokio::test]
async fn l7_an_admitter_that_takes_over_knows_who_is_active() {
    let mut capped = sale();
    capped.admission.max_active = Some(5);
    let site = Site::open(Backend::Redis, capped, before_opening()).await;
    let first = site.start("p1");
    let tickets = lined_up(&first, 12).await;
    site.set_after_opening(0);
    first.until_serving(5).await;
    for ticket in &tickets[..3] {
        redeem(&site, &first, ticket).await;
    }
    first.kill();
    site.set_after_opening(5);
    let second = site.start("p2");
    eventually("p2 leads", 10, async || figures(&second).await["pending_turns"] == 2).await;
    assert_eq!(second.with_ticket("leave", &tickets[3]).await.status, StatusCode::NO_CONTENT);
    second.until_serving(6).await;
    until_bound(&second, "cap", 3, 2).await;
}

#[tokio::test]
async fn a_clock_that_is_set_ends_no_turn_and_admits_nobody() {
    let site = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    let house = site.start("p1");
    let tickets = lined_up(&house, 40).await;
    site.set_after_opening(0);
    house.until_serving(10).await;
    for step_ms in [1_800_000, -1_800_000] {
        site.clock.step_ms(step_ms);
        // Time goes on by a second: the step has been seen when its ten are called, and not more are.
        eventually("the step is seen", 10, async || {
            let sale = house.app.sale(&"phone-drop".parse().unwrap()).unwrap();
            let updated_at = house.app.live(&sale).snapshot().record.bucket.updated_at;
            updated_at.since(site.clock.now()).max(site.clock.now().since(updated_at)).as_secs() < 60
        })
        .await;
        assert_eq!(house.status(&tickets[0]).await["state"], "your_turn", "{step_ms}");
        let before = house.board().await["now_serving"].as_u64().unwrap();
        site.clock.advance_ms(1_000);
        house.until_serving(before + 10).await;
    }
}

async fn holds_that_ran_out_use_the_right_up(backend: Backend) {
    let mut strict = sale();
    strict.abandoned_holds_limit = Some(2);
    let site = Site::open(backend, strict, before_opening()).await;
    let house = site.start("p1");
    let tickets = lined_up(&house, 3).await;
    site.set_after_opening(0);
    house.until_serving(3).await;
    let token = admission(&site, &house, &tickets[0]).await;
    redeem(&site, &house, &tickets[1]).await;
    let abandoned = |holds, admitted_at| Some(Abandoned { admitted_at, holds });
    site.tell_with(EventKind::Released, token.sub, abandoned(1, token.iat));
    site.tell_with(EventKind::Released, token.sub, abandoned(2, token.iat - 5));
    until_bound(&house, "line", 2, 1).await;
    assert_eq!(
        house.status(&tickets[0]).await["state"],
        "admitted",
        "one may run out, and older ones are over"
    );
    site.tell_with(EventKind::Released, token.sub, abandoned(2, token.iat));
    let missed = house.until_state(&tickets[0], "turn_missed").await;
    assert_eq!(missed["number"], 1);
    assert_eq!(house.with_ticket("admit", &tickets[0]).await.refusal(), (410, "turn_missed".into()));
    until_bound(&house, "line", 1, 1).await;
    let again = house.with_ticket("enter", &tickets[0]).await;
    assert_eq!(again.status, StatusCode::CREATED, "a new place, at the end");
    let ticket = again.json()["ticket"].as_str().unwrap().to_owned();
    assert_eq!(house.until_numbered(&ticket).await, 4);
    site.set_after_opening(5);
    house.until_serving(4).await;
    let fresh = admission(&site, &house, &ticket).await;
    assert!(fresh.iat > token.iat && fresh.jti != token.jti);
    // The log may say it again; the new right is not the one that was used up.
    site.tell_with(EventKind::Released, token.sub, abandoned(2, token.iat));
    site.tell_with(EventKind::Committed, fresh.sub, None);
    until_bound(&house, "line", 1, 1).await;
    assert_eq!(house.status(&ticket).await["state"], "admitted");
    assert_eq!(house.status(&tickets[1]).await["state"], "admitted", "nobody else lost theirs");
}

#[tokio::test]
async fn holds_that_ran_out_use_the_right_up_on_sqlite() {
    holds_that_ran_out_use_the_right_up(Backend::Sqlite).await;
}

#[tokio::test]
async fn holds_that_ran_out_use_the_right_up_on_redis() {
    holds_that_ran_out_use_the_right_up(Backend::Redis).await;
}
