//! One behaviour for every event log.

use std::collections::BTreeMap;

use super::{redis::RedisEventLog, sqlite::SqliteEventLog, *};
use crate::{
    store::{redis::RedisLink, sqlite::Sqlite},
    testing::{PrivateRedis, eventually},
};

fn sample(n: u8) -> Event {
    Event {
        id: String::new(),
        kind: EventKind::Claimed,
        claim: uuid::Uuid::from_bytes([n; 16]).into(),
        account: AccountHash::from_bytes([n; 16]),
        item: "phone".parse().unwrap(),
        units: vec![u32::from(n), u32::from(n) + 1],
        claimed_at: Timestamp::from_seconds(1_800_000_000),
        deadline: Timestamp::from_seconds(1_800_000_600),
        memo: format!("{{\"n\":{n}}}"),
        abandoned: (n == 3).then_some(Abandoned { admitted_at: 1_800_000_000, holds: 2 }),
    }
}

async fn groups_read_everything_until_they_acknowledge(log: &dyn EventLog, sale: &SaleId) {
    let first = log.read(sale, "a", "one", 256).await.unwrap();
    let plain: Vec<Event> = first.events.iter().map(|e| Event { id: String::new(), ..e.clone() }).collect();
    assert_eq!(plain, [sample(1), sample(2), sample(3)]);
    assert_eq!(
        log.read(sale, "a", "one", 256).await.unwrap(),
        first,
        "what was not acknowledged comes again at once"
    );
    assert_eq!(first.poison.len(), 1, "an entry that is no event is reported, not swallowed");
    assert!(first.poison[0].record.contains("odd"), "and kept: {}", first.poison[0].record);
    let again = Event::of_record("7-0", &first.events[2].record()).unwrap();
    assert_eq!(again, Event { id: "7-0".into(), ..first.events[2].clone() });
    assert_eq!(log.backlog(sale, "a").await.unwrap().total(), 4);
    assert_eq!(log.backlog(sale, "b").await.unwrap(), Backlog { unread: 4, pending: 0 });
    let after_the_second = [first.events[0].id.clone(), first.events[2].id.clone()];
    log.acknowledge(sale, "a", &after_the_second).await.unwrap();
    let open = log.read(sale, "a", "one", 1).await.unwrap();
    assert_eq!(open.events, [first.events[1].clone()], "what was passed by still comes");
    let mut ids: Vec<String> = first.events.iter().map(|e| e.id.clone()).collect();
    ids.extend(first.poison.iter().map(|p| p.id.clone()));
    log.acknowledge(sale, "a", &ids).await.unwrap();
    log.acknowledge(sale, "a", &[]).await.unwrap();
    assert_eq!(log.read(sale, "a", "one", 256).await.unwrap(), Batch::default());
    assert_eq!(
        log.read(sale, "b", "one", 256).await.unwrap().events.len(),
        3,
        "another group starts at the beginning"
    );
    let elsewhere = "elsewhere".parse().unwrap();
    assert_eq!(log.backlog(sale, "a").await.unwrap(), Backlog::default());
    assert_eq!(log.backlog(&elsewhere, "a").await.unwrap(), Backlog::default());
    assert_eq!(log.read(&elsewhere, "a", "one", 256).await.unwrap(), Batch::default());
}

