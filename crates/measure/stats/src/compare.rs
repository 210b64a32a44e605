//! Comparisons of two means (Welch's test, Holm's correction), fitted curves (a line, the universal
//! scalability law), Little's law, and fairness.

use crate::ALPHA;
use crate::intervals::{Interval, MeanEstimate, mean, student_quantile, student_two_sided};

/// A comparison of two means by Welch's test, in which the errors of the means may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// The second mean minus the first.
    pub difference: f64,
    /// The standard error of the difference.
    pub error: f64,
    /// The degrees of freedom, by Welch and Satterthwaite.
    pub freedom: f64,
}

/// Compares a second mean with a first one.
pub fn welch(first: MeanEstimate, second: MeanEstimate) -> Welch {
    let (one, other) = (first.error.powi(2), second.error.powi(2));
    let variance = one + other;
    // A mean without an error does not contribute to the uncertainty.
    let share = |of: f64, freedom: f64| if of > 0.0 { of * of / freedom } else { 0.0 };
    let shares = share(one, first.freedom) + share(other, second.freedom);
    let freedom = if shares > 0.0 {
        variance * variance / shares
    } else {
        first.freedom + second.freedom
    };
    Welch {
        difference: second.mean - first.mean,
        error: variance.sqrt(),
        freedom,
    }
}

impl Welch {
    /// Returns the probability of a difference at least this large, in either direction, if there is no true
    /// difference.
    pub fn p(self) -> f64 {
        if self.error > 0.0 {
            student_two_sided(self.difference / self.error, self.freedom)
        } else if self.difference == 0.0 {
            1.0
        } else {
            0.0
        }
    }

    /// Returns the interval that does not contain the true difference with probability `alpha`.
    pub fn interval(self, alpha: f64) -> Interval {
        MeanEstimate {
            mean: self.difference,
            error: self.error,
            freedom: self.freedom,
        }
        .interval(alpha)
    }

    /// Returns the smallest difference that four of five such tests would detect at this `alpha` (a power of
    /// 80 %).
    pub fn detectable(self, alpha: f64) -> f64 {
        const POWER: f64 = 0.8;
        let steps = student_quantile(1.0 - alpha / 2.0, self.freedom)
            + student_quantile(POWER, self.freedom);
        if self.error > 0.0 {
            steps * self.error
        } else {
            0.0
        }
    }
}

/// Returns the significance level of each of several tests, such that all tests together report a nonexistent
/// difference in at most 5 of 100 cases (Holm 1979). The smallest p of m is compared with 5 % / m, the next
/// with 5 % / (m - 1), and so on. After the first failure, all remaining tests have the same level as the
/// failed one. A confidence interval at this level excludes 0 exactly if the test passes.
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

// The growth of a rate with the number of clients or the depth: the universal scalability law (Gunther 1993).
//
// ```text
//                     λ N
//   X(N) = ─────────────────────────
//          1 + σ (N - 1) + κ N (N - 1)
// ```
//
// λ is the rate of one client, σ the serial share of the work (such as a target's single thread), and κ the
// cost of coherency between clients (such as a contended lock). If κ is above 0, the rate has a peak, after
// which it falls.

/// A fit of the universal scalability law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalability {
    /// λ: the rate of one client.
    pub one: f64,
    /// σ: contention; 0 if the rate is proportional to the number.
    pub contention: f64,
    /// κ: coherency; if it is above 0, the rate eventually falls as the number grows.
    pub coherency: f64,
    /// The root mean square distance of the points from the curve, in percent of the curve. With only three
    /// points, a good fit is not evidence for the law.
    pub off_percent: f64,
}

/// Fits the law to points (N, rate), by least squares of N / X, which is a parabola in N. The points are
/// weighted so that equal relative errors count equally. None of the three parameters may be negative.
/// Returns `None` for fewer than three different N.
pub fn scalability(points: &[(f64, f64)]) -> Option<Scalability> {
    let usable: Vec<(f64, f64)> = points
        .iter()
        .copied()
        .filter(|(n, x)| n.is_finite() && *n >= 1.0 && x.is_normal() && *x > 0.0)
        .collect();
    let mut places: Vec<f64> = usable.iter().map(|(n, _)| *n).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    if places.len() < 3 {
        return None;
    }
    // The best fit without negative parameters is the best of the fits in which some parameters are fixed at
    // 0.
    let fits =
        [[true, true], [true, false], [false, true], [false, false]].map(|free| fit(&usable, free));
    fits.into_iter()
        .flatten()
        .min_by(|one, other| one.off_percent.total_cmp(&other.off_percent))
}

