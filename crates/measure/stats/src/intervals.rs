//! Means, medians and quantiles with their confidence intervals: by Student's distribution, by order
//! statistics for a few repeats of a run, and with a correction for autocorrelation for time series.

use statrs::distribution::{Binomial, DiscreteCDF as _};
use statrs::function::beta::checked_beta_reg;

use crate::ALPHA;

/// Returns the arithmetic mean, or 0 if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

/// Returns the sample standard deviation (with divisor n - 1), or 0 for fewer than two values.
pub fn standard_deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Returns the median, or 0 if there are no values.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns the value that a share of all values does not exceed, with linear interpolation (type 7 of Hyndman
/// and Fan, the default of R and NumPy). Returns 0 if there are no values.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (at - at.floor()) * (sorted[above] - sorted[below])
}

/// An interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A mean with its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanEstimate {
    /// The mean.
    pub mean: f64,
    /// The standard error of the mean.
    pub error: f64,
    /// The degrees of freedom of the error in Student's distribution. This is not always an integer.
    pub freedom: f64,
}

impl Interval {
    /// Returns half of the width.
    pub fn half(self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Returns half of the width in percent of a value; infinite if the value is 0.
    pub fn half_percent_of(self, value: f64) -> f64 {
        if value == 0.0 {
            f64::INFINITY
        } else {
            100.0 * self.half() / value.abs()
        }
    }

    /// Returns whether the interval contains a value.
    pub fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Returns the smallest interval that contains this interval and a value.
    pub fn with(self, value: f64) -> Interval {
        Interval {
            low: self.low.min(value),
            high: self.high.max(value),
        }
    }
}

impl MeanEstimate {
    /// Returns the interval that does not contain the true mean with probability `alpha`.
    pub fn interval(self, alpha: f64) -> Interval {
        let half = student_quantile(1.0 - alpha / 2.0, self.freedom) * self.error;
        Interval {
            low: self.mean - half,
            high: self.mean + half,
        }
    }
}

/// Returns the probability that a value of Student's distribution with these degrees of freedom is farther
/// from 0 than `t`, in either direction.
pub fn student_two_sided(t: f64, freedom: f64) -> f64 {
    if freedom.is_nan() || freedom <= 0.0 || t.is_nan() {
        return 1.0;
    }
    // With more degrees of freedom, the distribution equals the normal distribution to six digits.
    let freedom = freedom.min(1e6);
    checked_beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t * t)).unwrap_or(1.0)
}

/// Returns the value that t does not exceed with probability `share`, for example 2.776 for 0.975 and 4
/// degrees of freedom. Returns infinity if there are no degrees of freedom. The value is found by bisection,
/// because the inverse in statrs has an error of 10^-4 for a million degrees of freedom.
pub fn student_quantile(share: f64, freedom: f64) -> f64 {
    if share < 0.5 {
        return -student_quantile(1.0 - share, freedom);
    }
    if freedom.is_nan() || freedom <= 0.0 || share >= 1.0 {
        return f64::INFINITY;
    }
    let beyond = 2.0 * (1.0 - share);
    let (mut low, mut high) = (0.0, 1.0);
    while student_two_sided(high, freedom) > beyond && high < 1e300 {
        (low, high) = (high, 2.0 * high);
    }
    // Each step halves the interval. After 60 steps, its ends are adjacent floating-point numbers.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if student_two_sided(middle, freedom) > beyond {
            low = middle
        } else {
            high = middle
        }
    }
    high
}

// The confidence interval of the median of a few runs.
//
// Without any assumption about the distribution, the true median lies between the smallest and the largest of
// n runs with probability 1 - 2^(1 - n): 75 % for 3 runs, 93.75 % for 5, and at least 95 % from 6 runs. For
// fewer runs, a normal distribution is assumed. Mean and median are then the same, and Student's interval of
// the mean contains the median in 95 of 100 cases. This interval is wide: 2.48 standard deviations to each
// side for 3 runs, and 1.24 for 5.

