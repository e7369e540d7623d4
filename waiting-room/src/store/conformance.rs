//! What every back end must do: one suite stamped on the model, SQLite and Redis.
//! `sequences` compares them command by command besides.

mod allowlist;
mod forfeit;
mod record;

use lockgate_shared::{
    proof_of_work::{Proof, ProofId},
    store::{redis::RedisLink, sqlite::Sqlite},
    testing::PrivateRedis,
};

use super::*;

const NOW: i64 = 1_800_000_000;

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(NOW + seconds)
}

pub(super) fn account(n: u8) -> AccountHash {
    // Bytes that text-minded code would stumble over.
    AccountHash::from_bytes([n, 0, b'\r', b'\n', 0xff, b' ', 7, n, n, n, n, n, n, n, 0xc3, n])
}

pub(super) fn sale(name: &str) -> SaleId {
    name.parse().unwrap()
}

/// Runs out so late that the real clock of a store, too, finds it live.
pub(super) fn proof(n: u8) -> Proof {
    Proof { id: ProofId([n; 16]), expires_at: at(300) }
}

fn entry(n: u8) -> Entry {
    Entry { account: account(n), ticket_seq: None, missed_seq: None, listed_as: None }
}

fn shown(n: u8, seq: u64) -> Entry {
    Entry { ticket_seq: Some(seq), ..entry(n) }
}

fn missed(n: u8, seq: u64) -> Entry {
    Entry { missed_seq: Some(seq), ..entry(n) }
}

fn view(missed_below: u64) -> LaneView {
    LaneView { missed_below, numbered: 0 }
}

fn right(jti: &str, from: i64, epoch: u32) -> Right {
    Right { jti: jti.into(), issued_at: at(from), expires_at: at(from + 60), epoch }
}

pub(super) fn redemption(n: u8, seq: u64, jti: &str, now: i64, epoch: u32) -> Redemption {
    Redemption { account: account(n), seq, right: right(jti, now, epoch), now: at(now) }
}

/// The places of those who were let in, as all must be.
fn placed(answers: Vec<EnterAnswer>) -> Vec<Entered> {
    answers.into_iter().map(|answer| answer.entered().expect("a place")).collect()
}

/// Enters one account and answers its seq and whether it is new.
async fn enter(store: &dyn Store, sale: &SaleId, entry: Entry, view: LaneView, now: i64) -> (u64, bool) {
    let entered = placed(store.enter(sale, 0, &[entry], view, at(now)).await.unwrap());
    assert_eq!(entered.len(), 1);
    (entered[0].seat.seq, entered[0].fresh)
}

/// Redeems one turn.
async fn redeem(store: &dyn Store, sale: &SaleId, redemption: Redemption) -> Redeemed {
    let mut redeemed = store.redeem(sale, 0, &[redemption]).await.unwrap();
    assert_eq!(redeemed.len(), 1);
    redeemed.remove(0)
}

async fn places_are_given_in_order_and_kept(store: &dyn Store) {
    let sale = sale("order");
    let batch = [entry(1), entry(2), entry(1), entry(3)];
    let entered = placed(store.enter(&sale, 0, &batch, view(0), at(0)).await.unwrap());
    let given: Vec<_> = entered.iter().map(|entered| (entered.seat.seq, entered.fresh)).collect();
    assert_eq!(given, [(0, true), (1, true), (0, false), (2, true)], "k2: one account, one place");
    assert_eq!(enter(store, &sale, entry(2), view(0), 0).await, (1, false));
    assert_eq!(store.enter(&sale, 0, &[], view(0), at(0)).await.unwrap(), []);
    let other_lane = placed(store.enter(&sale, 1, &[entry(9)], view(0), at(0)).await.unwrap());
    assert_eq!(other_lane[0].seat.seq, 0, "lanes count for themselves");
    assert_eq!(enter(store, &super::conformance::sale("order-2"), entry(1), view(0), 0).await, (0, true));
    assert_eq!(store.seat(&sale, 0, account(2)).await.unwrap().map(|seat| seat.seq), Some(1));
    assert_eq!(store.seat(&sale, 1, account(2)).await.unwrap(), None);
}

