//! Text that fits into a text value (RFC 7143 section 6.1).

use std::fmt;
use std::str::FromStr;

use derive_more::{Display, Error};

/// Section 6.1: "the maximum length of a text-value […] is 255 bytes", unless a key says otherwise.
const BYTES_MAX: usize = 255;

/// Text for people or programs that fits into a text value: an alias, a CHAP name.
///
/// It has 1 to 255 bytes and no control characters. A NUL would end the value and begin another key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrintableText(String);

/// Why a text does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum NotPrintable {
    /// It would be no value.
    #[display("it is empty")]
    Empty,
    /// More than 255 bytes.
    #[display("it has {_0} bytes; iSCSI carries at most {BYTES_MAX}")]
    TooLong(#[error(not(source))] usize),
    /// A control character, such as NUL or a line end.
    #[display("it has a control character, {_0:?}")]
    ControlCharacter(#[error(not(source))] char),
}

impl PrintableText {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PrintableText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PrintableText {
    type Err = NotPrintable;

    fn from_str(text: &str) -> Result<PrintableText, NotPrintable> {
        if text.is_empty() {
            return Err(NotPrintable::Empty);
        }
        if text.len() > BYTES_MAX {
            return Err(NotPrintable::TooLong(text.len()));
        }
        match text.chars().find(|character| character.is_control()) {
            Some(character) => Err(NotPrintable::ControlCharacter(character)),
            None => Ok(PrintableText(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_a_value_cannot_carry_is_refused() {
        for (text, why) in [
            ("", NotPrintable::Empty),
            ("a\0b=c", NotPrintable::ControlCharacter('\0')),
            ("a\nb", NotPrintable::ControlCharacter('\n')),
            (&"x".repeat(256), NotPrintable::TooLong(256)),
        ] {
            assert_eq!(text.parse::<PrintableText>(), Err(why), "{text:?}");
        }
        for text in ["the disks of ünï", &"x".repeat(255)] {
            assert_eq!(text.parse::<PrintableText>().expect(text).as_str(), text);
        }
    }
}
