//! Data that can be recognised: every logical block says where it belongs, which generation of that place it is,
//! and whether it is whole.
//!
//! ```text
//!   byte  0  "linerate" in ASCII
//!         8  LBA, little endian
//!        16  generation, little endian: what it counts in the lower half, which run it is of in the upper
//!        24  checksum of everything else in the block, little endian
//!        32  numbers that follow from LBA and generation, and that nothing can compress
//! ```
//!
//! A read that returns the wrong block, an old one, or a mixture of two is told from each other, which is the
//! first question after any mismatch.

use block::{GOLDEN_GAMMA, Lba, mix};

use crate::Failure;

const MAGIC: u64 = u64::from_le_bytes(*b"linerate");
const HEADER_BYTES: usize = 32;

/// Fills `data`, which starts at `lba`, with whole logical blocks of this generation.
pub fn stamp(data: &mut [u8], lba: Lba, block_bytes: usize, generation: u64) {
    for (block, lba) in data.chunks_exact_mut(block_bytes).zip(lba.0..) {
        stamp_block(block, lba, generation);
    }
}

/// Checks that `data`, which was read from `lba` on, is exactly what [`stamp`] made for this generation.
///
/// Fails with the first block that is not, and what is wrong with it.
pub fn check(data: &[u8], lba: Lba, block_bytes: usize, generation: u64) -> Result<(), Failure> {
    data.chunks_exact(block_bytes)
        .zip(lba.0..)
        .try_for_each(|(block, lba)| check_block(block, Lba(lba), generation))
}

/// The generation that a logical block, read from `lba`, says it is; fails if it is not whole, or not of this place.
pub fn generation(block: &[u8], lba: Lba) -> Result<u64, Failure> {
    if word(block, 0) != MAGIC {
        return Err(Failure::NotOurs { lba });
    }
    if word(block, 3) != checksum(block) {
        return Err(Failure::Damaged { lba });
    }
    if word(block, 1) != lba.0 {
        return Err(Failure::WrongBlock { lba, found: Lba(word(block, 1)) });
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
        found => Err(Failure::WrongGeneration { lba, expected: generation, found }),
    }
}

/// Of all words but the checksum's own. Each word is multiplied into the sum, so order and place count; it finds
/// accidents, not forgeries.
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
        let old = Failure::WrongGeneration { lba: Lba(8), expected: 4, found: 3 };
        assert_eq!(check(&stamped(8, 3), Lba(8), 512, 4), Err(old));
        let elsewhere = Failure::WrongBlock { lba: Lba(16), found: Lba(8) };
        assert_eq!(check(&stamped(8, 3), Lba(16), 512, 3), Err(elsewhere));
    }

    #[test]
    fn any_changed_bit_is_found_in_its_block() {
        for at in (512 + 24..1024).step_by(13) {
            let mut data = stamped(8, 3);
            data[at] ^= 0x10;
            assert_eq!(check(&data, Lba(8), 512, 3), Err(Failure::Damaged { lba: Lba(9) }), "{at}");
        }
    }

    #[test]
    fn two_words_that_changed_places_are_found() {
        let mut data = stamped(0, 1);
        data[40..56].rotate_left(8);
        assert_eq!(check(&data, Lba(0), 512, 1), Err(Failure::Damaged { lba: Lba(0) }));
    }

    #[test]
    fn blocks_that_were_never_written_are_not_ours() {
        assert_eq!(check(&[0; 512], Lba(7), 512, 1), Err(Failure::NotOurs { lba: Lba(7) }));
    }
}
