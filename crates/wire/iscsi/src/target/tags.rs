//! Lookup of tasks by Initiator Task Tag.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::pdu::Itt;
use crate::slab::Key;

/// The tags of all tasks.
#[derive(Debug, Default)]
pub(super) struct Tags(HashMap<u32, Key, BuildHasherDefault<TagHasher>>);

impl Tags {
    pub(super) fn find(&self, itt: Itt) -> Option<Key> {
        self.0.get(&itt.get()).copied()
    }

    pub(super) fn insert(&mut self, itt: Itt, key: Key) {
        self.0.insert(itt.get(), key);
    }

    pub(super) fn remove(&mut self, itt: Itt) {
        self.0.remove(&itt.get());
    }
}

/// Hashes a tag by one multiplication. An initiator that chooses its tags to collide slows down the lookup of
/// its own tasks only, and the command window limits their number.
#[derive(Debug, Default)]
struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    fn write_u32(&mut self, tag: u32) {
        let product = u128::from(self.0 ^ u64::from(tag)) * u128::from(GOLDEN);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// 2^64 divided by the golden ratio: Knuth's multiplicative hashing, which distributes consecutive values
/// evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
