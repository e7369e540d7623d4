//! What keeps a million affordable, and what must hold although answers are shared and kept.

use std::io::Read as _;

use axum::{body::Body, response::IntoResponse as _};
use http::{Request, StatusCode};
use lockgate_shared::{problem::Problem, store::StoreError, testing::eventually};
use lockgate_waiting_room::{
    phase::Phase,
    place::public_poll_after_ms,
    refusal::Refusal,
    store::{Advanced, Move},
};
use proptest::prelude::*;
use serde_json::json;

use crate::house::{Backend, House, Site, before_opening, sale};

const STATUS: &str = "/sale/phone-drop/status";

async fn entries_at_once(house: &House, count: usize) {
    let enter = async || house.post_json("/sale/phone-drop/enter", &json!({}), &[]).await;
    let answers = futures::future::join_all((0..count).map(|_| enter())).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::CREATED));
    let mut tickets: Vec<_> = answers.iter().map(|answer| answer.json()["ticket"].to_string()).collect();
    tickets.sort();
    tickets.dedup();
    assert_eq!(tickets.len(), count, "everybody has a place of their own");
}

#[tokio::test]
async fn entries_that_wait_together_share_store_calls() {
    for backend in [Backend::Sqlite, Backend::Redis] {
        let site = Site::open(backend, sale(), before_opening()).await;
        let house = site.start("p1");
        entries_at_once(&house, 1_000).await;
        assert!(house.calls() <= 250, "{} calls for 1,000 entries on {backend:?}", house.calls());
    }
}

#[tokio::test]
async fn turns_that_are_taken_together_share_store_calls() {
    let mut burst = sale();
    burst.admission.burst = Some(200);
    let site = Site::open(Backend::Redis, burst, before_opening()).await;
    let house = site.start("p1");
    let tickets = futures::future::join_all((0..200).map(|_| house.enter())).await;
    site.set_after_opening(0);
    house.until_serving(200).await;
    let before = house.calls();
    let admit = async |ticket: &String| house.with_ticket("admit", ticket).await.status;
    let admitted = futures::future::join_all(tickets.iter().map(admit)).await;
    assert!(admitted.iter().all(|status| *status == StatusCode::OK), "{admitted:?}");
    let calls = house.calls() - before;
    assert!(calls <= 50, "{calls} calls for 200 admissions");
}

#[tokio::test]
async fn the_public_status_comes_compressed_to_whoever_takes_it() {
    let site = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    let house = site.start("p1");
    for path in [STATUS, "/sale/phone-drop"] {
        let ask = async |coding: &'static str, tag: &str| {
            let request = Request::get(path)
                .header("accept", if path == STATUS { "*/*" } else { "text/html" })
                .header("accept-encoding", coding)
                .header("if-none-match", tag)
                .body(Body::empty())
                .unwrap();
            house.send_raw(request).await
        };
        let (_, plain, body) = ask("identity", "").await;
        let (_, gzip, packed) = ask("br, gzip", "").await;
        assert_eq!(gzip["content-encoding"], "gzip");
        assert!(plain.get("content-encoding").is_none());
        for headers in [&plain, &gzip] {
            assert!(headers["vary"].to_str().unwrap().contains("Accept-Encoding"));
        }
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        // The moment may have changed between the two.
        if gzip["etag"].to_str().unwrap().starts_with(plain["etag"].to_str().unwrap().trim_end_matches('"')) {
            assert_eq!(unpacked, body);
        }
        assert_ne!(plain["etag"], gzip["etag"], "codings have tags of their own");
        let (status, _, body) = ask("gzip", "*").await;
        assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0));
    }
}

