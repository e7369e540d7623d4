//! What this process last saw of each sale's stock, to refuse what is sold out without asking anybody.
//!
//! A refusal must be safe: the picture is young, and the account neither holds nor bought anything, so there is no
//! earlier claim of its own that its request could be repeating. While held units may yet come back, somebody may have
//! won one after the picture was taken, through another process. Such a request therefore waits for the next picture,
//! which everybody who waits shares: the store is asked no more often than without them.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use futures::{StreamExt as _, stream};
use lockgate_shared::{
    catalog::{Catalog, StoredSale},
    clock::{Clock, Timestamp},
    gate::StockSnapshot,
    ids::{AccountHash, ItemId, SaleId},
};
use tokio::{
    sync::{Notify, watch},
    time::{MissedTickBehavior, timeout},
};

use crate::gate::Gate;

/// How often the picture is renewed.
const REFRESH_EVERY: Duration = Duration::from_millis(250);
/// An older picture refuses nobody.
const AGE_MAX: Duration = Duration::from_secs(2);
/// Longest a request waits for the next picture; then it asks the gate itself.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Most accounts remembered to have won here; beyond it the picture refuses nobody in that sale.
const WINNERS_MAX: usize = 1_000_000;
/// Sales asked about at the same time.
const ASKED_AT_ONCE: usize = 16;

/// The pictures.
#[derive(Default)]
pub struct StockView {
    seen: ArcSwap<HashMap<SaleId, Arc<Seen>>>,
    /// Who won through this process: the picture learns of it only with its next renewal, and forgets whoever
    /// gives a unit back, although a repeated request must still find its claim.
    winners: Mutex<HashMap<SaleId, HashSet<u64>>>,
    /// How often units of a sale came back through this process: a picture asked for before that is out of date.
    returns: Mutex<HashMap<SaleId, u64>>,
    /// How many rounds of questions have begun.
    rounds: AtomicU64,
    renewed: Notify,
}

struct Seen {
    stock: StockSnapshot,
    claimants: HashSet<u64>,
    asked_at: Timestamp,
    /// The round that asked.
    round: u64,
}

/// Why a claim needs no call to the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoldOut {
    /// Whether held units may yet come back.
    pub may_return: bool,
}

impl StockView {
    /// Whether `item` is known to be sold out for `account`, also by whatever was won until this call.
    pub async fn sold_out(
        &self,
        sale: &SaleId,
        item: &ItemId,
        account: &AccountHash,
        clock: &dyn Clock,
    ) -> Option<SoldOut> {
        let begun = self.rounds.load(Ordering::SeqCst);
        let found = self.look(sale, item, account, clock.now())?;
        if !found.may_return {
            return Some(found);
        }
        timeout(WAIT_MAX, self.renewed_after(sale, begun)).await.ok()?;
        self.look(sale, item, account, clock.now())
    }

    /// Waits until there is a picture of a later round than `begun`, or none any more.
    async fn renewed_after(&self, sale: &SaleId, begun: u64) {
        loop {
            let mut renewed = pin!(self.renewed.notified());
            // Heard from here on, so that no picture slips in between the look and the wait.
            renewed.as_mut().enable();
            if self.seen.load().get(sale).is_none_or(|seen| seen.round > begun) {
                return;
            }
            renewed.await;
        }
    }

    fn look(&self, sale: &SaleId, item: &ItemId, account: &AccountHash, now: Timestamp) -> Option<SoldOut> {
        let seen = self.seen.load();
        let seen = seen.get(sale)?;
        let counts = seen.stock.item(item)?;
        let is_young = now >= seen.asked_at && now.since(seen.asked_at) < AGE_MAX;
        let says_who = !seen.stock.too_many_claimants;
        if !is_young || !says_who || !seen.stock.sold_out(counts) || seen.claimants.contains(&account.short())
        {
            return None;
        }
        let winners = self.winners.lock().unwrap_or_else(PoisonError::into_inner);
        let may_have_won =
            winners.get(sale).is_some_and(|won| won.len() >= WINNERS_MAX || won.contains(&account.short()));
        (!may_have_won).then(|| SoldOut {
            may_return: if counts.available == 0 { counts.held > 0 } else { seen.stock.may_return() },
        })
    }

