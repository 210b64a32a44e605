//! What is in memory: chunks, and which of their blocks are known, written and not yet passed on, or on their way.
//!
//! Everything that happens to a chunk happens here, under one lock, in no time; the waiting is done elsewhere. The rules
//! that keep it right:
//!
//! - A block that is dirty is known. What a load brings counts only for blocks that are not known yet, so that a write
//!   during a load is never undone.
//! - A chunk has at most one load and one write under way. Writes that overlap are never with the device together, and
//!   a chunk with either is not dropped.
//! - While a range is held by somebody who changes the device directly, nobody touches its chunks; nor when that was aborted,
//!   until the device cannot carry it out any more: a load could find what is about to change.

use std::collections::BTreeMap;
use std::ops::Range;
use std::task::Waker;

use super::bitmap::Marks;
use crate::{Aborted, Buffer, Slice};

/// A part of a request that lies in one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Which chunk, counted from the start of the device.
    pub(super) chunk: u64,
    /// Its blocks, counted from the start of the chunk.
    pub(super) blocks: Range<usize>,
}

/// The sizes of things, in blocks, and of a block in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) block_bytes: usize,
    /// A chunk: what is asked of the device at once.
    pub(super) chunk: usize,
    /// How much may be read ahead, and how much may be written behind.
    pub(super) window: usize,
    /// Chunks that are kept if nobody needs their room.
    pub(super) chunks_kept: usize,
}

pub(super) struct Cache {
    sizes: Sizes,
    chunks: BTreeMap<u64, Chunk>,
    /// Ranges of chunks that are held by somebody who changes the device directly.
    held: Vec<Range<u64>>,
    /// Ranges of chunks whose direct change was aborted while the device had it.
    aborted: Aborted<Range<u64>>,
    /// Blocks that are dirty or on their way.
    unwritten: usize,
    /// How often data were lost that had been taken.
    losses: u64,
    /// How often any chunk was passed on.
    passes: u64,
    /// Counts uses, so that what was not used for longest is known.
    clock: u64,
    waiters: Vec<Waker>,
}

struct Chunk {
    bytes: Buffer,
    known: Marks,
    dirty: Marks,
    loading: bool,
    /// What is on its way.
    writing: Option<Marks>,
    /// Passing it on was given up in the middle: the device may be at it still.
    abandoned: bool,
    /// It is to be passed on again as soon as it can.
    wanted: bool,
    /// How often it was passed on, well or not, counted from what `Cache::passes` was when it was made: one that was
    /// dropped and made again is not behind where it was.
    passes: u64,
    /// How often that failed.
    failures: u64,
    used: u64,
}

/// What became of a read of a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It was copied.
    All,
    /// It has to be loaded: nobody does yet.
    Missing,
    /// The device must have completed or cancelled aborted changes first ([`Cache::quiesced`]).
    Aborted,
}

/// What became of a write of a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It was copied, and its chunk should be passed on now if this says so.
    Yes { passes_on: bool },
    /// There is no room before this chunk is passed on.
    After(u64),
    /// The device must have completed or cancelled aborted changes first ([`Cache::quiesced`]).
    Aborted,
}

/// Blocks of a chunk on their way to the device.
pub(super) struct Job {
    pub(super) chunk: u64,
    pub(super) runs: Vec<(Range<usize>, Slice)>,
    /// The device has to let go of an earlier attempt first.
    pub(super) after_abandoned: bool,
}

/// When a chunk will have passed on what is dirty now: how often it has to be passed on.
pub(super) type Goal = (u64, u64);

impl Cache {
    pub(super) fn new(sizes: Sizes) -> Cache {
        Cache {
            sizes,
            chunks: BTreeMap::new(),
            held: Vec::new(),
            aborted: Aborted::default(),
            unwritten: 0,
            losses: 0,
            passes: 0,
            clock: 0,
            waiters: Vec::new(),
        }
    }

    /// Copies a piece into `into`, if it is known. `None` while it is being loaded or held.
    pub(super) fn read(&mut self, piece: &Piece, into: &mut [u8]) -> Option<Found> {
        if self.is_held(piece.chunk) {
            return None;
        }
        if self.is_aborted(piece.chunk) {
            return Some(Found::Aborted);
        }
        let (used, block_bytes) = (self.tick(), self.sizes.block_bytes);
        let Some(chunk) = self.chunks.get_mut(&piece.chunk) else { return Some(Found::Missing) };
        chunk.used = used;
        if chunk.known.all(piece.blocks.clone()) {
            into.copy_from_slice(&chunk.bytes[bytes(&piece.blocks, block_bytes)]);
            return Some(Found::All);
        }
        (!chunk.loading).then_some(Found::Missing)
    }

