//! Medians of runs with their intervals.

use super::Estimate;
use crate::record::CellRun;
use crate::statistics::{ALPHA, median, median_interval, series_mean};

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
        Estimate { median, interval: interval.filter(|interval| interval.half().is_finite()) }
    }

    /// Half of the interval in percent of the median, if there is one: how well it is known.
    pub fn percent(&self) -> Option<f64> {
        self.interval
            .map(|interval| interval.half_percent_of(self.median))
            .filter(|percent| percent.is_finite())
    }
}
