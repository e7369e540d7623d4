//! For tests: every back end behind one face, and what must always be true of it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use lockgate_shared::{
    clock::{Clock, Timestamp},
    events::{Event, EventLog, redis::RedisEventLog, sqlite::EVENTS_SQLITE, sqlite::SqliteEventLog},
    gate::{
        ClaimAnswer, ClaimRequest, ConcludeAnswer, ConcludeRequest, Freeze, FreezeAnswer, Hold, HoldState,
        StageAnswer, StageRequest, StockSnapshot, ledger::Ledger,
    },
    ids::{AccountHash, ClaimId, ItemId, SaleId, TokenId},
    store::{redis::RedisLink, sqlite::Sqlite},
    testing::PrivateRedis,
};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::{
    Claim, FreezeOrder, Store,
    model::ModelStore,
    redis::{RedisSettings, RedisStore},
    sqlite::{STOCK_SQLITE, SqliteStore},
};
use crate::stock::Limits;

/// A test of each case for one back end.
macro_rules! stamp {
    ($back_end:ident: $($case:ident)*) => {
        mod $back_end {
            $(#[tokio::test]
            async fn $case() {
                let bench = super::Bench::$back_end().await;
                super::$case(&bench).await;
            })*
        }
    };
}

/// A test of each case for each back end.
macro_rules! conformance {
    ($($case:ident)*) => {
        stamp!(model: $($case)*);
        stamp!(sqlite: $($case)*);
        stamp!(redis: $($case)*);

        #[tokio::test]
        async fn a_cluster_of_three_answers_alike() {
            let cluster = lockgate_shared::testing::PrivateCluster::start().await;
            $(
                let prefix = concat!(stringify!($case), ":");
                let settings = crate::store::redis::RedisSettings::default();
                let (bench, _) = Bench::on(&cluster.url(), prefix, settings).await;
                $case(&bench).await;
            )*
        }
    };
}
pub(crate) use {conformance, stamp};

/// Moves on by a millisecond whenever it is read, so that no two claims fall due at the same moment.
pub(crate) struct TickingClock(AtomicI64);

impl TickingClock {
    pub(crate) fn start() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_800_000_000_000_000)))
    }
}

impl Clock for TickingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.fetch_add(1_000, Ordering::SeqCst))
    }
}

/// One back end.
pub(crate) struct Bench {
    pub(crate) store: Arc<dyn Store>,
    model: Option<Arc<ModelStore>>,
    log: Option<Box<dyn EventLog>>,
    seen: Mutex<HashMap<SaleId, Vec<Event>>>,
    pub(crate) db: Option<Sqlite>,
    pub(crate) redis: Option<(PrivateRedis, RedisLink)>,
    _dir: Option<tempfile::TempDir>,
}

impl Bench {
    fn over(store: Arc<dyn Store>) -> Self {
        Self { store, model: None, log: None, seen: Mutex::default(), db: None, redis: None, _dir: None }
    }

    pub(crate) async fn model() -> Self {
        let model = Arc::new(ModelStore::new(TickingClock::start()));
        let store: Arc<dyn Store> = Arc::<ModelStore>::clone(&model);
        Self { model: Some(model), ..Self::over(store) }
    }

