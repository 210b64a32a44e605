//! Writes HTML and SVG in such a way that text cannot become markup.
//!
//! Every text and every attribute passes through [`escaped`]. The only function that writes raw markup takes
//! a `&'static str`, which cannot come from outside the program. A template engine would escape text in the
//! same way, but code draws most of a report, where templates do not help.

use std::fmt::{self, Display, Write};

/// A part of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Markup(String);

/// An attribute's name and its value.
pub(super) type Attribute<'a> = (&'static str, &'a dyn Display);

impl Markup {
    pub(super) fn text(&mut self, text: &str) {
        escaped(text, &mut self.0);
    }

    pub(super) fn element(
        &mut self,
        name: &'static str,
        attributes: &[Attribute<'_>],
        inside: impl FnOnce(&mut Markup),
    ) {
        self.begin(name, attributes);
        self.0.push('>');
        inside(self);
        // Writing to a String cannot fail.
        let _ = write!(self.0, "</{name}>");
    }

    /// Writes an element that contains only text.
    pub(super) fn with_text(
        &mut self,
        name: &'static str,
        attributes: &[Attribute<'_>],
        text: &str,
    ) {
        self.element(name, attributes, |inside| inside.text(text));
    }

    /// Writes an element without content.
    pub(super) fn empty(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.begin(name, attributes);
        self.0.push_str("/>");
    }

    /// Writes raw markup that is part of this program: style, script, document type.
    pub(super) fn verbatim(&mut self, text: &'static str) {
        self.0.push_str(text);
    }

    /// Writes a line break, which keeps the file readable.
    pub(super) fn line(&mut self) {
        self.0.push('\n');
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }

    fn begin(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.0.push('<');
        self.0.push_str(name);
        for (attribute, value) in attributes {
            let _ = write!(self.0, " {attribute}=\"");
            escaped(&value.to_string(), &mut self.0);
            self.0.push('"');
        }
    }
}

/// A coordinate in a drawing, written with one decimal place. A tenth of a unit is finer than the resolution
/// of a screen, and further digits would make up most of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Px(pub(super) f64);

impl Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round() / 10.0;
        // Do not write "-0".
        write!(f, "{}", if tenths == 0.0 { 0.0 } else { tenths })
    }
}

/// Returns whether a letter is invisible, but affects its surroundings. Such letters are control codes, and
/// marks that change the direction of writing (Unicode UAX #9). With these marks, a target's name could make
/// a line appear reversed.
pub(super) fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Writes text that cannot become markup. Line feeds and tabs are kept; other hidden letters become U+FFFD.
fn escaped(text: &str, out: &mut String) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            hidden if is_hidden(hidden) => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_cannot_leave_their_place() {
        let mut page = Markup::default();
        let evil = "\"><script>alert('1')</script>&";
        page.element("p", &[("title", &evil)], |inside| inside.text(evil));
        let page = page.into_string();
        assert_eq!(page.matches('<').count(), 2, "{page}");
        assert_eq!(page.matches('"').count(), 2, "{page}");
        assert!(!page.contains('\''), "{page}");
    }

    #[test]
    fn what_would_turn_the_writing_around_is_shown_as_what_it_is() {
        let mut page = Markup::default();
        page.text("a\u{202e}b\u{0}c\u{1b}[31m\u{61c}");
        assert_eq!(
            page.into_string(),
            "a\u{fffd}b\u{fffd}c\u{fffd}[31m\u{fffd}"
        );
    }

    #[test]
    fn places_have_one_digit_after_the_point() {
        assert_eq!(
            [1.0, 2.25, -0.01, 33.333].map(|at| Px(at).to_string()),
            ["1", "2.3", "0", "33.3"]
        );
    }
}
