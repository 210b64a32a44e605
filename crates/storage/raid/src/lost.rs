//! The list of lost blocks: blocks that could not be reconstructed when their member was rebuilt or
//! synchronised.
//!
//! A member does not have valid content for a block on this list, whatever a read from the member returns.
//! The set reads the block from the other members, or returns a medium error. A write that covers the block
//! removes it from the list. The list is part of the set's superblock, whose size limits the length of the
//! list.

use std::collections::BTreeMap;
use std::ops::Range;

/// Extents are added to the list only up to this number. A rebuild stops at a lost block for which the list
/// has no space.
pub const LOST_MAX: usize = 1024;

/// Maximum number of extents in a superblock. This is more than [`LOST_MAX`], because a write inside an
/// extent splits the extent in two.
pub(crate) const LOST_RECORDED_MAX: usize = 2 * LOST_MAX;

/// A set of numbers, as ranges that are neither overlapping nor adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// Returns the parts of the set within `range`.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.0.range(..range.start).next_back();
        let found = before
            .into_iter()
            .chain(self.0.range(range.start..range.end.max(range.start)));
        found
            .map(move |(start, end)| range.start.max(*start)..range.end.min(*end))
            .filter(|part| !part.is_empty())
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.within(number..number + 1).next().is_some()
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut all = range.clone();
        if let Some((start, end)) = self.0.range(..range.start).next_back()
            && *end >= range.start
        {
            all = *start..all.end.max(*end);
        }
        while let Some((start, end)) = self
            .0
            .range(all.start..=all.end)
            .next()
            .map(|(start, end)| (*start, *end))
        {
            all.end = all.end.max(end);
            self.0.remove(&start);
        }
        self.0.insert(all.start, all.end);
    }

    /// Removes `range`, and returns the parts of it that were in the set.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let found: Vec<Range<u64>> = self.within(range).collect();
        for part in &found {
            let Some((start, end)) = self
                .0
                .range(..=part.start)
                .next_back()
                .map(|(start, end)| (*start, *end))
            else {
                continue;
            };
            self.0.remove(&start);
            for rest in [start..part.start, part.end..end] {
                if !rest.is_empty() {
                    self.0.insert(rest.start, rest.end);
                }
            }
        }
        found
    }
}

/// The lost blocks of each member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostBlocks(BTreeMap<usize, Ranges>);

impl LostBlocks {
    /// Whether there are no lost blocks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of extents.
    pub fn extents(&self) -> usize {
        self.0.values().map(Ranges::len).sum()
    }

    /// Returns the lost blocks of each member, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Range<u64>)> + '_ {
        self.0
            .iter()
            .flat_map(|(member, ranges)| ranges.iter().map(|range| (*member, range)))
    }

    /// Returns the number of lost blocks of a member.
    pub fn blocks_of(&self, member: usize) -> u64 {
        self.0.get(&member).map_or(0, |ranges| {
            ranges.iter().map(|range| range.end - range.start).sum()
        })
    }

    /// Returns the first lost block of a member within `blocks`.
    pub fn first_of(&self, member: usize, blocks: Range<u64>) -> Option<u64> {
        self.0
            .get(&member)?
            .within(blocks)
            .next()
            .map(|range| range.start)
    }

    /// Adds blocks of a member.
    pub fn insert(&mut self, member: usize, blocks: Range<u64>) {
        if !blocks.is_empty() {
            self.0.entry(member).or_default().insert(blocks);
        }
    }

    /// Removes blocks of a member, and returns those that were on the list.
    pub fn remove(&mut self, member: usize, blocks: Range<u64>) -> Vec<Range<u64>> {
        let Some(ranges) = self.0.get_mut(&member) else {
            return Vec::new();
        };
        let removed = ranges.remove(blocks);
        if ranges.len() == 0 {
            self.0.remove(&member);
        }
        removed
    }

    /// Removes all blocks of a member.
    pub fn remove_member(&mut self, member: usize) {
        self.0.remove(&member);
    }

    /// Adds all blocks of another list.
    pub(crate) fn extend(&mut self, other: &LostBlocks) {
        other
            .iter()
            .for_each(|(member, blocks)| self.insert(member, blocks));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_have_what_a_set_of_numbers_has(
            changes in proptest::collection::vec((any::<bool>(), 0_u64..40, 0_u64..9), 0..40),
        ) {
            let (mut ranges, mut numbers) = (Ranges::default(), BTreeSet::new());
            for (is_added, start, length) in changes {
                let range = start..start + length;
                if is_added {
                    ranges.insert(range.clone());
                    numbers.extend(range);
                } else {
                    let removed: BTreeSet<u64> = ranges.remove(range.clone()).into_iter().flatten().collect();
                    let expected: BTreeSet<u64> = range.filter(|number| numbers.remove(number)).collect();
                    prop_assert_eq!(removed, expected);
                }
                let found: BTreeSet<u64> = ranges.iter().flatten().collect();
                prop_assert_eq!(&found, &numbers);
                prop_assert!((0..50).all(|number| ranges.contains(number) == numbers.contains(&number)));
                let all: Vec<Range<u64>> = ranges.iter().collect();
                prop_assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", all);
            }
        }
    }

    #[test]
    fn a_list_tells_which_blocks_of_a_member_are_lost() {
        let mut lost = LostBlocks::default();
        lost.insert(1, 8..9);
        lost.insert(1, 9..12);
        lost.insert(2, 8..9);
        assert_eq!(
            (lost.extents(), lost.blocks_of(1), lost.first_of(1, 0..64)),
            (2, 4, Some(8))
        );
        assert_eq!(
            (lost.first_of(1, 10..64), lost.first_of(0, 0..64)),
            (Some(10), None)
        );
        assert!(lost.remove(1, 9..10).into_iter().flatten().eq([9]));
        assert_eq!(
            lost.iter().collect::<Vec<_>>(),
            vec![(1, 8..9), (1, 10..12), (2, 8..9)]
        );
        lost.remove_member(1);
        assert!(lost.remove(2, 0..64).into_iter().flatten().eq([8]) && lost.is_empty());
    }
}
