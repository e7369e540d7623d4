//! The catalog in memory over the model store, with stores that break, lose data, or hold what cannot be read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::watch;

use super::*;
use crate::{
    clock::Timestamp,
    ids::SaleId,
    limits::{MESSAGE_BYTES_MAX, SALES_MAX},
    sale::{EXAMPLE_TOML, SaleDefinition, parse_toml},
    testing::{ManualClock, eventually},
};

fn definition(id: &str) -> SaleDefinition {
    parse_toml("example.toml", &EXAMPLE_TOML.replacen("phone-drop", id, 1)).unwrap()
}

fn id(text: &str) -> SaleId {
    text.parse().unwrap()
}

fn catalog_at(store: &Arc<dyn CatalogStore>, seconds: i64) -> Catalog {
    Catalog::new(Arc::clone(store), Arc::new(ManualClock::at(Timestamp::from_seconds(seconds))))
}

fn catalog(store: &Arc<dyn CatalogStore>) -> Catalog {
    catalog_at(store, 1_000)
}

fn memory() -> Arc<dyn CatalogStore> {
    Arc::new(MemoryCatalog::default())
}

#[tokio::test]
async fn applying_creates_then_changes_then_leaves_alone() {
    let store = memory();
    let catalog = catalog(&store);
    let Applied::Created(created) = catalog.apply(definition("a"), None).await.unwrap() else { panic!() };
    assert_eq!((created.version, created.created_at), (1, Timestamp::from_seconds(1_000)));
    assert_eq!(created.controls, Controls::default());
    assert!(matches!(catalog.apply(definition("a"), None).await.unwrap(), Applied::Unchanged(_)));

    let mut faster = definition("a");
    faster.admission.rate_per_minute = 7;
    let Applied::Changed(changed) = catalog.apply(faster.clone(), Some(1)).await.unwrap() else { panic!() };
    assert_eq!((changed.version, &changed.secrets), (2, &created.secrets));
    assert_eq!(catalog.sale(&id("a")).unwrap().definition, faster);

    let stale = catalog.apply(definition("a"), Some(1)).await;
    assert!(matches!(stale, Err(ApplyError::Conflict { current: Some(2) })), "{stale:?}");
    let absent = catalog.apply(definition("b"), Some(1)).await;
    assert!(matches!(absent, Err(ApplyError::Conflict { current: None })), "{absent:?}");
    assert_eq!(catalog.sale(&id("b")), None);
}

#[tokio::test]
async fn p4_a_wrong_or_forbidden_definition_changes_nothing() {
    let store = memory();
    let catalog = catalog(&store);
    let mut wrong = definition("a");
    wrong.admission.token_seconds = 1;
    assert!(
        matches!(catalog.apply(wrong, None).await, Err(ApplyError::Invalid(problems)) if problems.len() == 1)
    );
    assert!(store.list().await.unwrap().is_empty());

    catalog.apply(definition("a"), None).await.unwrap();
    let mut other = definition("a");
    other.lanes = 4;
    let refused = catalog.apply(other, Some(1)).await;
    assert!(
        matches!(&refused, Err(ApplyError::Fixed(problems)) if problems[0].key == "lanes"),
        "{refused:?}"
    );
    assert_eq!(catalog.sale(&id("a")).unwrap().version, 1);
}

#[tokio::test]
async fn a_change_keeps_what_is_made_once_and_is_checked() {
    let store = memory();
    let catalog = catalog(&store);
    let before = Arc::clone(catalog.apply(definition("a"), None).await.unwrap().sale());
    let after = catalog
        .change(&id("a"), |sale| {
            sale.controls.paused = true;
            sale.secrets.lane_key = [0; 32];
            sale.created_at = Timestamp::default();
            sale.version = 99;
            sale.definition.id = id("b");
        })
        .await
        .unwrap();
    assert_eq!((after.version, after.controls.paused), (2, true));
    assert_eq!((&after.secrets, after.created_at), (&before.secrets, before.created_at));
    assert_eq!(after.definition, before.definition);

    let same = catalog.change(&id("a"), |sale| sale.controls.paused = true).await.unwrap();
    assert_eq!(same.version, 2, "nothing to write");
    let wrong = catalog.change(&id("a"), |sale| sale.admission_rate(0)).await;
    assert!(
        matches!(wrong, Err(ChangeError::Invalid(problems)) if problems[0].key == "admission.rate_per_minute")
    );
    let message = "x".repeat(MESSAGE_BYTES_MAX + 1);
    let long = catalog.change(&id("a"), |sale| sale.controls.message = Some(message.clone())).await;
    assert!(matches!(long, Err(ChangeError::Invalid(problems)) if problems[0].key == "message"));
    assert!(matches!(catalog.change(&id("b"), |_| {}).await, Err(ChangeError::NoSuchSale(_))));
    assert_eq!(catalog.sale(&id("a")).unwrap(), after);
}

