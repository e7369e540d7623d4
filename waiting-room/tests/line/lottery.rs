//! Lotteries: from the commitment to the draw, and what follows it.

use http::StatusCode;
use lockgate_shared::{
    clock::{Clock as _, Timestamp},
    sale::{Beacon, Lottery, QueueingMethod, SaleDefinition},
    testing::eventually,
};
use lockgate_waiting_room::draw::record::{DrawnTicket, PublicRecord};
use serde_json::{Value, json};

use crate::house::{Backend, House, Site, before_opening, eligibility, sale, sale_for_customers};

fn lottery(beacon: Beacon) -> SaleDefinition {
    let mut lottery = sale();
    lottery.queueing_method = QueueingMethod::Lottery;
    lottery.lottery = Some(Lottery { beacon });
    lottery
}

async fn opened(backend: Backend, beacon: Beacon) -> (Site, House) {
    let site = Site::open(backend, lottery(beacon), before_opening()).await;
    let house = site.start("p1");
    (site, house)
}

async fn enter_all(house: &House, count: usize) -> Vec<String> {
    let mut tickets = Vec::new();
    for _ in 0..count {
        tickets.push(house.enter().await);
    }
    tickets
}

async fn record(house: &House) -> Value {
    house.get("/sale/phone-drop/draw", &[]).await.json()
}

async fn numbers(house: &House, tickets: &[String]) -> Vec<Option<u64>> {
    let mut numbers = Vec::new();
    for ticket in tickets {
        numbers.push(house.status(ticket).await["number"].as_u64());
    }
    numbers
}

/// Waits for a snapshot made at the present time of the clock.
async fn until_seen(site: &Site, house: &House) {
    let now = site.clock.now();
    eventually("a snapshot of this moment", 10, async || {
        let told = house.board().await["server_time"].as_str().map(Timestamp::parse);
        told.is_some_and(|told| told.is_ok_and(|told| told >= now))
    })
    .await;
}

async fn until_numbered(house: &House, tickets: &[String]) {
    eventually("all have numbers", 10, async || numbers(house, tickets).await.iter().all(Option::is_some))
        .await;
}

/// Every ticket's number is the one its public record gives.
async fn agree(house: &House, tickets: &[String]) {
    let public: PublicRecord = serde_json::from_value(record(house).await).unwrap();
    let verdict = public.verify();
    assert_eq!(verdict.problems, Vec::<String>::new());
    let table = verdict.table.unwrap();
    for ticket in tickets {
        let status = house.status(ticket).await;
        let drawn = DrawnTicket {
            pool: status["draw"]["pool"].as_u64().unwrap().try_into().unwrap(),
            entry: status["draw"]["entry"].as_u64().unwrap(),
            number: status["number"].as_u64().unwrap(),
        };
        assert_eq!(drawn.problem(&table), None, "{status}");
    }
}

async fn from_the_door_to_the_draw_and_after(backend: Backend) {
    let (site, house) = opened(backend, Beacon::None).await;
    let before = record(&house).await;
    assert_eq!((before["drawn"].as_bool(), before.as_object().unwrap().len()), (Some(false), 4), "{before}");
    let tickets = enter_all(&house, 30).await;
    site.clock.advance_ms(59_000);
    until_seen(&site, &house).await;
    for ticket in &tickets {
        let status = house.status(ticket).await;
        assert_eq!(
            (status["state"].as_str(), status["phase"].as_str()),
            (Some("entered"), Some("doors_open"))
        );
        assert!(["number", "people_ahead", "wait_seconds", "draw"].iter().all(|f| status.get(f).is_none()));
        assert_eq!(house.with_ticket("admit", ticket).await.refusal(), (409, "not_your_turn".into()));
    }
    assert_eq!(house.operate("POST", "/draw", &json!({})).await.refusal(), (409, "not_open".into()));
    let board = house.board().await;
    assert_eq!(
        (board["now_serving"].as_u64(), board["queueing_method"].as_str()),
        (Some(0), Some("lottery"))
    );
    eventually("all are counted", 5, async || house.board().await["waiting"] == 30).await;

    site.set_after_opening(0);
    until_numbered(&house, &tickets).await;
    agree(&house, &tickets).await;
    let drawn = numbers(&house, &tickets).await;
    let mut sorted: Vec<u64> = drawn.iter().flatten().copied().collect();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=30).collect::<Vec<_>>());
    assert_ne!(
        sorted,
        drawn.iter().flatten().copied().collect::<Vec<_>>(),
        "one in 30! draws would fail here"
    );
    let public = record(&house).await;
    assert_eq!(public["commitment"], before["commitment"], "the promise was kept");
    assert_eq!(
        house.operate("POST", "/draw", &json!({})).await.json(),
        public,
        "asking again changes nothing"
    );
    let refused = house.operate("POST", "/draw", &json!({"beacon": "8ef1"})).await;
    assert_eq!(refused.refusal(), (409, "beacon_refused".into()));

    // Whoever comes later follows, in order, and nothing given before moves.
    let mut late = Vec::new();
    for number in 31..=36u64 {
        let ticket = house.enter().await;
        until_numbered(&house, std::slice::from_ref(&ticket)).await;
        let status = house.status(&ticket).await;
        assert_eq!((status["number"].as_u64(), status.get("draw")), (Some(number), None));
        late.push(ticket);
    }
    house.operate("POST", "/pause", &json!({})).await;
    let other = site.start("p2");
    other.until_serving(house.board().await["now_serving"].as_u64().unwrap()).await;
    house.kill();
    assert_eq!(numbers(&other, &tickets).await, drawn, "the same from every process");
    assert_eq!(record(&other).await, public);
    assert_eq!(numbers(&other, &late).await, (31..=36).map(Some).collect::<Vec<_>>());
}

