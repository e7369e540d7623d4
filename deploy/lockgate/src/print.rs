//! Words for whoever started a command. A reader who has gone away (`lockgate … | head`) is no reason to fail, let
//! alone to panic as `println!` does: what was asked for was done.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

/// Prints a line to standard output.
pub fn line(text: impl Display) {
    if let Err(error) = writeln!(io::stdout().lock(), "{text}")
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        note(format_args!("lockgate: standard output cannot be written ({error})"));
    }
}

/// Prints a line to standard error, the last place there is to say anything.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
