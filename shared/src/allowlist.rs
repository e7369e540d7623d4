//! PURE. An allowlist as operators write it, lines of `code,email`, read as the bytes arrive.
//!
//! A line is RFC 4180 with two fields: either may stand in double quotes. A first line `code,email`, a byte order
//! mark, empty lines and `\r\n` are fine. Codes are trimmed and otherwise taken as they stand, capitals too. Addresses
//! are trimmed and written in lower case, letter by letter as Unicode has it; nothing else about them is changed.
//!
//! Problems name the line and never repeat what stands on it: it is somebody's address, or their way in.

use std::{borrow::Cow, collections::HashMap};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::limits::{CODE_BYTES_MAX, CODE_BYTES_MIN, EMAIL_BYTES_MAX};

/// Longest line, in bytes: both fields at their longest, quoted, fit.
const LINE_BYTES_MAX: usize = 1_024;
/// Most problems kept of one text; all are counted.
pub const PROBLEMS_MAX: usize = 100;

const _: () = assert!(2 * (CODE_BYTES_MAX + EMAIL_BYTES_MAX) + 8 < LINE_BYTES_MAX);

/// What is wrong with one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineProblem {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong and what to do; none of the line's text.
    pub message: String,
}

/// Everything that is wrong with an allowlist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// The first [`PROBLEMS_MAX`], in the order of their lines.
    pub first: Vec<LineProblem>,
    /// How many there are.
    pub total: usize,
}

/// One line, in the form in which codes and addresses are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The line, counted from 1.
    pub line: usize,
    /// The code.
    pub code: String,
    /// The e-mail address.
    pub email: String,
}

/// Reads an allowlist piece by piece. It keeps 48 bytes or so per code, to notice one that comes twice.
#[derive(Default)]
pub struct Reader {
    line: usize,
    partial: Vec<u8>,
    /// Codes seen: where, and with which address, both as hashes.
    seen: HashMap<[u8; 16], (usize, [u8; 16])>,
    has_begun: bool,
    repeated: usize,
    problems: Problems,
}

/// The code as it is compared, or what is wrong with it.
///
/// # Errors
/// What is wrong, in words that follow "the code".
pub fn normal_code(text: &str) -> Result<&str, String> {
    let code = text.trim();
    if !(CODE_BYTES_MIN..=CODE_BYTES_MAX).contains(&code.len()) {
        return Err(format!(
            "has {} bytes; write a code of {CODE_BYTES_MIN} to {CODE_BYTES_MAX}",
            code.len()
        ));
    }
    if code.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("has a space or a control character inside; take it out".into());
    }
    Ok(code)
}

/// The e-mail address as it is compared, or what is wrong with it.
///
/// # Errors
/// What is wrong, in words that follow "the e-mail address".
pub fn normal_email(text: &str) -> Result<String, String> {
    let email: String = text.trim().chars().flat_map(char::to_lowercase).collect();
    if email.len() > EMAIL_BYTES_MAX {
        return Err(format!("has {} bytes; at most {EMAIL_BYTES_MAX} are possible", email.len()));
    }
    let is_plausible = email
        .rsplit_once('@')
        .is_some_and(|(local, host)| !local.is_empty() && !host.is_empty() && !local.contains('@'));
    if !is_plausible || email.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("is no address such as name@example.org; correct it".into());
    }
    Ok(email)
}

impl Reader {
    /// Takes the next bytes in and hands on every row that is complete and sound. A line that repeats an earlier one
    /// is not handed on again.
    pub fn feed(&mut self, mut bytes: &[u8], take: &mut impl FnMut(Row)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            self.end_line(take);
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    /// Takes the end of the text in and answers how many lines only repeated earlier ones.
    ///
    /// # Errors
    /// Everything that is wrong with the text.
    pub fn finish(mut self, take: &mut impl FnMut(Row)) -> Result<usize, Problems> {
        if !self.partial.is_empty() {
            self.end_line(take);
        }
        if self.problems.total == 0 { Ok(self.repeated) } else { Err(self.problems) }
    }

    /// Lines read so far.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.line
    }

