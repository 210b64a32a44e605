//! Numbers as people read them: grouped by thousands, and with as many digits as mean something.

/// A whole number with its thousands set apart: `412,345`.
pub(crate) fn grouped(number: u64) -> String {
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

/// A number of at least three significant digits, with its thousands set apart: `1,689`, `76.2`, `2.31`, `0.040`.
pub(crate) fn significant(number: f64) -> String {
    match number.abs() {
        at_least if at_least >= 99.95 => grouped(number.round() as u64),
        at_least if at_least >= 9.995 => format!("{number:.1}"),
        at_least if at_least >= 0.9995 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn digits_that_mean_nothing_are_left_out() {
        let numbers = [0.0, 0.0401, 2.306, 76.24, 99.96, 412_345.4];
        assert_eq!(numbers.map(significant), ["0.000", "0.040", "2.31", "76.2", "100", "412,345"]);
    }
}
