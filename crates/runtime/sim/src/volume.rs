//! A volume of a simulation: its device, its persistent state, and the checker of its blocks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block::{BlockDevice, BlockSize, Buffered, Pending, Spawner, Window};
use host::{RamDevice, RamOptions};
use iscsi_server::Export;
use logical_unit::{Identity, LogicalUnit, LogicalUnitOptions};
use volume::{CacheGeneration, LossMark, PersistentState, VolumeOptions};

use crate::checker::{BlockFault, Checker, Now, OUR_FIRST_WRITER, WriteId, Writer};
use crate::disk::{Disk, DiskBehaviour, Lost, NEVER};
use crate::features::Feature;
use crate::registrations::Registrations;
use crate::universe::{self, draw};

/// Length of a block in bytes.
pub(crate) const BLOCK: usize = 512;

/// A LUN with its checker.
pub(crate) struct Volume {
    pub(crate) lun: u16,
    pub(crate) blocks: u64,
    medium: Medium,
    keep: SimKeep,
    checker: RefCell<Checker>,
    /// One in this many requests covers many blocks.
    long_once_in: u64,
    /// Whether writers must register, and are preempted.
    pub(crate) is_fenced: bool,
    pub(crate) registrations: RefCell<Registrations>,
    /// Outstanding copies to this volume for which the command was sent to another LUN, with the CmdSNs of
    /// the commands.
    pub(crate) copies: RefCell<Vec<(WriteId, u32)>>,
    /// Whether NBD clients, which cannot register, may write.
    pub(crate) gate: Cell<Gate>,
}

/// Whether a reservation excludes NBD clients from writing, as far as the holder of the reservation can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gate {
    /// A reservation was answered, and its release has not been requested since.
    pub(crate) is_shut: bool,
    /// Number of releases requested.
    releases: u64,
}

impl Gate {
    /// Returns the gate after the release of the reservation was requested.
    pub(crate) fn opened(self) -> Gate {
        Gate {
            is_shut: false,
            releases: self.releases + 1,
        }
    }

    /// Returns the gate after a reservation was answered.
    pub(crate) fn shut(self) -> Gate {
        Gate {
            is_shut: true,
            ..self
        }
    }
}

enum Medium {
    /// Memory of the server, which is lost with the server.
    Ram,
    Disk(Disk),
    /// A disk behind a cache in the server's memory, which is lost with the server.
    Buffered(Disk),
}

/// The window of the cache: only a few requests, so that write-behind and read-ahead overlap.
const WINDOW: Window = Window {
    bytes: 32 << 10,
    request_bytes: 8 << 10,
};

/// Runs the background tasks of a cache on the core that triggered them.
struct SameCore;

impl Spawner for SameCore {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) {
        drop(reactor::spawn(task));
    }
}

/// Creates a device in memory.
pub(crate) fn ram(bytes: u64) -> Arc<dyn BlockDevice> {
    let mut options = RamOptions::new(bytes);
    options.huge_pages = false; // made by a separate thread, which the seed does not control
    Arc::new(RamDevice::new(options).expect("memory for a small volume"))
}

impl Volume {
    pub(crate) fn drawn(lun: u16, without: &[Feature], is_calm: bool) -> Volume {
        let has = |part: Feature| !without.contains(&part);
        let blocks = draw(|random| random.between(32, 512));
        let medium = match has(Feature::Memory) && draw(|random| random.once_in(2)) {
            true => Medium::Ram,
            false => {
                let disk = Disk::new(format!("disk {lun}"), BlockSize::B512, blocks);
                let is_buffered = has(Feature::Layers) && draw(|random| random.once_in(3));
                let habits = draw(|random| DiskBehaviour {
                    least_time: random.of_any_size(1_000, 1_000_000),
                    most_time: random.mostly_small(1_000_000, 100_000_000),
                    hangs_once_in: *random.pick(&[NEVER, NEVER, 1_000, 10_000]),
                    fails_once_in: *random.pick(&[NEVER, NEVER, 200, 5_000]),
                    sync_fails_once_in: *random.pick(&[NEVER, NEVER, 4, 50]),
                    full_once_in: *random.pick(&[NEVER, NEVER, NEVER, 300]),
                    lies: random.once_in(8),
                    ..DiskBehaviour::default()
                });
                // The disk reports losses to the checker. If the cache cannot write data back, the data is
                // lost without a report, so the disk behind a cache accepts all writes.
                let habits = match is_buffered {
                    true => DiskBehaviour {
                        fails_once_in: NEVER,
                        full_once_in: NEVER,
                        ..habits
                    },
                    false => habits,
                };
                if has(Feature::DiskTrouble) && !is_calm {
                    disk.set_habits(habits);
                }
                if is_buffered {
                    Medium::Buffered(disk)
                } else {
                    Medium::Disk(disk)
                }
            }
        };
        let (tears, keeps) = match &medium {
            Medium::Ram => (true, false),
            Medium::Disk(disk) | Medium::Buffered(disk) => (false, !disk.lies()),
        };
        let checker = RefCell::new(Checker::new(u64::from(lun), BLOCK, blocks, tears, keeps));
        let is_fenced = has(Feature::Fencing) && draw(|random| random.once_in(3));
        let (keep, registrations, copies) =
            (SimKeep::default(), RefCell::default(), RefCell::default());
        let long_once_in = *draw(|random| random.pick(&[2, 16, 64, 64]));
        let gate = Cell::default();
        Volume {
            lun,
            blocks,
            medium,
            keep,
            checker,
            long_once_in,
            is_fenced,
            registrations,
            copies,
            gate,
        }
    }