/// Over a log of `count` events, read by nobody yet. A stream's nodes hold up to 100 events, and only whole ones go.
async fn m12_nothing_is_trimmed_that_a_group_may_need(log: &dyn EventLog, sale: &SaleId, count: u64) {
    let missing = Trim::GroupMissing("a".into());
    assert_eq!(log.trim(sale, &["a", "b"], 0).await.unwrap(), missing, "nobody has begun");
    let take = async |group: &str, many: u64| {
        let mut ids = Vec::new();
        while (ids.len() as u64) < many {
            let batch = log.read(sale, group, "one", (many as usize - ids.len()).min(256)).await.unwrap();
            let found: Vec<String> = batch.events.into_iter().map(|event| event.id).collect();
            assert!(!found.is_empty());
            log.acknowledge(sale, group, &found).await.unwrap();
            ids.extend(found);
        }
        ids
    };
    take("a", count).await;
    let missing = Trim::GroupMissing("b".into());
    assert_eq!(log.trim(sale, &["a", "b"], 0).await.unwrap(), missing, "the other may need everything");
    // The second group has one open event in the middle and has read on.
    take("b", 250).await;
    let open = log.read(sale, "b", "one", 2).await.unwrap().events;
    log.acknowledge(sale, "b", &[open[1].id.clone()]).await.unwrap();
    assert_eq!(log.trim(sale, &["a", "b"], count).await.unwrap(), Trim::Trimmed(0), "the newest are kept");
    let Trim::Trimmed(first) = log.trim(sale, &["a", "b"], 0).await.unwrap() else { panic!("missing") };
    assert!((100..=250).contains(&first), "{first}");
    assert_eq!(log.trim(sale, &["a", "b"], 0).await.unwrap(), Trim::Trimmed(0), "and no more");
    assert_eq!(log.read(sale, "b", "one", 1).await.unwrap().events, [open[0].clone()], "it still comes");
    assert_eq!(log.backlog(sale, "b").await.unwrap().total(), count - 251);
    log.acknowledge(sale, "b", &[open[0].id.clone()]).await.unwrap();
    take("b", count - 252).await;
    let Trim::Trimmed(second) = log.trim(sale, &["a", "b"], 100).await.unwrap() else { panic!("missing") };
    assert!(first + second <= count - 100 && second > 0, "{first} and {second}");
    assert_eq!(log.backlog(sale, "a").await.unwrap(), Backlog::default());
    assert_eq!(log.backlog(sale, "b").await.unwrap(), Backlog::default());
}

#[tokio::test]
async fn sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let db = Sqlite::open(&dir.path().join("e.db"), &[("events", sqlite::EVENTS_SQLITE)]).unwrap();
    let sale: SaleId = "demo".parse().unwrap();
    let writer_sale = sale.clone();
    db.write("append", move |c| {
        for n in 1..=3 {
            sqlite::append(c, &writer_sale, EventKind::Claimed, &sample(n))?;
        }
        c.execute("INSERT INTO events SELECT NULL, sale, 'odd', claim, account, item, units, claimed_at, deadline, memo, NULL FROM events LIMIT 1", [])
    })
    .await
    .unwrap();
    groups_read_everything_until_they_acknowledge(&SqliteEventLog::new(db.clone()), &sale).await;
    let long: SaleId = "long".parse().unwrap();
    let writer_sale = long.clone();
    db.write("append", move |c| {
        (0..400).try_for_each(|_| sqlite::append(c, &writer_sale, EventKind::Claimed, &sample(1)))
    })
    .await
    .unwrap();
    m12_nothing_is_trimmed_that_a_group_may_need(&SqliteEventLog::new(db), &long, 400).await;
}

#[tokio::test]
async fn redis() {
    let server = PrivateRedis::start().await;
    let link = RedisLink::connect(server.url(), "t:").await.unwrap();
    let sale: SaleId = "demo".parse().unwrap();
    let log = RedisEventLog::new(link.clone());
    assert_eq!(log.read(&sale, "a", "one", 256).await.unwrap(), Batch::default(), "no stream yet");
    for n in 1..=3 {
        let event = sample(n);
        let mut command = ::redis::cmd("XADD");
        command.arg(stream(&link, &sale)).arg("*").arg("kind").arg("claimed");
        command.arg("claim").arg(event.claim.to_string()).arg("account").arg(event.account.to_string());
        command.arg("item").arg(event.item.as_str()).arg("units").arg(units_to_text(&event.units));
        command.arg("claimed_at").arg(event.claimed_at.micros()).arg("deadline").arg(event.deadline.micros());
        command.arg("memo").arg(&event.memo);
        if n > 1 {
            let text = event.abandoned.map(Abandoned::to_text).unwrap_or_default();
            command.arg("abandoned").arg(text);
        }
        link.command::<String>("append", &command).await.unwrap();
    }
    let mut odd = ::redis::cmd("XADD");
    odd.arg(stream(&link, &sale)).arg("*").arg("kind").arg("odd");
    link.command::<String>("append", &odd).await.unwrap();
    groups_read_everything_until_they_acknowledge(&log, &sale).await;
    let long: SaleId = "long".parse().unwrap();
    append(&link, &long, 400).await;
    m12_nothing_is_trimmed_that_a_group_may_need(&log, &long, 400).await;
}

