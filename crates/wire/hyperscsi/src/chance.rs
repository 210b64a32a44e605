//! Numbers that nobody can guess, from a seed of the caller: a machine that got the same seed and the same input says
//! the same.

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// A generator: SHA-256 of the seed and a counter.
pub(crate) struct Chance {
    seed: Zeroizing<[u8; 32]>,
    drawn: u64,
}

impl Chance {
    pub(crate) fn new(seed: [u8; 32]) -> Chance {
        Chance { seed: Zeroizing::new(seed), drawn: 0 }
    }

    pub(crate) fn bytes(&mut self) -> Zeroizing<[u8; 32]> {
        self.drawn += 1;
        let hash = Sha256::new().chain_update(*self.seed).chain_update(self.drawn.to_be_bytes());
        Zeroizing::new(hash.finalize().into())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        let bytes = self.bytes();
        bytes.first_chunk().map_or(0, |chunk| u64::from_be_bytes(*chunk))
    }
}

impl std::fmt::Debug for Chance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chance").field("drawn", &self.drawn).finish_non_exhaustive()
    }
}
