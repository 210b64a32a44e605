//! A device as slow as a rotating disk: to try what random access costs on one, and what several of them gain.

mod dirty;
mod drive;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use drive::Drive;
pub use drive::{DiskCache, DiskModel};

use crate::forward;
use crate::{BlockDevice, Buffer, Durability, Extent, Lock, Pending, Profile, Sleeper, Slice};

/// Serves requests as late as a disk of a model would, one after the other. Data are stored by the inner device when a
/// request is acknowledged, whatever the disk's cache would have done with them.
///
/// A dropped request never reaches the inner device, but keeps its place: those behind it are not served earlier. Offers
/// no memory, since memory is read without a request.
pub struct Disk<D> {
    inner: D,
    drive: Lock<Drive>,
    has_cache: bool,
    sleeper: Arc<dyn Sleeper>,
}

impl<D: BlockDevice> Disk<D> {
    /// `inner`, as slow as `model` with `cache`.
    pub fn new(inner: D, model: DiskModel, cache: DiskCache, sleeper: Arc<dyn Sleeper>) -> Disk<D> {
        let has_cache = cache.bytes > 0 && !cache.write_through;
        Disk { inner, drive: Lock::new(Drive::new(model, cache)), has_cache, sleeper }
    }

    /// The request reaches the drive when it is first polled, and the inner device when the drive has done it.
    fn after<'a, T>(
        &'a self,
        end: impl FnOnce(&mut Drive, Instant, u64) -> Instant + 'a,
        request: impl FnOnce(&'a D) -> Pending<'a, T> + 'a,
    ) -> Pending<'a, T> {
        Box::pin(async move {
            let now = self.sleeper.now();
            let end = end(&mut self.drive.lock(), now, self.geometry().bytes());
            self.sleeper.sleep_until(end).await;
            request(&self.inner).await
        })
    }

    /// The bytes of an extent. One beyond the end is the inner device's to refuse.
    fn bytes(&self, extent: Extent) -> std::ops::Range<u64> {
        let geometry = self.geometry();
        match geometry.contains(extent) {
            true => geometry.offset(extent)..geometry.offset(extent) + geometry.length(extent),
            false => 0..0,
        }
    }
}

impl<D: BlockDevice> BlockDevice for Disk<D> {
    forward!(self => self.inner; geometry, losses, unmap, allocation, space, allocated_bytes, refresh, grow, take_os_error, quiesced);

    fn profile(&self) -> Profile {
        let inner = self.inner.profile();
        Profile { solid_state: false, volatile_cache: inner.volatile_cache || self.has_cache, ..inner }
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        let bytes = self.bytes(extent);
        self.after(
            move |drive, now, capacity| drive.read(now, bytes, capacity),
            move |inner| inner.read(extent, buffer),
        )
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        let (bytes, stable) = (self.bytes(extent), durability == Durability::Stable);
        self.after(
            move |drive, now, capacity| drive.write(now, bytes, stable, capacity),
            move |inner| inner.write(extent, data, durability),
        )
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.after(|drive, now, capacity| drive.flush(now, capacity), |inner| inner.flush())
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        let bytes = self.bytes(extent);
        self.after(
            move |drive, now, capacity| drive.write(now, bytes, false, capacity),
            move |inner| inner.write_zeroes(extent, may_unmap),
        )
    }
}
