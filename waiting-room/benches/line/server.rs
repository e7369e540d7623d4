//! The process under load: the waiting room and its yardsticks, each on a port of its own.

use std::{io::Read as _, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use lockgate_shared::{
    catalog::{Catalog, MemoryCatalog},
    clock::{Clock as _, SystemClock},
    edge::{layers::guard, serve::serve},
    events::redis::RedisEventLog,
    gate::{AUDIENCE, GateClient, ItemStock, StockSnapshot},
    operator::{OperatorKeys, Role},
    sale::{EXAMPLE_TOML, EntryRule, SaleDefinition, parse_toml},
    service_token::ServiceSigner,
    store::redis::RedisLink,
    testing::demo_ring,
};
use lockgate_waiting_room::{App, AppParts, router, store::RedisStore};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;

/// The key of an operator.
pub(crate) const OPERATOR: &str = "operator-operator-operator-operator";
/// A body as long as a personal status.
pub(crate) const CONSTANT: &str = r#"{"sale":"phone-drop","phase":"doors_open","state":"waiting","snapshot":1234,"now_serving":0,"number":123456,"people_ahead":123455,"poll_after_ms":28123,"server_time":"2026-12-01T09:50:00.000Z"}"#;

/// Bytes of the public status of the sale under test; the benchmark checks it.
pub(crate) const LONG_BYTES: usize = 418;

/// What a handler that computes nothing answers, with the headers any answer of this kind needs.
pub(crate) async fn constant() -> Response {
    let mut response = CONSTANT.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// As many bytes as the public status of the sale under test.
async fn long() -> Response {
    const LONG: &str = match std::str::from_utf8(&[b'x'; LONG_BYTES]) {
        Ok(text) => text,
        Err(_) => "",
    };
    let mut response = LONG.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The same for a call with a body.
async fn constant_post(_body: axum::body::Bytes) -> Response {
    constant().await
}

fn yardsticks() -> Router {
    Router::new()
        .route("/sale/{sale}/constant", get(constant))
        .route("/sale/{sale}/long", get(long))
        .route("/sale/{sale}/constant-post", post(constant_post))
}

/// A sale whose doors are open, an hour before it opens (`opens_in_seconds` after now).
pub(crate) fn sale(lanes: u16, opens_in_seconds: i64) -> SaleDefinition {
    let mut sale = parse_toml("example", EXAMPLE_TOML).unwrap();
    let now = SystemClock.now();
    let at =
        |seconds: i64| lockgate_shared::clock::Timestamp::from_micros(now.micros() + seconds * 1_000_000);
    sale.doors_open_at = at(-7_200);
    sale.opens_at = at(opens_in_seconds);
    sale.closes_at = at(36_000);
    sale.lanes = lanes;
    sale.entry = EntryRule::Open;
    sale.eligibility_keys.clear();
    sale.admission.rate_per_minute = 120_000;
    sale.admission.burst = Some(2_000);
    sale
}

/// The waiting room over one sale in Redis.
pub(crate) async fn app(redis_url: &str, sale: SaleDefinition) -> Arc<App> {
    let clock = Arc::new(SystemClock);
    let catalog = Arc::new(Catalog::new(Arc::new(MemoryCatalog::default()), clock.clone()));
    let items = sale.items.iter().map(|item| ItemStock {
        item: item.item.clone(),
        stock: item.stock,
        available: item.stock,
        held: 0,
        sold: 0,
    });
    let stock = StockSnapshot {
        items: items.collect(),
        total_left: None,
        claimants: Vec::new(),
        too_many_claimants: false,
    };
    let answer = move || {
        let stock = stock.clone();
        async move { Json(stock) }
    };
    let gate = Router::new().route("/gate/v1/sales/{sale}/stock", get(answer));
    catalog.apply(sale, None).await.unwrap();
    let mut operator_keys = OperatorKeys::default();
    operator_keys.add(Role::Operator, OPERATOR).unwrap();
    let ring = Arc::new(demo_ring());
    let signer = Arc::new(ServiceSigner::new(Arc::clone(&ring), AUDIENCE));
    let link = RedisLink::connect(redis_url, "bench:").await.unwrap();
    Arc::new(App::new(AppParts {
        catalog,
        events: Arc::new(RedisEventLog::new(link.clone())),
        store: Arc::new(RedisStore::new(link)),
        ring,
        gate: GateClient::in_process(gate, signer, clock.clone()),
        clock,
        public_url: "http://127.0.0.1:8080".into(),
        operator_keys: Arc::new(operator_keys),
        process_id: format!("bench-{}", std::process::id()),
    }))
}

/// Serves until standard input ends. Prints the ports: bare on axum's own loop, bare on ours, layered, waiting room.
pub(crate) fn run(redis_url: &str) {
    let metrics = PrometheusBuilder::new().install_recorder().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let app = app(redis_url, sale(16, 3_600)).await;
        let (_stop, stopped) = tokio::sync::watch::channel(false);
        tokio::spawn(lockgate_waiting_room::run(Arc::clone(&app), stopped.clone()));
        let render = metrics.clone();
        let text = move || {
            let text = format!("{}\nvm_rss_mib {}\n", render.render(), crate::memory_mib("VmRSS:"));
            async move { text }
        };
        let shoppers = guard(router(app)).route("/metrics", get(text));
        let mut ports = Vec::new();
        let bare = TcpListener::bind("127.0.0.1:0").await.unwrap();
        ports.push(bare.local_addr().unwrap().port());
        tokio::spawn(async move { axum::serve(bare, yardsticks()).await });
        for router in [yardsticks(), guard(yardsticks()), shoppers] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            ports.push(listener.local_addr().unwrap().port());
            tokio::spawn(serve(listener, router, stopped.clone()));
        }
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                metrics.run_upkeep();
            }
        });
        println!("{}", ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    });
    // Loops that still run must not hold the process up.
    std::process::exit(0);
}
