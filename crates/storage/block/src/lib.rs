//! Block devices: the interface, extents, buffers, errors, and layers over any device.
//!
//! A [`BlockDevice`] stores numbered blocks: memory, a file, a remote LUN, a RAID set, or a layer over any of
//! them. All have the same interface, and layers can be stacked in any order. This crate contains no
//! protocol, reads no clock, and makes no system calls; layers that need to wait use a [`Sleeper`].
//!
//! Reading order: [`Extent`] and [`Geometry`], [`Buffer`], [`Region`] and [`WholeBlocks`], [`DeviceError`],
//! [`BlockDevice`] (the interface), [`bytewise`] (access by bytes), [`RangeLocks`] (exclusion between
//! overlapping requests), then the layers.

mod buffer;
mod buffered;
pub mod bytewise;
mod checked;
mod delay;
mod device;
mod disk;
mod emulated;
mod extent;
mod fault;
mod flush_ledger;
mod limit;
mod lock;
mod losses;
mod null;
mod paced;
mod part;
mod random;
mod range_lock;
mod region;
mod tasks;
#[cfg(test)]
mod testing;

pub use buffer::{Buffer, PAGE_BYTES, POOL_BYTES_MAX, Reserve, Slice};
pub use buffered::{Buffered, Window};
pub use checked::Checked;
pub use delay::{Delay, ServiceTime, Stalls, Tail};
pub use device::{
    Allocation, BlockDevice, Compared, DeviceError, Durability, OptimalTransfer, Pending, Profile,
    Run, Space, flush_now,
};
pub use disk::{DiskCache, DiskModel, RotatingDisk};
pub use emulated::Emulated512;
pub use extent::{BlockSize, Blocks, Chunks, Extent, Geometry, Lba};
pub use fault::{Counts, Fault, FaultAction, FaultControl, Requests, Rule};
pub use flush_ledger::{Flush, FlushLedger, SingleUser, StableWrite};
pub use limit::{Limit, Rate};
#[cfg(feature = "interleave")]
pub use lock::set_interleaving;
pub use lock::{Lock, LockGuard};
pub use losses::{Doubts, LossCounter, Losses};
pub use null::Null;
pub use part::Part;
pub use random::{GOLDEN_GAMMA, Random, mix};
pub use range_lock::{Exclusive, Hold, RangeLocks, Shared};
pub use region::{Medium, Region, WholeBlocks};
pub use tasks::{Aborted, Operations, Permit, Permits, Sleeper, Spawner};
