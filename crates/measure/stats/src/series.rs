//! The mean of a time series, and its confidence interval.
//!
//! The rates of one second after the other are not independent: a cache that is full now is full a moment
//! later. Taken as independent, they make an interval that is too narrow, by a factor of three where each
//! sample keeps 0.8 of the one before. Here the variance of the mean is estimated from the autocovariances,
//! summed by Geyer's initial monotone sequence (Practical Markov Chain Monte Carlo, 1992): in pairs of lags,
//! as long as the pairs are positive, none larger than the one before. Batch means were tried beside it on
//! AR(1) series: with ten batches they are a few per cent better behaved for independent samples, and much
//! worse (61 % instead of 79 % coverage at 20 samples, 78 % instead of 85 % at 50) where a batch is not long
//! against the correlation; the length has to be known beforehand, and here it is found.
//!
//! What no method gives is certainty from a series that is short against its own memory: a 95 % interval from
//! 50 samples that keep 0.9 of the one before covers the mean 78 times in 100. Hence [`known_well_enough`]
//! asks for a number of effective samples too.

use super::{ALPHA, MeanEstimate, mean};

/// The mean of a series with its error, corrected for autocorrelation. `None` for fewer than two samples.
pub fn series_mean(samples: &[f64]) -> Option<MeanEstimate> {
    let folded = folded(samples);
    let memory = Autocorrelation::new(&folded)?;
    let count = folded.len() as f64;
    // The estimated mean lies nearer to its samples than the true one does: what is left of the variance is 1
    // - τ/n.
    let variance = memory.variance * memory.time / (1.0 - memory.time / count);
    Some(MeanEstimate {
        mean: mean(samples),
        error: (variance / count).sqrt(),
        freedom: count / memory.time - 1.0,
    })
}

/// The integrated autocorrelation time, in samples: so many of them say as much as one independent sample. At
/// least 1: that a series swings from one side to the other is not taken as additional knowledge. 1 for fewer
/// than two samples.
pub fn autocorrelation_time(samples: &[f64]) -> f64 {
    let folded = folded(samples);
    let per_fold = (samples.len() as f64 / folded.len().max(1) as f64).max(1.0);
    Autocorrelation::new(&folded).map_or(1.0, |memory| memory.time * per_fold)
}

/// Whether half of the 95 % interval of the mean is at most so many percent of it: when a run that is to
/// be known so well may end. Never before there are 20 samples that say as much as 12 independent ones.
///
/// A check after each sample stops too early when the interval is narrow by chance. At the moment of
/// stopping it still covers the true mean of independent samples in 95 of 100 cases, and that of samples that
/// keep half of the one before in 85 (simulated; a test holds it). Fewer samples would be worse: with 10 and
/// 8 it is 65 where each keeps 0.8.
pub fn known_well_enough(samples: &[f64], percent: f64) -> bool {
    const SAMPLES_MIN: usize = 20;
    const EFFECTIVE_MIN: f64 = 12.0;
    if samples.len() < SAMPLES_MIN {
        return false;
    }
    let Some(estimate) = series_mean(samples) else { return false };
    estimate.freedom + 1.0 >= EFFECTIVE_MIN
        && estimate.mean > 0.0
        && estimate.interval(ALPHA).half_percent_of(estimate.mean) <= percent
}

/// The variance of a series, and over how many samples it remembers.
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
            return Some(Autocorrelation { variance: 0.0, time: 1.0 });
        }
        let time = 2.0 * positive_pairs(&distances) / variance - 1.0;
        // A time beyond half of the series cannot be told from a trend.
        Some(Autocorrelation { variance, time: time.clamp(1.0, count as f64 / 2.0) })
    }
}

fn autocovariance(distances: &[f64], lag: usize) -> f64 {
    let products = distances.iter().zip(&distances[lag..]).map(|(one, other)| one * other);
    products.sum::<f64>() / distances.len() as f64
}