impl StoredSale {
    fn admission_rate(&mut self, rate: u64) {
        self.definition.admission.rate_per_minute = rate;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_from_many_processes_at_once_all_count() {
    let store = memory();
    catalog(&store).apply(definition("a"), None).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let catalog = catalog(&store);
        tasks.spawn(async move {
            for _ in 0..25 {
                while matches!(
                    catalog.change(&id("a"), |sale| sale.controls.epoch += 1).await,
                    Err(ChangeError::Busy)
                ) {}
            }
        });
    }
    tasks.join_all().await;
    let after = catalog(&store);
    after.refresh().await.unwrap();
    assert_eq!(after.sale(&id("a")).unwrap().controls.epoch, 100);
}

#[tokio::test]
async fn a_refresh_shows_what_others_did_in_order_of_opening() {
    let store = memory();
    let (here, there) = (catalog(&store), catalog(&store));
    let mut early = definition("z");
    early.doors_open_at = Timestamp::from_seconds(10);
    early.opens_at = Timestamp::from_seconds(20);
    for definition in [definition("b"), definition("a"), early] {
        there.apply(definition, None).await.unwrap();
    }
    assert!(here.sales().is_empty());
    here.refresh().await.unwrap();
    let ids: Vec<_> = here.sales().iter().map(|sale| sale.definition.id.to_string()).collect();
    assert_eq!(ids, ["z", "a", "b"]);

    let before = here.sale(&id("a")).unwrap();
    there.change(&id("b"), |sale| sale.controls.closed = true).await.unwrap();
    here.refresh().await.unwrap();
    assert!(here.sale(&id("b")).unwrap().controls.closed);
    assert!(Arc::ptr_eq(&before, &here.sale(&id("a")).unwrap()), "what did not change is not read again");
}

#[tokio::test]
async fn l5_what_the_store_lost_is_kept_and_put_back() {
    let store = memory();
    let here = catalog(&store);
    let first = Arc::clone(here.apply(definition("a"), None).await.unwrap().sale());
    let old_row = store.list().await.unwrap().remove(0);
    let revoked = here.change(&id("a"), |sale| sale.controls.epoch = 5).await.unwrap();

    // A fail-over lost the last change.
    let behind: Arc<dyn CatalogStore> = memory();
    behind.put(&old_row, None).await.unwrap();
    // A fail-over lost everything.
    let empty: Arc<dyn CatalogStore> = memory();
    for lost in [behind, empty] {
        let here = Catalog { store: Arc::clone(&lost), ..catalog_with(&here) };
        here.refresh().await.unwrap();
        assert_eq!(here.sale(&id("a")).unwrap(), revoked);
        let fresh = catalog(&lost);
        fresh.refresh().await.unwrap();
        assert_eq!(fresh.sale(&id("a")).unwrap(), revoked);
        assert_eq!(revoked.secrets, first.secrets);
    }

    // A process that started over the emptied store made the sale anew. Its secrets would place everybody anew.
    let anew: Arc<dyn CatalogStore> = memory();
    let other = catalog_at(&anew, 2_000);
    let made = Arc::clone(other.apply(definition("a"), None).await.unwrap().sale());
    let changed = other.change(&id("a"), |sale| sale.controls.paused = true).await.unwrap();
    assert!(changed.version > made.version && made.secrets != revoked.secrets);
    let here = Catalog { store: Arc::clone(&anew), ..catalog_with(&here) };
    here.refresh().await.unwrap();
    other.refresh().await.unwrap();
    for catalog in [&here, &other, &catalog(&anew)] {
        catalog.refresh().await.unwrap();
        assert_eq!(catalog.sale(&id("a")).unwrap(), revoked, "the earlier one is the sale");
    }
}

/// A catalog that knows what `known` knows, over an empty store.
fn catalog_with(known: &Catalog) -> Catalog {
    let catalog = catalog(&memory());
    catalog.live.store(known.live.load_full());
    catalog
}

#[tokio::test]
async fn a_row_that_cannot_be_read_hinders_no_other_and_stays_as_known() {
    let store = memory();
    let here = catalog(&store);
    for name in ["a", "b"] {
        here.apply(definition(name), None).await.unwrap();
    }
    let row = |id: &str, version, body: &str| SaleRow { id: id.into(), version, body: body.into() };
    let newer =
        store.list().await.unwrap()[0].body.replacen("\"lanes\"", "\"from_the_future\":1,\"lanes\"", 1);
    store.put(&row("a", 2, &newer), Some(1)).await.unwrap();
    store.put(&row("c", 1, "not JSON"), None).await.unwrap();
    store.put(&row("d", 1, &newer), None).await.unwrap();
    store.put(&row("NO ID", 0, ""), None).await.unwrap();
    there_changes(&store).await;
    here.refresh().await.unwrap();
    assert_eq!(here.sale(&id("a")).unwrap().version, 1, "as it was known");
    assert!(here.sale(&id("b")).unwrap().controls.paused, "others go on");
    assert_eq!(here.sales().len(), 2);
    assert_eq!(store.list().await.unwrap().len(), 5, "nothing is overwritten");
    assert!(matches!(
        here.change(&id("a"), |sale| sale.controls.paused = true).await,
        Err(ChangeError::Unreadable(_))
    ));
    assert!(matches!(here.apply(definition("c"), None).await, Err(ApplyError::Unreadable(_))));
}

async fn there_changes(store: &Arc<dyn CatalogStore>) {
    let there = catalog(store);
    there.change(&id("b"), |sale| sale.controls.paused = true).await.unwrap();
}

#[tokio::test]
async fn there_is_room_for_a_bounded_number_of_sales() {
    let store = memory();
    let catalog = catalog(&store);
    let template = catalog.apply(definition("a"), None).await.unwrap().sale().as_ref().clone();
    for n in 1..SALES_MAX {
        let mut sale = template.clone();
        sale.definition.id = id(&format!("sale-{n}"));
        store.put(&sale.to_row().unwrap(), None).await.unwrap();
    }
    assert!(matches!(catalog.apply(definition("b"), None).await, Err(ApplyError::TooMany)));
    assert!(matches!(catalog.apply(definition("a"), None).await, Ok(Applied::Unchanged(_))));
}

#[test]
fn secrets_are_random_and_show_nowhere() {
    let mut rng = rand::rng();
    let (one, two) = (SaleSecrets::generate(&mut rng), SaleSecrets::generate(&mut rng));
    assert!(one != two && one.lane_key != one.account_key && one.account_key != one.draw_secret);
    let text = serde_json::to_string(&one).unwrap();
    assert_eq!(serde_json::from_str::<SaleSecrets>(&text).unwrap(), one);
    let sale = StoredSale {
        definition: definition("a"),
        secrets: one,
        controls: Controls::default(),
        version: 3,
        created_at: Timestamp::from_seconds(5),
    };
    let row = sale.to_row().unwrap();
    assert_eq!(StoredSale::from_row(&row).unwrap(), sale);
    let lane_key = text.split('"').nth(3).unwrap();
    assert!(row.body.contains(lane_key), "the row is where it is kept");
    let broken = SaleRow { body: row.body.replacen(lane_key, &format!("?{lane_key}"), 1), ..row.clone() };
    let error = StoredSale::from_row(&broken).unwrap_err();
    for shown in [format!("{sale:?}"), format!("{row:?}"), error] {
        assert!(
            !shown.contains(lane_key) && !shown.contains(&format!("{:?}", sale.secrets.lane_key)),
            "{shown}"
        );
    }
}

/// A store that breaks on demand and counts its calls.
#[derive(Default)]
struct Flaky {
    inner: MemoryCatalog,
    is_broken: AtomicBool,
    lists: AtomicUsize,
}

#[async_trait]
impl CatalogStore for Flaky {
    async fn list(&self) -> Result<Vec<SaleRow>, StoreError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(StoreError::untouched("catalog list", "broken for the test"));
        }
        self.inner.list().await
    }

    async fn put(&self, row: &SaleRow, expected: Option<u64>) -> Result<PutOutcome, StoreError> {
        self.inner.put(row, expected).await
    }
}

