//! A whole shop for tests: the real stock gate, checkout with its loops, the simulated gateway behind a real
//! listener, on SQLite files or PostgreSQL, with a clock set by hand.

#![allow(unreachable_pub, reason = "a module that each test binary includes")]
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod backends;

pub use self::backends::Backends;

use std::{path::Path, sync::Arc};

use axum::{Router, body::Body};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use lockgate_checkout::{
    App, AppParts, Gateway, IntakeSettings, ORDERS_SQLITE, Outbox, OutboxSettings, Simulated, SqliteStore,
    Store, operator_router, router,
    simulated::{Behaviour, Service, ServiceParts},
};
use lockgate_shared::{
    admission_token::{Admission, AdmissionToken},
    catalog::{Catalog, MemoryCatalog, StoredSale},
    clock::{Clock, Timestamp},
    edge,
    events::sqlite::EVENTS_SQLITE,
    gate::{self, ConcludeRequest, FreezeAnswer, FreezeRequest, GateClient, ledger::Ledger},
    ids::{AccountHash, SaleId},
    keys::KeyRing,
    operator::{OperatorKeys, Role},
    sale::parse_toml,
    service_call::Transport,
    service_token::ServiceSigner,
    store::sqlite::Sqlite,
    testing::{ManualClock, demo_ring},
};
use lockgate_stock_gate as stock_gate;
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tower::ServiceExt as _;
use uuid::Uuid;

pub const OPERATOR_KEY: &str = "operator-key-for-tests-0123456789abcdef";
pub const VIEWER_KEY: &str = "viewer-key-for-tests-0123456789abcdefgh";
pub const HOLD_SECONDS: u64 = 600;

/// What differs between shops.
pub struct Plan {
    pub stock: u32,
    pub per_account_limit: u32,
    /// Whether checkout's own loops run.
    pub loops: bool,
    /// Whether the gateway sends webhooks.
    pub webhooks: bool,
    /// Whether the gate marks due holds.
    pub sweeps: bool,
    pub hold_seconds: u64,
    pub intake: IntakeSettings,
    /// What mails and webhooks go to. A store that is not opened here must be told the same channels.
    pub outbox: OutboxSettings,
    /// Another gateway than the simulated one.
    pub gateway: Option<Arc<dyn Gateway>>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            stock: 10,
            per_account_limit: 5,
            loops: true,
            webhooks: true,
            sweeps: true,
            hold_seconds: HOLD_SECONDS,
            intake: IntakeSettings::default(),
            outbox: OutboxSettings::default(),
            gateway: None,
        }
    }
}

/// Wraps the gate's transport, to cut it or count it.
pub type Wrap = Box<dyn FnOnce(Router) -> Transport>;

