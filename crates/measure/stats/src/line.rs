//! Linear regression.

use super::mean;

/// y = `at_zero` + `slope` x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FittedLine {
    /// y where x is 0.
    pub at_zero: f64,
    /// How much y rises when x does by 1.
    pub slope: f64,
}

/// The line with the least sum of squared distances in y; flat if all x are the same, `None` through nothing.
pub fn line(points: &[(f64, f64)]) -> Option<FittedLine> {
    if points.is_empty() {
        return None;
    }
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (x_mean, y_mean) = (mean(&xs), mean(&ys));
    let together: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let squares: f64 = xs.iter().map(|x| (x - x_mean).powi(2)).sum();
    let slope = if squares > 0.0 { together / squares } else { 0.0 };
    Some(FittedLine { at_zero: y_mean - slope * x_mean, slope })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_give_the_line() {
        let points: Vec<(f64, f64)> = (0..5).map(f64::from).map(|x| (x, 3.0 - 2.0 * x)).collect();
        assert_eq!(line(&points), Some(FittedLine { at_zero: 3.0, slope: -2.0 }));
    }

    #[test]
    fn the_squares_are_least() {
        // lm(c(1, 3, 2, 5) ~ c(0, 1, 2, 3)): 1.1 + 1.1 x
        let fit = line(&[(0.0, 1.0), (1.0, 3.0), (2.0, 2.0), (3.0, 5.0)]).unwrap();
        assert!((fit.at_zero - 1.1).abs() < 1e-12 && (fit.slope - 1.1).abs() < 1e-12, "{fit:?}");
    }

    #[test]
    fn a_single_place_has_no_slope() {
        assert_eq!(line(&[(2.0, 1.0), (2.0, 3.0)]), Some(FittedLine { at_zero: 2.0, slope: 0.0 }));
        assert_eq!(line(&[]), None);
    }
}
