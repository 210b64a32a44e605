//! A simulated disk, with the kernel's page cache in front of it.
//!
//! ```text
//!   write ──► pieces, each after its own delay ──► page cache ──► flush or write-back ──► platter
//!              (a kill drops or executes each)      (a power cut loses or keeps each block)
//! ```
//!
//! A dropped request may still be executed, because the kernel already has it. As in Linux, a failed sync
//! leaves the pages in the cache, marked clean, so their content is lost at the next power cut.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry,
    Lba, Losses, Pending, Profile, Run, Slice,
};

use crate::universe::{self, note};
use testkit::Random;

/// Timing and faults of a disk.
#[derive(Clone, Debug)]
pub(crate) struct DiskBehaviour {
    /// The shortest duration of a request, in nanoseconds.
    pub(crate) least_time: u64,
    pub(crate) most_time: u64,
    /// One in this many requests hangs.
    pub(crate) hangs_once_in: u64,
    /// Maximum duration of a hang in nanoseconds.
    pub(crate) longest_hang: u64,
    /// One in this many reads and writes fails.
    pub(crate) fails_once_in: u64,
    /// One in this many syncs fails, and loses the data to be synced.
    pub(crate) sync_fails_once_in: u64,
    /// One in this many writes fails for lack of space.
    pub(crate) full_once_in: u64,
    /// Whether syncs report success without having an effect.
    pub(crate) lies: bool,
}

/// The value of a frequency for events that never occur.
pub(crate) const NEVER: u64 = u64::MAX;

impl Default for DiskBehaviour {
    fn default() -> DiskBehaviour {
        DiskBehaviour {
            least_time: 5_000,
            most_time: 20_000_000,
            hangs_once_in: NEVER,
            longest_hang: 60_000_000_000,
            fails_once_in: NEVER,
            sync_fails_once_in: NEVER,
            full_once_in: NEVER,
            lies: false,
        }
    }
}

/// The state of a disk, which survives the machines that use it.
#[derive(Clone)]
pub(crate) struct Disk(Arc<Mutex<DiskState>>);

struct DiskState {
    name: String,
    geometry: Geometry,
    /// The content that reads return.
    cache: Vec<u8>,
    /// The content after a power cut.
    stable: Vec<u8>,
    /// For each block, whether the content in the cache is newer than the stable content.
    dirty: Vec<bool>,
    /// For each block, whether it is allocated.
    mapped: Vec<bool>,
    habits: DiskBehaviour,
    /// Whether a sync may have reported success without having an effect.
    has_lied: bool,
    requests: BTreeMap<u64, Request>,
    next: u64,
    quiesced: Vec<Waker>,
    power_cuts: u64,
    /// Number of failed syncs.
    losses: u64,
    /// Blocks whose latest content a failed sync has lost, for the checker.
    lost: Vec<Lost>,
}

/// A request to the kernel.
struct Request {
    pieces: Vec<Change>,
    result: Option<Result<(), DeviceError>>,
    waker: Option<Waker>,
    /// Whether the request's future was dropped.
    dropped: bool,
}

/// A change of contiguous blocks.
#[derive(Clone, Debug)]
struct Change {
    lba: u64,
    blocks: u64,
    /// The new content of the blocks; zeros if `None`.
    data: Option<WriteData>,
    /// Whether the blocks are allocated afterwards.
    maps: bool,
}

/// A part of the data to write.
#[derive(Clone, Debug)]
struct WriteData {
    data: Arc<Vec<u8>>,
    from: usize,
}

impl Disk {
    /// Creates a disk of `blocks` zero blocks.
    pub(crate) fn new(name: impl Into<String>, block_size: BlockSize, blocks: u64) -> Disk {
        let bytes = (blocks << block_size.shift()) as usize;
        Disk(Arc::new(Mutex::new(DiskState {
            name: name.into(),
            geometry: Geometry {
                block_size,
                blocks: Blocks(blocks),
                physical_exponent: 0,
            },
            cache: vec![0; bytes],
            stable: vec![0; bytes],
            dirty: vec![false; blocks as usize],
            mapped: vec![false; blocks as usize],
            habits: DiskBehaviour::default(),
            has_lied: false,
            requests: BTreeMap::new(),
            next: 0,
            quiesced: Vec::new(),
            power_cuts: 0,
            losses: 0,
            lost: Vec::new(),
        })))
    }

