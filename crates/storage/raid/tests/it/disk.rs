//! A disk that tears writes, and that loses or keeps unflushed writes, for each block separately and in any
//! order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry,
    Lba, Losses, Pending, Profile, Run, Slice,
};

use crate::world::{draw, once_in, pause, wait_a_poll};

pub(crate) const BLOCK: usize = 512;

/// A disk, which survives crashes.
#[derive(Clone)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Clone)]
struct State {
    /// By block: every content that is possible after a crash, oldest first. Reads return the last.
    versions: Vec<Vec<(u64, Arc<[u8]>)>>,
    /// Number of the next version.
    next: u64,
    /// By block: the last version that a failed flush has left in the cache. Reads return it, but no flush
    /// stores it.
    abandoned: BTreeMap<u64, u64>,
    /// Whether the next flush fails.
    fails_flush: bool,
    bad: BTreeSet<u64>,
    /// Unwritable blocks.
    worn: BTreeSet<u64>,
    /// By block: corrupt content.
    corrupt: BTreeMap<u64, Arc<[u8]>>,
    is_dead: bool,
    /// Whether another host has taken over the disk.
    is_fenced: bool,
    /// Number of writes that will succeed before one fails.
    writes_left: Option<u64>,
    /// Writes to these blocks wait.
    held: Range<u64>,
    waiting: u64,
    /// Number of times that the disk has lost its cache.
    times_lost: u64,
    /// The losses that the disk reports. If it is in doubt, they are updated when it is queried.
    losses: Losses,
    /// Whether the disk reports no doubt, so that its losses are too low until it is queried, and readers are
    /// not warned.
    hides_doubt: bool,
    /// Whether queries of the disk's losses fail.
    cannot_tell: bool,
    /// Whether the disk reports that it has no cache although it has one. A set must not rely on that report.
    says_no_cache: bool,
    /// Whether the disk reports that it is read-only but accepts writes, like a disk whose changes stay in
    /// memory.
    says_read_only: bool,
    /// Number of additional polls that a read takes.
    slowness: u64,
    /// Numbers of reads, of writes (including zeroing and unmap), and of flushes.
    requests: [u64; 3],
}

impl Disk {
    /// Creates a disk of zeros.
    pub(crate) fn new(blocks: u64) -> Disk {
        Disk::filled(blocks, |_| 0)
    }

    /// Creates a disk with arbitrary content.
    pub(crate) fn used(blocks: u64) -> Disk {
        Disk::filled(blocks, |_| draw(256) as u8)
    }

    /// Creates a disk whose first blocks are zeros, and whose other blocks have arbitrary content.
    pub(crate) fn of_zeros_until(zeros: u64, blocks: u64) -> Disk {
        Disk::filled(blocks, |lba| if lba < zeros { 0 } else { draw(256) as u8 })
    }

    fn filled(blocks: u64, content: impl Fn(u64) -> u8) -> Disk {
        let block = |lba| vec![(0, Arc::from(vec![content(lba); BLOCK]))];
        Disk(Arc::new(Mutex::new(State {
            versions: (0..blocks).map(block).collect(),
            next: 1,
            abandoned: BTreeMap::new(),
            fails_flush: false,
            bad: BTreeSet::new(),
            worn: BTreeSet::new(),
            corrupt: BTreeMap::new(),
            is_dead: false,
            is_fenced: false,
            writes_left: None,
            held: 0..0,
            waiting: 0,
            times_lost: 0,
            losses: Losses::NONE,
            hides_doubt: false,
            cannot_tell: false,
            says_no_cache: false,
            says_read_only: false,
            slowness: 0,
            requests: [0; 3],
        })))
    }

    /// Creates another disk with the same content.
    pub(crate) fn copy(&self) -> Disk {
        Disk(Arc::new(Mutex::new(self.state().clone())))
    }

    /// Makes the disk report that it has no cache.
    pub(crate) fn say_no_cache(&self) {
        self.state().says_no_cache = true;
    }

    /// Makes the disk report that it is read-only.
    pub(crate) fn say_read_only(&self) {
        self.state().says_read_only = true;
    }

    /// Makes every request fail from now on.
    pub(crate) fn die(&self) {
        self.state().is_dead = true;
    }