impl Scalability {
    /// Returns X(N).
    pub fn at(&self, n: f64) -> f64 {
        self.one * n / (1.0 + self.contention * (n - 1.0) + self.coherency * n * (n - 1.0))
    }

    /// Returns N*, at which the rate is highest: sqrt((1 - σ) / κ), or 1 if the rate does not rise at all.
    /// Returns `None` if the rate never falls.
    ///
    /// The slope of X(N) has the sign of 1 - σ - κN². If σ is 1 or more, the rate falls from the first client
    /// on, even without cost of coordination.
    pub fn peak(&self) -> Option<f64> {
        if self.contention >= 1.0 {
            return Some(1.0);
        }
        (self.coherency > 0.0).then(|| ((1.0 - self.contention) / self.coherency).sqrt().max(1.0))
    }

    fn off_percent(&self, points: &[(f64, f64)]) -> f64 {
        let squares = points.iter().map(|(n, x)| (x / self.at(*n) - 1.0).powi(2));
        100.0 * (squares.sum::<f64>() / points.len() as f64).sqrt()
    }
}

/// Fits N / X = a + b (N - 1) + c N (N - 1) by weighted least squares. b and c are 0 unless they are `free`.
/// Returns `None` if a parameter would be negative.
fn fit(points: &[(f64, f64)], free: [bool; 2]) -> Option<Scalability> {
    let mut normal = [[0.0; 4]; 3];
    for (n, x) in points {
        let y = n / x;
        let terms = [
            1.0,
            if free[0] { n - 1.0 } else { 0.0 },
            if free[1] { n * (n - 1.0) } else { 0.0 },
        ];
        for (row, term) in normal.iter_mut().zip(terms) {
            row.iter_mut()
                .zip(terms)
                .for_each(|(sum, other)| *sum += term * other / (y * y));
            row[3] += term / y;
        }
    }
    // For each parameter that is fixed at 0, an equation sets the parameter to 0.
    (0..2)
        .filter(|&number| !free[number])
        .for_each(|number| normal[number + 1][number + 1] = 1.0);
    let [a, b, c] = solve(normal)?;
    if a <= 0.0 || b < 0.0 || c < 0.0 {
        return None;
    }
    let law = Scalability {
        one: 1.0 / a,
        contention: b / a,
        coherency: c / a,
        off_percent: 0.0,
    };
    Some(Scalability {
        off_percent: law.off_percent(points),
        ..law
    })
}

/// Solves three linear equations by elimination with the largest pivot. The right side of each equation is
/// its last number.
fn solve(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3).max_by(|&one, &other| {
            rows[one][column]
                .abs()
                .total_cmp(&rows[other][column].abs())
        })?;
        rows.swap(column, pivot);
        let lead = rows[column];
        if lead[column].abs() < f64::MIN_POSITIVE {
            return None;
        }
        for row in (0..3).filter(|&row| row != column) {
            let factor = rows[row][column] / lead[column];
            rows[row]
                .iter_mut()
                .zip(lead)
                .for_each(|(value, of_lead)| *value -= factor * of_lead);
        }
    }
    Some([0, 1, 2].map(|row| rows[row][3] / rows[row][row]))
}

/// A line: y = `at_zero` + `slope` x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FittedLine {
    /// The value of y at x = 0.
    pub at_zero: f64,
    /// The increase of y when x increases by 1.
    pub slope: f64,
}

/// Returns the line with the smallest sum of squared distances in y. The line is flat if all x are equal.
/// Returns `None` without points.
pub fn line(points: &[(f64, f64)]) -> Option<FittedLine> {
    if points.is_empty() {
        return None;
    }
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (x_mean, y_mean) = (mean(&xs), mean(&ys));
    let together: f64 = points
        .iter()
        .map(|(x, y)| (x - x_mean) * (y - y_mean))
        .sum();
    let squares: f64 = xs.iter().map(|x| (x - x_mean).powi(2)).sum();
    let slope = if squares > 0.0 {
        together / squares
    } else {
        0.0
    };
    Some(FittedLine {
        at_zero: y_mean - slope * x_mean,
        slope,
    })
}

