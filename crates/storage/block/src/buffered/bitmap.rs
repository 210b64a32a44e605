//! One bit per block of a chunk.

use std::ops::Range;

/// The bits of one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockBitmap(Vec<bool>);

impl BlockBitmap {
    /// All bits clear.
    pub(super) fn empty(blocks: usize) -> BlockBitmap {
        BlockBitmap(vec![false; blocks])
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

    pub(super) fn is_set(&self, block: usize) -> bool {
        self.0[block]
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().filter(|marked| **marked).count()
    }

    /// The ranges of set bits, each as long as possible.
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
        let mut marks = BlockBitmap::empty(8);
        marks.set(1..3);
        marks.set(3..4);
        marks.set(6..8);
        assert_eq!(marks.runs(), [1..4, 6..8]);
        marks.clear(2..7);
        assert_eq!((marks.runs(), marks.count()), (vec![1..2, 7..8], 2));
        assert!(BlockBitmap::empty(0).runs().is_empty());
    }
}
