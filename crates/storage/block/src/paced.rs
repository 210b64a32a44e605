//! Devices that complete requests later than their inner device: after a delay, at a limited rate, or with
//! the timing of a disk.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::buffer::{Buffer, Slice};
use crate::device::{BlockDevice, Durability, Pending, Profile, Run, Space};
use crate::extent::Extent;
use crate::forward;
use crate::tasks::Sleeper;

/// A device whose requests are delayed by a [`Pace`]. It does not expose its memory, because access to memory
/// makes no requests.
///
/// A dropped request never reaches the inner device.
pub struct Paced<D, P> {
    pub(crate) inner: D,
    pub(crate) pace: P,
    pub(crate) sleeper: Arc<dyn Sleeper>,
}

/// The work of a request. Bytes beyond the end of the device are not counted; the inner device rejects them.
pub enum Work {
    /// Reads these bytes.
    Read(Range<u64>),
    /// Writes these bytes with this durability.
    Write(Range<u64>, Durability),
    /// Zeroes these bytes, whether or not they may be deallocated.
    Zero(Range<u64>),
    /// A flush.
    Flush,
    /// Deallocates blocks, or queries allocation or space.
    Manage,
}

/// Determines when requests start.
pub trait Pace: Send + Sync {
    /// Returns the time at which a request that arrives at `now` is passed to the inner device, which has
    /// `capacity_bytes` bytes; `None` if the request need not wait. Called when the request is first polled.
    fn begin(&self, now: Instant, work: Work, capacity_bytes: u64) -> Option<Instant>;

    /// Derives the properties of the device from those of the inner device.
    fn profile(&self, inner: Profile) -> Profile {
        inner
    }
}

impl<D: BlockDevice, P: Pace> Paced<D, P> {
    fn after<'a, T>(
        &'a self,
        work: Work,
        request: impl FnOnce(&'a D) -> Pending<'a, T> + 'a,
    ) -> Pending<'a, T> {
        Box::pin(async move {
            let now = self.sleeper.now();
            if let Some(begin) = self.pace.begin(now, work, self.geometry().bytes()) {
                debug_assert!(begin >= now, "a pace only delays");
                self.sleeper.sleep_until(begin).await;
            }
            request(&self.inner).await
        })
    }

    fn bytes(&self, extent: Extent) -> Range<u64> {
        let geometry = self.geometry();
        match geometry.contains(extent) {
            true => geometry.offset(extent)..geometry.offset(extent) + geometry.length(extent),
            false => 0..0,
        }
    }
}

impl<D: BlockDevice, P: Pace> BlockDevice for Paced<D, P> {
    forward!(self => self.inner; geometry, losses, allocated_bytes, refresh, grow, take_os_error, quiesced);

    fn profile(&self) -> Profile {
        self.pace.profile(self.inner.profile())
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.after(Work::Read(self.bytes(extent)), move |inner| {
            inner.read(extent, buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        let work = Work::Write(self.bytes(extent), durability);
        self.after(work, move |inner| inner.write(extent, data, durability))
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.after(Work::Flush, |inner| inner.flush())
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.after(Work::Manage, move |inner| inner.unmap(extent))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        let work = Work::Zero(self.bytes(extent));
        self.after(work, move |inner| inner.write_zeroes(extent, may_unmap))
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        self.after(Work::Manage, move |inner| {
            inner.allocation(extent, runs_max)
        })
    }

    fn space(&self) -> Pending<'_, Space> {
        self.after(Work::Manage, |inner| inner.space())
    }
}