/// Returns the 95 % interval of the median. With 6 or more runs, its ends are two of the runs. With 2 to 5
/// runs, it follows from Student's distribution, and is extended to include the sample median. Returns `None`
/// for fewer runs.
pub fn median_interval(runs: &[f64]) -> Option<Interval> {
    match runs.len() {
        0 | 1 => None,
        2..RUNS_FOR_ORDER => Some(by_student(runs)),
        _ => Some(by_order(runs)),
    }
}

/// Returns the probability that the true median lies between the `inner`-th smallest and the `inner`-th
/// largest of this number of runs, for any distribution. `inner` counts from 1.
pub fn median_coverage(runs: usize, inner: usize) -> f64 {
    // The median is below the k-th smallest run if fewer than k runs are below the median, which has the
    // probability P(Binomial(n, 1/2) < k). The same applies to the other side.
    let below = Binomial::new(0.5, runs as u64).map_or(0.0, |below| below.cdf(inner as u64 - 1));
    1.0 - 2.0 * below
}

const RUNS_FOR_ORDER: usize = 6;

fn by_student(runs: &[f64]) -> Interval {
    let count = runs.len() as f64;
    let error = standard_deviation(runs) / count.sqrt();
    MeanEstimate {
        mean: mean(runs),
        error,
        freedom: count - 1.0,
    }
    .interval(ALPHA)
    .with(median(runs))
}

fn by_order(runs: &[f64]) -> Interval {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let enough = |inner: &usize| median_coverage(runs.len(), *inner) >= 1.0 - ALPHA;
    let inner = (1..=runs.len() / 2).take_while(enough).last().unwrap_or(1);
    Interval {
        low: sorted[inner - 1],
        high: sorted[runs.len() - inner],
    }
}

// The mean of a time series, and its confidence interval.
//
// Consecutive rates are not independent: for example, a full cache remains full for some time. If they were
// treated as independent, the interval would be too narrow, by a factor of three if each sample keeps 0.8 of
// the deviation of the previous one. Here the variance of the mean is estimated from the autocovariances,
// summed by Geyer's initial monotone sequence (Practical Markov Chain Monte Carlo, 1992): in pairs of lags,
// as long as the pairs are positive, and none larger than the previous one. The alternative, batch means, was
// tested on AR(1) series. With ten batches, it is a few percent more accurate for independent samples. It is
// much less accurate if a batch is not much longer than the correlation: its intervals contain the mean in 61
// instead of 79 % of cases with 20 samples, and in 78 instead of 85 % with 50. The length of batches would
// also have to be known in advance, whereas the correlation is computed here.
//
// No method works for a series that is shorter than its correlation. With a lag-1 correlation of 0.9, a 95 %
// interval from 50 samples contains the mean in only 78 of 100 cases. Therefore, [`known_well_enough`] also
// requires a number of effective samples.

/// Returns the mean of a series with its error, corrected for autocorrelation. Returns `None` for fewer than
/// two samples.
pub fn series_mean(samples: &[f64]) -> Option<MeanEstimate> {
    let folded = folded(samples);
    let memory = Autocorrelation::new(&folded)?;
    let count = folded.len() as f64;
    // The estimated mean is closer to its samples than the true mean is: only a share of 1 - τ/n of the
    // variance remains.
    let variance = memory.variance * memory.time / (1.0 - memory.time / count);
    Some(MeanEstimate {
        mean: mean(samples),
        error: (variance / count).sqrt(),
        freedom: count / memory.time - 1.0,
    })
}

/// Returns the integrated autocorrelation time, in samples: this number of samples contains as much
/// information as one independent sample. The result is at least 1, since the oscillation of a series does
/// not count as additional information. It is 1 for fewer than two samples.
pub fn autocorrelation_time(samples: &[f64]) -> f64 {
    let folded = folded(samples);
    let per_fold = (samples.len() as f64 / folded.len().max(1) as f64).max(1.0);
    Autocorrelation::new(&folded).map_or(1.0, |memory| memory.time * per_fold)
}

