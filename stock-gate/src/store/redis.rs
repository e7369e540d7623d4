//! The gate on Redis: each verb is one script call. All keys of a sale share its hash tag, so that a Cluster keeps
//! them on one node. What writes goes over pinned connections ([`lockgate_shared::store::redis::pinned`]), so that a
//! script knows which server it runs on, and replicas can be waited for.

use std::sync::LazyLock;

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    events,
    gate::{
        ClaimAnswer, CommitAnswer, ConcludeAnswer, ConcludeRequest, ForfeitAnswer, FreezeAnswer, Hold,
        HoldState, HoldsPage, ItemStock, ReclaimAnswer, ReleaseAnswer, RestockAnswer, RestockRequest,
        StageAnswer, StageRequest, StockSnapshot,
    },
    ids::{AccountHash, ClaimId, ItemId, SaleId, TokenId},
    limits::{CLAIMANTS_MAX, RESTOCKS_MAX, STOCK_MAX, UNIT_NUMBER_MAX},
    store::{
        StoreError,
        redis::{
            RedisLink,
            pinned::{Pinned, PinnedSettings},
        },
    },
};
use redis::{Script, ToRedisArgs};

use super::{Claim, FreezeOrder, Restocking, Store, Suspicion};
use crate::stock::{self, Limits};

macro_rules! script {
    ($name:ident, $file:literal) => {
        static $name: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!($file)));
    };
    ($name:ident, guarded $file:literal) => {
        static $name: LazyLock<Script> = LazyLock::new(|| Script::new(&guarded(include_str!($file))));
    };
}

/// A script behind what every writing one checks first. Its own first line stays the first: it says when Redis may run
/// it.
fn guarded(script: &str) -> String {
    let guard = include_str!("redis/guard.lua");
    let body = |text: &str| text.find('\n').map_or(text.len(), |end| end + 1);
    let (flags, rest) = script.split_at(body(script));
    format!("{flags}{}{rest}", &guard[body(guard)..])
}

mod rebuild;

script!(CLAIM, guarded "redis/claim.lua");
script!(COMMIT, guarded "redis/commit.lua");
script!(RELEASE, guarded "redis/release.lua");
script!(RECLAIM, guarded "redis/reclaim.lua");
script!(EXPIRE, guarded "redis/expire.lua");
script!(FORFEIT, guarded "redis/forfeit.lua");
script!(RESTOCK, guarded "redis/restock.lua");
script!(RESTOCKS, "redis/restocks.lua");
script!(HOLD, "redis/hold.lua");
script!(STOCK, "redis/stock.lua");

/// The script of a claim, whole: what a yardstick has to run to be compared with the store.
#[must_use]
pub fn claim_script() -> &'static Script {
    &CLAIM
}

/// Whether a stock that was left by another server process (one that was restarted, restored, demoted or promoted since)
/// closes the sale until it is rebuilt.
pub const RESTART_FREEZES: bool = true;

/// What the gate asks of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// Replicas that must have a claim, and whatever becomes of it, before it is answered; 0 to wait for none.
    pub replicas_required: u32,
    /// See [`RESTART_FREEZES`].
    pub restart_freezes: bool,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self { replicas_required: 0, restart_freezes: RESTART_FREEZES }
    }
}

/// The gate on Redis.
pub struct RedisStore {
    link: RedisLink,
    pinned: Pinned,
    replicas_required: u32,
}

/// A sale's keys.
struct Keys {
    stock: String,
    holds: String,
    due: String,
    accounts: String,
    events: String,
    returned: String,
    abandoned: String,
}

impl Keys {
    /// In the order every writing script takes them.
    fn all(self) -> [String; 7] {
        [self.stock, self.holds, self.due, self.accounts, self.events, self.returned, self.abandoned]
    }
}

impl RedisStore {
    /// Over a connected store, waiting for no replica.
    #[must_use]
    pub fn new(link: RedisLink) -> Self {
        Self::with(link, RedisSettings::default())
    }

