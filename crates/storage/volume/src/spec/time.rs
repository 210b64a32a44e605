//! Durations as text: `5ms`, `30s`, `2min`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::nearest::list;

/// A length of time that reads and prints itself: a number and a unit. A number without a unit counts seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// Nanoseconds, largest unit first, as printing tries them.
const UNITS: &[(&str, u64)] = &[
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Why a text is no length of time, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotATime(String);

impl fmt::Display for NotATime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotATime {}

impl FromStr for Time {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Time, NotATime> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, name) = text.split_at(end);
        let names: Vec<&str> = UNITS.iter().map(|(name, _)| *name).collect();
        let wrong = || {
            NotATime(format!(
                "`{text}` is not a time; write a number and a unit ({}), such as 500ms",
                list(&names)
            ))
        };
        let name = if name.is_empty() { "s" } else { name };
        let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == name).ok_or_else(wrong)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| text.parse::<u64>().ok();
        let parts = digits(whole).zip(digits(fraction)).filter(|_| fraction.len() <= 9);
        let (whole, fraction_value) = parts.ok_or_else(wrong)?;
        let scale = 10u128.pow(fraction.len() as u32);
        let parts = u128::from(*unit) * (u128::from(whole) * scale + u128::from(fraction_value));
        if !parts.is_multiple_of(scale) {
            return Err(NotATime(format!("`{text}` is not a whole number of nanoseconds")));
        }
        let nanoseconds = u64::try_from(parts / scale).map_err(|_| {
            NotATime(format!("`{text}` is more than the 584 years that 64 bits of nanoseconds can count"))
        })?;
        Ok(Time(Duration::from_nanos(nanoseconds)))
    }
}

impl fmt::Display for Time {
    /// In the largest unit that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        let fits =
            |unit: u64| nanoseconds >= u128::from(unit) && nanoseconds.is_multiple_of(u128::from(unit));
        match UNITS.iter().find(|(_, unit)| fits(*unit)) {
            Some((name, unit)) => write!(f, "{}{name}", nanoseconds / u128::from(*unit)),
            None => write!(f, "0s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_time_has_a_unit_or_counts_seconds() {
        let time = |text: &str| text.parse::<Time>().map(|time| time.0.as_millis()).ok();
        assert_eq!(["5ms", "2min", "1.5s", "15", "0.2"].map(time), [5, 120_000, 1500, 15_000, 200].map(Some));
        for bad in ["", "ms", "5 ms", "5m", "-1s", "1.2.3s", ".", "99999999999999999999s"] {
            let error = bad.parse::<Time>().expect_err("a mistake").to_string();
            assert!(error.contains("write a number and a unit"), "{bad}: {error}");
        }
        assert!(
            "0.3ns".parse::<Time>().is_err_and(|error| error.to_string().contains("whole number of nano"))
        );
        assert!("9999999999h".parse::<Time>().expect_err("a mistake").to_string().contains("584 years"));
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(nanoseconds: u64) {
            let time = Time(Duration::from_nanos(nanoseconds));
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }
    }
}
