//! The interface of block devices, and a macro that forwards methods to an inner device
//! ([`forward!`](crate::forward)).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use derive_more::Display;

use crate::buffer::{Buffer, Slice};
use crate::extent::{Blocks, Extent, Geometry, Lba};
use crate::forward;
use crate::losses::Losses;
use crate::region::{Region, WholeBlocks};

/// An outstanding request. It is not `Send`: it runs on the thread that polls it, and is served by that
/// thread's reactor.
///
/// Dropping it cancels the request. If the device can still cancel it, the request never reaches the medium.
/// Otherwise (for example, if the kernel has accepted a write), the request continues, and
/// [`BlockDevice::quiesced`] waits until it ends.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, DeviceError>> + 'a>>;

/// The point at which a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The write is acknowledged when later reads return its data. [`BlockDevice::flush`] makes it durable.
    Cached,
    /// The write is acknowledged when its data is on stable storage (FUA). If the storage reports an error
    /// only to a concurrent flush, and not to the write, this is a loss like any other:
    /// [`BlockDevice::losses`] counts it, and the next flush reports it.
    Stable,
}

/// Properties of a device, as reported to initiators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The device is write-protected.
    pub read_only: bool,
    /// Blocks can be deallocated with [`BlockDevice::unmap`], and read as zeros afterwards.
    pub thin: bool,
    /// The unit of allocation: at least 1 block.
    pub granularity: Blocks,
    /// A crash may lose writes that have not been flushed (write cache enabled, SBC-3 6.5.5 WCE).
    pub volatile_cache: bool,
    /// A flush reaches storage that survives a crash of this machine. This is false for memory.
    pub durable: bool,
    /// The medium does not rotate (VPD page B1h, medium rotation rate 1).
    pub solid_state: bool,
    /// Requests for which the storage is most efficient. `None` if all lengths are equally efficient.
    pub optimal_transfer: Option<OptimalTransfer>,
    /// The device's cache can lose acknowledged writes without a report: [`BlockDevice::losses`] does not
    /// count them, and flushes do not fail. A layer that chooses among copies must not use such a device.
    pub loses_unseen: bool,
}

/// The requests for which storage is most efficient, such as the strips and stripes of a RAID set. Addresses
/// count from the start of the device (SBC-4 6.6.4, OPTIMAL TRANSFER LENGTH and OPTIMAL TRANSFER LENGTH
/// GRANULARITY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptimalTransfer {
    /// The unit of lengths and addresses, such as a strip.
    pub granularity: Blocks,
    /// The length, such as a stripe; a multiple of the granularity.
    pub length: Blocks,
}

impl OptimalTransfer {
    /// Converts to blocks that are shorter by a factor of 2^`shift`.
    #[must_use]
    pub fn in_blocks_shorter_by(self, shift: u32) -> OptimalTransfer {
        let shorten = |blocks: Blocks| Blocks(blocks.0 << shift);
        OptimalTransfer {
            granularity: shorten(self.granularity),
            length: shorten(self.length),
        }
    }
}

/// The allocation state of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The blocks are written, or at least reserved.
    Mapped,
    /// A hole, which reads as zeros.
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

/// The space of a thin device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes allocated.
    pub used_bytes: u64,
    /// Bytes available for allocation, which others may allocate first. `None` if unknown.
    pub available_bytes: Option<u64>,
}

/// The result of [`BlockDevice::compare_and_write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The blocks matched, and were written to stable storage.
    Written,
    /// The blocks did not match, and nothing was written.
    Differs {
        /// Offset of the first difference from the start of the extent.
        offset_bytes: u64,
    },
}

/// A store of numbered blocks.
///
/// All methods take shared references, because devices are used from several cores concurrently and
/// synchronize themselves. Concurrent requests may be reordered; the caller is responsible for ordering and
/// mutual exclusion ([`crate::RangeLocks`]). Requests for an extent outside [`BlockDevice::geometry`] fail
/// with [`DeviceError::OutOfRange`]; requests for an empty extent succeed without effect.
pub trait BlockDevice: Send + Sync {
    /// Returns the geometry. It may grow while the device is in use, but never shrinks.
    fn geometry(&self) -> Geometry;

