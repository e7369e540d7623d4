//! Puts one process together: stores, services, listeners; and takes it down again on SIGTERM.

use std::{fs::File, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use axum::Router;
use lockgate_checkout::{self as checkout, Gateway, Simulated, simulated};
use lockgate_shared::{
    catalog::Catalog,
    clock::{Clock, SystemClock},
    edge::{self, Edge},
    gate::{self, GateClient},
    keys::KeyRing,
    operator::{OperatorKeys, Role},
    service_token::ServiceSigner,
};
use lockgate_stock_gate as stock_gate;
use lockgate_waiting_room as waiting_room;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

use crate::{
    Options,
    config::Config,
    exit::Failure,
    keys, networks, operations,
    operations::Check,
    payments, print, sale_files,
    stores::{self, Stores},
    telemetry,
};

/// How often every process looks for changed sale definitions.
const CATALOG_POLL_MS: u64 = 500;
/// How often histograms are drained into their buckets.
const METRICS_UPKEEP_SECONDS: u64 = 5;

/// What one process serves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    waiting_room: bool,
    stock_gate: bool,
    checkout: bool,
    simulated_gateway: bool,
}

impl Roles {
    const NONE: Self =
        Self { waiting_room: false, stock_gate: false, checkout: false, simulated_gateway: false };
    /// The all-in-one.
    pub const ALL: Self =
        Self { waiting_room: true, stock_gate: true, checkout: true, simulated_gateway: true };
    /// The line alone.
    pub const WAITING_ROOM: Self = Self { waiting_room: true, ..Self::NONE };
    /// The stock alone.
    pub const STOCK_GATE: Self = Self { stock_gate: true, ..Self::NONE };
    /// Orders and payments alone.
    pub const CHECKOUT: Self = Self { checkout: true, ..Self::NONE };
    /// The simulated payment gateway alone.
    pub const SIMULATED_GATEWAY: Self = Self { simulated_gateway: true, ..Self::NONE };
}

/// Everything the services of a process are made of.
struct Parts {
    config: Config,
    roles: Roles,
    stores: Stores,
    catalog: Arc<Catalog>,
    ring: Arc<KeyRing>,
    clock: Arc<dyn Clock>,
    operator_keys: Arc<OperatorKeys>,
    public_url: String,
    listen: SocketAddr,
    process_id: String,
    edge: Arc<Edge>,
}

/// The finished services: what they serve, what runs beside, what must answer before they are ready.
#[derive(Default)]
struct Services {
    public: Router,
    operator: Router,
    checks: Vec<Check>,
    loops: JoinSet<()>,
}

/// Serves `roles` until SIGTERM or SIGINT.
///
/// # Errors
/// Bad configuration, or a store or listener that cannot be opened.
pub fn run(roles: Roles, options: &Options) -> Result<(), Failure> {
    let config = options.load()?;
    check_roles(roles, &config)?;
    let metrics = telemetry::start(&config).map_err(Failure::running)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::running)?;
    runtime.block_on(serve(roles, config, options, metrics))
}

/// A role that runs alone shares its stores with others, which a SQLite file cannot be.
fn check_roles(roles: Roles, config: &Config) -> Result<(), Failure> {
    if roles == Roles::SIMULATED_GATEWAY && config.stripe().is_some() {
        let what = "gateway.kind: is stripe, next to which no simulated gateway runs; remove it here, or do not start this role";
        return Err(Failure::usage(what));
    }
    if roles == Roles::ALL || roles == Roles::SIMULATED_GATEWAY {
        return Ok(());
    }
    let mut missing = Vec::new();
    if config.store_url.is_none() {
        missing.push("store.url: is missing; a role that runs alone needs redis://…");
    }
    if config.keys_file.is_none() {
        missing.push("keys.file: is missing; every role must verify what the others sign");
    }
    if roles.checkout && config.orders_url.is_none() {
        missing.push("orders.url: is missing; a checkout that runs alone needs postgres://…");
    }
    if !roles.stock_gate && config.gate_url.is_none() {
        missing.push("gate.url: is missing; name the stock gate's address");
    }
    if roles.checkout && config.gateway_url.is_none() && config.stripe().is_none() {
        missing.push(
            "gateway.url: is missing; name the simulated gateway's address, or set gateway.kind to stripe",
        );
    }
    if missing.is_empty() { Ok(()) } else { Err(Failure::usage(missing.join("\n"))) }
}

