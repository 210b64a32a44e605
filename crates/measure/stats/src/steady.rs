//! The steady state of a test's rounds, by SNIA's rule (Solid State Storage Performance Test Specification,
//! "Steady State"). Over five consecutive rounds, the range of the tracked rate is at most 20 % of its mean.
//! The fitted line rises or falls by at most 10 % of the mean over the whole window.

use crate::compare::{FittedLine, line};

/// The number of rounds in the window.
pub const WINDOW: usize = 5;
/// The largest rate minus the smallest, in percent of the mean.
pub const RANGE_PERCENT_MAX: f64 = 20.0;
/// The rise or fall of the fitted line from the first round of the window to the last, in percent of the
/// mean.
pub const EXCURSION_PERCENT_MAX: f64 = 10.0;

/// Five rounds, and the values for the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The first of the rounds.
    pub first: usize,
    /// The mean rate.
    pub mean: f64,
    /// The largest rate minus the smallest, in percent of the mean.
    pub range_percent: f64,
    /// The rise or fall of the fitted line over the window, in percent of the mean.
    pub excursion_percent: f64,
    /// The line: the rate over the number of the round in the window, from 0.
    pub line: FittedLine,
}

/// The window of the last five rounds; `None` if there are fewer, or nothing moved.
pub fn window(rates: &[f64]) -> Option<Window> {
    let first = rates.len().checked_sub(WINDOW)?;
    let last = &rates[first..];
    let mean = crate::mean(last);
    if mean <= 0.0 || !mean.is_finite() {
        return None;
    }
    let (low, high) =
        last.iter().fold((f64::MAX, f64::MIN), |(low, high), rate| (low.min(*rate), high.max(*rate)));
    let points: Vec<(f64, f64)> =
        last.iter().enumerate().map(|(round, rate)| (round as f64, *rate)).collect();
    let line = line(&points)?;
    Some(Window {
        first,
        mean,
        range_percent: 100.0 * (high - low) / mean,
        excursion_percent: 100.0 * line.slope.abs() * (WINDOW - 1) as f64 / mean,
        line,
    })
}

impl Window {
    /// Whether the rule is satisfied.
    pub fn is_steady(&self) -> bool {
        self.range_percent <= RANGE_PERCENT_MAX && self.excursion_percent <= EXCURSION_PERCENT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_steady(rates: &[f64]) -> bool {
        window(rates).is_some_and(|window| window.is_steady())
    }

    #[test]
    fn four_rounds_are_not_enough() {
        assert_eq!(window(&[100.0; 4]), None);
        assert!(is_steady(&[100.0; 5]));
    }

    #[test]
    fn a_range_of_a_fifth_is_allowed_and_no_more() {
        // The mean is 100 and the line nearly flat: only the range decides.
        assert!(is_steady(&[100.0, 110.0, 100.0, 90.0, 100.0]));
        assert!(!is_steady(&[100.0, 111.0, 100.0, 89.0, 100.0]));
    }

    #[test]
    fn a_slope_of_a_tenth_over_the_window_is_allowed_and_no_more() {
        assert!(is_steady(&[95.0, 97.5, 100.0, 102.5, 105.0]));
        assert!(!is_steady(&[94.0, 97.0, 100.0, 103.0, 106.0]));
        let window = window(&[105.0, 102.5, 100.0, 97.5, 95.0]).unwrap();
        assert!((window.excursion_percent - 10.0).abs() < 1e-9 && window.line.slope < 0.0, "{window:?}");
    }

    #[test]
    fn only_the_last_five_count() {
        let settled = [900.0, 500.0, 300.0, 101.0, 99.0, 100.0, 100.0, 100.0];
        assert!(!is_steady(&settled[..7]));
        assert!(is_steady(&settled));
        assert_eq!(window(&settled).unwrap().first, 3);
    }

    #[test]
    fn nothing_is_not_steady() {
        assert!(!is_steady(&[0.0; 5]));
    }
}
