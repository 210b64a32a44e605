//! What numbers say, and how sure that is. Pure functions over slices; nothing here knows what was measured.
//!
//! Reading order: [`mean`], [`median`] and their kin; [`student`], from which all intervals come; [`series`], for
//! samples that follow each other in time and are not independent; [`runs`], for the few repeats of a run; [`welch`],
//! for two of them; [`line`](mod@line), [`scalability`], [`jain`] and [`little`].

mod centre;
mod fairness;
mod interval;
mod line;
mod little;
#[cfg(test)]
mod properties;
mod runs;
mod scalability;
mod series;
mod special;
mod student;
mod welch;

pub use centre::{mean, median, quantile, standard_deviation};
pub use fairness::jain;
pub use interval::{Interval, MeanEstimate};
pub use line::{Line, line};
pub use little::{drained_mean, little};
pub use runs::{median_coverage, median_interval};
pub use scalability::{Scalability, scalability};
pub use series::{autocorrelation_time, known_well_enough, series_mean};
pub use student::{quantile as student_quantile, two_sided as student_two_sided};
pub use welch::{Welch, holm, welch};

/// What 95 % intervals leave out.
pub const ALPHA: f64 = 0.05;
