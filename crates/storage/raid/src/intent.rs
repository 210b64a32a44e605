//! The write-intent bitmap: the regions in which the copies of a strip, or data and parity, may be
//! inconsistent.
//!
//! A region's bit reaches stable storage before the first write to the region. After a crash, only regions
//! whose bits are set are resynchronised. A bit is cleared several flushes after the last write to its
//! region.
//!
//! ```text
//!   block of the bitmap     0  "LNRB"
//!                           4  CRC32C of the rest of the block
//!                           8  number of the block
//!                          16  version, 1; 4 bytes zero
//!                          24  number of stripes in a region
//!                          32  a bit for each region, lowest bit first
//! ```
//!
//! If the area is large enough, its second half contains a second bitmap, which marks the regions that
//! out-of-sync members have missed. The second bitmap is written only while a member is out of sync. Its
//! block numbers continue from the first half. The superblock records whether the second bitmap is complete,
//! and the oldest generation to which it applies. If a returning member's superblock has this generation or a
//! newer one, the member has missed only the marked regions.
//!
//! ```text
//!   a member fails ──► tracking: missed = all bits of the first bitmap, and each region written from then on
//!        settle ─────► the second bitmap is on stable storage ──► the superblock records it ──► each bit before its write
//!   all in sync ─────► the superblock no longer records it ──► no tracking
//! ```
//!
//! Assembling a set with a missing member performs the same steps as settle.
//!
//! After a failure, no bit of the first bitmap is cleared until tracking has started, so that no missed
//! region is forgotten.
//!
//! Numbers are little-endian. If a block is torn or has a different region size, all regions in it count as
//! inconsistent.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{BlockDevice, Blocks, Buffer, DeviceError, Extent, Lba, Lock, LockGuard, Slice};
use crc_fast::crc32_iscsi;

use crate::area::{Area, AreaCopy};
use crate::concurrency::ExtentLocks;
use crate::lost::Ranges;

const MAGIC: &[u8; 4] = b"LNRB";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 32;
/// Maximum number of ranges of synchronised stripes that are tracked in memory, in regions that are not fully
/// synchronised. Beyond this limit, a stripe is compared again each time it is read.
const SYNCED_MAX: usize = 64 << 10;
/// A region's bit is cleared if the region was not written during this number of flushes. A region that is
/// written more often keeps its bit, because clearing and setting it again costs writes of the bitmap.
const IDLE_FLUSHES: u64 = 8;

pub(crate) struct Intent {
    area: Area,
    region_stripes: u64,
    stripes: AtomicU64,
    /// Locks on blocks of the bitmap, so that only one write to a block is outstanding at a time.
    writing: Arc<ExtentLocks>,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    /// Regions that may be inconsistent because of outstanding or recent writes.
    regions: BTreeMap<u64, Region>,
    /// Regions that may have been inconsistent since before the assembly, or since a member stayed in the set
    /// without storing its unflushed blocks.
    unsynced: BTreeSet<u64>,
    /// Stripes in the `unsynced` regions that have been synchronised.
    synced: Ranges,
    /// Regions that could not be synchronised completely. They keep their bits, and are retried after a
    /// change of members.
    stuck: BTreeSet<u64>,
    /// Number of flushes started.
    flushes: u64,
    /// Number of writes started.
    begun: u64,
    missed: Missed,
    /// The value of [`Members::times_stayed`](crate::members::Members::times_stayed) that `unsynced` reflects.
    stayed: u64,
    /// The region that is being synchronised stripe by stripe, and the value of `stayed` at its start.
    walk: Option<(u64, u64)>,
}

/// Regions missed by members that are not in sync.
#[derive(Default)]
struct Missed {
    is_tracking: bool,
    /// Whether recording is suspended until all members are in sync, because earlier missed regions are unknown
    /// or there is no space to record them.
    is_unknown: bool,
    regions: BTreeSet<u64>,
    /// Regions whose bits are on stable storage, even if an outstanding write of their block fails.
    on_disk: BTreeSet<u64>,
    /// Whether the superblock records, or is about to record, that the second bitmap is complete. From then
    /// on, a region's bit must reach stable storage before the region is written.
    is_noting: bool,
    is_noted: bool,
}

impl Missed {
    /// Stops recording until all members are in sync.
    fn cannot_be_recorded(&mut self) {
        (self.is_unknown, self.is_noting, self.is_noted) = (true, false, false);
    }
}

