//! A device with one user, to which each loss of acknowledged writes is reported.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::forward::forward;
use crate::{BlockDevice, DeviceError, Durability, Extent, Pending, Slice};

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
    forward!(self => self.inner; geometry, profile, memory, memory_to_write, read_at_once, write_at_once, read, losses, unmap, write_zeroes, allocation, space, refresh, grow, take_os_error, quiesced);

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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Buffer;
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
