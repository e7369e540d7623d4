//! An allowlist of half a million codes: how long its upload takes, and what a code takes in Redis.

use std::time::Instant;

use axum::body::Body;
use http::{Request, StatusCode};
use lockgate_shared::{edge::layers::guard, sale::EntryRule, store::redis::RedisLink, testing::PrivateRedis};
use lockgate_waiting_room::operator_router;
use tower::ServiceExt as _;

use crate::{server, setting, store::redis_memory};

/// Lines of one request, as the command line sends them.
const LINES: u64 = 10_000;

fn part(from: u64, to: u64) -> String {
    let line = |n: u64| {
        let code = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{code:016x},shopper-{n}@mail-{}.example.org\n", n % 97)
    };
    (from..to).map(line).collect()
}

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = PrivateRedis::start_with(&[]).await;
        let link = RedisLink::connect(redis.url(), "bench:").await.unwrap();
        let mut sale = server::sale(16, 3_600);
        sale.entry = EntryRule::Allowlist;
        let path = format!("/operator/v1/sales/{}/allowlist", sale.id);
        let router = guard(operator_router(server::app(redis.url(), sale).await));
        let codes = setting("CODES", 500_000);
        let before = redis_memory(&link).await;
        let started = Instant::now();
        for from in (0..codes).step_by(usize::try_from(LINES).unwrap()) {
            let request = Request::post(&path)
                .header("content-type", "text/csv")
                .header("authorization", format!("Bearer {}", server::OPERATOR))
                .body(Body::from(part(from, (from + LINES).min(codes))));
            let answer = router.clone().oneshot(request.unwrap()).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
        }
        let seconds = started.elapsed().as_secs_f64();
        let bytes = (redis_memory(&link).await - before) as f64 / codes as f64;
        println!("\n{codes} allowlist codes uploaded in requests of {LINES} lines in {seconds:.1} s (wanted: 60 s for 500,000)");
        println!("Redis memory per listed code: {bytes:.1} bytes (wanted: 100)");
    });
}