    /// Remembers that `account` won something.
    pub fn won(&self, sale: &SaleId, account: &AccountHash) {
        let mut winners = self.winners.lock().unwrap_or_else(PoisonError::into_inner);
        let won = winners.entry(sale.clone()).or_default();
        if won.len() < WINNERS_MAX {
            won.insert(account.short());
        }
    }

    /// Units came back: what was seen before refuses nobody any more.
    pub fn returned(&self, sale: &SaleId) {
        let mut returns = self.returns.lock().unwrap_or_else(PoisonError::into_inner);
        *returns.entry(sale.clone()).or_default() += 1;
        self.seen.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.remove(sale);
            known
        });
    }

    /// Forgets sales that are over or gone: none of their claims is refused from here any more.
    fn keep(&self, going_on: impl Fn(&SaleId) -> bool) {
        self.winners.lock().unwrap_or_else(PoisonError::into_inner).retain(|sale, _| going_on(sale));
        self.returns.lock().unwrap_or_else(PoisonError::into_inner).retain(|sale, _| going_on(sale));
        if self.seen.load().keys().any(|sale| !going_on(sale)) {
            self.seen.rcu(|known| {
                let mut known = HashMap::clone(known);
                known.retain(|sale, _| going_on(sale));
                known
            });
        }
    }

    fn returns(&self, sale: &SaleId) -> u64 {
        let returns = self.returns.lock().unwrap_or_else(PoisonError::into_inner);
        returns.get(sale).copied().unwrap_or_default()
    }

    /// Takes a picture that was asked for at `asked_at` in this round, when units had come back `returns` times.
    fn saw(&self, sale: &SaleId, stock: StockSnapshot, (asked_at, round): (Timestamp, u64), returns: u64) {
        let known = self.returns.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(sale).copied().unwrap_or_default() != returns {
            return;
        }
        let claimants = stock.claimants.iter().copied().collect();
        let seen = Arc::new(Seen { claimants, stock, asked_at, round });
        self.seen.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.insert(sale.clone(), Arc::clone(&seen));
            known
        });
        self.renewed.notify_waiters();
    }

    /// Renews the pictures of open sales until `stop`.
    pub(crate) async fn run(
        &self,
        catalog: &Catalog,
        gate: &Gate,
        clock: &dyn Clock,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut ticks = tokio::time::interval(REFRESH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                _ = ticks.tick() => {}
            }
            let now = clock.now();
            self.keep(|sale| catalog.sale(sale).is_some_and(|sale| now < sale.definition.closes_at));
            let open: Vec<SaleId> = catalog
                .sales()
                .iter()
                .filter(|sale| is_open(sale, now))
                .map(|sale| sale.definition.id.clone())
                .collect();
            let round = self.rounds.fetch_add(1, Ordering::SeqCst) + 1;
            stream::iter(open)
                .for_each_concurrent(ASKED_AT_ONCE, |sale| async move {
                    let (asked_at, returns) = (clock.now(), self.returns(&sale));
                    // A picture that cannot be renewed grows old and then refuses nobody; the claim itself says
                    // what is wrong.
                    if let Ok(stock) = gate.stock(&sale).await {
                        self.saw(&sale, stock, (asked_at, round), returns);
                    }
                })
                .await;
        }
    }
}

/// Whether claims are taken, by this process's clock. The gate has the last word.
#[must_use]
pub fn is_open(sale: &StoredSale, now: Timestamp) -> bool {
    let definition = &sale.definition;
    !sale.controls.closed && definition.opens_at <= now && now < definition.closes_at
}

#[cfg(test)]
mod tests {
    use lockgate_shared::{gate::ItemStock, testing::ManualClock};

    use super::*;

    fn stock(available: u32, held: u32, claimants: &[u64]) -> StockSnapshot {
        StockSnapshot {
            items: vec![ItemStock {
                item: "phone".parse().unwrap(),
                stock: 10,
                available,
                held,
                sold: 10 - available - held,
            }],
            total_left: None,
            claimants: claimants.to_vec(),
            too_many_claimants: false,
        }
    }