    /// Keeps the bytes of a line, and of one that is too long no more than shows that.
    fn keep(&mut self, bytes: &[u8]) {
        let room = (LINE_BYTES_MAX + 2).saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self, take: &mut impl FnMut(Row)) {
        self.line += 1;
        let bytes = std::mem::take(&mut self.partial);
        match self.row(&bytes) {
            Ok(Some(row)) => take(row),
            Ok(None) => {}
            Err(message) => {
                self.problems.total += 1;
                if self.problems.first.len() < PROBLEMS_MAX {
                    self.problems.first.push(LineProblem { line: self.line, message });
                }
            }
        }
        self.partial = bytes;
        self.partial.clear();
    }

    fn row(&mut self, bytes: &[u8]) -> Result<Option<Row>, String> {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let bytes = if self.line == 1 { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) } else { bytes };
        if bytes.len() > LINE_BYTES_MAX {
            return Err(format!(
                "the line is longer than {LINE_BYTES_MAX} bytes; write one code,email a line"
            ));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|_| "the line is not UTF-8; save the file in that encoding".to_owned())?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let (code, email) = fields(text)?;
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if is_first && code.trim().eq_ignore_ascii_case("code") && email.trim().eq_ignore_ascii_case("email")
        {
            return Ok(None);
        }
        let code = normal_code(&code).map_err(|what| format!("the code {what}"))?;
        let email = normal_email(&email).map_err(|what| format!("the e-mail address {what}"))?;
        let is_new = self.note(code, &email)?;
        Ok(is_new.then(|| Row { line: self.line, code: code.to_owned(), email }))
    }

    /// Notes a code and answers whether it is new.
    fn note(&mut self, code: &str, email: &str) -> Result<bool, String> {
        let (code, email) = (short_hash(code), short_hash(email));
        let (line, first) = *self.seen.entry(code).or_insert((self.line, email));
        if line == self.line {
            return Ok(true);
        }
        if first != email {
            return Err(format!(
                "the code stands on line {line} too, with another e-mail address; keep one of the two"
            ));
        }
        self.repeated += 1;
        Ok(false)
    }
}

fn short_hash(text: &str) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&Sha256::digest(text)[..16]);
    short
}

/// The two fields of a line.
fn fields(line: &str) -> Result<(Cow<'_, str>, Cow<'_, str>), String> {
    let (code, rest) = field(line)?;
    let rest = rest.ok_or("there is no comma; write code,email")?;
    match field(rest)? {
        (email, None) => Ok((code, email)),
        (_, Some(_)) => Err("there are more than two fields; write code,email and nothing else".into()),
    }
}

