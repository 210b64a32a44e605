//! A device that completes after random delays.

use std::task::Poll;

use super::{Memory, draw};
use crate::forward;
use crate::{BlockDevice, Buffer, Durability, Extent, Pending, Run, Slice};

/// Yields a random number of times before and after each request.
pub(crate) struct SlowDevice(pub(crate) Memory);

async fn random_yields() {
    for _ in 0..draw(4) {
        let mut waited = false;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl SlowDevice {
    fn later<'a, T: 'a>(&'a self, request: Pending<'a, T>) -> Pending<'a, T> {
        Box::pin(async move {
            random_yields().await;
            let result = request.await;
            random_yields().await;
            result
        })
    }
}

impl BlockDevice for SlowDevice {
    forward!(self => self.0; geometry, profile, losses, quiesced);

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.later(self.0.read(extent, buffer))
    }
    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        self.later(self.0.write(extent, data, durability))
    }
    fn flush(&self) -> Pending<'_, ()> {
        self.later(self.0.flush())
    }
    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.later(self.0.unmap(extent))
    }
    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        self.later(self.0.write_zeroes(extent, may_unmap))
    }
    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        self.later(self.0.allocation(extent, runs_max))
    }
}
