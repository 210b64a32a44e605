//! The syntax of volume specifications:
//!
//! ```text
//! node    = ( kind ":" | path ) argument [ "[" node *( "," node ) "]" ] [ "?" option *( "&" option ) ]
//! option  = key [ "=" value ]
//! ```
//!
//! The characters `? [ ] ,` are always special. In a path, they are written as `%3F %5B %5D %2C`, and `%`
//! itself as `%25`. For a path, the kind can be omitted: `/dev/sdb` means `file:/dev/sdb`.

use std::fmt;
use std::ops::Range;

use winnow::error::{ErrMode, ParserError};
use winnow::stream::{LocatingSlice, Location};
use winnow::token::{literal, take, take_while};
use winnow::{ModalResult, Parser};

use crate::backend::{BlockPlaces, Kind};

/// The kinds of volumes that a program supports, in one or more tables.
#[derive(Clone, Copy, Debug)]
pub struct Grammar(pub &'static [&'static [&'static Kind]]);

impl Grammar {
    /// Returns whether a text is a volume specification rather than a path.
    pub fn is_meant(self, text: &str) -> bool {
        let name = text.split_once(':').map(|(name, _)| name);
        name.is_some_and(|name| self.kind(name).is_some())
    }

    /// Returns all kinds, in the order of the tables.
    pub fn kinds(self) -> impl Iterator<Item = &'static Kind> {
        self.0.iter().copied().flatten().copied()
    }

    /// Returns the kind with this name.
    pub fn kind(self, name: &str) -> Option<&'static Kind> {
        self.kinds().find(|kind| kind.name == name)
    }

    fn names(self) -> Vec<&'static str> {
        self.kinds().map(|kind| kind.name).collect()
    }
}

/// An error in a specification, with its position. It is displayed as a message, followed by the
/// specification with a caret under the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    text: String,
    at: Range<usize>,
    sentence: String,
}

impl SpecError {
    pub(super) fn new(text: &str, problem: Problem) -> SpecError {
        SpecError {
            text: text.to_owned(),
            at: problem.at,
            sentence: problem.sentence,
        }
    }

    /// Masks secrets in the specification with `mask`, which must leave the other characters in their
    /// columns.
    #[must_use]
    pub fn masked(mut self, mask: impl FnOnce(&str) -> String) -> SpecError {
        self.text = mask(&self.text);
        self
    }

    /// Returns the problem and its remedy in one message, for callers that show the position themselves.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Returns the byte range of the error in the specification.
    pub fn at(&self) -> Range<usize> {
        self.at.clone()
    }
}

impl std::error::Error for SpecError {}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = |text: Option<&str>| text.map_or(0, |text| text.chars().count());
        let before = letters(self.text.get(..self.at.start));
        let carets = letters(self.text.get(self.at.clone())).max(1);
        writeln!(f, "{} (column {})", self.sentence, before + 1)?;
        writeln!(f, "  {}", self.text)?;
        write!(f, "  {:before$}{:^<carets$}", "", "")
    }
}

/// An error found while parsing a specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The byte range in the specification.
    pub at: Range<usize>,
    /// The problem and its remedy.
    pub sentence: String,
}

impl Problem {
    /// Creates a problem at this byte range.
    pub fn new(at: Range<usize>, sentence: impl Into<String>) -> Problem {
        Problem {
            at,
            sentence: sentence.into(),
        }
    }
}

/// A volume, or a layer over volumes, as written.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: &'static Kind,
    /// The text between the kind and the brackets or options.
    pub argument: Token,
    /// The content of the brackets, if any.
    pub members: Option<Members>,
    pub options: Vec<Choice>,
}

#[derive(Debug)]
pub(super) struct Members {
    pub at: Range<usize>,
    pub nodes: Vec<Node>,
}

#[derive(Debug)]
pub(super) struct Choice {
    pub key: Token,
    pub value: Option<Token>,
}

/// A token: text with its position.
#[derive(Clone, Debug)]
pub struct Token {
    /// The text.
    pub text: String,
    /// The byte range in the specification.
    pub at: Range<usize>,
}

/// Maximum nesting depth, which limits the parser's stack.
const DEPTH_MAX: usize = 16;

type Input<'a> = LocatingSlice<&'a str>;
type Parsed<T> = ModalResult<T, Problem>;

impl<'a> ParserError<Input<'a>> for Problem {
    type Inner = Problem;

    /// Used only for alternatives that a parser tries; [`wrong`] creates the problems that are reported.
    fn from_input(input: &Input<'a>) -> Problem {
        let at = input.current_token_start();
        Problem::new(at..at, "this is not a volume specification")
    }

    fn into_inner(self) -> Result<Problem, Problem> {
        Ok(self)
    }
}

fn wrong<T>(at: Range<usize>, sentence: impl Into<String>) -> Parsed<T> {
    Err(ErrMode::Cut(Problem::new(at, sentence)))
}

