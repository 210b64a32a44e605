//! Property tests.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Generates rates as in measurements: nonnegative, and below the maximum of any machine.
fn rates(least: usize) -> impl Strategy<Value = Vec<f64>> {
    vec(0.0..1e9f64, least..60)
}

proptest! {
    #[test]
    fn a_quantile_lies_among_the_values_and_rises_with_its_share(
        values in rates(1), one in 0.0..1.0f64, other in 0.0..1.0f64
    ) {
        let (low, high) = (one.min(other), one.max(other));
        prop_assert!(quantile(&values, 0.0) <= quantile(&values, low));
        prop_assert!(quantile(&values, low) <= quantile(&values, high) * (1.0 + 1e-12));
        prop_assert!(quantile(&values, high) <= quantile(&values, 1.0) * (1.0 + 1e-12));
    }

    #[test]
    fn fairness_is_between_one_taker_and_equal_shares(shares in rates(1)) {
        if let Some(index) = jain(&shares) {
            prop_assert!(index <= 1.0 + 1e-12 && index >= 1.0 / shares.len() as f64 - 1e-12, "{index}");
        }
    }

    #[test]
    fn the_interval_of_a_median_holds_it(runs in rates(2)) {
        let interval = median_interval(&runs).expect("an interval");
        prop_assert!(interval.contains(median(&runs)), "{interval:?}");
    }

    #[test]
    fn the_interval_of_a_series_grows_with_its_scale_and_not_with_its_place(
        samples in rates(2), times in 1.0..100.0f64
    ) {
        let error = |samples: &[f64]| series_mean(samples).expect("two samples").error;
        let scaled: Vec<f64> = samples.iter().map(|sample| sample * times).collect();
        let known = error(&samples) * times;
        prop_assert!((error(&scaled) - known).abs() <= 1e-6 * known, "{} and {known}", error(&scaled));
        prop_assert!(autocorrelation_time(&samples) >= 1.0);
    }

    #[test]
    fn a_surer_interval_is_wider(
        error in 1e-3..1e3f64, freedom in 1.0..1e3f64, one in 1e-4..0.5f64, other in 1e-4..0.5f64
    ) {
        let estimate = MeanEstimate { mean: 0.0, error, freedom };
        let (sure, surer) = (one.max(other), one.min(other));
        prop_assert!(estimate.interval(surer).half() >= estimate.interval(sure).half());
    }

    #[test]
    fn a_test_passes_exactly_where_its_interval_leaves_zero_out(
        difference in -10.0..10.0f64, error in 0.01..10.0f64, freedom in 1.0..100.0f64, alpha in 1e-4..0.2f64,
    ) {
        let test = Welch { difference, error, freedom };
        // At the threshold itself, rounding decides, so exclude it.
        prop_assume!((test.p() - alpha).abs() > 1e-9);
        prop_assert_eq!(test.p() <= alpha, !test.interval(alpha).contains(0.0));
    }

    #[test]
    fn no_curve_has_a_negative_number_in_it(points in vec((1.0..64.0f64, 1.0..1e6f64), 3..10)) {
        if let Some(law) = scalability(&points) {
            prop_assert!(law.one > 0.0 && law.contention >= 0.0 && law.coherency >= 0.0, "{law:?}");
            prop_assert!(law.peak().is_none_or(|peak| peak >= 1.0));
        }
    }

    #[test]
    fn holm_is_never_stricter_than_bonferroni_nor_milder_than_one_test(ps in vec(0.0..1.0f64, 1..30)) {
        let strictest = ALPHA / ps.len() as f64;
        prop_assert!(holm(&ps).iter().all(|level| (strictest..=ALPHA).contains(level)));
    }
}