    /// Marks a piece as being loaded, if anything of it is missing and nobody loads it already; says how often its chunk
    /// has failed by now, which [`Cache::loaded`] wants to know. What is not `urgent` is left if there is no room.
    pub(super) fn load(&mut self, piece: &Piece, urgent: bool) -> Option<u64> {
        let known = self.chunks.get(&piece.chunk);
        let needless = known.is_some_and(|chunk| chunk.loading || chunk.known.all(piece.blocks.clone()));
        if needless
            || self.is_held(piece.chunk)
            || self.is_aborted(piece.chunk)
            || !(known.is_some() || self.make_room() || urgent)
        {
            return None;
        }
        let chunk = self.chunk(piece.chunk);
        chunk.loading = true;
        Some(chunk.failures)
    }

    /// A load has ended; with its data, if it went well.
    pub(super) fn loaded(&mut self, piece: &Piece, failures: u64, data: Option<&[u8]>) {
        let block_bytes = self.sizes.block_bytes;
        let Some(chunk) = self.chunks.get_mut(&piece.chunk) else { return };
        chunk.loading = false;
        // After a failed write nobody knows which blocks this has found old, and which new.
        let Some(data) = data.filter(|_| chunk.failures == failures) else { return };
        for (block, data) in piece.blocks.clone().zip(data.chunks_exact(block_bytes)) {
            if !chunk.known.is_marked(block) {
                chunk.bytes[bytes(&(block..block + 1), block_bytes)].copy_from_slice(data);
            }
        }
        chunk.known.set(piece.blocks.clone());
    }

    /// Takes a piece that is written, if there is room. `None` while there is not, or while it is held.
    pub(super) fn write(&mut self, piece: &Piece, from: &[u8]) -> Option<Taken> {
        if self.is_held(piece.chunk) {
            return None;
        }
        if self.is_aborted(piece.chunk) {
            return Some(Taken::Aborted);
        }
        let Sizes { block_bytes, window, chunk: chunk_blocks, .. } = self.sizes;
        if self.unwritten > 0 && self.unwritten + piece.blocks.len() > window {
            return self.oldest_dirty().map(Taken::After);
        }
        self.make_room();
        let chunk = self.chunk(piece.chunk);
        let before = chunk.dirty.count();
        chunk.bytes[bytes(&piece.blocks, block_bytes)].copy_from_slice(from);
        chunk.known.set(piece.blocks.clone());
        chunk.dirty.set(piece.blocks.clone());
        let more = chunk.dirty.count() - before;
        // A sequential writer has nothing more for this chunk.
        let passes_on = piece.blocks.end == chunk_blocks;
        self.unwritten += more;
        Some(Taken::Yes { passes_on })
    }

    /// Puts what is dirty of a chunk on its way. `None` if nothing is; if something is on its way already, it follows
    /// that.
    pub(super) fn pass_on(&mut self, index: u64) -> Option<Job> {
        let block_bytes = self.sizes.block_bytes;
        let chunk = self.chunks.get_mut(&index).filter(|chunk| chunk.dirty.any())?;
        if chunk.writing.is_some() {
            chunk.wanted = true;
            return None;
        }
        let dirty = std::mem::replace(&mut chunk.dirty, Marks::none(self.sizes.chunk));
        let copy = |run: Range<usize>| {
            let data = Buffer::from(&chunk.bytes[bytes(&run, block_bytes)]).share();
            (run, data)
        };
        let runs = dirty.runs().into_iter().map(copy).collect();
        chunk.wanted = false;
        chunk.writing = Some(dirty);
        Some(Job { chunk: index, runs, after_abandoned: std::mem::take(&mut chunk.abandoned) })
    }

    /// A chunk was passed on, except for the blocks in `failed`, which are lost. Says whether it is to be passed on again.
    pub(super) fn passed_on(&mut self, index: u64, failed: &[Range<usize>]) -> bool {
        let has_failed = u64::from(!failed.is_empty());
        self.losses += has_failed;
        let Some(chunk) = self.chunks.get_mut(&index) else { return false };
        let written = chunk.writing.take();
        self.unwritten -= written.map_or(0, |written| written.count());
        chunk.passes += 1;
        self.passes += 1;
        chunk.failures += has_failed;
        for block in failed.iter().cloned().flatten() {
            if !chunk.dirty.is_marked(block) {
                chunk.known.clear(block..block + 1);
            }
        }
        chunk.wanted
    }

    /// Passing on a chunk was given up in the middle: it is dirty again.
    pub(super) fn abandoned(&mut self, index: u64) {
        let Some(chunk) = self.chunks.get_mut(&index) else { return };
        let Some(writing) = chunk.writing.take() else { return };
        chunk.abandoned = true;
        let before = chunk.dirty.count();
        writing.runs().into_iter().for_each(|run| chunk.dirty.set(run));
        self.unwritten -= writing.count() - (chunk.dirty.count() - before);
    }

