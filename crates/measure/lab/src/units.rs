//! Rates, sizes, durations and shares as text in a plan.

use std::time::Duration;

/// `1Gbit/s`, `160 Mbit/s`: bits a second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    const UNITS: &[(&str, f64)] = &[("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)];
    quantity(text, UNITS).ok_or_else(|| format!("`{text}` is not a rate; write one such as \"160Mbit/s\""))
}

/// `25ms`, `1.5s`, `0s`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    const UNITS: &[(&str, f64)] = &[("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    quantity(text, UNITS)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("`{text}` is not a time; write one such as \"25ms\""))
}

/// `64KiB`, `1MB`, `9000`: bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, f64)] = &[
        ("", 1.0),
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
    ];
    quantity(text, UNITS)
        .map(|bytes| bytes.round() as u64)
        .ok_or_else(|| format!("`{text}` is not a size; write one such as \"64KiB\""))
}

/// `1%`, `0.01`: a share from 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    quantity(text, &[("", 1.0), ("%", 0.01)])
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("`{text}` is not a share; write one such as \"1%\""))
}

/// A number that is not negative, and its unit.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<f64>().ok().map(|number| number * factor).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_unit_or_a_wrong_one_is_refused_with_an_example() {
        for text in ["", "25", "ms", "-1ms", "1e3ms", "1 m", "25ms ", "1.2.3s"] {
            let refused = time(text).expect_err(text);
            assert!(refused.ends_with("is not a time; write one such as \"25ms\""), "{refused}");
        }
        assert!(rate("1G").is_err());
        assert!(size("1KB").is_err());
        assert!(share("101%").is_err());
        assert!(time("99999999999999999999999s").is_err());
    }

    #[test]
    fn values_are_as_written() {
        assert_eq!(rate("1Gbit/s"), Ok(1e9));
        assert_eq!(rate("160 Mbit/s"), Ok(160e6));
        assert_eq!(time("0.5ms"), Ok(Duration::from_micros(500)));
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("1MB"), Ok(1_000_000));
        assert_eq!(share("0.1%"), Ok(0.001));
        assert_eq!(share("0.25"), Ok(0.25));
    }
}
