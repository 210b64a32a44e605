//! A volume: what a user names, and the only thing through which a front end reaches blocks.
//!
//! [`Volume`] owns what all front ends of one device must share, whatever protocol each of them speaks:
//!
//! - the device and its [range locks](Volume::range_locks): which requests may overlap;
//! - the gate: one [generation counter](Volume::generation), read by each request, and the [`Fence`] of a device that does
//!   not answer;
//! - [aborted requests](Volume::quiesced) that the device may still carry out, with their blocks locked until it cannot;
//! - [lost writes](Volume::lost_writes): acknowledged, and not on stable storage after a flush that failed;
//! - [`Health`]: how the device fails and recovers;
//! - the [`PersistentState`] that survives a restart, and the lock under which it is saved.
//!
//! Which volumes are served is a [`Registry`]: a versioned [`Snapshot`].
//!
//! It knows no protocol, no clock and no operating system. Reservations, deadlines and the list of requests under way are not
//! here yet: the SCSI logical unit (`unit`) has them.
//!
//! What a volume is made of is a [`Spec`](spec::Spec), read by a [`Grammar`](spec::Grammar) from a text such as
//! `delay:5ms:[ram:1GiB]`; each kind of store or layer is a [`Backend`](backend::Backend), in a file of its own.
//!
//! ```
//! use std::sync::Arc;
//!
//! use block::{BlockSize, Geometry, Null};
//! use volume::Volume;
//!
//! let blocks = BlockSize::B512.exact(1 << 20).expect("whole blocks");
//! let device = Null::new(Geometry { block_size: BlockSize::B512, blocks, physical_exponent: 0 });
//! let volume = Volume::new(Arc::new(device), None);
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
mod persistent_state;
mod registry;
mod requester;
pub mod reservations;
mod saved;
pub mod spec;

use std::fmt;
use std::sync::Arc;

use block::{BlockDevice, DeviceError, RangeLocks};

use aborted::AbortedRequests;
use gate::Gate;
use lost_writes::LostWrites;

pub use attachment::AttachmentId;
pub use gate::Fence;
pub use health::{Health, RequestKind, StorageCondition, StorageError};
pub use persistent_state::{PersistentState, SaveLock};
pub use registry::{NamedVolumes, Registry, Snapshot};
pub use requester::{Access, HostPath, HostPort, ServicePort};
pub use saved::{Damaged, Saved};

/// A device and what its front ends share. All sessions of all cores and all protocols that serve it hold the same one.
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    persistent_state: Option<Arc<dyn PersistentState>>,
    save_locks: Arc<RangeLocks>,
    range_locks: Arc<RangeLocks>,
    gate: Gate,
    aborted: AbortedRequests,
    health: Health,
    lost_writes: LostWrites,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume({:?})", self.device.geometry())
    }
}

impl Volume {
    /// A volume over `device`. Without a `persistent_state` nothing survives a restart.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        persistent_state: Option<Arc<dyn PersistentState>>,
    ) -> Arc<Volume> {
        Arc::new(Volume {
            device,
            persistent_state,
            save_locks: Arc::default(),
            range_locks: Arc::default(),
            gate: Gate::default(),
            aborted: AbortedRequests::default(),
            health: Health::default(),
            lost_writes: LostWrites::default(),
        })
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Which requests may overlap: a request of the device holds its blocks, shared or exclusive, until it has ended.
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
        self.health.ended(kind, result.as_ref().err().copied(), || self.device.take_os_error());
    }
}
