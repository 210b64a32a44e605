//! Random numbers whose seed is printed when a test fails.

use std::ops::{Deref, DerefMut};

/// The program's generator ([`block::Random`]), extended to print its seed if it is dropped during a panic.
#[derive(Clone, Debug)]
pub struct Random {
    seed: u64,
    numbers: block::Random,
}

impl Random {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random {
            seed,
            numbers: block::Random::new(seed),
        }
    }

    /// Creates a generator whose seed is the value of an environment variable, or `usual` if the variable is
    /// not set, and prints the seed.
    pub fn of_variable(name: &str, usual: u64) -> Random {
        let seed = std::env::var(name)
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or(usual);
        eprintln!("{name}={seed}");
        Random::new(seed)
    }

    /// A seed that differs from run to run.
    pub fn fresh_seed() -> u64 {
        std::time::UNIX_EPOCH
            .elapsed()
            .map_or(1, |time| time.as_nanos() as u64)
    }

    /// A number from `least` to `most` inclusive.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        assert!(least <= most, "an empty range");
        least + self.below(most - least + 1)
    }

    /// True with a probability of one in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// True with a probability of `share` per mille.
    pub fn per_mille(&mut self, share: u64) -> bool {
        self.below(1000) < share
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// A number from `least` to `most` that is usually small: about half of the results are below twice
    /// `least`, half of the rest below four times `least`, and so on.
    pub fn mostly_small(&mut self, least: u64, most: u64) -> u64 {
        let mut top = least.max(1);
        while top < most && self.once_in(2) {
            top = (top * 2).min(most);
        }
        self.between(least.min(top), top.max(least))
    }

    /// A number from `least` to `most`. Each order of magnitude (`least` times a power of two) is equally
    /// likely.
    pub fn of_any_size(&mut self, least: u64, most: u64) -> u64 {
        let least = least.max(1);
        let size = self.between(0, u64::from((most / least).max(1).ilog2()));
        self.between(least << size, (least << size).saturating_mul(2).min(most))
    }

    /// Random bytes, for the seed of another generator.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let bits = self.next().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }
}

impl Deref for Random {
    type Target = block::Random;

    fn deref(&self) -> &block::Random {
        &self.numbers
    }
}

impl DerefMut for Random {
    fn deref_mut(&mut self) -> &mut block::Random {
        &mut self.numbers
    }
}

impl Drop for Random {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the random numbers have the seed {}", self.seed);
        }
    }
}
