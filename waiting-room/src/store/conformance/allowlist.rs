//! Who is let in by an allowlist.

use super::{account, at, entry, placed, redeem, redemption, sale, shown, survey, view};
use crate::store::*;

fn email(n: u8) -> EmailHash {
    EmailHash::from_bytes([n, 0, b' ', 0xff, b'\r', b'\n', n, n, n, n, 0, n])
}

fn listed(n: u8, address: u8) -> Listed {
    Listed { account: account(n), email: email(address) }
}

fn with(n: u8, address: u8) -> Entry {
    Entry { listed_as: Some(email(address)), ..entry(n) }
}

fn allowed(added: u64, unchanged: u64, changed: u64) -> Allowed {
    Allowed { added, unchanged, changed }
}

/// Enters one after the other in one call: the seq of whoever got a place.
async fn seqs(store: &dyn Store, sale: &SaleId, lane: u16, entries: &[Entry]) -> Vec<Option<u64>> {
    let answers = store.enter(sale, lane, entries, view(0), at(0)).await.unwrap();
    answers.into_iter().map(|answer| answer.entered().map(|entered| entered.seat.seq)).collect()
}

async fn lines_are_added_once_and_the_last_address_counts(store: &dyn Store) {
    let sale = sale("allow");
    assert_eq!(store.allow(&sale, 0, &[]).await.unwrap(), Allowed::default());
    let lines = [listed(1, 1), listed(2, 2), listed(1, 1)];
    assert_eq!(store.allow(&sale, 0, &lines).await.unwrap(), allowed(2, 1, 0));
    assert_eq!(store.allow(&sale, 0, &lines).await.unwrap(), allowed(0, 3, 0), "again changes nothing");
    let corrected = [listed(2, 9), listed(3, 3), listed(3, 4), listed(3, 4)];
    assert_eq!(store.allow(&sale, 0, &corrected).await.unwrap(), allowed(1, 1, 2));
    assert_eq!(
        seqs(store, &sale, 0, &[with(2, 2), with(2, 9), with(3, 3), with(3, 4)]).await,
        [None, Some(0), None, Some(1)]
    );
    assert_eq!(store.allow(&sale, 1, &lines[..1]).await.unwrap(), allowed(1, 0, 0), "lanes for themselves");
    let other = super::sale("allow-2");
    assert_eq!(seqs(store, &other, 0, &[with(1, 1)]).await, [None], "and sales too");
}

async fn l4_whoever_is_not_listed_gets_no_place_and_leaves_no_trace(store: &dyn Store) {
    let sale = sale("listed");
    let no_list = store.enter(&sale, 0, &[with(1, 1)], view(0), at(0)).await.unwrap();
    assert_eq!(no_list, [EnterAnswer::NoList], "nobody is listed yet");
    store.allow(&sale, 0, &[listed(1, 1), listed(2, 2)]).await.unwrap();
    let not_listed = store.enter(&sale, 0, &[with(3, 3)], view(0), at(0)).await.unwrap();
    assert_eq!(not_listed, [EnterAnswer::NotListed]);
    let crowd: Vec<Entry> = (0..100).map(|n| with(10 + n % 90, n)).chain([with(1, 2), with(2, 1)]).collect();
    assert!(seqs(store, &sale, 0, &crowd).await.iter().all(Option::is_none));
    assert_eq!(survey(store, &sale, LogsRead::default(), 0).await, LaneReport::default());
    assert_eq!(store.seat(&sale, 0, account(1)).await.unwrap(), None);
    let mixed = [with(3, 3), with(1, 1), with(1, 7), with(2, 2), with(1, 1)];
    assert_eq!(seqs(store, &sale, 0, &mixed).await, [None, Some(0), None, Some(1), Some(0)]);
    assert_eq!(seqs(store, &sale, 0, &vec![with(1, 1); 50]).await, vec![Some(0); 50], "one code, one place");
    assert_eq!(survey(store, &sale, LogsRead::default(), 0).await.count, 2);
}

async fn a_ticket_opens_its_place_without_the_list(store: &dyn Store) {
    let sale = sale("listed-ticket");
    store.allow(&sale, 0, &[listed(1, 1)]).await.unwrap();
    assert_eq!(seqs(store, &sale, 0, &[with(1, 1)]).await, [Some(0)]);
    assert_eq!(seqs(store, &sale, 0, &[shown(1, 0)]).await, [Some(0)]);
    let guessed = Entry { ticket_seq: Some(0), ..with(1, 2) };
    assert_eq!(
        seqs(store, &sale, 0, &[guessed]).await,
        [None],
        "whoever is asked for the list must be on it"
    );
    let restored = placed(store.enter(&sale, 0, &[shown(7, 5)], view(0), at(0)).await.unwrap());
    assert_eq!((restored[0].seat.seq, restored[0].fresh), (5, false), "what the store lost comes back");
    redeem(store, &sale, redemption(1, 0, "j", 0, 0)).await;
    assert_eq!(seqs(store, &sale, 0, &[with(1, 2), with(1, 1)]).await, [None, Some(0)], "admitted or not");
}

pub(super) async fn suite(store: &dyn Store) {
    lines_are_added_once_and_the_last_address_counts(store).await;
    l4_whoever_is_not_listed_gets_no_place_and_leaves_no_trace(store).await;
    a_ticket_opens_its_place_without_the_list(store).await;
}

/// 100,000 codes in 16 lanes take at most 100 bytes of Redis each.
#[tokio::test]
async fn a_listed_code_takes_at_most_100_bytes_of_redis() {
    let (store, server) = super::redis_store().await;
    let sale = sale("memory");
    let link = lockgate_shared::store::redis::RedisLink::connect(server.url(), "test:").await.unwrap();
    let used = async || -> u64 {
        let info: String = link.command("info", ::redis::cmd("INFO").arg("memory")).await.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        line.trim().parse().unwrap()
    };
    let lines = |lane: u16, batch: u32| -> Vec<Listed> {
        let line = |n: u32| {
            let mixed = u128::from(n + batch * 625 + u32::from(lane) * 6_250 + 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            let bytes = mixed.to_be_bytes();
            let mut email = [0; 12];
            email.copy_from_slice(&bytes[4..]);
            Listed { account: AccountHash::from_bytes(bytes), email: EmailHash::from_bytes(email) }
        };
        (0..625).map(line).collect()
    };
    store.allow(&sale, 0, &[listed(1, 1)]).await.unwrap();
    let before = used().await;
    for lane in 0..16 {
        for batch in 0..10 {
            assert_eq!(store.allow(&sale, lane, &lines(lane, batch)).await.unwrap(), allowed(625, 0, 0));
        }
    }
    let per_code = (used().await - before) as f64 / 100_000.0;
    println!("{per_code:.1} bytes per listed code");
    assert!(per_code <= 100.0, "{per_code}");
}
