//! One behaviour for every event log.

use super::{redis::RedisEventLog, sqlite::SqliteEventLog, *};
use crate::{
    store::{redis::RedisLink, sqlite::Sqlite},
    testing::PrivateRedis,
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
    let first = log.read(sale, "a", "one").await.unwrap();
    let plain: Vec<Event> = first.events.iter().map(|e| Event { id: String::new(), ..e.clone() }).collect();
    assert_eq!(plain, [sample(1), sample(2), sample(3)]);
    assert_eq!(
        log.read(sale, "a", "one").await.unwrap(),
        first,
        "what was not acknowledged comes again at once"
    );
    assert_eq!(first.poison.len(), 1, "an entry that is no event is reported, not swallowed");
    let mut ids: Vec<String> = first.events.iter().map(|e| e.id.clone()).collect();
    ids.extend(first.poison.iter().map(|p| p.id.clone()));
    log.acknowledge(sale, "a", &ids).await.unwrap();
    log.acknowledge(sale, "a", &[]).await.unwrap();
    assert_eq!(log.read(sale, "a", "one").await.unwrap(), Batch::default());
    assert_eq!(
        log.read(sale, "b", "one").await.unwrap().events.len(),
        3,
        "another group starts at the beginning"
    );
    let elsewhere = "elsewhere".parse().unwrap();
    assert_eq!(log.read(&elsewhere, "a", "one").await.unwrap(), Batch::default());
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
    groups_read_everything_until_they_acknowledge(&SqliteEventLog::new(db), &sale).await;
}

#[tokio::test]
async fn redis() {
    let server = PrivateRedis::start().await;
    let link = RedisLink::connect(server.url(), "t:").await.unwrap();
    let sale: SaleId = "demo".parse().unwrap();
    let log = RedisEventLog::new(link.clone());
    assert_eq!(log.read(&sale, "a", "one").await.unwrap(), Batch::default(), "no stream yet");
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
}

fn stream(link: &RedisLink, sale: &SaleId) -> String {
    redis::stream_key(link, sale)
}
