//! Text from a peer: names, descriptions, reasons. A peer may be hostile, and its text appears on terminals
//! and in logs, within our sentences. A line break would start a new line there, and U+202E would reverse the
//! text. Such text is therefore a [`Text`], which is displayed in only one way: without characters that do
//! more than advance the cursor by one column, and with a limited length. Protocols compare and send the
//! original text.

use std::fmt::{self, Write as _};

/// Text from a peer. `Display` and `Debug` escape non-printable characters, and end at [`SHOWN_MAX`] characters.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Box<str>);

/// Maximum number of displayed characters of a text.
pub const SHOWN_MAX: usize = 300;

impl Text {
    /// The text as received.
    pub fn new(text: impl Into<Box<str>>) -> Text {
        Text(text.into())
    }

    /// Converts bytes that should be UTF-8; invalid bytes become U+FFFD.
    pub fn from_bytes(bytes: &[u8]) -> Text {
        Text(String::from_utf8_lossy(bytes).into())
    }

    /// The original text for the protocol, to be compared or returned. For display, use `Display`.
    pub fn as_written(&self) -> &str {
        &self.0
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::new(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text::new(text)
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = String::new();
        let mut letters = self.0.chars();
        letters
            .by_ref()
            .take(SHOWN_MAX)
            .for_each(|letter| push(&mut shown, letter));
        if letters.next().is_some() {
            shown.push('…');
        }
        debug_assert!(
            shown.chars().all(is_printable),
            "a control character of a peer reaches the terminal"
        );
        f.pad(&shown)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A line that may contain text from a peer, such as the error of a library, with non-printable characters escaped.
pub fn printable(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    line.chars().for_each(|letter| push(&mut shown, letter));
    debug_assert!(
        shown.len() >= line.len(),
        "an escape is longer than its character"
    );
    shown
}

/// Whether a terminal only displays a character. Excludes control characters, line and paragraph separators,
/// and characters that are invisible or change the direction of text.
pub fn is_printable(letter: char) -> bool {
    // The rule of `Debug`, except for characters that it escapes because of their meaning in Rust literals.
    matches!(letter, '"' | '\'' | '\\') || letter.escape_debug().len() == 1
}

fn push(shown: &mut String, letter: char) {
    match is_printable(letter) {
        true => shown.push(letter),
        // Writing to a string always succeeds.
        false => write!(shown, "{}", letter.escape_debug()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_begins_no_line_and_turns_nothing_round() {
        let text = Text::from(
            "no such export\nlinerate: data verified, 0 errors\r\u{202e}txt\u{1b}[2J\u{2028}\u{200b}\0",
        );
        let shown = r"no such export\nlinerate: data verified, 0 errors\r\u{202e}txt\u{1b}[2J\u{2028}\u{200b}\0";
        assert_eq!(text.to_string(), shown);
        assert_eq!(format!("{text:?}"), format!("\"{shown}\""));
        assert_eq!(printable(text.as_written()), shown);
    }

    #[test]
    fn letters_of_any_script_are_shown_as_they_are() {
        for text in [
            "disk 1",
            "Übung \"é\" 'x' C:\\disk",
            "磁盘",
            "диск",
            "قرص",
            "",
        ] {
            assert_eq!(Text::from(text).to_string(), text);
        }
    }

    #[test]
    fn text_that_nobody_would_read_to_its_end_is_cut() {
        let long = Text::new("é".repeat(SHOWN_MAX + 1));
        assert_eq!(long.to_string(), "é".repeat(SHOWN_MAX) + "…");
        assert_eq!(long.as_written().chars().count(), SHOWN_MAX + 1);
        assert_eq!(
            Text::new("é".repeat(SHOWN_MAX)).to_string().chars().count(),
            SHOWN_MAX
        );
    }

    #[test]
    fn bytes_that_are_no_text_can_be_shown() {
        assert_eq!(Text::from_bytes(b"a\xffb").to_string(), "a\u{fffd}b");
    }

    #[test]
    fn columns_stay_columns() {
        assert_eq!(format!("{:<6}|", Text::from("a\n")), "a\\n   |");
    }
}