/// Returns the average number of outstanding requests: the rate per second times the mean latency in seconds.
pub fn little(per_second: f64, latency_s: f64) -> f64 {
    per_second * latency_s
}

/// Returns the average number of outstanding requests if all `depth` requests drain after every
/// `transactions` and then start again, as in Iometer's "test connection rate" (`IOGrunt.cpp`). While a
/// connection drains, the last `depth` requests are not replaced, so `depth - 1`, `depth - 2`, … remain
/// outstanding. With Iometer's usual values of 64 and 500, the result is 59.97.
pub fn drained_mean(depth: u32, transactions: u32) -> f64 {
    let (depth, transactions) = (f64::from(depth), f64::from(transactions));
    if transactions <= depth {
        // Each batch has this number of requests, none of which is replaced, so n, n - 1, … 1 are
        // outstanding.
        return (transactions + 1.0) / 2.0;
    }
    depth - depth * (depth - 1.0) / (2.0 * transactions)
}

/// Returns Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 if all shares are equal, and 1/n if one share
/// is the total. Returns `None` if all shares are zero.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

pub mod steady {
    //! The steady state of a test's rounds, by SNIA's rule (Solid State Storage Performance Test
    //! Specification, "Steady State"). Two conditions apply to five consecutive rounds. The range of the
    //! tracked rate must be at most 20 % of its mean. The fitted line must rise or fall by at most 10 % of the
    //! mean over the whole window.

    use super::{FittedLine, line};

    /// The number of rounds in the window.
    pub const WINDOW: usize = 5;
    /// The maximum range: the highest rate minus the lowest, in percent of the mean.
    pub const RANGE_PERCENT_MAX: f64 = 20.0;
    /// The maximum excursion: the rise or fall of the fitted line from the first round of the window to the
    /// last, in percent of the mean.
    pub const EXCURSION_PERCENT_MAX: f64 = 10.0;

    /// A window of five rounds, with the values for the rule.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Window {
        /// The index of the first round.
        pub first: usize,
        /// The mean rate.
        pub mean: f64,
        /// The highest rate minus the lowest, in percent of the mean.
        pub range_percent: f64,
        /// The rise or fall of the fitted line over the window, in percent of the mean.
        pub excursion_percent: f64,
        /// The fitted line: the rate over the number of the round in the window, from 0.
        pub line: FittedLine,
    }

    /// Returns the window of the last five rounds. Returns `None` if there are fewer, or if the mean rate is
    /// zero.
    pub fn window(rates: &[f64]) -> Option<Window> {
        let first = rates.len().checked_sub(WINDOW)?;
        let last = &rates[first..];
        let mean = crate::mean(last);
        if mean <= 0.0 || !mean.is_finite() {
            return None;
        }
        let (low, high) = last.iter().fold((f64::MAX, f64::MIN), |(low, high), rate| {
            (low.min(*rate), high.max(*rate))
        });
        let points: Vec<(f64, f64)> = last
            .iter()
            .enumerate()
            .map(|(round, rate)| (round as f64, *rate))
            .collect();
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
        /// Returns whether the window satisfies the rule.
        pub fn is_steady(&self) -> bool {
            self.range_percent <= RANGE_PERCENT_MAX
                && self.excursion_percent <= EXCURSION_PERCENT_MAX
        }
    }
}

#[cfg(test)]
mod tests {
    use super::steady::window;
    use super::*;
    use crate::intervals::standard_deviation;

    fn estimate_of(values: &[f64]) -> MeanEstimate {
        let count = values.len() as f64;
        let error = standard_deviation(values) / count.sqrt();
        MeanEstimate {
            mean: mean(values),
            error,
            freedom: count - 1.0,
        }
    }

