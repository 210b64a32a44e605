//! Comma-separated values as RFC 4180 has them: quotes around a field that holds a comma, a line end or a quote, which is
//! doubled there. Nothing is guessed: what is not in that grammar is an error with its line and column.

use std::fmt;

/// Where a text is not what it should be, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvError {
    /// Counted from 1.
    pub line: usize,
    /// Counted in characters from 1.
    pub column: usize,
    /// What is wrong there.
    pub why: String,
}

impl fmt::Display for CsvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.why)
    }
}

impl std::error::Error for CsvError {}

/// A field, and where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) text: String,
    at: (usize, usize),
}

impl Field {
    /// An error at this field.
    pub(super) fn error(&self, why: impl Into<String>) -> CsvError {
        CsvError { line: self.at.0, column: self.at.1, why: why.into() }
    }
}

/// The records of a text, each with at least one field. An empty line is no record.
pub(super) fn records(text: &str) -> Result<Vec<Vec<Field>>, CsvError> {
    let mut reader = Reader { rest: text.chars().peekable(), at: (1, 1) };
    let mut records = Vec::new();
    while let Some(&next) = reader.rest.peek() {
        if next == '\n' || next == '\r' {
            reader.line_end()?;
            continue;
        }
        records.push(reader.record()?);
    }
    Ok(records)
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    /// Line and column of what comes next.
    at: (usize, usize),
}

impl Reader<'_> {
    fn record(&mut self) -> Result<Vec<Field>, CsvError> {
        let mut fields = vec![self.field()?];
        while self.rest.peek() == Some(&',') {
            self.take();
            fields.push(self.field()?);
        }
        self.line_end()?;
        Ok(fields)
    }

    fn field(&mut self) -> Result<Field, CsvError> {
        let at = self.at;
        let text = if self.rest.peek() == Some(&'"') { self.quoted()? } else { self.bare()? };
        Ok(Field { text, at })
    }

    fn bare(&mut self) -> Result<String, CsvError> {
        let mut text = String::new();
        while let Some(&letter) = self.rest.peek() {
            match letter {
                ',' | '\n' | '\r' => break,
                '"' => return Err(self.error("a quote within a field that does not begin with one")),
                _ => text.extend(self.take()),
            }
        }
        Ok(text)
    }

    fn quoted(&mut self) -> Result<String, CsvError> {
        let unclosed = self.error("this quote is never closed");
        self.take();
        let mut text = String::new();
        loop {
            match self.take() {
                None => return Err(unclosed),
                Some('"') if self.rest.peek() == Some(&'"') => text.extend(self.take()),
                Some('"') => return Ok(text),
                Some(letter) => text.push(letter),
            }
        }
    }

    fn line_end(&mut self) -> Result<(), CsvError> {
        let wrong = self.error("expected a comma or the end of the line");
        match self.take() {
            None | Some('\n') => Ok(()),
            Some('\r') if matches!(self.rest.peek(), None | Some('\n')) => {
                self.take();
                Ok(())
            }
            Some(_) => Err(wrong),
        }
    }

    fn take(&mut self) -> Option<char> {
        let letter = self.rest.next()?;
        self.at = if letter == '\n' { (self.at.0 + 1, 1) } else { (self.at.0, self.at.1 + 1) };
        Some(letter)
    }

    fn error(&self, why: &str) -> CsvError {
        CsvError { line: self.at.0, column: self.at.1, why: why.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Vec<String>> {
        let records = records(text).expect("records");
        records.into_iter().map(|fields| fields.into_iter().map(|field| field.text).collect()).collect()
    }

    fn mistake(text: &str) -> String {
        records(text).expect_err("a mistake").to_string()
    }

    #[test]
    fn a_mistake_has_its_place() {
        assert_eq!(mistake("a,b\nc,\"d"), "line 2, column 3: this quote is never closed");
        assert_eq!(
            mistake("a,b\"c\""),
            "line 1, column 4: a quote within a field that does not begin with one"
        );
        assert_eq!(mistake("\"a\nb\"c\n"), "line 2, column 3: expected a comma or the end of the line");
        assert_eq!(mistake("a\rb"), "line 1, column 2: expected a comma or the end of the line");
    }

    #[test]
    fn quotes_keep_commas_line_ends_and_quotes() {
        assert_eq!(read("\"a,b\",\"c\nd\",\"e\"\"f\",\"\"\n"), [["a,b", "c\nd", "e\"f", ""]]);
    }

    #[test]
    fn lines_end_as_they_like_and_the_last_one_need_not() {
        assert_eq!(read("a,b\r\n\n,c\nd,"), [["a", "b"], ["", "c"], ["d", ""]]);
        assert!(read("").is_empty());
    }
}