async fn a_proof_of_work_counts_for_one_account(store: &dyn Store) {
    let (sale, other) = (sale("proofs"), super::conformance::sale("proofs-2"));
    for (sale, n, who, expected) in [
        (&sale, 1, 1, Spent::Counts),
        (&sale, 1, 2, Spent::Used),
        (&sale, 1, 1, Spent::Counts),
        (&sale, 2, 2, Spent::Counts),
        (&other, 1, 2, Spent::Counts),
    ] {
        assert_eq!(store.spend(sale, proof(n), account(who), at(0)).await.unwrap(), expected, "{n} {who}");
    }
    // What has run out is forgotten in passing; what has not stays.
    let late = Proof { id: ProofId([9; 16]), expires_at: at(900) };
    assert_eq!(store.spend(&sale, late, account(1), at(299)).await.unwrap(), Spent::Counts);
    assert_eq!(store.spend(&sale, proof(1), account(2), at(299)).await.unwrap(), Spent::Used);
}

async fn a_missed_turn_gives_a_new_place(store: &dyn Store) {
    let sale = sale("missed");
    for n in 0..3 {
        enter(store, &sale, entry(n), view(0), 0).await;
    }
    assert_eq!(enter(store, &sale, entry(1), view(1), 0).await, (1, false));
    assert_eq!(enter(store, &sale, entry(0), view(1), 0).await, (3, true));
    assert_eq!(
        enter(store, &sale, shown(1, 1), view(2), 0).await,
        (4, true),
        "its old ticket does not bring it back"
    );
    assert_eq!(enter(store, &sale, shown(1, 1), view(2), 0).await, (4, false));
}

async fn a_missed_turn_amid_others_gives_a_new_place(store: &dyn Store) {
    let sale = sale("missed-amid");
    for n in 0..4 {
        enter(store, &sale, entry(n), view(0), 0).await;
    }
    assert_eq!(enter(store, &sale, missed(2, 1), view(0), 0).await, (2, false), "not the one that passed");
    assert_eq!(enter(store, &sale, missed(1, 1), view(0), 0).await, (4, true));
    assert_eq!(enter(store, &sale, missed(1, 1), view(0), 0).await, (4, false), "once");
    let ticket = Entry { ticket_seq: Some(2), ..missed(2, 2) };
    assert_eq!(enter(store, &sale, ticket, view(0), 0).await, (5, true), "its ticket does not bring it back");
    let lost = Entry { ticket_seq: Some(9), ..missed(7, 9) };
    assert_eq!(enter(store, &sale, lost, view(0), 0).await, (6, true), "nor one the store has lost");
    store.redeem(&sale, 0, &[redemption(3, 3, "j", 0, 0)]).await.unwrap();
    assert_eq!(enter(store, &sale, missed(3, 3), view(0), 59).await, (3, false), "whoever holds the right");
    let batch = [missed(0, 0), entry(0), missed(4, 0)];
    let entered = placed(store.enter(&sale, 0, &batch, view(0), at(0)).await.unwrap());
    let given: Vec<_> = entered.iter().map(|entered| (entered.seat.seq, entered.fresh)).collect();
    assert_eq!(given, [(7, true), (7, false), (8, true)]);
}

async fn a_lost_place_is_restored_from_its_ticket(store: &dyn Store) {
    let sale = sale("restore");
    assert_eq!(enter(store, &sale, shown(1, 41), view(0), 0).await, (41, false));
    assert_eq!(enter(store, &sale, entry(2), view(0), 0).await, (42, true), "the next place is above it");
    assert_eq!(enter(store, &sale, shown(1, 41), view(0), 0).await, (41, false));
    assert_eq!(
        enter(store, &sale, shown(3, 7), view(8), 0).await,
        (43, true),
        "a missed turn is not restored"
    );
    assert_eq!(
        enter(store, &sale, shown(1, 50), view(0), 0).await,
        (50, false),
        "a later ticket outranks the store"
    );
    assert_eq!(enter(store, &sale, shown(1, 41), view(0), 0).await, (50, false));
    let numbered = LaneView { missed_below: 0, numbered: 90 };
    assert_eq!(enter(store, &sale, entry(4), numbered, 0).await, (90, true), "numbers are not given twice");
}

