//! Text (RFC 7143 section 6): the `key=value` pairs in the data of login and text PDUs.
//!
//! ```text
//!   InitiatorName=iqn.1991-05.com.example:host␀SessionType=Normal␀HeaderDigest=CRC32C,None␀
//! ```
//!
//! A pair ends with a NUL byte. Text longer than a PDU is cut anywhere, even within a key, and the C bit says
//! that it goes on; [`Assembly`] joins the pieces and [`Pieces`] cuts them. A key that comes twice is seen twice:
//! what that means is for the negotiation to say.

mod assembly;
mod printable;
mod value;

pub use assembly::{Assembly, Pieces};
pub use printable::{NotPrintable, PrintableText};
pub use value::{Range, base64_value, binary, boolean, hex_value, number};

use std::fmt;

use derive_more::{Display, Error};

/// Section 6.1: a key-name is "up to 63 bytes".
pub const KEY_BYTES_MAX: usize = 63;

/// More than any key of the standard needs: a CHAP_C of 1024 bytes takes 2050 as hexadecimal digits. Peers are
/// known to send values of up to 8 KiB.
pub const VALUE_BYTES_MAX: usize = 8192;

/// Limit of the pairs in one text; no negotiation needs more.
pub const PAIRS_MAX: usize = 1024;

/// One key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key, by section 6.1's `key-name`.
    pub key: &'a str,
    /// The value: any UTF-8 without NUL, possibly empty.
    pub value: &'a str,
}

/// What is wrong with a text.
#[expect(missing_docs, reason = "where a variant has no more to say than it displays")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum MalformedText {
    #[display("a text pair without an equals sign")]
    NoEqualsSign,
    /// A key that is empty, too long, or has characters that keys do not have.
    #[display("a text key that is no key")]
    BadKey,
    /// A value longer than [`VALUE_BYTES_MAX`].
    #[display("a text value that is too long")]
    LongValue,
    #[display("text that is not UTF-8")]
    NotUtf8,
    /// More than [`PAIRS_MAX`] pairs.
    #[display("too many text pairs")]
    TooManyPairs,
    /// More bytes, or more pieces, than the receiver allows.
    #[display("too much text")]
    TooLong,
}

/// Parses a complete text into its pairs, in order.
///
/// Lenient in two things that initiators do: NULs between pairs may be several (some fill the segment with them),
/// and the one at the very end may be missing.
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

/// As [`parse`], one pair after the other and any number of them: an answer to SendTargets has at least two for each
/// of thousands of targets.
pub fn pairs(text: &[u8]) -> impl Iterator<Item = Result<Pair<'_>, MalformedText>> {
    text.split(|&byte| byte == 0).filter(|bytes| !bytes.is_empty()).map(parse_pair)
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
    let at = bytes.iter().position(|&byte| byte == b'=').ok_or(MalformedText::NoEqualsSign)?;
    let (key, value) = (&bytes[..at], &bytes[at + 1..]);
    if !is_key(key) {
        return Err(MalformedText::BadKey);
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(MalformedText::LongValue);
    }
    let utf8 = |bytes| std::str::from_utf8(bytes).map_err(|_| MalformedText::NotUtf8);
    Ok(Pair { key: utf8(key)?, value: utf8(value)? })
}

/// Section 6.1: letters, digits, "-", "+", "@", "_", "." and, in the names of extensions, "#" and "/". A capital
/// letter to begin with is asked for there, but not insisted on here: an unknown key gets NotUnderstood anyway.
fn is_key(key: &[u8]) -> bool {
    let is_key_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"-+@_.#/".contains(byte);
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.iter().all(is_key_byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pair_without_an_equals_sign_is_refused() {
        assert_eq!(parse(b"HeaderDigest\0"), Err(MalformedText::NoEqualsSign));
    }

    #[test]
    fn keys_have_one_to_63_characters_of_their_own() {
        let long = [b'K'; 64];
        assert_eq!(parse(b"=value\0"), Err(MalformedText::BadKey));
        assert_eq!(parse(b"Header Digest=None\0"), Err(MalformedText::BadKey));
        assert_eq!(parse(&[&long[..], b"=1\0"].concat()), Err(MalformedText::BadKey));
        assert!(parse(&[&long[1..], b"=1\0"].concat()).is_ok());
    }

    #[test]
    fn values_have_at_most_8_kib_of_utf_8() {
        assert_eq!(parse(b"TargetAlias=\xff\0"), Err(MalformedText::NotUtf8));
        assert_eq!(parse(&[b"A=", &[b'x'; 8193][..]].concat()), Err(MalformedText::LongValue));
        assert!(parse(&[b"A=", &[b'x'; 8192][..]].concat()).is_ok());
    }

    #[test]
    fn pairs_are_counted() {
        assert_eq!(parse(&b"A=\0".repeat(1025)), Err(MalformedText::TooManyPairs));
    }

    #[test]
    fn a_key_that_comes_twice_is_seen_twice_and_its_value_may_hold_equals_signs() {
        let pairs = parse(b"A=1\0A=2=3\0").expect("well formed");
        assert_eq!(pairs, [Pair { key: "A", value: "1" }, Pair { key: "A", value: "2=3" }]);
    }

    #[test]
    fn spare_nuls_and_a_missing_one_are_tolerated() {
        let pairs = parse(b"\0\0A=1\0\0\0B=").expect("well formed");
        assert_eq!(pairs, [Pair { key: "A", value: "1" }, Pair { key: "B", value: "" }]);
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
}
