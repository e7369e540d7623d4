//! A waiting room for one test: real store, clock set by hand, and a gate that does what a line needs of it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use axum::{Router, body::Body};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use lockgate_shared::{
    catalog::{Catalog, MemoryCatalog},
    clock::{Clock as _, Timestamp},
    edge::layers::guard,
    events::{Abandoned, Backlog, Batch, Event, EventKind, EventLog, Trim},
    gate::{AUDIENCE, GateClient, StockSnapshot},
    ids::{AccountHash, ClaimId, SaleId},
    keys::KeyRing,
    operator::{OperatorKeys, Role},
    sale::{EXAMPLE_TOML, SaleDefinition, parse_toml},
    service_token::ServiceSigner,
    store::{StoreError, redis::RedisLink, sqlite::Sqlite},
    testing::{ManualClock, PrivateRedis, demo_ring, eventually},
};
use lockgate_waiting_room::{
    App, AppParts, CaptchaDoor,
    captcha::Settings,
    operator_router, router, run,
    store::{LINE_SQLITE, RedisStore, SqliteStore, Store},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::gate::{GateStub, stock_of};
use crate::watched::Watched;

/// The key of an operator.
pub(crate) const OPERATOR: &str = "operator-operator-operator-operator";
/// The key of a viewer.
pub(crate) const VIEWER: &str = "viewer-viewer-viewer-viewer-viewer-vi";
/// The shop's eligibility secret.
pub(crate) const SHOP_SECRET: [u8; 32] = *b"an eligibility secret of the sho";

/// The gate's events, as the test says them; each is given until it is acknowledged.
#[derive(Default)]
pub(crate) struct Told(Mutex<Vec<Event>>);

#[async_trait]
impl EventLog for Told {
    async fn read(
        &self,
        _sale: &SaleId,
        group: &str,
        _consumer: &str,
        _max: usize,
    ) -> Result<Batch, StoreError> {
        assert_eq!(group, "waiting-room");
        Ok(Batch { events: self.0.lock().unwrap().clone(), poison: Vec::new() })
    }
    async fn acknowledge(&self, _sale: &SaleId, _group: &str, ids: &[String]) -> Result<(), StoreError> {
        self.0.lock().unwrap().retain(|event| !ids.contains(&event.id));
        Ok(())
    }
    async fn backlog(&self, _sale: &SaleId, _group: &str) -> Result<Backlog, StoreError> {
        Ok(Backlog { unread: self.0.lock().unwrap().len() as u64, pending: 0 })
    }
    async fn trim(&self, _sale: &SaleId, _groups: &[&str], _keep: u64) -> Result<Trim, StoreError> {
        Ok(Trim::Trimmed(0))
    }
    async fn retire(&self, _sale: &SaleId, _group: &str, _idle_ms: u64) -> Result<u64, StoreError> {
        Ok(0)
    }
    fn shares_work(&self) -> bool {
        false
    }
}

/// What all processes of a test share.
pub(crate) struct Site {
    store: Arc<dyn Store>,
    catalog: Arc<Catalog>,
    pub(crate) clock: ManualClock,
    pub(crate) stock: Arc<Mutex<StockSnapshot>>,
    pub(crate) gate: GateStub,
    events: Arc<Told>,
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) redis: Option<PrivateRedis>,
    /// The CAPTCHA at the door of processes that are started from now on.
    pub(crate) captcha: Option<Settings>,
    _dir: tempfile::TempDir,
}

/// Where the line is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backend {
    Sqlite,
    Redis,
}

