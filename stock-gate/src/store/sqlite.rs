//! The gate on SQLite: each verb is one operation of the writer, so it stands or falls as a whole.

mod abandoned;
mod forfeited;
mod rebuild;
mod reclaim;
mod restock;
mod rows;

use std::sync::Arc;

use async_trait::async_trait;
use lockgate_shared::{
    clock::{Clock, Timestamp},
    events::EventKind,
    gate::{
        ClaimAnswer, CommitAnswer, ConcludeAnswer, ConcludeRequest, ForfeitAnswer, FreezeAnswer, Hold,
        HoldState, HoldsPage, ReclaimAnswer, ReleaseAnswer, RestockAnswer, RestockRequest, StageAnswer,
        StageRequest, StockSnapshot,
    },
    ids::{AccountHash, ClaimId, SaleId, TokenId},
    limits::CLAIMANTS_MAX,
    store::{StoreError, migrations::Migration, sqlite::Sqlite},
};
use rusqlite::{Connection, params};

use self::rows::*;
use super::{Claim, FreezeOrder, Restocking, Store, Suspicion};
use crate::{
    hold::{self, Refusal, Step},
    stock::{self, Limits},
};

/// The gate's tables. The event log's tables ([`lockgate_shared::events::sqlite::EVENTS_SQLITE`]) must be in the same file.
pub const STOCK_SQLITE: &[Migration] = &[
    Migration { version: 1, sql: TABLES },
    Migration { version: 2, sql: abandoned::TABLES },
    Migration { version: 3, sql: forfeited::TABLE },
    Migration { version: 4, sql: restock::TABLES },
    Migration { version: 5, sql: rebuild::TABLES },
    Migration { version: 6, sql: reclaim::TABLE },
];