    /// Revives the disk with its old content.
    pub(crate) fn revive(&self) {
        self.state().is_dead = false;
    }

    /// Lets another host take over the disk.
    pub(crate) fn fence(&self) {
        self.state().is_fenced = true;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    /// Makes a write fail after this number of writes have succeeded.
    pub(crate) fn fail_write_after(&self, writes: u64) {
        self.state().writes_left = Some(writes);
    }

    /// Cancels [`Disk::fail_write_after`].
    pub(crate) fn let_writes_succeed(&self) {
        self.state().writes_left = None;
    }

    /// Makes a block unwritable.
    pub(crate) fn wear_out(&self, lba: u64) {
        self.state().worn.insert(lba);
    }

    /// Holds writes that start in these blocks, until this is called with another range, which may be empty.
    pub(crate) fn hold_writes(&self, held: Range<u64>) {
        self.state().held = held;
    }

    /// Resolves once a write waits.
    pub(crate) async fn holds_one(&self) {
        while self.state().waiting == 0 {
            wait_a_poll().await;
        }
    }

    async fn not_held(&self, lba: u64) {
        if !self.state().held.contains(&lba) {
            return;
        }
        self.state().waiting += 1;
        while self.state().held.contains(&lba) {
            wait_a_poll().await;
        }
        self.state().waiting -= 1;
    }

    /// Makes a block unreadable until it is written.
    pub(crate) fn spoil(&self, lba: u64) {
        self.state().bad.insert(lba);
    }

    /// Makes all blocks readable again, with their old content.
    pub(crate) fn recover(&self) {
        self.state().bad.clear();
    }

    /// Whether a block is unreadable or may be corrupt.
    pub(crate) fn is_spoilt(&self) -> bool {
        let state = self.state();
        let is_there = |(lba, content): (&u64, &Arc<[u8]>)| {
            state.versions[*lba as usize]
                .iter()
                .any(|(_, version)| Arc::ptr_eq(version, content))
        };
        !state.bad.is_empty() || state.corrupt.iter().any(is_there)
    }

    pub(crate) fn corrupt(&self, lba: u64) {
        let mut state = self.state();
        let versions = &mut state.versions[lba as usize];
        let (number, content) = versions.pop().expect("a version");
        let corrupt: Arc<[u8]> = content.iter().map(|byte| byte ^ 0x5a).collect();
        *versions = vec![(number, Arc::clone(&corrupt))];
        state.corrupt.insert(lba, corrupt);
    }

    pub(crate) fn slow_down(&self, polls: u64) {
        self.state().slowness = polls;
    }

    /// Returns the numbers of reads, writes and flushes since the last call.
    pub(crate) fn take_requests(&self) -> [u64; 3] {
        std::mem::take(&mut self.state().requests)
    }

    /// Cuts the disk's power. Writes since the last flush may or may not survive.
    pub(crate) fn crash(&self) {
        self.kill();
        let mut state = self.state();
        state.abandoned.clear();
        for versions in &mut state.versions {
            let kept = versions[draw(versions.len() as u64) as usize].clone();
            *versions = vec![kept];
        }
    }

    /// Kills the disk's user. The disk keeps its cache.
    pub(crate) fn kill(&self) {
        let mut state = self.state();
        state.writes_left = None;
        // The disk's next user starts without a doubt.
        state.losses = Losses::counted(state.times_lost);
    }

    /// Makes a flush fail of which no user has a record, for some of the unflushed blocks.
    pub(crate) fn fail_flush_unseen(&self) {
        self.state().abandon(|| once_in(2));
    }

    /// Makes the next flush fail, for all unflushed blocks.
    pub(crate) fn fail_flush(&self) {
        self.state().fails_flush = true;
    }

    /// Makes the disk lose its cache while in use, and report the loss.
    pub(crate) fn lose_cache(&self) {
        self.crash();
        let mut state = self.state();
        state.times_lost += 1;
        state.losses = Losses::counted(state.times_lost);
    }

    /// Makes the disk lose its cache because its server is restarted. The loss is detected only when the disk
    /// is queried.
    pub(crate) fn lose_cache_unseen(&self) {
        self.crash();
        let mut state = self.state();
        state.times_lost += 1;
        state.losses = state.losses.in_doubt();
    }

    /// Raises a doubt without a loss: the disk's server may have been restarted, but was not.
    pub(crate) fn doubt(&self) {
        let mut state = self.state();
        state.losses = state.losses.in_doubt();
    }

    /// Makes the disk report no doubt.
    pub(crate) fn hide_doubt(&self) {
        self.state().hides_doubt = true;
    }

    /// Makes queries of the disk's losses fail from now on.
    pub(crate) fn tell_nothing(&self) {
        self.state().cannot_tell = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, extent: Extent) -> Result<(), DeviceError> {
        let state = self.state();
        if state.is_dead {
            return Err(DeviceError::NotReady);
        }
        if state.is_fenced {
            return Err(DeviceError::Fenced);
        }
        let end = extent.end().ok_or(DeviceError::OutOfRange)?;
        if end.0 > state.versions.len() as u64 {
            Err(DeviceError::OutOfRange)
        } else {
            Ok(())
        }
    }

    async fn change(
        &self,
        extent: Extent,
        data: Option<Slice>,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        self.check(extent)?;
        self.not_held(extent.lba.0).await;
        let fails = {
            let mut state = self.state();
            state.requests[1] += 1;
            let mut blocks = extent.lba.0..extent.lba.0 + extent.blocks.0;
            let is_worn = blocks.any(|lba| state.worn.contains(&lba));
            match &mut state.writes_left {
                _ if is_worn => true,
                Some(0) => true,
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            }
        };
        pause().await;
        let mut order: Vec<u64> = (0..extent.blocks.0).collect();
        for at in 0..order.len() {
            let other = draw(extent.blocks.0) as usize;
            order.swap(at, other);
        }
        for block in order {
            if fails && (self.state().worn.contains(&(extent.lba.0 + block)) || once_in(2)) {
                continue;
            }
            if once_in(8) {
                pause().await;
            }
            self.check(extent)?;
            let start = block as usize * BLOCK;
            let content: Arc<[u8]> = match &data {
                Some(data) => Arc::from(&data[start..start + BLOCK]),
                None => Arc::from(vec![0; BLOCK]),
            };
            let mut state = self.state();
            let lba = extent.lba.0 + block;
            state.bad.remove(&lba);
            let number = state.next;
            state.next += 1;
            state.versions[lba as usize].push((number, content));
        }
        if fails {
            self.state().writes_left = None;
            return Err(DeviceError::Unwritable(extent.lba));
        }
        pause().await;
        self.check(extent)?;
        if durability == Durability::Stable {
            self.sync(extent).await?;
        }
        Ok(())
    }

    /// Makes the current content of the blocks stable.
    async fn sync(&self, extent: Extent) -> Result<(), DeviceError> {
        let (next, losses) = {
            let state = self.state();
            (state.next, state.times_lost)
        };
        pause().await;
        self.check(extent)?;
        let mut state = self.state();
        if state.times_lost != losses {
            state.losses = Losses::counted(state.times_lost);
            return Err(DeviceError::WritesLost);
        }
        // A flush always updates the losses.
        state.losses = Losses::counted(losses);
        let State {
            versions,
            abandoned,
            ..
        } = &mut *state;
        for lba in extent.lba.0..extent.lba.0 + extent.blocks.0 {
            let versions = &mut versions[lba as usize];
            let newest = versions
                .iter()
                .rposition(|(number, _)| *number < next)
                .unwrap_or(0);
            if abandoned
                .get(&lba)
                .is_none_or(|last| versions[newest].0 > *last)
            {
                abandoned.remove(&lba);
                versions.drain(..newest);
            }
        }
        Ok(())
    }
}

impl State {
    /// Leaves unflushed blocks in the cache: reads still return the written content, but no later flush stores
    /// it. Linux keeps the pages of a failed write-back in its cache, and regards them as clean.
    fn abandon(&mut self, is_meant: impl Fn() -> bool) {
        for (lba, versions) in (0..).zip(&self.versions) {
            if let [_, .., (newest, _)] = versions[..]
                && is_meant()
            {
                self.abandoned.insert(lba, newest);
            }
        }
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        let blocks = Blocks(self.state().versions.len() as u64);
        Geometry {
            block_size: BlockSize::B512,
            blocks,
            physical_exponent: 0,
        }
    }

