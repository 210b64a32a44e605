//! Verifiable data: every logical block contains its address, its generation and a checksum.
//!
//! ```text
//!   byte  0  "linerate" in ASCII
//!         8  LBA, little endian
//!        16  generation, little endian: a counter in the lower half, the number of the run in the upper half
//!        24  checksum of everything else in the block, little endian
//!        32  incompressible numbers derived from LBA and generation
//! ```
//!
//! A check distinguishes three errors: the wrong block, an old block, and a mixture of two blocks. The
//! distinction is the first step in the diagnosis of a mismatch.

use block::{GOLDEN_GAMMA, Lba, mix};

use crate::Failure;

const MAGIC: u64 = u64::from_le_bytes(*b"linerate");
const HEADER_BYTES: usize = 32;

/// Fills `data` with stamped logical blocks of this generation, of which the first has the address `lba`.
pub fn stamp(data: &mut [u8], lba: Lba, block_bytes: usize, generation: u64) {
    for (block, lba) in data.chunks_exact_mut(block_bytes).zip(lba.0..) {
        stamp_block(block, lba, generation);
    }
}

/// Checks that `data`, which was read from `lba`, is exactly the data that [`stamp`] wrote for this
/// generation.
///
/// Fails with the first block that differs, and the reason.
pub fn check(data: &[u8], lba: Lba, block_bytes: usize, generation: u64) -> Result<(), Failure> {
    data.chunks_exact(block_bytes)
        .zip(lba.0..)
        .try_for_each(|(block, lba)| check_block(block, Lba(lba), generation))
}

/// Returns the generation stored in a logical block that was read from `lba`. Fails if the block is damaged,
/// or contains another address.
pub fn generation(block: &[u8], lba: Lba) -> Result<u64, Failure> {
    if word(block, 0) != MAGIC {
        return Err(Failure::NotOurs { lba });
    }
    if word(block, 3) != checksum(block) {
        return Err(Failure::Damaged { lba });
    }
    if word(block, 1) != lba.0 {
        return Err(Failure::WrongBlock {
            lba,
            found: Lba(word(block, 1)),
        });
    }
    Ok(word(block, 2))
}

fn stamp_block(block: &mut [u8], lba: u64, generation: u64) {
    let mut number = mix(lba ^ mix(generation));
    for word in block[HEADER_BYTES..].chunks_exact_mut(8) {
        number = number.wrapping_add(GOLDEN_GAMMA);
        word.copy_from_slice(&(number ^ (number >> 29)).to_le_bytes());
    }
    set_word(block, 0, MAGIC);
    set_word(block, 1, lba);
    set_word(block, 2, generation);
    let checksum = checksum(block);
    set_word(block, 3, checksum);
}

fn check_block(block: &[u8], lba: Lba, generation: u64) -> Result<(), Failure> {
    match self::generation(block, lba)? {
        found if found == generation => Ok(()),
        found => Err(Failure::WrongGeneration {
            lba,
            expected: generation,
            found,
        }),
    }
}

/// Computes the checksum of all words of the block except the checksum itself. Each word is multiplied into
/// the sum, so the result depends on the order of the words. The checksum detects accidental changes, not
/// deliberate ones.
fn checksum(block: &[u8]) -> u64 {
    let words = block.chunks_exact(8).enumerate().filter(|(i, _)| *i != 3);
    words.fold(MAGIC, |sum, (_, bytes)| {
        let product = u128::from(sum ^ little_endian(bytes)) * u128::from(GOLDEN_GAMMA);
        (product as u64).rotate_left(23) ^ (product >> 64) as u64
    })
}

fn word(block: &[u8], index: usize) -> u64 {
    little_endian(&block[index * 8..index * 8 + 8])
}

fn set_word(block: &mut [u8], index: usize, value: u64) {
    block[index * 8..index * 8 + 8].copy_from_slice(&value.to_le_bytes());
}