    /// Sets the disk's behaviour from now on.
    pub(crate) fn set_habits(&self, habits: DiskBehaviour) {
        let mut platter = self.platter();
        platter.has_lied |= habits.lies;
        platter.habits = habits;
    }

    /// Kills the process that uses the disk. Each piece of its outstanding requests is either executed now,
    /// or never.
    pub(crate) fn kill(&self) {
        let mut platter = self.platter();
        let requests = std::mem::take(&mut platter.requests);
        for change in requests.into_values().flat_map(|request| request.pieces) {
            if universe::draw(|random| random.once_in(2)) {
                platter.carry_out(&change);
            }
        }
    }

    /// Cuts the machine's power. An arbitrary part of the unflushed data survives.
    pub(crate) fn cut_power(&self) {
        self.kill();
        let mut platter = self.platter();
        platter.power_cuts += 1;
        let shift = platter.geometry.block_size.shift();
        let DiskState {
            cache,
            stable,
            dirty,
            ..
        } = &mut *platter;
        for (block, dirty) in dirty.iter_mut().enumerate() {
            let bytes = block << shift..(block + 1) << shift;
            match std::mem::take(dirty) && universe::draw(|random| random.once_in(2)) {
                true => stable[bytes.clone()].copy_from_slice(&cache[bytes]),
                false => cache[bytes.clone()].copy_from_slice(&stable[bytes]),
            }
        }
    }

    /// Whether a sync may have reported success without having an effect.
    pub(crate) fn lies(&self) -> bool {
        self.platter().has_lied
    }

    /// Whether the disk keeps all acknowledged data until its power is cut.
    pub(crate) fn loses_nothing(&self) -> bool {
        let platter = self.platter();
        let DiskBehaviour {
            fails_once_in,
            sync_fails_once_in,
            ..
        } = platter.habits;
        !platter.has_lied && fails_once_in == NEVER && sync_fails_once_in == NEVER
    }

    /// Returns the number of power cuts. Each one discards the cache.
    pub(crate) fn power_cuts(&self) -> u128 {
        u128::from(self.platter().power_cuts)
    }

    /// Returns the losses of failed syncs since the last call.
    pub(crate) fn take_lost(&self) -> Vec<Lost> {
        std::mem::take(&mut self.platter().lost)
    }