async fn a_turn_is_redeemed_once(store: &dyn Store) {
    let sale = sale("redeem");
    enter(store, &sale, entry(1), view(0), 0).await;
    let first = redeem(store, &sale, redemption(1, 0, "j1", 0, 0)).await;
    assert_eq!(first, Redeemed::Admitted(right("j1", 0, 0)));
    let again = redeem(store, &sale, redemption(1, 0, "j2", 30, 0)).await;
    assert_eq!(again, first, "the same id and end");
    let state = SeatState::Admitted(right("j1", 0, 0));
    assert_eq!(store.seat(&sale, 0, account(1)).await.unwrap(), Some(Seat { seq: 0, state }));
    assert_eq!(
        enter(store, &sale, entry(1), view(5), 59).await,
        (0, false),
        "whoever holds the right keeps it"
    );
    let revoked = redeem(store, &sale, redemption(1, 0, "j3", 40, 1)).await;
    let renewed = Right { expires_at: at(60), ..right("j3", 40, 1) };
    assert_eq!(revoked, Redeemed::Admitted(renewed.clone()), "a new id, the same end");
    let stale = redeem(store, &sale, redemption(1, 0, "j4", 41, 0)).await;
    assert_eq!(stale, Redeemed::Admitted(renewed), "a process with an old epoch changes nothing");
}

async fn turns_that_come_together_are_redeemed_in_order(store: &dyn Store) {
    let sale = sale("redeem-batch");
    store.enter(&sale, 0, &[entry(0), entry(1), entry(2)], view(0), at(0)).await.unwrap();
    store.leave(&sale, 0, account(2), 2).await.unwrap();
    let turns = [
        redemption(0, 0, "j1", 0, 0),
        redemption(0, 0, "j2", 1, 0),
        redemption(0, 0, "j3", 2, 1),
        redemption(1, 1, "j4", 0, 0),
        redemption(1, 0, "j5", 0, 0),
        redemption(2, 2, "j6", 0, 0),
        redemption(0, 0, "j7", 60, 1),
        redemption(9, 40, "j8", 0, 0),
    ];
    let redeemed = store.redeem(&sale, 0, &turns).await.unwrap();
    let renewed = Right { expires_at: at(60), ..right("j3", 2, 1) };
    let expected = [
        Redeemed::Admitted(right("j1", 0, 0)),
        Redeemed::Admitted(right("j1", 0, 0)),
        Redeemed::Admitted(renewed),
        Redeemed::Admitted(right("j4", 0, 0)),
        Redeemed::Superseded,
        Redeemed::Left,
        Redeemed::Lapsed,
        Redeemed::Admitted(right("j8", 0, 0)),
    ];
    assert_eq!(redeemed, expected);
    assert_eq!(store.redeem(&sale, 0, &[]).await.unwrap(), []);
    assert_eq!(enter(store, &sale, entry(4), view(0), 0).await, (41, true));
}

async fn a_right_that_ran_out_is_not_renewed(store: &dyn Store) {
    let sale = sale("lapse");
    enter(store, &sale, entry(1), view(0), 0).await;
    redeem(store, &sale, redemption(1, 0, "j1", 0, 1)).await;
    assert_eq!(redeem(store, &sale, redemption(1, 0, "j5", 60, 1)).await, Redeemed::Lapsed);
    assert_eq!(enter(store, &sale, entry(1), view(0), 60).await, (1, true));
    assert_eq!(redeem(store, &sale, redemption(1, 0, "j6", 60, 1)).await, Redeemed::Superseded);
    let lost = redeem(store, &sale, redemption(7, 20, "j7", 0, 0)).await;
    assert_eq!(lost, Redeemed::Admitted(right("j7", 0, 0)), "a ticket stands for itself");
    assert_eq!(enter(store, &sale, entry(8), view(0), 0).await, (21, true));
}

