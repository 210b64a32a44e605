//! Which blocks of a chunk something is true of.

use std::ops::Range;

/// A mark for each block of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Marks(Vec<bool>);

impl Marks {
    /// None, of so many blocks.
    pub(super) fn none(blocks: usize) -> Marks {
        Marks(vec![false; blocks])
    }

    pub(super) fn set(&mut self, blocks: Range<usize>) {
        self.0[blocks].fill(true);
    }

    pub(super) fn clear(&mut self, blocks: Range<usize>) {
        self.0[blocks].fill(false);
    }

    pub(super) fn all(&self, blocks: Range<usize>) -> bool {
        self.0[blocks].iter().all(|marked| *marked)
    }

    pub(super) fn any(&self) -> bool {
        self.0.contains(&true)
    }

    pub(super) fn is_marked(&self, block: usize) -> bool {
        self.0[block]
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().filter(|marked| **marked).count()
    }

    /// Neighbours that are marked, as few ranges as possible.
    pub(super) fn runs(&self) -> Vec<Range<usize>> {
        let mut at = 0;
        let parts = self.0.chunk_by(|one, next| one == next).map(|part| {
            let start = at;
            at += part.len();
            (part[0], start..at)
        });
        parts.filter(|(marked, _)| *marked).map(|(_, run)| run).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_run() {
        let mut marks = Marks::none(8);
        marks.set(1..3);
        marks.set(3..4);
        marks.set(6..8);
        assert_eq!(marks.runs(), [1..4, 6..8]);
        marks.clear(2..7);
        assert_eq!((marks.runs(), marks.count()), (vec![1..2, 7..8], 2));
        assert!(Marks::none(0).runs().is_empty());
    }
}
