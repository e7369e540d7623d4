//! The processes of a sale: gates over one store, checkouts over one database, started, killed at any await and
//! started anew with nothing in memory.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use lockgate_checkout::{App, AppParts, Gateway};
use lockgate_shared::{
    catalog::{Catalog, MemoryCatalog, StoredSale},
    edge::rate_limit::AccountLimit,
    events::EventLog,
    gate::{AUDIENCE, GateClient},
    keys::KeyRing,
    operator::OperatorKeys,
    sale::parse_toml,
    service_call::{CallError, Transport},
    service_token::ServiceSigner,
    testing::demo_ring,
};
use lockgate_stock_gate as stock_gate;
use tokio::{sync::watch, task::AbortHandle, time::sleep};
use tower::{ServiceExt as _, util::BoxCloneSyncService};

use crate::{
    bank::Bank,
    gate_seam::GateSeam,
    log::Log,
    order_seam::OrderSeam,
    planted::Planted,
    seams::{Cut, over},
    world::{Seam, World, lock},
};

pub const HOLD_SECONDS: u32 = 10;
pub const PER_ACCOUNT_LIMIT: u32 = 3;
pub const TOTAL_LIMIT: u32 = 6;
/// Items and units of each: more together than the sale-wide limit lets go.
pub const ITEMS: [(&str, u32); 3] = [("red", 2), ("blue", 3), ("green", 4)];

fn definition() -> String {
    let at = |seconds: i64| {
        lockgate_shared::clock::Timestamp::from_seconds(crate::world::BEGIN_SECONDS + seconds).to_string()
    };
    let mut text = format!(
        "id = \"drop\"\nname = \"Drop\"\ndoors_open_at = {}\nopens_at = {}\ncloses_at = {}\n\
         per_account_limit = {PER_ACCOUNT_LIMIT}\ntotal_limit = {TOTAL_LIMIT}\nhold_seconds = {HOLD_SECONDS}\n\
         [admission]\nrate_per_minute = 6000\n",
        at(-600),
        at(-300),
        at(3_600),
    );
    for (item, stock) in ITEMS {
        text.push_str(&format!(
            "[[items]]\nitem = \"{item}\"\nname = \"{item}\"\nstock = {stock}\nprice = 1000\ncurrency = \"EUR\"\n"
        ));
    }
    text
}

/// Why a process did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Died {
    /// None is up.
    Nobody,
    /// It was killed while it was at it.
    Killed,
}

struct Process<T> {
    service: Option<T>,
    tasks: Vec<AbortHandle>,
    _stop: watch::Sender<bool>,
}

/// Processes of one kind.
pub struct Fleet<T> {
    kind: &'static str,
    processes: Mutex<Vec<Process<T>>>,
}

impl<T: Clone + Send + 'static> Fleet<T> {
    fn new(kind: &'static str) -> Self {
        Self { kind, processes: Mutex::default() }
    }

    /// Has any process that is up do something. It goes on if nobody waits for it, as in another process.
    pub async fn ask<A, F>(&self, world: &World, act: impl FnOnce(T) -> F) -> Result<A, Died>
    where
        A: Send + 'static,
        F: Future<Output = A> + Send + 'static,
    {
        let task = {
            let mut processes = lock(&self.processes);
            let up: Vec<usize> = (0..processes.len()).filter(|n| processes[*n].service.is_some()).collect();
            if up.is_empty() {
                return Err(Died::Nobody);
            }
            let process = &mut processes[up[world.below(up.len() as u32) as usize]];
            let task = tokio::spawn(act(process.service.clone().unwrap()));
            process.tasks.retain(|task| !task.is_finished());
            process.tasks.push(task.abort_handle());
            task
        };
        task.await.map_err(|error| {
            if error.is_panic() {
                world.violate(&format!("a {} panicked", self.kind));
            }
            Died::Killed
        })
    }

    /// Any service that is up, to look at it.
    pub fn any(&self) -> Option<T> {
        lock(&self.processes).iter().find_map(|process| process.service.clone())
    }

    fn kill(&self, world: &World, n: usize) {
        let mut processes = lock(&self.processes);
        let process = &mut processes[n];
        if process.service.take().is_some() {
            world.count(&format!("{} killed", self.kind));
            world.note(format!("{} {n} is killed", self.kind));
            process.tasks.drain(..).for_each(|task| task.abort());
        }
    }

    fn put(&self, world: &World, n: usize, process: Process<T>) {
        let mut processes = lock(&self.processes);
        world.note(format!("{} {n} is up", self.kind));
        if n == processes.len() {
            processes.push(process);
        } else {
            processes[n] = process;
        }
    }
}

