//! Confidence intervals.

use super::student;

/// From here to there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A mean, and how far it may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanEstimate {
    /// The mean.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
    /// What the error was estimated from: degrees of freedom of Student's distribution, not always whole.
    pub freedom: f64,
}

impl Interval {
    /// Half of its width.
    pub fn half(self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Half of its width in percent of a value; infinite if that is 0.
    pub fn half_percent_of(self, value: f64) -> f64 {
        if value == 0.0 { f64::INFINITY } else { 100.0 * self.half() / value.abs() }
    }

    /// Whether a value lies in it.
    pub fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// The smallest that holds both this one and a value.
    pub fn with(self, value: f64) -> Interval {
        Interval { low: self.low.min(value), high: self.high.max(value) }
    }
}

impl MeanEstimate {
    /// The interval that misses the true mean with a chance of `alpha`.
    pub fn interval(self, alpha: f64) -> Interval {
        let half = student::quantile(1.0 - alpha / 2.0, self.freedom) * self.error;
        Interval { low: self.mean - half, high: self.mean + half }
    }
}
