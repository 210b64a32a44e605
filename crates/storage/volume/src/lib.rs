//! A volume: the object that users name and that front ends serve. Front ends access blocks only through
//! volumes.
//!
//! [`Volume`] contains the state that all front ends of one device share, whatever their protocols:
//!
//! - the device and its [range locks](Volume::range_locks): which requests may overlap;
//! - the gate: one [generation counter](Volume::generation), which each request reads, for everything that
//!   could [forbid](Volume::permits) a request: [`reservations`], write protection, and the [`Fence`] of an
//!   unresponsive device;
//! - [aborted requests](Volume::quiesced) that the device may still execute, whose blocks stay locked until
//!   then;
//! - [lost writes](Volume::lost_writes), which were acknowledged, but are not on stable storage after a
//!   failed flush;
//! - [`Health`]: failures of the device and its recovery;
//! - [`PersistentState`], which survives a restart, and the lock under which it is saved.
//!
//! A [`Registry`] contains the served volumes, as a versioned [`Snapshot`].
//!
//! This crate does not depend on a protocol, a clock or the operating system: hosts are names ([`HostPath`]),
//! and attachments are numbers. Deadlines and the list of outstanding requests are not in this crate yet.
//!
//! A volume is specified by a [`Spec`](spec::Spec), parsed by a [`Grammar`](spec::Grammar) from a text such
//! as `delay:5ms:[ram:1GiB]`. Each kind of store or layer is a [`Backend`](backend::Backend) in a separate file.
//!
//! ```
//! use std::sync::Arc;
//!
//! use block::{BlockSize, Geometry, Null};
//! use volume::{Volume, VolumeOptions};
//!
//! let blocks = BlockSize::B512.exact(1 << 20).expect("whole blocks");
//! let device = Null::new(Geometry { block_size: BlockSize::B512, blocks, physical_exponent: 0 });
//! let volume = Volume::new(Arc::new(device), VolumeOptions::default()).expect("nothing was saved");
//! let before = volume.generation();
//! let fence = volume.fence();
//! assert!(volume.is_fenced() && volume.generation() != before);
//! drop(fence);
//! assert!(!volume.is_fenced());
//! ```
//!
//! # Lost writes
//!
//! A failed flush is reported to every user who could have relied on the lost data. Devices count losses of
//! acknowledged writes (`BlockDevice::losses`): a file counts each failed sync, a write-behind layer counts
//! failed write-backs. A client counts losses of its server: after a reconnection, its `block::Losses` are in
//! doubt until it has read the server's cache generation (`BlockDevice::resolve_losses`), and RAID does not
//! read from a member in doubt. The volume adds up losses ([`Volume::lost_writes`]). Front ends compare this
//! count with the count last reported to each nexus, client or station, also after it has departed and
//! returned ([`Departed`]). For devices with one user, `SingleUser` does the same.
//!
//! Before a loss is reported, [`PersistentState::record_loss`] records it. [`Volume::loss_mark`] changes the cache generation, so an
//! initiator of an earlier server process that returns after the loss also detects it.

pub mod backend;
pub mod backends;
mod departed;
mod health;
mod permission;
mod persistent_state;
pub mod reservations;
pub mod spec;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use block::{Aborted, BlockDevice, DeviceError, Extent, Hold, Lock, RangeLocks};

use permission::{Gate, Permissions};
use persistent_state::{LostWrites, Saved};
use reservations::Registrations;

pub use departed::{Departed, Reported};
pub use health::{Health, RequestKind, StorageCondition, StorageError};
pub use permission::{Denied, Fence, WriteProtection};
pub use persistent_state::{
    CacheGeneration, Damaged, LossMark, PersistentState, SaveLock, Unsaved,
};
pub use reservations::{Access, AttachmentId, HostPath, HostPort, Requester, ServicePort};

