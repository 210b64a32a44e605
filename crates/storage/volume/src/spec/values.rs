//! Values in specifications, and their text forms: sizes, times, rates, shares, block sizes.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use block::{BlockSize, Blocks, Geometry, Rate};

use super::syntax::{Problem, Token};
use super::written::Written;
use crate::spec::syntax::list;

/// The reason why a text is not a valid value, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAValue(String);

impl fmt::Display for NotAValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAValue {}

/// A number of bytes. `MB` is 10^6, `MiB` and `M` are 2^20. A number without a unit is in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// Units and their factors. The largest is first, because printing tries them in this order.
type Units = [(&'static str, u64)];

const SIZE_UNITS: &Units = &[
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

impl FromStr for Bytes {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Bytes, NotAValue> {
        let (number, unit) = number_and_unit(text);
        let unit = if unit.is_empty() && !number.is_empty() {
            1
        } else {
            size_unit(number, unit)?
        };
        multiple(number, unit).map(Bytes).map_err(|why| {
            NotAValue(match why {
                NoMultiple::NotANumber => {
                    format!(
                        "`{number}` is not a number of up to 19 digits, 9 of them after the point"
                    )
                }
                NoMultiple::NotWhole => {
                    format!("`{number}` in this unit is not a whole number of bytes")
                }
                NoMultiple::TooLarge => {
                    format!("`{number}` in this unit exceeds the maximum of 16 EiB")
                }
            })
        })
    }
}

/// Returns the first size whose unit is a single letter in a text, a list (`4k:70,64k:30`, `1G..2G`) or a
/// specification (`ram:1g?block=4k`), and how it is interpreted. Callers show this because users of SI units
/// expect a different size.
pub fn bare_unit(text: &str) -> Option<(&str, Bytes)> {
    let words = text
        .split("..")
        .flat_map(|part| part.split([',', ':', '[', ']', '?', '&', '=']));
    words
        .filter(|word| word.ends_with(|letter: char| letter.is_ascii_alphabetic()))
        .find_map(|word| {
            let number = &word[..word.len() - 1];
            let is_bare =
                number.ends_with(|last: char| last.is_ascii_digit()) && !word.ends_with('B');
            Some((word, word.parse().ok()?)).filter(|_| is_bare)
        })
}

fn size_unit(number: &str, unit: &str) -> Result<u64, NotAValue> {
    if number.is_empty() {
        return Err(NotAValue(format!(
            "`{unit}` is not a size; write a number and a unit, such as 1GiB"
        )));
    }
    // A single letter is a power of two, as in fio, dd, QEMU and LVM. The units of disk vendors must be
    // written in full, as in `1TB`.
    let is_bare = |name: &str| {
        name.ends_with("iB") && unit.len() == 1 && name[..1].eq_ignore_ascii_case(unit)
    };
    let is_meant = |name: &str| name == unit || is_bare(name) || (unit == "KB" && name == "kB");
    if let Some((_, bytes)) = SIZE_UNITS.iter().find(|(name, _)| is_meant(name)) {
        return Ok(*bytes);
    }
    Err(NotAValue(
        match SIZE_UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        {
            Some((name, _)) => format!("unknown unit `{unit}`; write {number}{name}"),
            None => {
                let names: Vec<&str> = SIZE_UNITS.iter().rev().map(|(name, _)| *name).collect();
                format!("unknown unit `{unit}`; known are {}", list(&names))
            }
        },
    ))
}

/// Splits a text into the digits and points at its start, and the rest.
fn number_and_unit(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len()),
    )
}

/// The reason why a number times a unit is not a valid value.
enum NoMultiple {
    /// The text is not a number, or it has too many digits: more than 9 after the point, or a whole part
    /// beyond 64 bits.
    NotANumber,
    NotWhole,
    TooLarge,
}

/// Multiplies `number`, which contains only digits and points, by `unit`.
fn multiple(number: &str, unit: u64) -> Result<u64, NoMultiple> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| text.parse::<u64>().ok();
    let parts = digits(whole)
        .zip(digits(fraction))
        .filter(|_| fraction.len() <= 9);
    let (whole, fraction_value) = parts.ok_or(NoMultiple::NotANumber)?;
    debug_assert!(fraction.len() <= 9);
    let scale = 10u128.pow(fraction.len() as u32);
    // The product has at most 64 plus 30 bits.
    let parts = u128::from(unit) * u128::from(fraction_value);
    if !parts.is_multiple_of(scale) {
        return Err(NoMultiple::NotWhole);
    }
    u64::try_from(u128::from(unit) * u128::from(whole) + parts / scale)
        .map_err(|_| NoMultiple::TooLarge)
}

