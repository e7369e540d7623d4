//! What changes from one definition to another, field by field, in words.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

use super::{SaleDefinition, problem::one_line};
use crate::{
    clock::Timestamp,
    wording::{moment_text, price_text},
};

/// Longest value shown, in characters.
const VALUE_CHARS_MAX: usize = 80;

/// One field that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Dotted path, such as `items[2].price`.
    pub key: String,
    /// The old value in words; `None` where it was not set.
    pub old: Option<String>,
    /// The new value in words; `None` where it is not set any more.
    pub new: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".into());
        write!(f, "{}: {} -> {}", self.key, word(&self.old), word(&self.new))
    }
}

/// Every field in which the definitions differ, by key. Fields that a later release adds are among them by
/// themselves: the definitions are compared as they are written.
#[must_use]
pub fn differences(old: &SaleDefinition, new: &SaleDefinition) -> Vec<Difference> {
    let (before, after) = (Fields::of(old), Fields::of(new));
    let mut keys: Vec<&String> = before.0.keys().chain(after.0.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let differing = keys.into_iter().filter(|key| before.0.get(*key) != after.0.get(*key));
    differing
        .map(|key| Difference {
            key: key.clone(),
            old: before.words(key, old.time_zone.as_deref()),
            new: after.words(key, new.time_zone.as_deref()),
        })
        .collect()
}

/// Every value of a definition that is no table or list, by its path.
struct Fields(BTreeMap<String, Value>);

impl Fields {
    fn of(sale: &SaleDefinition) -> Self {
        let mut fields = Self(BTreeMap::new());
        // Our own type always has a JSON form.
        fields.add(String::new(), serde_json::to_value(sale).unwrap_or_default());
        fields
    }

    fn add(&mut self, path: String, value: Value) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    self.add(if path.is_empty() { key } else { format!("{path}.{key}") }, value);
                }
            }
            Value::Array(elements) => {
                for (index, value) in elements.into_iter().enumerate() {
                    self.add(format!("{path}[{index}]"), value);
                }
            }
            Value::Null => {}
            value => {
                self.0.insert(path, value);
            }
        }
    }

    /// A value as people read it, by what its key says of its unit.
    fn words(&self, key: &str, zone: Option<&str>) -> Option<String> {
        let value = self.0.get(key)?;
        let name = key.rsplit('.').next().unwrap_or(key);
        let number = value.as_u64();
        Some(match (name, number, value.as_str()) {
            ("price", Some(_), _) => {
                let currency = self.0.get(&format!("{}currency", key.trim_end_matches("price")));
                let currency = currency.and_then(Value::as_str).unwrap_or_default();
                price_text(value.as_i64().unwrap_or_default(), currency)
            }
            (_, Some(seconds), _) if name.ends_with("_seconds") => span_text(seconds),
            (_, Some(number), _) if name.ends_with("_per_minute") => format!("{number} a minute"),
            ("stock", Some(units), _) => format!("{units} units"),
            (_, _, Some(text)) if name.ends_with("_at") => match Timestamp::parse(text) {
                Ok(moment) => moment_text(moment, zone),
                Err(_) => one_line(text, VALUE_CHARS_MAX),
            },
            _ => one_line(&value.to_string(), VALUE_CHARS_MAX),
        })
    }
}

/// A span in the units people use, such as `10 min` or `1 h 30 s`.
fn span_text(seconds: u64) -> String {
    let parts = [(seconds / 3_600, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let words: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{number} {unit}"))
        .collect();
    if words.is_empty() { "0 s".into() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::{EXAMPLE_TOML, parse_toml};

    fn lines(old: &SaleDefinition, new: &SaleDefinition) -> Vec<String> {
        differences(old, new).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_field_that_differs_is_said_in_human_units() {
        let old = parse_toml("example", EXAMPLE_TOML).unwrap();
        assert_eq!(lines(&old, &old), Vec::<String>::new());
        let mut new = old.clone();
        new.name = "A \u{202e}name".into();
        new.opens_at = old.opens_at.plus_seconds(90);
        new.hold_seconds = 5_430;
        new.total_limit = None;
        new.abandoned_holds_limit = Some(2);
        new.admission.rate_per_minute = 600;
        new.items[0].price = 50_050;
        new.items[1].stock = 1;
        assert_eq!(
            lines(&old, &new),
            [
                "abandoned_holds_limit: 3 -> 2",
                "admission.rate_per_minute: 120000 a minute -> 600 a minute",
                "hold_seconds: 10 min -> 1 h 30 min 30 s",
                "items[0].price: 499.00 EUR -> 500.50 EUR",
                "items[1].stock: 700 units -> 1 units",
                "name: \"Phone drop\" -> \"A \\u{202e}name\"",
                "opens_at: 1 December 2026, 11:00 (Europe/Berlin) -> 1 December 2026, 11:01:30 (Europe/Berlin)",
                "total_limit: 1500 -> not set",
            ]
        );
        new = old.clone();
        new.items.pop();
        assert_eq!(differences(&old, &new).len(), 5, "a field each of an item that is gone");
    }
}
