//! Sizes and times as suites write them: `64KiB`, `1.5MiB`, `5GB`; `500ms`, `10s`, `2min`.

/// Bytes in each unit. `MB` is 10^6 and `MiB` 2^20; a bare `K` or `M` can mean either, and is refused.
const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Milliseconds in each unit.
const TIMES: [(&str, f64); 4] = [("h", 3_600_000.0), ("min", 60_000.0), ("s", 1000.0), ("ms", 1.0)];

/// A number of bytes, or why it is none.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let not = || format!("`{text}` is not a size; write a number and a unit, such as 64KiB or 5GB");
    let (number, unit) = split(text).ok_or_else(not)?;
    let (_, unit) = SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(not)?;
    let bytes = number * *unit as f64;
    // Up to 2^53 every whole number of bytes is exact, and no device is longer.
    let whole = bytes.fract() == 0.0 && bytes <= (1u64 << 53) as f64;
    if whole { Ok(bytes as u64) } else { Err(format!("`{text}` is not a whole number of bytes below 8 PiB")) }
}

/// A number of seconds, or why it is none.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let not = || format!("`{text}` is not a time; write a number and a unit, such as 500ms, 10s or 2min");
    let (number, unit) = split(text).ok_or_else(not)?;
    let (_, unit) = TIMES.iter().find(|(name, _)| *name == unit).ok_or_else(not)?;
    // Divided last, so that 1400ms is what 1.4 is.
    Ok(number * unit / 1000.0)
}

fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit))
}

/// A number of bytes in the largest binary unit that gives a whole one: 1.5 MiB are `1536KiB`.
pub(crate) fn size(bytes: u64) -> String {
    let fits = |unit: u64| bytes >= unit && bytes.is_multiple_of(unit);
    let (name, unit) = SIZES[..4].iter().find(|(_, unit)| fits(*unit)).unwrap_or(&("B", 1));
    format!("{}{name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_mean_two_things_or_nothing_is_refused() {
        for wrong in ["", "4", "4K", "KiB", "1.2.3KiB", "-1KiB", "0.3B", "9999TiB", "4 KiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "5", "s", "5m", "1..s", "-1s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn units_are_decimal_or_binary_as_they_say() {
        assert_eq!(["64KiB", "1.5MiB", "5GB"].map(bytes), [Ok(65_536), Ok(1_572_864), Ok(5_000_000_000)]);
        assert_eq!(["500ms", "10s", "2min"].map(seconds), [Ok(0.5), Ok(10.0), Ok(120.0)]);
    }

    #[test]
    fn a_size_is_shown_without_a_point() {
        assert_eq!([512, 4096, 1_572_864, 1 << 30].map(size), ["512B", "4KiB", "1536KiB", "1GiB"]);
    }
}