    /// What has to happen until all that is dirty now in these chunks has been passed on.
    pub(super) fn goals(&self, chunks: Range<u64>) -> Vec<Goal> {
        let goal = |(index, chunk): (&u64, &Chunk)| {
            let times = u64::from(chunk.writing.is_some()) + u64::from(chunk.dirty.any());
            (times > 0).then_some((*index, chunk.passes + times))
        };
        self.chunks.range(chunks).filter_map(goal).collect()
    }

    /// Takes what was reached off the list; also what has nothing left to pass on, because one pass was enough after an
    /// abandoned one. A chunk that is to be passed on for the rest, and `None` while there is only to wait; the inner `None`
    /// when all are reached.
    pub(super) fn next_goal(&self, goals: &mut Vec<Goal>) -> Option<Option<u64>> {
        let is_ahead = |chunk: &Chunk, passes: u64| chunk.passes < passes && chunk.has_unwritten();
        goals.retain(|(index, passes)| self.chunks.get(index).is_some_and(|chunk| is_ahead(chunk, *passes)));
        let idle = |index: &u64| {
            self.chunks.get(index).is_some_and(|chunk| chunk.writing.is_none() && chunk.dirty.any())
        };
        match goals.iter().map(|(index, _)| *index).find(idle) {
            Some(index) => Some(Some(index)),
            None => goals.is_empty().then_some(None),
        }
    }

    /// Keeps everybody away from these chunks, if nobody does that already.
    pub(super) fn hold(&mut self, chunks: &Range<u64>) -> Option<()> {
        let overlaps = |held: &Range<u64>| held.start < chunks.end && chunks.start < held.end;
        let free = !self.held.iter().any(overlaps);
        free.then(|| self.held.push(chunks.clone()))
    }

    /// Lets everybody at them again.
    pub(super) fn let_go(&mut self, chunks: &Range<u64>) {
        self.held.retain(|held| held != chunks);
    }

    /// The same when the change was aborted while the device had it.
    pub(super) fn abort(&mut self, chunks: &Range<u64>) {
        self.let_go(chunks);
        self.aborted.push(chunks.clone());
    }

    /// How many direct changes were aborted so far.
    pub(super) fn aborts(&self) -> u64 {
        self.aborted.count()
    }

    /// The device cannot carry out the first so many aborted changes any more.
    pub(super) fn quiesced(&mut self, aborts: u64) {
        drop(self.aborted.settle(aborts));
    }

    /// Drops chunks that are held and were passed on. `None` while something is under way with them.
    pub(super) fn forget(&mut self, chunks: Range<u64>) -> Option<()> {
        if self.chunks.range(chunks.clone()).any(|(_, chunk)| !chunk.is_idle()) {
            return None;
        }
        self.chunks.retain(|index, _| !chunks.contains(index));
        Some(())
    }

    /// How often data were lost that had been taken.
    pub(super) fn losses(&self) -> u64 {
        self.losses
    }

    /// Whoever waits for anything is to look again when something has changed.
    pub(super) fn wait(&mut self, waker: &Waker) {
        self.waiters.retain(|known| !known.will_wake(waker));
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
        let (sizes, passes, used) = (self.sizes, self.passes, self.tick());
        let chunk = self.chunks.entry(index).or_insert_with(|| Chunk::new(sizes, passes));
        chunk.used = used;
        chunk
    }

    /// Drops what was not used for longest, if as many chunks are kept as should be. False if none can be dropped.
    fn make_room(&mut self) -> bool {
        if self.chunks.len() < self.sizes.chunks_kept {
            return true;
        }
        let idle = self.chunks.iter().filter(|(_, chunk)| chunk.is_idle());
        let oldest = idle.min_by_key(|(_, chunk)| chunk.used).map(|(index, _)| *index);
        oldest.and_then(|index| self.chunks.remove(&index)).is_some()
    }

    fn oldest_dirty(&self) -> Option<u64> {
        let idle = self.chunks.iter().filter(|(_, chunk)| chunk.writing.is_none() && chunk.dirty.any());
        idle.min_by_key(|(_, chunk)| chunk.used).map(|(index, _)| *index)
    }
}

impl Chunk {
    fn new(sizes: Sizes, passes: u64) -> Chunk {
        Chunk {
            // Nobody sees a block that is not known, so that what an earlier request left there does no harm.
            bytes: Buffer::recycled(sizes.chunk * sizes.block_bytes),
            known: Marks::none(sizes.chunk),
            dirty: Marks::none(sizes.chunk),
            loading: false,
            writing: None,
            abandoned: false,
            wanted: false,
            passes,
            failures: 0,
            used: 0,
        }
    }

    /// Whether it can be dropped without loss.
    fn is_idle(&self) -> bool {
        !self.loading && !self.has_unwritten()
    }

    /// Whether anything of it has not been passed on.
    fn has_unwritten(&self) -> bool {
        self.writing.is_some() || self.dirty.any()
    }
}

fn bytes(blocks: &Range<usize>, block_bytes: usize) -> Range<usize> {
    blocks.start * block_bytes..blocks.end * block_bytes
}