    /// Returns the length in bytes. It is less than the length of all blocks if the last block is partial.
    /// Such a device is opened only for users that address bytes. Beyond its end, it reads as zeros and
    /// accepts only writes of zeros.
    fn length_bytes(&self) -> u64 {
        self.geometry().bytes()
    }

    /// Returns the properties.
    fn profile(&self) -> Profile;

    /// Returns the memory that contains the blocks of `extent`, if the device exposes it. Callers may read
    /// it, and send from it.
    fn memory(&self, _extent: Extent) -> Option<Region> {
        None
    }

    /// Returns the memory of the blocks of `extent`, for overwriting them, if the device exposes it. Each
    /// block counts as written when it has been stored completely.
    fn memory_to_write(&self, _extent: Extent) -> Option<WholeBlocks> {
        None
    }

    /// Fills `buffer`, which has the length of the extent, if this is possible without waiting because the
    /// blocks are cached in memory. If the result is false, the content of `buffer` is undefined, and the
    /// caller must use [`BlockDevice::read`].
    fn read_nowait(&self, _extent: Extent, _buffer: &mut [u8]) -> bool {
        false
    }

    /// Writes `data`, which has the length of the extent, as [`Durability::Cached`], if this is possible
    /// without waiting. If the result is false, a part of the data may have been written, and the caller must
    /// use [`BlockDevice::write`].
    fn write_nowait(&self, _extent: Extent, _data: &[u8]) -> bool {
        false
    }

    /// Fills `buffer`, which has the length of the extent, and returns it.
    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer>;

    /// Writes `data`, which has the length of the extent. After a successful stable write, the data is on
    /// stable storage. The failure of a stable write implies nothing about earlier writes.
    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()>;

    /// Writes `data` if the blocks contain `expected`; both have the length of the extent. The storage does
    /// this atomically, also with respect to other hosts. Returns `None` if this is not supported, or not for
    /// this extent. The caller must then read and write under its own lock, which only excludes requests of
    /// this host.
    fn compare_and_write(
        &self,
        _extent: Extent,
        _expected: &Slice,
        _data: &Slice,
    ) -> Option<Pending<'_, Compared>> {
        None
    }

    /// Brings all writes acknowledged before this call to stable storage. If the flush fails, all writes that
    /// were acknowledged before it completes and are not yet on stable storage may be lost. A later
    /// successful flush does not cover these writes.
    fn flush(&self) -> Pending<'_, ()>;

    /// Returns the number of times that acknowledged writes were lost, or may have been. Every failed sync or
    /// write-back is counted, even if the request that caused it was dropped, and so is a loss of the
    /// server's cache. The number never decreases. A flush that fails with a loss ([`DeviceError::is_loss`])
    /// has counted it. A flush need not fail because of earlier losses; to detect those, compare this count
    /// with its value at the last report ([`crate::SingleUser`] does this for one user).
    ///
    /// If a device's server may have lost its cache, the device is in doubt. It raises the doubt before any
    /// read of the new session completes. Such a read may return stale data, so a layer that chooses among
    /// copies must resolve the doubt before it uses the data.
    fn losses(&self) -> Losses;

    /// Resolves a doubt in [`BlockDevice::losses`] by querying the server. Fails if the query is not
    /// possible.
    fn resolve_losses(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            // The default is for devices that are never in doubt. A layer that forwards `losses` must also
            // forward this method, as `forward!` does.
            match self.losses().is_in_doubt() {
                false => Ok(()),
                true => Err(DeviceError::NotReady),
            }
        })
    }

    /// Records that the user has recorded the first `count` losses of [`BlockDevice::losses`] where they survive a
    /// crash of this process, or that nothing above the user has to know of them. A device that records its
    /// losses on disk, for the next process, then deletes its record. Devices whose record ends with the
    /// process ignore this call. A layer forwards it with the number of losses that are not its own.
    fn losses_recorded(&self, _count: u64) {}

    /// Deallocates whole granules within the extent. On thin devices, all blocks of the extent read as zeros
    /// afterwards, even those that could not be deallocated.
    fn unmap(&self, extent: Extent) -> Pending<'_, ()>;

    /// Makes the blocks read as zeros. With `may_unmap`, deallocates them where possible; otherwise they stay
    /// allocated.
    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()>;

    /// Returns which blocks are allocated, as at least one and at most `runs_max` contiguous runs, which
    /// start at the beginning of `extent` and need not reach its end.
    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>>;

    /// Returns the allocated and available space, or [`DeviceError::Unsupported`] if it is unknown.
    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    /// Returns the number of allocated bytes, or `None` if it is unknown without the query that
    /// [`BlockDevice::space`] makes.
    fn allocated_bytes(&self) -> Option<u64> {
        None
    }

    /// Checks whether the medium has grown, and updates [`BlockDevice::geometry`]. Has no effect on devices
    /// whose size does not change externally.
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Grows the medium to `bytes`, if it is shorter, and updates [`BlockDevice::geometry`]. Fails with
    /// [`DeviceError::Unsupported`] if the device cannot be resized, and with [`DeviceError::OutOfRange`] if
    /// `bytes` is not a whole number of blocks.
    fn grow(&self, _bytes: u64) -> Pending<'_, ()> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    /// Returns the errno of the latest failed request, for the log. Each errno is returned once. Returns
    /// `None` for devices that do not receive errors from the operating system.
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

