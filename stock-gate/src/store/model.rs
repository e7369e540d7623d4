//! The model: the gate in memory, as plainly as it can be said. Every back end answers like it.

mod inside;
mod rebuild;
mod reclaim;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use lockgate_shared::{
    clock::{Clock, Timestamp},
    events::{Abandoned, Event, EventKind},
    gate::{
        ClaimAnswer, CommitAnswer, ConcludeAnswer, ConcludeRequest, ForfeitAnswer, FreezeAnswer, Hold,
        HoldState, HoldsPage, ItemStock, ReclaimAnswer, ReleaseAnswer, RestockAnswer, RestockRequest,
        StageAnswer, StageRequest, StockSnapshot,
    },
    ids::{AccountHash, ClaimId, ItemId, SaleId, TokenId},
    limits::RESTOCKS_MAX,
    store::StoreError,
};
use uuid::Uuid;

pub use self::inside::Copied;
use super::{Claim, FreezeOrder, Restocking, Store, Suspicion};
use crate::{
    hold::{self, Refusal, Step},
    stock::{self, Counts, Limits, Restock, Standing},
};

/// The gate in memory. For tests and as the specification; nothing survives the process.
pub struct ModelStore {
    clock: Arc<dyn Clock>,
    sales: Mutex<HashMap<SaleId, Sale>>,
}

#[derive(Clone, Default)]
struct Sale {
    items: Vec<(ItemId, Shelf)>,
    holds: BTreeMap<ClaimId, Hold>,
    accounts: BTreeMap<AccountHash, Live>,
    restocks: BTreeMap<Uuid, (ItemId, i64)>,
    /// Claim -> when its admission was given, while its hold is live and abandoned ones are counted.
    admissions: BTreeMap<ClaimId, i64>,
    abandoned: BTreeMap<AccountHash, Abandoned>,
    forfeited: BTreeSet<TokenId>,
    /// Claims whose reclaim was refused.
    refused: BTreeMap<ClaimId, ReclaimAnswer>,
    clock: Timestamp,
    events: Vec<Event>,
    generation: u64,
    frozen: Option<Uuid>,
    staged: BTreeMap<Uuid, rebuild::Staged>,
}

/// What an account has.
#[derive(Clone, Copy, Default)]
struct Live {
    /// Units held or bought.
    units: u32,
    /// Holds that are held or expiring.
    holds: u32,
}

#[derive(Clone)]
struct Shelf {
    counts: Counts,
    returned: BTreeSet<u32>,
}

type Answer<T> = Result<T, Suspicion>;

