//! A member with a checksum for each of its blocks, to detect silent corruption.
//!
//! A block that does not match its checksum counts as unreadable. The set reconstructs it from the other
//! members and rewrites it, as after a medium error.
//!
//! ```text
//!   area     4 bytes for each block of data: CRC32C of the block, XOR the CRC32C of a block of zeros
//!            0: the block is zeros        0xffffffff: unknown, not checked
//! ```
//!
//! Changed checksums are kept in memory, and are written before the member is flushed. So a block is written
//! before its checksum, and after a crash the two may not match in blocks that were being written. The replay
//! of the journal rewrites such blocks, or the bitmap marks their regions. For every other block, both block
//! and checksum are on stable storage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{
    BlockDevice, Buffer, DeviceError, Durability, Extent, Geometry, Lba, Lock, Losses, Pending,
    Run, Slice, Space,
};
use crc_fast::crc32_iscsi;

use crate::concurrency::{ExtentLocks, Locked};

/// Length of a checksum in bytes.
const SUM_BYTES: usize = 4;
/// Unit in which checksums are read and written, in bytes. A chunk is at least a block.
const CHUNK_BYTES: usize = 4096;
/// Maximum number of chunks in memory: 16 MiB, enough for the checksums of 2 GiB of 512-byte blocks.
const CHUNKS_MAX: usize = 4096;
const DIRTY_MAX: usize = CHUNKS_MAX / 2;
/// Maximum number of chunks that one request writes.
const CHUNKS_AT_ONCE: u64 = 64;
const UNKNOWN: u32 = u32::MAX;

/// A member's blocks with their checksums.
pub struct Summed {
    places: Lock<Places>,
    block_bytes: usize,
    chunk_bytes: usize,
    /// The CRC32C of a block of zeros.
    zero: u32,
    /// Locks on data blocks, so that a block and its checksum are not read while they are being written.
    blocks: Arc<ExtentLocks>,
    /// Locks on chunks, held while a chunk is loaded.
    loading: Arc<ExtentLocks>,
    /// The lock for writing chunks. There is one write at a time, so that older content does not overwrite
    /// newer content.
    writing: Arc<ExtentLocks>,
    state: Lock<State>,
    /// Number of checksum mismatches.
    wrong: AtomicU64,
}

/// The devices with a member's blocks and checksums. Both become longer when the set grows.
struct Places {
    data: Arc<dyn BlockDevice>,
    area: Arc<dyn BlockDevice>,
    /// The unfinished copy of the checksums that will replace the area, if any. Checksums that are written to
    /// the area are also written to the copy.
    copy: Option<Arc<dyn BlockDevice>>,
}

#[derive(Default)]
struct State {
    chunks: BTreeMap<u64, Chunk>,
    dirty: BTreeSet<u64>,
    /// The hand of the clock algorithm: chunks from here on are evicted next.
    hand: u64,
}

struct Chunk {
    sums: Box<[u32]>,
    is_used: bool,
    is_being_written: bool,
}

impl Summed {
    /// Returns the size, in bytes, of the checksums for `blocks` blocks.
    pub fn area_bytes(blocks: u64) -> u64 {
        // Rounded up to whole chunks for the largest block size.
        (blocks * SUM_BYTES as u64).next_multiple_of(64 << 10)
    }

    /// Creates a member whose checksums are in `area`. `area` must be on the same device, so that a flush of
    /// `data` also flushes `area`, and have the same block size.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] if the area is too small; [`DeviceError::Unsupported`] if its block size
    /// is different.
    pub fn new(
        data: Arc<dyn BlockDevice>,
        area: Arc<dyn BlockDevice>,
    ) -> Result<Summed, DeviceError> {
        let geometry = data.geometry();
        check_area(geometry, &*area)?;
        let block_bytes = geometry.block_size.bytes() as usize;
        Ok(Summed {
            places: Lock::new(Places {
                data,
                area,
                copy: None,
            }),
            block_bytes,
            chunk_bytes: block_bytes.max(CHUNK_BYTES),
            zero: crc32_iscsi(&vec![0; block_bytes]),
            blocks: Arc::default(),
            loading: Arc::default(),
            writing: Arc::default(),
            state: Lock::default(),
            wrong: AtomicU64::new(0),
        })
    }

