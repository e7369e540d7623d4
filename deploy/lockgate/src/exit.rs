//! How a command ends: 0 done, 1 failed while running, 2 bad usage or configuration.

use std::fmt;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    message: String,
}

impl Failure {
    /// Bad usage or configuration: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// Something failed while running: exit code 1.
    pub fn running(message: impl fmt::Display) -> Self {
        Self { code: 1, message: message.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
