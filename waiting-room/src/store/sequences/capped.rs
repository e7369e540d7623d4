//! The cap: whatever is given back in whatever order, by several tabs at once, the lane counts at least the rights that
//! still claim.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::store::{
    conformance::{account, at, redemption, sale},
    *,
};

#[derive(Clone, Debug)]
enum Act {
    Enter(u8),
    Redeem(u8),
    /// Raises the epoch: what was given before is revoked.
    Revoke,
    /// A tab begins to give up the place its shopper has now.
    Leave(u8),
    /// A tab begins to give back a token that was once given.
    Release(usize),
    /// A tab that is under way takes its next step.
    Step(usize),
}

/// A tab on its way, as `app/leave.rs` walks it.
#[derive(Clone, Debug)]
enum Tab {
    Leaving { who: u8, seq: u64, forfeited: Option<String> },
    LeavingAdmitted { who: u8, seq: u64, jti: String },
    Releasing { who: u8, jti: String },
    Released { who: u8, jti: String },
}

#[derive(Default)]
struct Scene {
    store: Model,
    epoch: u32,
    seats: BTreeMap<u8, u64>,
    /// Token -> whose, and the epoch it was given in.
    given: BTreeMap<String, (u8, u32)>,
    at_gate: BTreeSet<String>,
    tabs: Vec<Tab>,
}

impl Scene {
    async fn act(&mut self, sale: &SaleId, act: &Act) {
        match act {
            Act::Enter(n) => {
                let entry =
                    Entry { account: account(*n), ticket_seq: None, missed_seq: None, listed_as: None };
                let view = LaneView::default();
                let entered = self.store.enter(sale, 0, &[entry], view, at(0)).await.unwrap().remove(0);
                self.seats.insert(*n, entered.entered().unwrap().seat.seq);
            }
            Act::Redeem(n) => {
                let Some(seq) = self.seats.get(n) else { return };
                let jti = format!("{n}.{seq}.{}", self.epoch);
                let turn = redemption(*n, *seq, &jti, 0, self.epoch);
                if let Redeemed::Admitted(right) =
                    self.store.redeem(sale, 0, &[turn]).await.unwrap().remove(0)
                {
                    self.given.insert(right.jti, (*n, right.epoch));
                }
            }
            Act::Revoke => self.epoch += 1,
            Act::Leave(n) => {
                let seq = self.seats.get(n);
                self.tabs.extend(seq.map(|seq| Tab::Leaving { who: *n, seq: *seq, forfeited: None }));
            }
            Act::Release(place) => {
                let live = |(_, (_, epoch)): &(&String, &(u8, u32))| *epoch == self.epoch;
                let given: Vec<_> = self.given.iter().filter(live).collect();
                if let Some((jti, (who, _))) = given.get(place % given.len().max(1)) {
                    self.tabs.push(Tab::Releasing { who: *who, jti: (*jti).clone() });
                }
            }
            Act::Step(place) => {
                let tabs = self.tabs.len();
                if tabs > 0 {
                    let tab = self.tabs.remove(place % tabs);
                    let next = self.step(sale, tab).await;
                    self.tabs.extend(next);
                }
            }
        }
    }

    async fn step(&mut self, sale: &SaleId, tab: Tab) -> Option<Tab> {
        match tab {
            Tab::Leaving { who, seq, forfeited } => {
                let left = self.store.leave(sale, 0, account(who), seq, forfeited.as_deref()).await.unwrap();
                match left {
                    Departure::Admitted { jti } => Some(Tab::LeavingAdmitted { who, seq, jti }),
                    Departure::Left | Departure::Superseded => None,
                }
            }
            Tab::LeavingAdmitted { who, seq, jti } => {
                self.at_gate.insert(jti.clone());
                Some(Tab::Leaving { who, seq, forfeited: Some(jti) })
            }
            Tab::Releasing { who, jti } => {
                self.at_gate.insert(jti.clone());
                Some(Tab::Released { who, jti })
            }
            Tab::Released { who, jti } => {
                let forfeit = Forfeit { account: account(who), which: WhichRight::Id(jti) };
                self.store.forfeit(sale, 0, &[forfeit]).await.unwrap();
                None
            }
        }
    }

    /// Tokens that a claim may still be made by.
    fn claiming(&self) -> usize {
        let claims =
            |(jti, (_, epoch)): &(&String, &(u8, u32))| *epoch == self.epoch && !self.at_gate.contains(*jti);
        self.given.iter().filter(claims).count()
    }
}

fn any_act() -> impl Strategy<Value = Act> {
    let (who, place) = (0u8..3, 0usize..8);
    prop_oneof![
        4 => who.clone().prop_map(Act::Enter),
        4 => who.clone().prop_map(Act::Redeem),
        1 => Just(Act::Revoke),
        3 => who.prop_map(Act::Leave),
        3 => place.clone().prop_map(Act::Release),
        8 => place.prop_map(Act::Step),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
    #[test]
    fn l4_no_order_of_steps_frees_a_place_that_still_claims(acts in prop::collection::vec(any_act(), 1..80)) {
        let sale = sale("capped");
        let mut scene = Scene::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for act in &acts {
                scene.act(&sale, act).await;
                let report = scene.store.survey(&sale, &[LogsRead::default()], at(1)).await.remove(0).unwrap();
                let claiming = scene.claiming();
                prop_assert!(claiming as u64 <= report.active, "{claiming} claim, {} count, at {act:?}", report.active);
            }
            Ok(())
        })?;
    }
}