pub type Gates = Fleet<Router>;
pub type Checkouts = Fleet<Arc<App>>;

/// All processes, and what they are made of.
pub struct House {
    pub world: Arc<World>,
    pub checkouts: Arc<Checkouts>,
    gates: Arc<Gates>,
    catalog: Arc<MemoryCatalog>,
    pub ring: Arc<KeyRing>,
    log: Arc<dyn EventLog>,
    /// The same, to cut its tail off.
    cut: Log,
    planted: Planted,
    sale: Arc<StoredSale>,
    /// Of each kind.
    processes: usize,
}

impl House {
    pub async fn open(world: &Arc<World>, planted: Planted) -> Arc<Self> {
        let store = Arc::new(MemoryCatalog::default());
        let catalog = Catalog::new(Arc::<MemoryCatalog>::clone(&store), Arc::new(world.clock.clone()));
        catalog.apply(parse_toml("simulation", &definition()).unwrap(), None).await.unwrap();
        let log = Log::of(world);
        let house = Arc::new(Self {
            world: Arc::clone(world),
            checkouts: Arc::new(Fleet::new("checkout")),
            gates: Arc::new(Fleet::new("gate")),
            catalog: store,
            ring: Arc::new(demo_ring()),
            log: planted.log(log.clone()),
            cut: log,
            planted,
            sale: catalog.sale(&world.sale).unwrap(),
            processes: 1 + world.below(2) as usize,
        });
        for n in 0..house.processes {
            house.start_gate(n).await;
            house.start_checkout(n).await;
        }
        house
    }

    /// The sale as every process knows it.
    pub fn sale(&self) -> Arc<StoredSale> {
        Arc::clone(&self.sale)
    }

    async fn catalog(&self) -> Arc<Catalog> {
        let store = Arc::<MemoryCatalog>::clone(&self.catalog);
        let catalog = Catalog::new(store, Arc::new(self.world.clock.clone()));
        catalog.refresh().await.unwrap();
        Arc::new(catalog)
    }

    async fn start_gate(&self, n: usize) {
        let app = Arc::new(stock_gate::App::new(stock_gate::AppParts {
            catalog: self.catalog().await,
            store: Arc::new(GateSeam { world: Arc::clone(&self.world), planted: self.planted }),
            ring: Arc::clone(&self.ring),
            clock: Arc::new(self.world.gate_clock.clone()),
        }));
        let (stop, stopped) = watch::channel(false);
        let sweeps = tokio::spawn(stock_gate::run(Arc::clone(&app), stopped));
        let service = Some(stock_gate::router(app));
        self.gates.put(&self.world, n, Process { service, tasks: vec![sweeps.abort_handle()], _stop: stop });
    }

