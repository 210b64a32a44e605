//! Whether two means differ.

use super::{ALPHA, Interval, MeanEstimate, student};

/// Two means beside each other (Welch's test: their errors need not be the same).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// The second mean minus the first.
    pub difference: f64,
    /// The standard error of that.
    pub error: f64,
    /// Degrees of freedom, by Welch and Satterthwaite.
    pub freedom: f64,
}

/// Sets a second mean beside a first.
pub fn welch(first: MeanEstimate, second: MeanEstimate) -> Welch {
    let (one, other) = (first.error.powi(2), second.error.powi(2));
    let variance = one + other;
    // A mean without error brings no uncertainty about its error either.
    let share = |of: f64, freedom: f64| if of > 0.0 { of * of / freedom } else { 0.0 };
    let shares = share(one, first.freedom) + share(other, second.freedom);
    let freedom = if shares > 0.0 { variance * variance / shares } else { first.freedom + second.freedom };
    Welch { difference: second.mean - first.mean, error: variance.sqrt(), freedom }
}

impl Welch {
    /// The chance of a difference at least as large, on either side, if there is none in truth.
    pub fn p(self) -> f64 {
        if self.error > 0.0 {
            student::two_sided(self.difference / self.error, self.freedom)
        } else if self.difference == 0.0 {
            1.0
        } else {
            0.0
        }
    }

    /// The interval that misses the true difference with a chance of `alpha`.
    pub fn interval(self, alpha: f64) -> Interval {
        MeanEstimate { mean: self.difference, error: self.error, freedom: self.freedom }.interval(alpha)
    }

    /// The smallest difference that would have been found in four of five such tests at this `alpha` (a power
    /// of 80 %).
    pub fn detectable(self, alpha: f64) -> f64 {
        const POWER: f64 = 0.8;
        let steps =
            student::quantile(1.0 - alpha / 2.0, self.freedom) + student::quantile(POWER, self.freedom);
        if self.error > 0.0 { steps * self.error } else { 0.0 }
    }
}

/// For each of several tests made at once, the chance of error that it is judged by, so that all of them
/// together find a difference where there is none in at most 5 of 100 cases (Holm 1979). The smallest p of m
/// is held against 5 % / m, the next against 5 % / (m - 1), and so on; from the first that does not pass, all
/// are held against what that one was. An interval at this level leaves 0 out exactly if the test passes.
pub fn holm(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|&one, &other| ps[one].total_cmp(&ps[other]));
    let mut levels = vec![ALPHA; ps.len()];
    let mut failed = None;
    for (rank, &test) in order.iter().enumerate() {
        let level = failed.unwrap_or(ALPHA / (ps.len() - rank) as f64);
        levels[test] = level;
        if ps[test] > level {
            failed = Some(level);
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::super::{mean, standard_deviation};
    use super::*;

    fn estimate_of(values: &[f64]) -> MeanEstimate {
        let count = values.len() as f64;
        let error = standard_deviation(values) / count.sqrt();
        MeanEstimate { mean: mean(values), error, freedom: count - 1.0 }
    }

    #[test]
    fn the_test_gives_what_the_formula_does() {
        // Variances 2.5 and 10 of five each: t = 2 / sqrt(2.5), 4 (12.5)^2 / (2.5^2 + 10^2) = 5.882 degrees
        // of freedom.
        let welch = welch(estimate_of(&[1.0, 2.0, 3.0, 4.0, 5.0]), estimate_of(&[1.0, 3.0, 5.0, 7.0, 9.0]));
        assert_eq!(welch.difference, 2.0);
        assert!((welch.error - 2.5f64.sqrt()).abs() < 1e-12, "{welch:?}");
        assert!((welch.freedom - 4.0 * 156.25 / 106.25).abs() < 1e-9, "{welch:?}");
        assert!(
            welch.interval(welch.p()).low.abs() < 1e-9,
            "at the level of p, 0 is the end of the interval"
        );
    }

    #[test]
    fn means_without_error_differ_or_do_not() {
        assert_eq!(welch(estimate_of(&[2.0, 2.0]), estimate_of(&[2.0, 2.0])).p(), 1.0);
        assert_eq!(welch(estimate_of(&[2.0, 2.0]), estimate_of(&[3.0, 3.0])).p(), 0.0);
    }

    #[test]
    fn what_is_detectable_is_more_than_what_is_significant() {
        let welch = welch(estimate_of(&[99.0, 101.0, 100.0]), estimate_of(&[99.5, 100.5, 100.0]));
        assert!(welch.detectable(ALPHA) > welch.interval(ALPHA).half());
    }

    #[test]
    fn holm_grows_milder_with_each_test_that_passes() {
        let levels = holm(&[0.2, 0.001, 0.02]);
        assert_eq!(levels, [ALPHA, ALPHA / 3.0, ALPHA / 2.0]);
        // The second does not pass at 5 % / 2, and the third is held against the same.
        assert_eq!(holm(&[0.04, 0.001, 0.03]), [ALPHA / 2.0, ALPHA / 3.0, ALPHA / 2.0]);
        assert!(holm(&[]).is_empty());
    }
}
