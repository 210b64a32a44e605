//! A device with one user, who is told of each loss.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    BlockDevice, Buffer, DeviceError, Durability, Extent, Geometry, Pending, Profile, Region, Run, Slice,
    WholeBlocks,
};

/// Any device, for one user of it. His next flush, or the next write of his that is to be stable, fails with
/// [`DeviceError::WritesLost`] if acknowledged writes have been lost since he was last told, whether or not a request of his
/// was told of it by the device.
pub struct SingleUser<D> {
    inner: D,
    /// The losses that the user was told of.
    told: AtomicU64,
}

impl<D: BlockDevice> SingleUser<D> {
    /// `inner`, for a user who has written nothing yet.
    pub fn new(inner: D) -> SingleUser<D> {
        let told = AtomicU64::new(inner.losses());
        SingleUser { inner, told }
    }

    /// The device itself.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// How a flush ends that the device ended so.
    fn tell(&self, ended: Result<(), DeviceError>) -> Result<(), DeviceError> {
        match ended {
            Err(error) if !error.is_loss() => return ended,
            Ok(()) | Err(_) => {}
        }
        let losses = self.inner.losses();
        let is_untold = self.told.fetch_max(losses, Ordering::AcqRel) < losses;
        if is_untold { ended.and(Err(DeviceError::WritesLost)) } else { ended }
    }
}

impl<D: BlockDevice> BlockDevice for SingleUser<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn profile(&self) -> Profile {
        self.inner.profile()
    }

    fn memory(&self, extent: Extent) -> Option<Region> {
        self.inner.memory(extent)
    }

    fn memory_to_write(&self, extent: Extent) -> Option<WholeBlocks> {
        self.inner.memory_to_write(extent)
    }

    fn read_at_once(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        self.inner.read_at_once(extent, buffer)
    }

    fn write_at_once(&self, extent: Extent, data: &[u8]) -> bool {
        self.inner.write_at_once(extent, data)
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.inner.read(extent, buffer)
    }

    /// One that fails by itself is not what tells of earlier writes.
    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        let write = self.inner.write(extent, data, durability);
        match durability {
            Durability::Cached => write,
            Durability::Stable => Box::pin(async move {
                write.await?;
                self.tell(Ok(()))
            }),
        }
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { self.tell(self.inner.flush().await) })
    }

    fn losses(&self) -> u64 {
        self.inner.losses()
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.inner.unmap(extent)
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        self.inner.write_zeroes(extent, may_unmap)
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        self.inner.allocation(extent, runs_max)
    }

    fn refresh(&self) -> Pending<'_, ()> {
        self.inner.refresh()
    }

    fn take_os_error(&self) -> Option<i32> {
        self.inner.take_os_error()
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        self.inner.quiesced()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::{Here, ManualClock, Memory, end};
    use crate::{Buffered, Fault, FaultControl, Misbehaviour, Requests, Rule, Window};

    const LOST: Result<(), DeviceError> = Err(DeviceError::WritesLost);

    #[test]
    fn what_was_lost_without_his_knowledge_is_told_once() {
        let control = FaultControl::default();
        let clock = Arc::new(ManualClock::default());
        let failing = Fault::new(Memory::new(64), clock as _, control.clone());
        let window = Window { bytes: 512, request_bytes: 512 };
        let device = SingleUser::new(Buffered::new(failing, window, Arc::new(Here)));
        let write =
            |durability| end(device.write(Extent::new(0, 1), Buffer::zeroed(512).share(), durability));
        for stable in [false, true] {
            let misbehaviour = Misbehaviour::Fail(DeviceError::NoSpace);
            control.set([Rule { requests: Requests::Writes, within: None, misbehaviour }]);
            assert_eq!(write(Durability::Cached), Ok(()));
            control.pass();
            let told = if stable { write(Durability::Stable) } else { end(device.flush()) };
            assert_eq!((told, end(device.flush())), (LOST, Ok(())));
        }
    }
}