/// Prints `amount` in the largest unit of which it is a whole number.
fn in_units(f: &mut fmt::Formatter<'_>, amount: u128, units: &Units, zero: &str) -> fmt::Result {
    let fits = |unit: u64| amount >= u128::from(unit) && amount.is_multiple_of(u128::from(unit));
    match units.iter().find(|(_, unit)| fits(*unit)) {
        Some((name, unit)) => write!(f, "{}{name}", amount / u128::from(*unit)),
        None => f.write_str(zero),
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        in_units(f, self.0.into(), SIZE_UNITS, "0B")
    }
}

/// A duration. The text form is a number and a unit. A number without a unit is in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// Units, and their lengths in nanoseconds.
const TIME_UNITS: &Units = &[
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl FromStr for Time {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Time, NotAValue> {
        let (number, name) = number_and_unit(text);
        let name = if name.is_empty() { "s" } else { name };
        let unit = TIME_UNITS
            .iter()
            .find(|(unit, _)| *unit == name)
            .map(|(_, unit)| *unit);
        let time = unit
            .ok_or(NoMultiple::NotANumber)
            .and_then(|unit| multiple(number, unit));
        time.map(|nanoseconds| Time(Duration::from_nanos(nanoseconds))).map_err(|why| {
            NotAValue(match why {
                NoMultiple::NotANumber => {
                    let names: Vec<&str> = TIME_UNITS.iter().map(|(name, _)| *name).collect();
                    let names = list(&names);
                    format!("`{text}` is not a time; write a number and a unit ({names}), such as 500ms")
                }
                NoMultiple::NotWhole => format!("`{text}` is not a whole number of nanoseconds"),
                NoMultiple::TooLarge => format!("`{text}` exceeds the maximum of 584 years"),
            })
        })
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        in_units(f, self.0.as_nanos(), TIME_UNITS, "0s")
    }
}

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtMost(pub Rate);

impl FromStr for AtMost {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<AtMost, NotAValue> {
        let mut rate = Rate::default();
        for part in text.split('+') {
            let (place, amount) = match part.strip_suffix("iops") {
                Some(number) => {
                    let wrong = format!(
                        "`{number}iops` is not a rate; write requests per second, such as 1000iops"
                    );
                    (
                        &mut rate.requests_per_s,
                        number.parse().map_err(|_| NotAValue(wrong))?,
                    )
                }
                None => (&mut rate.bytes_per_s, bytes_per_s(part)?),
            };
            if place.replace(amount).is_some() {
                return Err(NotAValue(format!(
                    "`{text}` limits the same thing twice; keep one of them"
                )));
            }
        }
        Ok(AtMost(rate))
    }
}

fn bytes_per_s(text: &str) -> Result<NonZeroU64, NotAValue> {
    let not_a_rate = |reason: &dyn fmt::Display| {
        NotAValue(format!(
            "`{text}` is not a rate such as 1000iops or 100MB/s: {reason}"
        ))
    };
    let size: Bytes = text
        .strip_suffix("/s")
        .unwrap_or(text)
        .parse()
        .map_err(|error| not_a_rate(&error))?;
    NonZeroU64::new(size.0).ok_or_else(|| not_a_rate(&"no request would ever complete"))
}

impl fmt::Display for AtMost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.0.requests_per_s.map(|number| format!("{number}iops"));
        let bytes = self
            .0
            .bytes_per_s
            .map(|number| format!("{}/s", Bytes(number.get())));
        f.write_str(
            &requests
                .into_iter()
                .chain(bytes)
                .collect::<Vec<_>>()
                .join("+"),
        )
    }
}

/// A number of parts per million. The text form is in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerMillion(pub u32);

const PERCENT: u32 = 10_000;

impl FromStr for PerMillion {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<PerMillion, &'static str> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        let number = text
            .strip_suffix('%')
            .filter(|number| number.bytes().all(is_digit))
            .ok_or(WRONG)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole: u32 = whole
            .parse()
            .ok()
            .filter(|whole| *whole <= 100)
            .ok_or(WRONG)?;
        let fraction = if fraction.len() <= 4 {
            format!("{fraction:0<4}")
        } else {
            return Err(WRONG);
        };
        let parts = whole * PERCENT + fraction.parse::<u32>().map_err(|_| WRONG)?;
        (parts <= 100 * PERCENT)
            .then_some(PerMillion(parts))
            .ok_or(WRONG)
    }
}

const WRONG: &str =
    "a share is 0% to 100%, with up to four digits after the point, such as 1% or 0.05%";

