//! The order of the places of a span by how often they are asked for: fixed, and without a pattern.

/// A permutation of the numbers below a bound, the same in every run and every session: what is hot for one is hot for
/// all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    bound: u64,
    /// Enough to write every number below the bound.
    bits: u32,
}

impl Shuffle {
    pub(crate) fn new(bound: u64) -> Shuffle {
        Shuffle { bound, bits: u64::BITS - bound.saturating_sub(1).leading_zeros() }
    }

    /// Where number `place` goes. Cycle walking: numbers of the next power of two are shuffled until one is below the
    /// bound, on average after less than two rounds, and each has a predecessor of its own.
    pub(crate) fn at(self, place: u64) -> u64 {
        let mut place = self.scatter(place);
        while place >= self.bound {
            place = self.scatter(place);
        }
        place
    }

    /// Each step can be undone on numbers of this many bits: odd multiplication, and a shift by half of them.
    fn scatter(self, place: u64) -> u64 {
        let mask = u64::MAX.checked_shr(u64::BITS - self.bits).unwrap_or(0);
        let half = self.bits.div_ceil(2);
        MULTIPLIERS.iter().fold(place, |place, multiplier| {
            let place = place.wrapping_mul(*multiplier).wrapping_add(*multiplier >> 7) & mask;
            place ^ (place >> half)
        })
    }
}

/// Odd numbers without a pattern: the multipliers of SplitMix64 and MurmurHash3.
const MULTIPLIERS: [u64; 3] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xff51_afd7_ed55_8ccd];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_place_has_one_of_its_own(bound in 1u64..5000) {
            let shuffle = Shuffle::new(bound);
            let mut taken: Vec<u64> = (0..bound).map(|place| shuffle.at(place)).collect();
            taken.sort_unstable();
            prop_assert!(taken.into_iter().eq(0..bound));
        }

        #[test]
        fn the_largest_spans_have_a_shuffle(place in 0..u64::MAX) {
            prop_assert!(Shuffle::new(u64::MAX).at(place) < u64::MAX);
        }
    }

    #[test]
    fn neighbours_are_parted() {
        let shuffle = Shuffle::new(100_000);
        let near = (1..1000u64).filter(|&place| shuffle.at(place).abs_diff(shuffle.at(place - 1)) < 100);
        assert!(near.count() < 20);
    }
}
