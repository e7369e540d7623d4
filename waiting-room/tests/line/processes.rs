//! Several processes on one store, and stores that fail.

use lockgate_shared::testing::eventually;
use serde_json::json;

use crate::house::{Backend, Site, before_opening, sale};

#[tokio::test]
async fn l7_another_process_takes_over_and_numbers_are_the_same_everywhere() {
    let site = Site::open(Backend::Redis, sale(), before_opening()).await;
    let (first, second) = (site.start("p1"), site.start("p2"));
    let mut tickets = Vec::new();
    for turn in 0..20 {
        let house = if turn % 2 == 0 { &first } else { &second };
        tickets.push(house.enter().await);
    }
    for ticket in &tickets {
        let number = first.until_state(ticket, "waiting").await["number"].clone();
        assert_eq!(second.until_state(ticket, "waiting").await["number"], number);
    }
    first.kill();
    site.set_after_opening(0);
    let started = std::time::Instant::now();
    second.until_serving(10).await;
    assert!(started.elapsed().as_secs() <= 3, "the gap is at most 3 s");
    site.set_after_opening(1);
    second.until_serving(20).await;
}

#[tokio::test]
async fn l8_a_silent_lane_holds_up_nobody_else() {
    let site = Site::open(Backend::Redis, sale(), before_opening()).await;
    let house = site.start("p1");
    house.silence(Some(2));
    let mut tickets = Vec::new();
    for _ in 0..60 {
        tickets.push(house.enter().await);
    }
    let numbered = async || {
        let mut numbers = Vec::new();
        for ticket in &tickets {
            numbers.extend(house.status(ticket).await["number"].as_u64());
        }
        numbers
    };
    let lane_2 = 60 - {
        let mut last = 0;
        eventually("the others have numbers", 5, async || {
            let now = numbered().await.len();
            let settled = now > 0 && now == last && house.board().await["snapshot"].as_u64() > Some(0);
            last = now;
            settled
        })
        .await;
        last
    };
    assert!(lane_2 > 0, "with 60 entries in 4 lanes each has some");
    let before = numbered().await;
    site.set_after_opening(0);
    house.until_serving(10).await;
    site.set_after_opening(1);
    house.until_serving(20).await;
    house.silence(None);
    eventually("the lane is back", 5, async || numbered().await.len() == 60).await;
    let after = numbered().await;
    assert!(before.iter().all(|number| after.contains(number)), "numbers given stand");
    let mut sorted = after;
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=60).collect::<Vec<u64>>());
}

#[tokio::test]
async fn l5_a_store_that_lost_everything_gets_it_back_and_nobody_loses_a_place() {
    let site = Site::open(Backend::Redis, sale(), before_opening()).await;
    let house = site.start("p1");
    let mut tickets = Vec::new();
    for _ in 0..15 {
        tickets.push(house.enter().await);
    }
    let mut numbers = Vec::new();
    for ticket in &tickets {
        numbers.push(house.until_state(ticket, "waiting").await["number"].as_u64().unwrap());
    }
    site.set_after_opening(0);
    house.until_serving(10).await;
    let client = redis::Client::open(site.redis.as_ref().unwrap().url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    // A process that starts at the worst moment knows nothing, and must not number people anew before the other has
    // put back what it remembers.
    let other = site.start("p2");
    eventually("the other knows the line", 5, async || other.board().await["now_serving"] == 10).await;
    assert_eq!(house.board().await["now_serving"], 10);
    for (ticket, number) in tickets.iter().zip(&numbers) {
        assert_eq!(house.status(ticket).await["number"].as_u64(), Some(*number));
        assert_eq!(other.status(ticket).await["number"].as_u64(), Some(*number));
        let again = house.with_ticket("enter", ticket).await;
        assert_eq!(again.status, http::StatusCode::OK, "its ticket brings the place back");
    }
    let late = house.post_json("/sale/phone-drop/enter", &json!({}), &[]).await.json();
    let late = late["ticket"].as_str().unwrap().to_owned();
    eventually("a number", 5, async || house.status(&late).await["number"].is_u64()).await;
    assert_eq!(house.status(&late).await["number"], 16, "nobody shares a number");
}

#[tokio::test]
async fn p1_nobody_moves_back_over_a_restart() {
    let site = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    let first = site.start("p1");
    let mut tickets = Vec::new();
    for _ in 0..12 {
        tickets.push(first.enter().await);
    }
    eventually("all have numbers", 5, async || first.status(&tickets[11]).await["number"].is_u64()).await;
    site.set_after_opening(0);
    first.until_serving(10).await;
    let mut before = Vec::new();
    for ticket in &tickets {
        before.push(first.status(ticket).await["number"].clone());
    }
    first.kill();
    let second = site.start("p1");
    second.until_serving(10).await;
    for (ticket, number) in tickets.iter().zip(&before) {
        assert_eq!(second.status(ticket).await["number"], *number);
    }
}

/// A redis-server that stands still until this is dropped.
struct Frozen(u32);

impl Frozen {
    fn signal(&self, name: &str) {
        let pid = self.0.to_string();
        let sent = std::process::Command::new("kill").args([name, &pid]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

#[tokio::test]
async fn the_line_stays_alive_while_its_store_stands_still() {
    let site = Site::open(Backend::Redis, sale(), before_opening()).await;
    let house = site.start("p1");
    let called = house.enter().await;
    house.until_state(&called, "waiting").await;
    site.set_after_opening(0);
    house.until_serving(1).await;
    let mut waiting = Vec::new();
    for _ in 0..15 {
        waiting.push(house.enter().await);
    }
    house.until_serving(10).await;
    let frozen = Frozen(site.redis.as_ref().unwrap().pid());
    frozen.signal("-STOP");
    assert_eq!(house.board().await["now_serving"], 10);
    let mut answers = Vec::new();
    for ticket in &waiting {
        answers.push(house.with_ticket("status", ticket));
    }
    let bearer = format!("Bearer {called}");
    let page = [("accept", "text/html"), ("authorization", bearer.as_str())];
    let nothing = json!({});
    let entering = house.post_json("/sale/phone-drop/enter", &nothing, &[]);
    let (answers, page, entering) = futures::join!(
        futures::future::join_all(answers),
        house.get("/sale/phone-drop/queue", &page),
        entering
    );
    let waits = answers.iter().filter(|answer| answer.status == http::StatusCode::OK);
    assert!(waits.map(|answer| answer.json()["state"].clone()).all(|state| state == "waiting"));
    let told = answers.iter().filter(|answer| answer.status != http::StatusCode::OK);
    assert!(told.clone().count() > 0, "those whose turn has come need the lane");
    for answer in told {
        assert_eq!(answer.refusal(), (503, "overloaded".into()));
    }
    assert_eq!((page.status.as_u16(), entering.refusal()), (503, (503, "overloaded".into())));
    assert!(page.text.contains("http-equiv=\"refresh\"") && page.text.contains("Your place is kept."));
    assert!(!page.header("retry-after").is_empty() && !entering.header("retry-after").is_empty());
    drop(frozen);
    house.until_state(&called, "your_turn").await;
    site.set_after_opening(2);
    eventually("the line moves on", 10, async || house.board().await["now_serving"].as_u64() >= Some(16))
        .await;
}
