//! The interface of block devices, and what a layer passes to its inner device unchanged ([`forward!`](crate::forward)).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use derive_more::Display;

use crate::buffer::{Buffer, Slice};
use crate::extent::{Blocks, Extent, Geometry, Lba};
use crate::forward;
use crate::losses::Losses;
use crate::region::{Region, WholeBlocks};

/// An outstanding request. It runs on the thread that polls it, and a thread-bound reactor serves it: not
/// `Send`.
///
/// Dropping it cancels the request. What the device can still cancel never reaches the medium; what it cannot
/// (a write accepted by the kernel) continues, and [`BlockDevice::quiesced`] waits for its end.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, DeviceError>> + 'a>>;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once a later read returns it; [`BlockDevice::flush`] makes it durable.
    Cached,
    /// Once it is on stable storage (FUA). An error that the storage reports only to a flush beside the
    /// write, and not to the write, is a loss like any other: [`BlockDevice::losses`] counts it, and the next
    /// flush reports it.
    Stable,
}

/// Properties of a device, as reported to initiators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Write-protected.
    pub read_only: bool,
    /// Blocks can be deallocated with [`BlockDevice::unmap`], and read as zeros afterwards.
    pub thin: bool,
    /// The unit of allocation: at least 1 block.
    pub granularity: Blocks,
    /// Writes may be lost in a crash until a flush (write cache enabled, SBC-3 6.5.5 WCE).
    pub volatile_cache: bool,
    /// A flush reaches storage that survives a crash of this machine. False for memory.
    pub durable: bool,
    /// Not a spinning medium (VPD page B1h, medium rotation rate 1).
    pub solid_state: bool,
    /// Requests that the storage carries out best. `None` if all lengths are alike.
    pub optimal_transfer: Option<OptimalTransfer>,
    /// Its cache can lose acknowledged writes without a report: [`BlockDevice::losses`] does not count them, and no flush
    /// fails. Who chooses among copies must not use such a device.
    pub loses_unseen: bool,
}

/// Requests that storage carries out best: in a RAID set, its strips and stripes. Addresses count from the start of the device
/// (SBC-4 6.6.4, OPTIMAL TRANSFER LENGTH and its GRANULARITY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptimalTransfer {
    /// Lengths and addresses are multiples of it: a strip, for instance.
    pub granularity: Blocks,
    /// The length: a stripe, for instance. A multiple of the granularity.
    pub length: Blocks,
}

impl OptimalTransfer {
    /// The same in blocks that are shorter, by so many powers of two.
    #[must_use]
    pub fn in_blocks_shorter_by(self, shift: u32) -> OptimalTransfer {
        let shorten = |blocks: Blocks| Blocks(blocks.0 << shift);
        OptimalTransfer { granularity: shorten(self.granularity), length: shorten(self.length) }
    }
}

/// Whether blocks are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Written, or at least reserved.
    Mapped,
    /// A hole: reads as zeros.
    Deallocated,
}

/// Adjacent blocks of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The blocks.
    pub extent: Extent,
    /// Their kind.
    pub allocation: Allocation,
}

/// The space of a thin device, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes allocated.
    pub used_bytes: u64,
    /// Bytes available for allocation; others may allocate them first. `None` if unknown.
    pub available_bytes: Option<u64>,
}

/// How a [`BlockDevice::compare_and_write`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The blocks held what was expected, and are written, stably.
    Written,
    /// They did not, from this byte of the extent on; nothing is written.
    Differs {
        /// From the start of the extent.
        offset_bytes: u64,
    },
}

/// A store of numbered blocks.
///
/// All methods take shared references: devices are used from several cores concurrently, and synchronize
/// themselves. Concurrent requests may be reordered; ordering and mutual exclusion are the caller's
/// ([`crate::RangeLocks`]). An extent outside [`BlockDevice::geometry`] fails with
/// [`DeviceError::OutOfRange`], an empty one succeeds without effect.
pub trait BlockDevice: Send + Sync {
    /// The geometry. May grow while the device is in use; never shrinks.
    fn geometry(&self) -> Geometry;

    /// The length in bytes. Less than that of all blocks where the last one ends early: such a device is open only for users who count
    /// bytes, reads zeros behind its end, and takes nothing else there.
    fn length_bytes(&self) -> u64 {
        self.geometry().bytes()
    }

    /// The properties.
    fn profile(&self) -> Profile;

