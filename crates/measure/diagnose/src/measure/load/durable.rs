//! Writes that are on stable storage before they end, whoever makes them.

use std::sync::Arc;

use block::{BlockDevice, Buffer, Durability, Extent, Geometry, Pending, Profile, Run, Slice};

/// A device all of whose writes are durable.
pub(super) struct Durable(pub(super) Arc<dyn BlockDevice>);

impl BlockDevice for Durable {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn profile(&self) -> Profile {
        self.0.profile()
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.0.read(extent, buffer)
    }

    fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
        self.0.write(extent, data, Durability::Stable)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.0.flush()
    }

    fn losses(&self) -> u64 {
        self.0.losses()
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.0.unmap(extent)
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        self.0.write_zeroes(extent, may_unmap)
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        self.0.allocation(extent, runs_max)
    }
}