async fn serve(
    roles: Roles,
    config: Config,
    options: &Options,
    metrics: PrometheusHandle,
) -> Result<(), Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let _lock = lock_data_folder(&config.data)?;
    let ring = open_ring(roles, &config)?;
    let (operator_keys, printed_key) = operator_keys(&config)?;
    let (stop, stopped) = watch::channel(false);
    // Signals are taken before anything is served, so that none in between is lost.
    let signals = tokio::spawn(wait_for_signal());
    let listener = bind(config.listen)?;
    let operator_listener = match config.operator_listen {
        Some(address) => Some(bind(address)?),
        None => None,
    };
    let listen = listener.local_addr().map_err(Failure::running)?;
    let stores = stores::open(&config, &clock, roles.checkout).await?;
    let catalog = Arc::new(Catalog::new(Arc::clone(&stores.catalog), Arc::clone(&clock)));
    catalog.refresh().await.map_err(Failure::running)?;
    let shows_demo = options.config.is_none() && roles == Roles::ALL;
    let may_show = shows_demo && !config.takes_real_money();
    let is_shared = config.store_url.is_some();
    sale_files::apply(
        &catalog,
        &options.sale,
        may_show.then(|| clock.now()),
        stores.orders.as_deref(),
        is_shared,
    )
    .await?;
    if roles.checkout {
        payments::refuse_play(&config, &catalog, shows_demo)?;
    }
    let parts = Parts {
        public_url: config.public_url.clone().unwrap_or_else(|| format!("http://{listen}")),
        process_id: format!("{}-{:08x}", std::process::id(), rand::random::<u32>()),
        operator_keys: Arc::clone(&operator_keys),
        edge: Arc::new(Edge::new(config.edge(), catalog.live_networks())),
        config,
        roles,
        stores,
        catalog: Arc::clone(&catalog),
        ring,
        clock,
        listen,
    };
    let mut services = assemble(&parts, &stopped)?;
    services.loops.spawn(upkeep(metrics.clone(), stopped.clone()));
    services.loops.spawn(Arc::clone(&parts.edge).upkeep(stopped.clone()));
    let watcher = catalog.watch(Duration::from_millis(CATALOG_POLL_MS), stopped.clone());

    let serve = Listening { edge: Arc::clone(&parts.edge), metrics, operator_keys, stopped: stopped.clone() };
    let mut listeners = serve.listen_on(listener, operator_listener, &mut services);
    announce(&parts, printed_key.as_deref());
    let broken = tokio::select! {
        _ = signals => None,
        Some(ended) = listeners.join_next() => Some(format!("a listener ended by itself: {ended:?}")),
        Some(ended) = services.loops.join_next() => Some(format!("a service's loop ended by itself: {ended:?}")),
    };
    let _ = stop.send(true);
    while listeners.join_next().await.is_some() {}
    while services.loops.join_next().await.is_some() {}
    let _ = watcher.await;
    // Half a process that looks alive is worse than none: whoever supervises it starts a whole one.
    broken.map_or(Ok(()), |words| Err(Failure::running(words)))
}

/// What listeners are made of.
struct Listening {
    edge: Arc<Edge>,
    metrics: PrometheusHandle,
    operator_keys: Arc<OperatorKeys>,
    stopped: watch::Receiver<bool>,
}

impl Listening {
    /// Operators' routes stand on their own listener, or beside the shoppers' with `/metrics` behind a key.
    fn listen_on(
        self,
        listener: TcpListener,
        operator_listener: Option<TcpListener>,
        services: &mut Services,
    ) -> JoinSet<std::io::Result<()>> {
        let health = operations::health_router(std::mem::take(&mut services.checks));
        let public = std::mem::take(&mut services.public).merge(health.clone());
        let operator = std::mem::take(&mut services.operator);
        let mut listeners = JoinSet::new();
        let public = match operator_listener {
            Some(own) => {
                let metrics = operations::metrics_router(self.metrics.clone(), None);
                listeners.spawn(self.served(own, operator.merge(metrics).merge(health)));
                public
            }
            None => {
                let keys = Some(Arc::clone(&self.operator_keys));
                public.merge(operator).merge(operations::metrics_router(self.metrics.clone(), keys))
            }
        };
        listeners.spawn(self.served(listener, public));
        listeners
    }

    fn served(
        &self,
        listener: TcpListener,
        router: Router,
    ) -> impl Future<Output = std::io::Result<()>> + Send + use<> {
        let router = edge::layers::guard_by(Arc::clone(&self.edge), router);
        edge::serve::serve_by(Arc::clone(&self.edge), listener, router, self.stopped.clone())
    }
}

