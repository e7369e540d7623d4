//! Freezing and rebuilding on Redis: a rebuilt stock is staged under keys of its own and then renamed.

use std::sync::LazyLock;

use lockgate_shared::{
    events::units_to_text,
    gate::{
        ConcludeAnswer, ConcludeRequest, Freeze, FreezeAnswer, Hold, HoldState, HoldsPage, StageAnswer,
        StageRequest,
    },
    ids::SaleId,
    limits::STAGED_SECONDS,
    store::StoreError,
};
use redis::Script;
use uuid::Uuid;

use super::{Keys, RedisStore, odd, read_record, words};
use crate::store::FreezeOrder;

script!(GENERATION, "generation.lua");
script!(FREEZE, "freeze.lua");
script!(HOLDS, "holds.lua");
script!(STAGE, "stage.lua");
script!(CONCLUDE, "conclude.lua");

/// Those that write, whatever server left the data.
pub(super) fn writing() -> [&'static Script; 3] {
    [&FREEZE, &STAGE, &CONCLUDE]
}

/// Each item's units have a range of scores of their own in the one set of those that came back.
const SCORES_PER_ITEM: u64 = 1 << 32;

/// Where a rebuilt stock waits for its conclusion: holds, due, accounts, returned.
fn staged_keys(store: &RedisStore, sale: &SaleId, token: Uuid) -> [String; 4] {
    ["holds", "due", "accounts", "returned"]
        .map(|name| store.link.key(&format!("{{{sale}}}:staged:{token}:{name}")))
}

pub(super) async fn generation(store: &RedisStore, sale: &SaleId) -> Result<Option<u64>, StoreError> {
    let Keys { stock, .. } = store.keys(sale);
    let answer = store.read("generation", &GENERATION, &[stock], Vec::<String>::new()).await?;
    match words(&answer).as_slice() {
        ["none"] => Ok(None),
        ["generation", number] => number.parse().map(Some).map_err(|_| odd("generation", &answer)),
        _ => Err(odd("generation", &answer)),
    }
}

pub(super) async fn freeze(
    store: &RedisStore,
    sale: &SaleId,
    order: &FreezeOrder,
) -> Result<FreezeAnswer, StoreError> {
    let Keys { stock, events, .. } = store.keys(sale);
    let args = [
        order.id.to_string(),
        order.if_generation.map(|generation| generation.to_string()).unwrap_or_default(),
        order.at_least.to_string(),
        order.why.clone(),
    ];
    let answer = store.write_keys("freeze", &FREEZE, vec![stock, events], args.into()).await?;
    let read = || {
        Some(match words(&answer).as_slice() {
            ["frozen", id, generation] => {
                FreezeAnswer::Frozen(Freeze { id: id.parse().ok()?, generation: generation.parse().ok()? })
            }
            ["rebuilt", generation] => FreezeAnswer::Rebuilt { generation: generation.parse().ok()? },
            _ => return None,
        })
    };
    read().ok_or_else(|| odd("freeze", &answer))
}

pub(super) async fn holds(
    store: &RedisStore,
    sale: &SaleId,
    after: Option<&str>,
    max: usize,
) -> Result<HoldsPage, StoreError> {
    let Keys { holds, .. } = store.keys(sale);
    // A cursor that is no number never came from here; it reads nothing twice and nothing else.
    let cursor = after.and_then(|after| after.parse::<u64>().ok()).unwrap_or(0).to_string();
    let answer = store.read("holds", &HOLDS, &[holds], &[cursor, max.to_string()]).await?;
    let [word, next, pairs @ ..] = answer.as_slice() else {
        return Err(odd("holds", &answer));
    };
    if word != "holds" {
        return Err(odd("holds", &answer));
    }
    let mut page = HoldsPage { next: (next != "0").then(|| next.clone()), ..HoldsPage::default() };
    for pair in pairs.chunks_exact(2) {
        let read = || {
            let [claim, record] = pair else { return None };
            read_record(claim.parse().ok()?, record)
        };
        match read() {
            Some(hold) => page.holds.push(hold),
            None => page.unreadable += 1,
        }
    }
    Ok(page)
}

pub(super) async fn stage(
    store: &RedisStore,
    sale: &SaleId,
    page: &StageRequest,
) -> Result<StageAnswer, StoreError> {
    let mut keys = vec![store.keys(sale).stock];
    keys.extend(staged_keys(store, sale, page.token));
    let mut args = vec![page.freeze.to_string(), STAGED_SECONDS.to_string()];
    let mut returned = Vec::with_capacity(2 * page.returned.len());
    for free in &page.returned {
        if let Some(item) = usize::try_from(free.place).ok().and_then(|place| page.items.get(place)) {
            let score = (u64::from(free.place) + 1) * SCORES_PER_ITEM + u64::from(free.unit);
            returned.extend([score.to_string(), format!("{item}:{}", free.unit)]);
        }
    }
    for count in [page.holds.len(), page.accounts.len(), returned.len() / 2] {
        args.push(count.to_string());
    }
    for hold in &page.holds {
        let deadline = match hold.state {
            HoldState::Held => hold.deadline.micros().to_string(),
            _ => String::new(),
        };
        args.extend([hold.claim.to_string(), record(hold), deadline]);
    }
    for line in &page.accounts {
        args.extend([line.account.to_string(), format!("{} {}", line.units, line.holds)]);
    }
    args.extend(returned);
    let answer = store.write_keys("stage", &STAGE, keys, args).await?;
    match words(&answer).as_slice() {
        ["staged"] => Ok(StageAnswer::Staged),
        ["stale"] => Ok(StageAnswer::Stale),
        _ => Err(odd("stage", &answer)),
    }
}

pub(super) async fn conclude(
    store: &RedisStore,
    sale: &SaleId,
    request: &ConcludeRequest,
) -> Result<ConcludeAnswer, StoreError> {
    let mut keys = store.keys(sale).all().to_vec();
    keys.extend(staged_keys(store, sale, request.token));
    let mut args = vec![
        request.freeze.id.to_string(),
        request.freeze.generation.to_string(),
        request.holds.to_string(),
        request.due.to_string(),
        request.accounts.to_string(),
        request.returned.to_string(),
        request.clock.micros().to_string(),
    ];
    for line in &request.items {
        args.push(line.item.to_string());
        let counts = [line.stock, line.available, line.held, line.sold, line.next, line.last];
        args.extend(counts.map(|count| count.to_string()));
    }
    let answer = store.write_keys("conclude", &CONCLUDE, keys, args).await?;
    match words(&answer).as_slice() {
        ["reopened", generation] => match generation.parse() {
            Ok(generation) => Ok(ConcludeAnswer::Reopened { generation }),
            Err(_) => Err(odd("conclude", &answer)),
        },
        ["stale"] => Ok(ConcludeAnswer::Stale),
        ["incomplete"] => Ok(ConcludeAnswer::Incomplete),
        _ => Err(odd("conclude", &answer)),
    }
}

/// A hold as the scripts write it.
fn record(hold: &Hold) -> String {
    let state = match hold.state {
        HoldState::Held => "held",
        HoldState::Expiring => "expiring",
        HoldState::Committed => "committed",
        HoldState::Released => "released",
    };
    format!(
        "{state}|{}|{}|{}|{}|{}|{}",
        hold.account,
        hold.item,
        units_to_text(&hold.units),
        hold.claimed_at.micros(),
        hold.deadline.micros(),
        hold.memo
    )
}