    /// The memory of the blocks of `extent`, if they are in memory that may be read and sent from.
    fn memory(&self, _extent: Extent) -> Option<Region> {
        None
    }

    /// The same for blocks to be overwritten. Each counts as written when it is stored as a whole.
    fn memory_to_write(&self, _extent: Extent) -> Option<WholeBlocks> {
        None
    }

    /// Fills `buffer`, whose length is that of the extent, if no wait is needed because the blocks are in a
    /// cache in memory. False says nothing about the blocks, and `buffer` may be changed: call
    /// [`BlockDevice::read`].
    fn read_nowait(&self, _extent: Extent, _buffer: &mut [u8]) -> bool {
        false
    }

    /// Writes `data`, whose length is that of the extent, as [`Durability::Cached`], if no wait is needed.
    /// After false a part may be written, and [`BlockDevice::write`] must follow.
    fn write_nowait(&self, _extent: Extent, _data: &[u8]) -> bool {
        false
    }

    /// Fills `buffer`, whose length is that of the extent, and returns it.
    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer>;

    /// Writes `data`, whose length is that of the extent. A stable write that succeeds is on stable storage; one that fails says
    /// nothing of earlier writes.
    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()>;

    /// Writes `data` if the blocks hold `expected`; both are as long as the extent. The storage does it in one step, so that no
    /// other host that uses it comes between. `None` where it cannot, or not for this extent: the caller reads and writes under a
    /// lock of its own then, which holds for this host.
    fn compare_and_write(
        &self,
        _extent: Extent,
        _expected: &Slice,
        _data: &Slice,
    ) -> Option<Pending<'_, Compared>> {
        None
    }

    /// Brings all writes acknowledged before this call to stable storage. If it fails, any write acknowledged
    /// before its end that is not on stable storage may be lost: a later flush that succeeds does not cover
    /// those.
    fn flush(&self) -> Pending<'_, ()>;

    /// Number of times that acknowledged writes were lost, or may have been: every failed sync and write-back
    /// counts, whichever request caused it, even a dropped one, and so does a server that has lost its cache. Never decreases.
    /// A flush that fails with a loss ([`DeviceError::is_loss`]) has counted it, and need not fail for earlier ones. To learn of
    /// those, compare this count with its value at the last report ([`crate::SingleUser`] does so for one user).
    ///
    /// A device whose server may have lost its cache is in doubt from the moment that it knows of that: before any read of
    /// the renewed session is answered. What such a read returns may be old, so that whoever chooses among copies has the doubt
    /// resolved before it counts.
    fn losses(&self) -> Losses;

    /// Ends once [`BlockDevice::losses`] is certain, if it is in doubt: the server was asked. An error says that it could not be.
    fn resolve_losses(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            // A device that is never in doubt. A layer that passes a doubt on passes this on as well (`forward!` does).
            match self.losses().is_in_doubt() {
                false => Ok(()),
                true => Err(DeviceError::NotReady),
            }
        })
    }

    /// Deallocates whole granules within the extent; on thin devices the blocks of the extent read as zeros
    /// afterwards, whether they could be deallocated or not.
    fn unmap(&self, extent: Extent) -> Pending<'_, ()>;

    /// Makes the blocks read as zeros: with `may_unmap` by deallocating them where possible, otherwise so
    /// that they stay allocated.
    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()>;

    /// Which blocks from the start of `extent` on are allocated: at least one run, at most `runs_max`,
    /// without gaps, covering the extent or its beginning.
    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>>;

    /// Allocated and available space. [`DeviceError::Unsupported`] if unknown.
    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    /// Bytes allocated, as far as that is known without asking: [`BlockDevice::space`] asks. `None` if unknown.
    fn allocated_bytes(&self) -> Option<u64> {
        None
    }

    /// Checks whether the medium has grown and updates [`BlockDevice::geometry`]. No effect on devices whose
    /// size does not change externally.
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Grows the medium to `bytes`, if it is shorter, and updates [`BlockDevice::geometry`].
    /// [`DeviceError::Unsupported`] where the device cannot be resized, [`DeviceError::OutOfRange`] if
    /// `bytes` is not a whole number of blocks.
    fn grow(&self, _bytes: u64) -> Pending<'_, ()> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    /// The errno of the latest failed request, for the log; each is returned once. `None` from devices that
    /// are not the operating system's.
    fn take_os_error(&self) -> Option<i32> {
        None
    }

    /// Ends once no request dropped before this call can touch the medium any more.
    fn quiesced(&self) -> Pending<'_, ()>;
}

