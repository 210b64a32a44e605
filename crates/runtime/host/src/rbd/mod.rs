//! A volume in a Ceph RBD image, through librbd.
//!
//! ```text
//!  request ──► permit (queue) ──► librbd ──► object servers
//!     │                             │ callback on a thread of librbd
//!     └──────── waker ◄─────────────┘
//! ```
//!
//! Data is not copied on the way to the library, which directly reads and writes the request's buffer. The
//! request owns the buffer until the library calls back (`request`). A request that is dropped continues as
//! an orphan of the device, as with files. The library's cache is off, so an acknowledged write is on the
//! object servers. The library never abandons a request: if an object server fails, the request waits until
//! another one takes over, or the same one recovers.
//!
//! An image opened for writing is locked with RBD's exclusive lock, in the mode in which the library does not
//! release it on request (`image`). If the lock is lost, or the client is blocklisted, the device is fenced
//! permanently.

mod error;
mod fence;
mod image;
mod library;
mod request;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, Compared, DeviceError, Durability, Extent,
    Geometry, Lba, LossCounter, Losses, Pending, Permits, Profile, Run, Slice,
};

use crate::file::{LatestError, Verb};
use crate::files::Lane;
use crate::files::orphans::Orphans;
use image::Image;
use request::Request;

pub use error::RbdError;
pub use image::close_all;

/// Options of a volume in an RBD image.
#[derive(Clone, Debug)]
pub struct RbdOptions {
    /// The cluster's name: its configuration is `/etc/ceph/NAME.conf` unless `conf` is another file.
    pub cluster: String,
    /// The configuration file.
    pub conf: Option<String>,
    /// The name of the Ceph user, without `client.`.
    pub user: String,
    /// The pool.
    pub pool: String,
    /// The namespace in the pool.
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// A snapshot of the image, which is read-only.
    pub snapshot: Option<String>,
    /// The capacity in bytes. A missing image is created with this size; an existing one must not be shorter.
    /// `None` uses the existing size.
    pub bytes: Option<u64>,
    /// Open for reading only, without the lock.
    pub read_only: bool,
    /// The length of a logical block.
    pub block_size: BlockSize,
    /// log2 of the logical blocks per physical block; 3 for 512e.
    pub physical_exponent: u8,
    /// Maximum number of requests in the library. Further requests wait.
    pub queue: usize,
    /// Timeout for connecting to the cluster and opening the image.
    pub timeout: Duration,
    /// Time to wait for the lock of a client that the cluster still considers alive.
    pub lock_wait: Duration,
}

impl RbdOptions {
    /// The image in the notation of Ceph's commands: `POOL/IMAGE[@SNAPSHOT]`.
    fn path(&self) -> String {
        let namespace = self
            .namespace
            .as_ref()
            .map(|namespace| format!("{namespace}/"))
            .unwrap_or_default();
        let snapshot = self
            .snapshot
            .as_ref()
            .map(|snapshot| format!("@{snapshot}"))
            .unwrap_or_default();
        format!("{}/{namespace}{}{snapshot}", self.pool, self.image)
    }

    fn is_read_only(&self) -> bool {
        self.read_only || self.snapshot.is_some()
    }
}

/// A volume in an RBD image.
pub struct RbdDevice {
    image: Arc<Image>,
    options: RbdOptions,
    /// Number of blocks. It grows with the image, unless the options fix it, and never shrinks: if the image
    /// becomes shorter, requests for blocks beyond its end fail.
    blocks: AtomicU64,
    /// Size of the image in bytes at the last check. It is needed because the library truncates requests
    /// beyond the end and reports success.
    present_bytes: AtomicU64,
    permits: Arc<Permits>,
    orphans: Arc<Orphans>,
    /// Threads for blocking calls.
    lane: Lane,
    latest_error: LatestError,
    /// Counts failed flushes.
    losses: LossCounter,
}

/// Maximum number of concurrent blocking calls: size checks and allocation queries.
const LANE_THREADS: usize = 4;

/// Unit in which librbd compares and writes atomically (`ImageCompareAndWriteRequest`).
const SECTOR_BYTES: u64 = 512;

/// Maximum number of bytes that one request zeroes: 256 objects of the default size. The library immediately
/// creates a request for each object.
const ZERO_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of bytes per allocation query: 1,024 objects of the default size. Without an object map,
/// the library queries each object.
const ALLOCATION_BYTES_MAX: u64 = 4 << 30;

/// The granularity of deallocation, the same as in Linux's driver. Objects can have smaller holes, but many
/// small holes cost more space than they free (`rbd_discard_granularity_bytes`).
const GRANULARITY_BYTES: u64 = 64 << 10;

