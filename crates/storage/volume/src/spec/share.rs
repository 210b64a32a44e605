//! Shares as text: `1%`, `0.05%`.

use std::fmt;
use std::str::FromStr;

/// So many of a million; reads and prints itself in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerMillion(pub u32);

const PERCENT: u32 = 10_000;

impl FromStr for PerMillion {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<PerMillion, &'static str> {
        let number = text.strip_suffix('%').filter(|number| digits(number)).ok_or(WRONG)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole: u32 = whole.parse().ok().filter(|whole| *whole <= 100).ok_or(WRONG)?;
        let fraction = if fraction.len() <= 4 { format!("{fraction:0<4}") } else { return Err(WRONG) };
        let parts = whole * PERCENT + fraction.parse::<u32>().map_err(|_| WRONG)?;
        (parts <= 100 * PERCENT).then_some(PerMillion(parts)).ok_or(WRONG)
    }
}

const WRONG: &str = "a share is 0% to 100%, with at most four digits after the point, such as 1% or 0.05%";

fn digits(number: &str) -> bool {
    number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

impl fmt::Display for PerMillion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.0 / PERCENT, self.0 % PERCENT);
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_share_is_at_most_everything() {
        assert_eq!("100%".parse(), Ok(PerMillion(1_000_000)));
        for bad in ["", "%", "1", "1.%%", "101%", "100.1%", "0.00001%", "-1%", "+1%", "1.2.3%", "4294967296%"]
        {
            assert_eq!(bad.parse::<PerMillion>(), Err(WRONG), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(parts in 0u32..=1_000_000) {
            prop_assert_eq!(PerMillion(parts).to_string().parse(), Ok(PerMillion(parts)));
        }
    }
}