/// A shared device is a device: layers take either.
impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    forward!(self => **self; geometry, length_bytes, profile, memory, memory_to_write, read_nowait, write_nowait, read, write, compare_and_write, flush, losses, unmap, write_zeroes, allocation, space, allocated_bytes, refresh, grow, take_os_error, quiesced);
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum DeviceError {
    /// The extent does not lie within the device.
    #[display("beyond the end of the device")]
    OutOfRange,
    /// The device is read-only, or was opened so.
    #[display("the device is read-only")]
    ReadOnly,
    /// The device does not support this request.
    #[display("the device cannot do this")]
    Unsupported,
    /// A thin device, or the storage below it, is full.
    #[display("no space left for the device's data")]
    NoSpace,
    /// Data at this block could not be read.
    #[display("block {} could not be read", _0.0)]
    Unreadable(Lba),
    /// Data at this block could not be written.
    #[display("block {} could not be written", _0.0)]
    Unwritable(Lba),
    /// The device is missing, or out of service. A later retry may succeed.
    #[display("the device is not ready")]
    NotReady,
    /// The storage carries out nothing of this host any more, because another one has taken the device over. It stays so until
    /// the device is opened again.
    #[display("the device is fenced: another host has taken it over")]
    Fenced,
    /// Another host has reserved the device.
    #[display("the device is reserved by another initiator")]
    Reserved,
    /// The device did not complete the request before its deadline.
    #[display("the device did not answer in time")]
    TimedOut,
    /// The request was cancelled before it was carried out, because its command was aborted.
    #[display("the request was cancelled")]
    Cancelled,
    /// Writes that were acknowledged since the last successful flush may be lost: a write-back failed, or the
    /// remote device has lost its cache. Only a flush, or a write with [`crate::Durability::Stable`], fails
    /// with it.
    #[display("acknowledged writes may be lost")]
    WritesLost,
    /// An earlier write of these blocks failed, and may still be carried out at any time: their content is
    /// unknown, and new data could be overwritten.
    #[display("an earlier write may still be carried out by a path that was lost")]
    Unsettled,
}

impl DeviceError {
    /// Whether a flush that failed with it may have lost writes: what could not be written is dropped, so
    /// that no later flush writes it. Other errors leave it in the cache.
    pub fn is_loss(self) -> bool {
        matches!(self, DeviceError::Unwritable(_) | DeviceError::NoSpace | DeviceError::WritesLost)
    }

    /// The same, with another number of the block that it names.
    #[must_use]
    pub fn map_lba(self, other: impl FnOnce(Lba) -> Lba) -> DeviceError {
        match self {
            DeviceError::Unreadable(lba) => DeviceError::Unreadable(other(lba)),
            DeviceError::Unwritable(lba) => DeviceError::Unwritable(other(lba)),
            error => error,
        }
    }
}

impl std::error::Error for DeviceError {}

impl Geometry {
    /// Refuses a request for `extent` beyond the device, or whose buffer has another `length`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`].
    pub fn check(&self, extent: Extent, length: Option<usize>) -> Result<(), DeviceError> {
        let fits = |length| self.length(extent) == length as u64;
        let is_legal = self.contains(extent) && length.is_none_or(fits);
        if is_legal { Ok(()) } else { Err(DeviceError::OutOfRange) }
    }
}

