//! Memory of a medium.
//!
//! A RAM volume can expose the memory of its blocks, so that a front end receives from a socket directly into
//! it and sends directly from it. Several cores and the kernel may access such memory concurrently: hence
//! bytes are atomics here, and no `&[u8]` to them exists.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// Memory at a fixed address for the lifetime of the value.
///
/// Blocks change atomically: of two concurrent changes of a block one is first, and a load comes before or
/// after a change. Only a reader of [`Medium::bytes`] may find a block in the middle of one.
pub trait Medium: Send + Sync {
    /// All bytes, for reading.
    fn bytes(&self) -> &[AtomicU8];
    /// Copies `from` to the bytes from `at` on, which must exist.
    fn store(&self, at: usize, from: &[u8]);
    /// Copies the bytes from `at` on to `into`.
    fn load(&self, at: usize, into: &mut [u8]);
    /// Lets `receive` fill the bytes at `range`, or whole blocks at its beginning, and return how many it
    /// filled. It must not wait: others that change the same blocks may wait for it.
    fn receive(&self, range: Range<usize>, receive: &mut dyn FnMut(&[AtomicU8]) -> usize);
}

/// A part of a [`Medium`], which it keeps alive.
#[derive(Clone)]
pub struct Region {
    medium: Arc<dyn Medium>,
    range: Range<usize>,
}

impl Region {
    /// The bytes of `medium` at `range`; `None` if they do not all exist.
    pub fn new(medium: Arc<dyn Medium>, range: Range<usize>) -> Option<Region> {
        medium.bytes().get(range.clone())?;
        Some(Region { medium, range })
    }

    /// The bytes, for reading.
    pub fn bytes(&self) -> &[AtomicU8] {
        &self.medium.bytes()[self.range.clone()]
    }

    /// Copies `from` to the bytes from `at` on, all of which are in the region.
    pub(crate) fn store(&self, at: usize, from: &[u8]) {
        debug_assert!(at + from.len() <= self.range.len());
        self.medium.store(self.range.start + at, from);
    }

    /// Copies the bytes from `at` on to `into`; what exceeds the region is left unchanged.
    pub fn load(&self, at: usize, into: &mut [u8]) {
        let at = at.min(self.range.len());
        let length = into.len().min(self.range.len() - at);
        self.medium.load(self.range.start + at, &mut into[..length]);
    }

    /// Lets `receive` fill the bytes at `range`, all of which are in the region, as [`Medium::receive`] does.
    pub(crate) fn receive(&self, range: Range<usize>, receive: &mut dyn FnMut(&[AtomicU8]) -> usize) {
        debug_assert!(range.end <= self.range.len());
        self.medium.receive(self.range.start + range.start..self.range.start + range.end, receive);
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:?})", self.range)
    }
}
