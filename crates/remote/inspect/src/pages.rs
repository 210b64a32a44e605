//! Formats vital product data pages, mode pages, and raw bytes as text and JSON.

use backends::Failure;
use iscsi_client::verbs::VerbError;
use std::fmt::Display;

use iscsi_client::verbs::{Field, Port, Vpd, VpdContent, page_name};
use readable::figures::grouped;
use readable::table::{Align, Column, rows_within};
use serde::Serialize;
use serde_json::{Value, json};

/// Parses the code of a page: `83`, `0x83` or `83h`.
pub fn code(text: &str) -> Result<u8, String> {
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_suffix('h'))
        .unwrap_or(text);
    u8::from_str_radix(digits, 16)
        .map_err(|_| format!("{text:?} is not a page; write two hexadecimal digits such as b0"))
}

/// A page as text: numeric fields in columns, other content in its own text form.
pub fn text(page: &Vpd) -> String {
    let VpdContent::Fields(all) = &page.content else {
        return format!("{page}\n");
    };
    format!(
        "{} ({:02x}h)\n{}",
        page_name(page.code),
        page.code,
        fields_text(all)
    )
}

/// A page as JSON, by the kind of its content.
pub fn to_json(page: &Vpd) -> Value {
    let (kind, content) = match &page.content {
        VpdContent::Pages(pages) => (
            "pages",
            pages
                .iter()
                .map(|code| json!(format!("{code:02x}")))
                .collect(),
        ),
        VpdContent::SerialNumber(serial) => ("serial_number", json!(serial)),
        VpdContent::Designators(designators) => ("designators", words(designators)),
        VpdContent::ModePagePolicies(policies) => ("policies", words(policies)),
        VpdContent::Ports(ports) => {
            let port = |port: &Port| {
                json!({
                    "relative_port": port.relative,
                    "initiator": port.initiator.as_ref().map(ToString::to_string),
                    "designators": words(&port.designators),
                })
            };
            ("ports", ports.iter().map(port).collect())
        }
        VpdContent::Fields(all) => ("fields", fields(all)),
        VpdContent::Bytes(_) => ("unknown", Value::Null),
    };
    json!({
        "page": format!("{:02x}", page.code),
        "name": page_name(page.code),
        kind: content,
        "bytes": hex(&page.bytes),
    })
}

/// The fields of a page as a JSON object, by name.
pub fn fields(fields: &[Field]) -> Value {
    fields
        .iter()
        .map(|field| (field.name.to_owned(), json!(field.value)))
        .collect()
}

/// The fields as text: name, value and meaning in columns. Meanings wrap at the width of a usual terminal.
pub fn fields_text(fields: &[Field]) -> String {
    let row = |field: &Field| {
        [
            field.name.to_owned(),
            grouped(field.value),
            field.means.to_owned(),
        ]
    };
    let rows: Vec<_> = fields.iter().map(row).collect();
    let columns = [Align::Left, Align::Right, Align::Left].map(|align| Column { align, rank: 0 });
    let lines = rows_within(&columns, &rows, &[""; 3], WIDTH - 2);
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

/// Maximum number of characters per line.
const WIDTH: usize = 80;

/// Values that have only a text form, as JSON strings.
pub fn words(all: &[impl Display]) -> Value {
    all.iter().map(|one| json!(one.to_string())).collect()
}

/// Formats bytes as two hexadecimal digits each.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A hex dump with sixteen bytes per line, their offset, and their characters.
pub fn dump(bytes: &[u8]) -> String {
    let line = |(row, bytes): (usize, &[u8])| {
        let letters = bytes.iter().map(|byte| match byte {
            0x20..0x7f => char::from(*byte),
            _ => '.',
        });
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "  {:04x}  {:<47}  {}\n",
            row * 16,
            digits.join(" "),
            letters.collect::<String>()
        )
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

// Results as text and as JSON.

/// The version of the JSON format. It increases when a name is removed or changes its meaning.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    answer: &'a T,
}

/// The same result as text and as JSON, whose names are stable.
#[derive(Clone, Debug)]
pub struct Answer {
    text: String,
    json: String,
}

impl Answer {
    /// Creates an answer. `text` is printed unchanged. `json` must be an object, because a list has no place
    /// for a version. It must not contain infinite numbers or keys that are not strings.
    pub(crate) fn new(text: String, json: &impl Serialize) -> Answer {
        let versioned = serde_json::to_string_pretty(&Versioned {
            version: VERSION,
            answer: json,
        });
        Answer {
            text,
            json: versioned.expect("an object whose keys are text") + "\n",
        }
    }

    /// Like [`Answer::new`], for any text. The text gets exactly one newline at its end.
    pub(crate) fn of_text(text: impl Display, json: &impl Serialize) -> Answer {
        Answer::new(text.to_string().trim_end().to_owned() + "\n", json)
    }

    /// The text or the JSON, for output.
    pub fn printed(&self, as_json: bool) -> &str {
        if as_json { &self.json } else { &self.text }
    }
}

/// The result of a command; `None` if the unit rejected it, for instance because it is unsupported or blocked
/// by a reservation. A lost session is an error.
pub(crate) fn known<T>(answer: Result<T, VerbError>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error @ VerbError::Lost(_)) => Err(error.into()),
        Err(error) => {
            tracing::debug!("{error}");
            Ok(None)
        }
    }
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

    #[test]
    fn a_page_is_written_as_people_and_standards_do() {
        assert_eq!(
            ["83", "0x83", "83h", "B0"].map(code),
            [Ok(0x83), Ok(0x83), Ok(0x83), Ok(0xb0)]
        );
        assert!(code("131").is_err() && code("block").is_err() && code("").is_err());
    }
}