    fn profile(&self) -> Profile {
        let state = self.state();
        Profile {
            read_only: state.says_read_only,
            thin: true,
            granularity: Blocks(1),
            volatile_cache: !state.says_no_cache,
            durable: true,
            solid_state: true,
            optimal_transfer: None,
            loses_unseen: false,
        }
    }

    fn losses(&self) -> Losses {
        let state = self.state();
        if state.hides_doubt {
            Losses::counted(state.losses.count())
        } else {
            state.losses
        }
    }

    fn resolve_losses(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            pause().await;
            self.check(Extent::new(0, 0))?;
            let mut state = self.state();
            if state.cannot_tell {
                return Err(DeviceError::NotReady);
            }
            state.losses = Losses::counted(state.times_lost);
            Ok(())
        })
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.check(extent)?;
            pause().await;
            let slowness = {
                let mut state = self.state();
                state.requests[0] += 1;
                state.slowness
            };
            for _ in 0..slowness {
                wait_a_poll().await;
            }
            self.check(extent)?;
            let state = self.state();
            for lba in extent.lba.0..extent.lba.0 + extent.blocks.0 {
                if state.bad.contains(&lba) {
                    return Err(DeviceError::Unreadable(Lba(lba)));
                }
                let start = (lba - extent.lba.0) as usize * BLOCK;
                let (_, content) = state.versions[lba as usize].last().expect("a version");
                buffer[start..start + BLOCK].copy_from_slice(content);
            }
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(self.change(extent, Some(data), durability))
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.state().requests[2] += 1;
            let all = Extent::new(0, self.geometry().blocks.0);
            self.check(all)?;
            if std::mem::take(&mut self.state().fails_flush) {
                let mut state = self.state();
                state.abandon(|| true);
                state.times_lost += 1;
                state.losses = Losses::counted(state.times_lost);
                return Err(DeviceError::Unwritable(Lba(0)));
            }
            self.sync(all).await
        })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(self.change(extent, None, Durability::Cached))
    }

    fn write_zeroes(&self, extent: Extent, _: bool) -> Pending<'_, ()> {
        self.unmap(extent)
    }

    fn allocation(&self, extent: Extent, _: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.check(extent)?;
            Ok(vec![Run {
                extent,
                allocation: Allocation::Mapped,
            }])
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A range of a disk's blocks as a device.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) disk: Disk,
    pub(crate) start: u64,
    pub(crate) blocks: u64,
}