    /// Over a connected store.
    #[must_use]
    pub fn with(link: RedisLink, settings: RedisSettings) -> Self {
        let RedisSettings { replicas_required, restart_freezes } = settings;
        let mut scripts = vec![&*CLAIM, &*COMMIT, &*RELEASE, &*RECLAIM, &*EXPIRE, &*FORFEIT, &*RESTOCK];
        scripts.extend(rebuild::writing());
        let pinned = PinnedSettings { scripts, replicas_required, tells_identity: restart_freezes };
        Self { pinned: Pinned::new(&link, pinned), link, replicas_required }
    }

    fn keys(&self, sale: &SaleId) -> Keys {
        let key = |name: &str| self.link.key(&format!("{{{sale}}}:{name}"));
        Keys {
            stock: key("stock"),
            holds: key("holds"),
            due: key("due"),
            accounts: key("accounts"),
            events: events::redis::stream_key(&self.link, sale),
            returned: key("returned"),
            abandoned: key("abandoned"),
        }
    }

    /// Runs a script that writes. What it changed, or found changed, is told only once as many replicas as are required
    /// have it: until then nobody can say whether it stands.
    async fn write(
        &self,
        verb: &'static str,
        script: &'static Script,
        sale: &SaleId,
        args: Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        self.write_keys(verb, script, self.keys(sale).all().into(), args).await
    }

    async fn write_keys(
        &self,
        verb: &'static str,
        script: &'static Script,
        keys: Vec<String>,
        args: Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        let answer = self.pinned.run(verb, script, keys, args).await?;
        let words = sound(verb, answer.words)?;
        if !answer.is_acknowledged && is_promise(&words) {
            metrics::counter!("lockgate_store_unacknowledged_total", "verb" => verb).increment(1);
            let required = self.replicas_required;
            return Err(StoreError::unknown(verb, format!("fewer than {required} replicas acknowledged it")));
        }
        Ok(words)
    }

    async fn read(
        &self,
        verb: &'static str,
        script: &Script,
        keys: &[String],
        args: impl ToRedisArgs,
    ) -> Result<Vec<String>, StoreError> {
        sound(verb, self.link.run(verb, script, keys, args).await?)
    }
}

/// An answer that is no suspicion.
fn sound(verb: &'static str, answer: Vec<String>) -> Result<Vec<String>, StoreError> {
    match answer.as_slice() {
        [word, why] if word == "suspect" => Err(Suspicion(why.clone()).at(verb)),
        _ => Ok(answer),
    }
}

const PROMISES: [&str; 9] =
    ["held", "committed", "released", "reclaimed", "refused", "forfeited", "expired", "changed", "reopened"];