    async fn start_checkout(&self, n: usize) {
        let clock = Arc::new(self.world.clock.clone());
        let signer = Arc::new(ServiceSigner::new(Arc::clone(&self.ring), AUDIENCE));
        let parts = AppParts {
            catalog: self.catalog().await,
            store: Arc::new(OrderSeam { world: Arc::clone(&self.world) }),
            gate: GateClient::new(self.transport(), signer, Arc::<crate::world::VirtualClock>::clone(&clock)),
            events: Arc::clone(&self.log),
            gateway: self.gateway(),
            ring: Arc::clone(&self.ring),
            clock,
            public_url: "http://shop.test".to_owned(),
            operator_keys: Arc::new(OperatorKeys::default()),
            process_id: format!("checkout-{n}-{}", self.world.below(1_000_000)),
        };
        let app = App::with_account_limit(parts, Arc::new(AccountLimit::new(None)));
        let (stop, stopped) = watch::channel(false);
        let loops = tokio::spawn(lockgate_checkout::run(Arc::clone(&app), stopped));
        let tasks = vec![loops.abort_handle()];
        self.checkouts.put(&self.world, n, Process { service: Some(app), tasks, _stop: stop });
    }

    fn gateway(&self) -> Arc<dyn Gateway> {
        self.planted.gateway(Bank { world: Arc::clone(&self.world) })
    }

    /// The way to the gates: any of them, over a network that may fail.
    fn transport(&self) -> Transport {
        let (world, gates) = (Arc::clone(&self.world), Arc::clone(&self.gates));
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            send(Arc::clone(&world), Arc::clone(&gates), request)
        }))
    }

    /// Kills processes and sets clocks, until the weather calms down.
    pub async fn trouble(self: Arc<Self>) {
        let world = Arc::clone(&self.world);
        // Some seeds know hardly any deaths, others one after another.
        let pause_ms = [900, 3_000, 12_000][world.below(3) as usize];
        let are_clocks_bad = world.chance(400);
        loop {
            let mut pause = world.between_ms(100, pause_ms);
            while !world.is_calm() && !pause.is_zero() {
                let part = pause.min(Duration::from_millis(250));
                sleep(part).await;
                pause -= part;
            }
            if world.is_calm() {
                return;
            }
            let n = world.below(self.processes as u32) as usize;
            match world.below(4) {
                3 => {
                    if let Some(left) = world.fail_over() {
                        self.cut.cut(left);
                    }
                }
                0 => {
                    self.gates.kill(&world, n);
                    sleep(world.between_ms(0, 2_000)).await;
                    self.start_gate(n).await;
                }
                1 => {
                    self.checkouts.kill(&world, n);
                    sleep(world.between_ms(0, 2_000)).await;
                    self.start_checkout(n).await;
                }
                _ if are_clocks_bad => {
                    let store = i64::from(world.below(30_000)) - 15_000;
                    let gate = i64::from(world.below(8_000)) - 4_000;
                    world.store_clock.set_off_ms(store);
                    world.gate_clock.set_off_ms(gate);
                    world.count("clock set");
                    world.note(format!("the store's clock is off by {store} ms, the gates' by {gate} ms"));
                }
                _ => {}
            }
        }
    }
}

async fn send(
    world: Arc<World>,
    gates: Arc<Gates>,
    request: Request<Body>,
) -> Result<Response<Body>, CallError> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| CallError::Unreached(error.to_string()))?.to_bytes();
    let what = format!("{} {}", parts.method, parts.uri.path().rsplit('/').next().unwrap_or_default());
    let what = if what.len() > 20 { "GET hold".to_owned() } else { what };
    let sender = Arc::clone(&world);
    let answer = over(&sender, Seam::GateCall, &what, move || {
        let (world, gates) = (Arc::clone(&world), Arc::clone(&gates));
        let request = Request::from_parts(parts.clone(), Body::from(body.clone()));
        async move {
            let act = |router: Router| async move {
                router.oneshot(request).await.unwrap_or_else(|never: Infallible| match never {})
            };
            gates.ask(&world, act).await
        }
    });
    match answer.await {
        Ok(Ok(response)) => Ok(response),
        Err(Cut::Refused) | Ok(Err(Died::Nobody)) => Err(CallError::Unreached("nobody is there".to_owned())),
        Err(Cut::Lost) | Ok(Err(Died::Killed)) => Err(CallError::Lost("the answer was lost".to_owned())),
    }
}

/// How long a shopper's own call to checkout may take before the browser gives up.
pub const PATIENCE: Duration = Duration::from_secs(15);
