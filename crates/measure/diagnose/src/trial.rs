//! What came of trying a change.

use super::Confirmed;
use stats::{median, median_interval};

/// From rounds in pairs, the first of each without the change and the second with it, one right behind the other: the
/// median of their ratios, and its 95 % interval. What drifts while all this is measured changes both rounds of a pair.
///
/// `None` if fewer than three pairs say anything: a round in which nothing got through has no ratio.
pub fn confirmed(pairs: &[(f64, f64)]) -> Option<Confirmed> {
    // Ratios scatter evenly around their median only as logarithms.
    let logs: Vec<f64> =
        pairs.iter().map(|(without, with)| (with / without).ln()).filter(|log| log.is_finite()).collect();
    if logs.len() < PAIRS_MIN {
        return None;
    }
    let interval = median_interval(&logs)?;
    Some(Confirmed { ratio: median(&logs).exp(), low: interval.low.exp(), high: interval.high.exp() })
}

const PAIRS_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_in_which_nothing_got_through_have_no_ratio() {
        assert_eq!(confirmed(&[]), None);
        assert_eq!(confirmed(&[(0.0, 5.0), (0.0, 5.0), (0.0, 5.0), (1.0, 0.0)]), None);
        assert_eq!(confirmed(&[(1.0, 2.0), (1.0, 2.0)]), None);
    }

    #[test]
    fn a_drift_that_both_rounds_of_a_pair_share_is_not_in_the_ratio() {
        let pairs: Vec<(f64, f64)> = (1..=7).map(|n| (f64::from(n), 1.5 * f64::from(n))).collect();
        let tried = confirmed(&pairs).expect("seven pairs");
        for end in [tried.ratio, tried.low, tried.high] {
            assert!((end - 1.5).abs() < 1e-9, "{tried:?}");
        }
    }

    #[test]
    fn one_pair_that_went_wrong_moves_neither_the_ratio_nor_much_of_the_interval() {
        let mut pairs =
            vec![(10.0, 19.0), (10.0, 20.0), (10.0, 21.0), (10.0, 19.5), (10.0, 20.5), (10.0, 20.0)];
        pairs.extend([(10.0, 20.2), (10.0, 19.8), (10.0, 1.0)]);
        let tried = confirmed(&pairs).expect("nine pairs");
        assert!((1.95..2.05).contains(&tried.ratio) && tried.low > 1.85 && tried.high < 2.15, "{tried:?}");
    }
}
