//! What the line keeps, behind domain verbs: places per lane, and one record per sale.
//!
//! Back ends only compare, move and append; what becomes of a place is decided by `rules` (and by the Lua scripts
//! that say the same). Every back end passes `conformance` and answers like [`model::Model`].

mod allowlist;
#[cfg(test)]
mod conformance;
pub mod model;
mod proofs;
mod redis;
mod rules;
#[cfg(test)]
mod sequences;
mod sqlite;

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    ids::{AccountHash, SaleId},
    proof_of_work::Proof,
    store::StoreError,
};

pub use self::{
    allowlist::{Allowed, EmailHash, Listed},
    model::Model,
    redis::RedisStore,
    sqlite::{LINE_SQLITE, SqliteStore},
};
use crate::admission::AdmissionRecord;

/// The right to an admission token, as it was first given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The token's id.
    pub jti: String,
    /// When it was given; whole seconds.
    pub issued_at: Timestamp,
    /// When it runs out; whole seconds.
    pub expires_at: Timestamp,
    /// The revocation epoch it belongs to.
    pub epoch: u32,
}

/// What became of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeatState {
    /// In line, or called and not yet admitted.
    Waiting,
    /// Admitted.
    Admitted(Right),
    /// Given up.
    Left,
}

/// The one place an account has in its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The place within the lane, from 0.
    pub seq: u64,
    /// What became of it.
    pub state: SeatState,
}

/// Somebody who enters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Who.
    pub account: AccountHash,
    /// The place a ticket proves, if one was shown.
    pub ticket_seq: Option<u64>,
    /// A place whose turn is known to have passed, besides those below [`LaneView::missed_below`]: drawn numbers do
    /// not rise with places.
    pub missed_seq: Option<u64>,
    /// Only whoever stands on the lane's allowlist with this address gets a place. `None`: nothing is looked up.
    pub listed_as: Option<EmailHash>,
}

/// What the numbering says about a lane, for the store to act by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneView {
    /// Places below this have missed their turn, unless they were admitted.
    pub missed_below: u64,
    /// Places that have a number already: a store that lost them must not give them again.
    pub numbered: u64,
}

/// The place somebody has after entering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered {
    /// The place.
    pub seat: Seat,
    /// Whether it is a new one.
    pub fresh: bool,
}

/// How entering ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnterAnswer {
    /// There is a place.
    Entered(Entered),
    /// The account does not stand on the allowlist with this address. Nothing was written.
    NotListed,
    /// The lane has no allowlist at all, although one has to be looked at: it was never put there, or is lost.
    /// Nothing was written.
    NoList,
}

impl EnterAnswer {
    /// The place, if there is one.
    #[must_use]
    pub fn entered(self) -> Option<Entered> {
        match self {
            Self::Entered(entered) => Some(entered),
            Self::NotListed | Self::NoList => None,
        }
    }
}

/// A turn that is to be exchanged for the right to check out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redemption {
    /// Whose turn.
    pub account: AccountHash,
    /// The place whose turn it is.
    pub seq: u64,
    /// The right it becomes, unless it became one before. Its epoch is the sale's.
    pub right: Right,
    /// The present.
    pub now: Timestamp,
}

/// How a redemption ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redeemed {
    /// Admitted, now or before.
    Admitted(Right),
    /// The account has a later place.
    Superseded,
    /// The place was given up.
    Left,
    /// The right has run out.
    Lapsed,
}

/// How leaving ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The place is given up, now or before.
    Left,
    /// The account has a later place, which stands.
    Superseded,
    /// The place became a right of this id, which was not named as forfeited. Nothing changed: forfeit it first.
    Admitted {
        /// The right's id.
        jti: String,
    },
}

/// A right that is to last longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Whose.
    pub account: AccountHash,
    /// The right's id: another right of the account is not renewed.
    pub jti: String,
    /// The present.
    pub now: Timestamp,
    /// Until when it is to last.
    pub expires_at: Timestamp,
    /// How long it may last in all, in seconds from when it was given.
    pub seconds_max: u64,
}

/// A right that is used up before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forfeit {
    /// Whose.
    pub account: AccountHash,
    /// Which: another right of the account stands.
    pub which: WhichRight,
}

/// By what a right is told from another of the same account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichRight {
    /// Its id. Two rights may have been given within one second, so this is the sharper word.
    Id(String),
    /// When it was given: all that the gate's events say.
    GivenAt(Timestamp),
}

/// What became of a proof of work that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// It counts for this account, now or when it was first shown.
    Counts,
    /// It was used by another account.
    Used,
}

/// What a survey found in one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneReport {
    /// Places given so far.
    pub count: u64,
    /// Places given up since the last survey.
    pub newly_left: Vec<u64>,
    /// Places whose turn was taken up since.
    pub newly_redeemed: Vec<u64>,
    /// Rights to check out that are live: given, not run out, not given up, not concluded by a purchase.
    pub active: u64,
    /// How much of the lane's logs has been read with this.
    pub read: LogsRead,
}

/// How far the two logs of a lane are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogsRead {
    /// Places given up.
    pub left: u64,
    /// Turns taken up.
    pub redeemed: u64,
}

/// The sale's record and its newest numbering rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The record; the default one for a sale that nobody has moved yet.
    pub record: AdmissionRecord,
    /// Rows written in all, folded ones too.
    pub rows_total: usize,
    /// The position of the first row that is kept: the earlier ones are folded into it.
    pub rows_first: usize,
    /// Rows from the asked one on, or from `rows_first`; at most [`ROWS_PER_CALL_MAX`].
    pub rows: Vec<Vec<u64>>,
}

