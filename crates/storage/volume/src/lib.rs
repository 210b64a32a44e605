//! A volume: the object that users name and front ends serve; the only access of front ends to blocks.
//!
//! [`Volume`] has the state that all front ends of one device share, regardless of their protocols:
//!
//! - the device and its [range locks](Volume::range_locks): which requests may overlap;
//! - the gate: one [generation counter](Volume::generation), read by each request, for everything that could
//!   [forbid](Volume::permits) one: [`reservations`], write protection, and the [`Fence`] of a device that
//!   does not answer;
//! - [aborted requests](Volume::quiesced) that the device may still carry out, with their blocks locked until
//!   it cannot;
//! - [lost writes](Volume::lost_writes): acknowledged, and not on stable storage after a flush that failed;
//! - [`Health`]: how the device fails and recovers;
//! - the [`PersistentState`] that survives a restart, and the lock under which it is saved.
//!
//! The served volumes are in a [`Registry`]: a versioned [`Snapshot`].
//!
//! It depends on no protocol, no clock and no operating system: hosts are names here ([`HostPath`]), and
//! attachments are numbers. Deadlines and the list of requests under way are not here yet.
//!
//! A volume is specified by a [`Spec`](spec::Spec), parsed by a [`Grammar`](spec::Grammar) from a text such
//! as `delay:5ms:[ram:1GiB]`; each kind of store or layer is a [`Backend`](backend::Backend), in a file of
//! its own.
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

mod aborted;
mod attachment;
pub mod backend;
pub mod backends;
mod gate;
mod health;
mod lost_writes;
pub mod nearest;
mod permission;
mod persistent_state;
mod registry;
mod requester;
pub mod reservations;
mod saved;
pub mod shell;
pub mod spec;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use block::{BlockDevice, DeviceError, Lock, RangeLocks};

use aborted::AbortedRequests;
use gate::Gate;
use lost_writes::LostWrites;
use permission::Permissions;
use reservations::Registrations;
use saved::Saved;

pub use attachment::AttachmentId;
pub use gate::Fence;
pub use health::{Health, RequestKind, StorageCondition, StorageError};
pub use lost_writes::CacheGeneration;
pub use permission::{Denied, WriteProtection};
pub use persistent_state::{LossMark, PersistentState, SaveLock, Unsaved};
pub use registry::{NamedVolumes, Registry, Snapshot};
pub use requester::{Access, HostPath, HostPort, Requester, ServicePort};
pub use saved::Damaged;

/// Options of a volume.
#[derive(Clone, Default)]
pub struct VolumeOptions {
    /// The storage of its persistent state; without it nothing survives a restart.
    pub persistent_state: Option<Arc<dyn PersistentState>>,
    /// Writes are refused, even if the device could carry them out.
    pub read_only: bool,
    /// Changes whenever acknowledged writes that were not flushed may have been lost before this start; `None` if that is not
    /// known. [`Volume::cache_generation`] joins it with the mark of the losses since.
    pub cache_generation: Option<CacheGeneration>,
}

/// A device and the shared state of its front ends. All sessions of all cores and protocols hold the same
/// one.
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    is_read_only: bool,
    persistent_state: Option<Arc<dyn PersistentState>>,
    /// What the front end has saved of its own.
    front_end_state: Lock<Vec<u8>>,
    /// Block 0 is the saved state, block 1 the mark of losses.
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
    /// A volume over `device`, with its saved state.
    ///
    /// # Errors
    /// The saved state is damaged: the volume must not be served without its reservations.
    pub fn new(device: Arc<dyn BlockDevice>, options: VolumeOptions) -> Result<Arc<Volume>, Damaged> {
        let VolumeOptions { persistent_state, read_only, cache_generation } = options;
        let saved = persistent_state.as_ref().and_then(|state| state.load());
        let saved = saved.map_or_else(|| Ok(Saved::default()), |bytes| Saved::from_bytes(&bytes))?;
        let reservations = Registrations::from_bytes(&saved.reservations)?;
        let lost_writes = persistent_state.as_ref().map(|state| LostWrites::since(state.loss_mark()));
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

    /// A number that no other volume has had in this process, nor this one before it was closed and opened anew.
    pub fn opening(&self) -> u64 {
        self.opening
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Which requests may overlap: a request of the device holds its blocks, shared or exclusive, until it
    /// has ended.
    #[inline]
    pub fn range_locks(&self) -> &Arc<RangeLocks> {
        &self.range_locks
    }

    /// How the device fails and recovers.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// A request of the device has ended.
    #[inline]
    pub fn record_end<T>(&self, kind: RequestKind, result: &Result<T, DeviceError>) {
        let error = result.as_ref().err().copied();
        self.health.ended(kind, error, || self.device.take_os_error());
        if error == Some(DeviceError::Fenced) {
            self.fence_for_good();
        }
    }
}
