//! Memory that is the medium itself.
//!
//! A RAM volume can show the place where blocks lie, so that a front end receives from a socket straight into
//! it and sends straight from it. Several cores and the kernel may touch such memory at once: hence bytes are atomics
//! here, and nobody holds a `&[u8]` to them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// Memory that stays where it is for as long as the value lives.
///
/// Blocks change as wholes: of two changes of one block at the same time one is first, and a load comes before or after
/// a change. Only who reads [`Medium::bytes`] may find a block in the middle of one.
pub trait Medium: Send + Sync {
    /// All of it, to be read.
    fn bytes(&self) -> &[AtomicU8];
    /// Copies `from` to the bytes from `at` on. A part that does not fit is an error of the caller's.
    fn store(&self, at: usize, from: &[u8]);
    /// Copies the bytes from `at` on into `into`.
    fn load(&self, at: usize, into: &mut [u8]);
    /// Lets `receive` fill the bytes at `range`, or whole blocks at its beginning, and say how many of them it has
    /// filled. It must not wait: others who change the same blocks may wait for it.
    fn receive(&self, range: Range<usize>, receive: &mut dyn FnMut(&[AtomicU8]) -> usize);
}

/// A part of a [`Medium`], which it keeps alive.
#[derive(Clone)]
pub struct Region {
    medium: Arc<dyn Medium>,
    range: Range<usize>,
}

impl Region {
    /// The bytes of `medium` at `range`; `None` if they are not all there.
    pub fn new(medium: Arc<dyn Medium>, range: Range<usize>) -> Option<Region> {
        medium.bytes().get(range.clone())?;
        Some(Region { medium, range })
    }

    /// The bytes, to be read.
    pub fn bytes(&self) -> &[AtomicU8] {
        &self.medium.bytes()[self.range.clone()]
    }

    /// Copies `from` to the bytes from `at` on, all of which are in the region.
    pub(crate) fn store(&self, at: usize, from: &[u8]) {
        debug_assert!(at + from.len() <= self.range.len());
        self.medium.store(self.range.start + at, from);
    }

    /// Copies the bytes from `at` on into `into`; what would come from beyond the region is left as it is.
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

    /// How many they are.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:?})", self.range)
    }
}