    fn platter(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits changes to the kernel, and waits until they complete.
    async fn change(&self, changes: Vec<Change>) -> Result<(), DeviceError> {
        let number = self.begin(&changes);
        let waiting = Waiting { disk: self, number };
        let result = poll_fn(|cx| {
            let mut platter = waiting.disk.platter();
            let Some(request) = platter.requests.get_mut(&number) else {
                // The process that made the request was killed, so the request has no result.
                return Poll::Pending;
            };
            match request.result {
                Some(result) => Poll::Ready(result),
                None => {
                    request.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        drop(waiting);
        result
    }

    fn begin(&self, changes: &[Change]) -> u64 {
        let mut platter = self.platter();
        let number = platter.next;
        platter.next += 1;
        let (times, result) = {
            let habits = &platter.habits;
            universe::draw(|random| {
                let hang = habits.hangs(random);
                let times: Vec<u64> = (0..=changes.len())
                    .map(|_| hang + habits.time(random))
                    .collect();
                let fails = random.once_in(habits.fails_once_in);
                let full =
                    random.once_in(habits.full_once_in) && changes.iter().any(|change| change.maps);
                let first = Lba(changes.first().map_or(0, |change| change.lba));
                let result = match (full, fails) {
                    (true, _) => Err(DeviceError::NoSpace),
                    (_, true) => Err(DeviceError::Unwritable(first)),
                    _ => Ok(()),
                };
                (times, result)
            })
        };
        let end = times.iter().copied().max().unwrap_or(0);
        platter.requests.insert(
            number,
            Request {
                pieces: changes.to_vec(),
                result: None,
                waker: None,
                dropped: false,
            },
        );
        drop(platter);
        for (piece, time) in times.into_iter().enumerate().take(changes.len()) {
            let disk = self.clone();
            // An arbitrary part of a failing request is executed.
            if result.is_ok() || universe::draw(|random| random.once_in(2)) {
                universe::after(time, move || disk.carry_out(number, piece));
            }
        }
        let disk = self.clone();
        universe::after(end + 1, move || disk.finish(number, result));
        number
    }

    fn carry_out(&self, number: u64, piece: usize) {
        let mut platter = self.platter();
        let Some(request) = platter.requests.get(&number) else {
            return;
        };
        let Some(change) = request.pieces.get(piece).cloned() else {
            return;
        };
        platter.carry_out(&change);
        note(&[3, number, change.lba, change.blocks], || {
            format!(
                "{}: blocks {}+{} change (request {number})",
                platter.name, change.lba, change.blocks
            )
        });
    }

    fn finish(&self, number: u64, result: Result<(), DeviceError>) {
        let wakers = {
            let mut platter = self.platter();
            let Some(request) = platter.requests.get_mut(&number) else {
                return;
            };
            request.result = Some(result);
            let waker = request.waker.take();
            if request.dropped {
                platter.requests.remove(&number);
            }
            let mut wakers = std::mem::take(&mut platter.quiesced);
            wakers.extend(waker);
            wakers
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits for the duration of a request that changes nothing.
    async fn pass(&self) -> Result<(), DeviceError> {
        self.change(Vec::new()).await
    }

    async fn sync(&self) -> Result<(), DeviceError> {
        let (meant, fails, losses) = {
            let platter = self.platter();
            let fails = universe::draw(|random| random.once_in(platter.habits.sync_fails_once_in));
            (platter.dirty_blocks(), fails, platter.losses)
        };
        self.pass().await?;
        let mut platter = self.platter();
        if platter.habits.lies {
            return Ok(());
        }
        if fails && !meant.is_empty() {
            platter.losses += 1;
            // Data that another sync has made durable in the meantime is not lost.
            let shift = platter.geometry.block_size.shift();
            for block in meant {
                if std::mem::take(&mut platter.dirty[block]) {
                    let bytes = block << shift..(block + 1) << shift;
                    let (lost, kept) = (
                        platter.cache[bytes.clone()].to_vec(),
                        platter.stable[bytes].to_vec(),
                    );
                    platter.lost.push(Lost {
                        lba: block as u64,
                        lost,
                        kept,
                    });
                }
            }
            note(&[4], || {
                format!(
                    "{}: a sync failed; {} blocks are lost",
                    platter.name,
                    platter.lost.len()
                )
            });
            return Err(DeviceError::WritesLost);
        }
        if platter.losses != losses {
            // The kernel has reported the error to another sync.
            return Err(DeviceError::WritesLost);
        }
        let shift = platter.geometry.block_size.shift();
        let DiskState {
            cache,
            stable,
            dirty,
            ..
        } = &mut *platter;
        for block in meant {
            let bytes = block << shift..(block + 1) << shift;
            if std::mem::take(&mut dirty[block]) {
                stable[bytes.clone()].copy_from_slice(&cache[bytes]);
            }
        }
        Ok(())
    }

    fn checked(&self, extent: Extent) -> Result<(), DeviceError> {
        match self.platter().geometry.contains(extent) {
            true => Ok(()),
            false => Err(DeviceError::OutOfRange),
        }
    }

    /// Cuts `extent` at random positions into pieces, which the kernel processes separately and in any order.
    fn cut(&self, extent: Extent, data: Option<Vec<u8>>, maps: bool) -> Vec<Change> {
        let shift = self.platter().geometry.block_size.shift();
        let data = data.map(Arc::new);
        let mut changes = Vec::new();
        let mut at = 0;
        while at < extent.blocks.0 {
            let left = extent.blocks.0 - at;
            let blocks = universe::draw(|random| {
                if random.once_in(2) {
                    left
                } else {
                    random.between(1, left)
                }
            });
            let data = data.as_ref().map(|data| WriteData {
                data: Arc::clone(data),
                from: (at << shift) as usize,
            });
            changes.push(Change {
                lba: extent.lba.0 + at,
                blocks,
                data,
                maps,
            });
            at += blocks;
        }
        changes
    }
}

impl DiskBehaviour {
    fn time(&self, random: &mut Random) -> u64 {
        random.mostly_small(self.least_time, self.most_time)
    }

    fn hangs(&self, random: &mut Random) -> u64 {
        if random.once_in(self.hangs_once_in) {
            random.mostly_small(self.most_time, self.longest_hang)
        } else {
            0
        }
    }
}

impl DiskState {
    fn carry_out(&mut self, change: &Change) {
        let shift = self.geometry.block_size.shift();
        let bytes =
            (change.lba << shift) as usize..((change.lba + change.blocks) << shift) as usize;
        match &change.data {
            Some(WriteData { data, from }) => {
                let length = bytes.len();
                self.cache[bytes].copy_from_slice(&data[*from..from + length]);
            }
            None => self.cache[bytes].fill(0),
        }
        for block in change.lba..change.lba + change.blocks {
            self.dirty[block as usize] = true;
            self.mapped[block as usize] = change.maps;
        }
    }

    fn dirty_blocks(&self) -> Vec<usize> {
        self.dirty
            .iter()
            .enumerate()
            .filter(|(_, dirty)| **dirty)
            .map(|(block, _)| block)
            .collect()
    }
}

/// A block that a failed sync has lost.
pub(crate) struct Lost {
    pub(crate) lba: u64,
    /// Content in the cache.
    pub(crate) lost: Vec<u8>,
    /// Content on stable storage.
    pub(crate) kept: Vec<u8>,
}

/// A future that waits for a request. If it is dropped, the request may still be executed.
struct Waiting<'a> {
    disk: &'a Disk,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut platter = self.disk.platter();
        let Some(request) = platter.requests.get_mut(&self.number) else {
            return;
        };
        if request.result.is_some() {
            platter.requests.remove(&self.number);
            return;
        }
        request.dropped = true;
        // In half of the cases, the kernel cancels the request.
        if universe::try_with(|universe| universe.random.once_in(2)).unwrap_or(true) {
            request.pieces.clear();
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({})", self.platter().name)
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        self.platter().geometry
    }

    fn profile(&self) -> Profile {
        Profile {
            read_only: false,
            thin: true,
            granularity: Blocks(1),
            volatile_cache: true,
            durable: true,
            solid_state: true,
            optimal_transfer: None,
            loses_unseen: false,
        }
    }

    fn losses(&self) -> Losses {
        Losses::counted(self.platter().losses)
    }

    fn read_nowait(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        let has_it = universe::draw(|random| random.once_in(4));
        if has_it {
            let platter = self.platter();
            let start = platter.geometry.offset(extent) as usize;
            buffer.copy_from_slice(&platter.cache[start..start + buffer.len()]);
        }
        has_it
    }

    fn write_nowait(&self, extent: Extent, data: &[u8]) -> bool {
        let takes_it = universe::draw(|random| random.once_in(4));
        if takes_it {
            let data = Some(WriteData {
                data: Arc::new(data.to_vec()),
                from: 0,
            });
            let change = Change {
                lba: extent.lba.0,
                blocks: extent.blocks.0,
                data,
                maps: true,
            };
            self.platter().carry_out(&change);
        }
        takes_it
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.checked(extent)?;
            let fails = {
                let platter = self.platter();
                universe::draw(|random| random.once_in(platter.habits.fails_once_in))
            };
            self.pass()
                .await
                .map_err(|_| DeviceError::Unreadable(extent.lba))?;
            if fails {
                return Err(DeviceError::Unreadable(extent.lba));
            }
            let platter = self.platter();
            let start = platter.geometry.offset(extent) as usize;
            let length = buffer.len();
            buffer.copy_from_slice(&platter.cache[start..start + length]);
            drop(platter);
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move {
            self.checked(extent)?;
            self.change(self.cut(extent, Some(data.to_vec()), true))
                .await?;
            match durability {
                Durability::Cached => Ok(()),
                Durability::Stable => self.sync().await,
            }
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(self.sync())
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(async move {
            self.checked(extent)?;
            self.change(self.cut(extent, None, false)).await
        })
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            self.checked(extent)?;
            self.change(self.cut(extent, None, !may_unmap)).await
        })
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.checked(extent)?;
            self.pass().await?;
            let platter = self.platter();
            let mut runs: Vec<Run> = Vec::new();
            for block in extent.lba.0..extent.lba.0 + extent.blocks.0 {
                let allocation = match platter.mapped[block as usize] {
                    true => Allocation::Mapped,
                    false => Allocation::Deallocated,
                };
                let count = runs.len();
                match runs.last_mut() {
                    Some(run) if run.allocation == allocation => run.extent.blocks.0 += 1,
                    _ if count == runs_max => break,
                    _ => runs.push(Run {
                        extent: Extent::new(block, 1),
                        allocation,
                    }),
                }
            }
            Ok(runs)
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(poll_fn(move |cx| {
            let mut platter = self.platter();
            if !platter.requests.values().any(|request| request.dropped) {
                return Poll::Ready(Ok(()));
            }
            platter.quiesced.push(cx.waker().clone());
            Poll::Pending
        }))
    }
}