/// Options of a volume.
#[derive(Clone, Default)]
pub struct VolumeOptions {
    /// The storage for the volume's persistent state. Without it, no state survives a restart.
    pub persistent_state: Option<Arc<dyn PersistentState>>,
    /// Whether writes are refused, even if the device could execute them.
    pub read_only: bool,
    /// A value that differs from the value at the previous start if unflushed acknowledged writes may have
    /// been lost in between; `None` if this is unknown. [`Volume::cache_generation`] combines it with the
    /// mark of later losses.
    pub cache_generation: Option<CacheGeneration>,
}

/// A device, and the state that its front ends share. All sessions, on all cores and of all protocols, use
/// the same object.
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    is_read_only: bool,
    persistent_state: Option<Arc<dyn PersistentState>>,
    front_end_state: Lock<Vec<u8>>,
    /// Locks for saving: block 0 stands for the saved state, block 1 for the loss mark.
    save_locks: Arc<RangeLocks>,
    range_locks: Arc<RangeLocks>,
    gate: Gate,
    permissions: Lock<Permissions>,
    aborted: AbortedRequests,
    health: Health,
    lost_writes: LostWrites,
    cache_generation: Option<CacheGeneration>,
    opening: u64,
}

/// The number of the next volume that this process opens.
static OPENINGS: AtomicU64 = AtomicU64::new(0);

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume({:?})", self.device.geometry())
    }
}

impl Volume {
    /// Creates a volume over `device`, with its saved state.
    ///
    /// # Errors
    /// The saved state is damaged. The volume must not be served without its reservations.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        options: VolumeOptions,
    ) -> Result<Arc<Volume>, Damaged> {
        let VolumeOptions {
            persistent_state,
            read_only,
            cache_generation,
        } = options;
        let saved = persistent_state.as_ref().and_then(|state| state.load());
        let saved =
            saved.map_or_else(|| Ok(Saved::default()), |bytes| Saved::from_bytes(&bytes))?;
        let reservations = Registrations::from_bytes(&saved.reservations)?;
        let lost_writes = persistent_state
            .as_ref()
            .map(|state| LostWrites::since(state.loss_mark()));
        let lost_writes = lost_writes.unwrap_or_default();
        Ok(Arc::new(Volume {
            device,
            is_read_only: read_only,
            persistent_state,
            front_end_state: Lock::new(saved.front_end),
            permissions: Lock::new(Permissions::new(reservations)),
            save_locks: Arc::default(),
            range_locks: Arc::default(),
            gate: Gate::default(),
            aborted: AbortedRequests::default(),
            health: Health::default(),
            lost_writes,
            cache_generation,
            opening: OPENINGS.fetch_add(1, Relaxed),
        }))
    }

    /// Returns a number that identifies this opening of the volume. It is unique in this process, so it
    /// changes when the volume is closed and opened again.
    pub fn opening(&self) -> u64 {
        self.opening
    }

    /// Returns the device.
    #[inline]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Returns the locks that determine which requests may overlap. A request to the device holds its blocks,
    /// shared or exclusively, until it has ended.
    #[inline]
    pub fn range_locks(&self) -> &Arc<RangeLocks> {
        &self.range_locks
    }

    /// Failures of the device and its recovery.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Records the result of a request to the device.
    #[inline]
    pub fn record_end<T>(&self, kind: RequestKind, result: &Result<T, DeviceError>) {
        let error = result.as_ref().err().copied();
        self.health
            .ended(kind, error, || self.device.take_os_error());
        if error == Some(DeviceError::Fenced) {
            self.fence_for_good();
        }
    }
}

// Aborted requests that change blocks. The device might execute them after later requests, so their blocks
// stay locked until it can no longer execute them.

/// The locked ranges of aborted requests.
pub(crate) type AbortedRequests = Lock<Aborted<Hold>>;

impl Volume {
    /// Locks `extent` of an aborted request that the device may still execute, until the device has quiesced.
    pub fn lock_until_quiesced(&self, extent: Extent) {
        let hold = self.range_locks.hold(extent);
        self.aborted.lock().push(hold);
    }