/// The reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum DeviceError {
    /// The extent does not lie within the device.
    #[display("beyond the end of the device")]
    OutOfRange,
    /// The device is read-only, or was opened read-only.
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
    /// The storage rejects all requests of this host, because another host has taken over the device. This
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
    /// remote device has lost its cache. Only flushes and writes with [`crate::Durability::Stable`] return
    /// this error.
    #[display("acknowledged writes may be lost")]
    WritesLost,
    /// An earlier write of these blocks failed, but may still be executed at any time. So the content of the
    /// blocks is unknown, and new data could be overwritten.
    #[display("an earlier write may still be executed over a lost path")]
    Unsettled,
}

/// Flushes a device, and ignores a reported loss that the device had already counted before: then this flush
/// has succeeded.
///
/// # Errors
/// Returns the same errors as [`BlockDevice::flush`], except reports of earlier losses.
pub async fn flush_now(device: &dyn BlockDevice) -> Result<(), DeviceError> {
    let counted = device.losses().count();
    match device.flush().await {
        Err(DeviceError::WritesLost) if counted > 0 && device.losses().count() == counted => Ok(()),
        ended => ended,
    }
}

impl DeviceError {
    /// Returns whether a flush that failed with this error may have lost writes, because unwritten data is
    /// dropped and no later flush writes it. After other errors, the data remains in the cache.
    pub fn is_loss(self) -> bool {
        matches!(
            self,
            DeviceError::Unwritable(_) | DeviceError::NoSpace | DeviceError::WritesLost
        )
    }

    /// Returns the same error, with its LBA converted.
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
    /// Checks that `extent` lies within the device, and that a buffer of `length` bytes, if any, matches it.
    ///
    /// # Errors
    /// Returns [`DeviceError::OutOfRange`] otherwise.
    pub fn check(&self, extent: Extent, length: Option<usize>) -> Result<(), DeviceError> {
        let fits = |length| self.length(extent) == length as u64;
        let is_legal = self.contains(extent) && length.is_none_or(fits);
        if is_legal {
            Ok(())
        } else {
            Err(DeviceError::OutOfRange)
        }
    }
}

/// Within a layer's `impl`, implements the named methods of [`BlockDevice`](crate::BlockDevice) by calling
/// them on another device. Methods that are neither named nor implemented keep the trait's defaults, which
/// mean that a feature is not supported.
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
    // The methods about losses must be forwarded together.
    (@losses $self:ident, $inner:expr) => {
        fn losses(&$self) -> $crate::Losses {
            ($inner).losses()
        }

        fn resolve_losses(&$self) -> $crate::Pending<'_, ()> {
            ($inner).resolve_losses()
        }

        fn losses_recorded(&$self, count: u64) {
            ($inner).losses_recorded(count);
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
    // The requests without an extent: `flush`, `refresh`, `quiesced`.
    (@$request:ident $self:ident, $inner:expr) => {
        fn $request(&$self) -> $crate::Pending<'_, ()> {
            ($inner).$request()
        }
    };
}
