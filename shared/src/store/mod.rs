//! What every store shares: one error type, the SQLite writer, the Redis link, PostgreSQL, migrations.
//!
//! A store only compares, moves and appends. A refusal is an `Ok` value of its verb; [`StoreError`] means the
//! store itself broke, and says whether the call may have taken effect.

pub mod migrations;
pub mod postgres;
pub mod redis;
pub mod sqlite;

use std::{error::Error, fmt};

/// What is known about the effect of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The call certainly changed nothing; it may be repeated.
    None,
    /// The call may have run, or may still run: repeat it with the same id, or ask what became of it.
    Unknown,
}

/// A store broke. Refusals are not errors.
#[derive(Debug)]
pub struct StoreError {
    /// Whether the failed call may have taken effect.
    pub effect: Effect,
    /// The verb that failed, for the log.
    pub verb: &'static str,
    source: Box<dyn Error + Send + Sync>,
}

impl StoreError {
    /// `verb` failed and certainly changed nothing.
    pub fn untouched(verb: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { effect: Effect::None, verb, source: source.into() }
    }

    /// `verb` failed and may have taken effect.
    pub fn unknown(verb: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { effect: Effect::Unknown, verb, source: source.into() }
    }

    /// The same error once more, for another caller of a call that several shared. Its causes become words.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { effect: self.effect, verb: self.verb, source: self.causes().into() }
    }

    /// What the store said, without the verb and its effect.
    #[must_use]
    pub fn causes(&self) -> String {
        let mut words = self.source.to_string();
        // Drivers keep what the server said one level down: "db error" alone helps nobody.
        let mut cause = self.source.source();
        while let Some(error) = cause {
            words.push_str(": ");
            words.push_str(&error.to_string());
            cause = error.source();
        }
        words
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.effect {
            Effect::None => "nothing changed",
            Effect::Unknown => "it may have taken effect",
        };
        write!(f, "store failed at {} ({effect}): {}", self.verb, self.causes())
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.source.as_ref())
    }
}
