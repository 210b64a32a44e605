//! The confidence interval of the median of a few runs.
//!
//! Without any assumption, the smallest and the largest of n runs have the median between them with the
//! chance 1 - 2^(1 - n): 75 % for 3 runs, 93.75 % for 5, and 95 % is reached with 6. For fewer, something has
//! to be assumed, and it is that runs scatter normally: then mean and median are the same, and Student's
//! interval of the mean covers it in 95 of 100 cases, at the price of being wide (2.48 standard deviations to
//! each side for 3 runs, 1.24 for 5).

use statrs::distribution::{Binomial, DiscreteCDF as _};

use super::{ALPHA, Interval, MeanEstimate, mean, median, standard_deviation};

/// The 95 % interval of the median: between two of the runs if there are at least 6, by Student's
/// distribution (and around the median in any case) if there are 2 to 5, and `None` for fewer.
pub fn median_interval(runs: &[f64]) -> Option<Interval> {
    match runs.len() {
        0 | 1 => None,
        2..RUNS_FOR_ORDER => Some(by_student(runs)),
        _ => Some(by_order(runs)),
    }
}

/// The chance that the median lies between the `inner`-th smallest and the `inner`-th largest of so many
/// runs, whatever their distribution. `inner` counts from 1.
pub fn median_coverage(runs: usize, inner: usize) -> f64 {
    // The median is below the k-th smallest if fewer than k runs are below it: P(Binomial(n, 1/2) < k) on
    // each side.
    let below = Binomial::new(0.5, runs as u64).map_or(0.0, |below| below.cdf(inner as u64 - 1));
    1.0 - 2.0 * below
}

const RUNS_FOR_ORDER: usize = 6;

fn by_student(runs: &[f64]) -> Interval {
    let count = runs.len() as f64;
    let error = standard_deviation(runs) / count.sqrt();
    MeanEstimate { mean: mean(runs), error, freedom: count - 1.0 }.interval(ALPHA).with(median(runs))
}

fn by_order(runs: &[f64]) -> Interval {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let enough = |inner: &usize| median_coverage(runs.len(), *inner) >= 1.0 - ALPHA;
    let inner = (1..=runs.len() / 2).take_while(enough).last().unwrap_or(1);
    Interval { low: sorted[inner - 1], high: sorted[runs.len() - inner] }
}

#[cfg(test)]
mod tests {
    use super::super::series::tests::normal;
    use super::*;
    use testkit::Random;

    #[test]
    fn one_run_does_not_say_how_far_it_may_be_off() {
        assert_eq!(median_interval(&[5.0]), None);
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn order_alone_gives_95_percent_from_six_runs_on() {
        let coverages = [(3, 0.75), (5, 0.9375), (6, 0.96875)];
        for (runs, known) in coverages {
            assert!((median_coverage(runs, 1) - known).abs() < 1e-12, "{runs}: {}", median_coverage(runs, 1));
        }
        // The printed tables have the 2nd and the 9th of 10 at 97.9 %, the 6th and the 15th of 20 at 95.9 %.
        assert!((median_coverage(10, 2) - 0.978_515_625).abs() < 1e-12);
        assert!((median_coverage(20, 6) - 0.958_610_5).abs() < 1e-6);
    }

    #[test]
    fn many_runs_leave_out_the_wild_ones() {
        let mut runs: Vec<f64> = (0..19).map(f64::from).collect();
        runs.push(1e9);
        assert_eq!(median_interval(&runs), Some(Interval { low: 5.0, high: 14.0 }));
    }

    #[test]
    fn the_median_lies_in_its_interval_even_if_one_run_is_far_off() {
        let interval = median_interval(&[100.0, 100.0, 100.0, 100.0, 10.0]).unwrap();
        assert!(interval.contains(100.0), "{interval:?}");
    }

    #[test]
    fn intervals_of_few_runs_cover_as_often_as_they_promise() {
        let mut random = Random::new(2);
        for count in [2, 3, 5, 6, 10] {
            let covered = (0..2000)
                .filter(|_| {
                    let runs: Vec<f64> = (0..count).map(|_| 100.0 + normal(&mut random)).collect();
                    median_interval(&runs).unwrap().contains(100.0)
                })
                .count();
            assert!(covered >= 1870, "{count} runs: {covered} of 2000");
        }
    }
}
