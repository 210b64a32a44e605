//! Which granules of a RAM volume have been written, a bit each, and how many. The bits lie in a mapping of
//! their own, so that a huge volume with little in it costs little here too.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mapping::Mapping;

/// A bitmap of granules.
pub(super) struct Written {
    bits: Mapping,
    granules: usize,
    count: AtomicU64,
}

impl Written {
    pub(super) fn new(granules: usize) -> io::Result<Written> {
        Ok(Written { bits: Mapping::new(granules.div_ceil(8).max(1))?, granules, count: AtomicU64::new(0) })
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn contains(&self, granule: usize) -> bool {
        self.bits.words()[granule / 64].load(Ordering::Relaxed) >> (granule % 64) & 1 == 1
    }

    pub(super) fn insert(&self, granules: Range<usize>) {
        for (word, mask) in masks(granules) {
            let word = &self.bits.words()[word];
            // Overwriting is the usual case, and costs no write to a cache line that other cores share.
            if word.load(Ordering::Relaxed) & mask != mask {
                let before = word.fetch_or(mask, Ordering::Relaxed);
                self.count.fetch_add(u64::from((mask & !before).count_ones()), Ordering::Relaxed);
            }
        }
    }

    pub(super) fn remove(&self, granules: Range<usize>) {
        for (word, mask) in masks(granules) {
            let word = &self.bits.words()[word];
            if word.load(Ordering::Relaxed) & mask != 0 {
                let before = word.fetch_and(!mask, Ordering::Relaxed);
                self.count.fetch_sub(u64::from((mask & before).count_ones()), Ordering::Relaxed);
            }
        }
    }

    /// The first granule from `from` on, and before `limit`, that is not of the same kind as `from`.
    pub(super) fn run_end(&self, from: usize, limit: usize) -> usize {
        let limit = limit.min(self.granules);
        let flip = if self.contains(from) { u64::MAX } else { 0 };
        let mut at = from;
        while at < limit {
            // After the flip a set bit is one of the other kind.
            let others = (self.bits.words()[at / 64].load(Ordering::Relaxed) ^ flip) >> (at % 64);
            if others != 0 {
                return limit.min(at + others.trailing_zeros() as usize);
            }
            at += 64 - at % 64;
        }
        limit
    }
}

/// The words a range of bits lies in, and its bits in each.
fn masks(bits: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let mut at = bits.start;
    std::iter::from_fn(move || {
        let length = (64 - at % 64).min(bits.end.checked_sub(at).filter(|&left| left > 0)?);
        let mask = (u64::MAX >> (64 - length)) << (at % 64);
        let word = at / 64;
        at += length;
        Some((word, mask))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_are_counted_once() {
        let written = Written::new(1000).expect("memory");
        written.insert(60..70);
        written.insert(64..200);
        assert_eq!(written.count(), 140);
        written.remove(0..100);
        written.remove(0..100);
        assert_eq!(written.count(), 100);
    }

    #[test]
    fn runs_end_where_the_kind_changes() {
        let written = Written::new(1000).expect("memory");
        written.insert(100..300);
        assert_eq!(written.run_end(0, 1000), 100);
        assert_eq!(written.run_end(100, 1000), 300);
        assert_eq!(written.run_end(100, 250), 250);
        assert_eq!(written.run_end(300, 2000), 1000);
    }

    #[test]
    fn masks_cover_a_range_exactly() {
        for (from, to) in [(0, 0), (0, 1), (0, 64), (63, 65), (1, 200), (128, 192)] {
            let bits: u32 = masks(from..to).map(|(_, mask)| mask.count_ones()).sum();
            assert_eq!(bits as usize, to - from, "{from}..{to}");
        }
    }
}