#[tokio::test]
async fn a_watch_outlives_a_broken_store_and_ends_when_told() {
    let flaky = Arc::new(Flaky::default());
    let store: Arc<dyn CatalogStore> = Arc::clone(&flaky) as _;
    let (here, there) = (Arc::new(catalog(&store)), catalog(&store));
    there.apply(definition("a"), None).await.unwrap();
    let (stop, stopped) = watch::channel(false);
    let every = Duration::from_millis(2);
    let watching = Arc::clone(&here).watch(every, stopped);
    eventually("the sale is seen", 5, async || here.sale(&id("a")).is_some()).await;

    flaky.is_broken.store(true, Ordering::SeqCst);
    let lists = flaky.lists.load(Ordering::SeqCst);
    eventually("it goes on asking", 5, async || flaky.lists.load(Ordering::SeqCst) > lists + 5).await;
    assert!(here.sale(&id("a")).is_some(), "what was known is served");
    assert!(matches!(here.change(&id("a"), |_| {}).await, Err(ChangeError::Store(_))));

    flaky.is_broken.store(false, Ordering::SeqCst);
    there.change(&id("a"), |sale| sale.controls.paused = true).await.unwrap();
    eventually("the change is seen", 5, async || here.sale(&id("a")).unwrap().controls.paused).await;
    stop.send(true).unwrap();
    watching.await.unwrap();

    let (sender, stopped) = watch::channel(false);
    let watching = Arc::clone(&here).watch(every, stopped);
    drop(sender);
    watching.await.unwrap();
}
