//! What was written where: the memory of a run that verifies its data.

/// The generation that each granule of the span is in, and which of them a request is at.
///
/// A read beside a write of the same place may return either, and two writes may end in either order; so each
/// request under way has its granules for itself, and what a read must return is always exactly known.
pub(crate) struct Generations {
    of: Vec<u32>,
    busy: Vec<bool>,
}

/// Neighbouring granules: where the first is, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granules {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Granules {
    pub(crate) fn each(self) -> std::ops::Range<u64> {
        self.first..self.first + self.count
    }

    fn range(self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }
}

impl Generations {
    pub(crate) fn new(granules: u64) -> Generations {
        let granules = usize::try_from(granules).unwrap_or(usize::MAX);
        Generations { of: vec![UNKNOWN; granules], busy: vec![false; granules] }
    }

    /// As far as they are known.
    pub(crate) fn known(known: impl Iterator<Item = Option<u32>>) -> Generations {
        let of: Vec<u32> = known.map(|generation| generation.unwrap_or(UNKNOWN)).collect();
        Generations { busy: vec![false; of.len()], of }
    }

    /// Takes the granules that are wanted, or the next free ones that start at a multiple of `align`.
    pub(crate) fn take(&mut self, wanted: Granules, align: u64) -> Granules {
        let mut granules = wanted;
        // Layout::check_verifiable has seen to it that there is always a start that is free.
        while self.busy[granules.range()].contains(&true) {
            let next = granules.first + align;
            let fits = next + granules.count <= self.busy.len() as u64;
            granules.first = if fits { next } else { 0 };
        }
        self.busy[granules.range()].fill(true);
        granules
    }

    /// The generations that a read must return; `None` where nothing was written.
    pub(crate) fn expected(&self, granules: Granules) -> impl Iterator<Item = Option<u32>> {
        self.of[granules.range()].iter().map(|&generation| (generation != UNKNOWN).then_some(generation))
    }

    /// The generation for the next write there: a later one than any of them has.
    pub(crate) fn next(&self, granules: Granules) -> u32 {
        let latest = self.of[granules.range()].iter().max();
        latest.and_then(|latest| latest.checked_add(1)).unwrap_or(UNKNOWN + 1)
    }

    /// The write ended well.
    pub(crate) fn wrote(&mut self, granules: Granules, generation: u32) {
        self.of[granules.range()].fill(generation);
    }

    /// The write failed: there may be the old generation, the new one, or both in parts.
    pub(crate) fn forget(&mut self, granules: Granules) {
        self.of[granules.range()].fill(UNKNOWN);
    }

    pub(crate) fn release(&mut self, granules: Granules) {
        self.busy[granules.range()].fill(false);
    }
}

/// Nothing was written, or nobody knows what.
const UNKNOWN: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(first: u64, count: u64) -> Granules {
        Granules { first, count }
    }

    #[test]
    fn granules_that_are_taken_give_way_to_the_next_free_ones() {
        let mut generations = Generations::new(4);
        assert_eq!([3, 3, 0].map(|first| generations.take(at(first, 1), 1).first), [3, 0, 1]);
        generations.release(at(3, 1));
        assert_eq!(generations.take(at(3, 1), 1), at(3, 1));
    }

    #[test]
    fn requests_of_several_lengths_do_not_overlap() {
        let mut generations = Generations::new(16);
        assert_eq!(generations.take(at(4, 4), 4), at(4, 4));
        assert_eq!(generations.take(at(2, 3), 1), at(8, 3));
        assert_eq!(generations.take(at(12, 4), 4), at(12, 4));
        assert_eq!(generations.take(at(12, 4), 4), at(0, 4));
    }

    #[test]
    fn a_write_over_several_is_later_than_all_of_them() {
        let mut generations = Generations::new(4);
        generations.wrote(at(2, 1), 7);
        assert_eq!(generations.next(at(0, 4)), 8);
        generations.wrote(at(0, 2), 8);
        let expected: Vec<_> = generations.expected(at(0, 4)).collect();
        assert_eq!(expected, [Some(8), Some(8), Some(7), None]);
    }

    #[test]
    fn a_failed_write_leaves_nothing_to_expect() {
        let mut generations = Generations::new(4);
        generations.wrote(at(2, 1), 1);
        generations.forget(at(2, 1));
        assert_eq!(generations.expected(at(2, 1)).collect::<Vec<_>>(), [None]);
    }
}
