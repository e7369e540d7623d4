//! The sale's record and rows, under lease and fence.

use lockgate_shared::testing::eventually;

use super::{at, sale};
use crate::{
    admission::AdmissionRecord,
    draw::{Draw, Drawn},
    store::{Advanced, Move, Recorded, Store},
};

pub(super) async fn p2_a_draw_is_stored_with_its_row_in_one_step_or_not_at_all(store: &dyn Store) {
    let sale = sale("draw");
    let drawn = Drawn { at: at(30), beacon: Some("8ef1 — \"ü\"\n".into()) };
    let frozen = Draw { pools: vec![3, 0, 2], frozen_at: at(1), drawn: None };
    let made = Draw { drawn: Some(drawn), ..frozen.clone() };
    let step = |fence: u64, expected_version: u64, draw: &Draw, rows: &[Vec<u64>]| Move {
        fence,
        expected_version,
        rows_from: 0,
        record: AdmissionRecord {
            version: expected_version + 1,
            draw: Some(draw.clone()),
            ..AdmissionRecord::default()
        },
        rows: rows.to_vec(),
    };
    let pools = [made.pools.clone()];
    let fence = store.lease(&sale, "a", 60_000, 0).await.unwrap().unwrap();
    assert_eq!(store.advance(&sale, &step(fence + 1, 0, &made, &pools)).await.unwrap(), Advanced::Fenced);
    assert_eq!(store.advance(&sale, &step(fence, 7, &made, &pools)).await.unwrap(), Advanced::Stale);
    assert_eq!(store.record(&sale, 0).await.unwrap(), Recorded::default());
    assert_eq!(store.advance(&sale, &step(fence, 0, &frozen, &[])).await.unwrap(), Advanced::Advanced);
    let held = store.record(&sale, 0).await.unwrap();
    assert_eq!((held.record.draw, held.rows_total), (Some(frozen), 0));
    assert_eq!(store.advance(&sale, &step(fence, 1, &made, &pools)).await.unwrap(), Advanced::Advanced);
    let held = store.record(&sale, 0).await.unwrap();
    assert_eq!((held.record.draw, held.rows), (Some(made), pools.to_vec()));
}

pub(super) async fn l7_only_the_holder_of_the_newest_lease_moves_the_record(store: &dyn Store) {
    let sale = sale("lease");
    let record =
        |version: u64| AdmissionRecord { version, now_serving: version * 10, ..AdmissionRecord::default() };
    let step = |fence: u64, expected_version: u64, rows_from: usize, rows: &[&[u64]]| Move {
        fence,
        expected_version,
        rows_from,
        record: record(expected_version + 1),
        rows: rows.iter().map(|row| row.to_vec()).collect(),
    };
    assert_eq!(store.record(&sale, 0).await.unwrap(), Recorded::default());
    let fence = store.lease(&sale, "a", 150, 0).await.unwrap().unwrap();
    assert_eq!(store.lease(&sale, "b", 60_000, 0).await.unwrap(), None);
    assert_eq!(store.lease(&sale, "a", 150, 0).await.unwrap(), Some(fence), "kept without a gap");
    assert_eq!(
        store.advance(&sale, &step(fence, 0, 0, &[&[1, 2], &[3, 4]])).await.unwrap(),
        Advanced::Advanced
    );
    assert_eq!(store.advance(&sale, &step(fence, 0, 2, &[&[9, 9]])).await.unwrap(), Advanced::Stale);
    eventually("the lease runs out and another takes it", 5, async || {
        store.lease(&sale, "b", 60_000, 0).await.unwrap() == Some(fence + 1)
    })
    .await;
    assert_eq!(store.lease(&sale, "a", 150, 0).await.unwrap(), None);
    assert_eq!(store.advance(&sale, &step(fence, 1, 2, &[&[9, 9]])).await.unwrap(), Advanced::Fenced);
    assert_eq!(store.advance(&sale, &step(fence + 1, 1, 2, &[])).await.unwrap(), Advanced::Advanced);
    let line = store.record(&sale, 1).await.unwrap();
    assert_eq!(line, Recorded { record: record(2), rows_total: 2, rows_first: 0, rows: vec![vec![3, 4]] });
    assert_eq!(store.record(&sale, 7).await.unwrap().rows, Vec::<Vec<u64>>::new());
}