async fn leaving_is_final_and_logged_once(store: &dyn Store) {
    let sale = sale("leave");
    for n in 0..3 {
        enter(store, &sale, entry(n), view(0), 0).await;
    }
    assert_eq!(store.leave(&sale, 0, account(1), 1).await.unwrap(), Departure::Left);
    assert_eq!(store.leave(&sale, 0, account(1), 1).await.unwrap(), Departure::Left);
    assert_eq!(redeem(store, &sale, redemption(1, 1, "j", 0, 0)).await, Redeemed::Left);
    let reports = store.survey(&sale, &[LogsRead::default(); 2], at(0)).await;
    let read = |left| LogsRead { left, redeemed: 0 };
    let expected = LaneReport { count: 3, newly_left: vec![1], read: read(1), ..LaneReport::default() };
    assert_eq!(reports, [Some(expected), Some(LaneReport::default())]);
    assert_eq!(enter(store, &sale, shown(1, 1), view(0), 0).await, (3, true));
    assert_eq!(store.leave(&sale, 0, account(1), 1).await.unwrap(), Departure::Superseded);
    assert_eq!(
        store.leave(&sale, 0, account(9), 30).await.unwrap(),
        Departure::Left,
        "the store had lost it"
    );
    let report = survey(store, &sale, read(1), 0).await;
    let expected = LaneReport { count: 31, newly_left: vec![30], read: read(2), ..LaneReport::default() };
    assert_eq!(report, expected);
    let again = survey(store, &sale, read(5), 0).await;
    assert_eq!(again.newly_left, [1, 30], "a log shorter than what was read is read anew");
}

/// What one lane says.
async fn survey(store: &dyn Store, sale: &SaleId, read: LogsRead, now: i64) -> LaneReport {
    store.survey(sale, &[read], at(now)).await.remove(0).unwrap()
}

async fn whoever_redeems_is_active_until_it_ends(store: &dyn Store) {
    let sale = sale("active");
    for n in 0..5 {
        enter(store, &sale, entry(n), view(0), 0).await;
    }
    for n in 0..4 {
        redeem(store, &sale, redemption(n, u64::from(n), "j", i64::from(n), 0)).await;
    }
    redeem(store, &sale, redemption(0, 0, "j2", 5, 0)).await;
    redeem(store, &sale, redemption(0, 0, "j3", 6, 1)).await;
    let report = survey(store, &sale, LogsRead::default(), 6).await;
    let read = LogsRead { left: 0, redeemed: 4 };
    let expected =
        LaneReport { count: 5, newly_redeemed: vec![0, 1, 2, 3], active: 4, read, ..LaneReport::default() };
    assert_eq!(report, expected, "asking again, and after a revocation, is no second redemption");
    assert_eq!(store.conclude(&sale, 0, &[account(1), account(4), account(9)]).await.unwrap(), 1);
    assert_eq!(store.conclude(&sale, 0, &[account(1), account(1)]).await.unwrap(), 0, "once");
    assert_eq!(store.conclude(&sale, 0, &[]).await.unwrap(), 0);
    assert_eq!(store.conclude(&sale, 1, &[account(2)]).await.unwrap(), 0, "another lane");
    let seat = store.seat(&sale, 0, account(1)).await.unwrap().unwrap();
    assert_eq!(seat.state, SeatState::Admitted(right("j", 1, 0)), "the right itself stands");
    redeem(store, &sale, redemption(1, 1, "j4", 7, 0)).await;
    store.leave(&sale, 0, account(2), 2).await.unwrap();
    let report = survey(store, &sale, read, 59).await;
    assert_eq!((report.active, report.newly_redeemed, report.newly_left), (2, vec![], vec![2]));
    assert_eq!(survey(store, &sale, read, 60).await.active, 1, "the end itself is over");
    assert_eq!(survey(store, &sale, read, 63).await.active, 0);
    assert_eq!(survey(store, &sale, read, 59).await.active, 2, "a clock that goes back finds them again");
    let anew = survey(store, &sale, LogsRead { left: 1, redeemed: 9 }, 63).await;
    assert_eq!((anew.newly_left, anew.newly_redeemed), (vec![], vec![0, 1, 2, 3]));
}

async fn rights_of_turns_that_come_together_are_noted_once_each(store: &dyn Store) {
    let sale = sale("active-together");
    let together = [
        redemption(0, 0, "a", 0, 0),
        redemption(1, 1, "b", 0, 0),
        redemption(0, 0, "c", 1, 0),
        redemption(0, 0, "d", 2, 1),
        redemption(1, 2, "e", 3, 0),
        redemption(1, 1, "f", 3, 0),
    ];
    store.redeem(&sale, 0, &together).await.unwrap();
    let report = survey(store, &sale, LogsRead::default(), 3).await;
    assert_eq!((report.newly_redeemed, report.active), (vec![0, 1, 2], 3));
    assert_eq!(survey(store, &sale, report.read, 60).await.active, 1, "a new id does not move the end");
    // Long after, the next right sweeps the ended ones away, whoever comes with it in one call.
    let later = [redemption(3, 3, "g", 119, 0), redemption(4, 4, "h", 121, 0)];
    store.redeem(&sale, 0, &later).await.unwrap();
    let report = survey(store, &sale, report.read, 0).await;
    assert_eq!((report.newly_redeemed, report.active), (vec![3, 4], 3), "of three ended rights one is kept");
}

