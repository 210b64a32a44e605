//! Memory of a device's medium, for access without copies.
//!
//! A RAM volume can expose the memory of its blocks, so that a front end receives from a socket directly into
//! this memory, and sends directly from it. Several cores and the kernel may access such memory concurrently.
//! Therefore its bytes are atomics, and no `&[u8]` refers to them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use crate::buffer::Buffer;
use crate::extent::BlockSize;

/// Memory that stays at a fixed address for the lifetime of the value.
///
/// Blocks change atomically: concurrent changes of a block are executed one after the other, and a load
/// returns a block from before or after a change. Only a reader of [`Medium::bytes`] may see a block
/// during a change.
pub trait Medium: Send + Sync {
    /// Returns all bytes, for reading.
    fn bytes(&self) -> &[AtomicU8];
    /// Copies `from` to the bytes from `at` on, which must exist.
    fn store(&self, at: usize, from: &[u8]);
    /// Copies the bytes from `at` on to `into`.
    fn load(&self, at: usize, into: &mut [u8]);
    /// Calls `receive` with the bytes at `range`, or with whole blocks at its start. `receive` fills them and
    /// returns the number of bytes filled. It must not wait, because other changes of the same blocks may be
    /// waiting for it.
    fn receive(&self, range: Range<usize>, receive: &mut dyn FnMut(&[AtomicU8]) -> usize);
}

/// A part of a [`Medium`]. It keeps the medium alive.
#[derive(Clone)]
pub struct Region {
    medium: Arc<dyn Medium>,
    range: Range<usize>,
}

impl Region {
    /// Creates a region of the bytes of `medium` at `range`; `None` if they do not all exist.
    pub fn new(medium: Arc<dyn Medium>, range: Range<usize>) -> Option<Region> {
        medium.bytes().get(range.clone())?;
        Some(Region { medium, range })
    }

    /// Returns the bytes, for reading.
    pub fn bytes(&self) -> &[AtomicU8] {
        &self.medium.bytes()[self.range.clone()]
    }

    /// Copies `from` to the bytes from `at` on, all of which are in the region.
    pub(crate) fn store(&self, at: usize, from: &[u8]) {
        debug_assert!(at + from.len() <= self.range.len());
        self.medium.store(self.range.start + at, from);
    }

    /// Copies the bytes from `at` on to `into`. If the region is shorter, the rest of `into` stays unchanged.
    pub fn load(&self, at: usize, into: &mut [u8]) {
        let at = at.min(self.range.len());
        let length = into.len().min(self.range.len() - at);
        self.medium.load(self.range.start + at, &mut into[..length]);
    }

    /// Does the same as [`Medium::receive`] for the bytes at `range`, all of which must be in the region.
    pub(crate) fn receive(
        &self,
        range: Range<usize>,
        receive: &mut dyn FnMut(&[AtomicU8]) -> usize,
    ) {
        debug_assert!(range.end <= self.range.len());
        self.medium.receive(
            self.range.start + range.start..self.range.start + range.end,
            receive,
        );
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:?})", self.range)
    }
}

/// The memory to which a write's data is received. Data arrives in order, and each block changes completely
/// or not at all.
///
/// The bytes of a write arrive in pieces that are not aligned to blocks, and may end anywhere, for example
/// because a connection is lost or a command is aborted. The received part of an incomplete block is kept
/// outside the medium. So no reader sees a block that is half old and half new, and an incomplete block keeps
/// its old content.
///
/// ```text
///   received    |  block  |  block  |  block  |  blo·        the rest has not arrived yet
///   medium      |  block  |  block  |  block  |
///   incomplete                                |  blo         kept outside the medium
/// ```
///
/// Bytes are received directly into the medium only if they are known to be readable without waiting
/// ([`WholeBlocks::receive`]).
#[derive(Debug)]
pub struct WholeBlocks {
    region: Region,
    block_bytes: usize,
    /// Length of the data received so far.
    end: usize,
    /// The received part of the block that contains `end`.
    incomplete: Vec<u8>,
}

impl WholeBlocks {
    /// Creates a destination for a write to `region`, which must consist of whole blocks of this size.
    pub fn new(region: Region, block_size: BlockSize) -> WholeBlocks {
        WholeBlocks {
            region,
            block_bytes: block_size.bytes() as usize,
            end: 0,
            incomplete: Vec::new(),
        }
    }

    /// Returns the length of all blocks in bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Returns whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// Returns the length of one block in bytes.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Returns the memory allocated for an incomplete block, in bytes.
    pub fn incomplete_bytes(&self) -> usize {
        self.incomplete.capacity()
    }