pub(super) async fn l5_whoever_knows_more_than_the_store_takes_the_lease_and_puts_its_rows_back(
    store: &dyn Store,
) {
    let sale = sale("knows-more");
    let step = |fence: u64, version: u64, rows_from: usize, rows: &[&[u64]]| Move {
        fence,
        expected_version: version,
        rows_from,
        record: AdmissionRecord { version: version + 5, ..AdmissionRecord::default() },
        rows: rows.iter().map(|row| row.to_vec()).collect(),
    };
    let fresh = store.lease(&sale, "fresh", 60_000, 0).await.unwrap().unwrap();
    let wrong = step(fresh, 0, 0, &[&[1, 0], &[9, 9], &[9, 10]]);
    assert_eq!(store.advance(&sale, &wrong).await.unwrap(), Advanced::Advanced);
    assert_eq!(store.lease(&sale, "old", 60_000, 5).await.unwrap(), None, "it knows no more");
    let old = store.lease(&sale, "old", 60_000, 6).await.unwrap().unwrap();
    assert!(old > fresh);
    assert_eq!(store.advance(&sale, &step(fresh, 5, 3, &[])).await.unwrap(), Advanced::Fenced);
    assert_eq!(store.advance(&sale, &step(old, 5, 4, &[])).await.unwrap(), Advanced::Stale, "a gap");
    assert_eq!(store.advance(&sale, &step(old, 5, 1, &[&[2, 2]])).await.unwrap(), Advanced::Advanced);
    let rows = store.record(&sale, 0).await.unwrap().rows;
    assert_eq!(rows, [[1, 0], [2, 2]], "what another history laid down gives way");
}

pub(super) async fn rows_long_since_called_are_folded(store: &dyn Store) {
    let sale = sale("fold");
    let fence = store.lease(&sale, "a", 60_000, 0).await.unwrap().unwrap();
    let advance = async |expected_version: u64, rows_from: usize, rows: &[&[u64]]| {
        let record = AdmissionRecord { version: expected_version + 1, ..AdmissionRecord::default() };
        let rows = rows.iter().map(|row| row.to_vec()).collect();
        store.advance(&sale, &Move { fence, expected_version, rows_from, record, rows }).await.unwrap()
    };
    let rows = async |from: usize| {
        let recorded = store.record(&sale, from).await.unwrap();
        (recorded.rows_first, recorded.rows_total, recorded.rows.iter().map(|row| row[0]).collect::<Vec<_>>())
    };
    assert_eq!(advance(0, 0, &[&[1, 0], &[2, 0], &[3, 1], &[4, 1], &[5, 1]]).await, Advanced::Advanced);
    assert_eq!(store.fold(&sale, fence + 1, 2).await.unwrap(), Advanced::Fenced);
    assert_eq!(rows(0).await, (0, 5, vec![1, 2, 3, 4, 5]));
    assert_eq!(store.fold(&sale, fence, 2).await.unwrap(), Advanced::Advanced);
    assert_eq!(rows(0).await, (2, 5, vec![3, 4, 5]));
    assert_eq!(rows(4).await, (2, 5, vec![5]), "positions stay what they were");
    assert_eq!(store.fold(&sale, fence, 1).await.unwrap(), Advanced::Advanced);
    assert_eq!(advance(1, 5, &[&[6, 1]]).await, Advanced::Advanced);
    assert_eq!(rows(5).await, (2, 6, vec![6]));
    assert_eq!(store.fold(&sale, fence, 9).await.unwrap(), Advanced::Advanced);
    assert_eq!(rows(0).await, (9, 9, vec![]), "a store that lost them goes on from there");
    assert_eq!(advance(2, 9, &[&[7, 1], &[8, 1]]).await, Advanced::Advanced);
    assert_eq!(rows(0).await, (9, 11, vec![7, 8]));
    assert_eq!(rows(10).await, (9, 11, vec![8]));
}
