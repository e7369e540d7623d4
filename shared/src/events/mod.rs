//! What happens at the gate, in order, for those who follow: checkout makes orders of it, the waiting room frees
//! places by it.
//!
//! The gate appends an event in the same atomic step as the change it records. Readers form groups; each group gets
//! every event at least once and acknowledges after its own commit.

mod record;
pub mod redis;
pub mod sqlite;

use async_trait::async_trait;

use crate::{
    clock::Timestamp,
    ids::{AccountHash, ClaimId, ItemId, SaleId},
    store::StoreError,
};

/// The group under which checkout reads: it makes orders of what happened.
pub const CHECKOUT_GROUP: &str = "checkout";
/// The group under which the waiting room reads: it frees the places of buyers.
pub const WAITING_ROOM_GROUP: &str = "waiting-room";
/// Every group of a sale's log. Nothing is trimmed that one of them may still need.
pub const GROUPS: [&str; 2] = [CHECKOUT_GROUP, WAITING_ROOM_GROUP];

/// What happened to a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Units were taken and are held.
    Claimed,
    /// The hold is past its deadline; its order must decide.
    Expiring,
    /// The units are sold.
    Committed,
    /// The units are free again.
    Released,
}

impl EventKind {
    /// The word stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Expiring => "expiring",
            Self::Committed => "committed",
            Self::Released => "released",
        }
    }

    /// Reads the stored word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Claimed, Self::Expiring, Self::Committed, Self::Released]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// One event of a sale. Every kind carries the hold, so that a reader needs no other event to act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its id in the log, ascending within a sale.
    pub id: String,
    /// What happened.
    pub kind: EventKind,
    /// The claim it happened to.
    pub claim: ClaimId,
    /// Whose claim.
    pub account: AccountHash,
    /// The item.
    pub item: ItemId,
    /// The units.
    pub units: Vec<u32>,
    /// When the hold was made.
    pub claimed_at: Timestamp,
    /// When the hold falls due.
    pub deadline: Timestamp,
    /// The claimant's record, as given with the claim.
    pub memo: String,
    /// What the account has abandoned, where a hold that ran out comes back and abandoned ones are counted.
    pub abandoned: Option<Abandoned>,
}

/// Holds that an account has let run out unpaid under one admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned {
    /// When the admission was given, in seconds since the Unix epoch: the token's `iat`.
    pub admitted_at: i64,
    /// How many.
    pub holds: u32,
}

impl Abandoned {
    /// The text stored: the two numbers with a space between.
    #[must_use]
    pub fn to_text(self) -> String {
        format!("{} {}", self.admitted_at, self.holds)
    }

    fn parse(text: &str) -> Option<Self> {
        let (admitted_at, holds) = text.split_once(' ')?;
        Some(Self { admitted_at: admitted_at.parse().ok()?, holds: holds.parse().ok()? })
    }
}

/// An entry that cannot be read as an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poison {
    /// Its id in the log.
    pub id: String,
    /// What is wrong with it.
    pub problem: String,
    /// The entry itself, as [`Event::record`] writes events, so that nothing of it is lost.
    pub record: String,
}

/// What one read brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events, in order.
    pub events: Vec<Event>,
    /// Entries that are no events. Acknowledge them too, or they come for ever.
    pub poison: Vec<Poison>,
}

/// How far a group is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Events that no consumer of the group was given yet.
    pub unread: u64,
    /// Events that were given to a consumer and are not acknowledged.
    pub pending: u64,
}

impl Backlog {
    /// All that is not done.
    #[must_use]
    pub fn total(self) -> u64 {
        self.unread.saturating_add(self.pending)
    }
}

/// How a trim ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trim {
    /// So many events were removed.
    Trimmed(u64),
    /// Nothing was: this group should be there and is not, so nobody can say what it still needs.
    GroupMissing(String),
}

/// Reads the event log of sales for one group.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Up to `max` events (at most [`crate::limits::EVENT_BATCH_MAX`]) that the group has not acknowledged and no
    /// other live consumer of it is working on. `consumer` names this reader within the group.
    async fn read(&self, sale: &SaleId, group: &str, consumer: &str, max: usize)
    -> Result<Batch, StoreError>;

    /// Marks events as done for the group; those before them that are not named stay to be done.
    async fn acknowledge(&self, sale: &SaleId, group: &str, ids: &[String]) -> Result<(), StoreError>;

    /// How far the group is behind. A group that has not begun is behind by everything.
    async fn backlog(&self, sale: &SaleId, group: &str) -> Result<Backlog, StoreError>;

    /// Removes events that every group of the log has acknowledged, oldest first, but never the newest `keep`: whoever
    /// rebuilds a store may need those. `groups` must all be there.
    async fn trim(&self, sale: &SaleId, groups: &[&str], keep: u64) -> Result<Trim, StoreError>;

    /// Removes the group's consumers that hold nothing and have not asked for `idle_ms`; answers how many there
    /// were. A consumer that was not gone after all comes back with its next read.
    async fn retire(&self, sale: &SaleId, group: &str, idle_ms: u64) -> Result<u64, StoreError>;

    /// Whether consumers of one group are given different events, so that several of them get further than one.
    fn shares_work(&self) -> bool;
}

/// Units as the log stores them: numbers joined by `,`.
#[must_use]
pub fn units_to_text(units: &[u32]) -> String {
    let mut text = String::with_capacity(units.len() * 6);
    for unit in units {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&unit.to_string());
    }
    text
}

/// Reads what [`units_to_text`] wrote.
///
/// # Errors
/// The text is no list of unit numbers.
pub fn units_from_text(text: &str) -> Result<Vec<u32>, String> {
    text.split(',').map(|unit| unit.parse().map_err(|_| format!("'{unit}' is no unit number"))).collect()
}

/// An event from the fields that both back ends store as text; `micros` fields are decimal microseconds.
pub(crate) fn parse_event<'a>(id: &str, field: impl Fn(&str) -> Option<&'a str>) -> Result<Event, Poison> {
    let poison = |problem: String| Poison { id: id.to_owned(), problem, record: record::of_fields(&field) };
    let get = |name: &str| field(name).ok_or_else(|| poison(format!("field '{name}' is missing")));
    let moment = |name: &str| -> Result<Timestamp, Poison> {
        let micros = get(name)?.parse().map_err(|_| poison(format!("field '{name}' is no number")))?;
        Ok(Timestamp::from_micros(micros))
    };
    let abandoned = match field("abandoned") {
        None | Some("") => None,
        Some(text) => {
            Some(Abandoned::parse(text).ok_or_else(|| poison("field 'abandoned' cannot be read".into()))?)
        }
    };
    Ok(Event {
        id: id.to_owned(),
        kind: EventKind::parse(get("kind")?).ok_or_else(|| poison("field 'kind' is unknown".into()))?,
        claim: get("claim")?.parse().map_err(|error| poison(format!("claim {error}")))?,
        account: get("account")?.parse().map_err(|error| poison(format!("account {error}")))?,
        item: get("item")?.parse().map_err(|error| poison(format!("item {error}")))?,
        units: units_from_text(get("units")?).map_err(poison)?,
        claimed_at: moment("claimed_at")?,
        deadline: moment("deadline")?,
        memo: get("memo")?.to_owned(),
        abandoned,
    })
}

#[cfg(test)]
mod conformance;