/// One step of the admitter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The fencing number of the lease it is made under.
    pub fence: u64,
    /// The version it was computed from.
    pub expected_version: u64,
    /// The record to store.
    pub record: AdmissionRecord,
    /// Where the rows begin: what the store holds from there on is another history's and gives way.
    pub rows_from: usize,
    /// Numbering rows, in order.
    pub rows: Vec<Vec<u64>>,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advanced {
    /// Stored.
    Advanced,
    /// Nothing changed: somebody else holds the lease by now.
    Fenced,
    /// Nothing changed: the record is in another version, or rows before these are missing.
    Stale,
}

/// Most rows one call reads.
pub const ROWS_PER_CALL_MAX: usize = 1_000;
/// Most entries one survey reads from each log of a lane.
pub const LOG_PER_CALL_MAX: usize = 10_000;
/// Rights that ran out this long ago are no longer kept: clocks of processes differ by less.
const RIGHTS_KEPT_SECONDS: i64 = 60;

/// Keeps the line. Every verb is one atomic step in one lane or one sale.
#[async_trait]
pub trait Store: Send + Sync {
    /// Gives each account of `lane` its place, in order: the one it has; the one its ticket proves, where the store
    /// lost it; otherwise, or once its place was given up, missed or has run out, the next. Whoever has to stand on
    /// the allowlist and does not gets none.
    async fn enter(
        &self,
        sale: &SaleId,
        lane: u16,
        entries: &[Entry],
        view: LaneView,
        now: Timestamp,
    ) -> Result<Vec<EnterAnswer>, StoreError>;

    /// Puts accounts on the lane's allowlist. Doing it again changes nothing; the last address of an account counts.
    async fn allow(&self, sale: &SaleId, lane: u16, listed: &[Listed]) -> Result<Allowed, StoreError>;

    /// Exchanges turns of one lane for rights, in order: once per place, the same again afterwards. After a rise of
    /// the epoch the right gets the new id, and keeps its end. A place the store lost is taken from the ticket's word.
    /// The first right of a place is noted in the lane's log.
    async fn redeem(
        &self,
        sale: &SaleId,
        lane: u16,
        redemptions: &[Redemption],
    ) -> Result<Vec<Redeemed>, StoreError>;

    /// Gives a place up, and notes it in the lane's log. One that became a right is given up only where that right's
    /// id is the one `forfeited` names: what still claims must not free its place.
    async fn leave(
        &self,
        sale: &SaleId,
        lane: u16,
        account: AccountHash,
        seq: u64,
        forfeited: Option<&str>,
    ) -> Result<Departure, StoreError>;

    /// Ends the rights of accounts that have bought, as far as the cap on active shoppers goes: the right itself
    /// stands. The answer says how many ended by this.
    async fn conclude(&self, sale: &SaleId, lane: u16, accounts: &[AccountHash]) -> Result<u64, StoreError>;

    /// Ends rights before their time, as if they had run out when they were given: their places are used up, and
    /// whoever enters again gets a new one. The answer says how many ended by this.
    async fn forfeit(&self, sale: &SaleId, lane: u16, forfeits: &[Forfeit]) -> Result<u64, StoreError>;

    /// Lets a live right last longer, never shorter and never longer than it may. `None`: it is not live.
    async fn renew(&self, sale: &SaleId, lane: u16, renewal: &Renewal) -> Result<Option<Right>, StoreError>;
    /// Uses a proof of work up for an account, and remembers it until its challenge runs out. It comes verified, so
    /// it has not run out.
    async fn spend(
        &self,
        sale: &SaleId,
        proof: Proof,
        account: AccountHash,
        now: Timestamp,
    ) -> Result<Spent, StoreError>;

    /// The account's place.
    async fn seat(&self, sale: &SaleId, lane: u16, account: AccountHash) -> Result<Option<Seat>, StoreError>;

    /// Counts every lane and its live rights, and reads its logs on from `read`, which has one position per lane. A
    /// lane that does not answer is `None` and holds up nobody.
    async fn survey(&self, sale: &SaleId, read: &[LogsRead], now: Timestamp) -> Vec<Option<LaneReport>>;

    /// Takes or keeps the sale's admitter lease for `lease_ms`, by the store's clock. The answer is the fencing
    /// number, which rises whenever the lease is taken anew; `None` while somebody else has it. Whoever `knows` a
    /// later version of the record than the store holds, because it lost some, takes the lease from anybody; and a
    /// lease that ends later than it could, because the store's clock was set, is free.
    async fn lease(
        &self,
        sale: &SaleId,
        holder: &str,
        lease_ms: u64,
        knows: u64,
    ) -> Result<Option<u64>, StoreError>;

    /// The record, and the numbering rows from `rows_from` on, or from the first that is not folded away.
    async fn record(&self, sale: &SaleId, rows_from: usize) -> Result<Recorded, StoreError>;

    /// Stores a new record and lays rows down from a position on, if fence and version are still the current ones.
    async fn advance(&self, sale: &SaleId, step: &Move) -> Result<Advanced, StoreError>;

    /// Folds the numbering rows before `rows_first` into that one, whose counts hold theirs, if the fence is still
    /// the current one. A store that has lost the rows up to there goes on from there, without any.
    async fn fold(&self, sale: &SaleId, fence: u64, rows_first: usize) -> Result<Advanced, StoreError>;

    /// Whether the store answers.
    async fn ping(&self) -> Result<(), StoreError>;
}