fn little_endian(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

/// The last written generation of each granule of the span, and the granules that outstanding requests use.
///
/// A read that runs concurrently with a write of the same offset may return either content, and two
/// concurrent writes may complete in either order. Therefore each outstanding request has exclusive use of
/// its granules, so that the correct result of a read is always known exactly.
pub(crate) struct Generations {
    of: Vec<u32>,
    busy: Vec<bool>,
}

/// A range of adjacent granules.
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
        Generations {
            of: vec![UNKNOWN; granules],
            busy: vec![false; granules],
        }
    }

    /// Creates the table from the known generations; `None` is an unknown generation.
    pub(crate) fn known(known: impl Iterator<Item = Option<u32>>) -> Generations {
        let of: Vec<u32> = known
            .map(|generation| generation.unwrap_or(UNKNOWN))
            .collect();
        Generations {
            busy: vec![false; of.len()],
            of,
        }
    }

    /// Reserves the wanted granules. If one of them is in use, reserves the next free range that starts at a
    /// multiple of `align` granules.
    pub(crate) fn take(&mut self, wanted: Granules, align: u64) -> Granules {
        let mut granules = wanted;
        // Layout::check_verifiable guarantees that a free range exists.
        while self.busy[granules.range()].contains(&true) {
            let next = granules.first + align;
            let fits = next + granules.count <= self.busy.len() as u64;
            granules.first = if fits { next } else { 0 };
        }
        self.busy[granules.range()].fill(true);
        granules
    }

    /// Returns the generations that a read must return, or `None` where the content is unknown.
    pub(crate) fn expected(&self, granules: Granules) -> impl Iterator<Item = Option<u32>> {
        self.of[granules.range()]
            .iter()
            .map(|&generation| (generation != UNKNOWN).then_some(generation))
    }

    /// Returns the generation for the next write of these granules, higher than all of their current
    /// generations.
    pub(crate) fn next(&self, granules: Granules) -> u32 {
        let latest = self.of[granules.range()].iter().max();
        latest
            .and_then(|latest| latest.checked_add(1))
            .unwrap_or(UNKNOWN + 1)
    }

    /// Records the generation of a successful write.
    pub(crate) fn wrote(&mut self, granules: Granules, generation: u32) {
        self.of[granules.range()].fill(generation);
    }

    /// Marks the content as unknown after a failed write: each block may contain the old or the new data, or
    /// a mixture.
    pub(crate) fn forget(&mut self, granules: Granules) {
        self.of[granules.range()].fill(UNKNOWN);
    }

    pub(crate) fn release(&mut self, granules: Granules) {
        self.busy[granules.range()].fill(false);
    }
}

/// The granule was never written, or its content is unknown.
const UNKNOWN: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(lba: u64, generation: u64) -> Vec<u8> {
        let mut data = vec![0; 4096];
        stamp(&mut data, Lba(lba), 512, generation);
        data
    }

    #[test]
    fn what_was_stamped_is_right() {
        assert_eq!(check(&stamped(8, 3), Lba(8), 512, 3), Ok(()));
    }

    #[test]
    fn an_old_generation_is_told_from_another_block() {
        let old = Failure::WrongGeneration {
            lba: Lba(8),
            expected: 4,
            found: 3,
        };
        assert_eq!(check(&stamped(8, 3), Lba(8), 512, 4), Err(old));
        let elsewhere = Failure::WrongBlock {
            lba: Lba(16),
            found: Lba(8),
        };
        assert_eq!(check(&stamped(8, 3), Lba(16), 512, 3), Err(elsewhere));
    }

    #[test]
    fn any_changed_bit_is_found_in_its_block() {
        for at in (512 + 24..1024).step_by(13) {
            let mut data = stamped(8, 3);
            data[at] ^= 0x10;
            assert_eq!(
                check(&data, Lba(8), 512, 3),
                Err(Failure::Damaged { lba: Lba(9) }),
                "{at}"
            );
        }
    }

    #[test]
    fn two_words_that_changed_places_are_found() {
        let mut data = stamped(0, 1);
        data[40..56].rotate_left(8);
        assert_eq!(
            check(&data, Lba(0), 512, 1),
            Err(Failure::Damaged { lba: Lba(0) })
        );
    }

    #[test]
    fn blocks_that_were_never_written_are_not_ours() {
        assert_eq!(
            check(&[0; 512], Lba(7), 512, 1),
            Err(Failure::NotOurs { lba: Lba(7) })
        );
    }

    fn at(first: u64, count: u64) -> Granules {
        Granules { first, count }
    }

    #[test]
    fn granules_that_are_taken_give_way_to_the_next_free_ones() {
        let mut generations = Generations::new(4);
        assert_eq!(
            [3, 3, 0].map(|first| generations.take(at(first, 1), 1).first),
            [3, 0, 1]
        );
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
