//! Medians of runs with their intervals.

use super::Estimate;
use bench::record::CellRun;
use stats::{ALPHA, Interval, median, median_interval, series_mean};

impl Estimate {
    /// The median of a rate over runs. What a single run leaves open its samples have to tell.
    pub(super) fn of(
        runs: &[&CellRun],
        rate: fn(&CellRun) -> f64,
        samples: fn(&CellRun) -> Vec<f64>,
    ) -> Estimate {
        let rates: Vec<f64> = runs.iter().map(|run| rate(run)).collect();
        let median = median(&rates);
        let interval = match runs {
            // Around the rate of the whole run, which counts what the last, short sample may leave out.
            [run] => series_mean(&samples(run)).filter(|mean| mean.freedom > 0.0).map(|mean| {
                let mut interval = mean.interval(ALPHA);
                interval.low += median - mean.mean;
                interval.high += median - mean.mean;
                interval
            }),
            _ => median_interval(&rates),
        };
        // Student's distribution knows no rate of 0 below which nothing is.
        let possible = interval.map(|interval| Interval { low: interval.low.max(0.0), ..interval });
        Estimate { median, interval: possible.filter(|interval| interval.half().is_finite()) }
    }

    /// How far the farther end of the interval is from the median, in percent of that, if there is one: how well it is
    /// known.
    pub fn percent(&self) -> Option<f64> {
        let Interval { low, high } = self.interval?;
        let farther = (self.median - low).max(high - self.median);
        (self.median > 0.0).then(|| 100.0 * farther / self.median)
    }
}
