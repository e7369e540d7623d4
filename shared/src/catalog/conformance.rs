//! What every catalog store must answer, stamped on each back end.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{CatalogStore, MemoryCatalog, PutOutcome, SaleRow, redis::RedisCatalog, sqlite};
use crate::{
    store::{redis::RedisLink, sqlite::Sqlite},
    testing::PrivateRedis,
};

fn row(id: &str, version: u64, body: &str) -> SaleRow {
    SaleRow { id: id.into(), version, body: body.into() }
}

async fn listed(store: &dyn CatalogStore) -> Vec<SaleRow> {
    let mut rows = store.list().await.unwrap();
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    rows
}

async fn conforms(store: Arc<dyn CatalogStore>) {
    assert_eq!(listed(&*store).await, []);
    let conflict = |current| PutOutcome::Conflict { current };

    let first = row("a", 1, "{\"n\": 1}");
    assert_eq!(store.put(&first, Some(1)).await.unwrap(), conflict(None), "there is nothing to change");
    assert_eq!(store.put(&first, None).await.unwrap(), PutOutcome::Stored);
    assert_eq!(
        store.put(&row("a", 1, "other"), None).await.unwrap(),
        conflict(Some(1)),
        "it is there already"
    );
    assert_eq!(listed(&*store).await, [first]);

    let second = row("a", 2, "{\"n\": 2}");
    assert_eq!(store.put(&second, Some(1)).await.unwrap(), PutOutcome::Stored);
    assert_eq!(store.put(&row("a", 2, "late"), Some(1)).await.unwrap(), conflict(Some(2)), "seen too early");
    assert_eq!(store.put(&row("a", 9, "x"), Some(8)).await.unwrap(), conflict(Some(2)), "never seen");
    assert_eq!(listed(&*store).await, std::slice::from_ref(&second));

    let large = row("b", 7, &format!("7 {}\n\u{1f680}\0{}", "x".repeat(256 * 1024), "end "));
    assert_eq!(
        store.put(&large, None).await.unwrap(),
        PutOutcome::Stored,
        "a sale may return in its version"
    );
    assert_eq!(listed(&*store).await, [second, large.clone()]);

    let mut racers = JoinSet::new();
    for n in 0..16 {
        let store = Arc::clone(&store);
        racers.spawn(async move { store.put(&row("a", 3, &n.to_string()), Some(2)).await.unwrap() });
    }
    let outcomes = racers.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == PutOutcome::Stored).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == conflict(Some(3))).count(), 15, "{outcomes:?}");
    let rows = listed(&*store).await;
    assert_eq!((rows.len(), rows[0].version, &rows[1]), (2, 3, &large));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_conforms() {
    conforms(Arc::new(MemoryCatalog::default())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_conforms_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let migrations = [("catalog", sqlite::CATALOG_SQLITE)];
        sqlite::SqliteCatalog::new(Sqlite::open(&dir.path().join("lockgate.db"), &migrations).unwrap())
    };
    let store = Arc::new(open());
    conforms(Arc::clone(&store) as Arc<dyn CatalogStore>).await;
    let before = listed(&*store).await;
    drop(store);
    assert_eq!(listed(&open()).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_conforms_under_its_prefix_alone() {
    let server = PrivateRedis::start().await;
    let link = RedisLink::connect(server.url(), "one:").await.unwrap();
    conforms(Arc::new(RedisCatalog::new(link.clone()))).await;
    let other = RedisLink::connect(server.url(), "two:").await.unwrap();
    assert_eq!(listed(&RedisCatalog::new(other)).await, []);
    let keys: Vec<String> = link.command("keys", redis::cmd("KEYS").arg("*")).await.unwrap();
    assert_eq!(keys, ["one:catalog"]);
}

#[tokio::test]
async fn redis_never_overwrites_what_it_cannot_read() {
    let server = PrivateRedis::start().await;
    let link = RedisLink::connect(server.url(), "lockgate:").await.unwrap();
    let hset = |text: &str| redis::cmd("HSET").arg("lockgate:catalog").arg("a").arg(text).to_owned();
    link.command::<i64>("hset", &hset("no version")).await.unwrap();
    let store = RedisCatalog::new(link);
    for expected in [None, Some(0), Some(1)] {
        assert!(store.put(&row("a", 1, "x"), expected).await.is_err(), "{expected:?}");
    }
    assert_eq!(listed(&store).await, [row("a", 0, "no version")]);
}