pub struct Shop {
    pub app: Arc<App>,
    pub store: Arc<dyn Store>,
    pub catalog: Arc<Catalog>,
    pub clock: ManualClock,
    pub ring: Arc<KeyRing>,
    pub gate: GateClient,
    pub url: String,
    pub sale: SaleId,
    router: Router,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

fn definition(clock: &ManualClock, id: &str, plan: &Plan) -> String {
    let at = |seconds: i64| {
        if seconds < 0 {
            clock.now().minus_seconds(seconds.unsigned_abs())
        } else {
            clock.now().plus_seconds(seconds.unsigned_abs())
        }
    };
    format!(
        r#"
id = "{id}"
name = "Phone drop"
doors_open_at = {doors}
opens_at = {opens}
closes_at = {closes}
per_account_limit = {limit}
hold_seconds = {hold_seconds}
[admission]
rate_per_minute = 6000
[[items]]
item = "phone"
name = "Phone, black"
stock = {stock}
price = 49900
currency = "EUR"
[[items]]
item = "case"
name = "Case"
stock = {stock}
price = 1900
currency = "EUR"
"#,
        doors = at(-600),
        opens = at(-300),
        closes = at(7_200),
        limit = plan.per_account_limit,
        hold_seconds = plan.hold_seconds,
        stock = plan.stock,
    )
}

/// Puts the stock of a sale there that has no orders.
async fn open_stock(gate: &GateClient, sale: &StoredSale) {
    let definition = &sale.definition;
    let items: Vec<_> = definition.items.iter().map(|item| (item.item.clone(), item.stock)).collect();
    let request = FreezeRequest { if_generation: Some(0), why: "a new sale".into() };
    // A shop that is opened again finds its stock there.
    if let FreezeAnswer::Frozen(freeze) = gate.freeze(&definition.id, &request).await.unwrap() {
        let request = ConcludeRequest::of(freeze, Uuid::nil(), 0, &Ledger::of([], &items));
        gate.conclude(&definition.id, &request).await.unwrap();
    }
}

/// The clock that shops begin with: the machine's time, from then on moved by hand.
pub fn clock() -> ManualClock {
    ManualClock::at(lockgate_shared::clock::SystemClock.now())
}

async fn catalog(clock: &ManualClock, plan: &Plan) -> Arc<Catalog> {
    let catalog = Arc::new(Catalog::new(Arc::new(MemoryCatalog::default()), Arc::new(clock.clone())));
    for id in ["demo", "other"] {
        let text = definition(clock, id, plan);
        catalog.apply(parse_toml("test", &text).unwrap(), None).await.unwrap();
    }
    catalog
}

fn operators() -> Arc<OperatorKeys> {
    let mut keys = OperatorKeys::default();
    keys.add(Role::Operator, OPERATOR_KEY).unwrap();
    keys.add(Role::Viewer, VIEWER_KEY).unwrap();
    Arc::new(keys)
}

impl Shop {
    /// On SQLite files in `dir`.
    pub async fn open(dir: &Path, plan: &Plan) -> Self {
        let clock = clock();
        let db = Self::database(dir);
        Self::reopen(dir, plan, clock, db).await
    }

    /// On what a shop before it left behind.
    pub async fn reopen(dir: &Path, plan: &Plan, clock: ManualClock, db: Sqlite) -> Self {
        let store = Arc::new(SqliteStore::new(db.clone()).telling(plan.outbox.wants()));
        Self::with(dir, plan, clock, db, store, None).await
    }

    pub fn database(dir: &Path) -> Sqlite {
        let tables =
            [("stock", stock_gate::STOCK_SQLITE), ("events", EVENTS_SQLITE), ("orders", ORDERS_SQLITE)];
        Sqlite::open(&dir.join("shop.db"), &tables).unwrap()
    }

    /// Over any store for orders, with the gate's transport wrapped.
    pub async fn with(
        dir: &Path,
        plan: &Plan,
        clock: ManualClock,
        db: Sqlite,
        store: Arc<dyn Store>,
        wrap: Option<Wrap>,
    ) -> Self {
        let backends = Backends::sqlite(&db, &clock, store);
        Self::over(dir, plan, clock, backends, wrap).await
    }