async fn append(link: &RedisLink, sale: &SaleId, count: u32) {
    let event = sample(1);
    let fields: BTreeMap<String, String> = serde_json::from_str(&event.record()).unwrap();
    for _ in 0..count {
        let mut command = ::redis::cmd("XADD");
        command.arg(stream(link, sale)).arg("*");
        for (name, text) in &fields {
            command.arg(name).arg(text);
        }
        link.command::<String>("append", &command).await.unwrap();
    }
}

#[tokio::test]
async fn m10_what_a_silent_consumer_holds_is_taken_over_even_while_new_events_come() {
    let server = PrivateRedis::start().await;
    let link = RedisLink::connect(server.url(), "t:").await.unwrap();
    let sale: SaleId = "demo".parse().unwrap();
    let log = RedisEventLog::new(link.clone());
    append(&link, &sale, 3).await;
    let held = log.read(&sale, "a", "gone", 3).await.unwrap();
    assert_eq!(held.events.len(), 3);
    assert_eq!(log.retire(&sale, "a", 0).await.unwrap(), 0, "it holds something");
    eventually("the work is taken over", 20, async || {
        append(&link, &sale, 1).await;
        let batch = log.read(&sale, "a", "alive", 10).await.unwrap();
        let ids: Vec<String> = batch.events.iter().map(|event| event.id.clone()).collect();
        log.acknowledge(&sale, "a", &ids).await.unwrap();
        batch.events == held.events
    })
    .await;
    assert_eq!(log.backlog(&sale, "a").await.unwrap().pending, 0);
    assert_eq!(log.retire(&sale, "a", 3_600_000).await.unwrap(), 0, "not silent for so long");
    assert_eq!(log.retire(&sale, "a", 3_000).await.unwrap(), 1, "it holds nothing and is silent");
    assert_eq!(log.retire(&sale, "nobody", 0).await.unwrap(), 0);
}

#[tokio::test]
async fn m12_a_stream_is_trimmed_when_memory_is_full_and_not_without_its_groups() {
    let server = PrivateRedis::start().await;
    let link = RedisLink::connect(server.url(), "t:").await.unwrap();
    let sale: SaleId = "demo".parse().unwrap();
    let log = RedisEventLog::new(link.clone());
    assert_eq!(log.trim(&sale, &["a"], 0).await.unwrap(), Trim::Trimmed(0), "there is no stream");
    append(&link, &sale, 250).await;
    let ids: Vec<String> =
        log.read(&sale, "a", "one", 256).await.unwrap().events.into_iter().map(|event| event.id).collect();
    log.acknowledge(&sale, "a", &ids).await.unwrap();
    let mut full = ::redis::cmd("CONFIG");
    full.arg("SET").arg("maxmemory").arg("1mb");
    link.command::<String>("fill", &full).await.unwrap();
    assert_eq!(log.trim(&sale, &["a", "b"], 0).await.unwrap(), Trim::GroupMissing("b".into()));
    let trimmed = log.trim(&sale, &["a"], 0).await.unwrap();
    assert!(matches!(trimmed, Trim::Trimmed(100..=249)), "whole nodes go: {trimmed:?}");
}

fn stream(link: &RedisLink, sale: &SaleId) -> String {
    redis::stream_key(link, sale)
}
