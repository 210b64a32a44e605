//! Reads numbers and text from bytes that may be truncated, and fields of any width from pages.

use std::fmt;
use std::ops::Range;

use derive_more::Display;

/// The big-endian number in a part of `bytes`, of at most eight bytes; missing bytes at the end read as zero,
/// as SPC-4 4.2.5.6 requires for short parameter data.
pub fn number(bytes: &[u8], part: Range<usize>) -> u64 {
    debug_assert!(part.len() <= 8, "a number of more than eight bytes");
    part.fold(0, |value, at| {
        value << 8 | u64::from(bytes.get(at).copied().unwrap_or(0))
    })
}

/// The byte at an offset; zero if it is missing.
pub fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// The big-endian number in two bytes; missing bytes read as zero.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    number(bytes, at..at + 2) as u16
}

/// The big-endian number in four bytes; missing bytes read as zero.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    number(bytes, at..at + 4) as u32
}

/// The big-endian number in eight bytes; missing bytes read as zero.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    number(bytes, at..at + 8)
}

/// Text in a part of `bytes`, up to its first NUL, trimmed. Because it is written to terminals, all
/// characters except printable ASCII become dots.
pub fn text(bytes: &[u8], part: Range<usize>) -> String {
    let part = bytes
        .get(part.start..part.end.min(bytes.len()))
        .unwrap_or_default();
    let ends = part
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(part.len());
    let shown = |byte: &u8| {
        if (0x20..0x7f).contains(byte) {
            char::from(*byte)
        } else {
            '.'
        }
    };
    part[..ends]
        .iter()
        .map(shown)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// UTF-8 text (SCSI name strings, SPC-4 7.8.6.11), up to its NUL. Because it is written to terminals,
/// non-printable characters become dots.
pub fn utf8(bytes: &[u8]) -> String {
    let ends = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..ends]);
    text.chars()
        .map(|c| if foreign::is_printable(c) { c } else { '.' })
        .collect()
}

/// Bytes in hexadecimal notation.
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The elements of a list, each of which contains its length. The list ends at the first truncated element.
pub fn elements(
    mut rest: &[u8],
    length: impl Fn(&[u8]) -> Option<usize>,
) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (element, behind) = rest.split_at_checked(length(rest)?.max(1))?;
        rest = behind;
        Some(element)
    })
}

/// A field of a page, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("{name} = {value} ({means})")]
pub struct Field {
    /// Short name in the standard, such as `WCE`.
    pub name: &'static str,
    /// Meaning and unit.
    pub means: &'static str,
    /// Its value; for a flag, 1 is yes.
    pub value: u64,
}

/// The position of a field in a page.
#[derive(Clone, Copy, Debug)]
pub struct FieldAt {
    pub(crate) name: &'static str,
    pub(crate) means: &'static str,
    /// Index in the page; byte 0 is the page code.
    byte: usize,
    /// Its highest bit in that byte.
    bit: u8,
    /// Width, up to 64.
    bits: u8,
}

impl FieldAt {
    /// A field of `bits` bits, whose highest bit is bit `bit` of byte `byte`.
    pub(crate) const fn new(
        byte: usize,
        bit: u8,
        bits: u8,
        name: &'static str,
        means: &'static str,
    ) -> FieldAt {
        assert!(
            bit < 8 && bits > 0 && 7 - bit + bits <= 64,
            "a field of at most eight bytes"
        );
        FieldAt {
            name,
            means,
            byte,
            bit,
            bits,
        }
    }

    fn bytes(&self) -> usize {
        (usize::from(7 - self.bit) + usize::from(self.bits)).div_ceil(8)
    }

    /// The index of the byte after it.
    pub(crate) fn end(&self) -> usize {
        self.byte + self.bytes()
    }

    /// Number of bits after it in its last byte.
    fn shift(&self) -> usize {
        self.bytes() * 8 - usize::from(7 - self.bit) - usize::from(self.bits)
    }

    pub(crate) fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Reads the value; `None` if the page ends before it.
    pub fn read(&self, page: &[u8]) -> Option<u64> {
        let bytes = page.get(self.byte..self.byte + self.bytes())?;
        Some(number(bytes, 0..bytes.len()) >> self.shift() & self.mask())
    }

    /// Writes a value; `None` if the page ends before it, or the field is too small.
    pub fn write(&self, page: &mut [u8], value: u64) -> Option<()> {
        let (shift, mask, length) = (self.shift(), self.mask(), self.bytes());
        if value > mask {
            return None;
        }
        let bytes = page.get_mut(self.byte..self.byte + length)?;
        debug_assert!(
            shift + usize::from(self.bits) <= 64,
            "a field beyond its bytes"
        );
        let changed = number(bytes, 0..length) & !(mask << shift) | value << shift;
        bytes.copy_from_slice(&changed.to_be_bytes()[8 - length..]);
        Some(())
    }
}

/// A type of field value.
pub(crate) trait FieldValue: Copy {
    fn from_number(number: u64) -> Self;
    fn number(self) -> u64;
}