/// Whether somebody will rely on what an answer says about a hold or an admission. A refusal promises nothing,
/// but for that of a reclaim: the money goes back by it, and it must be the same when it is asked again.
fn is_promise(words: &[String]) -> bool {
    match words {
        [word] if word == "expired" => false,
        [word, ..] => PROMISES.contains(&word.as_str()),
        [] => false,
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, sale: &SaleId, claim: &Claim) -> Result<ClaimAnswer, StoreError> {
        let request = &claim.request;
        let args = [
            request.claim.to_string(),
            request.account.to_string(),
            request.item.to_string(),
            request.quantity.to_string(),
            claim.hold_seconds.to_string(),
            claim.limits.per_account.to_string(),
            limit_text(claim.limits.total),
            claim.refusal.map(|refusal| refusal.as_str().to_owned()).unwrap_or_default(),
            request.memo.clone(),
            request.admitted_at.to_string(),
            limit_text(claim.limits.abandoned_holds),
            request.token_id.to_string(),
            limit_text(claim.limits.live_holds),
        ];
        let answer = self.write("claim", &CLAIM, sale, args.into()).await?;
        let read = || {
            Some(match words(&answer).as_slice() {
                ["held", record, replayed] => ClaimAnswer::Held {
                    hold: read_record(request.claim, record)?,
                    replayed: *replayed == "1",
                },
                ["sold_out", may_return] => ClaimAnswer::SoldOut { may_return: *may_return == "1" },
                ["limit_reached", limit, taken] => {
                    ClaimAnswer::LimitReached { limit: limit.parse().ok()?, taken: taken.parse().ok()? }
                }
                ["live_holds_reached", limit, live] => {
                    ClaimAnswer::LiveHoldsReached { limit: limit.parse().ok()?, live: live.parse().ok()? }
                }
                ["line_up_again", abandoned] => {
                    ClaimAnswer::LineUpAgain { abandoned: abandoned.parse().ok()? }
                }
                ["forfeited"] => ClaimAnswer::Forfeited,
                ["not_open"] => ClaimAnswer::NotOpen,
                ["revoked"] => ClaimAnswer::Revoked,
                ["no_such_item"] => ClaimAnswer::NoSuchItem,
                _ => return None,
            })
        };
        read().ok_or_else(|| match words(&answer).as_slice() {
            ["held", _, "1"] => unreadable(request.claim).at("claim"),
            _ => odd("claim", &answer),
        })
    }

    async fn commit(&self, sale: &SaleId, claim: ClaimId) -> Result<CommitAnswer, StoreError> {
        let answer = self.write("commit", &COMMIT, sale, vec![claim.to_string()]).await?;
        match words(&answer).as_slice() {
            ["committed"] => Ok(CommitAnswer::Committed),
            ["released"] => Ok(CommitAnswer::Released),
            ["no_such_claim"] => Ok(CommitAnswer::NoSuchClaim),
            _ => Err(odd("commit", &answer)),
        }
    }

    async fn release(&self, sale: &SaleId, claim: ClaimId) -> Result<ReleaseAnswer, StoreError> {
        let answer = self.write("release", &RELEASE, sale, vec![claim.to_string()]).await?;
        match words(&answer).as_slice() {
            ["released"] => Ok(ReleaseAnswer::Released),
            ["committed"] => Ok(ReleaseAnswer::Committed),
            ["no_such_claim"] => Ok(ReleaseAnswer::NoSuchClaim),
            _ => Err(odd("release", &answer)),
        }
    }

    async fn reclaim(
        &self,
        sale: &SaleId,
        claim: ClaimId,
        limits: &Limits,
    ) -> Result<ReclaimAnswer, StoreError> {
        let args = [claim.to_string(), limits.per_account.to_string(), limit_text(limits.total)];
        let answer = self.write("reclaim", &RECLAIM, sale, args.into()).await?;
        read_reclaim(&answer).ok_or_else(|| odd("reclaim", &answer))
    }

    async fn expire(&self, sale: &SaleId, max: usize) -> Result<Vec<ClaimId>, StoreError> {
        let answer = self.write("expire", &EXPIRE, sale, vec![max.to_string()]).await?;
        let claims = match answer.split_first() {
            Some((word, claims)) if word == "expired" => claims.iter().map(|claim| claim.parse()).collect(),
            _ => Err(String::new()),
        };
        claims.map_err(|_| odd("expire", &answer))
    }

    async fn forfeit(&self, sale: &SaleId, token_id: &TokenId) -> Result<ForfeitAnswer, StoreError> {
        let answer = self.write("forfeit", &FORFEIT, sale, vec![token_id.to_string()]).await?;
        match words(&answer).as_slice() {
            ["forfeited"] => Ok(ForfeitAnswer::Forfeited),
            _ => Err(odd("forfeit", &answer)),
        }
    }

    async fn restock(&self, sale: &SaleId, change: &Restocking) -> Result<RestockAnswer, StoreError> {
        let request = &change.request;
        let args = [
            request.id.to_string(),
            request.item.to_string(),
            request.change.to_string(),
            STOCK_MAX.to_string(),
            UNIT_NUMBER_MAX.to_string(),
            RESTOCKS_MAX.to_string(),
            if change.is_defined { "1".to_owned() } else { String::new() },
            limit_text(change.total_limit),
        ];
        let answer = self.write("restock", &RESTOCK, sale, args.into()).await?;
        read_restock(&request.item, &answer).ok_or_else(|| odd("restock", &answer))
    }

    async fn restocks(&self, sale: &SaleId) -> Result<Vec<RestockRequest>, StoreError> {
        let Keys { stock, .. } = self.keys(sale);
        let answer = self.read("restocks", &RESTOCKS, &[stock], Vec::<String>::new()).await?;
        let made = |words: &[String]| {
            let [id, item, change] = words else { return None };
            Some(RestockRequest {
                id: id.parse().ok()?,
                item: item.parse().ok()?,
                change: change.parse().ok()?,
            })
        };
        match answer.split_first() {
            Some((word, made_here)) if word == "restocks" => {
                Ok(made_here.chunks_exact(3).filter_map(made).collect())
            }
            _ => Err(odd("restocks", &answer)),
        }
    }

    async fn hold(&self, sale: &SaleId, claim: ClaimId) -> Result<Option<Hold>, StoreError> {
        let keys = self.keys(sale);
        let answer = self.read("hold", &HOLD, &[keys.stock, keys.holds], claim.to_string()).await?;
        match words(&answer).as_slice() {
            ["none"] => Ok(None),
            ["hold", record] => match read_record(claim, record) {
                Some(hold) => Ok(Some(hold)),
                None => Err(unreadable(claim).at("hold")),
            },
            _ => Err(odd("hold", &answer)),
        }
    }

    async fn stock(&self, sale: &SaleId, total_limit: Option<u32>) -> Result<StockSnapshot, StoreError> {
        let keys = self.keys(sale);
        let args = (limit_text(total_limit), CLAIMANTS_MAX);
        let answer = self.read("stock", &STOCK, &[keys.stock, keys.accounts], args).await?;
        read_stock(&answer, total_limit).ok_or_else(|| odd("stock", &answer))
    }

    async fn generation(&self, sale: &SaleId) -> Result<Option<u64>, StoreError> {
        rebuild::generation(self, sale).await
    }

    async fn freeze(&self, sale: &SaleId, order: &FreezeOrder) -> Result<FreezeAnswer, StoreError> {
        rebuild::freeze(self, sale, order).await
    }

    async fn holds(&self, sale: &SaleId, after: Option<&str>, max: usize) -> Result<HoldsPage, StoreError> {
        rebuild::holds(self, sale, after, max).await
    }

    async fn stage(&self, sale: &SaleId, page: &StageRequest) -> Result<StageAnswer, StoreError> {
        rebuild::stage(self, sale, page).await
    }

    async fn conclude(&self, sale: &SaleId, request: &ConcludeRequest) -> Result<ConcludeAnswer, StoreError> {
        rebuild::conclude(self, sale, request).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.link.ping().await
    }
}

