//! The cache: its chunks, and which of their blocks are valid, dirty, or being written back.
//!
//! All state changes of chunks are in this module, under one lock. No function here waits; callers wait
//! elsewhere. Invariants:
//!
//! - A dirty block is valid. A load fills only blocks that are not yet valid, so it never overwrites data
//!   that was written during the load.
//! - At most one load and one write-back of a chunk are outstanding, so overlapping writes are never
//!   outstanding at the device at the same time. A chunk with an outstanding load or write-back is not
//!   evicted.
//! - While a range is held for a direct change of the device, its chunks are not accessed. If the change is
//!   aborted, this continues until the device can no longer execute the change. Otherwise a load could read
//!   blocks that are about to change.

use std::collections::BTreeMap;
use std::ops::Range;
use std::task::Waker;

use crate::buffer::{Buffer, Slice};
use crate::tasks::Aborted;

/// The part of a request that lies in one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Chunk number from the start of the device.
    pub(super) chunk: u64,
    /// Blocks from the start of the chunk.
    pub(super) blocks: Range<usize>,
}

/// Sizes in blocks, and the size of a block in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) block_bytes: usize,
    /// Size of a chunk, which is also the size of one request to the device.
    pub(super) chunk: usize,
    /// Maximum read-ahead of a reader, and maximum write-behind of all writers combined.
    pub(super) window: usize,
    /// Maximum number of chunks in memory.
    pub(super) chunks_kept: usize,
}

pub(super) struct Cache {
    sizes: Sizes,
    chunks: BTreeMap<u64, Chunk>,
    /// Ranges of chunks held for direct changes of the device.
    held: Vec<Range<u64>>,
    /// Ranges of chunks whose direct change was aborted while it was outstanding at the device.
    aborted: Aborted<Range<u64>>,
    /// Number of blocks that are dirty or being written back.
    unwritten: usize,
    /// Number of losses of acknowledged data.
    losses: u64,
    /// Total number of write-backs.
    write_backs: u64,
    /// Counts accesses, to determine the least recently used chunk.
    clock: u64,
    waiters: Vec<Waker>,
}

struct Chunk {
    bytes: Buffer,
    valid: BlockBitmap,
    dirty: BlockBitmap,
    loading: bool,
    /// Blocks being written back.
    writing: Option<BlockBitmap>,
    /// Whether a write-back was dropped before it completed. It may still be outstanding at the device.
    abandoned: bool,
    /// Whether another write-back must follow the outstanding one.
    write_back_again: bool,
    /// Number of write-backs of the chunk, successful or not. It starts at the value of `Cache::write_backs`
    /// when the chunk was created, so that it does not decrease if the chunk is evicted and created again.
    write_backs: u64,
    /// Number of failed write-backs.
    failures: u64,
    used: u64,
}

/// Result of reading a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// The piece was copied.
    All,
    /// The piece must be loaded, and no load is outstanding.
    Missing,
    /// The device must first complete or cancel aborted changes ([`Cache::quiesced`]).
    Aborted,
}

/// Result of writing a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// The piece was copied. If `write_back_now`, the caller should now write the chunk back.
    Yes { write_back_now: bool },
    /// There is no space until this chunk has been written back.
    After(u64),
    /// The device must first complete or cancel aborted changes ([`Cache::quiesced`]).
    Aborted,
}

/// One write-back of a chunk.
pub(super) struct WriteBack {
    pub(super) chunk: u64,
    pub(super) runs: Vec<(Range<usize>, Slice)>,
    /// Whether the device must first complete or cancel an earlier write-back that was dropped.
    pub(super) after_abandoned: bool,
}

/// A chunk, and the value of its write-back count at which its currently dirty blocks have been written back.
pub(super) type WriteBackGoal = (u64, u64);

impl Cache {
    pub(super) fn new(sizes: Sizes) -> Cache {
        Cache {
            sizes,
            chunks: BTreeMap::new(),
            held: Vec::new(),
            aborted: Aborted::default(),
            unwritten: 0,
            losses: 0,
            write_backs: 0,
            clock: 0,
            waiters: Vec::new(),
        }
    }

    /// Copies a piece into `into` if it is valid. Returns `None` while the piece is being loaded, or its
    /// chunk is held.
    pub(super) fn read(&mut self, piece: &Piece, into: &mut [u8]) -> Option<ReadOutcome> {
        if self.is_held(piece.chunk) {
            return None;
        }
        if self.is_aborted(piece.chunk) {
            return Some(ReadOutcome::Aborted);
        }
        let (used, block_bytes) = (self.tick(), self.sizes.block_bytes);
        let Some(chunk) = self.chunks.get_mut(&piece.chunk) else {
            return Some(ReadOutcome::Missing);
        };
        chunk.used = used;
        debug_assert_eq!(into.len(), piece.blocks.len() * block_bytes);
        if chunk.valid.all(piece.blocks.clone()) {
            into.copy_from_slice(&chunk.bytes[bytes(&piece.blocks, block_bytes)]);
            return Some(ReadOutcome::All);
        }
        (!chunk.loading).then_some(ReadOutcome::Missing)
    }