#[tokio::test]
async fn l5_after_a_reset_no_cache_serves_a_stale_number() {
    let site = Site::open(Backend::Redis, sale(), before_opening()).await;
    let house = site.start("p1");
    let ticket = house.enter().await;
    let number = house.until_state(&ticket, "waiting").await["number"].clone();
    site.set_after_opening(0);
    house.until_serving(1).await;
    let before = house.get(STATUS, &[]).await;
    let tag = before.header("etag").to_owned();
    let client = redis::Client::open(site.redis.as_ref().unwrap().url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    // A process that starts with the reset learns from the one that remembers.
    let second = site.start("p2");
    // What is told afterwards is what was told before, from memory and then from the store it was put back into.
    for _ in 0..3 {
        let board = house.board().await;
        assert_eq!(board["now_serving"], 1);
        assert_eq!(house.status(&ticket).await["number"], number);
        site.clock.advance_ms(1_100);
        let next = board["snapshot"].as_u64();
        eventually("put back", 5, async || house.board().await["snapshot"].as_u64() >= next).await;
    }
    second.until_serving(1).await;
    assert_eq!(second.status(&ticket).await["number"], number);
    // Whoever holds the old tag gets new bytes.
    let ask = async || house.get(STATUS, &[("if-none-match", &tag)]).await;
    eventually("the old board is not confirmed", 5, async || ask().await.status == StatusCode::OK).await;
    let asked = ask().await;
    assert_eq!(asked.header("cache-control"), "public, max-age=1", "no shared cache keeps it longer");
    let personal = house.with_ticket("status", &ticket).await;
    assert_eq!(personal.header("cache-control"), "private, no-store");
}

#[tokio::test]
async fn p1_what_is_folded_stays_called_and_its_number_is_left_out() {
    let mut endless = sale();
    endless.admission.burst = Some(1_000_000);
    let site = Site::open(Backend::Redis, endless, before_opening()).await;
    let house = site.start("p1");
    let early = house.enter().await;
    house.until_state(&early, "waiting").await;
    site.set_after_opening(0);
    house.until_serving(1).await;
    house.kill();
    // Weeks of rows, as an admitter would have left them, all called long ago.
    let id = sale().id;
    let store = site.store();
    let take = async || store.lease(&id, "weeks", 60_000, 0).await.unwrap();
    eventually("the lease is free", 5, async || take().await.is_some()).await;
    let fence = take().await.unwrap();
    let recorded = store.record(&id, 0).await.unwrap();
    let mut counts = recorded.rows.last().unwrap().clone();
    let mut rows = Vec::new();
    for _ in 0..2_000 {
        counts[0] += 1;
        rows.push(counts.clone());
    }
    let total: u64 = counts.iter().sum();
    let mut record = recorded.record.clone();
    (record.version, record.now_serving, record.expired_through) = (record.version + 1, total, total);
    record.numbered = total;
    let step = Move {
        fence,
        expected_version: recorded.record.version,
        rows_from: recorded.rows_total,
        record,
        rows,
    };
    assert_eq!(store.advance(&id, &step).await.unwrap(), Advanced::Advanced);
    let late = site.start("p3");
    late.until_serving(total).await;
    let told = late.status(&early).await;
    assert_eq!((told["state"].as_str(), told["number"].as_u64()), (Some("turn_missed"), Some(1)));
    // The lease of those weeks runs out; then the rows are folded, here and in the store.
    store.lease(&id, "weeks", 1, 0).await.unwrap();
    eventually("folded", 10, async || store.record(&id, 0).await.unwrap().rows_first > 1_000).await;
    let recorded = store.record(&id, 0).await.unwrap();
    assert_eq!(recorded.rows_total, 2_001);
    eventually("folded here", 5, async || late.status(&early).await["number"].is_null()).await;
    assert_eq!(late.status(&early).await["state"], "turn_missed");
    let next = late.enter().await;
    let number = late.until_numbered(&next).await;
    assert_eq!(number, total + 1, "the numbers go on");
    assert_eq!(
        site.start("p4").until_numbered(&next).await,
        number,
        "and are the same for whoever comes late"
    );
}

#[tokio::test]
async fn c2_429_and_503_always_carry_retry_after() {
    let broken = || Refusal::Store(StoreError::unknown("enter", "deliberate"));
    let problems = [
        Problem::from(broken()),
        Problem::unavailable("overloaded", "x"),
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "x"),
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "x").retry_after(0),
    ];
    for problem in problems {
        let response = problem.into_response();
        let seconds: u32 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!(seconds >= 1);
    }
    // A store that is gone, through every verb that asks it.
    let mut site = Site::open(Backend::Redis, sale(), before_opening()).await;
    let house = site.start("p1");
    let ticket = house.enter().await;
    house.until_state(&ticket, "waiting").await;
    site.set_after_opening(0);
    house.until_serving(1).await;
    drop(site.redis.take());
    let bearer = format!("Bearer {ticket}");
    for verb in ["status", "admit", "leave"] {
        let answer = house.with_ticket(verb, &ticket).await;
        assert_eq!(answer.refusal(), (503, "overloaded".to_owned()), "{verb}");
        assert!(answer.header("retry-after").parse::<u32>().unwrap() >= 1, "{verb}");
    }
    for headers in [&[][..], &[("authorization", bearer.as_str())][..]] {
        let answer = house.post_json("/sale/phone-drop/enter", &json!({}), headers).await;
        assert_eq!(answer.refusal(), (503, "overloaded".to_owned()));
        assert!(answer.header("retry-after").parse::<u32>().unwrap() >= 1);
    }
}

proptest! {
    /// The board's polling interval comes nearer with the moment waited for, within its bounds.
    #[test]
    fn the_public_polling_interval_follows_the_distance(before in 0u64..1_000_000, nearer in 0u64..1_000_000) {
        let sale = sale();
        for phase in [Phase::Scheduled, Phase::DoorsOpen, Phase::Open, Phase::Paused, Phase::SoldOut, Phase::Closed] {
            let at = |seconds: u64| public_poll_after_ms(&sale, phase, sale.doors_open_at.minus_seconds(seconds));
            prop_assert!((2_000..=60_000).contains(&at(before)));
            prop_assert!(at(before.min(nearer)) <= at(before.max(nearer)));
        }
    }
}