fn words(answer: &[String]) -> Vec<&str> {
    answer.iter().map(String::as_str).collect()
}

fn limit_text(limit: Option<u32>) -> String {
    limit.map(|limit| limit.to_string()).unwrap_or_default()
}

/// An answer that no script of this version gives. A writing script may have run.
fn odd(verb: &'static str, answer: &[String]) -> StoreError {
    let word = answer.first().map_or("nothing", String::as_str);
    StoreError::unknown(verb, format!("the script's answer '{word}' cannot be read"))
}

fn unreadable(claim: ClaimId) -> Suspicion {
    Suspicion(format!("the hold {claim} cannot be read"))
}

/// Reads what the scripts write: `state|account|item|units|claimed_at|deadline|memo`.
fn read_record(claim: ClaimId, record: &str) -> Option<Hold> {
    let mut fields = record.splitn(7, '|');
    let mut field = || fields.next();
    Some(Hold {
        claim,
        state: match field()? {
            "held" => HoldState::Held,
            "expiring" => HoldState::Expiring,
            "committed" => HoldState::Committed,
            "released" => HoldState::Released,
            _ => return None,
        },
        account: field()?.parse().ok()?,
        item: field()?.parse().ok()?,
        units: events::units_from_text(field()?).ok()?,
        claimed_at: Timestamp::from_micros(field()?.parse().ok()?),
        deadline: Timestamp::from_micros(field()?.parse().ok()?),
        memo: field()?.to_owned(),
    })
}