    /// Starts a load of a piece, if part of it is missing and no load of its chunk is outstanding. Returns
    /// the chunk's failure count, which the caller must pass to [`Cache::loaded`]. Unless the load is
    /// `urgent`, it is started only if there is free space.
    pub(super) fn load(&mut self, piece: &Piece, urgent: bool) -> Option<u64> {
        let valid = self.chunks.get(&piece.chunk);
        let needless =
            valid.is_some_and(|chunk| chunk.loading || chunk.valid.all(piece.blocks.clone()));
        if needless
            || self.is_held(piece.chunk)
            || self.is_aborted(piece.chunk)
            || !(valid.is_some() || self.make_room() || urgent)
        {
            return None;
        }
        let chunk = self.chunk(piece.chunk);
        debug_assert!(!chunk.loading, "a chunk has one load");
        chunk.loading = true;
        Some(chunk.failures)
    }

    /// Ends a load, with its data if it succeeded.
    pub(super) fn loaded(&mut self, piece: &Piece, failures: u64, data: Option<&[u8]>) {
        let block_bytes = self.sizes.block_bytes;
        let Some(chunk) = self.chunks.get_mut(&piece.chunk) else {
            return;
        };
        chunk.loading = false;
        // If a write-back failed during the load, it is unknown which blocks the load read with old data and
        // which with new data.
        let Some(data) = data.filter(|_| chunk.failures == failures) else {
            return;
        };
        for (block, data) in piece.blocks.clone().zip(data.chunks_exact(block_bytes)) {
            if !chunk.valid.is_set(block) {
                chunk.bytes[bytes(&(block..block + 1), block_bytes)].copy_from_slice(data);
            }
        }
        chunk.valid.set(piece.blocks.clone());
    }

    /// Copies a written piece into the cache if there is space. Returns `None` while its chunk is held, or if
    /// there is no space and no dirty chunk to write back.
    pub(super) fn write(&mut self, piece: &Piece, from: &[u8]) -> Option<WriteOutcome> {
        if self.is_held(piece.chunk) {
            return None;
        }
        if self.is_aborted(piece.chunk) {
            return Some(WriteOutcome::Aborted);
        }
        let Sizes {
            block_bytes,
            window,
            chunk: chunk_blocks,
            ..
        } = self.sizes;
        if self.unwritten > 0 && self.unwritten + piece.blocks.len() > window {
            return self.oldest_dirty().map(WriteOutcome::After);
        }
        // A chunk takes memory for all of its blocks, even if few of them are dirty.
        if !self.chunks.contains_key(&piece.chunk) && !self.make_room() {
            return self.oldest_dirty().map(WriteOutcome::After);
        }
        let chunk = self.chunk(piece.chunk);
        let before = chunk.dirty.count();
        debug_assert_eq!(from.len(), piece.blocks.len() * block_bytes);
        chunk.bytes[bytes(&piece.blocks, block_bytes)].copy_from_slice(from);
        chunk.valid.set(piece.blocks.clone());
        chunk.dirty.set(piece.blocks.clone());
        let more = chunk.dirty.count() - before;
        // At the end of the chunk, a sequential writer has written all of it.
        let write_back_now = piece.blocks.end == chunk_blocks;
        self.unwritten += more;
        self.debug_check();
        Some(WriteOutcome::Yes { write_back_now })
    }

    /// Starts a write-back of a chunk's dirty blocks. Returns `None` if no block is dirty, or if a write-back
    /// is outstanding; another one then follows it.
    pub(super) fn write_back(&mut self, index: u64) -> Option<WriteBack> {
        let block_bytes = self.sizes.block_bytes;
        let chunk = self
            .chunks
            .get_mut(&index)
            .filter(|chunk| chunk.dirty.any())?;
        if chunk.writing.is_some() {
            chunk.write_back_again = true;
            return None;
        }
        debug_assert!(
            chunk
                .dirty
                .runs()
                .into_iter()
                .all(|run| chunk.valid.all(run)),
            "a dirty block is valid"
        );
        let dirty = std::mem::replace(&mut chunk.dirty, BlockBitmap::empty(self.sizes.chunk));
        let copy = |run: Range<usize>| {
            let data = Buffer::from(&chunk.bytes[bytes(&run, block_bytes)]).share();
            (run, data)
        };
        let runs = dirty.runs().into_iter().map(copy).collect();
        chunk.write_back_again = false;
        chunk.writing = Some(dirty);
        Some(WriteBack {
            chunk: index,
            runs,
            after_abandoned: std::mem::take(&mut chunk.abandoned),
        })
    }

