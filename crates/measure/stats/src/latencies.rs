//! A histogram of latencies. It costs only two more instructions per request than a counter.
//!
//! The layout is the same as in HdrHistogram with three significant digits: it is exact to the nanosecond
//! below 2048 ns, and has 1024 steps for each doubling above that. Latencies of up to 100 s are therefore
//! accurate to one part in a thousand. The 28,000 counters take 225 kB, but the requests of one device use
//! only a few hundred of them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Counters of latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    counters: Vec<u64>,
    /// All nonzero counters are in this range. Samples are closed often, and their ranges are narrow, so this
    /// limits the work.
    used: Range<usize>,
}

/// The number of counters for each doubling. Below twice this number of nanoseconds, each value has its own
/// counter.
const STEPS: u64 = 1 << STEPS_LOG2;
const STEPS_LOG2: u32 = 10;
/// The maximum latency. Longer latencies count as this one.
const NS_MAX: u64 = 100_000_000_000;

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies {
            counters: vec![0; index(NS_MAX) + 1],
            used: NOTHING,
        }
    }
}

impl Latencies {
    /// Counts one latency.
    pub fn record(&mut self, ns: u64) {
        let index = index(ns.min(NS_MAX));
        self.counters[index] += 1;
        self.used = self.used.start.min(index)..self.used.end.max(index + 1);
    }

    /// Adds all latencies of another histogram.
    pub fn add(&mut self, other: &Latencies) {
        let used = other.used.clone();
        if !used.is_empty() {
            let pairs = self.counters[used.clone()]
                .iter_mut()
                .zip(&other.counters[used.clone()]);
            pairs.for_each(|(all, more)| *all += more);
            self.used = self.used.start.min(used.start)..self.used.end.max(used.end);
        }
    }

    /// Resets all counters.
    pub fn clear(&mut self) {
        if !self.used.is_empty() {
            self.counters[self.used.clone()].fill(0);
            self.used = NOTHING;
        }
    }

    /// Converts the counters to the form for a record: the observed values, in ascending order.
    pub fn histogram(&self) -> Histogram {
        if self.used.is_empty() {
            return Histogram::default();
        }
        let counters = self.used.clone().zip(&self.counters[self.used.clone()]);
        let seen = counters.filter(|(_, times)| **times > 0);
        Histogram(
            seen.map(|(index, times)| (highest(index), *times))
                .collect(),
        )
    }
}

/// An empty range that starts after every counter and ends before every counter, so that extending it by a
/// counter yields a range of exactly this counter.
const NOTHING: Range<usize> = Range {
    start: usize::MAX,
    end: 0,
};

/// Returns the index of the counter for a latency in nanoseconds.
fn index(ns: u64) -> usize {
    let doublings = (ns.max(1).ilog2()).saturating_sub(STEPS_LOG2);
    (u64::from(doublings) * STEPS + (ns >> doublings)) as usize
}

/// Returns the longest latency that this counter counts.
fn highest(index: usize) -> u64 {
    let index = index as u64;
    let doublings = (index / STEPS).saturating_sub(1);
    ((index - doublings * STEPS + 1) << doublings) - 1
}

/// The number of times that each latency was observed: (nanoseconds, times), in ascending order, without
/// zeros. A latency is accurate to one part in a thousand, and is the longest latency of its counter. A
/// histogram from a file may contain any numbers, so sums saturate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(pub Vec<(u64, u64)>);

impl Histogram {
    /// Returns whether the histogram contains no latencies.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, (_, times)| sum.saturating_add(*times))
    }

    /// Returns the latency that a share of all latencies does not exceed, in nanoseconds: 0.99 returns the
    /// 99th percentile. Returns 0 if the histogram is empty.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0u64;
        let at = self.0.iter().find(|(_, times)| {
            seen = seen.saturating_add(*times);
            seen >= wanted
        });
        at.or(self.0.last()).map_or(0, |(ns, _)| *ns)
    }

    /// Returns the longest latency, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.0.last().map_or(0, |(ns, _)| *ns)
    }

    /// Returns the mean, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        let sum: f64 = self
            .0
            .iter()
            .map(|(ns, times)| *ns as f64 * *times as f64)
            .sum();
        if self.is_empty() {
            0.0
        } else {
            sum / self.count() as f64
        }
    }

    /// Returns the sum of both histograms.
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
    fn a_latency_is_known_to_one_part_in_a_thousand() {
        for ns in (0..37).flat_map(|shift| [1u64 << shift, (1 << shift) + 1, (1 << shift) * 2 - 1])
        {
            let known = highest(index(ns));
            assert!(
                known >= ns && known - ns <= ns / 1024,
                "{ns} is taken for {known}"
            );
        }
    }

    #[test]
    fn every_counter_has_latencies_of_its_own() {
        assert!(
            (1..=index(NS_MAX))
                .all(|at| index(highest(at)) == at && index(highest(at - 1) + 1) == at)
        );
    }

    #[test]
    fn longer_than_the_longest_is_the_longest() {
        let mut latencies = Latencies::default();
        latencies.record(u64::MAX);
        assert_eq!(
            latencies.histogram(),
            Histogram(vec![(highest(index(NS_MAX)), 1)])
        );
    }

    #[test]
    fn what_is_added_is_counted_together() {
        let (mut all, mut more) = (Latencies::default(), Latencies::default());
        all.record(7);
        more.record(7);
        more.record(9);
        all.add(&more);
        assert_eq!(all.histogram(), Histogram(vec![(7, 2), (9, 1)]));
        all.clear();
        assert!(all.histogram().is_empty());
    }

    #[test]
    fn a_quantile_is_the_latency_that_a_share_did_not_exceed() {
        let histogram = Histogram(vec![(10, 50), (20, 49), (1000, 1)]);
        assert_eq!(
            [0.5, 0.51, 0.99, 0.991, 1.0].map(|q| histogram.quantile_ns(q)),
            [10, 20, 20, 1000, 1000]
        );
        assert_eq!(Histogram::default().quantile_ns(0.5), 0);
    }

    #[test]
    fn merged_histograms_count_equal_latencies_together() {
        let (one, two) = (
            Histogram(vec![(10, 1), (30, 2)]),
            Histogram(vec![(10, 4), (20, 8)]),
        );
        assert_eq!(one.merged(&two), Histogram(vec![(10, 5), (20, 8), (30, 2)]));
    }
}