impl RbdDevice {
    /// Opens the image on a separate thread, because the cluster may not respond.
    ///
    /// # Errors
    /// The reason that the image cannot be used.
    pub async fn open(options: RbdOptions) -> Result<RbdDevice, RbdError> {
        let limit = options.timeout + options.lock_wait;
        let timed_out = || RbdError::TimedOut {
            seconds: limit.as_secs(),
        };
        let lane = Lane::new(LANE_THREADS);
        let asked = options.clone();
        // If the timeout expires first, the image is closed when the work ends.
        let opened = lane.run(move || {
            let image = Image::open(&asked)?;
            let size = image.size().map_err(|source| RbdError::Io {
                doing: asked.path(),
                source,
            })?;
            Ok((image, size))
        });
        let (image, size) = reactor::timeout(limit, opened)
            .await
            .map_err(|_| timed_out())??;
        let blocks = capacity(&options, size)?;
        Ok(RbdDevice {
            image,
            blocks: AtomicU64::new(blocks),
            present_bytes: AtomicU64::new(size),
            permits: Arc::new(Permits::new(options.queue)),
            orphans: Arc::default(),
            lane,
            latest_error: LatestError::default(),
            losses: LossCounter::default(),
            options,
        })
    }

    /// Number of requests that continue after their futures were dropped.
    pub fn orphans(&self) -> usize {
        self.orphans.count()
    }

    fn check(&self, extent: Extent) -> Result<(), DeviceError> {
        if self.geometry().contains(extent) {
            Ok(())
        } else {
            Err(DeviceError::OutOfRange)
        }
    }

    fn check_change(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check(extent)?;
        if self.options.is_read_only() {
            return Err(DeviceError::ReadOnly);
        }
        let end = self.geometry().offset(extent) + self.geometry().length(extent);
        if end > self.present_bytes.load(Ordering::Relaxed) {
            Err(DeviceError::OutOfRange)
        } else {
            Ok(())
        }
    }

    fn check_length(&self, extent: Extent, bytes: usize) -> Result<(), DeviceError> {
        if self.geometry().length(extent) == bytes as u64 {
            Ok(())
        } else {
            Err(DeviceError::OutOfRange)
        }
    }

    /// Executes a request through the library, starting at block `lba`.
    async fn perform(
        &self,
        request: Request,
        verb: Verb,
        lba: Lba,
    ) -> Result<Option<Request>, DeviceError> {
        let read_bytes = if let Request::Read(buffer) = &request {
            buffer.len()
        } else {
            0
        };
        let (result, request) = self
            .carry_out(request, lba)
            .await
            .map_err(|error| self.told(&error, verb, lba))?;
        match result {
            // The image has become shorter, and the library has not filled the rest of the buffer.
            0.. if (result as usize) < read_bytes => Err(DeviceError::Unreadable(lba)),
            0.. => Ok(request),
            error => Err(self.told(&self.image.fence.error(error as i32), verb, lba)),
        }
    }

    /// Executes a request. Returns the library's result, and the request with its memory.
    async fn carry_out(&self, request: Request, lba: Lba) -> io::Result<(isize, Option<Request>)> {
        let (image, at) = (&self.image, lba.0 << self.options.block_size.shift());
        let work = async {
            let permit = self.permits.take().await;
            Ok(image.submit(request, at, permit, &self.orphans)?.await)
        };
        image.fence.unless_set(work).await
    }

    /// Converts the error of a request that failed at `lba`.
    fn told(&self, error: &io::Error, verb: Verb, lba: Lba) -> DeviceError {
        let told = self.latest_error.told(error, verb, lba);
        if self.image.fence.is_set() {
            DeviceError::Fenced
        } else {
            told
        }
    }

    async fn load(&self, extent: Extent, buffer: Buffer) -> Result<Buffer, DeviceError> {
        self.check(extent)?;
        self.check_length(extent, buffer.len())?;
        if extent.is_empty() {
            return Ok(buffer);
        }
        match self
            .perform(Request::Read(buffer), Verb::Read, extent.lba)
            .await?
        {
            Some(Request::Read(buffer)) => Ok(buffer),
            _ => Err(DeviceError::Unreadable(extent.lba)),
        }
    }

    async fn store(&self, extent: Extent, data: Slice) -> Result<(), DeviceError> {
        self.check_change(extent)?;
        self.check_length(extent, data.len())?;
        if extent.is_empty() {
            return Ok(());
        }
        self.perform(Request::Write(data), Verb::Write, extent.lba)
            .await
            .map(drop)
    }