    pub(crate) async fn sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let migrations = [("events", EVENTS_SQLITE), ("stock", STOCK_SQLITE)];
        let db = Sqlite::open(&dir.path().join("gate.db"), &migrations).unwrap();
        Self {
            log: Some(Box::new(SqliteEventLog::new(db.clone()))),
            db: Some(db.clone()),
            _dir: Some(dir),
            ..Self::over(Arc::new(SqliteStore::new(db, TickingClock::start())))
        }
    }

    pub(crate) async fn redis() -> Self {
        Self::redis_with(&["--appendonly", "yes", "--appendfsync", "always"]).await
    }

    pub(crate) async fn redis_with(arguments: &[&str]) -> Self {
        let server = PrivateRedis::start_with(arguments).await;
        let link = RedisLink::connect(server.url(), "t:").await.unwrap();
        Self {
            log: Some(Box::new(RedisEventLog::new(link.clone()))),
            redis: Some((server, link.clone())),
            ..Self::over(Arc::new(RedisStore::new(link)))
        }
    }

    /// Over servers that the test itself started, under a prefix of its own.
    pub(crate) async fn on(url: &str, prefix: &str, settings: RedisSettings) -> (Self, RedisLink) {
        let link = RedisLink::connect(url, prefix).await.unwrap();
        let store = Arc::new(RedisStore::with(link.clone(), settings));
        let log: Box<dyn EventLog> = Box::new(RedisEventLog::new(link.clone()));
        (Self { log: Some(log), ..Self::over(store) }, link)
    }

    /// Everything that happened in a sale so far, in order.
    pub(crate) async fn events(&self, sale: &SaleId) -> Vec<Event> {
        let Some(log) = &self.log else {
            return self.model.as_ref().unwrap().events(sale);
        };
        let mut seen = self.seen.lock().await;
        let events = seen.entry(sale.clone()).or_default();
        loop {
            let batch =
                log.read(sale, "test", "test", lockgate_shared::limits::EVENT_BATCH_MAX).await.unwrap();
            assert!(batch.poison.is_empty(), "{:?}", batch.poison);
            if batch.events.is_empty() {
                return events.clone();
            }
            let ids: Vec<String> = batch.events.iter().map(|event| event.id.clone()).collect();
            log.acknowledge(sale, "test", &ids).await.unwrap();
            events.extend(batch.events);
        }
    }
}

pub(crate) fn sale(name: &str) -> SaleId {
    name.parse().unwrap()
}

pub(crate) fn item(name: &str) -> ItemId {
    name.parse().unwrap()
}

pub(crate) fn account(n: u32) -> AccountHash {
    let [_, _, high, low] = n.to_be_bytes();
    let mut bytes = [0; 16];
    (bytes[6], bytes[7], bytes[15]) = (high, low, 1);
    AccountHash::from_bytes(bytes)
}

pub(crate) fn claim_id(n: u32) -> ClaimId {
    let mut bytes = [0x11; 16];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    Uuid::from_bytes(bytes).into()
}

pub(crate) fn token_id(n: u32) -> TokenId {
    format!("-_token{n}").parse().unwrap()
}

/// A claim for one unit of `phone` by account `n`, held for an hour, under no limit.
pub(crate) fn claim(n: u32) -> Claim {
    Claim {
        request: ClaimRequest {
            claim: claim_id(n),
            account: account(n),
            item: item("phone"),
            quantity: 1,
            epoch: 0,
            admitted_at: 7,
            token_id: token_id(n),
            memo: format!("memo of {n}"),
        },
        hold_seconds: 3_600,
        limits: Limits { per_account: 1_000, total: None, abandoned_holds: None, live_holds: None },
        refusal: None,
    }
}

/// The hold of an answer that must be one.
pub(crate) fn held(answer: ClaimAnswer) -> Hold {
    match answer {
        ClaimAnswer::Held { hold, .. } => hold,
        other => panic!("not held: {other:?}"),
    }
}

pub(crate) async fn take(bench: &Bench, sale: &SaleId, claim: &Claim) -> Hold {
    held(bench.store.claim(sale, claim).await.unwrap())
}

/// Every hold the store has, page by page.
pub(crate) async fn all_holds(store: &dyn Store, sale: &SaleId) -> Vec<Hold> {
    let (mut holds, mut after) = (BTreeMap::new(), None);
    loop {
        let page = store.holds(sale, after.as_deref(), 3).await.unwrap();
        assert_eq!(page.unreadable, 0);
        holds.extend(page.holds.into_iter().map(|hold| (hold.claim, hold)));
        after = page.next;
        if after.is_none() {
            return holds.into_values().collect();
        }
    }
}