/// Returns whether half of the 95 % interval of the mean is at most `percent` of the mean, in which case a
/// run with this stop rule may end. At least 20 samples are required, with as much information as 12
/// independent samples.
///
/// A check after each sample can stop too early, when the interval is narrow by chance. At that point, the
/// interval still contains the true mean of independent samples in 95 of 100 cases. With a lag-1 correlation
/// of 0.5, it does so in 85 cases (simulated, and checked by a test). Lower requirements would be worse: with
/// 10 samples and 8 effective ones, it does so in only 65 cases for a correlation of 0.8.
pub fn known_well_enough(samples: &[f64], percent: f64) -> bool {
    const SAMPLES_MIN: usize = 20;
    const EFFECTIVE_MIN: f64 = 12.0;
    if samples.len() < SAMPLES_MIN {
        return false;
    }
    let Some(estimate) = series_mean(samples) else {
        return false;
    };
    estimate.freedom + 1.0 >= EFFECTIVE_MIN
        && estimate.mean > 0.0
        && estimate.interval(ALPHA).half_percent_of(estimate.mean) <= percent
}

/// The variance of a series, and its autocorrelation time in samples.
struct Autocorrelation {
    variance: f64,
    time: f64,
}

impl Autocorrelation {
    fn new(samples: &[f64]) -> Option<Autocorrelation> {
        let count = samples.len();
        if count < 2 || samples.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        let mean = mean(samples);
        let distances: Vec<f64> = samples.iter().map(|sample| sample - mean).collect();
        let variance = autocovariance(&distances, 0);
        if variance <= mean * mean * f64::EPSILON {
            return Some(Autocorrelation {
                variance: 0.0,
                time: 1.0,
            });
        }
        let time = 2.0 * positive_pairs(&distances) / variance - 1.0;
        // A time longer than half of the series cannot be distinguished from a trend.
        Some(Autocorrelation {
            variance,
            time: time.clamp(1.0, count as f64 / 2.0),
        })
    }
}

fn autocovariance(distances: &[f64], lag: usize) -> f64 {
    let products = distances
        .iter()
        .zip(&distances[lag..])
        .map(|(one, other)| one * other);
    products.sum::<f64>() / distances.len() as f64
}

/// Returns Geyer's sum: the autocovariances of lags 0 and 1, 2 and 3, and so on, as long as the sums of pairs
/// are positive, and without any increase from pair to pair.
fn positive_pairs(distances: &[f64]) -> f64 {
    let lags = (0..distances.len() - 1).step_by(2);
    let pairs = lags.map(|lag| autocovariance(distances, lag) + autocovariance(distances, lag + 1));
    let falling = pairs.scan(f64::INFINITY, |before, pair| {
        *before = before.min(pair);
        Some(*before)
    });
    falling.take_while(|pair| *pair > 0.0).sum()
}

/// The maximum number of samples to process, so that a check after each sample of a long run has a low cost.
const SAMPLES_MAX: usize = 512;