    async fn compare_and_store(
        &self,
        extent: Extent,
        expected: Slice,
        data: Slice,
    ) -> Result<Compared, DeviceError> {
        self.check_change(extent)?;
        self.check_length(extent, expected.len())?;
        self.check_length(extent, data.len())?;
        let differs_at = Box::new(AtomicU64::new(0));
        let request = Request::CompareAndWrite {
            expected,
            data,
            differs_at,
        };
        let carried_out = self.carry_out(request, extent.lba).await;
        let (result, request) =
            carried_out.map_err(|error| self.told(&error, Verb::Write, extent.lba))?;
        match (result as i32, request) {
            (0.., _) => Ok(Compared::Written),
            // The library returns the offset in the compared part plus the offset of the object in the image.
            (error, Some(Request::CompareAndWrite { differs_at, .. }))
                if error == -libc::EILSEQ =>
            {
                Ok(Compared::Differs {
                    offset_bytes: differs_at.into_inner() % SECTOR_BYTES,
                })
            }
            (error, _) => Err(self.told(&self.image.fence.error(error), Verb::Write, extent.lba)),
        }
    }

    async fn zero(&self, extent: Extent, is_thick: bool) -> Result<(), DeviceError> {
        self.check_change(extent)?;
        for part in extent.chunks(ZERO_BYTES_MAX >> self.options.block_size.shift()) {
            let request = Request::Zero {
                length: self.geometry().length(part) as usize,
                is_thick,
            };
            self.perform(request, Verb::Write, part.lba).await?;
        }
        Ok(())
    }

    async fn runs(&self, extent: Extent, runs_max: usize) -> Result<Vec<Run>, DeviceError> {
        self.check(extent)?;
        let blocks_max = ALLOCATION_BYTES_MAX >> self.options.block_size.shift();
        let extent = Extent::new(extent.lba.0, extent.blocks.0.min(blocks_max));
        if extent.is_empty() {
            return Ok(Vec::new());
        }
        let (geometry, image) = (self.geometry(), Arc::clone(&self.image));
        let (at, length) = (geometry.offset(extent), geometry.length(extent));
        let data = self
            .lane
            .run(move || image.data(at, length, runs_max))
            .await;
        let data = data.map_err(|error| self.told(&error, Verb::Inspect, extent.lba))?;
        Ok(runs(self.options.block_size, extent, &data, runs_max))
    }
}

/// Returns the number of blocks to serve from an image of `size` bytes.
fn capacity(options: &RbdOptions, size: u64) -> Result<u64, RbdError> {
    let bytes = match options.bytes {
        Some(asked) if size < asked => {
            return Err(RbdError::TooShort {
                image: options.path(),
                found: size,
                asked,
            });
        }
        asked => asked.unwrap_or(size),
    };
    let ragged = || RbdError::Ragged {
        image: options.path(),
        bytes,
        block_size: options.block_size,
    };
    options
        .block_size
        .exact(bytes)
        .map(|blocks| blocks.0)
        .filter(|blocks| *blocks > 0)
        .ok_or_else(ragged)
}

/// Converts parts with data to up to `runs_max` contiguous runs of the extent. The parts are in bytes and in
/// order; the first can start before the extent.
fn runs(block_size: BlockSize, extent: Extent, data: &[(u64, u64)], runs_max: usize) -> Vec<Run> {
    let end = extent.lba.0 + extent.blocks.0;
    let mut runs: Vec<Run> = Vec::new();
    let mut at = extent.lba.0;
    let mut add = |upto: u64, allocation: Allocation| {
        let upto = upto.min(end);
        if upto <= at {
            return;
        }
        let part = Extent::new(at, upto - at);
        at = upto;
        match runs.last_mut() {
            Some(last) if last.allocation == allocation => last.extent.blocks.0 += part.blocks.0,
            _ => runs.push(Run {
                extent: part,
                allocation,
            }),
        }
    };
    for &(offset, length) in data {
        add(offset >> block_size.shift(), Allocation::Deallocated);
        add(
            (offset + length).div_ceil(u64::from(block_size.bytes())),
            Allocation::Mapped,
        );
    }
    // If the number of parts has reached the limit, there may be more parts, and the rest is not known to be
    // a hole.
    if data.len() < runs_max {
        add(end, Allocation::Deallocated);
    }
    runs.truncate(runs_max);
    runs
}

