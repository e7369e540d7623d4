//! What happens at the gate, in order, for those who follow: checkout makes orders of it, the waiting room frees
//! places by it.
//!
//! The gate appends an event in the same atomic step as the change it records. Readers form groups; each group gets
//! every event at least once and acknowledges after its own commit.

pub mod redis;
pub mod sqlite;

use async_trait::async_trait;

use crate::{
    clock::Timestamp,
    ids::{AccountHash, ClaimId, ItemId, SaleId},
    store::StoreError,
};

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
}

/// What one read brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events, in order.
    pub events: Vec<Event>,
    /// Entries that are no events. Acknowledge them too, or they come for ever.
    pub poison: Vec<Poison>,
}

/// Reads the event log of sales for one group.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Up to [`crate::limits::EVENT_BATCH_MAX`] events that the group has not acknowledged and no other live
    /// consumer of it is working on. `consumer` names this reader within the group.
    async fn read(&self, sale: &SaleId, group: &str, consumer: &str) -> Result<Batch, StoreError>;

    /// Marks events as done for the group.
    async fn acknowledge(&self, sale: &SaleId, group: &str, ids: &[String]) -> Result<(), StoreError>;
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
    let poison = |problem: String| Poison { id: id.to_owned(), problem };
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
