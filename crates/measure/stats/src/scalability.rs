//! How a rate grows with clients or depth: the universal scalability law (Gunther 1993).
//!
//! ```text
//!                     λ N
//!   X(N) = ─────────────────────────
//!          1 + σ (N - 1) + κ N (N - 1)
//! ```
//!
//! λ is the rate of one client, σ the serial share of the work (a target's single thread), κ the cost of
//! coherency between clients (a contended lock). With κ above 0 the rate has a peak, and falls after it.

/// A fit of the law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalability {
    /// λ: the rate of one.
    pub one: f64,
    /// σ: contention, 0 if twice as many give twice as much.
    pub contention: f64,
    /// κ: coherency; above 0 more become slower than fewer.
    pub coherency: f64,
    /// How far the points are from the curve, root mean square, in percent of the curve. With three points a
    /// curve may go through all of them whatever they are.
    pub off_percent: f64,
}

/// Fits the law to points (N, rate), by least squares of N / X, which is a parabola in N, each point weighed
/// so that equal errors in percent count the same; none of the three numbers may be negative. `None` for
/// fewer than three different N.
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
    // The best without a negative number is the best of those where some of them are held at 0.
    let fits = [[true, true], [true, false], [false, true], [false, false]].map(|free| fit(&usable, free));
    fits.into_iter().flatten().min_by(|one, other| one.off_percent.total_cmp(&other.off_percent))
}

impl Scalability {
    /// X(N).
    pub fn at(&self, n: f64) -> f64 {
        self.one * n / (1.0 + self.contention * (n - 1.0) + self.coherency * n * (n - 1.0))
    }

    /// N*, where the rate is highest: sqrt((1 - σ) / κ). `None` if it grows on.
    pub fn peak(&self) -> Option<f64> {
        (self.coherency > 0.0).then(|| ((1.0 - self.contention).max(0.0) / self.coherency).sqrt().max(1.0))
    }

    fn off_percent(&self, points: &[(f64, f64)]) -> f64 {
        let squares = points.iter().map(|(n, x)| (x / self.at(*n) - 1.0).powi(2));
        100.0 * (squares.sum::<f64>() / points.len() as f64).sqrt()
    }
}

/// The weighted least squares of N / X = a + b (N - 1) + c N (N - 1), with b and c at 0 where they are not
/// free. `None` if a number came out negative.
fn fit(points: &[(f64, f64)], free: [bool; 2]) -> Option<Scalability> {
    let mut normal = [[0.0; 4]; 3];
    for (n, x) in points {
        let y = n / x;
        let terms = [1.0, if free[0] { n - 1.0 } else { 0.0 }, if free[1] { n * (n - 1.0) } else { 0.0 }];
        for (row, term) in normal.iter_mut().zip(terms) {
            row.iter_mut().zip(terms).for_each(|(sum, other)| *sum += term * other / (y * y));
            row[3] += term / y;
        }
    }
    // What is held at 0 gets an equation that says so.
    (0..2).filter(|&number| !free[number]).for_each(|number| normal[number + 1][number + 1] = 1.0);
    let [a, b, c] = solve(normal)?;
    if a <= 0.0 || b < 0.0 || c < 0.0 {
        return None;
    }
    let law = Scalability { one: 1.0 / a, contention: b / a, coherency: c / a, off_percent: 0.0 };
    Some(Scalability { off_percent: law.off_percent(points), ..law })
}

/// Three linear equations, each with its right side last, by elimination with the largest pivot.
fn solve(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3)
            .max_by(|&one, &other| rows[one][column].abs().total_cmp(&rows[other][column].abs()))?;
        rows.swap(column, pivot);
        let lead = rows[column];
        if lead[column].abs() < f64::MIN_POSITIVE {
            return None;
        }
        for row in (0..3).filter(|&row| row != column) {
            let factor = rows[row][column] / lead[column];
            rows[row].iter_mut().zip(lead).for_each(|(value, of_lead)| *value -= factor * of_lead);
        }
    }
    Some([0, 1, 2].map(|row| rows[row][3] / rows[row][row]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(contention: f64, coherency: f64) -> Scalability {
        Scalability { one: 995.6, contention, coherency, off_percent: 0.0 }
    }

    fn points(law: &Scalability) -> Vec<(f64, f64)> {
        [1.0, 2.0, 4.0, 8.0, 16.0, 32.0].map(|n| (n, law.at(n))).to_vec()
    }

    #[test]
    fn a_curve_of_the_law_is_found_again() {
        // Numbers as they are fitted to real systems: contention of some per cent, coherency of some in ten
        // thousand.
        let known = law(0.0267, 0.000_769);
        let found = scalability(&points(&known)).unwrap();
        assert!((found.contention - known.contention).abs() < 1e-9, "{found:?}");
        assert!((found.coherency - known.coherency).abs() < 1e-9, "{found:?}");
        assert!((found.one - 995.6).abs() < 1e-6 && found.off_percent < 1e-6, "{found:?}");
        assert!((found.peak().unwrap() - 35.576).abs() < 0.01, "{:?}", found.peak());
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
        let (found, known) = (scalability(&noisy).unwrap().peak().unwrap(), known.peak().unwrap());
        assert!((found / known - 1.0).abs() < 0.15, "{found} and {known}");
    }

    #[test]
    fn two_points_are_no_curve() {
        assert_eq!(scalability(&[(1.0, 10.0), (2.0, 20.0), (2.0, 21.0)]), None);
        assert_eq!(scalability(&[(1.0, 10.0), (2.0, 0.0), (0.0, 5.0)]), None);
    }
}
