//! Link rates as text: `1G`, `100Mbit/s`, `2.5Gbit/s`.
//!
//! A bare letter is clear here, unlike for sizes: links are counted in powers of ten, and in bits.

use std::fmt;
use std::str::FromStr;

/// Bits a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkRate(f64);

impl LinkRate {
    /// What most links are built for.
    pub const GIGABIT: LinkRate = LinkRate(1e9);

    /// So many.
    pub fn bits_per_s(self) -> f64 {
        self.0
    }
}

/// Largest first, as printing tries them.
const UNITS: [(&str, f64); 4] = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
/// From a slow line to what Ethernet will be one day; beyond is a slip.
const LEAST: f64 = 1e4;
const MOST: f64 = 1e13;

impl FromStr for LinkRate {
    type Err = String;

    fn from_str(text: &str) -> Result<LinkRate, String> {
        if text.contains("B/s") || text.contains("Bps") {
            return Err(format!("`{text}` counts bytes; a link's rate is in bits a second, such as 1Gbit/s"));
        }
        let ends = ["bit/s", "bits/s", "bps", "b/s", ""];
        let bare = ends.iter().find_map(|end| text.strip_suffix(end)).unwrap_or(text);
        let unit =
            UNITS.iter().find(|(unit, _)| bare.ends_with(unit) || (*unit == "k" && bare.ends_with('K')));
        let (digits, unit) =
            unit.map_or((bare, 1.0), |(unit, factor)| (&bare[..bare.len() - unit.len()], *factor));
        let is_plain = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
        let number: Option<f64> = digits.parse().ok().filter(|_| is_plain);
        let Some(number) = number else {
            return Err(format!(
                "`{text}` is not a link's rate; write bits a second such as 1G, 100M or 2.5Gbit/s"
            ));
        };
        // 2.3 × 10^9 is not quite a whole number of bits in binary, and is one all the same.
        let bits_per_s = (number * unit).round();
        match (LEAST..=MOST).contains(&bits_per_s) {
            true => Ok(LinkRate(bits_per_s)),
            false => Err(format!(
                "`{text}` is no rate of a link, which is from {} to {}",
                LinkRate(LEAST),
                LinkRate(MOST)
            )),
        }
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, factor)| self.0 >= *factor) {
            Some((unit, factor)) => write!(f, "{}{unit}bit/s", self.0 / factor),
            None => write!(f, "{}bit/s", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(text: &str) -> Result<f64, String> {
        text.parse().map(LinkRate::bits_per_s)
    }

    #[test]
    fn what_is_no_rate_of_a_link_is_refused_with_one() {
        for text in ["", "G", "fast", "1X", "1.2.3G", "-1G", "1e9", "infG", "NaN"] {
            assert!(rate(text).expect_err("a mistake").contains("such as 1G, 100M or 2.5Gbit/s"), "{text}");
        }
        assert!(rate("125MB/s").expect_err("a mistake").contains("counts bytes"));
        assert!(rate("1").expect_err("a mistake").ends_with("from 10kbit/s to 10Tbit/s"));
        assert!(rate("11T").expect_err("a mistake").ends_with("from 10kbit/s to 10Tbit/s"));
    }

    #[test]
    fn letters_and_units_mean_powers_of_ten_in_bits() {
        for text in ["1G", "1Gbit/s", "1000M", "1Gbps", "1Gb/s", "1000000000"] {
            assert_eq!(rate(text), Ok(1e9), "{text}");
        }
        assert_eq!(rate("2.5G"), Ok(2.5e9));
        assert_eq!(rate("56k"), rate("56K"));
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(mbit in 1..1_000_000u32) {
            let rate = LinkRate(f64::from(mbit) * 1e6);
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9.a-zA-Zµ/]{0,16}") {
            let _ = rate(&text);
        }
    }
}