/// Implements the named methods of [`BlockDevice`](crate::BlockDevice) by calls of the same methods of another device, within the
/// layer's `impl`. Methods that are neither named nor written out keep the trait's defaults, which say that the device does not
/// have the feature.
///
/// ```
/// use block::{BlockDevice, Durability, Extent, Pending, Slice};
///
/// /// Every write reaches stable storage.
/// struct Stable<D>(D);
///
/// impl<D: BlockDevice> BlockDevice for Stable<D> {
///     block::forward!(self => self.0; geometry, profile, read, flush, losses, unmap, write_zeroes, allocation, quiesced);
///
///     fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
///         self.0.write(extent, data, Durability::Stable)
///     }
/// }
/// # let geometry = block::Geometry { block_size: block::BlockSize::B512, blocks: block::Blocks(8), physical_exponent: 0 };
/// # assert_eq!(Stable(block::Null::new(geometry)).geometry().blocks.0, 8);
/// ```
#[macro_export]
macro_rules! forward {
    ($self:ident => $inner:expr; $($method:ident),+) => {
        $($crate::forward!(@$method $self, $inner);)+
    };
    (@geometry $self:ident, $inner:expr) => {
        fn geometry(&$self) -> $crate::Geometry {
            ($inner).geometry()
        }
    };
    (@length_bytes $self:ident, $inner:expr) => {
        fn length_bytes(&$self) -> u64 {
            ($inner).length_bytes()
        }
    };
    (@profile $self:ident, $inner:expr) => {
        fn profile(&$self) -> $crate::Profile {
            ($inner).profile()
        }
    };
    (@memory $self:ident, $inner:expr) => {
        fn memory(&$self, extent: $crate::Extent) -> Option<$crate::Region> {
            ($inner).memory(extent)
        }
    };
    (@memory_to_write $self:ident, $inner:expr) => {
        fn memory_to_write(&$self, extent: $crate::Extent) -> Option<$crate::WholeBlocks> {
            ($inner).memory_to_write(extent)
        }
    };
    (@read_nowait $self:ident, $inner:expr) => {
        fn read_nowait(&$self, extent: $crate::Extent, buffer: &mut [u8]) -> bool {
            ($inner).read_nowait(extent, buffer)
        }
    };
    (@write_nowait $self:ident, $inner:expr) => {
        fn write_nowait(&$self, extent: $crate::Extent, data: &[u8]) -> bool {
            ($inner).write_nowait(extent, data)
        }
    };
    (@read $self:ident, $inner:expr) => {
        fn read(&$self, extent: $crate::Extent, buffer: $crate::Buffer) -> $crate::Pending<'_, $crate::Buffer> {
            ($inner).read(extent, buffer)
        }
    };
    (@write $self:ident, $inner:expr) => {
        fn write(
            &$self,
            extent: $crate::Extent,
            data: $crate::Slice,
            durability: $crate::Durability,
        ) -> $crate::Pending<'_, ()> {
            ($inner).write(extent, data, durability)
        }
    };
    (@compare_and_write $self:ident, $inner:expr) => {
        fn compare_and_write(
            &$self,
            extent: $crate::Extent,
            expected: &$crate::Slice,
            data: &$crate::Slice,
        ) -> Option<$crate::Pending<'_, $crate::Compared>> {
            ($inner).compare_and_write(extent, expected, data)
        }
    };
    // Nobody passes one on without the other.
    (@losses $self:ident, $inner:expr) => {
        fn losses(&$self) -> $crate::Losses {
            ($inner).losses()
        }

        fn resolve_losses(&$self) -> $crate::Pending<'_, ()> {
            ($inner).resolve_losses()
        }
    };
    (@unmap $self:ident, $inner:expr) => {
        fn unmap(&$self, extent: $crate::Extent) -> $crate::Pending<'_, ()> {
            ($inner).unmap(extent)
        }
    };
    (@write_zeroes $self:ident, $inner:expr) => {
        fn write_zeroes(&$self, extent: $crate::Extent, may_unmap: bool) -> $crate::Pending<'_, ()> {
            ($inner).write_zeroes(extent, may_unmap)
        }
    };
    (@allocation $self:ident, $inner:expr) => {
        fn allocation(
            &$self,
            extent: $crate::Extent,
            runs_max: usize,
        ) -> $crate::Pending<'_, Vec<$crate::Run>> {
            ($inner).allocation(extent, runs_max)
        }
    };
    (@space $self:ident, $inner:expr) => {
        fn space(&$self) -> $crate::Pending<'_, $crate::Space> {
            ($inner).space()
        }
    };
    (@allocated_bytes $self:ident, $inner:expr) => {
        fn allocated_bytes(&$self) -> Option<u64> {
            ($inner).allocated_bytes()
        }
    };
    (@grow $self:ident, $inner:expr) => {
        fn grow(&$self, bytes: u64) -> $crate::Pending<'_, ()> {
            ($inner).grow(bytes)
        }
    };
    (@take_os_error $self:ident, $inner:expr) => {
        fn take_os_error(&$self) -> Option<i32> {
            ($inner).take_os_error()
        }
    };
    // Requests without an extent: `flush`, `refresh`, `quiesced`.
    (@$request:ident $self:ident, $inner:expr) => {
        fn $request(&$self) -> $crate::Pending<'_, ()> {
            ($inner).$request()
        }
    };
}