    fn data(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.places.lock().data)
    }

    fn area(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.places.lock().area)
    }

    /// Returns the area, and its unfinished copy if there is one.
    fn areas(&self) -> impl Iterator<Item = Arc<dyn BlockDevice>> + use<> {
        let places = self.places.lock();
        std::iter::once(Arc::clone(&places.area)).chain(places.copy.clone())
    }

    /// Starts a copy of the checksums in `area`, which [`Summed::copy_chunks`] then copies. Fails with
    /// [`DeviceError::OutOfRange`] if `area` is too small, and with [`DeviceError::Unsupported`] if its block
    /// size is different.
    pub(crate) fn begin_copy(&self, area: Arc<dyn BlockDevice>) -> Result<(), DeviceError> {
        check_area(self.geometry(), &*area)?;
        self.places.lock().copy = Some(area);
        Ok(())
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes as u64
    }

    /// Returns the number of chunks for the checksums of all blocks.
    pub(crate) fn chunks(&self) -> u64 {
        self.geometry().blocks.0.div_ceil(self.chunk_sums())
    }

    /// Returns the unused blocks at the end of an area, after the blocks of all chunks.
    pub(crate) fn area_behind(&self, area_blocks: u64) -> Extent {
        let used = self.area_of(0..self.chunks()).blocks.0;
        Extent::new(used, area_blocks.saturating_sub(used))
    }

    /// Copies some chunks, starting with chunk `from`, and returns the next chunk to copy. When the result
    /// reaches [`Summed::chunks`], all have been copied. Chunks are not written while this call copies them,
    /// and later changes are written to both places, so a copied chunk always matches the area.
    pub(crate) async fn copy_chunks(&self, from: u64) -> Result<u64, DeviceError> {
        let _turn = self.turn().await;
        let (area, copy) = {
            let places = self.places.lock();
            (
                Arc::clone(&places.area),
                places.copy.clone().ok_or(DeviceError::Unsupported)?,
            )
        };
        let end = (from + CHUNKS_AT_ONCE).min(self.chunks());
        debug_assert!(from < end);
        let read = |chunks: Range<u64>| {
            let extent = self.area_of(chunks);
            let buffer = Buffer::recycled(extent.blocks.0 as usize * self.block_bytes);
            (extent, area.read(extent, buffer))
        };
        let (extent, together) = read(from..end);
        match together.await {
            Ok(bytes) => {
                copy.write(extent, bytes.share(), Durability::Cached)
                    .await?
            }
            Err(DeviceError::Unreadable(_)) => {
                for chunk in from..end {
                    let (extent, one) = read(chunk..chunk + 1);
                    let bytes = match one.await {
                        Ok(bytes) => bytes,
                        // If the chunk is unreadable, its checksums are unknown, as when it is loaded.
                        Err(DeviceError::Unreadable(_)) => {
                            let mut unknown = Buffer::recycled(self.chunk_bytes);
                            unknown.fill(0xff);
                            unknown
                        }
                        Err(error) => return Err(error),
                    };
                    copy.write(extent, bytes.share(), Durability::Cached)
                        .await?;
                }
            }
            Err(error) => return Err(error),
        }
        Ok(end)
    }

    /// Replaces the area with its copy. The copy must be complete and recorded in the superblock.
    pub(crate) async fn use_copy(&self) {
        let _turn = self.turn().await;
        // Wait for outstanding reads of the old area, which will be zeroed.
        let _all = self.loading.exclude(Extent::new(0, u64::MAX)).await;
        let mut places = self.places.lock();
        if let Some(copy) = places.copy.take() {
            places.area = copy;
        }
    }

    /// Abandons the copy.
    pub(crate) fn drop_copy(&self) {
        self.places.lock().copy = None;
    }

    /// Whether the area has space for the checksums of `blocks` blocks.
    pub(crate) fn has_room(&self, blocks: u64) -> bool {
        self.area().geometry().bytes() >= Summed::area_bytes(blocks)
    }

    /// Switches to a longer device with the same blocks. The checksums of the new blocks must be 0.
    pub(crate) fn lengthen(&self, data: Arc<dyn BlockDevice>) {
        self.places.lock().data = data;
    }

    /// Returns the number of checksum mismatches that reads have found.
    pub fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    /// Reads blocks even if they do not match their checksums. Returns for each block whether it matches.
    pub(crate) async fn read_and_judge(
        &self,
        extent: Extent,
        buffer: Buffer,
    ) -> Result<(Buffer, Vec<bool>), DeviceError> {
        let _locked = self.blocks.share(extent).await;
        let buffer = self.data().read(extent, buffer).await?;
        let mut sums = Vec::with_capacity(extent.blocks.0 as usize);
        for (chunk, part) in self.chunks_of(extent) {
            self.copy_sums(chunk, part, &mut sums).await?;
        }
        let fits = self.each_fits(&sums, &buffer).collect();
        Ok((buffer, fits))
    }

    /// Returns for each block whether it matches its checksum.
    fn each_fits<'a>(
        &'a self,
        sums: &'a [u32],
        blocks: &'a [u8],
    ) -> impl Iterator<Item = bool> + 'a {
        debug_assert_eq!(
            sums.len() * self.block_bytes,
            blocks.len(),
            "a checksum for each block"
        );
        let each = sums.iter().zip(blocks.chunks_exact(self.block_bytes));
        each.map(|(sum, block)| *sum == UNKNOWN || *sum == self.sum(block))
    }

    fn sum(&self, block: &[u8]) -> u32 {
        crc32_iscsi(block) ^ self.zero
    }

    fn chunk_sums(&self) -> u64 {
        (self.chunk_bytes / SUM_BYTES) as u64
    }

    /// Returns the chunks that contain the checksums of `extent`, in order.
    fn chunks_of(&self, extent: Extent) -> impl Iterator<Item = (u64, PartOfChunk)> + use<> {
        let each = self.chunk_sums();
        let (start, end) = (extent.lba.0, extent.lba.0 + extent.blocks.0);
        let chunks = if extent.is_empty() {
            0..0
        } else {
            start / each..end.div_ceil(each)
        };
        chunks.map(move |chunk| {
            let first = chunk * each;
            let blocks = start.max(first)..end.min(first + each);
            let sums = (blocks.start - first) as usize..(blocks.end - first) as usize;
            (chunk, PartOfChunk { blocks, sums })
        })
    }

    /// Returns the part of `bytes`, the data of `extent`, whose checksums are in this chunk.
    fn bytes_of<'a>(&self, extent: Extent, part: &PartOfChunk, bytes: &'a [u8]) -> &'a [u8] {
        let at = |block: u64| (block - extent.lba.0) as usize * self.block_bytes;
        &bytes[at(part.blocks.start)..at(part.blocks.end)]
    }

    /// Copies checksums of a chunk, if the chunk is in memory. Returns whether it is.
    fn copy_known(&self, chunk: u64, part: &PartOfChunk, to: &mut Vec<u32>) -> bool {
        let mut state = self.state.lock();
        let Some(chunk) = state.chunks.get_mut(&chunk) else {
            return false;
        };
        chunk.is_used = true;
        to.extend_from_slice(&chunk.sums[part.sums.clone()]);
        true
    }

    async fn copy_sums(
        &self,
        chunk: u64,
        part: PartOfChunk,
        to: &mut Vec<u32>,
    ) -> Result<(), DeviceError> {
        while !self.copy_known(chunk, &part, to) {
            self.load(chunk).await?;
        }
        Ok(())
    }

    async fn change(
        &self,
        chunk: u64,
        sums: Range<usize>,
        new: impl Iterator<Item = u32>,
    ) -> Result<(), DeviceError> {
        loop {
            {
                let mut state = self.state.lock();
                let state = &mut *state;
                if let Some(found) = state.chunks.get_mut(&chunk) {
                    debug_assert!(sums.end <= found.sums.len());
                    found.is_used = true;
                    found.sums[sums]
                        .iter_mut()
                        .zip(new)
                        .for_each(|(sum, new)| *sum = new);
                    state.dirty.insert(chunk);
                    return Ok(());
                }
            }
            self.load(chunk).await?;
        }
    }

    /// Loads a chunk into memory.
    async fn load(&self, chunk: u64) -> Result<(), DeviceError> {
        let _turn = self.loading.exclude(Extent::new(chunk, 1)).await;
        if self.state.lock().chunks.contains_key(&chunk) {
            return Ok(());
        }
        let extent = self.area_of(chunk..chunk + 1);
        debug_assert!(
            self.area().geometry().contains(extent),
            "the area has all checksums"
        );
        let sums = match self
            .area()
            .read(extent, Buffer::recycled(self.chunk_bytes))
            .await
        {
            Ok(bytes) => {
                let sum = |bytes: &[u8]| {
                    bytes
                        .first_chunk()
                        .map_or(UNKNOWN, |sum| u32::from_le_bytes(*sum))
                };
                bytes.chunks_exact(SUM_BYTES).map(sum).collect()
            }
            // The checksums become known again when their blocks are written.
            Err(DeviceError::Unreadable(_)) => vec![UNKNOWN; self.chunk_sums() as usize].into(),
            Err(error) => return Err(error),
        };
        let mut state = self.state.lock();
        state.make_room();
        state.chunks.insert(
            chunk,
            Chunk {
                sums,
                is_used: true,
                is_being_written: false,
            },
        );
        Ok(())
    }

    fn area_of(&self, chunks: Range<u64>) -> Extent {
        let blocks = (self.chunk_bytes / self.block_bytes) as u64;
        Extent::new(chunks.start * blocks, (chunks.end - chunks.start) * blocks)
    }

    /// Writes all chunks that are dirty at the time of the call. May also write chunks that become dirty
    /// later.
    async fn write_dirty(&self) -> Result<(), DeviceError> {
        let _turn = self.turn().await;
        self.write_chunks(0..u64::MAX, Durability::Cached).await
    }

    /// Writes the dirty chunks within a range. The caller must hold the lock for writing chunks.
    async fn write_chunks(
        &self,
        within: Range<u64>,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        while let Some((chunks, bytes)) = self.next_dirty(&within) {
            let mut result = Ok(());
            for area in self.areas() {
                let written = area
                    .write(self.area_of(chunks.clone()), bytes.clone(), durability)
                    .await;
                result = result.and(written);
            }
            let mut state = self.state.lock();
            let state = &mut *state;
            for (number, chunk) in state.chunks.range_mut(chunks) {
                chunk.is_being_written = false;
                if result.is_err() {
                    state.dirty.insert(*number);
                }
            }
            result?;
        }
        Ok(())
    }

    async fn turn(&self) -> Locked {
        self.writing.exclude(Extent::new(0, 1)).await
    }

    /// Takes the next adjacent dirty chunks, and returns their content.
    fn next_dirty(&self, within: &Range<u64>) -> Option<(Range<u64>, Slice)> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let start = *state.dirty.range(within.clone()).next()?;
        let mut end = start;
        while end < within.end.min(start + CHUNKS_AT_ONCE) && state.dirty.remove(&end) {
            end += 1;
        }
        debug_assert_eq!(
            state.chunks.range(start..end).count() as u64,
            end - start,
            "changed chunks stay"
        );
        let mut bytes = Buffer::recycled((end - start) as usize * self.chunk_bytes);
        let places = bytes.chunks_exact_mut(self.chunk_bytes);
        for (place, (_, chunk)) in places.zip(state.chunks.range_mut(start..end)) {
            chunk.is_being_written = true;
            for (bytes, sum) in place.chunks_exact_mut(SUM_BYTES).zip(&chunk.sums) {
                bytes.copy_from_slice(&sum.to_le_bytes());
            }
        }
        Some((start..end, bytes.share()))
    }

    /// Writes dirty chunks if there are too many.
    async fn keep_few_dirty(&self) -> Result<(), DeviceError> {
        if self.state.lock().dirty.len() < DIRTY_MAX {
            Ok(())
        } else {
            self.write_dirty().await
        }
    }

    /// Runs `request`, which zeroes the blocks of `extent`, and sets their checksums to 0.
    async fn zeroed(&self, extent: Extent, request: Pending<'_, ()>) -> Result<(), DeviceError> {
        self.keep_few_dirty().await?;
        let _locked = self.blocks.exclude(extent).await;
        if let Err(error) = request.await {
            // It is unknown which blocks a failed request has changed, except that an unsupported request has
            // not changed any.
            if error != DeviceError::Unsupported {
                for (chunk, part) in self.chunks_of(extent) {
                    self.change(chunk, part.sums, std::iter::repeat(UNKNOWN))
                        .await?;
                }
            }
            return Err(error);
        }
        let each = self.chunk_sums();
        let mut whole = 0..0;
        for (chunk, part) in self.chunks_of(extent) {
            if part.sums.len() as u64 == each {
                whole = if whole.is_empty() {
                    chunk..chunk + 1
                } else {
                    whole.start..chunk + 1
                };
            } else {
                self.change(chunk, part.sums, std::iter::repeat(0)).await?;
            }
        }
        if whole.is_empty() {
            Ok(())
        } else {
            self.zero_chunks(whole).await
        }
    }

    async fn zero_chunks(&self, chunks: Range<u64>) -> Result<(), DeviceError> {
        let _turn = self.turn().await;
        let _loading = self
            .loading
            .exclude(Extent::new(chunks.start, chunks.end - chunks.start))
            .await;
        {
            let mut state = self.state.lock();
            state.chunks.retain(|number, _| !chunks.contains(number));
            state.dirty.retain(|number| !chunks.contains(number));
        }
        let extent = self.area_of(chunks);
        let at_once = self.area_of(0..CHUNKS_AT_ONCE).blocks.0;
        for area in self.areas() {
            match area.write_zeroes(extent, true).await {
                Err(DeviceError::Unsupported) => {}
                result => {
                    result?;
                    continue;
                }
            }
            for part in extent.chunks(at_once) {
                let zeros = Buffer::zeroed(part.blocks.0 as usize * self.block_bytes).share();
                area.write(part, zeros, Durability::Cached).await?;
            }
        }
        Ok(())
    }

    async fn write_and_sum(
        &self,
        extent: Extent,
        data: Slice,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let device = self.data();
        device.geometry().check(extent, Some(data.len()))?;
        self.keep_few_dirty().await?;
        let _locked = self.blocks.exclude(extent).await;
        let result = device.write(extent, data.clone(), durability).await;
        let turn = if durability == Durability::Stable {
            Some(self.turn().await)
        } else {
            None
        };
        for (chunk, part) in self.chunks_of(extent) {
            let blocks = self
                .bytes_of(extent, &part, &data)
                .chunks_exact(self.block_bytes);
            // It is unknown which blocks a failed write has changed.
            let sum = |block: &[u8]| {
                if result.is_ok() {
                    self.sum(block)
                } else {
                    UNKNOWN
                }
            };
            self.change(chunk, part.sums.clone(), blocks.map(sum))
                .await?;
        }
        result?;
        if turn.is_some() {
            let each = self.chunk_sums();
            let chunks = extent.lba.0 / each..(extent.lba.0 + extent.blocks.0).div_ceil(each);
            self.write_chunks(chunks, durability).await?;
        }
        Ok(())
    }
}

