//! What a verb is answered with: for people, and for programs.

use std::fmt::Display;

use initiator::verbs::Field;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::figures::grouped;
use crate::output::say;
use crate::table::{Align, lines};

/// The same in words and in JSON, whose names are promised.
#[derive(Debug)]
pub(super) struct Answer {
    text: String,
    json: Value,
}

impl Answer {
    pub(super) fn new(text: impl Display, json: Value) -> Answer {
        Answer { text: text.to_string(), json }
    }

    /// Prints it.
    pub(super) fn say(&self, json: bool) -> Result<(), Failure> {
        let text = if json {
            serde_json::to_string_pretty(&self.json).map_err(Failure::failed)?
        } else {
            self.text.trim_end().to_owned()
        };
        say(&(text + "\n"));
        Ok(())
    }
}

/// Fields of a page by their names.
pub(super) fn fields(fields: &[Field]) -> Value {
    fields.iter().map(|field| (field.name.to_owned(), json!(field.value))).collect()
}

/// The same for people: name, value and meaning in columns.
pub(super) fn fields_text(fields: &[Field]) -> String {
    let row = |field: &Field| [field.name.to_owned(), grouped(field.value), field.means.to_owned()];
    let rows: Vec<_> = fields.iter().map(row).collect();
    let lines = lines([Align::Left, Align::Right, Align::Left], &rows);
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

/// Things that have no shape but their words.
pub(super) fn words(all: &[impl Display]) -> Value {
    all.iter().map(|one| json!(one.to_string())).collect()
}

/// Bytes as two digits each.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes as people look at them: sixteen a line, with their place and their letters.
pub(super) fn dump(bytes: &[u8]) -> String {
    let line = |(row, bytes): (usize, &[u8])| {
        let letters = bytes.iter().map(|byte| match byte {
            0x20..0x7f => char::from(*byte),
            _ => '.',
        });
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("  {:04x}  {:<47}  {}\n", row * 16, digits.join(" "), letters.collect::<String>())
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_with_their_place_and_letters() {
        let dumped = format!("\n{}", dump(b"LINERATE \x00\x7f0123456"));
        let expected = "
  0000  4c 49 4e 45 52 41 54 45 20 00 7f 30 31 32 33 34  LINERATE ..01234
  0010  35 36                                            56
";
        assert_eq!(dumped, expected);
    }
}
