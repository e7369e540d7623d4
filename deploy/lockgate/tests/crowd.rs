//! A crowd of a few thousand walks through the real binary on both back ends, and every answer is held against the rules.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{Folder, Lockgate, Stores, now_seconds};
use lockgate_crowd::{
    Contest, ContestReport, Outcome, Plan, Report, contest,
    plan::{Arrival, Shares},
    run,
};

const BURST: u64 = 300;

/// Doors open now, admission in five seconds: first a crowd at the door, then a line that moves.
fn sale_file(turn_seconds: u64) -> String {
    let at = |seconds: i64| jiff::Timestamp::from_second(now_seconds() + seconds).unwrap();
    format!(
        "id = \"rush\"\nname = \"Rush\"\ndoors_open_at = {}\nopens_at = {}\ncloses_at = {}\n\
         queueing_method = \"fifo\"\nlanes = 8\nentry = \"open\"\nper_account_limit = 1\nhold_seconds = {turn_seconds}\n\
         [admission]\nrate_per_minute = 18000\nburst = {BURST}\nturn_seconds = {turn_seconds}\ntoken_seconds = 600\n\
         [[items]]\nitem = \"phone\"\nname = \"Phone\"\nstock = 100\nprice = 49900\ncurrency = \"EUR\"\n",
        at(-20),
        at(5),
        at(3600),
    )
}

async fn visit(stores: Stores, shoppers: u32, buy: bool, follow_public_status: bool) -> Report {
    let folder = Folder::new();
    // Units that nobody pays for come back, and go to others, before the sale is sold out.
    let file = folder.write("sale.toml", &sale_file(if buy { 15 } else { 60 }));
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

/// A lottery whose doors are open and whose draw is far away.
fn lottery_file(id: &str, difficulty: u64) -> String {
    let proof = format!("[proof_of_work]\ndifficulty = {difficulty}\n");
    let file = sale_file(60)
        .replace("id = \"rush\"", &format!("id = \"{id}\""))
        .replace("queueing_method = \"fifo\"", "queueing_method = \"lottery\"");
    let opens_at = jiff::Timestamp::from_second(now_seconds() + 1_800).unwrap();
    let line = file.lines().find(|line| line.starts_with("opens_at")).unwrap().to_owned();
    let file = file.replace(&line, &format!("opens_at = {opens_at}"));
    if difficulty == 0 { file } else { file.replace("[[items]]", &format!("{proof}[[items]]")) }
}

async fn contest_at(lockgate: &Lockgate, sale: &str) -> ContestReport {
    let authority = lockgate.base.strip_prefix("http://").unwrap().to_owned();
    let plan = Plan {
        address: authority.parse().unwrap(),
        authority,
        sale: sale.into(),
        shoppers: 10,
        arrival: Arrival::PerSecond(5.0),
        connections: 16,
        shares: Shares { no_shows: 0.0, leavers: 0.0, programs: 0.0 },
        follow_public_status: false,
        buy: false,
        think_ms: 0,
        admissions: None,
        burst: None,
        queueing_method: None,
        seconds_max: 60,
        seed: 1,
    };
    let contest = Contest { plan, bots: 200, farm_cores: 1, people_cores: 1, window_seconds: 8 };
    contest::run(&contest).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn l4_work_leaves_people_a_larger_share_of_a_line_that_bots_crowd() {
    let folder = Folder::new();
    let free = folder.write("free.toml", &lottery_file("free", 0));
    let paid = folder.write("paid.toml", &lottery_file("paid", 50_000));
    let data = folder.data();
    let (data, free, paid) = (data.to_str().unwrap(), free.to_str().unwrap(), paid.to_str().unwrap());
    let lockgate = Lockgate::start(&["serve", "--data", data, "--sale", free, "--sale", paid], &[]).await;
    let without = contest_at(&lockgate, "free").await;
    let with = contest_at(&lockgate, "paid").await;
    for report in [&without, &with] {
        assert_eq!((report.verdict, report.people.places), (Outcome::Kept, 10), "{report}");
        assert!(report.bots.places > 0, "{report}");
    }
    assert_eq!((without.bots.solved, without.people.solved), (0, 0), "{without}");
    assert!(with.people.solved >= 10 && with.bots.solved >= with.bots.places, "{with}");
    assert!(with.people_share > without.people_share, "{without}\n{with}");
}