/// Checks that `area` can contain the checksums of a device with this geometry.
fn check_area(geometry: Geometry, area: &dyn BlockDevice) -> Result<(), DeviceError> {
    let of_area = area.geometry();
    if of_area.block_size != geometry.block_size {
        return Err(DeviceError::Unsupported);
    }
    if of_area.bytes() < Summed::area_bytes(geometry.blocks.0) {
        Err(DeviceError::OutOfRange)
    } else {
        Ok(())
    }
}

/// Blocks whose checksums are in one chunk.
struct PartOfChunk {
    blocks: Range<u64>,
    /// The positions of these checksums in the chunk.
    sums: Range<usize>,
}

impl State {
    /// If there are too many chunks, evicts a clean chunk that was not used recently.
    fn make_room(&mut self) {
        if self.chunks.len() < CHUNKS_MAX {
            return;
        }
        let State {
            chunks,
            dirty,
            hand,
        } = self;
        let mut is_free = |(number, chunk): (&u64, &mut Chunk)| {
            let was_used = std::mem::replace(&mut chunk.is_used, false);
            (!was_used && !chunk.is_being_written && !dirty.contains(number)).then_some(*number)
        };
        let free = chunks.range_mut(*hand..).find_map(&mut is_free);
        if let Some(number) = free.or_else(|| chunks.range_mut(..*hand).find_map(is_free)) {
            chunks.remove(&number);
            *hand = number + 1;
        }
    }
}

