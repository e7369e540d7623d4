//! A crowd of a few thousand walks through the real binary on both back ends, and every answer is held against the rules.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{Folder, Lockgate, Stores, now_seconds};
use lockgate_crowd::{
    Outcome, Plan, Report,
    plan::{Arrival, Shares},
    run,
};

const BURST: u64 = 300;

/// Doors open now, admission in five seconds: first a crowd at the door, then a line that moves.
fn sale_file(stock: u32) -> String {
    let at = |seconds: i64| jiff::Timestamp::from_second(now_seconds() + seconds).unwrap();
    format!(
        "id = \"rush\"\nname = \"Rush\"\ndoors_open_at = {}\nopens_at = {}\ncloses_at = {}\n\
         queueing_method = \"fifo\"\nlanes = 8\nentry = \"open\"\nper_account_limit = 1\nhold_seconds = 60\n\
         [admission]\nrate_per_minute = 18000\nburst = {BURST}\nturn_seconds = 60\ntoken_seconds = 600\n\
         [[items]]\nitem = \"phone\"\nname = \"Phone\"\nstock = {stock}\nprice = 49900\ncurrency = \"EUR\"\n",
        at(-20),
        at(5),
        at(3600),
    )
}

async fn visit(stores: Stores, shoppers: u32, buy: bool, follow_public_status: bool) -> Report {
    let folder = Folder::new();
    let file = folder.write("sale.toml", &sale_file(100));
    let data = folder.data();
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    let lockgate = Lockgate::start(&arguments, &stores.environment()).await;
    let authority = lockgate.base.strip_prefix("http://").unwrap().to_owned();
    let plan = Plan {
        address: authority.parse().unwrap(),
        authority,
        sale: "rush".into(),
        shoppers,
        arrival: Arrival::AtOnce,
        connections: 64,
        shares: Shares { no_shows: 10.0, leavers: 5.0, programs: 8.0 },
        follow_public_status,
        buy,
        think_ms: 500,
        admissions: None,
        burst: Some(BURST),
        queueing_method: Some("fifo".into()),
        seconds_max: 240,
        seed: 20_260_101,
    };
    let report = run(&plan, |_| {}).await.unwrap();
    assert_eq!(report.verdict, Outcome::Kept, "{report}\n{}", lockgate.log.lock().unwrap());
    assert_eq!((report.people.entered, report.people.on_their_way), (shoppers, 0), "{report}");
    assert!(lockgate.terminate().await.success());
    report
}

fn assert_walked_through(report: &Report, shoppers: u32) {
    let people = &report.people;
    assert!(people.admitted > shoppers / 2 && people.left > 0 && people.gone > 0, "{report}");
    let never = ["unit-once"];
    let unmet: Vec<&str> =
        report.rules.iter().filter(|rule| rule.checked == 0).map(|rule| rule.rule).collect();
    assert!(unmet.iter().all(|rule| never.contains(rule)), "never checked: {unmet:?}\n{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_k2_l6_three_thousand_keep_the_line_on_sqlite() {
    assert_walked_through(&visit(Stores::Sqlite, 3_000, false, false).await, 3_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_k2_l6_three_thousand_keep_the_line_on_redis() {
    assert_walked_through(&visit(Stores::redis_postgres().await, 3_000, false, false).await, 3_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_of_the_public_status_are_called_in_time() {
    assert_walked_through(&visit(Stores::Sqlite, 1_000, false, true).await, 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_a_crowd_that_buys_pays_for_each_unit_once() {
    let report = visit(Stores::redis_postgres().await, 600, true, false).await;
    assert_eq!(report.people.bought, 100, "{report}");
}
