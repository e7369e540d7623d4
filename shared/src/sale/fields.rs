//! Reading one value: its type, its bounds, and what to say when either is wrong.

use std::ops::RangeInclusive;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{
    problem::is_invisible,
    tree::{Kind, Node},
};
use crate::{clock::Timestamp, limits::NAME_BYTES_MAX};

/// Why a value cannot be read.
pub(super) struct Fault {
    pub(super) problem: String,
    pub(super) remedy: String,
    /// The value may be a secret put in the wrong place: it must not reach a screen or a log.
    pub(super) is_private: bool,
}

impl Fault {
    pub(super) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into(), is_private: false }
    }
}

/// The kind name of `node` and what was wanted instead.
pub(super) fn wrong_kind(node: &Node, wanted: &str, remedy: impl Into<String>) -> Fault {
    Fault::new(format!("is {}, not {wanted}", node.kind_name()), remedy)
}

fn text<'n>(node: &'n Node, example: &str) -> Result<&'n str, Fault> {
    match &node.kind {
        Kind::Text(text) => Ok(text),
        _ => Err(wrong_kind(node, "text", format!("write text in quotes, such as {example:?}"))),
    }
}

/// A whole number within `range`.
pub(super) fn whole<T: TryFrom<i128>>(range: RangeInclusive<i128>) -> impl Fn(&Node) -> Result<T, Fault> {
    move |node| {
        let (min, max) = (range.start(), range.end());
        let remedy = format!("write a whole number from {min} to {max}");
        let Kind::Integer(value, _) = &node.kind else {
            return Err(wrong_kind(node, "a whole number", remedy));
        };
        let within = value.filter(|value| range.contains(value)).and_then(|value| T::try_from(value).ok());
        within.ok_or_else(|| Fault::new("is out of bounds", remedy))
    }
}

/// A number within `range`, with or without a fraction.
pub(super) fn fraction(range: RangeInclusive<f64>) -> impl Fn(&Node) -> Result<f64, Fault> {
    move |node| {
        let remedy = format!("write a number from {:?} to {:?}", range.start(), range.end());
        let value = match &node.kind {
            Kind::Float(value) => *value,
            // No bound here is near 2^53, so what is rounded is out of bounds anyway.
            Kind::Integer(value, _) => value.map_or(f64::NAN, |value| value as f64),
            _ => return Err(wrong_kind(node, "a number", remedy)),
        };
        if range.contains(&value) { Ok(value) } else { Err(Fault::new("is out of bounds", remedy)) }
    }
}

/// One of a few words.
pub(super) fn choice<T: Copy>(words: &'static [(&'static str, T)]) -> impl Fn(&Node) -> Result<T, Fault> {
    move |node| {
        let listed: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let remedy = format!("write {}", listed.join(" or "));
        let Kind::Text(given) = &node.kind else {
            return Err(wrong_kind(node, "text", remedy));
        };
        match words.iter().find(|(word, _)| word == given) {
            Some((_, value)) => Ok(*value),
            None => Err(Fault::new("is not one of the words this key knows", remedy)),
        }
    }
}

/// An id: whatever `T` reads.
pub(super) fn id<T: std::str::FromStr<Err = String>>(node: &Node) -> Result<T, Fault> {
    text(node, "phone-drop")?
        .parse()
        .map_err(|problem| Fault::new(problem, "choose an id such as \"phone-drop\": a-z, 0-9 and '-'"))
}

/// A name people read.
pub(super) fn name(node: &Node) -> Result<String, Fault> {
    let text = text(node, "Phone drop")?;
    if text.trim().is_empty() {
        return Err(Fault::new("is empty", "write the name shoppers read"));
    }
    if text.len() > NAME_BYTES_MAX {
        let problem = format!("has {} bytes, more than {NAME_BYTES_MAX}", text.len());
        return Err(Fault::new(problem, "shorten it"));
    }
    if text.chars().any(is_invisible) {
        return Err(Fault::new("holds a control character", "write it in one line of plain text"));
    }
    Ok(text.to_owned())
}