    /// Creates a volume in memory, with enough blocks that commands rarely overlap.
    pub(crate) fn dense() -> Volume {
        let blocks = 1 << 12;
        Volume {
            lun: 0,
            blocks,
            medium: Medium::Ram,
            keep: SimKeep::default(),
            checker: RefCell::new(Checker::new(0, BLOCK, blocks, true, false)),
            long_once_in: NEVER,
            is_fenced: false,
            registrations: RefCell::default(),
            copies: RefCell::default(),
            gate: Cell::default(),
        }
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        match &self.medium {
            Medium::Ram => ram(self.blocks * BLOCK as u64),
            Medium::Disk(disk) => Arc::new(disk.clone()),
            Medium::Buffered(disk) => {
                Arc::new(Buffered::new(disk.clone(), WINDOW, Arc::new(SameCore)))
            }
        }
    }

    fn identity(&self) -> Identity {
        let mut uuid = *b"simulated volume";
        uuid[15] = self.lun as u8;
        Identity::new(uuid)
    }

    /// Returns the cache generation for the server with this number. A disk's cache is lost only at a power
    /// cut; a cache in the server's memory is lost whenever a server is replaced.
    fn cache_generation(&self, server: u64) -> Option<CacheGeneration> {
        match &self.medium {
            Medium::Ram => None,
            Medium::Disk(disk) => Some((disk.power_cuts() << 64).to_be_bytes()),
            Medium::Buffered(_) => Some((u128::from(server) << 64).to_be_bytes()),
        }
    }

    /// Returns the volume's designator in copy commands.
    pub(crate) fn naa(&self) -> Vec<u8> {
        self.identity().naa()
    }

    /// Returns the export for the server with this number.
    pub(crate) fn export(&self, server: u64) -> Export {
        let options = LogicalUnitOptions {
            identity: self.identity(),
            removable: false,
            thin: None,
        };
        let unit = |keep: Option<Arc<dyn PersistentState>>| {
            let of_volume = VolumeOptions {
                persistent_state: keep,
                cache_generation: self.cache_generation(server),
                ..VolumeOptions::default()
            };
            let volume = volume::Volume::new(self.device(), of_volume)?;
            LogicalUnit::new(volume, options.clone())
        };
        let unit = unit(Some(Arc::new(self.keep.clone()))).unwrap_or_else(|error| {
            universe::fault(format!("LUN {}: {error}", self.lun));
            unit(None).expect("a unit that keeps nothing")
        });
        Export {
            lun: self.lun,
            volume: format!("volume{}", self.lun),
            unit,
            initiators: None,
            deadline: Duration::from_secs(30),
        }
    }

    pub(crate) fn check<T>(&self, ask: impl FnOnce(&mut Checker) -> T) -> T {
        let mut checker = self.checker.borrow_mut();
        if let Some(disk) = self.disk() {
            for Lost { lba, lost, kept } in disk.take_lost() {
                checker.sync_failed(lba, &lost, &kept);
            }
        }
        ask(&mut checker)
    }

    /// Draws an extent, usually short, as first block and count.
    pub(crate) fn place(&self) -> (u64, u64) {
        draw(|random| {
            let blocks = match random.once_in(self.long_once_in) {
                true => random.of_any_size(1, self.blocks),
                false => random.mostly_small(1, self.blocks.min(64)),
            };
            (random.below(self.blocks - blocks + 1), blocks)
        })
    }

    /// Draws an extent of one block. Often, it is a block that others exchange concurrently, as clusters do
    /// with their locks.
    pub(crate) fn lock_block(&self) -> (u64, u64) {
        let blocks = draw(|random| {
            if random.once_in(2) {
                self.blocks.min(4)
            } else {
                self.blocks
            }
        });
        (draw(|random| random.below(blocks)), 1)
    }

    /// Checks that no other exchange has found and replaced the same content.
    pub(crate) fn check_exchange(&self, by: Writer, begun: Now, lba: u64, found: &[u8]) {
        if let Err(wrong) = self.check(|checker| checker.exchanged(begun, lba, found)) {
            universe::fault(format!("LUN {}, exchanged by {by}: {wrong}", self.lun));
        }
    }

    pub(crate) fn check_read(&self, by: Writer, begun: Now, lba: u64, data: &[u8]) {
        if let Err(wrong) = self.check(|checker| checker.read(begun, lba, data)) {
            universe::fault(format!("LUN {}, read by {by}: {wrong}", self.lun));
        }
    }