const TABLES: &str = "
        CREATE TABLE stock_sales (
            sale TEXT PRIMARY KEY, clock INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE stock_items (
            sale TEXT NOT NULL, item TEXT NOT NULL, place INTEGER NOT NULL, stock INTEGER NOT NULL,
            available INTEGER NOT NULL CHECK (available >= 0), held INTEGER NOT NULL CHECK (held >= 0),
            sold INTEGER NOT NULL CHECK (sold >= 0), next INTEGER NOT NULL CHECK (next BETWEEN 1 AND stock + 1),
            PRIMARY KEY (sale, item), CHECK (available + held + sold = stock)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE stock_returned (
            sale TEXT NOT NULL, item TEXT NOT NULL, unit INTEGER NOT NULL, PRIMARY KEY (sale, item, unit)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE stock_accounts (
            sale TEXT NOT NULL, account TEXT NOT NULL, live INTEGER NOT NULL CHECK (live >= 0),
            PRIMARY KEY (sale, account)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE stock_holds (
            sale TEXT NOT NULL, claim TEXT NOT NULL, account TEXT NOT NULL, item TEXT NOT NULL, units TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('held', 'expiring', 'committed', 'released')),
            claimed_at INTEGER NOT NULL, deadline INTEGER NOT NULL, memo TEXT NOT NULL, PRIMARY KEY (sale, claim)
        ) STRICT;
        CREATE INDEX stock_holds_due ON stock_holds (sale, deadline, claim) WHERE state = 'held';
    ";

/// The gate on SQLite.
pub struct SqliteStore {
    db: Sqlite,
    clock: Arc<dyn Clock>,
}

/// What a step found; a suspicion was found before anything was written.
type Answer<T> = rusqlite::Result<Result<T, Suspicion>>;

impl SqliteStore {
    /// Over an open database that has [`STOCK_SQLITE`] and the event log's tables.
    #[must_use]
    pub fn new(db: Sqlite, clock: Arc<dyn Clock>) -> Self {
        Self { db, clock }
    }

    async fn write<T: Send + 'static>(
        &self,
        verb: &'static str,
        sale: &SaleId,
        mut step: impl FnMut(&Connection, &SaleId) -> Answer<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let sale = sale.clone();
        let answer = self.db.write(verb, move |db| step(db, &sale)).await?;
        answer.map_err(|why| why.at(verb))
    }

    async fn read<T: Send + 'static>(
        &self,
        verb: &'static str,
        sale: &SaleId,
        step: impl FnOnce(&Connection, &SaleId) -> Answer<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let sale = sale.clone();
        // A transaction, so that several statements see one moment.
        let in_one_moment = move |db: &Connection| {
            let tx = db.unchecked_transaction()?;
            let answer = step(&tx, &sale)?;
            tx.commit()?;
            Ok(answer)
        };
        let answer = self.db.read(verb, in_one_moment).await?;
        answer.map_err(|why| why.at(verb))
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn claim(&self, sale: &SaleId, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
        let (claim, now) = (claim.clone(), self.clock.now());
        self.write("claim", sale, move |db, sale| self::claim(db, sale, &claim, now)).await
    }

    async fn commit(&self, sale: &SaleId, claim: ClaimId) -> Result<CommitAnswer, StoreError> {
        self.write("commit", sale, move |db, sale| commit(db, sale, claim)).await
    }

    async fn release(&self, sale: &SaleId, claim: ClaimId) -> Result<ReleaseAnswer, StoreError> {
        self.write("release", sale, move |db, sale| release(db, sale, claim)).await
    }

    async fn reclaim(
        &self,
        sale: &SaleId,
        claim: ClaimId,
        limits: &Limits,
    ) -> Result<ReclaimAnswer, StoreError> {
        let limits = *limits;
        self.write("reclaim", sale, move |db, sale| reclaim::reclaim(db, sale, claim, &limits)).await
    }

    async fn expire(&self, sale: &SaleId, max: usize) -> Result<Vec<ClaimId>, StoreError> {
        let now = self.clock.now();
        self.write("expire", sale, move |db, sale| expire(db, sale, max, now)).await
    }

    async fn forfeit(&self, sale: &SaleId, token_id: &TokenId) -> Result<ForfeitAnswer, StoreError> {
        let token_id = token_id.clone();
        self.write("forfeit", sale, move |db, sale| forfeited::forfeit(db, sale, &token_id)).await
    }

    async fn restock(&self, sale: &SaleId, change: &Restocking) -> Result<RestockAnswer, StoreError> {
        let change = change.clone();
        self.write("restock", sale, move |db, sale| restock::restock(db, sale, &change)).await
    }

    async fn restocks(&self, sale: &SaleId) -> Result<Vec<RestockRequest>, StoreError> {
        self.read("restocks", sale, |db, sale| restock::made(db, sale).map(Ok)).await
    }

    async fn hold(&self, sale: &SaleId, claim: ClaimId) -> Result<Option<Hold>, StoreError> {
        let step = move |db: &Connection, sale: &SaleId| match clock(db, sale)? {
            Err(why) => Ok(Err(why)),
            Ok(_) => find(db, sale, claim).map(Ok),
        };
        self.read("hold", sale, step).await
    }

    async fn stock(&self, sale: &SaleId, total_limit: Option<u32>) -> Result<StockSnapshot, StoreError> {
        self.read("stock", sale, move |db, sale| stock(db, sale, total_limit)).await
    }

    async fn generation(&self, sale: &SaleId) -> Result<Option<u64>, StoreError> {
        self.read("generation", sale, |db, sale| rebuild::generation(db, sale).map(Ok)).await
    }

    async fn freeze(&self, sale: &SaleId, order: &FreezeOrder) -> Result<FreezeAnswer, StoreError> {
        let order = order.clone();
        self.write("freeze", sale, move |db, sale| rebuild::freeze(db, sale, &order).map(Ok)).await
    }

    async fn holds(&self, sale: &SaleId, after: Option<&str>, max: usize) -> Result<HoldsPage, StoreError> {
        let after = after.unwrap_or_default().to_owned();
        self.read("holds", sale, move |db, sale| rebuild::holds(db, sale, &after, max).map(Ok)).await
    }

    async fn stage(&self, sale: &SaleId, page: &StageRequest) -> Result<StageAnswer, StoreError> {
        let page = page.clone();
        self.write("stage", sale, move |db, sale| rebuild::stage(db, sale, &page).map(Ok)).await
    }

    async fn conclude(&self, sale: &SaleId, request: &ConcludeRequest) -> Result<ConcludeAnswer, StoreError> {
        let request = request.clone();
        self.write("conclude", sale, move |db, sale| rebuild::conclude(db, sale, &request).map(Ok)).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        let probe = |db: &Connection| db.query_row("SELECT count(*) FROM stock_sales", [], |_| Ok(()));
        self.db.read("ready", probe).await
    }
}

fn claim(db: &Connection, sale: &SaleId, claim: &Claim, now: Timestamp) -> Answer<ClaimAnswer> {
    let request = &claim.request;
    let last = match clock(db, sale)? {
        Ok(last) => last,
        Err(why) => return Ok(Err(why)),
    };
    if let Some(hold) = find(db, sale, request.claim)? {
        return Ok(Ok(ClaimAnswer::Held { hold, replayed: true }));
    }
    match claim.refusal {
        Some(Refusal::NotOpen) => return Ok(Ok(ClaimAnswer::NotOpen)),
        Some(Refusal::Revoked) => return Ok(Ok(ClaimAnswer::Revoked)),
        None => {}
    }
    if forfeited::is_forfeited(db, sale, &request.token_id)? {
        return Ok(Ok(ClaimAnswer::Forfeited));
    }
    let Some(counts) = counts(db, sale, &request.item)? else {
        return Ok(Ok(ClaimAnswer::NoSuchItem));
    };
    let mut standing = standing(db, sale, &request.account)?;
    if claim.limits.abandoned_holds.is_some() {
        let known = abandoned::of(db, sale, &request.account)?;
        standing.abandoned = hold::abandoned_under(known, request.admitted_at);
    }
    if let Some(refusal) = stock::refusal(&counts, &standing, &claim.limits, request.quantity) {
        return Ok(Ok(refusal));
    }
    let returned = returned(db, sale, &request.item, request.quantity)?;
    let taken = stock::pick(returned, &counts, request.quantity)
        .and_then(|(units, fresh)| Some((units, fresh, counts.taken(request.quantity, fresh)?)));
    let Some((units, fresh, counts)) = taken else {
        return Ok(Err(broken(&request.item)));
    };
    let now = hold::monotone(now, last);
    let hold = super::new_hold(claim, units, now);
    take_returned(db, sale, &hold, fresh)?;
    set_counts(db, sale, &hold.item, &counts)?;
    let live = Live { units: standing.account, holds: standing.live_holds };
    set_live(db, sale, &hold.account, live.claimed(request.quantity))?;
    insert(db, sale, &hold)?;
    if claim.limits.abandoned_holds.is_some() {
        abandoned::note_admission(db, sale, request.claim, request.admitted_at)?;
    }
    set_clock(db, sale, now)?;
    append(db, sale, EventKind::Claimed, &hold, None)?;
    Ok(Ok(ClaimAnswer::Held { hold, replayed: false }))
}

fn commit(db: &Connection, sale: &SaleId, claim: ClaimId) -> Answer<CommitAnswer> {
    if let Err(why) = clock(db, sale)? {
        return Ok(Err(why));
    }
    let Some(hold) = find(db, sale, claim)? else {
        return Ok(Ok(CommitAnswer::NoSuchClaim));
    };
    if let Step::Stands(answer) = hold::commit(hold.state) {
        return Ok(Ok(answer));
    }
    let counts = counts(db, sale, &hold.item)?.and_then(|counts| counts.committed(count(&hold.units)));
    let live = live(db, sale, &hold.account)?.ended(0);
    let (Some(counts), Some(live)) = (counts, live) else {
        return Ok(Err(broken(&hold.item)));
    };
    set_counts(db, sale, &hold.item, &counts)?;
    set_live(db, sale, &hold.account, live)?;
    set_state(db, sale, claim, HoldState::Committed)?;
    abandoned::end_admission(db, sale, claim)?;
    append(db, sale, EventKind::Committed, &hold, None)?;
    Ok(Ok(CommitAnswer::Committed))
}

fn release(db: &Connection, sale: &SaleId, claim: ClaimId) -> Answer<ReleaseAnswer> {
    if let Err(why) = clock(db, sale)? {
        return Ok(Err(why));
    }
    let Some(hold) = find(db, sale, claim)? else {
        return Ok(Ok(ReleaseAnswer::NoSuchClaim));
    };
    if let Step::Stands(answer) = hold::release(hold.state) {
        return Ok(Ok(answer));
    }
    let units = count(&hold.units);
    let counts = counts(db, sale, &hold.item)?.and_then(|counts| counts.released(units));
    let live = live(db, sale, &hold.account)?.ended(units);
    let (Some(counts), Some(live)) = (counts, live) else {
        return Ok(Err(broken(&hold.item)));
    };
    set_counts(db, sale, &hold.item, &counts)?;
    for unit in &hold.units {
        db.prepare_cached("INSERT INTO stock_returned VALUES (?1, ?2, ?3)")?.execute(params![
            sale.as_str(),
            hold.item.as_str(),
            unit
        ])?;
    }
    set_live(db, sale, &hold.account, live)?;
    set_state(db, sale, claim, HoldState::Released)?;
    let abandoned = abandoned::settle(db, sale, &hold)?;
    append(db, sale, EventKind::Released, &hold, abandoned)?;
    Ok(Ok(ReleaseAnswer::Released))
}

fn expire(db: &Connection, sale: &SaleId, max: usize, now: Timestamp) -> Answer<Vec<ClaimId>> {
    let last = match clock(db, sale)? {
        Ok(last) => last,
        Err(why) => return Ok(Err(why)),
    };
    let now = hold::monotone(now, last);
    let due = db
        .prepare_cached(
            "SELECT claim, account, item, units, state, claimed_at, deadline, memo FROM stock_holds
             WHERE sale = ?1 AND state = 'held' AND deadline <= ?2 ORDER BY deadline, claim LIMIT ?3",
        )?
        .query_map(params![sale.as_str(), now.micros(), i64::try_from(max).unwrap_or(i64::MAX)], hold_from)?
        .collect::<rusqlite::Result<Vec<Hold>>>()?;
    for hold in &due {
        set_state(db, sale, hold.claim, HoldState::Expiring)?;
        append(db, sale, EventKind::Expiring, hold, None)?;
    }
    if !due.is_empty() {
        set_clock(db, sale, now)?;
    }
    Ok(Ok(due.iter().map(|hold| hold.claim).collect()))
}

fn stock(db: &Connection, sale: &SaleId, total_limit: Option<u32>) -> Answer<StockSnapshot> {
    if let Err(why) = clock(db, sale)? {
        return Ok(Err(why));
    }
    let items = db
        .prepare_cached(
            "SELECT stock, available, held, sold, next, last, item FROM stock_items WHERE sale = ?1 ORDER BY place",
        )?
        .query_map([sale.as_str()], |row| Ok(super::item_stock(parsed(row, 6)?, &counts_from(row)?)))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let total = items.iter().map(|item| item.held + item.sold).sum();
    let mut snapshot = super::snapshot(items, stock::total_left(total, total_limit));
    if super::lists_claimants(&snapshot) {
        let listed = db
            .prepare_cached("SELECT account FROM stock_accounts WHERE sale = ?1 LIMIT ?2")?
            .query_map(params![sale.as_str(), (CLAIMANTS_MAX + 1) as i64], |row| {
                Ok(parsed::<AccountHash>(row, 0)?.short())
            })?
            .collect::<rusqlite::Result<_>>()?;
        super::list_claimants(&mut snapshot, listed);
    }
    Ok(Ok(snapshot))
}

#[cfg(test)]
mod faults;