    /// Ends a write-back. The blocks in `failed` are lost. Returns true if another write-back must follow.
    pub(super) fn written_back(&mut self, index: u64, failed: &[Range<usize>]) -> bool {
        let has_failed = u64::from(!failed.is_empty());
        self.losses += has_failed;
        let Some(chunk) = self.chunks.get_mut(&index) else {
            return false;
        };
        let written = chunk.writing.take();
        debug_assert!(written.is_some(), "a write-back ends once");
        self.unwritten -= written.map_or(0, |written| written.count());
        chunk.write_backs += 1;
        self.write_backs += 1;
        chunk.failures += has_failed;
        for block in failed.iter().cloned().flatten() {
            if !chunk.dirty.is_set(block) {
                chunk.valid.clear(block..block + 1);
            }
        }
        let again = chunk.write_back_again;
        self.debug_check();
        again
    }

    /// Ends a write-back that was dropped before it completed. Its blocks become dirty again.
    pub(super) fn abandoned(&mut self, index: u64) {
        let Some(chunk) = self.chunks.get_mut(&index) else {
            return;
        };
        let Some(writing) = chunk.writing.take() else {
            return;
        };
        chunk.abandoned = true;
        let before = chunk.dirty.count();
        writing
            .runs()
            .into_iter()
            .for_each(|run| chunk.dirty.set(run));
        self.unwritten -= writing.count() - (chunk.dirty.count() - before);
        self.debug_check();
    }

    fn debug_check(&self) {
        let unwritten = |chunk: &Chunk| {
            chunk.dirty.count() + chunk.writing.as_ref().map_or(0, BlockBitmap::count)
        };
        debug_assert_eq!(
            self.unwritten,
            self.chunks.values().map(unwritten).sum::<usize>()
        );
    }

    /// Returns goals that are reached when all blocks that are now dirty in these chunks have been written
    /// back.
    pub(super) fn goals(&self, chunks: Range<u64>) -> Vec<WriteBackGoal> {
        let goal = |(index, chunk): (&u64, &Chunk)| {
            let times = u64::from(chunk.writing.is_some()) + u64::from(chunk.dirty.any());
            (times > 0).then_some((*index, chunk.write_backs + times))
        };
        self.chunks.range(chunks).filter_map(goal).collect()
    }

    /// Removes the goals that have been reached, and the goals of chunks that have been written back
    /// completely: after a dropped write-back, a single write-back may cover the blocks of two. Returns the
    /// next chunk to write back; `None` while only outstanding write-backs are left; `Some(None)` when all
    /// goals have been reached.
    pub(super) fn next_goal(&self, goals: &mut Vec<WriteBackGoal>) -> Option<Option<u64>> {
        let is_ahead = |chunk: &Chunk, write_backs: u64| {
            chunk.write_backs < write_backs && chunk.has_unwritten()
        };
        goals.retain(|(index, write_backs)| {
            self.chunks
                .get(index)
                .is_some_and(|chunk| is_ahead(chunk, *write_backs))
        });
        let idle = |index: &u64| {
            self.chunks
                .get(index)
                .is_some_and(|chunk| chunk.writing.is_none() && chunk.dirty.any())
        };
        match goals.iter().map(|(index, _)| *index).find(idle) {
            Some(index) => Some(Some(index)),
            None => goals.is_empty().then_some(None),
        }
    }

    /// Holds these chunks. Returns `None` if one of them is already held.
    pub(super) fn hold(&mut self, chunks: &Range<u64>) -> Option<()> {
        let overlaps = |held: &Range<u64>| held.start < chunks.end && chunks.start < held.end;
        let free = !self.held.iter().any(overlaps);
        free.then(|| self.held.push(chunks.clone()))
    }

    /// Ends a hold.
    pub(super) fn release(&mut self, chunks: &Range<u64>) {
        debug_assert!(self.held.contains(chunks), "a hold ends once");
        self.held.retain(|held| held != chunks);
    }

    /// Ends a hold whose change was aborted while it was outstanding at the device.
    pub(super) fn abort(&mut self, chunks: &Range<u64>) {
        self.release(chunks);
        self.aborted.push(chunks.clone());
    }

    /// Returns the number of direct changes aborted so far.
    pub(super) fn aborts(&self) -> u64 {
        self.aborted.count()
    }

    /// Records that the device can no longer execute the first `aborts` aborted changes.
    pub(super) fn quiesced(&mut self, aborts: u64) {
        drop(self.aborted.settle(aborts));
    }