/// One process.
pub(crate) struct House {
    pub(crate) app: Arc<App>,
    shoppers: Router,
    operators: Router,
    watched: Arc<Watched>,
    /// Set once the process has read the line; before, it answers nobody.
    ready: tokio::sync::OnceCell<()>,
    running: tokio::task::JoinHandle<()>,
    _stop: tokio::sync::watch::Sender<bool>,
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Status and problem code.
    pub(crate) fn refusal(&self) -> (u16, String) {
        (self.status.as_u16(), self.json()["code"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// The sale of the tests: doors open, opening in a minute, 4 lanes, 10 admissions a second, turns of 60 s.
pub(crate) fn sale() -> SaleDefinition {
    let mut sale = parse_toml("example", EXAMPLE_TOML).unwrap();
    sale.lanes = 4;
    sale.entry = lockgate_shared::sale::EntryRule::Open;
    sale.eligibility_keys.clear();
    sale.admission.rate_per_minute = 600;
    // One second's worth of the rate.
    sale.admission.burst = None;
    sale.admission.turn_seconds = 60;
    sale
}

/// The same for customers of the shop only.
pub(crate) fn sale_for_customers() -> SaleDefinition {
    let mut customers = parse_toml("example", EXAMPLE_TOML).unwrap();
    customers.admission = sale().admission;
    customers.lanes = 4;
    customers
}

/// Before the opening, doors open.
pub(crate) fn before_opening() -> Timestamp {
    sale().opens_at.minus_seconds(60)
}

impl Site {
    /// A site with one sale.
    pub(crate) async fn open(backend: Backend, definition: SaleDefinition, now: Timestamp) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut redis = None;
        let store: Arc<dyn Store> = match backend {
            Backend::Sqlite => {
                let db = Sqlite::open(&dir.path().join("line.db"), &[("line", LINE_SQLITE)]).unwrap();
                Arc::new(SqliteStore::new(db))
            }
            Backend::Redis => {
                let server = PrivateRedis::start().await;
                let link = RedisLink::connect(server.url(), "t:").await.unwrap();
                redis = Some(server);
                Arc::new(RedisStore::new(link))
            }
        };
        let clock = ManualClock::at(now);
        let catalog = Arc::new(Catalog::new(Arc::new(MemoryCatalog::default()), Arc::new(clock.clone())));
        let stock = Arc::new(Mutex::new(stock_of(&definition, u32::MAX)));
        catalog.apply(definition, None).await.unwrap();
        Self {
            store,
            catalog,
            clock,
            stock,
            gate: GateStub::default(),
            events: Arc::default(),
            ring: Arc::new(demo_ring()),
            redis,
            captcha: None,
            _dir: dir,
        }
    }

    /// Starts a process on it.
    pub(crate) fn start(&self, process_id: &str) -> House {
        let watched = Arc::new(Watched {
            inner: Arc::clone(&self.store),
            calls: AtomicUsize::new(0),
            silent: Mutex::new(None),
        });
        let clock = Arc::new(self.clock.clone());
        let signer = Arc::new(ServiceSigner::new(Arc::clone(&self.ring), AUDIENCE));
        let mut keys = OperatorKeys::default();
        keys.add(Role::Operator, OPERATOR).unwrap();
        keys.add(Role::Viewer, VIEWER).unwrap();
        let parts = AppParts {
            catalog: Arc::clone(&self.catalog),
            store: Arc::clone(&watched) as Arc<dyn Store>,
            ring: Arc::clone(&self.ring),
            gate: GateClient::in_process(self.gate.router(&self.stock), signer, clock.clone()),
            events: Arc::clone(&self.events) as Arc<dyn EventLog>,
            clock,
            public_url: "http://127.0.0.1:8080".into(),
            operator_keys: Arc::new(keys),
            process_id: process_id.into(),
        };
        let door = self.captcha.as_ref().map(|settings| CaptchaDoor::new(settings).unwrap());
        let app = Arc::new(App::with_environment(parts, Box::new(environment)).with_captcha(door));
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let running = tokio::spawn(run(Arc::clone(&app), stopped));
        let (shoppers, operators) =
            (guard(router(Arc::clone(&app))), guard(operator_router(Arc::clone(&app))));
        House { app, shoppers, operators, watched, ready: Default::default(), running, _stop: stop }
    }

    /// The line's store itself.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Moves time to `seconds` after the opening.
    pub(crate) fn set_after_opening(&self, seconds: u64) {
        let target = sale().opens_at.plus_seconds(seconds);
        self.clock.advance_ms((target.micros() - self.clock.now().micros()) / 1_000);
    }

    /// Says that the gate did this for the owner of a token, twice, as it may.
    pub(crate) fn tell(&self, kind: EventKind, account: AccountHash) {
        self.tell_with(kind, account, None);
    }

    /// The same, with what the account has abandoned.
    pub(crate) fn tell_with(&self, kind: EventKind, account: AccountHash, abandoned: Option<Abandoned>) {
        let sale: SaleId = "phone-drop".parse().unwrap();
        let now = self.clock.now();
        for id in ["1-1", "1-2"] {
            let event = Event {
                id: format!("{id}-{account}"),
                kind,
                claim: ClaimId::derive(&sale, &account, "key"),
                account,
                item: "phone-black".parse().unwrap(),
                units: vec![1],
                claimed_at: now,
                deadline: now,
                memo: String::new(),
                abandoned,
            };
            self.events.0.lock().unwrap().push(event);
        }
    }

    /// Says how many units of each item are free; the others are held.
    pub(crate) fn set_available(&self, available: u32) {
        *self.stock.lock().unwrap() = stock_of(&sale(), available);
    }
}

fn environment(name: &str) -> Option<String> {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    (name == "SHOP_ELIGIBILITY_KEY").then(|| URL_SAFE_NO_PAD.encode(SHOP_SECRET))
}

/// The shop's word for `account`.
pub(crate) fn eligibility(account: &str, exp: i64) -> String {
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("shop-1".into());
    let claims = json!({"sub": account, "aud": "phone-drop", "exp": exp});
    jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(&SHOP_SECRET).unwrap()).unwrap()
}

impl House {
    async fn wait_until_ready(&self) {
        let ready = async || self.app.ready().await.is_ok();
        self.ready.get_or_init(async || eventually("the line was read", 10, ready).await).await;
    }

    /// Sends a request as it is.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        self.wait_until_ready().await;
        let router =
            if request.uri().path().starts_with("/operator") { &self.operators } else { &self.shoppers };
        let response = router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    /// Sends a request and leaves the body in its coding.
    pub(crate) async fn send_raw(&self, request: Request<Body>) -> (StatusCode, HeaderMap, bytes::Bytes) {
        self.wait_until_ready().await;
        let response = self.shoppers.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts.status, parts.headers, body.collect().await.unwrap().to_bytes())
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post_json(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
        self.call("POST", path, body, headers).await
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request =
            Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    pub(crate) async fn post_form(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request =
            Request::post(path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    /// Enters anonymously; the ticket.
    pub(crate) async fn enter(&self) -> String {
        let answer = self.post_json("/sale/phone-drop/enter", &json!({}), &[]).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.json()["ticket"].as_str().unwrap().to_owned()
    }

    /// A call that carries a ticket.
    pub(crate) async fn with_ticket(&self, verb: &str, ticket: &str) -> Answer {
        let bearer = format!("Bearer {ticket}");
        let path = format!("/sale/phone-drop/{verb}");
        if verb == "status" {
            return self.get(&path, &[("authorization", &bearer)]).await;
        }
        self.post_json(&path, &json!({}), &[("authorization", &bearer)]).await
    }

    /// The personal status.
    pub(crate) async fn status(&self, ticket: &str) -> Value {
        let answer = self.with_ticket("status", ticket).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        answer.json()
    }

    /// The public status.
    pub(crate) async fn board(&self) -> Value {
        self.get("/sale/phone-drop/status", &[]).await.json()
    }

    /// Waits until the ticket's state is `state`.
    pub(crate) async fn until_state(&self, ticket: &str, state: &str) -> Value {
        eventually(state, 10, async || self.status(ticket).await["state"] == state).await;
        self.status(ticket).await
    }

    /// Waits for the ticket's number.
    pub(crate) async fn until_numbered(&self, ticket: &str) -> u64 {
        eventually("a number", 10, async || self.status(ticket).await["number"].is_u64()).await;
        self.status(ticket).await["number"].as_u64().unwrap()
    }

    /// Waits until the board shows `number`.
    pub(crate) async fn until_serving(&self, number: u64) {
        eventually("now_serving", 10, async || self.board().await["now_serving"] == number).await;
    }

    /// Acts as an operator.
    pub(crate) async fn operate(&self, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {OPERATOR}");
        let path = format!("/operator/v1/sales/phone-drop{path}");
        self.call(method, &path, body, &[("authorization", &bearer)]).await
    }

    /// Store calls that shoppers have caused.
    pub(crate) fn calls(&self) -> usize {
        self.watched.calls.load(Ordering::SeqCst)
    }

    /// Lets surveys of one lane go unanswered, or answered again.
    pub(crate) fn silence(&self, lane: Option<usize>) {
        *self.watched.silent.lock().unwrap() = lane;
    }

    /// Ends the process as a kill would: nothing is handed over.
    pub(crate) fn kill(&self) {
        self.running.abort();
    }
}