fn assemble(parts: &Parts, stopped: &watch::Receiver<bool>) -> Result<Services, Failure> {
    let mut services = Services::default();
    let gate = gate_client(parts, &mut services, stopped)?;
    if parts.roles.waiting_room {
        let app = waiting_room::App::new(waiting_room::AppParts {
            catalog: Arc::clone(&parts.catalog),
            store: Arc::clone(&parts.stores.line),
            ring: Arc::clone(&parts.ring),
            gate: gate.clone(),
            events: Arc::clone(&parts.stores.events),
            clock: Arc::clone(&parts.clock),
            public_url: parts.public_url.clone(),
            operator_keys: Arc::clone(&parts.operator_keys),
            process_id: parts.process_id.clone(),
        });
        let app = app.with_captcha(parts.config.captcha().map_err(Failure::running)?);
        let app = Arc::new(app.with_account_limit(parts.edge.accounts()));
        services.public = services.public.merge(waiting_room::router(Arc::clone(&app)));
        services.operator = services.operator.merge(waiting_room::operator_router(Arc::clone(&app)));
        let networks = networks::router(Arc::clone(&parts.catalog), Arc::clone(&parts.operator_keys));
        services.operator = services.operator.merge(networks);
        services.loops.spawn(waiting_room::run(Arc::clone(&app), stopped.clone()));
        services.checks.push(check("line's store", app, |app| async move { app.ready().await.is_ok() }));
    }
    let gateway = gateway_client(parts, &mut services, stopped)?;
    if let (true, Some(orders)) = (parts.roles.checkout, &parts.stores.orders) {
        let app_parts = checkout::AppParts {
            catalog: Arc::clone(&parts.catalog),
            store: Arc::clone(orders),
            gate,
            events: Arc::clone(&parts.stores.events),
            gateway,
            ring: Arc::clone(&parts.ring),
            clock: Arc::clone(&parts.clock),
            public_url: parts.public_url.clone(),
            operator_keys: Arc::clone(&parts.operator_keys),
            process_id: parts.process_id.clone(),
        };
        let outbox = checkout::Outbox::new(parts.config.outbox()).map_err(Failure::running)?;
        let app = checkout::App::with_outbox(app_parts, parts.edge.accounts(), parts.config.intake, outbox);
        services.public = services.public.merge(checkout::router(Arc::clone(&app)));
        services.operator = services.operator.merge(checkout::operator_router(Arc::clone(&app)));
        services.loops.spawn(checkout::run(Arc::clone(&app), stopped.clone()));
        if let Some(store) = &parts.stores.unprepared {
            services.loops.spawn(stores::prepare_later(Arc::clone(store), stopped.clone()));
        }
        services
            .checks
            .push(check("orders' store", app, |app| async move { checkout::ready(&app).await.is_ok() }));
    }
    if let Some(elsewhere) = operations::elsewhere_router(parts.roles.waiting_room, parts.roles.checkout) {
        services.operator = services.operator.merge(elsewhere);
    }
    Ok(services)
}

/// The gate: this process's own router, never on the shoppers' listener; or another process's, by HTTP.
fn gate_client(
    parts: &Parts,
    services: &mut Services,
    stopped: &watch::Receiver<bool>,
) -> Result<GateClient, Failure> {
    let signer = Arc::new(ServiceSigner::new(Arc::clone(&parts.ring), gate::AUDIENCE));
    if !parts.roles.stock_gate {
        let url = parts.config.gate_url.as_deref().unwrap_or_default();
        return GateClient::over_http(url, signer, Arc::clone(&parts.clock)).map_err(Failure::running);
    }
    let app = Arc::new(stock_gate::App::new(stock_gate::AppParts {
        catalog: Arc::clone(&parts.catalog),
        store: Arc::clone(&parts.stores.stock),
        ring: Arc::clone(&parts.ring),
        clock: Arc::clone(&parts.clock),
    }));
    let router = stock_gate::router(Arc::clone(&app));
    services.loops.spawn(stock_gate::run(Arc::clone(&app), stopped.clone()));
    services.checks.push(check("stock's store", app, |app| async move { app.ready().await.is_ok() }));
    if parts.roles == Roles::STOCK_GATE {
        services.public = router.clone();
    }
    Ok(GateClient::in_process(router, signer, Arc::clone(&parts.clock)))
}

