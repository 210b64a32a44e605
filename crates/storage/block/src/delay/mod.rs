//! A device with added latency: to try what a disk or a line of a certain latency would do, and to test
//! measurements of latency against a known one.

mod service_time;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use service_time::SyncKind;
pub use service_time::{ServiceTime, Stalls, Tail};

use crate::forward;
use crate::{BlockDevice, Buffer, Durability, Extent, Pending, Profile, Run, Sleeper, Slice, Space};

/// Delays every request of the inner device. Requests overlap: this is latency, not a rate limit
/// ([`crate::Limit`] is). Offers no memory, since memory is read without a request.
///
/// A flush time of its own implies a volatile cache, so the profile reports one.
pub struct Delay<D> {
    inner: D,
    times: ServiceTime,
    /// Requests so far.
    requests: AtomicU64,
    /// Time of the first request.
    first: OnceLock<Instant>,
    sleeper: Arc<dyn Sleeper>,
}

impl<D: BlockDevice> Delay<D> {
    /// `inner`, delayed by `times`.
    pub fn new(inner: D, times: impl Into<ServiceTime>, sleeper: Arc<dyn Sleeper>) -> Delay<D> {
        Delay { inner, times: times.into(), requests: AtomicU64::new(0), first: OnceLock::new(), sleeper }
    }

    fn after<'a, T>(
        &'a self,
        sync: SyncKind,
        request: impl FnOnce(&'a D) -> Pending<'a, T> + 'a,
    ) -> Pending<'a, T> {
        Box::pin(async move {
            let now = self.sleeper.now();
            let first = *self.first.get_or_init(|| now);
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            self.sleeper.sleep_until(self.times.end(number, sync, now, first)).await;
            request(&self.inner).await
        })
    }
}

impl<D: BlockDevice> BlockDevice for Delay<D> {
    forward!(self => self.inner; geometry, losses, allocated_bytes, refresh, grow, take_os_error, quiesced);

    fn profile(&self) -> Profile {
        let inner = self.inner.profile();
        Profile { volatile_cache: inner.volatile_cache || self.times.flush.is_some(), ..inner }
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.after(SyncKind::None, move |inner| inner.read(extent, buffer))
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        let sync = match durability {
            Durability::Cached => SyncKind::None,
            Durability::Stable => SyncKind::Fua,
        };
        self.after(sync, move |inner| inner.write(extent, data, durability))
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.after(SyncKind::Flush, |inner| inner.flush())
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.after(SyncKind::None, move |inner| inner.unmap(extent))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        self.after(SyncKind::None, move |inner| inner.write_zeroes(extent, may_unmap))
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        self.after(SyncKind::None, move |inner| inner.allocation(extent, runs_max))
    }

    fn space(&self) -> Pending<'_, Space> {
        self.after(SyncKind::None, |inner| inner.space())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Geometry;
    use crate::testing::{ManualClock, Memory, poll, ready};

    #[test]
    fn a_request_reaches_the_device_when_its_time_is_over_and_not_before() {
        let clock = Arc::new(ManualClock::default());
        let delay = Delay::new(Memory::new(64), Duration::from_millis(5), Arc::clone(&clock) as _);
        let mut write =
            delay.write(Extent::new(0, 1), Buffer::from(&[7; 512][..]).share(), Durability::Cached);
        assert!(poll(write.as_mut()).is_none());
        assert_eq!(delay.inner.byte(0), 0);
        clock.pass(Duration::from_millis(5));
        assert_eq!(poll(write.as_mut()), Some(Ok(())));
        assert_eq!(delay.inner.byte(0), 7);
    }

    #[test]
    fn what_is_to_last_takes_the_flush_too() {
        let clock = Arc::new(ManualClock::default());
        let ms = Duration::from_millis;
        let times = ServiceTime { flush: Some(ms(20)), ..ServiceTime::fixed(ms(5)) };
        let delay = Delay::new(Memory::new(64), times, Arc::clone(&clock) as _);
        let data = || Buffer::zeroed(512).share();
        let mut cached = delay.write(Extent::new(0, 1), data(), Durability::Cached);
        let mut stable = delay.write(Extent::new(1, 1), data(), Durability::Stable);
        let mut flush = delay.flush();
        let mut ended =
            || [&mut cached, &mut stable, &mut flush].map(|request| poll(request.as_mut()).is_some());
        assert_eq!(ended(), [false; 3]);
        clock.pass(ms(5));
        assert_eq!(ended(), [true, false, false]);
    }

    #[test]
    fn a_device_whose_flush_takes_time_has_a_cache() {
        let clock: Arc<ManualClock> = Arc::default();
        let over_ram = |times| {
            let shape = Geometry {
                block_size: crate::BlockSize::B512,
                blocks: crate::Blocks(8),
                physical_exponent: 0,
            };
            Delay::new(crate::Null::new(shape), times, Arc::clone(&clock) as _).profile().volatile_cache
        };
        let quick = ServiceTime::fixed(Duration::ZERO);
        assert!(!over_ram(quick));
        assert!(over_ram(ServiceTime { flush: Some(Duration::from_millis(1)), ..quick }));
    }

    #[test]
    fn delays_of_several_requests_overlap() {
        let clock = Arc::new(ManualClock::default());
        let delay = Delay::new(Memory::new(64), Duration::from_millis(5), Arc::clone(&clock) as _);
        let (mut first, mut second) = (delay.flush(), delay.flush());
        assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
        clock.pass(Duration::from_millis(5));
        assert!(poll(first.as_mut()).is_some() && poll(second.as_mut()).is_some());
    }

    #[test]
    fn a_dropped_request_never_reaches_the_device() {
        let clock = Arc::new(ManualClock::default());
        let delay = Delay::new(Memory::new(64), Duration::from_millis(5), Arc::clone(&clock) as _);
        let mut unmap = delay.write_zeroes(Extent::new(0, 1), true);
        assert!(poll(unmap.as_mut()).is_none());
        drop(unmap);
        clock.pass(Duration::from_millis(5));
        assert_eq!(delay.inner.requests(), 0);
        assert_eq!(ready(delay.quiesced()), Ok(()));
    }
}