    /// Over any back ends.
    #[expect(clippy::too_many_lines, reason = "a list of parts and how they are joined")]
    pub async fn over(
        dir: &Path,
        plan: &Plan,
        clock: ManualClock,
        backends: Backends,
        wrap: Option<Wrap>,
    ) -> Self {
        let shared_clock: Arc<dyn Clock> = Arc::new(clock.clone());
        let ring = Arc::new(demo_ring());
        let catalog = catalog(&clock, plan).await;
        let gate_app = Arc::new(stock_gate::App::new(stock_gate::AppParts {
            catalog: Arc::clone(&catalog),
            store: backends.stock,
            ring: Arc::clone(&ring),
            clock: Arc::clone(&shared_clock),
        }));
        let signer = Arc::new(ServiceSigner::new(Arc::clone(&ring), gate::AUDIENCE));
        let gate_router = stock_gate::router(Arc::clone(&gate_app));
        let client =
            GateClient::in_process(gate_router.clone(), Arc::clone(&signer), Arc::clone(&shared_clock));
        for sale in catalog.sales().iter() {
            open_stock(&client, sale).await;
        }
        let gate = match wrap {
            Some(wrap) => GateClient::new(wrap(gate_router), signer, Arc::clone(&shared_clock)),
            None => GateClient::in_process(gate_router, signer, Arc::clone(&shared_clock)),
        };
        let keys = operators();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let service = Service::open(
            &dir.join("gateway.db"),
            ServiceParts {
                ring: Arc::clone(&ring),
                operator_keys: Arc::clone(&keys),
                webhook_url: format!("{url}/payment/webhook"),
                clock: Arc::clone(&shared_clock),
            },
            Behaviour::default(),
        )
        .unwrap();
        let simulated =
            Simulated::in_process(service.router(), &url, Arc::clone(&ring), Arc::clone(&shared_clock));
        let store = backends.orders;
        let parts = AppParts {
            catalog: Arc::clone(&catalog),
            store: Arc::clone(&store),
            gate: gate.clone(),
            events: backends.events,
            gateway: plan.gateway.clone().unwrap_or_else(|| Arc::new(simulated)),
            ring: Arc::clone(&ring),
            clock: shared_clock,
            public_url: url.clone(),
            operator_keys: keys,
            process_id: "test".into(),
        };
        let accounts = Arc::new(edge::rate_limit::AccountLimit::new(None));
        let outbox = Outbox::new(plan.outbox.clone()).unwrap();
        let app = App::with_outbox(parts, accounts, plan.intake, outbox);
        let router = edge::layers::guard(
            router(Arc::clone(&app))
                .merge(operator_router(Arc::clone(&app)))
                .merge(service.router())
                .merge(service.operator_router()),
        );
        let (stop, stopped) = watch::channel(false);
        let mut tasks = Vec::new();
        let (served, on) = (router.clone(), stopped.clone());
        tasks.push(tokio::spawn(async move {
            edge::serve::serve(listener, served, on).await.unwrap();
        }));
        if plan.sweeps {
            tasks.push(tokio::spawn(stock_gate::run(gate_app, stopped.clone())));
        }
        if plan.webhooks {
            let on = stopped.clone();
            tasks.push(tokio::spawn(async move { service.run(on).await }));
        }
        if plan.loops {
            tasks.push(tokio::spawn(lockgate_checkout::run(Arc::clone(&app), stopped)));
        }
        Self {
            app,
            store,
            catalog,
            clock,
            ring,
            gate,
            url,
            sale: "demo".parse().unwrap(),
            router,
            stop,
            tasks,
        }
    }

    /// Ends every task without letting any of them finish its work.
    pub async fn kill(mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
            let _ = task.await;
        }
        drop(self.stop);
    }

    /// An admission token for account `n`.
    pub fn token(&self, n: u16) -> String {
        self.token_for("demo", n, 600, 0)
    }