impl fmt::Display for PerMillion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.0 / PERCENT, self.0 % PERCENT);
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// The block sizes in bytes, as reported to initiators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// Logical block size, which is the unit of addresses: 512 or 4,096.
    pub logical: BlockSize,
    /// Physical block size, which is the unit in which the store writes: the logical block size or a multiple
    /// of it. Logical 512 with physical 4,096 is "512e".
    pub physical: BlockSize,
}

impl BlockShape {
    /// 512e is the default: every initiator supports 512-byte blocks, and ESXi supports no others. The page
    /// cache and RAM volumes work in 4 KiB pages, to which initiators should align their requests.
    pub const USUAL: BlockShape = BlockShape {
        logical: BlockSize::B512,
        physical: BlockSize::B4096,
    };

    /// Parses the options `block` and `physical`.
    ///
    /// # Errors
    /// Fails if a block size is invalid.
    pub fn read(written: &Written<'_>) -> Result<BlockShape, Problem> {
        let size = |word: &Token| {
            let bytes: Bytes = word.text.parse().ok()?;
            u32::try_from(bytes.0).ok().and_then(BlockSize::new)
        };
        let wrong = |word: &Token, sentence: String| Problem::new(word.at.clone(), sentence);
        let mut shape = BlockShape::USUAL;
        if let Some(word) = written.value("block")? {
            shape.logical = size(word)
                .filter(|size| [BlockSize::B512, BlockSize::B4096].contains(size))
                .ok_or_else(|| {
                    wrong(
                        word,
                        "the logical block size is 512 or 4096 bytes".to_owned(),
                    )
                })?;
        }
        shape.physical = shape.physical.max(shape.logical);
        if let Some(word) = written.value("physical")? {
            let least = shape.logical.bytes();
            let sentence = format!(
                "the physical block size is a power of two from {least} (a logical block) to 65536"
            );
            let legal = size(word).filter(|size| *size >= shape.logical);
            shape.physical = legal.ok_or_else(|| wrong(word, sentence))?;
        }
        debug_assert!(
            shape.logical <= shape.physical,
            "a physical block has whole logical ones"
        );
        Ok(shape)
    }

    /// Returns the options that differ from the defaults.
    pub fn options(self) -> Vec<String> {
        let usual = BlockShape::USUAL;
        let logical =
            (self.logical != usual.logical).then(|| format!("block={}", self.logical.bytes()));
        let physical = (self.physical != usual.physical)
            .then(|| format!("physical={}", self.physical.bytes()));
        logical.into_iter().chain(physical).collect()
    }

    /// Parses a capacity in whole blocks.
    ///
    /// # Errors
    /// It is not a size, not a whole number of blocks, or larger than the maximum size of a volume.
    pub fn capacity(self, word: &Token) -> Result<Bytes, Problem> {
        let size: Bytes = word.parsed()?;
        let wrong = |sentence: String| Err(Problem::new(word.at.clone(), sentence));
        if size.0 == 0 {
            return wrong(
                "a volume needs at least one block; write a size such as 1GiB".to_owned(),
            );
        }
        if size.0 > i64::MAX as u64 {
            return wrong(
                "a volume must be smaller than 8 EiB, the limit of file offsets".to_owned(),
            );
        }
        let block = u64::from(self.logical.bytes());
        if size.0.is_multiple_of(block) {
            return Ok(size);
        }
        let near = Bytes((size.0 - size.0 % block).max(block));
        let unit = match word.text.ends_with(|last: char| last.is_ascii_digit()) {
            true => format!(
                "; without a unit, a number counts bytes: write {0}MiB for {0} MiB",
                word.text
            ),
            false => String::new(),
        };
        wrong(format!(
            "{size} is not a whole number of {block}-byte blocks; {near} is{unit}"
        ))
    }

    /// Returns the geometry of a device of this size.
    pub fn geometry(self, size: Bytes) -> Geometry {
        debug_assert!(self.logical.exact(size.0).is_some(), "whole blocks");
        let blocks = Blocks(size.0 >> self.logical.shift());
        Geometry {
            block_size: self.logical,
            blocks,
            physical_exponent: self.physical_exponent(),
        }
    }

