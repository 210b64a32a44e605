//! Text (RFC 7143 section 6): the `key=value` pairs in the data of login and text PDUs.
//!
//! ```text
//!   InitiatorName=iqn.1991-05.com.example:host␀SessionType=Normal␀HeaderDigest=CRC32C,None␀
//! ```
//!
//! A pair ends with a NUL byte. Text that is longer than one PDU may be split anywhere, even within a key.
//! The C bit marks a PDU whose text continues in the next one. [`Pieces`] splits a text, and [`Assembly`]
//! joins its pieces. If a key occurs twice, both pairs are returned; the negotiation detects the repetition.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Encoding};
use derive_more::{Display, Error};

/// Section 6.1: a key-name is "up to 63 bytes".
pub const KEY_BYTES_MAX: usize = 63;

/// Maximum length of a value. No key of the standard needs this much: a CHAP_C of 1024 bytes takes 2050 bytes
/// as hexadecimal digits. However, some peers send values of up to 8 KiB.
pub const VALUE_BYTES_MAX: usize = 8192;

/// Maximum number of pairs in one text; no negotiation needs more.
pub const PAIRS_MAX: usize = 1024;

/// One key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key, in the form of section 6.1's `key-name`.
    pub key: &'a str,
    /// The value: any UTF-8 without NUL, possibly empty.
    pub value: &'a str,
}

/// Why a text is invalid.
#[expect(
    missing_docs,
    reason = "where a variant has no more to say than it displays"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum MalformedText {
    #[display("a text pair has no equals sign")]
    NoEqualsSign,
    /// A key that is empty, too long, or has invalid characters.
    #[display("a text key is invalid")]
    BadKey,
    /// A value longer than [`VALUE_BYTES_MAX`].
    #[display("a text value is too long")]
    LongValue,
    #[display("the text is not valid UTF-8")]
    NotUtf8,
    /// More than [`PAIRS_MAX`] pairs.
    #[display("the text has too many pairs")]
    TooManyPairs,
    /// More bytes, or more pieces, than the receiver allows.
    #[display("the text is too long")]
    TooLong,
}

/// Parses a complete text into its pairs, in order.
///
/// Tolerates two deviations of initiators: several NULs between pairs (some fill the segment with them), and
/// a missing NUL at the very end.
pub fn parse(text: &[u8]) -> Result<Vec<Pair<'_>>, MalformedText> {
    let mut found = Vec::new();
    for pair in pairs(text) {
        if found.len() == PAIRS_MAX {
            return Err(MalformedText::TooManyPairs);
        }
        found.push(pair?);
    }
    Ok(found)
}

/// Like [`parse`], but returns an iterator, and does not limit the number of pairs: a response to SendTargets
/// can list thousands of targets, each with two or more pairs.
pub fn pairs(text: &[u8]) -> impl Iterator<Item = Result<Pair<'_>, MalformedText>> {
    text.split(|&byte| byte == 0)
        .filter(|bytes| !bytes.is_empty())
        .map(parse_pair)
}

/// Appends a pair and the NUL that ends it.
pub fn append(out: &mut Vec<u8>, key: &str, value: impl fmt::Display) {
    let value = value.to_string();
    debug_assert!(is_key(key.as_bytes()) && !value.contains('\0'));
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}

fn parse_pair(bytes: &[u8]) -> Result<Pair<'_>, MalformedText> {
    let at = bytes
        .iter()
        .position(|&byte| byte == b'=')
        .ok_or(MalformedText::NoEqualsSign)?;
    let (key, value) = (&bytes[..at], &bytes[at + 1..]);
    if !is_key(key) {
        return Err(MalformedText::BadKey);
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(MalformedText::LongValue);
    }
    let utf8 = |bytes| std::str::from_utf8(bytes).map_err(|_| MalformedText::NotUtf8);
    Ok(Pair {
        key: utf8(key)?,
        value: utf8(value)?,
    })
}

