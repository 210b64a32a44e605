//! Numbers in the sentences of a finding.

use readable::figures;

/// Bytes a second: `11.8 MB/s`.
pub(super) fn rate(bytes_per_s: f64) -> String {
    format!("{} MB/s", figures::megabytes(bytes_per_s))
}

/// Seconds: `71.2 µs`, `12.1 ms`.
pub(super) fn time(seconds: f64) -> String {
    figures::latency(seconds * 1e6)
}

/// Bytes: `64 KiB`; in bytes if it is not a whole number of KiB.
pub(super) fn size(bytes: f64) -> String {
    figures::size(bytes)
}

/// Bits a second: `1 Gbit/s`.
pub(super) fn bits(bits_per_s: f64) -> String {
    match bits_per_s {
        rate if rate >= 1e9 => format!("{} Gbit/s", figures::round(rate / 1e9)),
        rate => format!("{} Mbit/s", figures::round(rate / 1e6)),
    }
}

/// A share: `97 %`, and below ten percent `0.4 %`.
pub(super) fn share(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// A plain number: `2.3`, `412,345`.
pub(super) fn number(number: f64) -> String {
    figures::round(number)
}

/// Yes or No, as RFC 7143 writes it.
pub(super) fn yes(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(rate(11.8e6), "11.8 MB/s");
        assert_eq!(time(0.0121), "12.1 ms");
        assert_eq!([bits(1e9), bits(2.5e9), bits(100e6)], ["1 Gbit/s", "2.5 Gbit/s", "100 Mbit/s"]);
        assert_eq!([share(0.97), share(0.004)], ["97 %", "0.4 %"]);
    }
}
