//! Rights that end before their time.

use super::{account, at, enter, entry, redeem, redemption, right, sale, shown, survey, view};
use crate::store::*;

fn forfeit(n: u8, issued: i64) -> Forfeit {
    Forfeit { account: account(n), which: WhichRight::GivenAt(at(issued)) }
}

pub(super) async fn a_forfeited_right_is_over_and_its_place_is_used_up(store: &dyn Store) {
    let sale = sale("forfeit");
    for n in 0..4 {
        enter(store, &sale, entry(n), view(0), 0).await;
    }
    for n in 0..3 {
        redeem(store, &sale, redemption(n, u64::from(n), "j", 5, 0)).await;
    }
    assert_eq!(survey(store, &sale, LogsRead::default(), 6).await.active, 3);
    assert_eq!(store.forfeit(&sale, 0, &[]).await.unwrap(), 0);
    let none = [forfeit(0, 4), forfeit(0, 6), forfeit(3, 5), forfeit(9, 5)];
    assert_eq!(store.forfeit(&sale, 0, &none).await.unwrap(), 0, "another right, none, nobody");
    assert_eq!(store.forfeit(&sale, 1, &[forfeit(0, 5)]).await.unwrap(), 0, "another lane");
    assert_eq!(survey(store, &sale, LogsRead::default(), 6).await.active, 3);
    let both = [forfeit(0, 5), forfeit(1, 5), forfeit(0, 5)];
    assert_eq!(store.forfeit(&sale, 0, &both).await.unwrap(), 2);
    assert_eq!(store.forfeit(&sale, 0, &both).await.unwrap(), 0, "once");
    assert_eq!(survey(store, &sale, LogsRead::default(), 6).await.active, 1, "the cap has room again");
    assert_eq!(redeem(store, &sale, redemption(0, 0, "k", 6, 0)).await, Redeemed::Lapsed);
    assert_eq!(redeem(store, &sale, redemption(0, 0, "k", 6, 1)).await, Redeemed::Lapsed, "a new epoch too");
    assert_eq!(enter(store, &sale, shown(0, 0), view(0), 6).await, (4, true), "a new place at the end");
    assert_eq!(enter(store, &sale, entry(0), view(0), 6).await, (4, false));
    assert_eq!(
        store.forfeit(&sale, 0, &[forfeit(0, 5)]).await.unwrap(),
        0,
        "told late, it harms no new place"
    );
    let fresh = redeem(store, &sale, redemption(0, 4, "l", 9, 0)).await;
    assert_eq!(fresh, Redeemed::Admitted(right("l", 9, 0)));
    assert_eq!(store.forfeit(&sale, 0, &[forfeit(0, 5)]).await.unwrap(), 0, "nor a new right");
    assert_eq!(enter(store, &sale, entry(2), view(0), 6).await, (2, false), "others keep theirs");
}

fn renewal(n: u8, jti: &str, now: i64, to: i64) -> Renewal {
    Renewal { account: account(n), jti: jti.into(), now: at(now), expires_at: at(to), seconds_max: 100 }
}

pub(super) async fn a_live_right_is_renewed_up_to_its_cap(store: &dyn Store) {
    let sale = sale("renew");
    for n in 0..3 {
        enter(store, &sale, entry(n), view(0), 0).await;
        redeem(store, &sale, redemption(n, u64::from(n), &format!("j{n}"), 0, 0)).await;
    }
    let renew = async |renewal: Renewal| store.renew(&sale, 0, &renewal).await.unwrap();
    let ends = |right: Option<Right>| right.map(|right| right.expires_at);
    assert_eq!(renew(renewal(0, "other", 10, 70)).await, None, "another right");
    assert_eq!(renew(renewal(9, "j9", 10, 70)).await, None, "nobody");
    assert_eq!(renew(renewal(0, "j0", 60, 120)).await, None, "it has run out");
    let renewed = renew(renewal(0, "j0", 59, 70)).await;
    assert_eq!(renewed, Some(Right { expires_at: at(70), ..right("j0", 0, 0) }), "the same id and beginning");
    assert_eq!(ends(renew(renewal(0, "j0", 60, 65)).await), Some(at(70)), "never shorter");
    assert_eq!(ends(renew(renewal(0, "j0", 69, 500)).await), Some(at(100)), "never longer than it may");
    assert_eq!(ends(renew(renewal(0, "j0", 99, 500)).await), Some(at(100)));
    let again = redeem(store, &sale, redemption(0, 0, "k", 99, 0)).await;
    assert_eq!(again, Redeemed::Admitted(Right { expires_at: at(100), ..right("j0", 0, 0) }));
    assert_eq!(survey(store, &sale, LogsRead::default(), 80).await.active, 1, "active as long as it lasts");
    assert_eq!(enter(store, &sale, entry(0), view(9), 99).await, (0, false));
    store.conclude(&sale, 0, &[account(1)]).await.unwrap();
    assert_eq!(ends(renew(renewal(1, "j1", 5, 90)).await), Some(at(90)));
    assert_eq!(
        survey(store, &sale, LogsRead::default(), 6).await.active,
        2,
        "whoever has bought is not active"
    );
    store.leave(&sale, 0, account(2), 2, Some("j2")).await.unwrap();
    assert_eq!(renew(renewal(2, "j2", 5, 90)).await, None, "given up");
    store.forfeit(&sale, 0, &[forfeit(0, 0)]).await.unwrap();
    assert_eq!(renew(renewal(0, "j0", 70, 90)).await, None, "used up");
}

pub(super) async fn of_two_rights_of_one_second_the_named_one_ends(store: &dyn Store) {
    let sale = sale("forfeit-by-id");
    let by_id = async |jti: &str| {
        let forfeit = Forfeit { account: account(0), which: WhichRight::Id(jti.into()) };
        store.forfeit(&sale, 0, &[forfeit]).await.unwrap()
    };
    enter(store, &sale, entry(0), view(0), 0).await;
    redeem(store, &sale, redemption(0, 0, "first", 5, 0)).await;
    assert_eq!(by_id("firs").await + by_id("second").await, 0);
    assert_eq!(by_id("first").await, 1);
    assert_eq!(enter(store, &sale, entry(0), view(0), 5).await, (1, true));
    let second = redeem(store, &sale, redemption(0, 1, "second", 5, 0)).await;
    assert_eq!(by_id("first").await, 0, "told again, it leaves the next right alone");
    assert_eq!(redeem(store, &sale, redemption(0, 1, "x", 5, 0)).await, second);
    assert_eq!(survey(store, &sale, LogsRead::default(), 6).await.active, 1);
    assert_eq!(by_id("second").await, 1);
    assert_eq!(survey(store, &sale, LogsRead::default(), 6).await.active, 0);
}