/// Geyer's sum: autocovariances of lags 0 and 1, 2 and 3, … while they are positive together, and never
/// rising.
fn positive_pairs(distances: &[f64]) -> f64 {
    let lags = (0..distances.len() - 1).step_by(2);
    let pairs = lags.map(|lag| autocovariance(distances, lag) + autocovariance(distances, lag + 1));
    let falling = pairs.scan(f64::INFINITY, |before, pair| {
        *before = before.min(pair);
        Some(*before)
    });
    falling.take_while(|pair| *pair > 0.0).sum()
}

/// At most so many are looked at, so that asking after each sample of a long run stays cheap.
const SAMPLES_MAX: usize = 512;

/// The series with neighbours put together until it is short enough: the mean and what is remembered over
/// long times stay as they are. Up to one short of a fold is left out at the beginning.
fn folded(samples: &[f64]) -> Vec<f64> {
    let fold = samples.len().div_ceil(SAMPLES_MAX).max(1);
    samples[samples.len() % fold..].chunks(fold).map(mean).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use testkit::Random;

    /// Numbers that are nearly normal: the sum of twelve uniform ones.
    pub(crate) fn normal(random: &mut Random) -> f64 {
        (0..12).map(|_| random.next() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    /// A series of mean 100 where each sample keeps a share of the last one's distance from it, in its steady
    /// state.
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
        assert!(!known_well_enough(&[0.0; 100], 1.0), "nothing moves: there is no rate to be known");
    }

    #[test]
    fn the_error_of_an_ar1_series_is_the_one_in_the_books() {
        // A series with innovations of variance 1 that keeps φ has a mean with the variance 1 / (n (1 - φ)^2)
        // and the autocorrelation time (1 + φ) / (1 - φ).
        for keeps in [0.0, 0.5, 0.8] {
            let series = ar1(50_000, keeps, &mut Random::new(5));
            let (time, known_time) = (autocorrelation_time(&series), (1.0 + keeps) / (1.0 - keeps));
            let error = series_mean(&series).unwrap().error;
            let known = 1.0 / (1.0 - keeps) / 50_000f64.sqrt();
            assert!((error / known - 1.0).abs() < 0.2, "{keeps}: {error} and {known}");
            // A fold of 98 samples is the shortest time that such a long series can tell.
            assert!(time < known_time.max(98.0) * 1.5, "{keeps}: {time} and {known_time}");
        }
        let time = autocorrelation_time(&ar1(500, 0.8, &mut Random::new(9)));
        assert!((6.0..13.0).contains(&time), "9 is right, {time} was found");
    }

    #[test]
    fn intervals_cover_the_mean_as_often_as_they_promise() {
        for (count, keeps, at_least) in
            [(20, 0.0, 0.94), (200, 0.0, 0.94), (50, 0.5, 0.90), (200, 0.5, 0.92), (200, 0.8, 0.90)]
        {
            let covered = coverage(count, keeps);
            assert!(covered >= at_least, "{count} samples that keep {keeps}: {covered}");
        }
    }

    #[test]
    fn samples_that_remember_take_longer_to_be_known() {
        let samples_needed = |keeps| {
            let series = ar1(2000, keeps, &mut Random::new(3));
            (20..2000).find(|&count| known_well_enough(&series[..count], 0.4)).unwrap()
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
                    let stopped =
                        (20..600).find(|&count| known_well_enough(&series[..count], 0.5)).unwrap_or(600);
                    let estimate = series_mean(&series[..stopped]).unwrap();
                    estimate.interval(ALPHA).contains(100.0)
                })
                .count();
            assert!(right >= at_least, "samples that keep {keeps}: {right} of 300");
        }
    }

    #[test]
    fn a_trend_is_not_taken_for_a_rate() {
        let climbing: Vec<f64> = (0..60).map(|second| 1000.0 + 10.0 * f64::from(second)).collect();
        assert!(!known_well_enough(&climbing, 5.0));
    }
}