impl ModelStore {
    /// An empty store under `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, sales: Mutex::default() }
    }

    /// Everything that happened in a sale, in order.
    #[must_use]
    pub fn events(&self, sale: &SaleId) -> Vec<Event> {
        let sales = self.sales.lock().unwrap_or_else(PoisonError::into_inner);
        sales.get(sale).map(|sale| sale.events.clone()).unwrap_or_default()
    }

    fn raw<T>(&self, step: impl FnOnce(&mut HashMap<SaleId, Sale>) -> T) -> T {
        step(&mut self.sales.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with<T>(
        &self,
        verb: &'static str,
        sale: &SaleId,
        step: impl FnOnce(&mut Sale) -> Answer<T>,
    ) -> Result<T, StoreError> {
        let mut sales = self.sales.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match sales.get_mut(sale) {
            None => Err(Suspicion::no_stock(sale)),
            Some(sold) if sold.frozen.is_some() => Err(Suspicion::frozen(sale)),
            Some(sold) => Ok(sold),
        };
        found.and_then(step).map_err(|why| why.at(verb))
    }
}

fn count(units: &[u32]) -> u32 {
    u32::try_from(units.len()).unwrap_or(u32::MAX)
}

fn broken() -> Suspicion {
    Suspicion("the counts do not add up".into())
}

impl Sale {
    fn shelf(&mut self, item: &ItemId) -> Option<&mut Shelf> {
        self.items.iter_mut().find(|(id, _)| id == item).map(|(_, shelf)| shelf)
    }

    fn standing(&self, account: &AccountHash, admitted_at: i64) -> Standing {
        let live = self.accounts.get(account).copied().unwrap_or_default();
        let counts = || self.items.iter().map(|(_, shelf)| shelf.counts);
        Standing {
            total: counts().map(|counts| counts.held + counts.sold).sum(),
            held: counts().map(|counts| counts.held).sum(),
            account: live.units,
            live_holds: live.holds,
            abandoned: hold::abandoned_under(self.abandoned.get(account).copied(), admitted_at),
        }
    }

    fn append(&mut self, kind: EventKind, hold: &Hold, abandoned: Option<Abandoned>) {
        let event = super::event(kind, hold, abandoned);
        self.events.push(Event { id: (self.events.len() + 1).to_string(), ..event });
    }

    /// Forgets the claim's admission, and counts the hold if it was abandoned.
    fn settle_admission(&mut self, hold: &Hold) -> Option<Abandoned> {
        let admitted_at = self.admissions.remove(&hold.claim)?;
        if !hold::is_abandoned(hold.state) {
            return None;
        }
        let abandoned = hold::abandoned(self.abandoned.get(&hold.account).copied(), admitted_at)?;
        self.abandoned.insert(hold.account, abandoned);
        Some(abandoned)
    }

    fn claim(&mut self, claim: &Claim, now: Timestamp) -> Answer<ClaimAnswer> {
        let request = &claim.request;
        if let Some(hold) = self.holds.get(&request.claim).cloned() {
            return Ok(ClaimAnswer::Held { hold, replayed: true });
        }
        match claim.refusal {
            Some(Refusal::NotOpen) => return Ok(ClaimAnswer::NotOpen),
            Some(Refusal::Revoked) => return Ok(ClaimAnswer::Revoked),
            None => {}
        }
        if self.forfeited.contains(&request.token_id) {
            return Ok(ClaimAnswer::Forfeited);
        }
        let standing = self.standing(&request.account, request.admitted_at);
        let now = hold::monotone(now, self.clock);
        let Some(shelf) = self.shelf(&request.item) else {
            return Ok(ClaimAnswer::NoSuchItem);
        };
        if let Some(refusal) = stock::refusal(&shelf.counts, &standing, &claim.limits, request.quantity) {
            return Ok(refusal);
        }
        let (units, fresh) = stock::pick(shelf.returned.iter().copied(), &shelf.counts, request.quantity)
            .ok_or_else(broken)?;
        shelf.counts = shelf.counts.taken(request.quantity, fresh).ok_or_else(broken)?;
        shelf.returned.retain(|unit| !units.contains(unit));
        let hold = super::new_hold(claim, units, now);
        let live = self.accounts.entry(request.account).or_default();
        *live = Live { units: live.units + request.quantity, holds: live.holds + 1 };
        self.holds.insert(request.claim, hold.clone());
        if claim.limits.abandoned_holds.is_some() {
            self.admissions.insert(request.claim, request.admitted_at);
        }
        self.clock = now;
        self.append(EventKind::Claimed, &hold, None);
        Ok(ClaimAnswer::Held { hold, replayed: false })
    }

    fn commit(&mut self, claim: ClaimId) -> Answer<CommitAnswer> {
        let Some(mut hold) = self.holds.get(&claim).cloned() else {
            return Ok(CommitAnswer::NoSuchClaim);
        };
        if let Step::Stands(answer) = hold::commit(hold.state) {
            return Ok(answer);
        }
        let shelf = self.shelf(&hold.item).ok_or_else(broken)?;
        shelf.counts = shelf.counts.committed(count(&hold.units)).ok_or_else(broken)?;
        let live = self.accounts.entry(hold.account).or_default();
        live.holds = live.holds.checked_sub(1).ok_or_else(broken)?;
        self.admissions.remove(&claim);
        hold.state = HoldState::Committed;
        self.append(EventKind::Committed, &hold, None);
        self.holds.insert(claim, hold);
        Ok(CommitAnswer::Committed)
    }

    fn release(&mut self, claim: ClaimId) -> Answer<ReleaseAnswer> {
        let Some(mut hold) = self.holds.get(&claim).cloned() else {
            return Ok(ReleaseAnswer::NoSuchClaim);
        };
        if let Step::Stands(answer) = hold::release(hold.state) {
            return Ok(answer);
        }
        let shelf = self.shelf(&hold.item).ok_or_else(broken)?;
        shelf.counts = shelf.counts.released(count(&hold.units)).ok_or_else(broken)?;
        shelf.returned.extend(&hold.units);
        let live = self.accounts.entry(hold.account).or_default();
        live.units = live.units.checked_sub(count(&hold.units)).ok_or_else(broken)?;
        live.holds = live.holds.checked_sub(1).ok_or_else(broken)?;
        let abandoned = self.settle_admission(&hold);
        hold.state = HoldState::Released;
        self.append(EventKind::Released, &hold, abandoned);
        self.holds.insert(claim, hold);
        Ok(ReleaseAnswer::Released)
    }

    fn restock(&mut self, change: &Restocking) -> RestockAnswer {
        let request = &change.request;
        let known = self.restocks.get(&request.id);
        let replayed = known.is_some() || change.is_defined;
        if known.is_some_and(|known| *known != (request.item.clone(), request.change)) {
            return RestockAnswer::Mismatch;
        }
        let is_full = self.restocks.len() >= RESTOCKS_MAX;
        let units = self.items.iter().map(|(_, shelf)| u64::from(shelf.counts.stock)).sum();
        let Some(shelf) = self.shelf(&request.item) else {
            return RestockAnswer::NoSuchItem;
        };
        let counts = super::item_stock(request.item.clone(), &shelf.counts);
        if replayed {
            return RestockAnswer::Changed { counts, replayed };
        }
        if is_full {
            return RestockAnswer::TooManyChanges { most: RESTOCKS_MAX };
        }
        if let Some((limit, total)) = stock::below_total_limit(units, request.change, change.total_limit) {
            return RestockAnswer::BelowTotalLimit { limit, total };
        }
        match stock::restock(shelf.counts, request.change) {
            Restock::Taken { least } => return RestockAnswer::Taken { counts, least },
            Restock::TooMany { most } => return RestockAnswer::TooMany { counts, most },
            Restock::Changes { counts, withdrawn } => {
                shelf.counts = counts;
                for _ in 0..withdrawn {
                    shelf.returned.pop_last();
                }
            }
        }
        let counts = super::item_stock(request.item.clone(), &shelf.counts);
        self.restocks.insert(request.id, (request.item.clone(), request.change));
        RestockAnswer::Changed { counts, replayed }
    }

    fn restocks(&self) -> Vec<RestockRequest> {
        let request = |(id, (item, change)): (&Uuid, &(ItemId, i64))| RestockRequest {
            id: *id,
            item: item.clone(),
            change: *change,
        };
        self.restocks.iter().map(request).collect()
    }

    fn expire(&mut self, max: usize, now: Timestamp) -> Vec<ClaimId> {
        let now = hold::monotone(now, self.clock);
        let mut due: Vec<(Timestamp, ClaimId)> = self
            .holds
            .values()
            .filter(|hold| hold::is_due(hold.state, hold.deadline, now))
            .map(|hold| (hold.deadline, hold.claim))
            .collect();
        due.sort_unstable();
        due.truncate(max);
        for (_, claim) in &due {
            let Some(mut hold) = self.holds.get(claim).cloned() else {
                continue;
            };
            hold.state = HoldState::Expiring;
            self.append(EventKind::Expiring, &hold, None);
            self.holds.insert(*claim, hold);
            self.clock = now;
        }
        due.into_iter().map(|(_, claim)| claim).collect()
    }

    fn stock(&self, total_limit: Option<u32>) -> StockSnapshot {
        let items: Vec<ItemStock> =
            self.items.iter().map(|(item, shelf)| super::item_stock(item.clone(), &shelf.counts)).collect();
        let total = items.iter().map(|item| item.held + item.sold).sum();
        let mut snapshot = super::snapshot(items, stock::total_left(total, total_limit));
        if super::lists_claimants(&snapshot) {
            super::list_claimants(&mut snapshot, self.accounts.keys().map(AccountHash::short).collect());
        }
        snapshot
    }
}

#[async_trait]
impl Store for ModelStore {
    async fn claim(&self, sale: &SaleId, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
        self.with("claim", sale, |sale| sale.claim(claim, self.clock.now()))
    }

    async fn commit(&self, sale: &SaleId, claim: ClaimId) -> Result<CommitAnswer, StoreError> {
        self.with("commit", sale, |sale| sale.commit(claim))
    }

    async fn release(&self, sale: &SaleId, claim: ClaimId) -> Result<ReleaseAnswer, StoreError> {
        self.with("release", sale, |sale| sale.release(claim))
    }

    async fn reclaim(
        &self,
        sale: &SaleId,
        claim: ClaimId,
        limits: &Limits,
    ) -> Result<ReclaimAnswer, StoreError> {
        self.with("reclaim", sale, |sale| sale.reclaim(claim, limits))
    }

    async fn expire(&self, sale: &SaleId, max: usize) -> Result<Vec<ClaimId>, StoreError> {
        self.with("expire", sale, |sale| Ok(sale.expire(max, self.clock.now())))
    }

    async fn forfeit(&self, sale: &SaleId, token_id: &TokenId) -> Result<ForfeitAnswer, StoreError> {
        self.with("forfeit", sale, |sale| {
            sale.forfeited.insert(token_id.clone());
            Ok(ForfeitAnswer::Forfeited)
        })
    }

    async fn restock(&self, sale: &SaleId, change: &Restocking) -> Result<RestockAnswer, StoreError> {
        self.with("restock", sale, |sale| Ok(sale.restock(change)))
    }

    async fn restocks(&self, sale: &SaleId) -> Result<Vec<RestockRequest>, StoreError> {
        Ok(self.raw(|sales| sales.get(sale).map(Sale::restocks).unwrap_or_default()))
    }

    async fn hold(&self, sale: &SaleId, claim: ClaimId) -> Result<Option<Hold>, StoreError> {
        self.with("hold", sale, |sale| Ok(sale.holds.get(&claim).cloned()))
    }

    async fn stock(&self, sale: &SaleId, total_limit: Option<u32>) -> Result<StockSnapshot, StoreError> {
        self.with("stock", sale, |sale| Ok(sale.stock(total_limit)))
    }

    async fn generation(&self, sale: &SaleId) -> Result<Option<u64>, StoreError> {
        Ok(self.raw(|sales| sales.get(sale).map(|sale| sale.generation)))
    }

    async fn freeze(&self, sale: &SaleId, order: &FreezeOrder) -> Result<FreezeAnswer, StoreError> {
        Ok(self.raw(|sales| sales.entry(sale.clone()).or_default().freeze(order)))
    }

    async fn holds(&self, sale: &SaleId, after: Option<&str>, max: usize) -> Result<HoldsPage, StoreError> {
        Ok(self.raw(|sales| sales.get(sale).map(|sale| sale.page(after, max)).unwrap_or_default()))
    }

    async fn stage(&self, sale: &SaleId, page: &StageRequest) -> Result<StageAnswer, StoreError> {
        Ok(self.raw(|sales| sales.get_mut(sale).map_or(StageAnswer::Stale, |sale| sale.stage(page))))
    }

    async fn conclude(&self, sale: &SaleId, request: &ConcludeRequest) -> Result<ConcludeAnswer, StoreError> {
        Ok(self.raw(|sales| sales.get_mut(sale).map_or(ConcludeAnswer::Stale, |sale| sale.conclude(request))))
    }

    async fn ready(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
