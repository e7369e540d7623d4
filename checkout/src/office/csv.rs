//! PURE: tables as CSV (RFC 4180): CRLF at the end of a line, quotes where they are needed, and nothing a spreadsheet
//! would compute.
//!
//! A cell that begins with `=`, `+`, `-`, `@`, a tabulator or a return is a formula to spreadsheets, whoever wrote it
//! (OWASP, "CSV injection"). Such a text gets an apostrophe before it, which spreadsheets do not show. Numbers of our own
//! may begin with a minus.

use std::fmt::Display;

/// A line being written.
#[derive(Debug, Default)]
pub struct Line(String);

impl Line {
    fn begin_cell(&mut self) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
    }

    /// Adds a text that somebody else may have written.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.begin_cell();
        let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠']);
        let needs_quotes = text.is_empty() || text.contains(['"', ',', '\r', '\n']) || text.trim() != text;
        if needs_quotes {
            self.0.push('"');
        }
        if is_formula {
            self.0.push('\'');
        }
        self.0.push_str(&text.replace('"', "\"\""));
        if needs_quotes {
            self.0.push('"');
        }
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn number(mut self, number: impl Display) -> Self {
        self.begin_cell();
        self.0.push_str(&number.to_string());
        self
    }

    /// Adds a number, or an empty cell.
    #[must_use]
    pub fn number_or_nothing(self, number: Option<impl Display>) -> Self {
        match number {
            Some(number) => self.number(number),
            None => self.text(""),
        }
    }

    /// The line with its end.
    #[must_use]
    pub fn end(mut self) -> String {
        self.0.push_str("\r\n");
        self.0
    }
}

/// A line of texts.
#[must_use]
pub fn header(columns: &[&str]) -> String {
    columns.iter().fold(Line::default(), |line, column| line.text(column)).end()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads CSV as RFC 4180 says it.
    pub(crate) fn read(text: &str) -> Vec<Vec<String>> {
        let (mut lines, mut cells, mut cell) = (Vec::new(), Vec::new(), String::new());
        let (mut chars, mut is_quoted) = (text.chars().peekable(), false);
        while let Some(char) = chars.next() {
            match (is_quoted, char) {
                (true, '"') if chars.peek() == Some(&'"') => cell.extend(chars.next()),
                (_, '"') => is_quoted = !is_quoted,
                (false, ',') => cells.push(std::mem::take(&mut cell)),
                (false, '\r') if chars.peek() == Some(&'\n') => {
                    chars.next();
                    cells.push(std::mem::take(&mut cell));
                    lines.push(std::mem::take(&mut cells));
                }
                (_, char) => cell.push(char),
            }
        }
        assert!(cell.is_empty() && cells.is_empty(), "the last line has its end");
        lines
    }

    #[test]
    fn formulas_are_texts_and_our_numbers_are_numbers() {
        let line = Line::default().text("=1+1@example.org").text("+4").text("plain").number(-5).end();
        assert_eq!(line, "'=1+1@example.org,'+4,plain,-5\r\n");
        assert_eq!(Line::default().text("").text("a\"b,c").end(), "\"\",\"a\"\"b,c\"\r\n");
    }

    proptest! {
        #[test]
        fn every_text_reads_back_and_none_is_a_formula(
            texts in prop::collection::vec(".{0,12}|[=+@\t\r\n\",' -]{0,6}", 1..6),
        ) {
            let text = texts.iter().fold(Line::default(), |line, text| line.text(text)).end();
            let lines = read(&text);
            prop_assert_eq!(lines.len(), 1);
            prop_assert_eq!(lines[0].len(), texts.len());
            for (cell, text) in lines[0].iter().zip(&texts) {
                prop_assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r']), "{:?}", cell);
                prop_assert!(cell == text || *cell == format!("'{text}"), "{:?} {:?}", cell, text);
            }
        }
    }
}
