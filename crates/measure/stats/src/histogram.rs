//! A recorded histogram of latencies: values with their counts.

use serde::{Deserialize, Serialize};

/// How often which latency was seen: (nanoseconds, times), in rising order, only what was seen. A latency is
/// known to one part in a thousand; the number is the highest that is not told from it. One that was read
/// from a file may hold anything: sums end at the largest number there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(pub Vec<(u64, u64)>);

impl Histogram {
    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many were seen.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, times)| sum.saturating_add(*times))
    }

    /// The latency that a share of all did not exceed, in nanoseconds: 0.99 for the 99th percentile. 0 if
    /// nothing was seen.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0u64;
        let at = self.0.iter().find(|(_, times)| {
            seen = seen.saturating_add(*times);
            seen >= wanted
        });
        at.or(self.0.last()).map_or(0, |(ns, _)| *ns)
    }

    /// The longest, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.0.last().map_or(0, |(ns, _)| *ns)
    }

    /// The mean, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        let sum: f64 = self.0.iter().map(|(ns, times)| *ns as f64 * *times as f64).sum();
        if self.is_empty() { 0.0 } else { sum / self.count() as f64 }
    }

    /// Both together.
    pub fn merged(&self, other: &Histogram) -> Histogram {
        let mut all: Vec<_> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        all.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            earlier.1 = earlier.1.saturating_add(if same { later.1 } else { 0 });
            same
        });
        Histogram(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_latency_that_a_share_did_not_exceed() {
        let histogram = Histogram(vec![(10, 50), (20, 49), (1000, 1)]);
        assert_eq!([0.5, 0.51, 0.99, 0.991, 1.0].map(|q| histogram.quantile_ns(q)), [10, 20, 20, 1000, 1000]);
        assert_eq!(Histogram::default().quantile_ns(0.5), 0);
    }

    #[test]
    fn merged_histograms_count_equal_latencies_together() {
        let (one, two) = (Histogram(vec![(10, 1), (30, 2)]), Histogram(vec![(10, 4), (20, 8)]));
        assert_eq!(one.merged(&two), Histogram(vec![(10, 5), (20, 8), (30, 2)]));
    }
}
