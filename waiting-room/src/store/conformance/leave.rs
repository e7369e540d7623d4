//! Places that are given up.

use super::{account, at, enter, entry, redeem, redemption, right, sale, shown, survey, view};
use crate::store::*;

pub(super) async fn leaving_is_final_and_logged_once(store: &dyn Store) {
    let sale = sale("leave");
    for n in 0..3 {
        enter(store, &sale, entry(n), view(0), 0).await;
    }
    assert_eq!(store.leave(&sale, 0, account(1), 1, None).await.unwrap(), Departure::Left);
    assert_eq!(store.leave(&sale, 0, account(1), 1, None).await.unwrap(), Departure::Left);
    assert_eq!(redeem(store, &sale, redemption(1, 1, "j", 0, 0)).await, Redeemed::Left);
    let reports = store.survey(&sale, &[LogsRead::default(); 2], at(0)).await;
    let read = |left| LogsRead { left, redeemed: 0 };
    let expected = LaneReport { count: 3, newly_left: vec![1], read: read(1), ..LaneReport::default() };
    assert_eq!(reports, [Some(expected), Some(LaneReport::default())]);
    assert_eq!(enter(store, &sale, shown(1, 1), view(0), 0).await, (3, true));
    assert_eq!(store.leave(&sale, 0, account(1), 1, None).await.unwrap(), Departure::Superseded);
    assert_eq!(
        store.leave(&sale, 0, account(9), 30, None).await.unwrap(),
        Departure::Left,
        "the store had lost it"
    );
    let report = survey(store, &sale, read(1), 0).await;
    let expected = LaneReport { count: 31, newly_left: vec![30], read: read(2), ..LaneReport::default() };
    assert_eq!(report, expected);
    let again = survey(store, &sale, read(5), 0).await;
    assert_eq!(again.newly_left, [1, 30], "a log shorter than what was read is read anew");
}

pub(super) async fn l4_an_admitted_place_is_freed_only_once_its_right_is_forfeited(store: &dyn Store) {
    let sale = sale("leave-admitted");
    for n in 0..2 {
        enter(store, &sale, entry(n), view(0), 0).await;
        redeem(store, &sale, redemption(n, u64::from(n), &format!("-_j{n}"), 0, 0)).await;
    }
    let leave = async |forfeited| store.leave(&sale, 0, account(0), 0, forfeited).await.unwrap();
    let admitted = |jti: &str| Departure::Admitted { jti: jti.into() };
    for other in [None, Some(""), Some("-_j1"), Some("-_j"), Some("-_j00")] {
        assert_eq!(leave(other).await, admitted("-_j0"), "{other:?}");
    }
    let stands = Some(Seat { seq: 0, state: SeatState::Admitted(right("-_j0", 0, 0)) });
    assert_eq!(store.seat(&sale, 0, account(0)).await.unwrap(), stands, "nothing changed");
    assert_eq!(survey(store, &sale, LogsRead::default(), 1).await.active, 2);
    // Revoked and admitted anew while somebody left: the id is another.
    redeem(store, &sale, redemption(0, 0, "k0", 1, 1)).await;
    assert_eq!(leave(Some("-_j0")).await, admitted("k0"));
    assert_eq!(leave(Some("k0")).await, Departure::Left);
    assert_eq!(leave(None).await, Departure::Left, "again");
    let report = survey(store, &sale, LogsRead::default(), 1).await;
    assert_eq!((report.active, report.newly_left), (1, vec![0]));
    // One that ended otherwise is no exception: whoever keeps no clock cannot tell.
    store
        .forfeit(&sale, 0, &[Forfeit { account: account(1), which: WhichRight::Id("-_j1".into()) }])
        .await
        .unwrap();
    let ended = async |forfeited| store.leave(&sale, 0, account(1), 1, forfeited).await.unwrap();
    assert_eq!(ended(None).await, admitted("-_j1"));
    assert_eq!(ended(Some("-_j1")).await, Departure::Left);
}