/// Locked while the superblock's record of the second bitmap is changed. It is not an extent of the bitmap.
const NOTING: Extent = Extent {
    lba: Lba(u64::MAX - 1),
    blocks: Blocks(1),
};

#[derive(Default)]
struct Region {
    writes: u64,
    is_on_disk: bool,
    /// Number of flushes that had started when the last write finished.
    last: u64,
}

impl Intent {
    /// Creates the bitmap in `area`, which must be large enough ([`Intent::fits`]).
    pub(crate) fn new(area: Area, region_stripes: u64, stripes: u64) -> Intent {
        debug_assert!(region_stripes > 0);
        Intent {
            area,
            region_stripes,
            stripes: AtomicU64::new(stripes),
            writing: Arc::default(),
            state: Lock::default(),
        }
    }

    /// Returns the number of blocks that the bitmap needs.
    pub(crate) fn blocks_needed(block_bytes: usize, region_stripes: u64, stripes: u64) -> u64 {
        stripes.div_ceil(region_stripes).div_ceil(bits(block_bytes))
    }

    fn stripes(&self) -> u64 {
        self.stripes.load(Ordering::Acquire)
    }

    fn regions(&self) -> u64 {
        self.stripes().div_ceil(self.region_stripes)
    }

    /// Extends the bitmap to `stripes` stripes. The new stripes must be consistent.
    pub(crate) fn grow(&self, stripes: u64) -> Result<(), DeviceError> {
        let needed = Intent::blocks_needed(self.area.block_bytes(), self.region_stripes, stripes);
        if self.area.blocks() < needed {
            return Err(DeviceError::OutOfRange);
        }
        let mut state = self.state.lock();
        debug_assert!(stripes >= self.stripes(), "a set only grows");
        self.stripes.store(stripes, Ordering::Release);
        // The first bitmap now needs the blocks of the second one, so stop recording until all members are in
        // sync.
        if !self.has_second() && state.missed.is_tracking {
            state.missed.cannot_be_recorded();
        }
        Ok(())
    }

    fn bits(&self) -> u64 {
        bits(self.area.block_bytes())
    }

    /// Writes a new bitmap. With `all_differ`, marks all regions as possibly inconsistent; otherwise, marks
    /// none.
    pub(crate) async fn format(&self, all_differ: bool) -> Result<(), DeviceError> {
        if all_differ {
            self.state.lock().unsynced = (0..self.regions()).collect();
        }
        self.write_all().await
    }

    /// Reads the regions that were marked before assembly. Writes nothing.
    pub(crate) async fn load(&self) {
        let (devices, stripes) = (self.area.current_devices(), self.stripes());
        let found = load(&devices, 0, self.region_stripes, stripes).await;
        self.state.lock().unsynced.extend(found);
    }

    /// Writes the bitmap to all copies, including copies that do not contain it yet.
    pub(crate) async fn write_all(&self) -> Result<(), DeviceError> {
        for block in 0..self.regions().div_ceil(self.bits()) {
            self.write(block).await?;
        }
        self.write_all_missed().await
    }

    /// Adds a replaced member's copy of the bitmap. Resolves once it is equivalent to the other copies.
    pub(crate) async fn join(&self, copy: &AreaCopy) -> Result<(), DeviceError> {
        self.area.add(copy);
        for block in 0..self.regions().div_ceil(self.bits()) {
            let _turn = self.writing.exclude(Extent::new(block, 1)).await;
            self.write(block).await?;
        }
        self.write_all_missed().await
    }

    pub(crate) fn area(&self) -> &Area {
        &self.area
    }