/// Whether a key has a valid length and only valid characters. Section 6.1 allows letters, digits, "-", "+",
/// "@", "_", "." and, in the names of extensions, "#" and "/". It also requires that the first character is a
/// capital letter. This is not checked, since an unknown key gets NotUnderstood anyway.
fn is_key(key: &[u8]) -> bool {
    let is_key_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"-+@_.#/".contains(byte);
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.iter().all(is_key_byte)
}

/// The range of a key's numbers, including both ends.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub least: u32,
    pub greatest: u32,
}

impl Range {
    /// Whether a number lies in the range.
    pub fn holds(self, number: u32) -> bool {
        (self.least..=self.greatest).contains(&number)
    }
}

/// Parses a `numerical-value`: decimal digits, or 0x and hexadecimal digits, without a sign or spaces.
pub fn number(value: &str) -> Option<u32> {
    let (digits, radix) = match value
        .strip_prefix("0x")
        .or_else(|| value.strip_prefix("0X"))
    {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    // `from_str_radix` alone would accept a plus sign.
    if digits.chars().all(|digit| digit.is_digit(radix)) {
        u32::from_str_radix(digits, radix).ok()
    } else {
        None
    }
}

/// Parses a `boolean-value`: "Yes" or "No".
pub fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// Parses a `binary-value`: 0x and hexadecimal digits, or 0b and base64. `None` if it decodes to more than
/// `bytes_max` bytes.
pub fn binary(value: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let (prefix, digits) = value.split_at_checked(2)?;
    match prefix {
        "0x" | "0X" if digits.len().div_ceil(2) <= bytes_max => from_hex(digits.as_bytes()),
        "0b" | "0B" => Base64::decode_vec(digits)
            .ok()
            .filter(|bytes| bytes.len() <= bytes_max),
        _ => None,
    }
}

/// Bytes as 0x and hexadecimal digits, which every peer supports.
pub fn hex_value(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|&byte| [byte >> 4, byte & 0xf]);
    "0x".chars()
        .chain(digits.filter_map(|digit| char::from_digit(digit.into(), 16)))
        .collect()
}

/// Bytes as 0b and base64: shorter, but less widely supported.
pub fn base64_value(bytes: &[u8]) -> String {
    format!("0b{}", Base64::encode_string(bytes))
}

/// Decodes hexadecimal digits. If their number is odd, the high half of the first byte is zero, because a
/// value is a number (section 6.1).
fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |&byte: &u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let (first, pairs) = digits.split_at(digits.len() % 2);
    let first = first.iter().map(digit);
    first
        .chain(
            pairs
                .chunks_exact(2)
                .map(|pair| Some(digit(&pair[0])? << 4 | digit(&pair[1])?)),
        )
        .collect()
}

// Text that does not fit in one PDU: joined when received, split when sent (RFC 7143 section 6.2).

/// Maximum number of pieces of a text whose maximum length is 64 KiB or less. A longer text may have one
/// piece for every 256 bytes of its maximum length: twice the number that the smallest PDUs, of 512 bytes,
/// need. Empty pieces with C set also count, so that a peer cannot send them forever.
const PIECES_MAX: usize = 256;

/// A text being received piece by piece, with bounded size.
#[derive(Clone, Debug)]
pub struct Assembly {
    text: Vec<u8>,
    pieces: usize,
    limit_bytes: usize,
}

impl Assembly {
    /// Starts a text of up to `limit_bytes` bytes.
    pub fn new(limit_bytes: usize) -> Assembly {
        Assembly {
            text: Vec::new(),
            pieces: 0,
            limit_bytes,
        }
    }

    /// Adds a PDU's data segment. If the text ends here (the C bit is clear), returns the whole text, and
    /// starts the next one. A text that becomes too long is dropped.
    pub fn add(&mut self, piece: &[u8], continues: bool) -> Result<Option<Vec<u8>>, MalformedText> {
        self.pieces += 1;
        let pieces_max = PIECES_MAX.max(self.limit_bytes / 256);
        if self.pieces > pieces_max
            || piece.len() > self.limit_bytes.saturating_sub(self.text.len())
        {
            self.clear();
            return Err(MalformedText::TooLong);
        }
        self.text.extend_from_slice(piece);
        debug_assert!(self.text.len() <= self.limit_bytes, "text beyond its limit");
        if continues {
            return Ok(None);
        }
        self.pieces = 0;
        Ok(Some(std::mem::take(&mut self.text)))
    }