#[tokio::test]
async fn p2_no_number_before_the_draw_and_after_it_final_on_sqlite() {
    from_the_door_to_the_draw_and_after(Backend::Sqlite).await;
}

#[tokio::test]
async fn p2_no_number_before_the_draw_and_after_it_final_on_redis() {
    from_the_door_to_the_draw_and_after(Backend::Redis).await;
}

async fn a_beacon_is_waited_for(backend: Backend) {
    let (site, house) = opened(backend, Beacon::Operator).await;
    let tickets = enter_all(&house, 20).await;
    let given = json!({"beacon": "8ef1"});
    assert_eq!(house.operate("POST", "/draw", &given).await.refusal(), (409, "not_open".into()));
    site.set_after_opening(0);
    eventually("the pools freeze", 10, async || record(&house).await["pools"].is_array()).await;
    let frozen = record(&house).await;
    assert_eq!((frozen["drawn"].as_bool(), frozen.get("secret")), (Some(false), None), "{frozen}");
    let late = enter_all(&house, 5).await;
    site.set_after_opening(3_600);
    until_seen(&site, &house).await;
    let board = house.board().await;
    assert_eq!((board["phase"].as_str(), board["now_serving"].as_u64()), (Some("drawing"), Some(0)));
    assert!(numbers(&house, &tickets).await.iter().chain(&numbers(&house, &late).await).all(Option::is_none));
    assert_eq!(house.operate("POST", "/draw", &json!({})).await.refusal(), (422, "beacon_missing".into()));
    for unfit in [String::new(), "a\0b".into(), "a\nb".into(), "x".repeat(513)] {
        let refused = house.operate("POST", "/draw", &json!({"beacon": unfit})).await;
        assert_eq!(refused.refusal(), (422, "beacon_unfit".into()), "{unfit:?}");
    }

    // The process that froze the pools dies; another draws from the same ones.
    house.kill();
    let other = site.start("p2");
    eventually("the other knows the pools", 10, async || record(&other).await["pools"].is_array()).await;
    let drawn = other.operate("POST", "/draw", &given).await;
    assert!(matches!(drawn.status, StatusCode::OK | StatusCode::ACCEPTED), "{drawn:?}");
    until_numbered(&other, &tickets).await;
    until_numbered(&other, &late).await;
    agree(&other, &tickets).await;
    let public = record(&other).await;
    assert_eq!((&public["pools"], public["beacon"].as_str()), (&frozen["pools"], Some("8ef1")));
    assert_eq!(public["frozen_at"], frozen["frozen_at"]);
    assert!(
        numbers(&other, &late).await.iter().all(|number| *number > Some(20)),
        "they came after the freeze"
    );
    assert_eq!(other.operate("POST", "/draw", &given).await.json(), public, "once");
    let another = other.operate("POST", "/draw", &json!({"beacon": "8ef2"})).await;
    assert_eq!(another.refusal(), (409, "beacon_given".into()));
}

#[tokio::test]
async fn p2_a_beacon_is_given_after_the_freeze_and_waited_for_on_sqlite() {
    a_beacon_is_waited_for(Backend::Sqlite).await;
}

#[tokio::test]
async fn p2_a_beacon_is_given_after_the_freeze_and_waited_for_on_redis() {
    a_beacon_is_waited_for(Backend::Redis).await;
}

