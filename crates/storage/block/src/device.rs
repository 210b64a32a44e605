//! The interface of block devices, and the forwarding of methods to an inner device ([`forward!`](crate::forward)).

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
/// Dropping it cancels the request. A request that the device can still cancel never reaches the medium. Any
/// other (such as a write accepted by the kernel) continues, and [`BlockDevice::quiesced`] waits for its end.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, DeviceError>> + 'a>>;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once a later read returns it; [`BlockDevice::flush`] makes it durable.
    Cached,
    /// Once it is on stable storage (FUA). An error that the storage reports only to a concurrent flush, and
    /// not to the write, is a loss like any other: [`BlockDevice::losses`] counts it, and the next flush
    /// reports it.
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
    /// Requests for which the storage is most efficient. `None` if all lengths are equivalent.
    pub optimal_transfer: Option<OptimalTransfer>,
    /// Its cache can lose acknowledged writes without a report: [`BlockDevice::losses`] does not count them, and no flush
    /// fails. A layer that chooses among copies must not use such a device.
    pub loses_unseen: bool,
}

/// Requests for which storage is most efficient: in a RAID set, its strips and stripes. Addresses count from
/// the start of the device (SBC-4 6.6.4, OPTIMAL TRANSFER LENGTH and its GRANULARITY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptimalTransfer {
    /// The unit of lengths and addresses, such as a strip.
    pub granularity: Blocks,
    /// The length, such as a stripe; a multiple of the granularity.
    pub length: Blocks,
}

impl OptimalTransfer {
    /// The same in blocks that are shorter by a factor of 2^`shift`.
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

/// Adjacent blocks with the same allocation state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The blocks.
    pub extent: Extent,
    /// Their allocation state.
    pub allocation: Allocation,
}

/// The space of a thin device, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes allocated.
    pub used_bytes: u64,
    /// Bytes available for allocation; others may allocate them first. `None` if unknown.
    pub available_bytes: Option<u64>,
}

/// The result of [`BlockDevice::compare_and_write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The blocks matched, and were written to stable storage.
    Written,
    /// The blocks differed; nothing was written.
    Differs {
        /// Position of the first difference, from the start of the extent.
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

    /// The length in bytes. It is less than the length of all blocks if the last block is partial. Such a
    /// device is opened only for users that address bytes; beyond its end it reads zeros and accepts only
    /// zeros.
    fn length_bytes(&self) -> u64 {
        self.geometry().bytes()
    }

    /// The properties.
    fn profile(&self) -> Profile;

    /// The memory of the blocks of `extent`, if they are in memory that may be read and sent from.
    fn memory(&self, _extent: Extent) -> Option<Region> {
        None
    }

    /// The memory of blocks to overwrite. Each counts as written when it is completely stored.
    fn memory_to_write(&self, _extent: Extent) -> Option<WholeBlocks> {
        None
    }

    /// Fills `buffer`, whose length is that of the extent, if this needs no waiting because the blocks are
    /// cached in memory. False implies nothing about the blocks, and `buffer` may have changed: call
    /// [`BlockDevice::read`].
    fn read_nowait(&self, _extent: Extent, _buffer: &mut [u8]) -> bool {
        false
    }

    /// Writes `data`, whose length is that of the extent, as [`Durability::Cached`], if this needs no
    /// waiting. After false a part may be written, and [`BlockDevice::write`] must follow.
    fn write_nowait(&self, _extent: Extent, _data: &[u8]) -> bool {
        false
    }

    /// Fills `buffer`, whose length is that of the extent, and returns it.
    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer>;

    /// Writes `data`, whose length is that of the extent. A successful stable write is on stable storage; a
    /// failed one implies nothing about earlier writes.
    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()>;

    /// Writes `data` if the blocks contain `expected`; both have the length of the extent. The storage does
    /// this atomically with respect to other hosts. Returns `None` if that is not supported, or not for this
    /// extent: the caller then reads and writes under its own lock, which is valid on this host only.
    fn compare_and_write(
        &self,
        _extent: Extent,
        _expected: &Slice,
        _data: &Slice,
    ) -> Option<Pending<'_, Compared>> {
        None
    }

    /// Brings all writes acknowledged before this call to stable storage. If it fails, any write acknowledged
    /// before its end that is not on stable storage may be lost: a later successful flush does not cover those.
    fn flush(&self) -> Pending<'_, ()>;

    /// Number of times that acknowledged writes were lost, or may have been: every failed sync and write-back
    /// is counted, even if the request that caused it was dropped, and so is a loss of the server's cache.
    /// Never decreases. A flush that fails with a loss ([`DeviceError::is_loss`]) has counted it, and need
    /// not fail for earlier ones. To detect those, compare this count with its value at the last report
    /// ([`crate::SingleUser`] does so for one user).
    ///
    /// A device whose server may have lost its cache is in doubt from the time that it detects this, before
    /// any read of the new session completes. Such a read may return stale data, so a layer that chooses
    /// among copies resolves the doubt before it uses the data.
    fn losses(&self) -> Losses;

    /// Resolves a doubt of [`BlockDevice::losses`] by querying the server. Fails if that is not possible.
    fn resolve_losses(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            // The default for devices that are never in doubt. A layer that forwards a doubt must also
            // forward this method (`forward!` does).
            match self.losses().is_in_doubt() {
                false => Ok(()),
                true => Err(DeviceError::NotReady),
            }
        })
    }

    /// Deallocates whole granules within the extent; on thin devices the blocks of the extent read as zeros
    /// afterwards, even if they could not be deallocated.
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

    /// Bytes allocated, as known without a query; [`BlockDevice::space`] queries. `None` if unknown.
    fn allocated_bytes(&self) -> Option<u64> {
        None
    }

    /// Checks whether the medium has grown and updates [`BlockDevice::geometry`]. No effect on devices whose
    /// size does not change externally.
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Grows the medium to `bytes`, if it is shorter, and updates [`BlockDevice::geometry`].
    /// [`DeviceError::Unsupported`] if the device cannot be resized, [`DeviceError::OutOfRange`] if `bytes`
    /// is not a whole number of blocks.
    fn grow(&self, _bytes: u64) -> Pending<'_, ()> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    /// The errno of the latest failed request, for the log; each is returned once. `None` from devices that
    /// are not the operating system's.
    fn take_os_error(&self) -> Option<i32> {
        None
    }

    /// Resolves once no request dropped before this call can still reach the medium.
    fn quiesced(&self) -> Pending<'_, ()>;
}