    #[test]
    fn the_test_gives_what_the_formula_does() {
        // The variances of the two groups of five values are 2.5 and 10, so t = 2 / sqrt(2.5), with 4
        // (12.5)^2 / (2.5^2 + 10^2) = 5.882 degrees of freedom.
        let welch = welch(
            estimate_of(&[1.0, 2.0, 3.0, 4.0, 5.0]),
            estimate_of(&[1.0, 3.0, 5.0, 7.0, 9.0]),
        );
        assert_eq!(welch.difference, 2.0);
        assert!((welch.error - 2.5f64.sqrt()).abs() < 1e-12, "{welch:?}");
        assert!(
            (welch.freedom - 4.0 * 156.25 / 106.25).abs() < 1e-9,
            "{welch:?}"
        );
        assert!(
            welch.interval(welch.p()).low.abs() < 1e-9,
            "at the level of p, 0 is the end of the interval"
        );
    }

    #[test]
    fn means_without_error_differ_or_do_not() {
        assert_eq!(
            welch(estimate_of(&[2.0, 2.0]), estimate_of(&[2.0, 2.0])).p(),
            1.0
        );
        assert_eq!(
            welch(estimate_of(&[2.0, 2.0]), estimate_of(&[3.0, 3.0])).p(),
            0.0
        );
    }

    #[test]
    fn what_is_detectable_is_more_than_what_is_significant() {
        let welch = welch(
            estimate_of(&[99.0, 101.0, 100.0]),
            estimate_of(&[99.5, 100.5, 100.0]),
        );
        assert!(welch.detectable(ALPHA) > welch.interval(ALPHA).half());
    }

    #[test]
    fn holm_grows_milder_with_each_test_that_passes() {
        let levels = holm(&[0.2, 0.001, 0.02]);
        assert_eq!(levels, [ALPHA, ALPHA / 3.0, ALPHA / 2.0]);
        // The second test fails at 5 % / 2, so the third has the same level.
        assert_eq!(
            holm(&[0.04, 0.001, 0.03]),
            [ALPHA / 2.0, ALPHA / 3.0, ALPHA / 2.0]
        );
        assert!(holm(&[]).is_empty());
    }

    fn law(contention: f64, coherency: f64) -> Scalability {
        Scalability {
            one: 995.6,
            contention,
            coherency,
            off_percent: 0.0,
        }
    }

