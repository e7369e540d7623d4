//! What a file can do to us.

use lockgate_shared::{ids::SaleId, store::Effect};

use crate::store::testbed::{Bench, check_invariant, claim, claim_id, item, open, sale, take};

async fn running() -> (Bench, SaleId) {
    let (bench, sale) = (Bench::sqlite().await, sale("demo"));
    open(&*bench.store, &sale, &[(item("phone"), 3)]).await;
    take(&bench, &sale, &claim(1)).await;
    (bench, sale)
}

async fn execute(bench: &Bench, sql: &'static str) {
    let db = bench.db.as_ref().unwrap();
    db.write("test", move |db| db.execute_batch(sql)).await.unwrap();
}

#[tokio::test]
async fn h5_an_error_at_the_last_statement_takes_back_the_whole_step() {
    let (bench, sale) = running().await;
    execute(&bench, "ALTER TABLE events RENAME TO hidden").await;
    let store = &bench.store;
    assert_eq!(store.claim(&sale, &claim(2)).await.unwrap_err().effect, Effect::None);
    assert!(store.commit(&sale, claim_id(1)).await.is_err());
    assert!(store.release(&sale, claim_id(1)).await.is_err());
    execute(&bench, "ALTER TABLE hidden RENAME TO events").await;
    let snapshot = check_invariant(&**store, &sale, (1..=2).map(claim_id)).await;
    assert_eq!((snapshot.items[0].available, snapshot.items[0].held), (2, 1));
    assert_eq!(bench.events(&sale).await.len(), 1);
    assert_eq!(take(&bench, &sale, &claim(2)).await.units, [2]);
}

#[tokio::test]
async fn h7_lost_rows_close_the_sale() {
    let (bench, sale) = running().await;
    execute(&bench, "DELETE FROM stock_sales; DELETE FROM stock_items").await;
    assert_eq!(bench.store.claim(&sale, &claim(2)).await.unwrap_err().effect, Effect::None);
    assert!(bench.store.stock(&sale, None).await.is_err());
}

#[tokio::test]
async fn h7_counts_that_cannot_be_are_refused_by_the_file_itself() {
    let (bench, sale) = running().await;
    let db = bench.db.as_ref().unwrap();
    let twice = db.write("test", |db| db.execute("UPDATE stock_items SET available = available + 1", []));
    assert!(twice.await.is_err());
    execute(&bench, "UPDATE stock_items SET next = 4").await;
    let answer = bench.store.claim(&sale, &claim(2)).await;
    assert_eq!(answer.unwrap_err().effect, Effect::None, "units are free by the counts, yet there are none");
}

#[tokio::test]
async fn a_claim_is_one_operation_of_the_writer() {
    let (bench, sale) = running().await;
    let db = bench.db.as_ref().unwrap();
    // Another operation may run between any two of the writer; a claim that took two would show a state in between.
    let second = claim(2);
    let (claimed, seen) = tokio::join!(
        bench.store.claim(&sale, &second),
        db.write("test", |db| {
            db.query_row(
                "SELECT (SELECT held FROM stock_items WHERE item = 'phone'), (SELECT count(*) FROM stock_holds)",
                [],
                |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
            )
        })
    );
    claimed.unwrap();
    let (held, holds) = seen.unwrap();
    assert_eq!(held, holds);
}
