//! Pseudorandom numbers determined by a seed, a purpose and a count.
//!
//! Each frame has its own number for each purpose, whatever was asked before: whether frame 1000 is lost does
//! not depend on whether frame 999 was held up.

use block::{GOLDEN_GAMMA, mix};

/// What a number decides.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Loss,
    Reorder,
    Jitter,
    Lane,
}

/// A number from 0 to below 1, in steps of 2^-53.
pub(crate) fn fraction(seed: u64, purpose: Purpose, count: u64) -> f64 {
    (number(seed, purpose, count) >> 11) as f64 / (1u64 << 53) as f64
}

/// SplitMix64's mixing of a counter, started elsewhere for each purpose.
pub(crate) fn number(seed: u64, purpose: Purpose, count: u64) -> u64 {
    let start = mix(seed ^ (purpose as u64 + 1).wrapping_mul(GOLDEN_GAMMA));
    mix(start.wrapping_add(count.wrapping_mul(GOLDEN_GAMMA)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_frames_is_as_large_as_wanted() {
        let lost = (0..100_000).filter(|&count| fraction(7, Purpose::Loss, count) < 0.01).count();
        assert!((900..1100).contains(&lost), "{lost}");
    }

    #[test]
    fn purposes_and_seeds_do_not_follow_each_other() {
        let below = |seed, purpose: Purpose, count| fraction(seed, purpose, count) < 0.5;
        let same = |one: (u64, Purpose), other: (u64, Purpose)| {
            (0..10_000).filter(|&count| below(one.0, one.1, count) == below(other.0, other.1, count)).count()
        };
        assert!((4_800..5_200).contains(&same((7, Purpose::Loss), (7, Purpose::Reorder))));
        assert!((4_800..5_200).contains(&same((7, Purpose::Loss), (8, Purpose::Loss))));
    }
}