    /// Locks the state. If a member has stayed in the set without storing its unflushed blocks, their regions
    /// become unsynchronised.
    fn current(&self) -> LockGuard<'_, State> {
        let mut state = self.state.lock();
        let stayed = self.area.members().times_stayed();
        if std::mem::replace(&mut state.stayed, stayed) != stayed {
            let State {
                regions,
                unsynced,
                synced,
                ..
            } = &mut *state;
            // If a region's bit is not on stable storage yet, its blocks have not been written since a flush.
            for (region, _) in regions.iter().filter(|(_, region)| region.is_on_disk) {
                unsynced.insert(*region);
                synced.remove(region * self.region_stripes..(region + 1) * self.region_stripes);
            }
        }
        state
    }

    /// Returns the number of regions that may be inconsistent.
    pub(crate) fn unsynced(&self) -> u64 {
        self.current().unsynced.len() as u64
    }

    /// Returns the stripes of the first unsynchronised region that is not stuck, and the number of those that
    /// are done.
    /// `done` is the caller's count, which counts from the start if it does not apply to this region.
    pub(crate) fn first_unsynced(&self, done: u64) -> Option<(std::ops::Range<u64>, u64)> {
        let mut state = self.current();
        let region = *state.unsynced.difference(&state.stuck).next()?;
        let walk = Some((region, state.stayed));
        let is_same = done > 0 && state.walk == walk;
        state.walk = walk;
        let start = region * self.region_stripes;
        let stripes = start..(start + self.region_stripes).min(self.stripes());
        Some((stripes, if is_same { done } else { 0 }))
    }

    /// Whether the stripe may be inconsistent: since before the assembly, or because a member stayed in the set
    /// without storing it.
    pub(crate) fn is_unsynced(&self, stripe: u64) -> bool {
        let state = self.current();
        state.unsynced.contains(&(stripe / self.region_stripes)) && !state.synced.contains(stripe)
    }

    /// Records that the stripe is synchronised, although other stripes in its region may not be.
    pub(crate) fn synchronised_one(&self, stripe: u64) {
        let mut state = self.state.lock();
        if state.synced.len() < SYNCED_MAX
            && state.unsynced.contains(&(stripe / self.region_stripes))
        {
            state.synced.insert(stripe..stripe + 1);
        }
    }

    /// Records that the region starting at this stripe is synchronised and on stable storage. Does nothing if a
    /// member has failed to store one of its stripes.
    pub(crate) fn synchronised(&self, stripe: u64) {
        debug_assert!(
            stripe.is_multiple_of(self.region_stripes),
            "the first of its region"
        );
        let mut state = self.current();
        self.track(&mut state);
        let (region, last) = (stripe / self.region_stripes, state.flushes);
        if state.walk != Some((region, state.stayed)) {
            return;
        }
        state.unsynced.remove(&region);
        state
            .synced
            .remove(region * self.region_stripes..(region + 1) * self.region_stripes);
        let entry = state.regions.entry(region).or_default();
        (entry.is_on_disk, entry.last) = (true, last);
    }

    /// Excludes the region that starts at this stripe from synchronisation, because one of its stripes cannot
    /// be synchronised at present.
    pub(crate) fn set_aside(&self, stripe: u64) {
        debug_assert!(
            stripe.is_multiple_of(self.region_stripes),
            "the first of its region"
        );
        self.state.lock().stuck.insert(stripe / self.region_stripes);
    }

    /// Includes stuck regions in synchronisation again. Called after a change of members.
    pub(crate) fn try_again(&self) {
        self.state.lock().stuck.clear();
    }

    /// Returns the number of stripes from this one to the end of its region.
    pub(crate) fn rest_of_region(&self, stripe: u64) -> u64 {
        self.region_stripes - stripe % self.region_stripes
    }

    /// Marks these stripes as being written. Resolves once the mark is on stable storage.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        stripes: RangeInclusive<u64>,
    ) -> Result<Marked, DeviceError> {
        let regions = stripes.start() / self.region_stripes..=stripes.end() / self.region_stripes;
        let (mut missing, mut missed) = (Vec::new(), Vec::new());
        debug_assert!(*stripes.end() < self.stripes() && stripes.start() <= stripes.end());
        {
            let mut state = self.state.lock();
            state.begun += 1;
            for number in regions.clone() {
                let is_unsynced = state.unsynced.contains(&number);
                let region = state.regions.entry(number).or_default();
                region.writes += 1;
                region.is_on_disk |= is_unsynced;
                if !region.is_on_disk {
                    missing.push(number);
                }
            }
            self.track(&mut state);
            if state.missed.is_tracking {
                state.missed.regions.extend(regions.clone());
                if state.missed.is_noting {
                    missed.extend(
                        regions
                            .clone()
                            .filter(|number| !state.missed.on_disk.contains(number)),
                    );
                }
            }
        }
        let marked = Marked {
            intent: Arc::clone(self),
            regions,
        };
        for number in missing {
            let block = number / self.bits();
            let _turn = self.writing.exclude(Extent::new(block, 1)).await;
            let is_on_disk = self
                .state
                .lock()
                .regions
                .get(&number)
                .is_some_and(|region| region.is_on_disk);
            if !is_on_disk {
                self.write(block).await?;
            }
        }
        for number in missed {
            let block = number / self.bits();
            let _turn = self
                .writing
                .exclude(Extent::new(self.half() + block, 1))
                .await;
            let is_on_disk = self.state.lock().missed.on_disk.contains(&number);
            if !is_on_disk {
                self.write_missed(block).await?;
            }
        }
        Ok(marked)
    }

    /// Returns the first block of the second bitmap.
    fn half(&self) -> u64 {
        self.area.blocks() / 2
    }

    fn has_second(&self) -> bool {
        self.regions().div_ceil(self.bits()) <= self.half()
    }

    /// Starts to track missed regions if a member has failed since the last call. At that time, the first
    /// bitmap still marks every region with a write that is not on the member's stable storage.
    fn track(&self, state: &mut State) {
        if !state.missed.is_tracking && self.area.members().is_one_lacking() {
            let regions = state
                .regions
                .keys()
                .chain(&state.unsynced)
                .copied()
                .collect();
            state.missed = Missed {
                is_tracking: true,
                regions,
                ..Missed::default()
            };
        }
    }

    /// Records that out-of-sync members may have missed writes to any region.
    pub(crate) fn miss_all(&self) {
        let regions = (0..self.regions()).collect();
        self.state.lock().missed = Missed {
            is_tracking: true,
            is_unknown: true,
            regions,
            ..Missed::default()
        };
    }

    /// Reads the regions that members had missed before assembly. Must be called after [`Intent::load`].
    /// Returns false if there is no second bitmap.
    pub(crate) async fn load_missed(&self) -> bool {
        if !self.has_second() {
            self.miss_all();
            return false;
        }
        let devices = self.area.current_devices();
        let mut regions = load(&devices, self.half(), self.region_stripes, self.stripes()).await;
        let mut state = self.state.lock();
        regions.extend(&state.unsynced);
        state.missed = Missed {
            is_tracking: true,
            is_noting: true,
            is_noted: true,
            regions,
            ..Missed::default()
        };
        true
    }

    /// Returns the number of regions that out-of-sync members have missed. Returns `None` unless the
    /// superblocks record that these members have missed no other regions.
    pub(crate) fn missed_regions(&self) -> Option<u64> {
        let state = self.state.lock();
        state
            .missed
            .is_noted
            .then_some(state.missed.regions.len() as u64)
    }

    /// Whether out-of-sync members may have missed writes to this stripe's region.
    pub(crate) fn has_missed(&self, stripe: u64) -> bool {
        let mut state = self.state.lock();
        self.track(&mut state);
        !state.missed.is_tracking
            || state
                .missed
                .regions
                .contains(&(stripe / self.region_stripes))
    }

    /// If a member is out of sync, records in the superblock that the second bitmap is complete. If all
    /// members are in sync, removes this record.
    pub(crate) async fn secure_missed(&self) -> Result<(), DeviceError> {
        if !self.has_to_record(self.area.members().is_one_lacking()) {
            return Ok(());
        }
        let _turn = self.writing.exclude(NOTING).await;
        // While this call waited for the lock, a member may have failed, become in sync, or been removed
        // manually.
        let is_lacking = self.area.members().is_one_lacking();
        if !self.has_to_record(is_lacking) {
            return Ok(());
        }
        if !is_lacking {
            self.area.members().record_missed(false).await?;
            let mut state = self.state.lock();
            match self.area.members().is_one_lacking() {
                false => state.missed = Missed::default(),
                // Another member has failed in the meantime. It has missed only tracked regions.
                true => (state.missed.is_noting, state.missed.is_noted) = (false, false),
            }
            return Ok(());
        }
        if !self.state.lock().missed.is_noted {
            self.state.lock().missed.is_noting = true;
            self.write_all_missed().await?;
        }
        // Record the failure first: that record shows when the member started to miss writes.
        self.area.members().recorded().await?;
        // Repeat this on each call: if all members were in sync in between, the record has been removed from
        // the superblock.
        let is_noted = self.area.members().record_missed(true).await?;
        let mut state = self.state.lock();
        // A member may have been replaced in the meantime.
        match is_noted && !state.missed.is_unknown {
            true => state.missed.is_noted = true,
            false => state.missed.cannot_be_recorded(),
        }
        Ok(())
    }

    /// Whether the record in the superblock may have to change. `is_lacking` means that a member is out of
    /// sync.
    fn has_to_record(&self, is_lacking: bool) -> bool {
        let mut state = self.state.lock();
        self.track(&mut state);
        let cannot_tell = state.missed.is_unknown || !self.has_second();
        state.missed.is_tracking && !(is_lacking && cannot_tell)
    }

    /// Discards the record of missed regions, so that a member that was removed manually is rebuilt
    /// completely if it returns.
    pub(crate) async fn forget_missed(&self) -> Result<(), DeviceError> {
        let _turn = self.writing.exclude(NOTING).await;
        self.area.members().record_missed(false).await?;
        self.miss_all();
        Ok(())
    }

    async fn write_all_missed(&self) -> Result<(), DeviceError> {
        if !self.state.lock().missed.is_noting || !self.has_second() {
            return Ok(());
        }
        for block in 0..self.regions().div_ceil(self.bits()) {
            let _turn = self
                .writing
                .exclude(Extent::new(self.half() + block, 1))
                .await;
            self.write_missed(block).await?;
        }
        Ok(())
    }

    /// Writes a block of the second bitmap. During the write, the last out-of-sync member may become in sync,
    /// and another member may then fail. So the regions on stable storage are tracked for each block, not for
    /// each member.
    async fn write_missed(&self, block: u64) -> Result<(), DeviceError> {
        if !self.has_second() {
            return Ok(());
        }
        let range = block * self.bits()..(block + 1) * self.bits();
        let numbers: Vec<u64> = {
            let mut state = self.state.lock();
            let Missed {
                regions, on_disk, ..
            } = &mut state.missed;
            on_disk.retain(|number| !range.contains(number) || regions.contains(number));
            regions.range(range.clone()).copied().collect()
        };
        let at = self.half() + block;
        debug_assert!(at < self.area.blocks(), "the second bitmap has space");
        self.area.write(at, &self.encode(at, &numbers)).await?;
        let mut state = self.state.lock();
        state
            .missed
            .on_disk
            .retain(|number| !range.contains(number));
        state.missed.on_disk.extend(numbers);
        Ok(())
    }

    /// Records the start of a flush. Returns the number to pass to [`Intent::flushed`].
    pub(crate) fn flush_begins(&self) -> u64 {
        let mut state = self.state.lock();
        state.flushes += 1;
        state.flushes
    }

    /// Called after a flush of the members. Clears the bits of idle regions in one block of the bitmap.
    pub(crate) async fn flushed(&self, flush: u64) {
        let is_idle = |region: &Region| region.writes == 0 && region.last + IDLE_FLUSHES <= flush;
        let block = {
            let mut state = self.current();
            self.track(&mut state);
            let idle = state
                .regions
                .iter()
                .find(|(_, region)| is_idle(region))
                .map(|(number, _)| *number);
            let Some(idle) = idle else { return };
            idle / self.bits()
        };
        let _turn = self.writing.exclude(Extent::new(block, 1)).await;
        {
            let mut state = self.current();
            self.track(&mut state);
            debug_assert!(flush <= state.flushes, "flushes only grow");
            state
                .regions
                .retain(|number, region| number / self.bits() != block || !is_idle(region));
        }
        // If the block cannot be written, the bits stay set, which is safe.
        let _ = self.write(block).await;
    }

    /// Returns the number of writes started so far, and whether there is a marked region without an
    /// outstanding write.
    pub(crate) fn activity(&self) -> (u64, bool) {
        let state = self.state.lock();
        (
            state.begun,
            state.regions.values().any(|region| region.writes == 0),
        )
    }

    /// Called after the members have completed this flush. Unless a write has started since `begun`, clears
    /// the bits of all regions that the flush covers. A flush is not guaranteed to cover writes that finished
    /// after the flush had started.
    pub(crate) async fn settled(&self, begun: u64, flush: u64) {
        for block in 0..self.regions().div_ceil(self.bits()) {
            let _turn = self.writing.exclude(Extent::new(block, 1)).await;
            {
                let mut state = self.current();
                debug_assert!(begun <= state.begun && flush <= state.flushes);
                if state.begun != begun {
                    return;
                }
                self.track(&mut state);
                let before = state.regions.len();
                let is_open = |region: &Region| region.writes > 0 || region.last >= flush;
                state
                    .regions
                    .retain(|number, region| number / self.bits() != block || is_open(region));
                if state.regions.len() == before {
                    continue;
                }
            }
            let _ = self.write(block).await;
        }
    }

    /// Writes a block of the first bitmap, with the bits of all regions that may be inconsistent.
    async fn write(&self, block: u64) -> Result<(), DeviceError> {
        let numbers: Vec<u64> = {
            let state = self.state.lock();
            let range = block * self.bits()..(block + 1) * self.bits();
            let written = state
                .regions
                .range(range.clone())
                .map(|(number, _)| *number);
            written
                .chain(state.unsynced.range(range).copied())
                .collect()
        };
        debug_assert!(block < self.area.blocks(), "the bitmap has space");
        self.area
            .write(block, &self.encode(block, &numbers))
            .await?;
        let mut state = self.state.lock();
        for number in numbers {
            if let Some(region) = state.regions.get_mut(&number) {
                region.is_on_disk = true;
            }
        }
        Ok(())
    }

    fn encode(&self, block: u64, numbers: &[u64]) -> Slice {
        debug_assert!(
            numbers
                .windows(2)
                .all(|pair| pair[0] / self.bits() == pair[1] / self.bits()),
            "of one block"
        );
        let mut bytes = Buffer::zeroed(self.area.block_bytes());
        bytes[..4].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&block.to_le_bytes());
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.region_stripes.to_le_bytes());
        for number in numbers {
            let bit = (number % self.bits()) as usize;
            bytes[FIXED_BYTES + bit / 8] |= 1 << (bit % 8);
        }
        let sum = crc32_iscsi(&bytes[8..]);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes.share()
    }
}