fn gateway_client(
    parts: &Parts,
    services: &mut Services,
    stopped: &watch::Receiver<bool>,
) -> Result<Arc<dyn Gateway>, Failure> {
    if let Some(gateway) = payments::gateway(&parts.config)? {
        return Ok(gateway);
    }
    let (ring, clock) = (Arc::clone(&parts.ring), Arc::clone(&parts.clock));
    if !parts.roles.simulated_gateway {
        let url = parts.config.gateway_url.as_deref().unwrap_or_default();
        let client = Simulated::over_http(url, &parts.public_url, ring, clock);
        return Ok(Arc::new(client.map_err(Failure::running)?));
    }
    let webhook_url = parts
        .config
        .webhook_url
        .clone()
        .unwrap_or_else(|| format!("http://{}/payment/webhook", reachable(parts.listen)));
    let service_parts = simulated::ServiceParts {
        ring: Arc::clone(&ring),
        operator_keys: Arc::clone(&parts.operator_keys),
        webhook_url,
        clock: Arc::clone(&clock),
    };
    let file = parts.config.data.join("simulated-gateway.db");
    let service = simulated::Service::open(&file, service_parts, simulated::Behaviour::default())
        .map_err(|error| Failure::running(format!("{}: {error}", file.display())))?;
    services.public = std::mem::take(&mut services.public).merge(service.router());
    services.operator = std::mem::take(&mut services.operator).merge(service.operator_router());
    let (sender, stopped) = (Arc::clone(&service), stopped.clone());
    services.loops.spawn(async move { sender.run(stopped).await });
    Ok(Arc::new(Simulated::in_process(service.router(), &parts.public_url, ring, clock)))
}

/// A listener on every address of the machine is reached by the loopback one.
fn reachable(listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() { SocketAddr::from(([127, 0, 0, 1], listen.port())) } else { listen }
}

fn check<A, F>(name: &'static str, app: Arc<A>, ask: fn(Arc<A>) -> F) -> Check
where
    A: Send + Sync + 'static,
    F: Future<Output = bool> + Send + 'static,
{
    Check { name, ask: Box::new(move || Box::pin(ask(Arc::clone(&app)))) }
}

async fn upkeep(metrics: PrometheusHandle, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(METRICS_UPKEEP_SECONDS));
    loop {
        tokio::select! {
            _ = ticks.tick() => metrics.run_upkeep(),
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

async fn wait_for_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return;
    };
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
}

fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    edge::serve::bind(address).map_err(|error| {
        Failure::running(format!(
            "cannot listen on {address} ({error}); free the port or give --listen another"
        ))
    })
}

/// Two processes on one SQLite file would each think they are its only writer.
fn lock_data_folder(folder: &Path) -> Result<File, Failure> {
    let name = folder.display();
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::running(format!("{name}: cannot be made ({error}); give --data a folder"))
    })?;
    let file = File::create(folder.join("lockgate.lock")).map_err(|error| {
        Failure::running(format!("{name}: cannot be written ({error}); give --data a folder"))
    })?;
    file.try_lock().map_err(|_| {
        Failure::running(format!(
            "{name}: another Lockgate uses this folder; stop it or give --data another folder"
        ))
    })?;
    Ok(file)
}

fn open_ring(roles: Roles, config: &Config) -> Result<Arc<KeyRing>, Failure> {
    let own = config.data.join("keys.toml");
    // Only the all-in-one may make up a key: roles that run apart must share one.
    let create = config.keys_file.is_none() && roles == Roles::ALL;
    keys::open(config.keys_file.as_deref().unwrap_or(&own), create).map(Arc::new)
}

fn operator_keys(config: &Config) -> Result<(Arc<OperatorKeys>, Option<String>), Failure> {
    let mut keys = OperatorKeys::default();
    let mut printed = None;
    let own = match &config.operator_key {
        Some(key) => key.reveal().to_owned(),
        None => {
            let random: [u8; 24] = rand::random();
            let key: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            printed = Some(key.clone());
            key
        }
    };
    keys.add(Role::Operator, &own).map_err(|problem| Failure::usage(format!("operator_key: {problem}")))?;
    if let Some(key) = &config.viewer_key {
        keys.add(Role::Viewer, key.reveal())
            .map_err(|problem| Failure::usage(format!("viewer_key: {problem}")))?;
    }
    Ok((Arc::new(keys), printed))
}

/// The addresses, on standard output: the one thing a first-time user needs. A role that runs alone names its own
/// listener: the public address is the proxy's.
fn announce(parts: &Parts, printed_key: Option<&str>) {
    let url = &parts.public_url;
    let own = format!("http://{}", reachable(parts.listen));
    let served = if parts.roles == Roles::ALL { url } else { &own };
    print::line(format_args!("Lockgate is serving on {served}"));
    let sales = if parts.roles.waiting_room { parts.catalog.sales() } else { Arc::from([]) };
    for sale in sales.iter() {
        print::line(format_args!("  sale    {url}/sale/{}", sale.definition.id));
    }
    if let Some(address) = parts.config.operator_listen {
        print::line(format_args!("  operators on http://{address}"));
    }
    print::line(format_args!("  data    {}", parts.config.data.display()));
    if let Some(key) = printed_key {
        print::line(format_args!("  operator key, valid until this process stops: {key}"));
    }
}