async fn k2_fifty_at_once_get_one_place(store: &dyn Store) {
    let sale = sale("fifty");
    let calls = (0..50).map(|_| enter(store, &sale, entry(1), view(0), 0));
    let given = futures::future::join_all(calls).await;
    assert!(given.iter().all(|(seq, _)| *seq == 0), "{given:?}");
    assert_eq!(given.iter().filter(|(_, fresh)| *fresh).count(), 1);
}

async fn suite(store: &dyn Store) {
    store.ping().await.unwrap();
    places_are_given_in_order_and_kept(store).await;
    a_proof_of_work_counts_for_one_account(store).await;
    a_missed_turn_gives_a_new_place(store).await;
    a_missed_turn_amid_others_gives_a_new_place(store).await;
    record::p2_a_draw_is_stored_with_its_row_in_one_step_or_not_at_all(store).await;
    a_lost_place_is_restored_from_its_ticket(store).await;
    a_turn_is_redeemed_once(store).await;
    turns_that_come_together_are_redeemed_in_order(store).await;
    a_right_that_ran_out_is_not_renewed(store).await;
    leaving_is_final_and_logged_once(store).await;
    whoever_redeems_is_active_until_it_ends(store).await;
    rights_of_turns_that_come_together_are_noted_once_each(store).await;
    record::l7_only_the_holder_of_the_newest_lease_moves_the_record(store).await;
    record::l5_whoever_knows_more_than_the_store_takes_the_lease_and_puts_its_rows_back(store).await;
    record::rows_long_since_called_are_folded(store).await;
    k2_fifty_at_once_get_one_place(store).await;
    allowlist::suite(store).await;
    forfeit::a_live_right_is_renewed_up_to_its_cap(store).await;
    forfeit::a_forfeited_right_is_over_and_its_place_is_used_up(store).await;
}

/// A store in a file of its own, and the folder that goes with it.
pub(crate) fn sqlite_store() -> (SqliteStore, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let db = Sqlite::open(&dir.path().join("line.db"), &[("line", LINE_SQLITE)]).unwrap();
    (SqliteStore::new(db), dir)
}

/// A store in a server of its own.
pub(crate) async fn redis_store() -> (RedisStore, PrivateRedis) {
    let server = PrivateRedis::start().await;
    let link = RedisLink::connect(server.url(), "test:").await.unwrap();
    (RedisStore::new(link), server)
}

#[tokio::test]
async fn the_model_conforms() {
    suite(&Model::default()).await;
}

#[tokio::test]
async fn sqlite_conforms() {
    let (store, _dir) = sqlite_store();
    suite(&store).await;
}

#[tokio::test]
async fn redis_conforms() {
    let (store, _server) = redis_store().await;
    suite(&store).await;
}

#[tokio::test]
async fn a_waiting_account_takes_at_most_120_bytes_of_redis() {
    let server = PrivateRedis::start_with(&[]).await;
    let link = RedisLink::connect(server.url(), "test:").await.unwrap();
    let store = RedisStore::new(link.clone());
    let sale = sale("memory");
    let used = async || -> u64 {
        let info: String = link.command("info", ::redis::cmd("INFO").arg("memory")).await.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        line.trim().parse().unwrap()
    };
    enter(&store, &sale, entry(0), view(0), 0).await;
    let before = used().await;
    let accounts = 200_000u32;
    for batch in (0..accounts).collect::<Vec<_>>().chunks(1_000) {
        let entries: Vec<Entry> = batch
            .iter()
            .map(|n| {
                let mut bytes = [0xee; 16];
                bytes[..4].copy_from_slice(&n.to_be_bytes());
                Entry { account: AccountHash::from_bytes(bytes), ..entry(0) }
            })
            .collect();
        store.enter(&sale, 0, &entries, view(0), at(0)).await.unwrap();
    }
    let per_account = (used().await - before) as f64 / f64::from(accounts);
    println!("{per_account:.1} bytes per waiting account");
    assert!(per_account <= 120.0, "{per_account}");
}