/// The first field of `text`, and what follows its comma.
fn field(text: &str) -> Result<(Cow<'_, str>, Option<&str>), String> {
    let Some(mut rest) = text.trim_start().strip_prefix('"') else {
        return Ok(match text.split_once(',') {
            Some((field, rest)) => (field.into(), Some(rest)),
            None => (text.into(), None),
        });
    };
    let mut value = String::new();
    loop {
        let (part, after) = rest.split_once('"').ok_or("a quotation mark is not closed; close it")?;
        value.push_str(part);
        match after.strip_prefix('"') {
            Some(further) => {
                value.push('"');
                rest = further;
            }
            None => match after.trim_start() {
                "" => return Ok((value.into(), None)),
                after => {
                    let after = after.strip_prefix(',').ok_or(
                        "something stands between a closing quotation mark and the comma; take it out",
                    )?;
                    return Ok((value.into(), Some(after)));
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_in(text: &[u8], piece: usize) -> (Vec<Row>, Result<usize, Problems>) {
        let mut rows = Vec::new();
        let mut take = |row: Row| rows.push(row);
        let mut reader = Reader::default();
        for bytes in text.chunks(piece.max(1)) {
            reader.feed(bytes, &mut take);
        }
        let end = reader.finish(&mut take);
        (rows, end)
    }

    fn problem(text: &[u8]) -> LineProblem {
        let (_, end) = read_in(text, 7);
        let problems = end.unwrap_err();
        assert_eq!((problems.total, problems.first.len()), (1, 1), "{problems:?}");
        problems.first[0].clone()
    }

    #[test]
    fn lines_are_read_and_made_comparable() {
        let text = "\u{feff}Code,Email\r\nAB-12, Ann@Example.ORG \r\n\n\"c,\"\"d\" , \"ÄÖ@x.de\"\nAB-12,ann@example.org";
        for piece in [1, 3, 1_000] {
            let (rows, end) = read_in(text.as_bytes(), piece);
            let row = |line, code: &str, email: &str| Row { line, code: code.into(), email: email.into() };
            let expected = [row(2, "AB-12", "ann@example.org"), row(4, "c,\"d", "äö@x.de")];
            assert_eq!(rows, expected);
            assert_eq!(end, Ok(1), "the last line only repeats the second");
        }
        assert_eq!(read_in(b"", 1), (vec![], Ok(0)));
        assert_eq!(read_in(b"ab12,a@b\nAB12,a@b\n", 5).0.len(), 2, "capitals count in a code");
    }

    #[test]
    fn every_problem_names_its_line_and_none_of_its_text() {
        let long = format!("good-1,a@b\n{},x@y\n", "k".repeat(2_000));
        for (text, line, words) in [
            ("good-1,a@b\nhunter2\n", 2, "no comma"),
            ("good-1,a@b\n\nhunter2,b@c,d", 3, "more than two"),
            ("abc,hunter2@x.y", 1, "has 3 bytes"),
            ("hunter 2,a@b", 1, "a space"),
            ("good-1,hunter2", 1, "no address"),
            ("good-1,@hunter2", 1, "no address"),
            ("good-1,hunter2@@b", 1, "no address"),
            ("good-1,hunter2@b c", 1, "no address"),
            ("\"hunter2,a@b", 1, "not closed"),
            ("\"hunter2\"x,a@b", 1, "between"),
            ("hunter2,a@b\nhunter2,c@d", 2, "line 1 too"),
            (long.as_str(), 2, "longer than"),
        ] {
            let problem = problem(text.as_bytes());
            assert_eq!(problem.line, line, "{text}: {problem:?}");
            assert!(problem.message.contains(words), "{text}: {problem:?}");
            assert!(!problem.message.contains("hunter"), "{problem:?}");
        }
        assert!(problem(b"good-1,\xff@x").message.contains("UTF-8"));
    }

    #[test]
    fn all_problems_are_counted_and_the_first_are_kept() {
        let text = "bad\n".repeat(1_000) + "good-1,a@b\n";
        let (rows, end) = read_in(text.as_bytes(), 64);
        let problems = end.unwrap_err();
        assert_eq!((rows.len(), problems.total, problems.first.len()), (1, 1_000, PROBLEMS_MAX));
        assert_eq!(problems.first[PROBLEMS_MAX - 1].line, PROBLEMS_MAX);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_alike_in_any_pieces(text in prop::collection::vec(any::<u8>(), 0..400), piece in 1usize..50) {
            prop_assert_eq!(read_in(&text, piece), read_in(&text, 1_000));
        }

        #[test]
        fn what_is_written_by_the_rules_is_read_back(codes in prop::collection::hash_set("[!-~]{4,64}", 1..20)) {
            let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
            let text: String = codes.iter().map(|code| format!("{},A@b.C\r\n", quoted(code))).collect();
            let (rows, end) = read_in(text.as_bytes(), 13);
            prop_assert_eq!(end, Ok(0));
            prop_assert!(rows.iter().map(|row| &row.code).eq(&codes));
            prop_assert!(rows.iter().all(|row| row.email == "a@b.c"));
        }

        #[test]
        fn comparable_stays_comparable(text in "\\PC{0,40}") {
            if let Ok(email) = normal_email(&text) {
                prop_assert_eq!(normal_email(&email), Ok(email));
            }
            if let Ok(code) = normal_code(&text) {
                prop_assert_eq!(normal_code(code), Ok(code));
            }
        }
    }
}
