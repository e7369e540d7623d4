//! A file format's values as one tree with positions, so that one reader serves TOML and JSON and can report
//! everything that is wrong instead of stopping at the first fault.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use toml::de::{DeTable, DeValue};

use super::problem::{SaleProblem, one_line};

/// Longest message of a parser repeated in a problem, in characters.
const MESSAGE_CHARS_MAX: usize = 200;

/// A value, its text as given, and the line it stands in.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) line: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Null,
    Boolean(bool),
    /// As written; `None` when it is too large to compare with any bound.
    Integer(Option<i128>, String),
    Float(f64),
    Text(String),
    /// A TOML date or time, with or without offset.
    Moment(String),
    Array(Vec<Node>),
    /// In the order given, doubles included: JSON allows them, and the reader reports them.
    Table(Vec<(String, Node)>),
}

impl Node {
    fn new(kind: Kind) -> Self {
        Self { kind, line: None }
    }

    /// The value as an operator would recognise it.
    pub(super) fn given(&self) -> String {
        match &self.kind {
            Kind::Null => "null".to_owned(),
            Kind::Boolean(value) => value.to_string(),
            Kind::Integer(_, given) | Kind::Moment(given) => given.clone(),
            Kind::Float(value) => format!("{value:?}"),
            Kind::Text(text) => format!("\"{text}\""),
            Kind::Array(values) => format!("[{} values]", values.len()),
            Kind::Table(entries) => format!("{{{} keys}}", entries.len()),
        }
    }

    /// What kind of value it is, in words.
    pub(super) fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Null => "null",
            Kind::Boolean(_) => "true or false",
            Kind::Integer(..) => "a whole number",
            Kind::Float(_) => "a number with a fraction",
            Kind::Text(_) => "text",
            Kind::Moment(_) => "a date or time",
            Kind::Array(_) => "a list",
            Kind::Table(_) => "a table",
        }
    }

    /// The value under `key`; `null` counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Kind::Table(entries) = &self.kind else {
            return None;
        };
        let (_, node) = entries.iter().find(|(name, _)| name == key)?;
        (!matches!(node.kind, Kind::Null)).then_some(node)
    }

    /// The line of the deepest value on the dotted `path` that has one.
    pub(super) fn line_of(&self, path: &str) -> Option<usize> {
        let mut node = self;
        let mut line = None;
        for step in path.split(['.', '[']) {
            let next = match step.strip_suffix(']').map(str::parse::<usize>) {
                Some(Ok(index)) => match &node.kind {
                    Kind::Array(values) => values.get(index),
                    _ => None,
                },
                _ => node.get(step),
            };
            let Some(next) = next else { break };
            node = next;
            line = node.line.or(line);
        }
        line
    }
}

/// Reads a TOML text, or says everything that is wrong with its syntax.
pub(super) fn from_toml(text: &str) -> Result<Node, Vec<SaleProblem>> {
    let lines = Lines::of(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(lines.table(table.get_ref()));
    }
    let problem = |error: &toml::de::Error| SaleProblem {
        line: error.span().map(|span| lines.line(span.start)),
        ..SaleProblem::new(
            "",
            "",
            format!("is not TOML: {}", one_line(&error.message().replace('\n', ", "), MESSAGE_CHARS_MAX)),
            "correct the syntax in this line (https://toml.io shows it)",
        )
    };
    let mut problems: Vec<_> = errors.iter().map(problem).collect();
    // The first fault of a line causes the others in it.
    problems.dedup_by_key(|problem| problem.line);
    Err(problems)
}

/// Reads a JSON text, or says what is wrong with its syntax.
pub(super) fn from_json(text: &[u8]) -> Result<Node, Vec<SaleProblem>> {
    serde_json::from_slice(text).map_err(|error| {
        let message = one_line(&error.to_string(), MESSAGE_CHARS_MAX);
        let line = Some(error.line()).filter(|line| *line > 0);
        let problem = SaleProblem::new("", "", format!("is not JSON: {message}"), "correct the syntax there");
        vec![SaleProblem { line, ..problem }]
    })
}

/// Where each line of a text starts.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self(std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect())
    }

    fn line(&self, offset: usize) -> usize {
        self.0.partition_point(|start| *start <= offset)
    }

    fn table(&self, table: &DeTable<'_>) -> Node {
        let mut entries: Vec<_> = table.iter().collect();
        // The parser sorts by key; problems read best in the order of the file.
        entries.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): &(&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
            let mut node = self.value(value.get_ref());
            node.line = Some(self.line(key.span().start));
            (std::borrow::Cow::to_string(key.get_ref()), node)
        };
        Node::new(Kind::Table(entries.iter().map(entry).collect()))
    }

    fn value(&self, value: &DeValue<'_>) -> Node {
        Node::new(match value {
            DeValue::String(text) => Kind::Text(text.to_string()),
            DeValue::Integer(number) => {
                let value = i128::from_str_radix(number.as_str(), number.radix()).ok();
                Kind::Integer(value, number.to_string())
            }
            DeValue::Float(number) => Kind::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(value) => Kind::Boolean(*value),
            DeValue::Datetime(moment) => Kind::Moment(moment.to_string()),
            DeValue::Table(table) => return self.table(table),
            DeValue::Array(values) => {
                let element = |value: &toml::Spanned<DeValue<'_>>| {
                    let mut node = self.value(value.get_ref());
                    node.line = Some(self.line(value.span().start));
                    node
                };
                Kind::Array(values.iter().map(element).collect())
            }
        })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor).map(Self::new)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Boolean(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Integer(Some(value.into()), value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Integer(Some(value.into()), value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Kind, E> {
        Ok(Kind::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Kind, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(Kind::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Kind::Table(entries))
    }
}