impl BlockDevice for Summed {
    block::forward!(self => self.data(); geometry, profile, allocated_bytes, take_os_error);

    fn losses(&self) -> Losses {
        self.data().losses()
    }

    fn resolve_losses(&self) -> Pending<'_, ()> {
        let data = self.data();
        Box::pin(async move { data.resolve_losses().await })
    }

    fn losses_recorded(&self, count: u64) {
        self.data().losses_recorded(count);
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        let data = self.data();
        Box::pin(async move { data.allocation(extent, runs_max).await })
    }

    fn space(&self) -> Pending<'_, Space> {
        let data = self.data();
        Box::pin(async move { data.space().await })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        let data = self.data();
        Box::pin(async move { data.quiesced().await })
    }

    fn read_nowait(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        let mut sums = Vec::with_capacity(extent.blocks.0 as usize);
        self.geometry().contains(extent)
            && self
                .chunks_of(extent)
                .all(|(chunk, part)| self.copy_known(chunk, &part, &mut sums))
            && self.data().read_nowait(extent, buffer)
            && self.each_fits(&sums, buffer).all(|fits| fits)
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            let (buffer, fits) = self.read_and_judge(extent, buffer).await?;
            let Some(first) = fits.iter().position(|fits| !fits) else {
                return Ok(buffer);
            };
            let wrong = fits.iter().filter(|fits| !**fits).count() as u64;
            self.wrong.fetch_add(wrong, Ordering::Relaxed);
            Err(DeviceError::Unreadable(Lba(extent.lba.0 + first as u64)))
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(self.write_and_sum(extent, data, durability))
    }

    /// Flushes the member. Writes dirty checksums first, so that the flush of the device covers them.
    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.write_dirty().await?;
            self.data().flush().await
        })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        let data = self.data();
        Box::pin(self.zeroed(extent, Box::pin(async move { data.unmap(extent).await })))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        let data = self.data();
        Box::pin(self.zeroed(
            extent,
            Box::pin(async move { data.write_zeroes(extent, may_unmap).await }),
        ))
    }
}