    /// Completes when no request that was aborted before this call can still change the medium or the
    /// persistent state. New requests for the same blocks wait until then. A caller that aborts requests must
    /// await this to completion.
    pub async fn quiesced(&self) {
        let before = self.aborted.lock().count();
        // An error also ends the wait, because a device that returns an error is responsive.
        let _ = self.device.quiesced().await;
        drop(self.lock_to_save().await);
        let over = self.aborted.lock().settle(before);
        debug_assert!(over.len() as u64 <= before);
        // Drop the holds after unlocking the list, because dropping a hold wakes waiters.
        drop(over);
    }
}

/// The volumes that are currently served.
pub struct Registry {
    current: Lock<Arc<Snapshot>>,
}

/// A snapshot of the served volumes, which never changes. Users of an old snapshot keep volumes by `Arc`, not
/// by index.
#[derive(Debug, Default)]
pub struct Snapshot {
    version: u64,
    volumes: BTreeMap<String, Arc<Volume>>,
}

/// Volumes by name.
pub type NamedVolumes = Vec<(String, Arc<Volume>)>;

impl Registry {
    /// Starts with these volumes, as version 1.
    pub fn new(volumes: NamedVolumes) -> Registry {
        let snapshot = Snapshot {
            version: 1,
            volumes: volumes.into_iter().collect(),
        };
        Registry {
            current: Lock::new(Arc::new(snapshot)),
        }
    }

    /// Returns the current snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.lock())
    }

    /// Serves these volumes from now on, as the next version.
    pub fn replace(&self, volumes: NamedVolumes) {
        let mut current = self.current.lock();
        let version = current.version + 1;
        let next = Arc::new(Snapshot {
            version,
            volumes: volumes.into_iter().collect(),
        });
        let before = std::mem::replace(&mut *current, next);
        debug_assert!(before.version < current.version, "versions only grow");
        drop(current);
        drop(before); // after unlocking: this may close volumes
    }
}

impl Snapshot {
    /// Returns the number of snapshots so far, including this one.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the volume with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Volume>> {
        self.volumes.get(name)
    }

    /// Returns the first name of this volume.
    pub fn name_of(&self, volume: &Arc<Volume>) -> Option<&str> {
        self.iter()
            .find(|(_, other)| Arc::ptr_eq(other, volume))
            .map(|(name, _)| name)
    }

    /// Returns all volumes, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Volume>)> {
        self.volumes
            .iter()
            .map(|(name, volume)| (name.as_str(), volume))
    }

    /// Returns whether the snapshot contains this volume, under any name.
    pub fn contains(&self, volume: &Arc<Volume>) -> bool {
        self.name_of(volume).is_some()
    }
}

#[cfg(test)]
mod tests {
    use block::{BlockSize, Geometry, Null};

    use super::*;

    fn volume() -> Arc<Volume> {
        let block_size = BlockSize::B512;
        let blocks = block_size.exact(1 << 20).expect("whole blocks");
        let device = Null::new(Geometry {
            block_size,
            blocks,
            physical_exponent: 0,
        });
        Volume::new(Arc::new(device), Default::default()).expect("nothing was saved")
    }

    #[test]
    fn a_snapshot_stays_as_it_is_when_another_takes_its_place() {
        let (one, two) = (volume(), volume());
        let registry = Registry::new(vec![("one".to_owned(), Arc::clone(&one))]);
        let before = registry.snapshot();
        registry.replace(vec![("two".to_owned(), Arc::clone(&two))]);
        let after = registry.snapshot();
        assert_eq!((before.version(), after.version()), (1, 2));
        assert!(before.get("one").is_some() && before.contains(&one) && !before.contains(&two));
        assert!(after.get("one").is_none() && after.contains(&two));
        assert_eq!(
            after.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            ["two"]
        );
    }

    #[test]
    fn a_volume_is_closed_with_the_last_snapshot_that_has_it() {
        let one = volume();
        let gone = Arc::downgrade(&one);
        let registry = Registry::new(vec![("one".to_owned(), one)]);
        let before = registry.snapshot();
        registry.replace(Vec::new());
        assert!(gone.upgrade().is_some(), "somebody uses it");
        drop(before);
        assert!(gone.upgrade().is_none());
    }
}