    /// Checks a flush that `by` requested at `begun`.
    pub(crate) fn check_flush(&self, by: Writer, begun: Now) {
        if self.disk().is_some_and(Disk::lies) {
            return; // the disk reports success, but nothing is durable
        }
        if let Err(BlockFault { lba, what }) = self.check(|checker| checker.flushed(by, begun)) {
            universe::fault(format!("LUN {}: block {lba}: {what}", self.lun));
        }
    }

    pub(crate) fn disk(&self) -> Option<&Disk> {
        match &self.medium {
            Medium::Disk(disk) | Medium::Buffered(disk) => Some(disk),
            Medium::Ram => None,
        }
    }

    /// Whether the volume keeps each acknowledged write until its power is cut.
    pub(crate) fn loses_nothing(&self) -> bool {
        matches!(&self.medium, Medium::Disk(disk) if disk.loses_nothing())
    }

    /// Returns a description for traces.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.medium {
            Medium::Ram => "memory",
            Medium::Disk(_) => "disk",
            Medium::Buffered(_) => "cached disk",
        }
    }

    /// Records that the server has stopped: it was killed, its machine lost its `power`, or it was shut down.
    /// (Whether the last flush of a server that shut down succeeded is not known here.)
    pub(crate) fn server_died(&self, power: bool) {
        self.keep.kill();
        let mut checker = self.checker.borrow_mut();
        match &self.medium {
            Medium::Ram => checker.erase(),
            Medium::Disk(disk) | Medium::Buffered(disk) if power => {
                disk.cut_power();
                checker.cut_power();
            }
            Medium::Disk(disk) => {
                disk.kill();
                checker.all_are_over();
                checker.has_restarted(|writer| writer >= OUR_FIRST_WRITER);
            }
            Medium::Buffered(disk) => {
                disk.kill();
                checker.cut_power();
                checker.has_restarted(|_| false);
            }
        }
    }

    pub(crate) fn checks(&self) -> u64 {
        self.checker.borrow().checks
    }
}

/// The persistent state of a volume: a small file of reservations, which is replaced as a whole, and the mark
/// of the last write loss. Both survive the server.
#[derive(Clone, Debug, Default)]
struct SimKeep {
    file: Arc<Mutex<Option<Vec<u8>>>>,
    /// The last recorded mark of a write loss.
    loss: Arc<AtomicU64>,
    /// Number of marks drawn.
    marks: Arc<AtomicU64>,
    /// Pending stores.
    coming: Arc<Mutex<BTreeMap<u64, Coming>>>,
    next: Arc<AtomicU64>,
}

#[derive(Clone, Debug)]
enum Coming {
    File(Vec<u8>),
    Loss(u64),
}

impl SimKeep {
    /// Stores `what` after this time, if the requesting process is still alive by then.
    fn store_after(&self, time: u64, what: Coming) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.coming().insert(number, what);
        let keep = self.clone();
        universe::after(time, move || {
            let what = keep.coming().remove(&number);
            what.into_iter().for_each(|what| keep.store(what));
        });
    }

    fn store(&self, what: Coming) {
        match what {
            Coming::File(bytes) => {
                *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes)
            }
            // The latest mark drawn is stored, even if stores complete in another order, as with a directory
            // of files.
            Coming::Loss(mark) => drop(self.loss.fetch_max(mark, Ordering::Relaxed)),
        }
    }

    /// Handles the termination of the process: each of its pending stores is completed now, or never.
    fn kill(&self) {
        for what in std::mem::take(&mut *self.coming()).into_values() {
            if draw(|random| random.once_in(2)) {
                self.store(what);
            }
        }
    }

    fn coming(&self) -> MutexGuard<'_, BTreeMap<u64, Coming>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Draws the time until a store takes effect, and the time from then until it is acknowledged.
fn times() -> [u64; 2] {
    draw(|random| {
        [
            random.mostly_small(10_000, 50_000_000),
            random.mostly_small(10_000, 50_000_000),
        ]
    })
}

impl PersistentState for SimKeep {
    fn save<'a>(&'a self, bytes: Vec<u8>) -> Pending<'a, ()> {
        Box::pin(async move {
            // The file is replaced at some moment while the store is outstanding, even if the future is
            // dropped.
            let times = times();
            self.store_after(times[0], Coming::File(bytes));
            reactor::sleep(Duration::from_nanos(times[0] + times[1])).await;
            Ok(())
        })
    }

    fn load(&self) -> Option<Vec<u8>> {
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn loss_mark(&self) -> LossMark {
        u128::from(self.loss.load(Ordering::Relaxed)).to_be_bytes()
    }

    fn new_loss_mark(&self) -> LossMark {
        u128::from(self.marks.fetch_add(1, Ordering::Relaxed) + 1).to_be_bytes()
    }

    fn record_loss(&self, mark: LossMark) -> Pending<'_, ()> {
        Box::pin(async move {
            let times = times();
            // Marks are numbers in simulations.
            self.store_after(times[0], Coming::Loss(u128::from_be_bytes(mark) as u64));
            reactor::sleep(Duration::from_nanos(times[0] + times[1])).await;
            Ok(())
        })
    }
}