/// Returns the number of regions that may be inconsistent in a set that is not assembled.
pub(crate) async fn noted(
    devices: &[Arc<dyn BlockDevice>],
    region_stripes: u64,
    stripes: u64,
) -> u64 {
    load(devices, 0, region_stripes.max(1), stripes).await.len() as u64
}

/// Returns the marked regions of the bitmap that starts at block `from`. A region counts as marked if any
/// valid copy of its block marks it. If a block has no valid copy, all of its regions count as marked.
async fn load(
    devices: &[Arc<dyn BlockDevice>],
    from: u64,
    region_stripes: u64,
    stripes: u64,
) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    let Some(block_bytes) = devices
        .first()
        .map(|device| device.geometry().block_size.bytes() as usize)
    else {
        return all;
    };
    let (regions, bits) = (stripes.div_ceil(region_stripes), bits(block_bytes));
    for block in 0..regions.div_ceil(bits) {
        let mut found: Option<BTreeSet<u64>> = None;
        for device in devices {
            let buffer = Buffer::recycled(block_bytes);
            let Ok(bytes) = device.read(Extent::new(from + block, 1), buffer).await else {
                continue;
            };
            if let Some(noted) = decode(&bytes, from + block, region_stripes) {
                let noted = noted.into_iter().map(|bit| block * bits + bit);
                found
                    .get_or_insert_default()
                    .extend(noted.filter(|region| *region < regions));
            }
        }
        all.extend(
            found.unwrap_or_else(|| (block * bits..((block + 1) * bits).min(regions)).collect()),
        );
    }
    all
}