    pub fn token_for(&self, sale: &str, n: u16, seconds: u64, epoch: u32) -> String {
        let mut bytes = [9; 16];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        let admission = Admission {
            account: AccountHash::from_bytes(bytes),
            sale: &sale.parse().unwrap(),
            jti: "j",
            issued_at: self.clock.now(),
            expires_at: self.clock.now().plus_seconds(seconds),
            epoch,
        };
        AdmissionToken::sign(&admission, &self.ring).unwrap()
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    pub async fn get(&self, path: &str, bearer: &str) -> Answer {
        self.send(Ask::get(path).bearer(bearer).build()).await
    }

    pub async fn post(&self, path: &str, bearer: &str) -> Answer {
        self.send(Ask::post(path).bearer(bearer).build()).await
    }

    /// A checkout of `quantity` phones for account `n` under `key`.
    pub async fn checkout(&self, n: u16, key: &str, quantity: u32) -> Answer {
        let body = format!(r#"{{"item":"phone","quantity":{quantity}}}"#);
        let ask = Ask::post("/sale/demo/checkout").bearer(&self.token(n)).key(key).json(&body);
        self.send(ask.build()).await
    }

    /// A checkout that must be won: its order's id and access key.
    pub async fn buy(&self, n: u16, key: &str, quantity: u32) -> (String, String) {
        let won = self.checkout(n, key, quantity).await;
        assert_eq!(won.status, StatusCode::ACCEPTED, "{}", won.text);
        (won.text_of("order_id"), won.text_of("access_key"))
    }

    pub async fn state(&self, order: &str, access: &str) -> String {
        let found = self.get(&format!("/orders/{order}"), access).await;
        assert_eq!(found.status, StatusCode::OK, "{}", found.text);
        found.text_of("state")
    }

    pub async fn reaches(&self, order: &str, access: &str, state: &str) {
        lockgate_shared::testing::eventually(&format!("{order} is {state}"), 10, async || {
            self.state(order, access).await == state
        })
        .await;
    }

    /// Starts paying: the path of the gateway's page.
    pub async fn pay(&self, order: &str, access: &str) -> String {
        let paying = self.post(&format!("/orders/{order}/pay"), access).await;
        assert_eq!(paying.status, StatusCode::OK, "{}", paying.text);
        paying.text_of("redirect_url").replace(&self.url, "")
    }

    /// Finishes a payment on the gateway's page.
    pub async fn finish(&self, page: &str, outcome: &str) -> Answer {
        self.send(Ask::post(page).form(&format!("outcome={outcome}")).build()).await
    }

    pub async fn behave(&self, knobs: &str) {
        let ask = Ask::new(Method::PUT, "/simulated-gateway/behaviour").bearer(OPERATOR_KEY).json(knobs);
        let answer = self.send(ask.build()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    }

    pub async fn books(&self) -> Value {
        self.get("/operator/v1/sales/demo/books", VIEWER_KEY).await.json()
    }

    /// The phone's line of balanced books.
    pub async fn phone_books(&self) -> Value {
        let books = self.books().await;
        assert_eq!(books["balanced"], true, "{books}");
        books["items"][0].clone()
    }
}

/// A request being written.
pub struct Ask {
    builder: http::request::Builder,
    body: Body,
}

impl Ask {
    pub fn new(method: Method, path: &str) -> Self {
        Self { builder: Request::builder().method(method).uri(path), body: Body::empty() }
    }

    pub fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn post(path: &str) -> Self {
        Self::new(Method::POST, path)
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.builder = self.builder.header(name, value);
        self
    }

    pub fn bearer(self, credential: &str) -> Self {
        if credential.is_empty() {
            return self;
        }
        self.header("authorization", &format!("Bearer {credential}"))
    }

    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub fn page(self) -> Self {
        self.header("accept", "text/html,*/*;q=0.8")
    }

    pub fn json(self, body: &str) -> Self {
        self.header("content-type", "application/json").body(body.to_owned())
    }

    pub fn form(self, body: &str) -> Self {
        self.header("content-type", "application/x-www-form-urlencoded").body(body.to_owned())
    }

    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    pub fn build(self) -> Request<Body> {
        self.builder.body(self.body).unwrap()
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn text_of(&self, name: &str) -> String {
        self.json()[name].as_str().unwrap_or_else(|| panic!("no {name}: {}", self.text)).to_owned()
    }

    pub fn code(&self) -> String {
        self.text_of("code")
    }

    pub fn location(&self) -> String {
        self.headers[header::LOCATION].to_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn is(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), self.code().as_str()), (status, code), "{}", self.text);
        if status == 503 || status == 429 {
            assert!(self.headers.contains_key(header::RETRY_AFTER));
        }
    }
}