/// A moment: a TOML date-time with offset, or RFC 3339 text. Kept to the millisecond, which is what the wire and
/// the stores carry: a finer time would read back as another one.
pub(super) fn moment(node: &Node) -> Result<Timestamp, Fault> {
    let remedy = "write a time with its offset, such as 2026-12-01T10:00:00Z or 2026-12-01T11:00:00+01:00";
    let (Kind::Text(given) | Kind::Moment(given)) = &node.kind else {
        return Err(wrong_kind(node, "a time", remedy));
    };
    match Timestamp::parse(given) {
        Ok(moment) => Ok(Timestamp::from_micros(moment.micros() - moment.micros() % 1_000)),
        Err(_) if given.parse::<jiff::Timestamp>().is_ok() => {
            Err(Fault::new("is outside the years 1970 to 9999", remedy))
        }
        Err(_) if given.parse::<jiff::civil::DateTime>().is_ok() => {
            Err(Fault::new("has no offset, so it is another moment in every time zone", remedy))
        }
        Err(_) => Err(Fault::new("is not a time", remedy)),
    }
}

/// The name of a time zone this machine knows.
pub(super) fn time_zone(node: &Node) -> Result<String, Fault> {
    let text = text(node, "Europe/Berlin")?;
    match jiff::tz::TimeZone::get(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(Fault::new(
            "is not a time zone this machine knows",
            "write an IANA name such as \"Europe/Berlin\" or \"UTC\"",
        )),
    }
}

/// An ISO 4217 code, by its form.
pub(super) fn currency(node: &Node) -> Result<String, Fault> {
    let remedy = "write an ISO 4217 code of three capital letters, such as \"EUR\"";
    let Kind::Text(text) = &node.kind else {
        return Err(wrong_kind(node, "text", remedy));
    };
    if text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_uppercase()) {
        Ok(text.clone())
    } else {
        Err(Fault::new("is not a currency code", remedy))
    }
}

/// Longest key id, in bytes.
const KID_BYTES_MAX: usize = 64;

/// A key id. Plain, because tokens from outside name it and logs repeat it.
pub(super) fn kid(node: &Node) -> Result<String, Fault> {
    let text = text(node, "shop-1")?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=KID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    let remedy = format!("write 1 to {KID_BYTES_MAX} of a-z, A-Z, 0-9, '-', '_' and '.', such as \"shop-1\"");
    Err(Fault::new("is not a key id", remedy))
}

/// Longest name of an environment variable, in bytes.
const ENV_BYTES_MAX: usize = 128;

/// The name of an environment variable.
pub(super) fn env_name(node: &Node) -> Result<String, Fault> {
    let private = |fault: Fault| Fault { is_private: true, ..fault };
    let text = text(node, "SHOP_ELIGIBILITY_KEY").map_err(private)?;
    let mut bytes = text.bytes();
    let starts_well = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if starts_well
        && text.len() <= ENV_BYTES_MAX
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return Ok(text.to_owned());
    }
    Err(private(Fault::new(
        "is not the name of an environment variable",
        "put the secret into an environment variable and write its name here, such as \"SHOP_ELIGIBILITY_KEY\"",
    )))
}

/// An Ed25519 public key.
pub(super) fn public_key(node: &Node) -> Result<String, Fault> {
    let remedy = "write the raw 32 bytes of the Ed25519 public key as base64url without padding: 43 characters (in a \
                  JWK, the member \"x\")";
    // Whoever confuses the two halves of a key pair pastes the private one.
    let fault = |problem: String| Fault { is_private: true, ..Fault::new(problem, remedy) };
    let Kind::Text(text) = &node.kind else {
        return Err(fault(format!("is {}, not text", node.kind_name())));
    };
    match URL_SAFE_NO_PAD.decode(text) {
        Ok(bytes) if bytes.len() == 32 => Ok(text.clone()),
        Ok(bytes) => Err(fault(format!("holds {} bytes, not 32", bytes.len()))),
        Err(_) => Err(fault("is not base64url without padding".to_owned())),
    }
}