impl FieldValue for bool {
    fn from_number(number: u64) -> bool {
        number != 0
    }

    fn number(self) -> u64 {
        u64::from(self)
    }
}

macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl FieldValue for $type {
            fn from_number(number: u64) -> $type {
                number as $type
            }

            fn number(self) -> u64 {
                u64::from(self)
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64);

/// Defines pages, lists and descriptors that consist of numbers and flags. Each field is declared once, and
/// becomes part of the type, its `parse`, its `write`, and its description.
///
/// A field is `name: type = (first byte, highest bit in this byte, bits, "NAME", "meaning")`. `from` is
/// followed by the bytes with which every instance begins, such as the code and length of a page.
macro_rules! layout {
    ($(
        $(#[$doc:meta])*
        $page:ident: $bytes:literal bytes $(from $header:expr)?,
        { $($field:ident: $type:ty = ($byte:literal, $bit:literal, $bits:literal, $name:literal, $means:literal),)* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $page {
            $(
                #[doc = concat!($name, ": ", $means, ".")]
                pub $field: $type,
            )*
        }

        impl $page {
            /// Length in bytes.
            pub const BYTES: usize = $bytes;

            /// The positions of its fields.
            pub(crate) const FIELDS: &'static [$crate::fields::FieldAt] =
                &[$($crate::fields::FieldAt::new($byte, $bit, $bits, $name, $means)),*];

            /// Parses the whole page, header included. Fields missing from the shorter page of an older
            /// standard are zero.
            pub fn parse(page: &[u8]) -> $page {
                let mut values = Self::FIELDS.iter().map(|field| field.read(page).unwrap_or(0));
                $page { $($field: $crate::fields::FieldValue::from_number(values.next().unwrap_or(0)),)* }
            }

            /// Encodes the whole page, header included. A value that is too large for its field is truncated
            /// to its low bits.
            pub fn write(&self) -> [u8; $bytes] {
                debug_assert!(Self::FIELDS.iter().all(|field| field.end() <= Self::BYTES), "a field after the page");
                let mut page = [0; $bytes];
                $(page[..$header.len()].copy_from_slice(&$header);)?
                let values = [$($crate::fields::FieldValue::number(self.$field)),*];
                for (field, value) in Self::FIELDS.iter().zip(values) {
                    field.write(&mut page, value & field.mask());
                }
                page
            }
        }
    )*};
}

pub(crate) use layout;

/// The fields of a page that are present.
pub(crate) fn read_all(layout: &[FieldAt], page: &[u8]) -> Vec<Field> {
    let field = |at: &FieldAt| {
        Some(Field {
            name: at.name,
            means: at.means,
            value: at.read(page)?,
        })
    };
    layout.iter().filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_field_is_read_where_it_lies() {
        let page = [0x08, 0x12, 0b0000_0100, 0, 0xff, 0xff];
        assert_eq!(FieldAt::new(2, 2, 1, "WCE", "").read(&page), Some(1));
        assert_eq!(FieldAt::new(2, 0, 1, "RCD", "").read(&page), Some(0));
        assert_eq!(FieldAt::new(4, 7, 16, "", "").read(&page), Some(0xffff));
        assert_eq!(FieldAt::new(5, 7, 16, "", "").read(&page), None);
    }

    #[test]
    fn a_field_that_is_written_leaves_its_neighbours_alone() {
        let mut page = [0xff; 4];
        assert_eq!(FieldAt::new(1, 4, 3, "", "").write(&mut page, 0), Some(()));
        assert_eq!(page, [0xff, 0b1110_0011, 0xff, 0xff]);
        assert_eq!(FieldAt::new(1, 4, 3, "", "").write(&mut page, 8), None);
        assert_eq!(FieldAt::new(3, 7, 16, "", "").write(&mut page, 0), None);
    }

    #[test]
    fn text_for_a_terminal_has_no_escapes() {
        assert_eq!(text(b"  disk\x1b[2J ", 0..12), "disk.[2J");
        assert_eq!(text(b"ab", 0..8), "ab");
        assert_eq!(text(b"ab", 5..8), "");
        assert_eq!(utf8(b"iqn.2026\x1b\0\0"), "iqn.2026.");
    }

    #[test]
    fn a_list_ends_where_an_element_is_cut_short() {
        let list = [2, 0xaa, 3, 0xbb, 0xbb, 9, 0xcc];
        let found: Vec<&[u8]> =
            elements(&list, |rest| rest.first().map(|n| usize::from(*n))).collect();
        assert_eq!(found, [&[2, 0xaa][..], &[3, 0xbb, 0xbb]]);
        assert_eq!(
            elements(&[0; 3], |rest| rest.first().map(|n| usize::from(*n))).count(),
            3
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            byte in 0usize..16, bit in 0u8..8, bits in 1u8..=56, value: u64, mut page: [u8; 24],
        ) {
            let at = FieldAt::new(byte, bit, bits, "", "");
            let value = value & at.mask();
            prop_assert_eq!(at.write(&mut page, value), Some(()));
            prop_assert_eq!(at.read(&page), Some(value));
        }
    }
}
