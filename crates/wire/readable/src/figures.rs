//! Numbers as text: significant digits, thousands separators, and a unit.

/// An integer with thousands separators: `412,345`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with three or more significant digits and thousands separators: `1,689`, `76.2`, `2.31`, `0.040`.
pub fn significant(number: f64) -> String {
    match number.abs() {
        size if !size.is_finite() => "?".to_owned(),
        size if size >= 99.95 => {
            let sign = if number < 0.0 { "-" } else { "" };
            format!("{sign}{}", grouped(size.round() as u64))
        }
        size if size >= 9.995 => format!("{number:.1}"),
        size if size >= 0.9995 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// Like [`significant`], but for an axis: without trailing zeros.
pub fn round(number: f64) -> String {
    let text = significant(number);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A short form for an axis: `5k`, `1.2M`.
pub fn short(number: f64) -> String {
    match number.abs() {
        size if size >= 1e9 => format!("{}G", round(number / 1e9)),
        size if size >= 1e6 => format!("{}M", round(number / 1e6)),
        size if size >= 1e4 => format!("{}k", round(number / 1e3)),
        _ => round(number),
    }
}

/// Bytes per second, in MB of 10^6 bytes, without the unit.
pub fn megabytes(bytes_per_s: f64) -> String {
    significant(bytes_per_s / 1e6)
}

/// Microseconds in a suitable unit: `71.2 µs`, `12.1 ms`, `1.20 s`; `?` for NaN.
pub fn latency(us: f64) -> String {
    match us {
        us if us.is_nan() => significant(us),
        us if us >= 999_500.0 => format!("{} s", significant(us / 1e6)),
        us if us >= 999.5 => format!("{} ms", significant(us / 1e3)),
        us => format!("{} µs", significant(us)),
    }
}

/// Like [`latency`], but for an axis: `50 µs`, `1 ms`.
pub fn latency_tick(us: f64) -> String {
    match us {
        us if us >= 999_500.0 => format!("{} s", round(us / 1e6)),
        us if us >= 999.5 => format!("{} ms", round(us / 1e3)),
        us => format!("{} µs", round(us)),
    }
}

/// A length in powers of 1024: `512 B`, `4 KiB`, `1.5 MiB`.
pub fn size(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..UNITS.len() - 1)
        .find(|power| bytes < 1024_f64.powi(*power as i32 + 1))
        .unwrap_or(4);
    format!(
        "{} {}",
        round(bytes / 1024_f64.powi(unit as i32)),
        UNITS[unit]
    )
}

/// Seconds: `300 ms`, `2.5 s`, `4 min 20 s`, `2 h 5 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match seconds {
        s if s < 0.9995 => format!("{} ms", round(s * 1e3)),
        s if s < 99.95 => format!("{} s", round(s)),
        s if s < 7200.0 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A number and a noun, in singular or plural: `1 run`, `3 runs`.
pub fn counted(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", grouped(number as u64))
}

/// A bar of at most `width` characters, in steps of one eighth of a character, for a share from 0 to 1.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_that_mean_nothing_are_left_out() {
        let numbers = [
            0.0,
            0.0401,
            2.306,
            76.24,
            99.96,
            412_345.4,
            -1234.0,
            f64::NAN,
        ];
        let texts = [
            "0.000", "0.040", "2.31", "76.2", "100", "412,345", "-1,234", "?",
        ];
        assert_eq!(numbers.map(significant), texts);
        assert_eq!(
            [0.5, 20.0, 100.0, 0.0].map(round),
            ["0.5", "20", "100", "0"]
        );
        assert_eq!(
            [950.0, 12_500.0, 1.5e6].map(short),
            ["950", "12.5k", "1.5M"]
        );
    }

    #[test]
    fn times_and_lengths_have_the_unit_that_suits_them() {
        assert_eq!(
            [71.24, 999.7, 12_100.0, 1.2e6].map(latency),
            ["71.2 µs", "1.00 ms", "12.1 ms", "1.20 s"]
        );
        let lengths = [512.0, 4096.0, 1_572_864.0, 1073741824.0];
        assert_eq!(lengths.map(size), ["512 B", "4 KiB", "1.5 MiB", "1 GiB"]);
        assert_eq!(
            [0.3, 2.5, 260.0, 7500.0].map(duration),
            ["300 ms", "2.5 s", "4 min 20 s", "2 h 5 min"]
        );
    }

    #[test]
    fn a_bar_ends_where_its_share_does() {
        assert_eq!(
            [1.0, 0.5, 0.0, 7.0].map(|share| bar(share, 2)),
            ["██", "█", "", "██"]
        );
    }
}
