//! The overhead of line codes: bits on the wire per bit of the nominal rate.

/// A line code, and what it makes of a link's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineCode {
    /// Such as `8B/10B`.
    pub name: &'static str,
    /// Bits a second on the wire, code included.
    pub bits_per_s: f64,
}

/// Rates in Mbit/s with their code, and by how much that makes them longer (IEEE 802.3: clauses 7, 24, 36,
/// 49, 82, 107, 119, 133 and 172). Those over twisted pairs of Gigabit and more send symbols that no such
/// fraction describes.
const CODES: [(f64, &str, f64); 12] = [
    (10.0, "Manchester", 2.0),
    (100.0, "4B/5B", 5.0 / 4.0),
    (1_000.0, "8B/10B", 10.0 / 8.0),
    (2_500.0, "8B/10B", 10.0 / 8.0),
    (5_000.0, "64B/66B", 66.0 / 64.0),
    (10_000.0, "64B/66B", 66.0 / 64.0),
    (25_000.0, "64B/66B", 66.0 / 64.0),
    (40_000.0, "64B/66B", 66.0 / 64.0),
    (100_000.0, "64B/66B", 66.0 / 64.0),
    (200_000.0, "256B/257B, RS(544,514)", REED_SOLOMON),
    (400_000.0, "256B/257B, RS(544,514)", REED_SOLOMON),
    (800_000.0, "256B/257B, RS(544,514)", REED_SOLOMON),
];

/// Blocks of 256 bits get one more, and 514 symbols of them 30 of correction.
const REED_SOLOMON: f64 = 257.0 / 256.0 * 544.0 / 514.0;

impl LineCode {
    /// That of a link of so many bits a second; `None` if no standard has that rate.
    pub fn for_rate(bits_per_s: f64) -> Option<LineCode> {
        let (_, name, factor) = CODES.iter().find(|(mbit, ..)| *mbit * 1e6 == bits_per_s)?;
        Some(LineCode { name, bits_per_s: bits_per_s * factor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_on_the_wire_are_the_standards() {
        let rate =
            |gbit: f64| LineCode::for_rate(gbit * 1e9).map(|code| format!("{}", code.bits_per_s / 1e9));
        assert_eq!(rate(1.0).as_deref(), Some("1.25"));
        assert_eq!(rate(10.0).as_deref(), Some("10.3125"));
        assert_eq!(rate(400.0).as_deref(), Some("425"));
        assert_eq!(rate(0.16), None);
    }
}
