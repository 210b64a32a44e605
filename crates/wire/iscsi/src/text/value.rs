//! What values look like (RFC 7143 section 6.1): numbers, booleans, ranges, and binary data as text.

use base64ct::{Base64, Encoding};

/// The numbers that a key may have, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub least: u32,
    /// The greatest.
    pub greatest: u32,
}

impl Range {
    /// Whether a number lies in the range.
    pub fn holds(self, number: u32) -> bool {
        (self.least..=self.greatest).contains(&number)
    }
}

/// `numerical-value`: decimal digits, or 0x and hexadecimal ones. No sign, no spaces.
pub fn number(value: &str) -> Option<u32> {
    let (digits, radix) = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    // `from_str_radix` alone would take a plus sign.
    if digits.chars().all(|digit| digit.is_digit(radix)) {
        u32::from_str_radix(digits, radix).ok()
    } else {
        None
    }
}

/// `boolean-value`: just "Yes" or "No".
pub fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// `binary-value`: 0x and hexadecimal digits, or 0b and base64; at most this many bytes of it, once decoded.
pub fn binary(value: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let (prefix, digits) = value.split_at_checked(2)?;
    match prefix {
        "0x" | "0X" if digits.len().div_ceil(2) <= bytes_max => from_hex(digits.as_bytes()),
        "0b" | "0B" => Base64::decode_vec(digits).ok().filter(|bytes| bytes.len() <= bytes_max),
        _ => None,
    }
}

/// Bytes as 0x and hexadecimal digits: what every peer reads.
pub fn hex_value(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|&byte| [byte >> 4, byte & 0xf]);
    "0x".chars().chain(digits.filter_map(|digit| char::from_digit(digit.into(), 16))).collect()
}

/// Bytes as 0b and base64: shorter, but less often spoken.
pub fn base64_value(bytes: &[u8]) -> String {
    format!("0b{}", Base64::encode_string(bytes))
}

/// An odd number of digits means that the first byte's high half is zero: a value is a number (section 6.1).
fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |&byte: &u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (first, pairs) = digits.split_at(digits.len() % 2);
    let first = first.iter().map(digit);
    first.chain(pairs.chunks_exact(2).map(|pair| Some(digit(&pair[0])? << 4 | digit(&pair[1])?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_digits_and_nothing_else() {
        assert_eq!([number("0"), number("262144"), number("0xFf")], [Some(0), Some(262_144), Some(255)]);
        for not_a_number in ["", "0x", "+1", "-1", " 1", "1 ", "1e3", "4294967296", "0x+1", "Yes"] {
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
}
