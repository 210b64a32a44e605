//! Numbers of bytes as text: `1GiB`, `1.5TB`, `4096`.

use std::fmt;
use std::str::FromStr;

use crate::nearest::list;

/// A number of bytes. `MB` is 10^6, `MiB` and `M` are 2^20; a number without a unit counts bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// Largest first, as printing tries them.
const UNITS: &[(&str, u64)] = &[
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("EB", 1_000_000_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Why a text is no number of bytes, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotASize(String);

impl fmt::Display for NotASize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotASize {}

impl FromStr for Bytes {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Bytes, NotASize> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = if unit.is_empty() && !number.is_empty() { 1 } else { unit_named(number, unit)? };
        multiply(number, unit).map(Bytes)
    }
}

/// The first size of a text, of a list (`4k:70,64k:30`, `1G..2G`) or a specification (`ram:1g?block=4k`), whose unit is a bare letter, and what it is read as: to users
/// of SI's units it is another size.
pub fn bare_unit(text: &str) -> Option<(&str, Bytes)> {
    let words = text.split("..").flat_map(|part| part.split([',', ':', '[', ']', '?', '&', '=']));
    words.filter(|word| word.ends_with(|letter: char| letter.is_ascii_alphabetic())).find_map(|word| {
        let number = &word[..word.len() - 1];
        let is_bare = number.ends_with(|last: char| last.is_ascii_digit()) && !word.ends_with('B');
        Some((word, word.parse().ok()?)).filter(|_| is_bare)
    })
}

fn unit_named(number: &str, unit: &str) -> Result<u64, NotASize> {
    if number.is_empty() {
        return Err(NotASize(format!("`{unit}` is not a size; write a number and a unit, such as 1GiB")));
    }
    // A bare letter is a power of two, as it is to fio, dd, QEMU and LVM; `1TB` of a disk maker is written in full.
    let is_bare =
        |name: &str| name.ends_with("iB") && unit.len() == 1 && name[..1].eq_ignore_ascii_case(unit);
    let is_meant = |name: &str| name == unit || is_bare(name) || (unit == "KB" && name == "kB");
    if let Some((_, bytes)) = UNITS.iter().find(|(name, _)| is_meant(name)) {
        return Ok(*bytes);
    }
    Err(NotASize(match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((name, _)) => format!("unknown unit `{unit}`; write {number}{name}"),
        None => {
            let names: Vec<&str> = UNITS.iter().rev().map(|(name, _)| *name).collect();
            format!("unknown unit `{unit}`; known are {}", list(&names))
        }
    }))
}

/// `number`, which has digits and points only, times `unit`, if that is a whole number of bytes.
fn multiply(number: &str, unit: u64) -> Result<u64, NotASize> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| text.parse::<u64>().ok();
    let parts = digits(whole).zip(digits(fraction)).filter(|_| fraction.len() <= 9);
    let Some((whole, fraction_value)) = parts else {
        return Err(NotASize(format!(
            "`{number}` is not a number of at most 19 digits, 9 of them after the point"
        )));
    };
    let scale = 10u128.pow(fraction.len() as u32);
    // At most 60 bits by 30.
    let parts = u128::from(unit) * u128::from(fraction_value);
    if !parts.is_multiple_of(scale) {
        return Err(NotASize(format!("`{number}` of this unit is not a whole number of bytes")));
    }
    let bytes = u128::from(unit) * u128::from(whole) + parts / scale;
    u64::try_from(bytes).map_err(|_| {
        NotASize(format!("`{number}` of this unit is more than the 16 EiB that 64 bits can count"))
    })
}

impl fmt::Display for Bytes {
    /// In the largest unit that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        match unit {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "0B"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(text: &str) -> Result<u64, String> {
        text.parse::<Bytes>().map(|bytes| bytes.0).map_err(|error| error.to_string())
    }

    #[test]
    fn decimal_and_binary_units_differ() {
        assert_eq!(bytes("1MB"), Ok(1_000_000));
        assert_eq!(bytes("1MiB"), Ok(1_048_576));
        assert_eq!(bytes("512"), Ok(512));
        assert_eq!(bytes("3KB"), bytes("3kB"));
        assert_eq!(bytes("1.5GiB"), Ok(3 << 29));
    }

    #[test]
    fn a_bare_letter_is_a_power_of_two() {
        assert_eq!(
            ["4k", "4K", "1M", "1.5g", "2T"].map(bytes),
            ["4KiB", "4KiB", "1MiB", "1.5GiB", "2TiB"].map(bytes)
        );
        assert_eq!(bytes("64k"), Ok(65_536));
    }

    #[test]
    fn a_bare_unit_is_found_in_a_list() {
        let found = |text| bare_unit(text).map(|(word, bytes)| (word.to_owned(), bytes.0));
        assert_eq!(found("4KiB:70,64k:30"), Some(("64k".to_owned(), 65_536)));
        assert_eq!(found("1GiB..2G"), Some(("2G".to_owned(), 2 << 30)));
        assert_eq!(found("delay:5ms:[ram:1g?block=512]"), Some(("1g".to_owned(), 1 << 30)));
        assert_eq!(
            ["4KiB", "4kB", "4096", "512B", "", "natural", "k", "é", "/data/4k"].map(found),
            [const { None }; 9]
        );
    }

    #[test]
    fn slips_are_told_apart() {
        assert_eq!(bytes("1gib").expect_err("a mistake"), "unknown unit `gib`; write 1GiB");
        assert!(
            bytes("1furlong").expect_err("a mistake").starts_with("unknown unit `furlong`; known are `B`")
        );
        assert!(bytes("GiB").expect_err("a mistake").contains("write a number and a unit"));
        assert!(bytes("").expect_err("a mistake").contains("write a number and a unit"));
        assert!(bytes("0.3KiB").expect_err("a mistake").contains("not a whole number of bytes"));
        assert!(bytes("1.2.3GiB").expect_err("a mistake").contains("not a number"));
        assert!(bytes("99EiB").expect_err("a mistake").contains("more than the 16 EiB"));
        // A case of the fuzzer: the longest number of the largest unit.
        assert!(bytes("5005055050505050050.0502412e").expect_err("a mistake").contains("not a whole number"));
        assert!(bytes("9999999999999999999.999999999EiB").expect_err("a mistake").contains("not a whole"));
        assert!(bytes("9999999999999999999.5EiB").expect_err("a mistake").contains("more than the 16 EiB"));
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(value: u64) {
            prop_assert_eq!(bytes(&Bytes(value).to_string()), Ok(value));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9.a-zA-Zµ]{0,24}") {
            let _ = bytes(&text);
        }

        #[test]
        fn no_number_makes_it_panic(text in "[0-9]{1,20}(\\.[0-9]{1,10})?[KMGTPE]") {
            let _ = bytes(&text);
        }
    }
}