#[tokio::test]
async fn l8_a_silent_lane_is_waited_for_and_then_frozen_where_it_was() {
    let (site, house) = opened(Backend::Redis, Beacon::None).await;
    let counted = enter_all(&house, 40).await;
    eventually("all are counted", 10, async || house.board().await["waiting"] == 40).await;
    house.silence(Some(2));
    // Some of these are in the silent lane, so that nobody counts them before the draw.
    let uncounted = enter_all(&house, 40).await;
    site.set_after_opening(0);
    until_seen(&site, &house).await;
    site.set_after_opening(29);
    until_seen(&site, &house).await;
    assert_eq!(
        (house.board().await["phase"].as_str(), record(&house).await["drawn"].as_bool()),
        (Some("drawing"), Some(false))
    );
    site.set_after_opening(31);
    until_numbered(&house, &counted).await;
    agree(&house, &counted).await;
    house.silence(None);
    until_numbered(&house, &uncounted).await;
    let public = record(&house).await;
    let drawn: u64 = public["pools"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).sum();
    assert!((40..80).contains(&drawn), "with 40 entries in 4 lanes, lane 2 has some: {public}");
    let mut all: Vec<Option<u64>> = numbers(&house, &counted).await;
    for ticket in &uncounted {
        let status = house.status(ticket).await;
        assert_eq!(status.get("draw").is_some(), status["number"].as_u64() <= Some(drawn), "{status}");
        all.push(status["number"].as_u64());
    }
    all.sort_unstable();
    assert_eq!(all, (1..=80).map(Some).collect::<Vec<_>>());
}

#[tokio::test]
async fn l5_a_store_that_lost_everything_gets_the_draw_back() {
    let (site, house) = opened(Backend::Redis, Beacon::None).await;
    let tickets = enter_all(&house, 15).await;
    let client = redis::Client::open(site.redis.as_ref().unwrap().url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    eventually("all are counted", 10, async || house.board().await["waiting"] == 15).await;
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    // Before the draw: who enters now shares no place with whoever is known.
    let more = enter_all(&house, 10).await;
    site.set_after_opening(0);
    until_numbered(&house, &more).await;
    agree(&house, &tickets).await;
    let drawn = numbers(&house, &tickets).await;
    let mut all = [drawn.clone(), numbers(&house, &more).await].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 25, "nobody shares a number");
    let public = record(&house).await;
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    eventually("the draw is back", 10, async || {
        let line: Option<String> = redis::cmd("HGET")
            .arg("t:{phone-drop}:line")
            .arg("record")
            .query_async(&mut connection)
            .await
            .unwrap();
        line.is_some_and(|record| record.contains("\"drawn\""))
    })
    .await;
    let other = site.start("p2");
    eventually("the other knows the draw", 10, async || record(&other).await == public).await;
    assert_eq!(numbers(&other, &tickets).await, drawn);
    assert_eq!(numbers(&house, &tickets).await, drawn);
}

/// Enters by the shop's word alone; the answer and the store calls it took.
async fn enter_as(house: &House, account: &str) -> (StatusCode, Value, usize) {
    let before = house.calls();
    let body = json!({"eligibility": eligibility(account, i64::MAX / 2_000_000)});
    let answer = house.post_json("/sale/phone-drop/enter", &body, &[]).await;
    (answer.status, answer.json(), house.calls() - before)
}

#[tokio::test]
async fn k4_a_pool_member_who_missed_the_turn_gets_a_new_place_and_the_others_keep_theirs() {
    let mut customers = sale_for_customers();
    customers.queueing_method = QueueingMethod::Lottery;
    let site = Site::open(Backend::Sqlite, customers, before_opening()).await;
    let house = site.start("p1");
    let mut tickets = Vec::new();
    for n in 0..15 {
        let (status, answer, calls) = enter_as(&house, &format!("account-{n}")).await;
        assert_eq!((status, calls), (StatusCode::CREATED, 1));
        tickets.push(answer["ticket"].as_str().unwrap().to_owned());
    }
    site.set_after_opening(0);
    house.until_serving(10).await;
    // The ten who were called let their turns run out; the others are called when these have.
    house.operate("POST", "/pause", &json!({})).await;
    site.set_after_opening(70);
    let drawn = numbers(&house, &tickets).await;
    let by_number = |number: u64| drawn.iter().position(|own| *own == Some(number)).unwrap();
    house.until_state(&tickets[by_number(1)], "turn_missed").await;
    house.until_state(&tickets[by_number(10)], "turn_missed").await;
    let (status, again, calls) = enter_as(&house, &format!("account-{}", by_number(11))).await;
    assert_eq!((status, calls), (StatusCode::OK, 1), "whoever waits keeps the place, by one call");
    assert_eq!(again["status"]["number"], 11);
    let (status, fresh, calls) = enter_as(&house, &format!("account-{}", by_number(3))).await;
    assert_eq!((status, calls), (StatusCode::CREATED, 2), "{fresh}");
    let (status, kept, calls) = enter_as(&house, &format!("account-{}", by_number(3))).await;
    assert_eq!((status, calls), (StatusCode::OK, 1), "the new place is kept");
    let place = kept["ticket"].as_str().unwrap().to_owned();
    until_numbered(&house, std::slice::from_ref(&place)).await;
    assert_eq!(house.status(&place).await["number"], 16);
    // A ticket says itself that its turn has passed, so that one call suffices.
    let before = house.calls();
    let rejoined = house.with_ticket("enter", &tickets[by_number(5)]).await;
    assert_eq!((rejoined.status, house.calls() - before), (StatusCode::CREATED, 1));
    assert_eq!(house.status(&tickets[by_number(5)]).await["state"], "turn_missed", "the old ticket stays so");
}