    #[test]
    fn refuses_only_strangers_and_only_while_young() {
        let view = StockView::default();
        let (sale, item): (SaleId, ItemId) = ("demo".parse().unwrap(), "phone".parse().unwrap());
        let [holder, winner, stranger] = [1, 2, 3].map(|n| AccountHash::from_bytes([n; 16]));
        let at = Timestamp::from_seconds(1_000);
        let asks = |account| view.look(&sale, &item, account, at);
        assert_eq!(asks(&stranger), None, "nothing was seen yet");
        view.saw(&sale, stock(1, 2, &[]), (at, 0), 0);
        assert_eq!(asks(&stranger), None, "a unit is free");
        view.saw(&sale, stock(0, 2, &[holder.short()]), (at, 0), 0);
        view.won(&sale, &winner);
        assert_eq!(asks(&stranger), Some(SoldOut { may_return: true }));
        assert_eq!(asks(&holder), None, "its retry must find its hold");
        assert_eq!(asks(&winner), None, "its retry must find its hold");
        view.saw(&sale, stock(0, 0, &[]), (at, 0), 0);
        assert_eq!(asks(&stranger), Some(SoldOut { may_return: false }));
        assert_eq!(view.look(&sale, &item, &stranger, at.plus_seconds(2)), None, "too old");
        assert_eq!(view.look(&sale, &item, &stranger, at.minus_seconds(1)), None, "a clock set back");
        view.returned(&sale);
        assert_eq!(asks(&stranger), None, "a unit came back");
        view.saw(&sale, stock(0, 0, &[]), (at, 0), 0);
        assert_eq!(asks(&stranger), None, "asked before it came back");
        view.saw(&sale, stock(0, 0, &[]), (at, 0), 1);
        assert_eq!(asks(&stranger), Some(SoldOut { may_return: false }));
    }

    #[tokio::test(start_paused = true)]
    async fn while_units_may_return_only_what_was_seen_since_refuses() {
        let (sale, item): (SaleId, ItemId) = ("demo".parse().unwrap(), "phone".parse().unwrap());
        let [other, winner] = [1, 2].map(|n| AccountHash::from_bytes([n; 16]));
        let at = Timestamp::from_seconds(1_000);
        let clock = ManualClock::at(at);
        let view = StockView::default();
        let asks = |account| view.sold_out(&sale, &item, account, &clock);
        let begun = view.rounds.fetch_add(1, Ordering::SeqCst) + 1;
        view.saw(&sale, stock(0, 2, &[]), (at, begun), 0);
        // A unit came back, and was won through another process: this process learns of it from its next picture.
        let renew = async {
            view.saw(&sale, stock(0, 2, &[]), (at, begun), 0);
            let next = view.rounds.fetch_add(1, Ordering::SeqCst) + 1;
            view.saw(&sale, stock(0, 2, &[winner.short()]), (at, next), 0);
        };
        let (first, second, ()) = tokio::join!(asks(&winner), asks(&other), renew);
        assert_eq!((first, second), (None, Some(SoldOut { may_return: true })));
        assert_eq!(asks(&other).await, None, "no picture comes: the gate is asked");
        let (found, ()) = tokio::join!(asks(&other), async { view.returned(&sale) });
        assert_eq!(found, None, "a unit came back through this process");
        view.saw(&sale, stock(0, 0, &[]), (at, begun), 1);
        assert_eq!(asks(&other).await, Some(SoldOut { may_return: false }), "nobody can have won since");
    }

    #[test]
    fn a_sale_that_is_over_leaves_nothing_behind() {
        let view = StockView::default();
        let (over, other): (SaleId, SaleId) = ("over".parse().unwrap(), "other".parse().unwrap());
        for sale in [&over, &other] {
            view.returned(sale);
            view.saw(sale, stock(0, 2, &[]), (Timestamp::from_seconds(1_000), 0), 1);
            view.won(sale, &AccountHash::from_bytes([1; 16]));
        }
        view.keep(|sale| *sale == other);
        let left = |map: &Mutex<HashMap<SaleId, _>>| map.lock().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(left(&view.winners), std::slice::from_ref(&other));
        assert_eq!(view.returns.lock().unwrap().len(), 1);
        assert_eq!(view.seen.load().keys().collect::<Vec<_>>(), [&other]);
    }
}
