//! One thing that is wrong with a sale definition, in words an operator can act on.

use std::fmt;

use serde::Serialize;

/// Longest value repeated in a problem, in characters.
const VALUE_CHARS_MAX: usize = 60;
/// Longest key repeated in a problem, in characters: a path of known keys is far shorter.
const KEY_CHARS_MAX: usize = 120;

/// What is wrong, where, with which value, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SaleProblem {
    /// The file as it was named to the reader; absent for a definition that came as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line, counted from 1, where the text has lines worth naming.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Dotted path, such as `items[2].stock`; empty when the text as a whole is at fault.
    pub key: String,
    /// The value as given, shortened; empty when there is none or it must not be repeated.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

impl SaleProblem {
    /// A problem of `key`, not yet tied to a file or line.
    #[must_use]
    pub fn new(
        key: impl AsRef<str>,
        value: impl fmt::Display,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            file: None,
            line: None,
            key: one_line(key.as_ref(), KEY_CHARS_MAX),
            value: one_line(&value.to_string(), VALUE_CHARS_MAX),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for SaleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: ", one_line(file, usize::MAX))?,
            (Some(file), None) => write!(f, "{}: ", one_line(file, usize::MAX))?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        match (self.key.is_empty(), self.value.is_empty()) {
            (false, false) => write!(f, "{} = {}: ", self.key, self.value)?,
            (false, true) => write!(f, "{}: ", self.key)?,
            (true, false) => write!(f, "{}: ", self.value)?,
            (true, true) => {}
        }
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}

/// `text` with control characters written out, cut to `chars_max` characters: a hostile value can neither break
/// a log line nor flood it.
pub(super) fn one_line(text: &str, chars_max: usize) -> String {
    let mut line = String::with_capacity(text.len().min(256));
    for (count, c) in text.chars().enumerate() {
        if count == chars_max {
            line.push('…');
            break;
        }
        if is_invisible(c) {
            line.extend(c.escape_unicode());
        } else {
            line.push(c);
        }
    }
    line
}

/// Whether `c` would hide or reorder what stands around it.
pub(super) fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}