    /// Returns log2 of the number of logical blocks in a physical block.
    pub fn physical_exponent(self) -> u8 {
        self.physical.shift().saturating_sub(self.logical.shift()) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(text: &str) -> Result<u64, String> {
        text.parse::<Bytes>()
            .map(|bytes| bytes.0)
            .map_err(|error| error.to_string())
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
        assert_eq!(
            found("delay:5ms:[ram:1g?block=512]"),
            Some(("1g".to_owned(), 1 << 30))
        );
        assert_eq!(
            [
                "4KiB", "4kB", "4096", "512B", "", "natural", "k", "é", "/data/4k"
            ]
            .map(found),
            [const { None }; 9]
        );
    }

    #[test]
    fn slips_are_told_apart() {
        assert_eq!(
            bytes("1gib").expect_err("a mistake"),
            "unknown unit `gib`; write 1GiB"
        );
        assert!(
            bytes("1furlong")
                .expect_err("a mistake")
                .starts_with("unknown unit `furlong`; known are `B`")
        );
        assert!(
            bytes("GiB")
                .expect_err("a mistake")
                .contains("write a number and a unit")
        );
        assert!(
            bytes("")
                .expect_err("a mistake")
                .contains("write a number and a unit")
        );
        assert!(
            bytes("0.3KiB")
                .expect_err("a mistake")
                .contains("not a whole number of bytes")
        );
        assert!(
            bytes("1.2.3GiB")
                .expect_err("a mistake")
                .contains("not a number")
        );
        assert!(
            bytes("99EiB")
                .expect_err("a mistake")
                .contains("the maximum of 16 EiB")
        );
        // The fuzzer found this case: the longest number with the largest unit.
        assert!(
            bytes("5005055050505050050.0502412e")
                .expect_err("a mistake")
                .contains("not a whole number")
        );
        assert!(
            bytes("9999999999999999999.999999999EiB")
                .expect_err("a mistake")
                .contains("not a whole")
        );
        assert!(
            bytes("9999999999999999999.5EiB")
                .expect_err("a mistake")
                .contains("the maximum of 16 EiB")
        );
    }

    proptest! {
        #[test]
        fn a_size_that_is_printed_reads_back(value: u64) {
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

    #[test]
    fn a_time_has_a_unit_or_counts_seconds() {
        let time = |text: &str| text.parse::<Time>().map(|time| time.0.as_millis()).ok();
        assert_eq!(
            ["5ms", "2min", "1.5s", "15", "0.2"].map(time),
            [5, 120_000, 1500, 15_000, 200].map(Some)
        );
        for bad in [
            "",
            "ms",
            "5 ms",
            "5m",
            "-1s",
            "1.2.3s",
            ".",
            "99999999999999999999s",
        ] {
            let error = bad.parse::<Time>().expect_err("a mistake").to_string();
            assert!(
                error.contains("write a number and a unit"),
                "{bad}: {error}"
            );
        }
        assert!(
            "0.3ns"
                .parse::<Time>()
                .is_err_and(|error| error.to_string().contains("whole number of nano"))
        );
        for long in ["9999999999h", "18446744073709551615.000000000h"] {
            assert!(
                long.parse::<Time>()
                    .expect_err("a mistake")
                    .to_string()
                    .contains("584 years")
            );
        }
    }

    proptest! {
        #[test]
        fn a_time_that_is_printed_reads_back(nanoseconds: u64) {
            let time = Time(Duration::from_nanos(nanoseconds));
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }
    }

    fn shown(text: &str) -> String {
        text.parse::<AtMost>()
            .map_or_else(|error| error.to_string(), |rate| rate.to_string())
    }

    #[test]
    fn requests_and_bytes_can_be_limited_together() {
        for text in ["1000iops", "100MB/s", "1000iops+100MiB/s"] {
            assert_eq!(shown(text), text);
        }
        assert_eq!(shown("100MB+7iops"), "7iops+100MB/s");
    }

    #[test]
    fn what_is_no_rate_is_answered_with_one() {
        assert!(shown("1000").ends_with("1kB/s"));
        assert!(shown("0iops").contains("such as 1000iops"));
        assert!(shown("iops").contains("such as 1000iops"));
        assert!(shown("0MB/s").contains("no request would ever complete"));
        assert!(shown("100mb/s").contains("write 100MB"));
        assert!(shown("1iops+2iops").contains("twice"));
        assert!(shown("").contains("such as 1000iops or 100MB/s"));
    }

    #[test]
    fn a_share_is_at_most_everything() {
        assert_eq!("100%".parse(), Ok(PerMillion(1_000_000)));
        for bad in [
            "",
            "%",
            "1",
            "1.%%",
            "101%",
            "100.1%",
            "0.00001%",
            "-1%",
            "+1%",
            "1.2.3%",
            "4294967296%",
        ] {
            assert_eq!(bad.parse::<PerMillion>(), Err(WRONG), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_share_that_is_printed_reads_back(parts in 0u32..=1_000_000) {
            prop_assert_eq!(PerMillion(parts).to_string().parse(), Ok(PerMillion(parts)));
        }
    }
}
