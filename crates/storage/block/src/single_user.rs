//! A device with one user, to which each loss of acknowledged writes is reported.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::forward;
use crate::{BlockDevice, DeviceError, Durability, Extent, Pending, Slice};

/// Any device, for one user. A flush or a stable write fails with [`DeviceError::WritesLost`] if the device
/// has lost acknowledged writes since the last report to this user, whichever request the device reported the
/// loss to. Requests that began before that report all fail: two concurrent flushes may be for different
/// writes.
pub struct SingleUser<D> {
    inner: D,
    /// Number of losses reported to the user.
    reported: AtomicU64,
}

impl<D: BlockDevice> SingleUser<D> {
    /// `inner`, for a user who has written nothing yet.
    pub fn new(inner: D) -> SingleUser<D> {
        let reported = AtomicU64::new(inner.losses().count());
        SingleUser { inner, reported }
    }

    /// The inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn reported(&self) -> u64 {
        self.reported.load(Ordering::Acquire)
    }

    /// The result of a request that began when `reported` losses had been reported, and for which the device
    /// returned `ended`.
    fn report(&self, reported: u64, ended: Result<(), DeviceError>) -> Result<(), DeviceError> {
        match ended {
            Err(error) if !error.is_loss() => return ended,
            Ok(()) | Err(_) => {}
        }
        let losses = self.inner.losses().count();
        self.reported.fetch_max(losses, Ordering::AcqRel);
        if losses > reported { ended.and(Err(DeviceError::WritesLost)) } else { ended }
    }
}

impl<D: BlockDevice> BlockDevice for SingleUser<D> {
    forward!(self => self.inner; geometry, length_bytes, profile, memory, memory_to_write, read_nowait, write_nowait, read, losses, unmap, write_zeroes, allocation, space, allocated_bytes, refresh, grow, take_os_error, quiesced);

    /// A write that fails by itself reports nothing about earlier ones.
    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        let reported = self.reported();
        let write = self.inner.write(extent, data, durability);
        match durability {
            Durability::Cached => write,
            Durability::Stable => Box::pin(async move {
                write.await?;
                self.report(reported, Ok(()))
            }),
        }
    }

    fn flush(&self) -> Pending<'_, ()> {
        let reported = self.reported();
        Box::pin(async move { self.report(reported, self.inner.flush().await) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Buffer;
    use crate::testing::{LocalSpawner, ManualClock, Memory, end, poll, ready};
    use crate::{Buffered, Fault, FaultAction, FaultControl, Requests, Rule, Window};

    const LOST: Result<(), DeviceError> = Err(DeviceError::WritesLost);

    #[test]
    fn what_was_lost_without_his_knowledge_is_told_once() {
        let control = FaultControl::default();
        let clock = Arc::new(ManualClock::default());
        let failing = Fault::new(Memory::new(64), clock as _, control.clone());
        let window = Window { bytes: 512, request_bytes: 512 };
        let device = SingleUser::new(Buffered::new(failing, window, Arc::new(LocalSpawner)));
        let write =
            |durability| end(device.write(Extent::new(0, 1), Buffer::zeroed(512).share(), durability));
        for stable in [false, true] {
            let action = FaultAction::Fail(DeviceError::NoSpace);
            control.set([Rule { requests: Requests::Writes, within: None, action }]);
            assert_eq!(write(Durability::Cached), Ok(()));
            control.pass();
            let reported = if stable { write(Durability::Stable) } else { end(device.flush()) };
            assert_eq!((reported, end(device.flush())), (LOST, Ok(())));
        }
    }

    /// Two concurrent flushes, of which the first to end reported the loss and the other did not.
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