    /// Stores the next bytes. `at` must be the end of the previous bytes. Only whole blocks are stored in the
    /// region; a partial block is kept until the rest of it arrives. Bytes beyond the last block are dropped.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let at = at.min(self.len());
        let bytes = &bytes[..bytes.len().min(self.len() - at)];
        self.end = at + bytes.len();
        if self.missing(at) == 0 && self.whole(bytes.len()) == bytes.len() {
            return self.region.store(at, bytes); // the usual case
        }
        debug_assert!(
            self.incomplete.len() < self.block_bytes,
            "a whole block lands"
        );
        let (head, rest) = bytes.split_at(bytes.len().min(self.missing(at)));
        self.put_head(at, head);
        let at = at + head.len();
        let (whole, tail) = rest.split_at(self.whole(rest.len()));
        if !whole.is_empty() {
            self.region.store(at, whole);
        }
        if !tail.is_empty() {
            self.incomplete.reserve_exact(self.block_bytes);
            self.incomplete.extend_from_slice(tail);
        }
    }

    /// Receives the next bytes directly into the region, if possible. `at` must be the end of the previous
    /// bytes. `receive` is given two buffers to fill in this order, and returns the number of bytes that it
    /// stored. If the bytes must be passed to [`WholeBlocks::put`] instead, `receive` is not called, and the
    /// result is 0.
    ///
    /// `sure` is the number of bytes that can be received without waiting. The second buffer is the medium
    /// itself, and only as long as the blocks that `sure` bytes complete. If `receive` stores fewer bytes, it
    /// leaves a partial block in the medium.
    pub fn receive(
        &mut self,
        at: usize,
        sure: usize,
        mut receive: impl FnMut(&mut [u8], &[AtomicU8]) -> usize,
    ) -> usize {
        let sure = sure.min(self.len().saturating_sub(at));
        let head = self.missing(at).min(sure);
        let blocks = at + head..at + head + self.whole(sure - head);
        let filled = self.incomplete.len();
        if sure == 0 || (head > 0) == self.incomplete.is_empty() || (head == 0 && blocks.is_empty())
        {
            return 0;
        }
        self.incomplete.resize(filled + head, 0);
        let head_place = &mut self.incomplete[filled..];
        let mut received = 0;
        match blocks.is_empty() {
            true => received = receive(head_place, &[]),
            false => self.region.receive(blocks, &mut |bytes| {
                received = receive(head_place, bytes);
                received.saturating_sub(head)
            }),
        }
        self.end = at + received;
        debug_assert!(self.end <= self.len(), "data of the blocks");
        self.incomplete.truncate(filled + received);
        self.land_complete(at + received.min(head));
        received
    }

    /// Returns the start of the blocks that [`WholeBlocks::rest`] returns. They are at least one block, so
    /// that there is something to write.
    pub fn rest_start(&self) -> usize {
        self.whole(self.end)
            .min(self.len().saturating_sub(self.block_bytes))
    }

    /// Returns a buffer for the blocks that are not yet complete, from [`WholeBlocks::rest_start`] on. It
    /// contains the part received so far.
    pub fn rest(&self) -> Buffer {
        let start = self.rest_start();
        let mut rest = Buffer::recycled(self.len() - start);
        let come = &mut rest[..self.end - start];
        self.region.load(start, come);
        let beginning = come.len() - self.incomplete.len();
        come[beginning..].copy_from_slice(&self.incomplete);
        rest
    }

    /// Returns the number of bytes from `at` to the next block boundary.
    fn missing(&self, at: usize) -> usize {
        at.wrapping_neg() & (self.block_bytes - 1)
    }

    fn whole(&self, bytes: usize) -> usize {
        bytes & !(self.block_bytes - 1)
    }

    fn put_head(&mut self, at: usize, head: &[u8]) {
        if self.incomplete.is_empty() && !head.is_empty() {
            // The start of the block is already in the medium, because a `receive` stored fewer than `sure`
            // bytes.
            return self.region.store(at, head);
        }
        self.incomplete.extend_from_slice(head);
        self.land_complete(at + head.len());
    }

    /// Stores the block that ends at `end`, if it is complete.
    fn land_complete(&mut self, end: usize) {
        if self.incomplete.len() == self.block_bytes {
            self.region.store(end - self.block_bytes, &self.incomplete);
            self.incomplete = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicU8, Ordering};
    use std::sync::{Arc, Mutex};

    use crate::region::Medium;

    use super::*;

    const BLOCK: usize = 512;
    const LENGTH: usize = 8 * BLOCK;

    /// A medium with old content, and the ranges that were changed atomically.
    #[derive(Default)]
    struct Bytes(Vec<AtomicU8>, Mutex<Vec<Range<usize>>>);

    impl Medium for Bytes {
        fn bytes(&self) -> &[AtomicU8] {
            &self.0
        }

        fn store(&self, at: usize, from: &[u8]) {
            self.receive(at..at + from.len(), &mut |bytes| fill(bytes, from));
        }

        fn load(&self, at: usize, into: &mut [u8]) {
            into.iter_mut()
                .zip(&self.0[at..])
                .for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        }

        fn receive(&self, range: Range<usize>, receive: &mut dyn FnMut(&[AtomicU8]) -> usize) {
            let received = receive(&self.0[range.clone()]);
            self.1
                .lock()
                .expect("one thread")
                .push(range.start..range.start + received);
        }
    }

    fn fill(bytes: &[AtomicU8], from: &[u8]) -> usize {
        bytes
            .iter()
            .zip(from)
            .map(|(to, from)| to.store(*from, Ordering::Relaxed))
            .count()
    }

    fn blocks() -> (Arc<Bytes>, WholeBlocks) {
        let medium = Arc::new(Bytes(
            (0..LENGTH).map(|_| AtomicU8::new(0)).collect(),
            Mutex::default(),
        ));
        let region = Region::new(Arc::clone(&medium) as _, 0..LENGTH).expect("all of it");
        (medium, WholeBlocks::new(region, BlockSize::B512))
    }

    /// Returns new content, in which each byte differs from its neighbours.
    fn data() -> Vec<u8> {
        (0..LENGTH).map(|at| (at % 251) as u8 + 1).collect()
    }

    /// Checks that the medium contains the first `landed` new bytes and old content after them, and that all
    /// changes were of whole blocks.
    #[track_caller]
    fn expect_landed(medium: &Bytes, landed: usize) {
        let mut found = vec![0; LENGTH];
        medium.load(0, &mut found);
        assert!(
            found[..landed] == data()[..landed] && found[landed..].iter().all(|&byte| byte == 0),
            "{landed} bytes"
        );
        let changes = medium.1.lock().expect("one thread");
        let whole = |change: &Range<usize>| {
            change.start.is_multiple_of(BLOCK) && change.end.is_multiple_of(BLOCK)
        };
        assert!(changes.iter().all(whole), "{changes:?}");
    }

    #[test]
    fn whole_blocks_land_wherever_the_data_are_cut() {
        for step in [1, 7, 511, 512, 513, 1000, 1024, 1537, LENGTH] {
            let (medium, mut blocks) = blocks();
            for (index, piece) in data().chunks(step).enumerate() {
                let at = index * step;
                blocks.put(at, piece);
                let (end, landed) = (at + piece.len(), (at + piece.len()) / BLOCK * BLOCK);
                expect_landed(&medium, landed);
                assert_eq!(blocks.incomplete, data()[landed..end]);
                let start = blocks.rest_start();
                assert_eq!(start, landed.min(LENGTH - BLOCK));
                assert_eq!(blocks.rest()[..end - start], data()[start..end]);
            }
        }
    }

    #[test]
    fn bytes_that_are_known_to_be_there_are_received_where_they_belong() {
        for sure in [1, 100, 511, 512, 600, 1025, LENGTH] {
            let (medium, mut blocks) = blocks();
            let mut at = 0;
            while at < LENGTH {
                let end = LENGTH.min(at + sure);
                let received = blocks.receive(at, sure, |head, whole| {
                    head.copy_from_slice(&data()[at..at + head.len()]);
                    head.len() + fill(whole, &data()[at + head.len()..])
                });
                blocks.put(at + received, &data()[at + received..end]);
                at = end;
                expect_landed(&medium, at / BLOCK * BLOCK);
            }
        }
    }

    #[test]
    fn what_lies_beyond_the_blocks_is_left_out() {
        let (medium, mut blocks) = blocks();
        let mut longer = data();
        longer.extend([9; 700]);
        blocks.put(0, &longer[..LENGTH - 10]);
        blocks.put(LENGTH - 10, &longer[LENGTH - 10..]);
        blocks.put(LENGTH + 5, &[9; 600]);
        blocks.put(LENGTH + BLOCK, &[9; 600]);
        expect_landed(&medium, LENGTH);
        let received = blocks.receive(LENGTH, 100, |_, _| unreachable!("there is no place"));
        assert_eq!((received, blocks.incomplete.len()), (0, 0));
    }

    #[test]
    fn a_read_that_gets_less_than_was_sure_loses_nothing() {
        let (medium, mut blocks) = blocks();
        let at = blocks.receive(0, 4 * BLOCK, |_, whole| fill(&whole[..700], &data()));
        let middle = |_: &mut [u8], _: &[AtomicU8]| unreachable!("in the middle of a block");
        assert_eq!(blocks.receive(at, LENGTH, middle), 0);
        assert_eq!(
            blocks.rest()[..at - BLOCK],
            data()[BLOCK..at],
            "what is on the medium of the torn block"
        );
        blocks.put(at, &data()[at..]);
        let mut found = vec![0; LENGTH];
        medium.load(0, &mut found);
        assert_eq!(found, data());
    }
}
