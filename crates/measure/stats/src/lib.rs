//! Statistics of measurements: means, intervals, comparisons, histograms. Independent of what was measured.
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
//! Reading order: [`mean`], [`median`] and their kin; `student`, from which all intervals come; `series`, for
//! samples that follow each other in time and are not independent; `runs`, for the few repeats of a run;
//! [`welch`](fn@welch), for two of them; [`line`](fn@line), [`scalability`](fn@scalability), [`jain`] and
//! [`little`](fn@little); [`steady`] for rounds; [`Latencies`] and [`Histogram`] for what is counted while it
//! happens.

mod centre;
mod fairness;
mod histogram;
mod interval;
mod latencies;
mod line;
mod little;
#[cfg(test)]
mod properties;
mod runs;
mod scalability;
mod series;
pub mod steady;
mod student;
mod welch;

pub use centre::{mean, median, quantile, standard_deviation};
pub use fairness::jain;
pub use histogram::Histogram;
pub use interval::{Interval, MeanEstimate};
pub use latencies::Latencies;
pub use line::{FittedLine, line};
pub use little::{drained_mean, little};
pub use runs::{median_coverage, median_interval};
pub use scalability::{Scalability, scalability};
pub use series::{autocorrelation_time, known_well_enough, series_mean};
pub use student::{quantile as student_quantile, two_sided as student_two_sided};
pub use welch::{Welch, holm, welch};

/// What 95 % intervals leave out.
pub const ALPHA: f64 = 0.05;