    fn points(law: &Scalability) -> Vec<(f64, f64)> {
        [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
            .map(|n| (n, law.at(n)))
            .to_vec()
    }

    #[test]
    fn a_curve_of_the_law_is_found_again() {
        // The parameters are typical of fits to real systems: a contention of a few percent, and a coherency
        // of a few parts in ten thousand.
        let known = law(0.0267, 0.000_769);
        let found = scalability(&points(&known)).unwrap();
        assert!(
            (found.contention - known.contention).abs() < 1e-9,
            "{found:?}"
        );
        assert!(
            (found.coherency - known.coherency).abs() < 1e-9,
            "{found:?}"
        );
        assert!(
            (found.one - 995.6).abs() < 1e-6 && found.off_percent < 1e-6,
            "{found:?}"
        );
        assert!(
            (found.peak().unwrap() - 35.576).abs() < 0.01,
            "{:?}",
            found.peak()
        );
    }

    #[test]
    fn what_grows_without_end_has_no_peak() {
        let found = scalability(&points(&law(0.0, 0.0))).unwrap();
        assert!(found.contention.abs() < 1e-9, "{found:?}");
        assert!(found.peak().is_none_or(|peak| peak > 1e4), "{found:?}");
        let amdahl = scalability(&points(&law(0.2, 0.0))).unwrap();
        assert!((amdahl.contention - 0.2).abs() < 1e-6, "{amdahl:?}");
    }

    #[test]
    fn a_rate_that_falls_from_the_first_client_has_its_peak_there() {
        let found = scalability(&[(1.0, 101.0), (2.0, 51.8), (3.0, 50.9)]).unwrap();
        assert!(
            found.contention > 1.0 && found.coherency == 0.0,
            "{found:?}"
        );
        assert_eq!(found.peak(), Some(1.0), "{found:?}");
    }

    #[test]
    fn more_than_in_proportion_is_no_negative_contention() {
        let found = scalability(&[(1.0, 100.0), (2.0, 230.0), (3.0, 380.0)]).unwrap();
        assert_eq!((found.contention, found.coherency), (0.0, 0.0));
        assert!(found.off_percent > 5.0, "{found:?}");
    }

    #[test]
    fn noise_of_some_per_cent_moves_the_peak_a_little() {
        let known = law(0.05, 0.005);
        let noisy: Vec<(f64, f64)> = points(&known)
            .iter()
            .zip([1.02, 0.98, 1.01, 0.99, 1.02, 0.98])
            .map(|((n, x), off)| (*n, x * off))
            .collect();
        let (found, known) = (
            scalability(&noisy).unwrap().peak().unwrap(),
            known.peak().unwrap(),
        );
        assert!((found / known - 1.0).abs() < 0.15, "{found} and {known}");
    }

    #[test]
    fn two_points_are_no_curve() {
        assert_eq!(scalability(&[(1.0, 10.0), (2.0, 20.0), (2.0, 21.0)]), None);
        assert_eq!(scalability(&[(1.0, 10.0), (2.0, 0.0), (0.0, 5.0)]), None);
    }

    #[test]
    fn points_on_a_line_give_the_line() {
        let points: Vec<(f64, f64)> = (0..5).map(f64::from).map(|x| (x, 3.0 - 2.0 * x)).collect();
        assert_eq!(
            line(&points),
            Some(FittedLine {
                at_zero: 3.0,
                slope: -2.0
            })
        );
    }

    #[test]
    fn the_squares_are_least() {
        // In R, lm(c(1, 3, 2, 5) ~ c(0, 1, 2, 3)) is 1.1 + 1.1 x.
        let fit = line(&[(0.0, 1.0), (1.0, 3.0), (2.0, 2.0), (3.0, 5.0)]).unwrap();
        assert!(
            (fit.at_zero - 1.1).abs() < 1e-12 && (fit.slope - 1.1).abs() < 1e-12,
            "{fit:?}"
        );
    }

    #[test]
    fn a_single_place_has_no_slope() {
        assert_eq!(
            line(&[(2.0, 1.0), (2.0, 3.0)]),
            Some(FittedLine {
                at_zero: 2.0,
                slope: 0.0
            })
        );
        assert_eq!(line(&[]), None);
    }

    #[test]
    fn a_connection_that_drains_holds_less_than_its_depth() {
        assert!((drained_mean(64, 500) - 59.968).abs() < 1e-9);
        assert_eq!(drained_mean(1, 500), 1.0);
        assert_eq!(drained_mean(8, 8), 4.5);
        assert_eq!(drained_mean(8, 4), 2.5);
    }

    #[test]
    fn a_thousand_a_second_of_two_milliseconds_are_two_at_once() {
        assert_eq!(little(1000.0, 0.002), 2.0);
    }

    #[test]
    fn equal_shares_are_fair_and_one_taker_is_not() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[9.0, 0.0, 0.0]), Some(1.0 / 3.0));
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    #[test]
    fn the_index_does_not_depend_on_the_unit() {
        let (rates, kilo) = ([3.0, 1.0, 2.0], [3000.0, 1000.0, 2000.0]);
        assert!((jain(&rates).unwrap() - jain(&kilo).unwrap()).abs() < 1e-12);
        // The index is (3 + 1 + 2)^2 / (3 * (9 + 1 + 4)).
        assert!((jain(&rates).unwrap() - 36.0 / 42.0).abs() < 1e-12);
    }

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
        // The mean is 100 and the line is nearly flat, so only the range decides.
        assert!(is_steady(&[100.0, 110.0, 100.0, 90.0, 100.0]));
        assert!(!is_steady(&[100.0, 111.0, 100.0, 89.0, 100.0]));
    }

    #[test]
    fn a_slope_of_a_tenth_over_the_window_is_allowed_and_no_more() {
        assert!(is_steady(&[95.0, 97.5, 100.0, 102.5, 105.0]));
        assert!(!is_steady(&[94.0, 97.0, 100.0, 103.0, 106.0]));
        let window = window(&[105.0, 102.5, 100.0, 97.5, 95.0]).unwrap();
        assert!(
            (window.excursion_percent - 10.0).abs() < 1e-9 && window.line.slope < 0.0,
            "{window:?}"
        );
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