    /// Drops the parts received so far.
    pub fn clear(&mut self) {
        self.text = Vec::new();
        self.pieces = 0;
    }
}

/// A text being sent, split into pieces that fit the peer's MaxRecvDataSegmentLength.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    text: Vec<u8>,
    sent: usize,
}

impl Pieces {
    /// Splits a text. The text may be stored for a long time if the peer is slow, so its spare capacity is
    /// freed.
    pub fn new(mut text: Vec<u8>) -> Pieces {
        text.shrink_to_fit();
        Pieces { text, sent: 0 }
    }

    /// The next piece, of up to `bytes_max` bytes (0 counts as 1), and whether the text continues after it.
    /// An empty text is one empty piece.
    pub fn next(&mut self, bytes_max: usize) -> (Vec<u8>, bool) {
        let end = self
            .text
            .len()
            .min(self.sent.saturating_add(bytes_max.max(1)));
        if (self.sent, end) == (0, self.text.len()) {
            return (std::mem::take(&mut self.text), false); // avoids a copy of the whole text
        }
        debug_assert!(self.sent <= end, "a piece before the last");
        let piece = self.text[self.sent..end].to_vec();
        self.sent = end;
        (piece, end < self.text.len())
    }

    /// Bytes that remain to be sent.
    pub fn left_bytes(&self) -> usize {
        self.text.len() - self.sent
    }

    /// Whether nothing remains to be sent.
    pub fn is_empty(&self) -> bool {
        self.left_bytes() == 0
    }
}

/// Section 6.1: "the maximum length of a text-value […] is 255 bytes", unless the key has another limit.
const BYTES_MAX: usize = 255;

/// Printable text that fits into a text value, such as an alias or a CHAP name.
///
/// It has 1 to 255 bytes and no control characters. A NUL would end the value and start another key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrintableText(String);