fn read_reclaim(answer: &[String]) -> Option<ReclaimAnswer> {
    Some(match words(answer).as_slice() {
        ["reclaimed", units] => ReclaimAnswer::Reclaimed { units: events::units_from_text(units).ok()? },
        ["refused", "sold_out"] => ReclaimAnswer::SoldOut,
        ["refused", "limit_reached", limit, taken] => {
            ReclaimAnswer::LimitReached { limit: limit.parse().ok()?, taken: taken.parse().ok()? }
        }
        ["no_such_claim"] => ReclaimAnswer::NoSuchClaim,
        _ => return None,
    })
}

fn read_restock(item: &ItemId, answer: &[String]) -> Option<RestockAnswer> {
    let counts = |[stock, available, held, sold]: [&&str; 4]| {
        Some(ItemStock {
            item: item.clone(),
            stock: stock.parse().ok()?,
            available: available.parse().ok()?,
            held: held.parse().ok()?,
            sold: sold.parse().ok()?,
        })
    };
    Some(match words(answer).as_slice() {
        ["changed", a, b, c, d, replayed] => {
            RestockAnswer::Changed { counts: counts([a, b, c, d])?, replayed: *replayed == "1" }
        }
        ["taken", a, b, c, d, least] => {
            RestockAnswer::Taken { counts: counts([a, b, c, d])?, least: least.parse().ok()? }
        }
        ["too_many", a, b, c, d, most] => {
            RestockAnswer::TooMany { counts: counts([a, b, c, d])?, most: most.parse().ok()? }
        }
        ["below_total_limit", limit, total] => {
            RestockAnswer::BelowTotalLimit { limit: limit.parse().ok()?, total: total.parse().ok()? }
        }
        ["too_many_changes"] => RestockAnswer::TooManyChanges { most: RESTOCKS_MAX },
        ["mismatch"] => RestockAnswer::Mismatch,
        ["no_such_item"] => RestockAnswer::NoSuchItem,
        _ => return None,
    })
}

fn read_stock(answer: &[String], total_limit: Option<u32>) -> Option<StockSnapshot> {
    let [word, count, too_many, rest @ ..] = answer else {
        return None;
    };
    let (items, accounts) = rest.split_at_checked(count.parse::<usize>().ok()?.checked_mul(5)?)?;
    if word != "stock" {
        return None;
    }
    let items = items
        .chunks_exact(5)
        .map(|fields| {
            let number = |index: usize| fields.get(index)?.parse().ok();
            Some(ItemStock {
                item: fields.first()?.parse().ok()?,
                stock: number(1)?,
                available: number(2)?,
                held: number(3)?,
                sold: number(4)?,
            })
        })
        .collect::<Option<Vec<ItemStock>>>()?;
    let total = items.iter().map(|item| item.held + item.sold).sum();
    let claimants = accounts.iter().map(|account| Some(account.parse::<AccountHash>().ok()?.short()));
    Some(StockSnapshot {
        total_left: stock::total_left(total, total_limit),
        claimants: claimants.collect::<Option<Vec<u64>>>()?,
        too_many_claimants: too_many == "1",
        items,
    })
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod servers;