/// Parses all of `text` as one node.
pub(super) fn parse(grammar: Grammar, text: &str) -> Result<Node, Problem> {
    let mut input = LocatingSlice::new(text);
    whole(grammar, &mut input).map_err(|error| match error {
        ErrMode::Cut(problem) | ErrMode::Backtrack(problem) => problem,
        ErrMode::Incomplete(_) => {
            Problem::new(text.len()..text.len(), "the specification is incomplete")
        }
    })
}

fn whole(grammar: Grammar, input: &mut Input<'_>) -> Parsed<Node> {
    let node = node(grammar, input, 0)?;
    end(input).map(|()| node)
}

fn end(input: &mut Input<'_>) -> Parsed<()> {
    let rest = word(input, |_| true)?;
    match rest.text.chars().next() {
        None => Ok(()),
        Some(sign) => {
            let at = rest.at.start..rest.at.start + sign.len_utf8();
            wrong(
                at,
                format!(
                    "`{sign}` has no meaning here; in a path write it as {}",
                    encoded(sign)
                ),
            )
        }
    }
}

fn node(grammar: Grammar, input: &mut Input<'_>, depth: usize) -> Parsed<Node> {
    blank(input)?;
    let start = input.current_token_start();
    if depth > DEPTH_MAX {
        return wrong(
            start..start,
            format!("volumes can be nested at most {DEPTH_MAX} levels deep"),
        );
    }
    let kind = kind(grammar, input)?;
    let argument = argument(input)?;
    let members = members(grammar, input, kind, depth)?;
    let options = options(input)?;
    blank(input)?;
    Ok(Node {
        kind,
        argument,
        members,
        options,
    })
}

const SIGNS: &str = "?[],";

/// Parses the argument. It may be a URL whose host is an IPv6 address, which also has brackets (RFC 3986
/// section 3.2.2).
fn argument(input: &mut Input<'_>) -> Parsed<Token> {
    let host = match input.starts_with("//") {
        true => input.find(['[', '?', ']', ',']).filter(|at| {
            let before = input[..*at].trim_start_matches('/');
            input[*at..].starts_with('[') && (before.is_empty() || before.ends_with('@'))
        }),
        false => None,
    };
    let start = input.current_token_start();
    let host = host.and_then(|open| input[open..].find(']').map(|length| open + length));
    let letters = host.map_or(0, |end| input[..=end].chars().count());
    let front: &str = take(letters).parse_next(input)?;
    let rest = word(input, |c| !SIGNS.contains(c))?;
    debug_assert!(
        start + front.len() <= rest.at.end,
        "the rest follows the host"
    );
    Ok(Token {
        text: format!("{front}{}", rest.text),
        at: start..rest.at.end,
    })
}

fn kind(grammar: Grammar, input: &mut Input<'_>) -> Parsed<&'static Kind> {
    if let Some(file) = grammar.kind("file")
        && (input.starts_with('/') || input.starts_with("./") || input.starts_with("../"))
    {
        return Ok(file);
    }
    let name = word(input, |c| c != ':' && !SIGNS.contains(c))?;
    if let Some(kind) = grammar.kind(&name.text) {
        return match sign(input, ":")? {
            true => Ok(kind),
            false => wrong(
                name.at,
                format!("`{0}` needs a colon after it: `{0}:…`", name.text),
            ),
        };
    }
    if name.text.is_empty() {
        return wrong(
            name.at,
            "a volume is missing here; write one such as ram:1GiB or file:/data/vm1.img",
        );
    }
    let is_path = !input.starts_with(':') && name.text.contains(['.', '/']);
    let hint = match is_path && grammar.kind("file").is_some() {
        true => format!("; for a file, write `file:./{}`", name.text),
        false => hint(&name.text, &grammar.names()),
    };
    wrong(
        name.at,
        format!("unknown kind of volume `{}`{hint}", name.text),
    )
}

fn members(
    grammar: Grammar,
    input: &mut Input<'_>,
    kind: &Kind,
    depth: usize,
) -> Parsed<Option<Members>> {
    let start = input.current_token_start();
    if !sign(input, "[")? {
        return Ok(None);
    }
    if kind.blocks == BlockPlaces::Store {
        let remedy =
            "this kind of volume cannot contain another; in a path write `[` as %5B and `]` as %5D";
        return wrong(start..start + 1, remedy);
    }
    let mut nodes = vec![node(grammar, input, depth + 1)?];
    while sign(input, ",")? {
        nodes.push(node(grammar, input, depth + 1)?);
    }
    match sign(input, "]")? {
        true => Ok(Some(Members {
            at: start..input.current_token_start(),
            nodes,
        })),
        false => wrong(
            start..start + 1,
            "this bracket is not closed; write `]` after the last volume in it",
        ),
    }
}

fn options(input: &mut Input<'_>) -> Parsed<Vec<Choice>> {
    let mut options = Vec::new();
    let mut more = sign(input, "?")?;
    while more {
        options.push(option(input)?);
        more = sign(input, "&")?;
    }
    Ok(options)
}

fn option(input: &mut Input<'_>) -> Parsed<Choice> {
    let mut key = word(input, |c| c != '=' && c != '&' && !SIGNS.contains(c))?;
    if key.text == "readonly" {
        key.text = "read-only".to_owned(); // the earlier spelling, which configurations may contain
    }
    if key.text.is_empty() {
        return wrong(
            key.at,
            "an option is missing here; add one, or remove the character before it",
        );
    }
    let value = match sign(input, "=")? {
        true => Some(word(input, |c| c != '&' && !SIGNS.contains(c))?),
        false => None,
    };
    Ok(Choice { key, value })
}

fn blank(input: &mut Input<'_>) -> Parsed<()> {
    take_while(0.., ' ').void().parse_next(input)
}

/// Consumes `text` if it comes next. Returns whether it did.
fn sign(input: &mut Input<'_>, text: &'static str) -> Parsed<bool> {
    let there = input.starts_with(text);
    if there {
        literal(text).void().parse_next(input)?;
    }
    Ok(there)
}

/// Consumes all characters for which `belongs` returns true, and removes trailing blanks from them.
fn word(input: &mut Input<'_>, belongs: impl Fn(char) -> bool) -> Parsed<Token> {
    let (text, at) = take_while(0.., belongs).with_span().parse_next(input)?;
    let text: &str = text;
    let text = text.trim_end_matches(' ');
    debug_assert!(at.start + text.len() <= at.end);
    Ok(Token {
        at: at.start..at.start + text.len(),
        text: text.to_owned(),
    })
}

/// Returns the percent-encoded form of a character.
fn encoded(sign: char) -> String {
    sign.to_string()
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect()
}

/// Percent-encodes `bytes` for [`decode`], except printable characters that are not special.
pub fn encode(bytes: &[u8]) -> String {
    let plain =
        |byte: u8| byte.is_ascii_graphic() && byte != b'%' && !SIGNS.contains(char::from(byte));
    let letter = |&byte: &u8| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    bytes.iter().map(letter).collect()
}

/// Decodes a percent-encoded word.
pub fn decode(word: &Token) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::with_capacity(word.text.len());
    let mut rest = word.text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, tail) = if first == b'%' {
            let at = word.at.end - rest.len();
            escape(tail).ok_or_else(|| {
                Problem::new(
                    at..at + 1,
                    "`%` needs two hexadecimal digits; write %25 for a percent sign",
                )
            })?
        } else {
            (first, tail)
        };
        bytes.push(byte);
        rest = tail;
    }
    Ok(bytes)
}

