//! An event as text, for whoever keeps one outside the log: a JSON object of the log's own fields.

use std::collections::BTreeMap;

use super::{Abandoned, Event, Poison, parse_event, units_to_text};

/// The names of the fields in every back end.
const FIELDS: [&str; 9] =
    ["kind", "claim", "account", "item", "units", "claimed_at", "deadline", "memo", "abandoned"];

/// The known fields that are there, as text.
pub(super) fn of_fields<'a>(field: &impl Fn(&str) -> Option<&'a str>) -> String {
    to_text(FIELDS.iter().filter_map(|name| Some(((*name).to_owned(), field(name)?.to_owned()))).collect())
}

/// Any fields as text.
pub(super) fn to_text(fields: BTreeMap<String, String>) -> String {
    serde_json::Value::Object(fields.into_iter().map(|(name, text)| (name, text.into())).collect())
        .to_string()
}

impl Event {
    /// The event as text, without its id.
    #[must_use]
    pub fn record(&self) -> String {
        let fields = [
            ("kind", self.kind.as_str().to_owned()),
            ("claim", self.claim.to_string()),
            ("account", self.account.to_string()),
            ("item", self.item.to_string()),
            ("units", units_to_text(&self.units)),
            ("claimed_at", self.claimed_at.micros().to_string()),
            ("deadline", self.deadline.micros().to_string()),
            ("memo", self.memo.clone()),
            ("abandoned", self.abandoned.map(Abandoned::to_text).unwrap_or_default()),
        ];
        to_text(fields.into_iter().map(|(name, text)| (name.to_owned(), text)).collect())
    }

    /// Reads what [`Event::record`] wrote.
    ///
    /// # Errors
    /// It is no event that this release can read.
    pub fn of_record(id: &str, record: &str) -> Result<Self, Poison> {
        let fields: BTreeMap<String, String> = serde_json::from_str(record).map_err(|error| Poison {
            id: id.to_owned(),
            problem: format!("the record cannot be read: {error}"),
            record: record.to_owned(),
        })?;
        parse_event(id, |name| fields.get(name).map(String::as_str))
    }
}
