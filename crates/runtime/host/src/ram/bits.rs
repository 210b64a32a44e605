//! A bitmap with a bit for each part of a volume, and the number of set bits. The bits are in a sparse
//! mapping, so the bitmap of a huge volume with little data also needs little memory.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mapping::Mapping;

pub(super) struct Bits {
    words: Mapping,
    length: usize,
    count: AtomicU64,
}

impl Bits {
    pub(super) fn new(length: usize) -> io::Result<Bits> {
        Ok(Bits {
            words: Mapping::new(length.div_ceil(8).max(1))?,
            length,
            count: AtomicU64::new(0),
        })
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn count_in(&self, bits: Range<usize>) -> usize {
        let set =
            |(word, mask): (usize, u64)| self.words.words()[word].load(Ordering::Relaxed) & mask;
        masks(bits)
            .map(|word| set(word).count_ones() as usize)
            .sum()
    }

    pub(super) fn contains(&self, bit: usize) -> bool {
        self.words.words()[bit / 64].load(Ordering::Relaxed) >> (bit % 64) & 1 == 1
    }

    /// Whether all of these bits are set. `bits` must not be empty.
    pub(super) fn contains_all(&self, bits: Range<usize>) -> bool {
        let (first, last) = (bits.start, bits.end - 1);
        if first / 64 != last / 64 {
            return self.count_in(bits.clone()) == bits.len();
        }
        let mask = u64::MAX << (first % 64) & u64::MAX >> (63 - last % 64);
        self.words.words()[first / 64].load(Ordering::Relaxed) & mask == mask
    }

    /// Returns the first set bit at or after `from`.
    pub(super) fn first(&self, from: usize) -> Option<usize> {
        if from >= self.length || self.contains(from) {
            return (from < self.length).then_some(from);
        }
        let next = self.run_end(from, self.length);
        (next < self.length).then_some(next)
    }

    /// Sets these bits, and returns the number that were clear.
    pub(super) fn insert(&self, bits: Range<usize>) -> usize {
        let mut inserted = 0;
        for (word, mask) in masks(bits) {
            let word = &self.words.words()[word];
            if word.load(Ordering::Relaxed) & mask != mask {
                let before = word.fetch_or(mask, Ordering::Relaxed);
                inserted += (mask & !before).count_ones();
            }
        }
        if inserted > 0 {
            self.count.fetch_add(inserted.into(), Ordering::Relaxed);
        }
        inserted as usize
    }

    /// Clears these bits, and returns the number that were set.
    pub(super) fn remove(&self, bits: Range<usize>) -> u64 {
        let mut removed = 0;
        for (word, mask) in masks(bits) {
            let word = &self.words.words()[word];
            if word.load(Ordering::Relaxed) & mask != 0 {
                let before = word.fetch_and(!mask, Ordering::Relaxed);
                removed += u64::from((mask & before).count_ones());
            }
        }
        self.count.fetch_sub(removed, Ordering::Relaxed);
        removed
    }

    /// Returns the first bit after `from` that differs from the one at `from`; `limit` if there is none
    /// before it.
    pub(super) fn run_end(&self, from: usize, limit: usize) -> usize {
        let limit = limit.min(self.length);
        let flip = if self.contains(from) { u64::MAX } else { 0 };
        let mut at = from;
        while at < limit {
            // After XOR with `flip`, the set bits are those that differ.
            let others = (self.words.words()[at / 64].load(Ordering::Relaxed) ^ flip) >> (at % 64);
            if others != 0 {
                return limit.min(at + others.trailing_zeros() as usize);
            }
            at += 64 - at % 64;
        }
        limit
    }
}

/// Returns the words that contain a range of bits, and a mask of the range's bits in each word.
fn masks(bits: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let mut at = bits.start;
    std::iter::from_fn(move || {
        if at >= bits.end {
            return None;
        }
        let length = (64 - at % 64).min(bits.end - at);
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
    fn bits_are_counted_once() {
        let bits = Bits::new(1000).expect("memory");
        bits.insert(60..70);
        bits.insert(64..200);
        assert_eq!(bits.count(), 140);
        assert_eq!(bits.count_in(62..100), 38);
        assert_eq!(bits.insert(190..210), 10);
        assert_eq!(bits.remove(200..210), 10);
        assert_eq!(bits.remove(0..100), 40);
        assert_eq!(bits.remove(0..100), 0);
        assert_eq!(bits.count(), 100);
    }

    #[test]
    fn runs_end_where_the_kind_changes() {
        let bits = Bits::new(1000).expect("memory");
        bits.insert(100..300);
        assert_eq!(bits.run_end(0, 1000), 100);
        assert_eq!(bits.run_end(100, 1000), 300);
        assert_eq!(bits.run_end(100, 250), 250);
        assert_eq!(bits.run_end(300, 2000), 1000);
    }

    #[test]
    fn the_first_one_is_found_from_anywhere() {
        let bits = Bits::new(300).expect("memory");
        assert_eq!(bits.first(0), None);
        bits.insert(299..300);
        bits.insert(64..65);
        assert_eq!(
            [
                bits.first(0),
                bits.first(64),
                bits.first(65),
                bits.first(300)
            ],
            [Some(64), Some(64), Some(299), None]
        );
    }

    #[test]
    fn masks_cover_a_range_exactly() {
        for (from, to) in [(0, 0), (0, 1), (0, 64), (63, 65), (1, 200), (128, 192)] {
            let bits: u32 = masks(from..to).map(|(_, mask)| mask.count_ones()).sum();
            assert_eq!(bits as usize, to - from, "{from}..{to}");
        }
    }
}
