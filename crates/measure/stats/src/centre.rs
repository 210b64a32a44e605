//! Mean, median and standard deviation.

/// The arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The standard deviation of what the values are a sample of (divided by n - 1); 0 for fewer than two.
pub fn standard_deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// The median; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value that a share of all does not exceed, with a straight line between neighbours (Hyndman and Fan's
/// type 7, what R and NumPy do unless told otherwise); 0 of nothing.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (at - at.floor()) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_centre_and_no_scatter() {
        assert_eq!((mean(&[]), median(&[]), standard_deviation(&[1.0])), (0.0, 0.0, 0.0));
    }

    #[test]
    fn one_wild_run_moves_the_mean_and_not_the_median() {
        let rates = [100.0, 101.0, 99.0, 100.5, 10.0];
        assert_eq!(median(&rates), 100.0);
        assert!(mean(&rates) < 83.0);
    }

    #[test]
    fn quantiles_are_those_of_r() {
        // quantile(c(1, 2, 4, 8), c(0, .25, .5, .9, 1), type = 7)
        let values = [8.0, 1.0, 4.0, 2.0];
        let quantiles = [0.0, 0.25, 0.5, 0.9, 1.0].map(|share| quantile(&values, share));
        assert!(
            quantiles.iter().zip([1.0, 1.75, 3.0, 6.8, 8.0]).all(|(one, other)| (one - other).abs() < 1e-12)
        );
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        // sd(c(2, 4, 4, 4, 5, 5, 7, 9)) in R
        let deviation = standard_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert!((deviation - 2.138_089_935_299_395).abs() < 1e-12);
    }
}
