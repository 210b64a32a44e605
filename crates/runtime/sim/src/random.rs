//! Pseudorandom numbers from a seed.

/// A stream of numbers that a seed decides: SplitMix64 (Steele, Lea and Flood, 2014). The same on every
/// machine and in every build, which is all that is asked of it.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is at least 1.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True once in `times` times.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of `choices`, of which there is at least one.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// A time from `least` on that is mostly short and now and then long: half of all lie below `least`
    /// doubled, and each doubling after that has half of those left, up to `most`. In nanoseconds.
    pub(crate) fn delay(&mut self, least: u64, most: u64) -> u64 {
        let mut top = least.max(1);
        while top < most && self.once_in(2) {
            top = (top * 2).min(most);
        }
        self.between(least.min(top), top.max(least))
    }

    /// Between the two, and of each size (a power of two times the least) as often as of any other.
    pub(crate) fn of_any_size(&mut self, least: u64, most: u64) -> u64 {
        let least = least.max(1);
        let size = self.between(0, u64::from((most / least).max(1).ilog2()));
        self.between(least << size, (least << size).saturating_mul(2).min(most))
    }

    /// Fills `bytes`.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }
}