impl BlockDevice for RbdDevice {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.options.block_size,
            blocks: Blocks(self.blocks.load(Ordering::Relaxed)),
            physical_exponent: self.options.physical_exponent,
        }
    }

    fn profile(&self) -> Profile {
        let granularity =
            GRANULARITY_BYTES.min(self.image.object_bytes) >> self.options.block_size.shift();
        Profile {
            read_only: self.options.is_read_only(),
            thin: !self.options.is_read_only(),
            granularity: Blocks(granularity.max(1)),
            volatile_cache: false,
            durable: true,
            solid_state: true,
            optimal_transfer: None,
            loses_unseen: false,
        }
    }

    fn losses(&self) -> Losses {
        self.losses.get()
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(self.load(extent, buffer))
    }

    /// Ignores the requested durability: without a cache, every write is stable.
    fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
        Box::pin(self.store(extent, data))
    }

    /// The library supports this only within one sector and one object. For larger ranges, the caller must
    /// compare and write itself.
    fn compare_and_write(
        &self,
        extent: Extent,
        expected: &Slice,
        data: &Slice,
    ) -> Option<Pending<'_, Compared>> {
        let (at, length) = (
            self.geometry().offset(extent),
            self.geometry().length(extent),
        );
        let is_within = |unit: u64| length > 0 && at / unit == (at + length - 1) / unit;
        let can = is_within(SECTOR_BYTES) && is_within(self.image.stripe_bytes);
        can.then(|| Box::pin(self.compare_and_store(extent, expected.clone(), data.clone())) as _)
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async {
            if self.options.is_read_only() {
                return Ok(());
            }
            let flushed = self
                .perform(Request::Flush, Verb::Write, Lba(0))
                .await
                .map(drop);
            flushed.inspect_err(|error| {
                if error.is_loss() {
                    self.losses.count();
                }
            })
        })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(self.zero(extent, false))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(self.zero(extent, !may_unmap))
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(self.runs(extent, runs_max))
    }

    /// Reads the size, and checks that this client still has the lock. The library is notified of a resize
    /// through its watch of the image.
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let image = Arc::clone(&self.image);
            let look = self
                .lane
                .run(move || image.check_lock().and_then(|()| image.size()));
            // Stop waiting when the fence is set: the library may wait for a lock that it cannot get.
            let size = self.image.fence.unless_set(look).await;
            let size = size.map_err(|error| self.told(&error, Verb::Inspect, Lba(0)))?;
            self.present_bytes.store(size, Ordering::Relaxed);
            if self.options.bytes.is_some() {
                return Ok(());
            }
            self.blocks
                .fetch_max(size >> self.options.block_size.shift(), Ordering::Relaxed);
            Ok(())
        })
    }

    fn grow(&self, bytes: u64) -> Pending<'_, ()> {
        Box::pin(async move {
            let blocks = self
                .options
                .block_size
                .exact(bytes)
                .ok_or(DeviceError::OutOfRange)?;
            if self.options.is_read_only() {
                return Err(DeviceError::ReadOnly);
            }
            let image = Arc::clone(&self.image);
            let grown = self.lane.run(move || match image.size()? {
                size if size < bytes => image.resize(bytes),
                _ => Ok(()),
            });
            let at_end = Lba(self.geometry().blocks.0);
            grown
                .await
                .map_err(|error| self.told(&error, Verb::Write, at_end))?;
            self.present_bytes.fetch_max(bytes, Ordering::Relaxed);
            self.blocks.fetch_max(blocks.0, Ordering::Relaxed);
            Ok(())
        })
    }

    fn take_os_error(&self) -> Option<i32> {
        self.latest_error.take()
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.orphans.ended().await;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_with_data_make_runs_without_gaps() {
        let found = |data: &[(u64, u64)], runs_max| {
            let runs = runs(BlockSize::B512, Extent::new(8, 24), data, runs_max);
            let of = |run: Run| {
                (
                    run.extent.lba.0,
                    run.extent.blocks.0,
                    run.allocation == Allocation::Mapped,
                )
            };
            runs.into_iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(found(&[], 4), [(8, 24, false)]);
        assert_eq!(found(&[(0, 1 << 20)], 4), [(8, 24, true)]);
        assert_eq!(
            found(&[(8192, 4096)], 4),
            [(8, 8, false), (16, 8, true), (24, 8, false)]
        );
        assert_eq!(
            found(&[(4096, 4096), (8192, 4096)], 4),
            [(8, 16, true), (24, 8, false)]
        );
        assert_eq!(found(&[(8192, 4096)], 2), [(8, 8, false), (16, 8, true)]);
        assert_eq!(found(&[(8192, 4096)], 1), [(8, 8, false)]);
    }
}
