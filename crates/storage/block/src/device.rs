//! The one interface to everything that keeps blocks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::forward::forward;
use crate::{Blocks, Buffer, DeviceError, Extent, Geometry, Region, Slice, WholeBlocks};

/// A request under way. It runs on the thread that polls it, and a thread-bound reactor serves it: not `Send`.
///
/// Dropping it cancels the request. What the device can still take back never reaches the medium; what it
/// cannot (a write the kernel has accepted) goes on, and [`BlockDevice::quiesced`] waits for its end.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, DeviceError>> + 'a>>;

/// When a write may be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once a later read returns it; [`BlockDevice::flush`] makes it last.
    Cached,
    /// Once it is on stable storage (FUA). An error that the storage gives to a flush beside the write alone, and not to the
    /// write, is a loss like any other: [`BlockDevice::losses`] counts it, and the next flush reports it.
    Stable,
}

/// What a device is like, as far as initiators are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// No request may change it.
    pub read_only: bool,
    /// Blocks can be given back with [`BlockDevice::unmap`], and read as zeros afterwards.
    pub thin: bool,
    /// The unit in which space is taken and given back: at least 1 block.
    pub granularity: Blocks,
    /// Writes may be lost in a crash until a flush (write cache enabled, SBC-3 6.5.5 WCE).
    pub volatile_cache: bool,
    /// A flush reaches storage that survives a crash of this machine. False for memory, which never lies
    /// about it.
    pub durable: bool,
    /// Not a spinning medium (VPD page B1h, medium rotation rate 1).
    pub solid_state: bool,
}

/// Whether blocks take space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Written, or at least reserved.
    Mapped,
    /// A hole: reads as zeros.
    Deallocated,
}

/// Neighbouring blocks of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which blocks.
    pub extent: Extent,
    /// Their kind.
    pub allocation: Allocation,
}

/// The space of a thin device, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that its blocks take.
    pub used_bytes: u64,
    /// Bytes that more blocks could take; others may take them first. `None` if nobody knows.
    pub available_bytes: Option<u64>,
}

/// Anything that keeps numbered blocks.
///
/// All methods take shared references: devices are used from several cores at once and arrange for that
/// themselves. Requests may be reordered against each other while both are pending; ordering and mutual
/// exclusion are their caller's ([`crate::RangeLocks`]). An extent that is not within
/// [`BlockDevice::geometry`] fails with [`DeviceError::OutOfRange`], an empty one succeeds without effect.
pub trait BlockDevice: Send + Sync {
    /// Its shape. May grow while the device is in use; never shrinks.
    fn geometry(&self) -> Geometry;

    /// Its kind.
    fn profile(&self) -> Profile;

    /// Where the blocks of `extent` lie, if they lie in memory and may be read and sent from there.
    fn memory(&self, _extent: Extent) -> Option<Region> {
        None
    }

    /// The same for blocks that are about to be overwritten. Each counts as written when it has landed.
    fn memory_to_write(&self, _extent: Extent) -> Option<WholeBlocks> {
        None
    }

    /// Fills `buffer`, whose length is that of the extent, if that takes no waiting because the blocks are in a cache in
    /// memory. False says nothing about the blocks, and the buffer may be changed: [`BlockDevice::read`] finds out.
    fn read_at_once(&self, _extent: Extent, _buffer: &mut [u8]) -> bool {
        false
    }

    /// Writes `data`, whose length is that of the extent, as [`Durability::Cached`], if that takes no waiting. After
    /// false a part may be written, and [`BlockDevice::write`] must follow.
    fn write_at_once(&self, _extent: Extent, _data: &[u8]) -> bool {
        false
    }

    /// Fills `buffer`, whose length is that of the extent, and gives it back.
    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer>;

    /// Writes `data`, whose length is that of the extent.
    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()>;

    /// Brings all writes that were acknowledged before this call to stable storage. If it fails, any write may be lost that was
    /// acknowledged before it ended and is not on stable storage: a later flush that succeeds says nothing of those.
    fn flush(&self) -> Pending<'_, ()>;

    /// How many times acknowledged writes were lost, or may have been: every failed sync and write-back counts, whichever
    /// request caused it, even one that was dropped. Never decreases. A flush reports failures during the flush only. To
    /// learn of earlier ones, compare this count with its value at the last report ([`crate::SingleUser`] does so for one
    /// user). A device that does not count reports losses by failing flushes alone ([`DeviceError::is_loss`]).
    fn losses(&self) -> u64 {
        0
    }

    /// Gives the space of whole granules within the extent back; the blocks of the extent read as zeros
    /// afterwards, on thin devices, whether their space could be given back or not.
    fn unmap(&self, extent: Extent) -> Pending<'_, ()>;

    /// Makes the blocks read as zeros. With `may_unmap` by giving back their space where possible, otherwise so
    /// that they keep it.
    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()>;

    /// Which blocks from the start of `extent` on take space: at least one run, at most `runs_max`, without
    /// gaps, covering the extent or its beginning.
    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>>;

    /// How much space the blocks take, and how much there is for more. [`DeviceError::Unsupported`] if nobody knows.
    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    /// Looks whether the medium has grown; [`BlockDevice::geometry`] tells it afterwards. Devices whose size nobody
    /// else changes have nothing to look at.
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Makes the medium so many bytes long, if it is shorter; [`BlockDevice::geometry`] tells it afterwards.
    /// [`DeviceError::Unsupported`] where that is nobody's to do, [`DeviceError::OutOfRange`] for what is no whole number of
    /// blocks.
    fn grow(&self, _bytes: u64) -> Pending<'_, ()> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    /// The errno of the latest request that failed, for the log; each is returned once. `None` from devices that are not the
    /// operating system's.
    fn take_os_error(&self) -> Option<i32> {
        None
    }

    /// Ends once no request that was dropped before this call can touch the medium any more.
    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// A shared device is a device: layers lie over either.
impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    forward!(self => **self; geometry, profile, memory, memory_to_write, read_at_once, write_at_once, read, write, flush, losses, unmap, write_zeroes, allocation, space, refresh, grow, take_os_error, quiesced);
}