/// Returns the series, with adjacent samples averaged until it is short enough. This does not change the mean
/// and the long-term correlation. At the start, the samples of an incomplete group are omitted.
fn folded(samples: &[f64]) -> Vec<f64> {
    let fold = samples.len().div_ceil(SAMPLES_MAX).max(1);
    samples[samples.len() % fold..]
        .chunks(fold)
        .map(mean)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    /// Returns approximately normally distributed numbers: sums of twelve uniform ones.
    pub(crate) fn normal(random: &mut Random) -> f64 {
        (0..12)
            .map(|_| random.next() as f64 / u64::MAX as f64)
            .sum::<f64>()
            - 6.0
    }

    /// Returns a stationary series with mean 100, in which each sample keeps a share of the previous sample's
    /// deviation.
    pub(crate) fn ar1(count: usize, keeps: f64, random: &mut Random) -> Vec<f64> {
        let mut distance = normal(random) / (1.0 - keeps * keeps).sqrt();
        let step = |_| {
            let sample = 100.0 + distance;
            distance = keeps * distance + normal(random);
            sample
        };
        (0..count).map(step).collect()
    }

    fn coverage(count: usize, keeps: f64) -> f64 {
        const SERIES: u32 = 1000;
        let mut random = Random::new(count as u64);
        let covered = (0..SERIES)
            .filter(|_| {
                let estimate = series_mean(&ar1(count, keeps, &mut random)).unwrap();
                estimate.interval(ALPHA).contains(100.0)
            })
            .count();
        covered as f64 / f64::from(SERIES)
    }

    #[test]
    fn one_sample_says_nothing_about_its_error() {
        assert_eq!(series_mean(&[]), None);
        assert_eq!(series_mean(&[5.0]), None);
        assert!(!known_well_enough(&[], 50.0));
        assert!(series_mean(&[1.0, f64::NAN, 2.0]).is_none());
    }

    #[test]
    fn a_rate_that_never_changes_is_known_after_twenty_samples() {
        assert!(!known_well_enough(&[1000.0; 19], 1.0));
        assert!(known_well_enough(&[1000.0; 20], 1.0));
        assert!(
            !known_well_enough(&[0.0; 100], 1.0),
            "nothing moves: there is no rate to be known"
        );
    }

    #[test]
    fn the_error_of_an_ar1_series_is_the_one_in_the_books() {
        // If a series keeps a share φ and has innovations of variance 1, its mean has the variance 1 / (n (1
        // - φ)^2), and its autocorrelation time is (1 + φ) / (1 - φ).
        for keeps in [0.0, 0.5, 0.8] {
            let series = ar1(50_000, keeps, &mut Random::new(5));
            let (time, known_time) = (autocorrelation_time(&series), (1.0 + keeps) / (1.0 - keeps));
            let error = series_mean(&series).unwrap().error;
            let known = 1.0 / (1.0 - keeps) / 50_000f64.sqrt();
            assert!(
                (error / known - 1.0).abs() < 0.2,
                "{keeps}: {error} and {known}"
            );
            // In such a long series, a group of 98 samples is the shortest measurable time.
            assert!(
                time < known_time.max(98.0) * 1.5,
                "{keeps}: {time} and {known_time}"
            );
        }
        let time = autocorrelation_time(&ar1(500, 0.8, &mut Random::new(9)));
        assert!((6.0..13.0).contains(&time), "9 is right, {time} was found");
    }

    #[test]
    fn intervals_cover_the_mean_as_often_as_they_promise() {
        for (count, keeps, at_least) in [
            (20, 0.0, 0.94),
            (200, 0.0, 0.94),
            (50, 0.5, 0.90),
            (200, 0.5, 0.92),
            (200, 0.8, 0.90),
        ] {
            let covered = coverage(count, keeps);
            assert!(
                covered >= at_least,
                "{count} samples that keep {keeps}: {covered}"
            );
        }
    }

    #[test]
    fn samples_that_remember_take_longer_to_be_known() {
        let samples_needed = |keeps| {
            let series = ar1(2000, keeps, &mut Random::new(3));
            (20..2000)
                .find(|&count| known_well_enough(&series[..count], 0.4))
                .unwrap()
        };
        let (independent, sticky) = (samples_needed(0.0), samples_needed(0.8));
        assert!(sticky > 3 * independent, "{independent} and {sticky}");
    }

    #[test]
    fn a_run_that_stops_when_it_knows_enough_is_seldom_wrong() {
        for (keeps, at_least) in [(0.0, 280), (0.5, 250)] {
            let mut random = Random::new(11);
            let right = (0..300)
                .filter(|_| {
                    let series = ar1(600, keeps, &mut random);
                    let stopped = (20..600)
                        .find(|&count| known_well_enough(&series[..count], 0.5))
                        .unwrap_or(600);
                    let estimate = series_mean(&series[..stopped]).unwrap();
                    estimate.interval(ALPHA).contains(100.0)
                })
                .count();
            assert!(
                right >= at_least,
                "samples that keep {keeps}: {right} of 300"
            );
        }
    }

    #[test]
    fn a_trend_is_not_taken_for_a_rate() {
        let climbing: Vec<f64> = (0..60)
            .map(|second| 1000.0 + 10.0 * f64::from(second))
            .collect();
        assert!(!known_well_enough(&climbing, 5.0));
    }

    #[test]
    fn nothing_has_no_centre_and_no_scatter() {
        assert_eq!(
            (mean(&[]), median(&[]), standard_deviation(&[1.0])),
            (0.0, 0.0, 0.0)
        );
    }

    #[test]
    fn one_wild_run_moves_the_mean_and_not_the_median() {
        let rates = [100.0, 101.0, 99.0, 100.5, 10.0];
        assert_eq!(median(&rates), 100.0);
        assert!(mean(&rates) < 83.0);
    }

    #[test]
    fn quantiles_are_those_of_r() {
        // In R: quantile(c(1, 2, 4, 8), c(0, .25, .5, .9, 1), type = 7)
        let values = [8.0, 1.0, 4.0, 2.0];
        let quantiles = [0.0, 0.25, 0.5, 0.9, 1.0].map(|share| quantile(&values, share));
        assert!(
            quantiles
                .iter()
                .zip([1.0, 1.75, 3.0, 6.8, 8.0])
                .all(|(one, other)| (one - other).abs() < 1e-12)
        );
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        // In R: sd(c(2, 4, 4, 4, 5, 5, 7, 9))
        let deviation = standard_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert!((deviation - 2.138_089_935_299_395).abs() < 1e-12);
    }

    fn close(one: f64, other: f64) {
        assert!(
            (one - other).abs() <= 1e-9 * other.abs().max(1.0),
            "{one} is not {other}"
        );
    }

    #[test]
    fn quantiles_where_they_have_a_closed_form() {
        // With one degree of freedom, this is Cauchy's distribution. With two, the quantile is 2 (p - 1/2)
        // sqrt(2 / (4 p (1 - p))).
        for share in [0.5, 0.6, 0.9, 0.975, 0.9995] {
            close(
                student_quantile(share, 1.0),
                (std::f64::consts::PI * (share - 0.5)).tan(),
            );
            close(
                student_quantile(share, 2.0),
                (2.0 * share - 1.0) * (2.0 / (4.0 * share * (1.0 - share))).sqrt(),
            );
        }
    }

    #[test]
    fn quantiles_of_the_printed_tables() {
        // The last value is 1.959964 of the normal distribution, plus the first term of the expansion in 1/n.
        let known = [
            (4.0, 2.776_445_105),
            (9.0, 2.262_157_163),
            (29.0, 2.045_229_642),
            (1e6, 1.959_966_357),
        ];
        for (freedom, value) in known {
            assert!(
                (student_quantile(0.975, freedom) - value).abs() < 1e-8,
                "{freedom}: {}",
                student_quantile(0.975, freedom)
            );
        }
    }

    #[test]
    fn quantile_and_chance_are_each_others_inverse() {
        for freedom in [0.7, 1.0, 3.5, 12.0, 250.0] {
            for share in [0.55, 0.8, 0.95, 0.999] {
                close(
                    student_two_sided(student_quantile(share, freedom), freedom),
                    2.0 * (1.0 - share),
                );
                close(
                    student_quantile(1.0 - share, freedom),
                    -student_quantile(share, freedom),
                );
            }
        }
    }

    #[test]
    fn without_freedom_nothing_is_known() {
        assert_eq!(student_quantile(0.975, 0.0), f64::INFINITY);
        assert_eq!(student_two_sided(100.0, 0.0), 1.0);
    }

    #[test]
    fn one_run_does_not_say_how_far_it_may_be_off() {
        assert_eq!(median_interval(&[5.0]), None);
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn order_alone_gives_95_percent_from_six_runs_on() {
        let coverages = [(3, 0.75), (5, 0.9375), (6, 0.96875)];
        for (runs, known) in coverages {
            assert!(
                (median_coverage(runs, 1) - known).abs() < 1e-12,
                "{runs}: {}",
                median_coverage(runs, 1)
            );
        }
        // According to printed tables, the interval from the 2nd to the 9th of 10 has 97.9 %, and from the
        // 6th to the 15th of 20 it has 95.9 %.
        assert!((median_coverage(10, 2) - 0.978_515_625).abs() < 1e-12);
        assert!((median_coverage(20, 6) - 0.958_610_5).abs() < 1e-6);
    }

    #[test]
    fn many_runs_leave_out_the_wild_ones() {
        let mut runs: Vec<f64> = (0..19).map(f64::from).collect();
        runs.push(1e9);
        assert_eq!(
            median_interval(&runs),
            Some(Interval {
                low: 5.0,
                high: 14.0
            })
        );
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