/// Decodes the bits of a block of the bitmap. Returns `None` if the block is invalid.
fn decode(bytes: &[u8], block: u64, region_stripes: u64) -> Option<Vec<u64>> {
    let right = bytes.get(..4)? == MAGIC
        && bytes.get(4..8)? == crc32_iscsi(bytes.get(8..)?).to_le_bytes()
        && bytes.get(8..16)? == block.to_le_bytes()
        && bytes.get(16..20)? == VERSION.to_le_bytes()
        && bytes.get(24..32)? == region_stripes.to_le_bytes();
    let bits = bits(bytes.len());
    let is_set = |bit: &u64| bytes[FIXED_BYTES + (bit / 8) as usize] & 1 << (bit % 8) != 0;
    right.then(|| (0..bits).filter(is_set).collect())
}

/// Returns the number of regions that a block of the bitmap covers.
fn bits(block_bytes: usize) -> u64 {
    (block_bytes - FIXED_BYTES) as u64 * 8
}

/// An outstanding write, whose regions are marked.
pub(crate) struct Marked {
    intent: Arc<Intent>,
    regions: RangeInclusive<u64>,
}

impl Drop for Marked {
    fn drop(&mut self) {
        let mut state = self.intent.state.lock();
        let flushes = state.flushes;
        for number in self.regions.clone() {
            debug_assert!(
                state.regions.contains_key(&number),
                "a region that is written is noted"
            );
            if let Some(region) = state.regions.get_mut(&number) {
                debug_assert!(region.writes > 0, "a write ends once");
                region.writes = region.writes.saturating_sub(1);
                region.last = flushes;
            }
        }
    }
}