/// A freeze of whatever generation the sale has.
pub(crate) fn freeze_order(n: u128) -> FreezeOrder {
    FreezeOrder { id: Uuid::from_u128(n), if_generation: None, at_least: 0, why: "a test".into() }
}

/// Freezes a sale, or finds it frozen.
pub(crate) async fn freeze(store: &dyn Store, sale: &SaleId) -> Freeze {
    match store.freeze(sale, &freeze_order(77)).await.unwrap() {
        FreezeAnswer::Frozen(freeze) => freeze,
        other => panic!("{other:?}"),
    }
}

/// A stock of these holds, as it is uploaded: its pages, and its conclusion.
pub(crate) fn rebuilt(
    freeze: Freeze,
    token: u128,
    holds: &[Hold],
    items: &[(ItemId, u32)],
) -> (Vec<StageRequest>, ConcludeRequest) {
    let (ledger, token) = (Ledger::of(holds, items), Uuid::from_u128(token));
    let page = |holds: &[Hold]| StageRequest {
        freeze: freeze.id,
        token,
        items: items.iter().map(|(item, _)| item.clone()).collect(),
        holds: holds.to_vec(),
        accounts: ledger.accounts.clone(),
        returned: ledger.returned.clone(),
    };
    let mut pages: Vec<StageRequest> = holds.chunks(4).map(page).collect();
    pages.push(page(&[]));
    let conclusion = ConcludeRequest::of(freeze, token, holds.len(), &ledger);
    (pages, conclusion)
}

/// Rebuilds a sale from the holds it has.
pub(crate) async fn rebuild(store: &dyn Store, sale: &SaleId, items: &[(ItemId, u32)]) -> ConcludeAnswer {
    let freeze = freeze(store, sale).await;
    let (pages, conclusion) = rebuilt(freeze, 5, &all_holds(store, sale).await, items);
    for page in &pages {
        assert_eq!(store.stage(sale, page).await.unwrap(), StageAnswer::Staged);
    }
    store.conclude(sale, &conclusion).await.unwrap()
}

/// Puts a new sale's stock there.
pub(crate) async fn open(store: &dyn Store, sale: &SaleId, items: &[(ItemId, u32)]) {
    assert_eq!(rebuild(store, sale, items).await, ConcludeAnswer::Reopened { generation: 1 });
}

/// The invariant, from what the store says of its counts and of the holds of these claims (which must be all).
pub(crate) async fn check_invariant(
    store: &dyn Store,
    sale: &SaleId,
    claims: impl IntoIterator<Item = ClaimId>,
) -> StockSnapshot {
    let snapshot = store.stock(sale, None).await.unwrap();
    let mut held: BTreeMap<ItemId, u32> = BTreeMap::new();
    let mut sold = held.clone();
    let mut owned = BTreeSet::new();
    let mut claimants = BTreeSet::new();
    for claim in claims {
        let Some(hold) = store.hold(sale, claim).await.unwrap() else {
            continue;
        };
        claimants.insert(hold.account.short());
        let count = u32::try_from(hold.units.len()).unwrap();
        match hold.state {
            HoldState::Held | HoldState::Expiring => *held.entry(hold.item.clone()).or_default() += count,
            HoldState::Committed => *sold.entry(hold.item.clone()).or_default() += count,
            HoldState::Released => continue,
        }
        for unit in &hold.units {
            assert!(*unit >= 1);
            assert!(owned.insert((hold.item.clone(), *unit)), "unit {unit} has two owners");
        }
    }
    for item in &snapshot.items {
        assert_eq!(item.available + item.held + item.sold, item.stock, "{item:?}");
        assert_eq!(item.held, held.get(&item.item).copied().unwrap_or(0), "{item:?}");
        assert_eq!(item.sold, sold.get(&item.item).copied().unwrap_or(0), "{item:?}");
    }
    if snapshot.items.iter().any(|item| item.available == 0) {
        assert_eq!(snapshot.claimants.iter().copied().collect::<BTreeSet<u64>>(), claimants);
    } else {
        assert!(snapshot.claimants.is_empty());
    }
    snapshot
}
