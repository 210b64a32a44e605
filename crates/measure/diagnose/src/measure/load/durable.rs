//! Writes that are on stable storage before they end, whoever makes them.

use std::sync::Arc;

use block::{BlockDevice, Durability, Extent, Pending, Slice};

/// A device all of whose writes are durable.
pub(super) struct Durable(pub(super) Arc<dyn BlockDevice>);

impl BlockDevice for Durable {
    block::forward!(self => self.0; geometry, profile, read, flush, losses, unmap, write_zeroes, allocation, quiesced);

    fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
        self.0.write(extent, data, Durability::Stable)
    }
}
