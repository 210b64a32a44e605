//! Statistics for measurements: means, intervals, comparisons and histograms. They do not depend on the
//! measured quantity.
//!
//! ```
//! use stats::{Latencies, median, median_interval};
//!
//! let mut latencies = Latencies::default();
//! [70_000, 71_000, 95_000].map(|ns| latencies.record(ns));
//! assert!((70_500..71_500).contains(&latencies.histogram().quantile_ns(0.5)));
//!
//! let rates = [98.0, 101.0, 100.0, 99.0, 103.0, 102.0];
//! let interval = median_interval(&rates).expect("six runs are enough for 95 %");
//! assert_eq!((median(&rates), interval.low, interval.high), (100.5, 98.0, 103.0));
//! ```
//!
//! Reading order: `intervals` ([`mean`], [`median`] and similar functions; Student's distribution, the basis
//! of most intervals; time series; the few repeats of a run). Then `compare` ([`welch`](fn@welch) for two
//! means; [`line`](fn@line), [`scalability`](fn@scalability), [`jain`], [`little`](fn@little)); [`steady`]
//! for rounds; [`Latencies`] and [`Histogram`] for counting during a run.

mod compare;
mod intervals;
mod latencies;

pub use compare::{
    FittedLine, Scalability, Welch, drained_mean, holm, jain, line, little, scalability, steady,
    welch,
};
pub use intervals::{
    Interval, MeanEstimate, autocorrelation_time, known_well_enough, mean, median, median_coverage,
    median_interval, quantile, series_mean, standard_deviation, student_quantile,
    student_two_sided,
};
pub use latencies::{Histogram, Latencies};

#[cfg(test)]
mod tests;

/// The probability that a 95 % interval does not contain the true value.
pub const ALPHA: f64 = 0.05;