/// A shared device is also a device, so layers accept either.
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
    #[display("the device does not support this request")]
    Unsupported,
    /// A thin device, or the storage below it, is full.
    #[display("no space left in the underlying storage")]
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
    /// The storage rejects all requests of this host, because another one has taken over the device. This
    /// persists until the device is opened again.
    #[display("the device is fenced: another host has taken it over")]
    Fenced,
    /// Another host has reserved the device.
    #[display("the device is reserved by another initiator")]
    Reserved,
    /// The device did not complete the request before its deadline.
    #[display("the device timed out")]
    TimedOut,
    /// The request was cancelled before it was executed, because its command was aborted.
    #[display("the request was cancelled")]
    Cancelled,
    /// Writes that were acknowledged since the last successful flush may be lost: a write-back failed, or the
    /// remote device has lost its cache. Only flushes and writes with [`crate::Durability::Stable`] fail with it.
    #[display("acknowledged writes may be lost")]
    WritesLost,
    /// An earlier write of these blocks failed, and may still be executed at any time: their content is
    /// unknown, and new data could be overwritten.
    #[display("an earlier write may still be executed over a lost path")]
    Unsettled,
}

/// Flushes a device. A device may report a loss that it has counted before; this flush has succeeded then.
///
/// # Errors
/// Errors of [`BlockDevice::flush`], except reports of earlier losses.
pub async fn flush_now(device: &dyn BlockDevice) -> Result<(), DeviceError> {
    let counted = device.losses().count();
    match device.flush().await {
        Err(DeviceError::WritesLost) if counted > 0 && device.losses().count() == counted => Ok(()),
        ended => ended,
    }
}

impl DeviceError {
    /// Whether a flush that failed with it may have lost writes: unwritten data is dropped, and no later
    /// flush writes it. After other errors it remains in the cache.
    pub fn is_loss(self) -> bool {
        matches!(self, DeviceError::Unwritable(_) | DeviceError::NoSpace | DeviceError::WritesLost)
    }

    /// The same error, with its LBA converted.
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

/// Within a layer's `impl`, implements the named methods of [`BlockDevice`](crate::BlockDevice) by calling
/// them on another device. Methods neither named nor written out keep the trait's defaults, which mean that
/// the feature is not supported.
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
    // These are only forwarded together.
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