    /// Evicts these chunks, which must be held and written back. Returns `None` while a load or write-back of
    /// one of them is outstanding.
    pub(super) fn evict(&mut self, chunks: Range<u64>) -> Option<()> {
        if self
            .chunks
            .range(chunks.clone())
            .any(|(_, chunk)| !chunk.is_idle())
        {
            return None;
        }
        self.chunks.retain(|index, _| !chunks.contains(index));
        Some(())
    }

    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses
    }

    /// Registers a waker for the next state change.
    pub(super) fn wait(&mut self, waker: &Waker) {
        self.waiters.retain(|valid| !valid.will_wake(waker));
        self.waiters.push(waker.clone());
    }

    pub(super) fn take_waiters(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.waiters)
    }

    fn is_held(&self, chunk: u64) -> bool {
        self.held.iter().any(|held| held.contains(&chunk))
    }

    fn is_aborted(&self, chunk: u64) -> bool {
        self.aborted.iter().any(|chunks| chunks.contains(&chunk))
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn chunk(&mut self, index: u64) -> &mut Chunk {
        let (sizes, write_backs, used) = (self.sizes, self.write_backs, self.tick());
        let chunk = self
            .chunks
            .entry(index)
            .or_insert_with(|| Chunk::new(sizes, write_backs));
        chunk.used = used;
        chunk
    }

    /// Evicts the least recently used idle chunk if the cache is full. Returns false if no chunk can be
    /// evicted.
    fn make_room(&mut self) -> bool {
        if self.chunks.len() < self.sizes.chunks_kept {
            return true;
        }
        let idle = self.chunks.iter().filter(|(_, chunk)| chunk.is_idle());
        let oldest = idle
            .min_by_key(|(_, chunk)| chunk.used)
            .map(|(index, _)| *index);
        oldest
            .and_then(|index| self.chunks.remove(&index))
            .is_some()
    }

    fn oldest_dirty(&self) -> Option<u64> {
        let idle = self
            .chunks
            .iter()
            .filter(|(_, chunk)| chunk.writing.is_none() && chunk.dirty.any());
        idle.min_by_key(|(_, chunk)| chunk.used)
            .map(|(index, _)| *index)
    }
}

impl Chunk {
    fn new(sizes: Sizes, write_backs: u64) -> Chunk {
        Chunk {
            // Invalid blocks are never read, so the content of the recycled buffer does not matter.
            bytes: Buffer::recycled(sizes.chunk * sizes.block_bytes),
            valid: BlockBitmap::empty(sizes.chunk),
            dirty: BlockBitmap::empty(sizes.chunk),
            loading: false,
            writing: None,
            abandoned: false,
            write_back_again: false,
            write_backs,
            failures: 0,
            used: 0,
        }
    }

    /// Returns whether the chunk can be evicted without losing data.
    fn is_idle(&self) -> bool {
        !self.loading && !self.has_unwritten()
    }

    /// Returns whether the chunk has blocks that have not been written back.
    fn has_unwritten(&self) -> bool {
        self.writing.is_some() || self.dirty.any()
    }
}

fn bytes(blocks: &Range<usize>, block_bytes: usize) -> Range<usize> {
    blocks.start * block_bytes..blocks.end * block_bytes
}

/// A bit for each block of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockBitmap(Vec<bool>);

impl BlockBitmap {
    /// Creates a bitmap in which all bits are clear.
    pub(super) fn empty(blocks: usize) -> BlockBitmap {
        BlockBitmap(vec![false; blocks])
    }

    pub(super) fn set(&mut self, blocks: Range<usize>) {
        self.0[blocks].fill(true);
    }

    pub(super) fn clear(&mut self, blocks: Range<usize>) {
        self.0[blocks].fill(false);
    }

    pub(super) fn all(&self, blocks: Range<usize>) -> bool {
        self.0[blocks].iter().all(|marked| *marked)
    }

    pub(super) fn any(&self) -> bool {
        self.0.contains(&true)
    }

    pub(super) fn is_set(&self, block: usize) -> bool {
        self.0[block]
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().filter(|marked| **marked).count()
    }

    /// Returns the maximal ranges of consecutive set bits.
    pub(super) fn runs(&self) -> Vec<Range<usize>> {
        let mut at = 0;
        let parts = self.0.chunk_by(|one, next| one == next).map(|part| {
            let start = at;
            at += part.len();
            (part[0], start..at)
        });
        parts
            .filter(|(marked, _)| *marked)
            .map(|(_, run)| run)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_run() {
        let mut marks = BlockBitmap::empty(8);
        marks.set(1..3);
        marks.set(3..4);
        marks.set(6..8);
        assert_eq!(marks.runs(), [1..4, 6..8]);
        marks.clear(2..7);
        assert_eq!((marks.runs(), marks.count()), (vec![1..2, 7..8], 2));
        assert!(BlockBitmap::empty(0).runs().is_empty());
    }
}