/// Why a text is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum NotPrintable {
    /// It is empty.
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pair_without_an_equals_sign_is_refused() {
        assert_eq!(parse(b"HeaderDigest\0"), Err(MalformedText::NoEqualsSign));
    }

    #[test]
    fn keys_have_one_to_63_characters_of_their_own() {
        let long = [b'K'; 64];
        assert_eq!(parse(b"=value\0"), Err(MalformedText::BadKey));
        assert_eq!(parse(b"Header Digest=None\0"), Err(MalformedText::BadKey));
        assert_eq!(
            parse(&[&long[..], b"=1\0"].concat()),
            Err(MalformedText::BadKey)
        );
        assert!(parse(&[&long[1..], b"=1\0"].concat()).is_ok());
    }

    #[test]
    fn values_have_at_most_8_kib_of_utf_8() {
        assert_eq!(parse(b"TargetAlias=\xff\0"), Err(MalformedText::NotUtf8));
        assert_eq!(
            parse(&[b"A=", &[b'x'; 8193][..]].concat()),
            Err(MalformedText::LongValue)
        );
        assert!(parse(&[b"A=", &[b'x'; 8192][..]].concat()).is_ok());
    }

    #[test]
    fn pairs_are_counted() {
        assert_eq!(
            parse(&b"A=\0".repeat(1025)),
            Err(MalformedText::TooManyPairs)
        );
    }

    #[test]
    fn a_key_that_comes_twice_is_seen_twice_and_its_value_may_hold_equals_signs() {
        let pairs = parse(b"A=1\0A=2=3\0").expect("well formed");
        assert_eq!(
            pairs,
            [
                Pair {
                    key: "A",
                    value: "1"
                },
                Pair {
                    key: "A",
                    value: "2=3"
                }
            ]
        );
    }

    #[test]
    fn spare_nuls_and_a_missing_one_are_tolerated() {
        let pairs = parse(b"\0\0A=1\0\0\0B=").expect("well formed");
        assert_eq!(
            pairs,
            [
                Pair {
                    key: "A",
                    value: "1"
                },
                Pair {
                    key: "B",
                    value: ""
                }
            ]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn what_is_appended_is_read_back(pairs in proptest::collection::vec(("[A-Z][A-Za-z0-9.+@_-]{0,62}", "[^\0]{0,80}"), 0..20)) {
            let mut text = Vec::new();
            pairs.iter().for_each(|(key, value)| append(&mut text, key, value));
            let read: Vec<(String, String)> = parse(&text).expect("well formed")
                .iter().map(|pair| (pair.key.to_owned(), pair.value.to_owned())).collect();
            prop_assert_eq!(read, pairs);
        }
    }

    #[test]
    fn numbers_are_digits_and_nothing_else() {
        assert_eq!(
            [number("0"), number("262144"), number("0xFf")],
            [Some(0), Some(262_144), Some(255)]
        );
        for not_a_number in [
            "",
            "0x",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1e3",
            "4294967296",
            "0x+1",
            "Yes",
        ] {
            assert_eq!(number(not_a_number), None, "{not_a_number:?}");
        }
    }

    #[test]
    fn booleans_are_spelled_in_one_way() {
        assert_eq!(
            [boolean("Yes"), boolean("No"), boolean("yes"), boolean("1")],
            [Some(true), Some(false), None, None]
        );
    }

    #[test]
    fn binary_values_come_as_hexadecimal_or_base64() {
        assert_eq!(binary("0x0aFF", 2), Some(vec![0x0a, 0xff]));
        assert_eq!(binary("0XaFF", 2), Some(vec![0x0a, 0xff]));
        assert_eq!(binary("0bAP8=", 2), Some(vec![0, 0xff]));
        for wrong in ["", "0", "0x0g", "0b!", "0bAP8", "0c00", "ff", "0é"] {
            assert_eq!(binary(wrong, 16), None, "{wrong:?}");
        }
    }

    #[test]
    fn binary_values_have_a_limit() {
        assert_eq!(binary("0x000000", 2), None);
        assert_eq!(binary("0bAAAA", 2), None);
    }

    proptest! {
        #[test]
        fn both_spellings_are_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(binary(&hex_value(&bytes), 100), Some(bytes.clone()));
            prop_assert_eq!(binary(&base64_value(&bytes), 100), Some(bytes));
        }

        #[test]
        fn any_text_is_survived(value in ".{0,40}") {
            let _ = (number(&value), boolean(&value), binary(&value, 20));
        }
    }

    #[test]
    fn text_that_never_ends_is_dropped() {
        let mut assembly = Assembly::new(100);
        assert_eq!(assembly.add(&[b'x'; 100], true), Ok(None));
        assert!(assembly.pieces > 0);
        assert_eq!(assembly.add(b"y", true), Err(MalformedText::TooLong));
        assert_eq!(assembly.pieces, 0);
    }

    #[test]
    fn empty_pieces_end_too() {
        let mut assembly = Assembly::new(100);
        let endless = (0..1000)
            .map(|_| assembly.add(&[], true))
            .find(Result::is_err);
        assert_eq!(endless, Some(Err(MalformedText::TooLong)));
    }

    #[test]
    fn an_empty_text_is_one_empty_piece() {
        assert_eq!(Pieces::new(Vec::new()).next(512), (Vec::new(), false));
    }

    proptest! {
        #[test]
        fn what_is_cut_is_joined(text in proptest::collection::vec(any::<u8>(), 0..200), bytes_max in 1usize..50) {
            let (mut pieces, mut assembly) = (Pieces::new(text.clone()), Assembly::new(200));
            loop {
                let (piece, continues) = pieces.next(bytes_max);
                prop_assert!(piece.len() <= bytes_max);
                if let Some(whole) = assembly.add(&piece, continues).expect("within the limit") {
                    prop_assert_eq!(&whole, &text);
                    prop_assert!(pieces.is_empty() && assembly.pieces == 0);
                    break;
                }
            }
        }
    }

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
