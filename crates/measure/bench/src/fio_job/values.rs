//! Sizes, times, numbers and lists as fio writes them. What fio reads as something else than it looks like (`1.5k` is one byte to
//! it, `1h30m` a microsecond) is refused.

use std::ops::RangeInclusive;
use std::time::Duration;

/// What `k` is: `kb_base`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KbBase {
    /// `k` is 1,024, and `KiB` is 1,000: fio's default, for old job files.
    #[default]
    Binary,
    /// `k` is 1,000 and `KiB` is 1,024.
    Decimal,
}

impl KbBase {
    pub(super) fn named(text: &str) -> Result<KbBase, String> {
        match text {
            "1024" => Ok(KbBase::Binary),
            "1000" => Ok(KbBase::Decimal),
            _ => Err(format!("`{text}` is not 1024 or 1000")),
        }
    }
}

/// A part of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many percent of it.
    Percent(u8),
}

impl Amount {
    /// In bytes, of a storage of so many.
    pub(super) fn of(self, device_bytes: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => (u128::from(device_bytes) * u128::from(percent) / 100) as u64,
        }
    }
}

/// A whole number with one of fio's units, which numbers of anything may have: `iodepth=1k` is 1,024.
pub(super) fn number(text: &str, base: KbBase, range: RangeInclusive<u64>) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let unit = unit.to_ascii_lowercase();
    let (letter, is_iec) = match unit.as_str() {
        "" | "b" => ("", false),
        "k" | "kb" | "ki" | "m" | "mb" | "mi" | "g" | "gb" | "gi" | "t" | "tb" | "ti" | "p" | "pb" | "pi" => {
            (&unit[..1], false)
        }
        "kib" | "mib" | "gib" | "tib" | "pib" => (&unit[..1], true),
        _ => return Err(format!("`{text}` has an unknown unit; fio's are k, m, g, t and p")),
    };
    let step: u64 = if (base == KbBase::Binary) == is_iec { 1000 } else { 1024 };
    let power = "kmgtp".find(letter).map_or(0, |at| if letter.is_empty() { 0 } else { at as u32 + 1 });
    let value = step.checked_pow(power).and_then(|unit| number.checked_mul(unit));
    let (least, most) = (range.start(), range.end());
    value
        .filter(|value| range.contains(value))
        .ok_or_else(|| format!("`{text}` is not a number from {least} to {most}"))
}

/// Whether a size has a unit as `KiB`, of which few expect that it is 1,000 bytes.
pub(super) fn is_opposite(text: &str, base: KbBase) -> bool {
    base == KbBase::Binary && text.to_ascii_lowercase().contains("ib")
}

/// A size, or a share of the storage.
pub(super) fn amount(text: &str, base: KbBase) -> Result<Amount, String> {
    match text.strip_suffix('%') {
        Some(share) => share.parse().ok().filter(|share| *share <= 100).map(Amount::Percent),
        None => return number(text, base, 0..=1 << 53).map(Amount::Bytes),
    }
    .ok_or_else(|| format!("`{text}` is not a share from 0% to 100%"))
}

/// A time; without a unit it counts `unit`.
pub(super) fn time(text: &str, unit: Duration) -> Result<Duration, String> {
    let (number, named) = split(text)?;
    let us: u64 = match named.to_ascii_lowercase().as_str() {
        "" => unit.as_micros() as u64,
        "us" | "usec" => 1,
        "ms" | "msec" => 1000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(format!("`{text}` is not a time; fio's have one unit: d, h, m, s, ms or us")),
    };
    // Nothing that is measured takes longer than a week.
    let time = number.checked_mul(us).filter(|us| *us <= 604_800_000_000);
    time.map(Duration::from_micros).ok_or_else(|| format!("`{text}` is more than a week"))
}

/// An option that may stand without a value.
pub(super) fn flag(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(other) => Err(format!("`{other}` is not 0 or 1")),
    }
}

/// The values for reads and for writes: one that is not followed by a comma holds for what comes after it too. `None` where
/// nothing is said; trims are not looked at.
pub(super) fn directions(text: &str) -> Result<[Option<&str>; 2], String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let said = |at: usize| parts.get(at).copied().filter(|part| !part.is_empty());
    match parts.len() {
        1 => Ok([said(0), said(0)]),
        2 | 3 => Ok([said(0), said(1)]),
        _ => Err(format!("`{text}` has more than values for reads, writes and trims")),
    }
}

fn split(text: &str) -> Result<(u64, &str), String> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((text, 10), |digits| (digits, 16));
    let end = digits.find(|letter: char| !letter.is_digit(radix)).unwrap_or(digits.len());
    let (digits, unit) = digits.split_at(end);
    if radix == 16 && !unit.is_empty() {
        return Err(format!("`{text}` has a unit, which fio does not read behind a hexadecimal number"));
    }
    let number = u64::from_str_radix(digits, radix).ok();
    number.map(|number| (number, unit)).ok_or_else(|| format!("`{text}` does not begin with a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str, base: KbBase) -> Result<u64, String> {
        number(text, base, 0..=u64::MAX)
    }

    #[test]
    fn units_are_fios() {
        for (text, binary, decimal) in [
            ("4096", 4096, 4096),
            ("0x10", 16, 16),
            ("4k", 4096, 4000),
            ("4K", 4096, 4000),
            ("4kb", 4096, 4000),
            ("4ki", 4096, 4000),
            ("4KiB", 4000, 4096),
            ("2m", 2 << 20, 2_000_000),
            ("1p", 1 << 50, 1_000_000_000_000_000),
        ] {
            let found = [KbBase::Binary, KbBase::Decimal].map(|base| bytes(text, base));
            assert_eq!(found, [Ok(binary), Ok(decimal)], "{text}");
        }
        for text in ["", "k", "-1", "1.5k", "4kx", "99999999p", "0x", "0x10k", "4 k"] {
            assert!(bytes(text, KbBase::Binary).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_one_unit() {
        let seconds = |text| time(text, Duration::from_secs(1));
        assert_eq!(seconds("30"), Ok(Duration::from_secs(30)));
        assert_eq!(seconds("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(seconds("1500ms"), Ok(Duration::from_millis(1500)));
        for text in ["1h30m", "1:30", "1.5", "10sec", "8d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_no_comma_follows_holds_for_writes_too() {
        assert_eq!(directions("4k"), Ok([Some("4k"); 2]));
        assert_eq!(directions("4k,8k"), Ok([Some("4k"), Some("8k")]));
        assert_eq!(directions("4k,"), Ok([Some("4k"), None]));
        assert_eq!(directions(",8k"), Ok([None, Some("8k")]));
        assert!(directions("1,2,3,4").is_err());
    }
}