fn escape(digits: &[u8]) -> Option<(u8, &[u8])> {
    let (pair, tail) = digits.split_at_checked(2)?;
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    Some((digit(pair[0])? * 16 + digit(pair[1])?, tail))
}

// Helpers for messages: suggestions for mistyped words, lists, and quoting of command-line words for a shell.

/// Returns the known word nearest to `typed`, if the edit distance is at most two and less than the word's
/// length.
pub fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    let (slips, word) = known
        .iter()
        .map(|word| (strsim::levenshtein(&typed, word), *word))
        .min_by_key(|(slips, _)| *slips)?;
    (slips <= 2 && slips < word.chars().count()).then_some(word)
}

/// Returns `; did you mean …?`, or the list of known words if none is near.
pub fn hint(typed: &str, known: &[&str]) -> String {
    match nearest(typed, known) {
        Some(word) => format!("; did you mean `{word}`?"),
        None => format!("; known are {}", list(known)),
    }
}

/// Formats words as a list: `a`, `b` and `c`.
pub fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Quotes a word of a command line for a shell, if it contains special characters.
pub fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:@%,".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_points_at_the_word_counted_in_letters() {
        let error = SpecError::new(
            "file:/dätä?blok=1",
            Problem::new(13..17, "unknown option `blok`"),
        );
        let expected = "unknown option `blok` (column 12)\n  file:/dätä?blok=1\n             ^^^^";
        assert_eq!(error.to_string(), expected);
    }

    const KNOWN: &[&str] = &["block", "physical", "readonly", "size"];

    #[test]
    fn a_slip_of_the_finger_is_understood() {
        assert_eq!(nearest("blok", KNOWN), Some("block"));
        assert_eq!(nearest("ReadOnly", KNOWN), Some("readonly"));
        assert_eq!(nearest("sise", KNOWN), Some("size"));
    }

    #[test]
    fn another_word_is_not_taken_for_a_slip() {
        assert_eq!(nearest("compression", KNOWN), None);
        assert_eq!(nearest("", KNOWN), None);
        assert_eq!(
            hint("compression", &["a", "b", "c"]),
            "; known are `a`, `b` and `c`"
        );
    }

    #[test]
    fn what_a_shell_would_read_otherwise_is_in_quotes() {
        for (text, expected) in [
            ("iscsi://san1:3260/iqn.x:a/0", "iscsi://san1:3260/iqn.x:a/0"),
            ("nbd://san1/x?timeout=5", "'nbd://san1/x?timeout=5'"),
            ("delay:1ms:[ram:1MiB]", "'delay:1ms:[ram:1MiB]'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), expected);
        }
    }
}