#[tokio::test]
async fn leaving_before_the_draw_counts_nobody_as_waiting() {
    let (site, house) = opened(Backend::Sqlite, Beacon::None).await;
    let tickets = enter_all(&house, 24).await;
    for ticket in &tickets[..12] {
        assert_eq!(house.with_ticket("leave", ticket).await.status, StatusCode::NO_CONTENT);
    }
    eventually("they are not counted", 10, async || house.board().await["waiting"] == 12).await;
    site.set_after_opening(0);
    // The burst of ten goes to people who are still there: of twelve, two wait on.
    eventually("only who waits is counted", 10, async || house.board().await["waiting"] == 2).await;
    let now_serving = house.board().await["now_serving"].as_u64();
    let kept = numbers(&house, &tickets[12..]).await;
    assert_eq!(kept.iter().filter(|number| **number > now_serving).count(), 2);
}

#[tokio::test]
async fn the_public_record_is_cacheable_and_a_sale_without_a_lottery_has_none() {
    let (site, house) = opened(Backend::Sqlite, Beacon::None).await;
    let before = house.get("/sale/phone-drop/draw", &[]).await;
    assert_eq!((before.status, before.header("cache-control")), (StatusCode::OK, "public, max-age=1"));
    let tag = before.header("etag").to_owned();
    let again = house.get("/sale/phone-drop/draw", &[("if-none-match", &tag)]).await;
    assert_eq!((again.status, again.text.len()), (StatusCode::NOT_MODIFIED, 0));
    // Nobody entered: a draw of nothing is a draw too, and the sale opens.
    site.set_after_opening(0);
    eventually("the sale opens", 10, async || house.board().await["phase"] == "open").await;
    let after = house.get("/sale/phone-drop/draw", &[("if-none-match", &tag)]).await;
    assert_eq!((after.status, after.header("cache-control")), (StatusCode::OK, "public, max-age=60"));
    assert_eq!(after.json()["pools"], json!([0, 0, 0, 0]));
    let first = house.enter().await;
    until_numbered(&house, std::slice::from_ref(&first)).await;
    assert_eq!(house.status(&first).await["number"], 1);
    let other = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    let fifo = other.start("p1");
    assert_eq!(fifo.get("/sale/phone-drop/draw", &[]).await.refusal(), (404, "no_lottery".into()));
    assert_eq!(house.get("/sale/other/draw", &[]).await.refusal(), (404, "no_such_sale".into()));
}

#[tokio::test]
async fn pages_say_what_a_draw_is() {
    let (site, house) = opened(Backend::Sqlite, Beacon::Operator).await;
    let ticket = house.enter().await;
    let bearer = format!("Bearer {ticket}");
    let html = [("accept", "text/html"), ("authorization", bearer.as_str())];
    let queue = house.get("/sale/phone-drop/queue", &html).await.text;
    assert!(
        queue.contains("You take part in the draw.") && queue.contains("Then you get your number."),
        "{queue}"
    );
    let page = house.get("/sale/phone-drop", &[("accept", "text/html")]).await.text;
    assert!(page.contains("Places are drawn by lot"), "{page}");
    site.set_after_opening(0);
    eventually("the draw is awaited", 10, async || house.board().await["phase"] == "drawing").await;
    let queue = house.get("/sale/phone-drop/queue", &html).await.text;
    assert!(queue.contains("Your number comes with the draw."), "{queue}");
    let list = house.get("/", &[("accept", "text/html")]).await.text;
    assert!(list.contains("The places in the line are being drawn."), "{list}");
}
