//! A histogram of latencies, which costs two instructions more per request than a counter.
//!
//! The layout is HdrHistogram's with three significant digits: exact to the nanosecond below 2048 ns, and
//! above in 1024 steps for each doubling, so that a latency is known to one part in a thousand up to 100 s.
//! Its 28,000 counters take 225 kB; requests of one device touch a few hundred of them.

use std::ops::Range;

use crate::Histogram;

/// Counters of latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    counters: Vec<u64>,
    /// The part of them that is not zero lies within this one: samples are closed often, and are narrow.
    used: Range<usize>,
}

/// Counters of one doubling. Below twice as many nanoseconds each has a counter of its own.
const STEPS: u64 = 1 << STEPS_LOG2;
const STEPS_LOG2: u32 = 10;
/// Longer than any request may take; longer ones count as this.
const NS_MAX: u64 = 100_000_000_000;

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counters: vec![0; index(NS_MAX) + 1], used: NOTHING }
    }
}

impl Latencies {
    /// Counts one.
    pub fn record(&mut self, ns: u64) {
        let index = index(ns.min(NS_MAX));
        self.counters[index] += 1;
        self.used = self.used.start.min(index)..self.used.end.max(index + 1);
    }

    /// Counts all of another.
    pub fn add(&mut self, other: &Latencies) {
        let used = other.used.clone();
        if !used.is_empty() {
            let pairs = self.counters[used.clone()].iter_mut().zip(&other.counters[used.clone()]);
            pairs.for_each(|(all, more)| *all += more);
            self.used = self.used.start.min(used.start)..self.used.end.max(used.end);
        }
    }

    /// Forgets what was seen.
    pub fn clear(&mut self) {
        if !self.used.is_empty() {
            self.counters[self.used.clone()].fill(0);
            self.used = NOTHING;
        }
    }

    /// As it is kept in a record: what was seen, in rising order.
    pub fn histogram(&self) -> Histogram {
        if self.used.is_empty() {
            return Histogram::default();
        }
        let counters = self.used.clone().zip(&self.counters[self.used.clone()]);
        let seen = counters.filter(|(_, times)| **times > 0);
        Histogram(seen.map(|(index, times)| (highest(index), *times)).collect())
    }
}

/// Before every counter and behind every one: what is added to it is all of it.
const NOTHING: Range<usize> = Range { start: usize::MAX, end: 0 };

/// The counter of a latency.
fn index(ns: u64) -> usize {
    let doublings = (ns.max(1).ilog2()).saturating_sub(STEPS_LOG2);
    (u64::from(doublings) * STEPS + (ns >> doublings)) as usize
}

/// The longest latency that has this counter.
fn highest(index: usize) -> u64 {
    let index = index as u64;
    let doublings = (index / STEPS).saturating_sub(1);
    ((index - doublings * STEPS + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_known_to_one_part_in_a_thousand() {
        for ns in (0..37).flat_map(|shift| [1u64 << shift, (1 << shift) + 1, (1 << shift) * 2 - 1]) {
            let known = highest(index(ns));
            assert!(known >= ns && known - ns <= ns / 1024, "{ns} is taken for {known}");
        }
    }

    #[test]
    fn every_counter_has_latencies_of_its_own() {
        assert!((1..=index(NS_MAX)).all(|at| index(highest(at)) == at && index(highest(at - 1) + 1) == at));
    }

    #[test]
    fn longer_than_the_longest_is_the_longest() {
        let mut latencies = Latencies::default();
        latencies.record(u64::MAX);
        assert_eq!(latencies.histogram(), Histogram(vec![(highest(index(NS_MAX)), 1)]));
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
}