impl Part {
    fn at(&self, extent: Extent) -> Extent {
        let inside = extent.end().is_some_and(|end| end.0 <= self.blocks);
        // Otherwise, use an extent that is outside of any disk.
        if inside {
            Extent::new(self.start + extent.lba.0, extent.blocks.0)
        } else {
            Extent::new(u64::MAX, 1)
        }
    }

    fn here<'a, T: 'a>(&self, request: Pending<'a, T>) -> Pending<'a, T> {
        let start = self.start;
        Box::pin(async move {
            request.await.map_err(|error| match error {
                DeviceError::Unreadable(Lba(lba)) => DeviceError::Unreadable(Lba(lba - start)),
                DeviceError::Unwritable(Lba(lba)) => DeviceError::Unwritable(Lba(lba - start)),
                other => other,
            })
        })
    }
}

impl BlockDevice for Part {
    block::forward!(self => self.disk; profile, losses, flush, quiesced);

    fn geometry(&self) -> Geometry {
        Geometry {
            blocks: Blocks(self.blocks),
            ..self.disk.geometry()
        }
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.here(self.disk.read(self.at(extent), buffer))
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        self.here(self.disk.write(self.at(extent), data, durability))
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.here(self.disk.unmap(self.at(extent)))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        self.here(self.disk.write_zeroes(self.at(extent), may_unmap))
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        let whole = move |_| {
            vec![Run {
                extent,
                allocation: Allocation::Mapped,
            }]
        };
        let request = self.disk.allocation(self.at(extent), runs_max);
        Box::pin(async move { request.await.map(whole) })
    }
}
