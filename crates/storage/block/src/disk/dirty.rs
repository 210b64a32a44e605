//! The bytes that a disk's cache has and its medium has not.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of bytes, none of which touch each other.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    /// Start and end.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Dirty {
    /// How many there are.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether all of `bytes` is in it.
    pub(super) fn holds(&self, bytes: &Range<u64>) -> bool {
        self.ranges.range(..=bytes.start).next_back().is_some_and(|(_, end)| *end >= bytes.end)
    }

    /// The first range that starts at `byte` or behind it, or the first of all.
    pub(super) fn from(&self, byte: u64) -> Option<Range<u64>> {
        let next = self.ranges.range(byte..).next().or_else(|| self.ranges.iter().next());
        next.map(|(start, end)| *start..*end)
    }

    pub(super) fn insert(&mut self, bytes: Range<u64>) {
        self.remove(&bytes);
        let (mut start, mut end) = (bytes.start, bytes.end);
        let before = self.ranges.range(..start).next_back().filter(|(_, end)| **end == start);
        if let Some(before) = before.map(|(before, _)| *before) {
            self.ranges.remove(&before);
            start = before;
        }
        if let Some(after) = self.ranges.remove(&end) {
            end = after;
        }
        self.bytes += bytes.end - bytes.start;
        self.ranges.insert(start, end);
    }

    pub(super) fn remove(&mut self, bytes: &Range<u64>) {
        let before = self.ranges.range(..bytes.end).rev().take_while(|(_, end)| **end > bytes.start);
        let touched: Vec<(u64, u64)> = before.map(|(start, end)| (*start, *end)).collect();
        for (start, end) in touched {
            self.ranges.remove(&start);
            self.bytes -= end - start;
            for rest in [start..bytes.start, bytes.end..end] {
                if rest.start < rest.end {
                    self.bytes += rest.end - rest.start;
                    self.ranges.insert(rest.start, rest.end);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_ranges_are_the_bytes_that_were_inserted_and_not_removed(
            changes in prop::collection::vec((0..64u64, 1..16u64, any::<bool>()), 1..40),
            asked in (0..80u64, 1..16u64),
        ) {
            let mut dirty = Dirty::default();
            let mut expected = [false; 96];
            for (start, length, is_inserted) in changes {
                match is_inserted {
                    true => dirty.insert(start..start + length),
                    false => dirty.remove(&(start..start + length)),
                }
                expected[start as usize..(start + length) as usize].fill(is_inserted);
            }
            let count = expected.iter().filter(|dirty| **dirty).count() as u64;
            prop_assert_eq!((dirty.bytes(), dirty.is_empty()), (count, count == 0));
            let asked = asked.0..asked.0 + asked.1;
            let all = expected[asked.start as usize..asked.end as usize].iter().all(|dirty| *dirty);
            prop_assert_eq!(dirty.holds(&asked), all);
            // A range starts where the byte before it is clean.
            let starts: Vec<u64> =
                (0..96).filter(|at| expected[*at] && (*at == 0 || !expected[*at - 1])).map(|at| at as u64).collect();
            let next = starts.iter().find(|start| **start >= asked.start).or(starts.first());
            prop_assert_eq!(dirty.from(asked.start).map(|range| range.start), next.copied());
        }
    }
}
