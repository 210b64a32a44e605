//! A device with one user, to which each loss of acknowledged writes is reported.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    BlockDevice, Buffer, DeviceError, Durability, Extent, Geometry, Pending, Profile, Region, Run, Slice,
    Space, WholeBlocks,
};

/// Any device, for one user. A flush or a stable write fails with [`DeviceError::WritesLost`] if the device has lost
/// acknowledged writes since the last report to this user, whichever request the device reported the loss to. Requests that
/// began before that report all fail: two flushes at once may be for different writes.
pub struct SingleUser<D> {
    inner: D,
    /// The losses that have been reported.
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

    fn told(&self) -> u64 {
        self.told.load(Ordering::Acquire)
    }

    /// The result of a request that began when `told` losses had been reported, and for which the device returned `ended`.
    fn tell(&self, told: u64, ended: Result<(), DeviceError>) -> Result<(), DeviceError> {
        match ended {
            Err(error) if !error.is_loss() => return ended,
            Ok(()) | Err(_) => {}
        }
        let losses = self.inner.losses();
        self.told.fetch_max(losses, Ordering::AcqRel);
        if losses > told { ended.and(Err(DeviceError::WritesLost)) } else { ended }
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

    /// A write that fails by itself reports nothing about earlier ones.
    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        let told = self.told();
        let write = self.inner.write(extent, data, durability);
        match durability {
            Durability::Cached => write,
            Durability::Stable => Box::pin(async move {
                write.await?;
                self.tell(told, Ok(()))
            }),
        }
    }

    fn flush(&self) -> Pending<'_, ()> {
        let told = self.told();
        Box::pin(async move { self.tell(told, self.inner.flush().await) })
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

    fn space(&self) -> Pending<'_, Space> {
        self.inner.space()
    }

    fn refresh(&self) -> Pending<'_, ()> {
        self.inner.refresh()
    }

    fn grow(&self, bytes: u64) -> Pending<'_, ()> {
        self.inner.grow(bytes)
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
    use crate::testing::{Here, ManualClock, Memory, end, poll, ready};
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

    /// As of two flushes at once, of which the first to end was told of the loss and the other was not.
    #[test]
    fn whatever_began_before_the_loss_was_reported_reports_it_too() {
        let control = FaultControl::default();
        let clock = Arc::new(ManualClock::default());
        let device = SingleUser::new(Fault::new(Memory::new(64), clock as _, control.clone()));
        let stable = || device.write(Extent::new(0, 1), Buffer::zeroed(512).share(), Durability::Stable);
        for second_is_a_write in [false, true] {
            control.fail(DeviceError::NoSpace);
            ready(device.inner().flush()).expect_err("another user's flush loses writes");
            control.hang();
            let mut first = device.flush();
            let mut second = if second_is_a_write { stable() } else { device.flush() };
            assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
            control.pass();
            // The one that began last ends first.
            assert_eq!((poll(second.as_mut()), poll(first.as_mut())), (Some(LOST), Some(LOST)));
            assert_eq!((ready(device.flush()), ready(stable())), (Ok(()), Ok(())));
        }
    }
}
