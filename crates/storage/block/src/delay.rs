//! A device with added latency, for testing the effect of a disk or link with a given latency, and for
//! testing latency measurements against a known value.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::device::{BlockDevice, Durability, Profile};
use crate::paced::{Pace, Paced, Work};
use crate::random::{GOLDEN_GAMMA, Random};
use crate::tasks::{Sleeper, later};

/// Delays every request of the inner device. Requests overlap, so this adds latency but does not limit the
/// rate as [`crate::Limit`] does.
///
/// If flushes have a separate service time, the profile reports a volatile cache.
pub type Delay<D> = Paced<D, Latency>;

/// The pace of a [`Delay`].
pub struct Latency {
    times: ServiceTime,
    /// Number of requests so far.
    requests: AtomicU64,
    /// Time of the first request.
    first: OnceLock<Instant>,
}

impl<D: BlockDevice> Delay<D> {
    /// Delays the requests of `inner` by `times`.
    pub fn new(inner: D, times: impl Into<ServiceTime>, sleeper: Arc<dyn Sleeper>) -> Delay<D> {
        let (requests, first) = (AtomicU64::new(0), OnceLock::new());
        Paced {
            inner,
            pace: Latency {
                times: times.into(),
                requests,
                first,
            },
            sleeper,
        }
    }
}

impl Pace for Latency {
    fn begin(&self, now: Instant, work: Work, _: u64) -> Option<Instant> {
        let first = *self.first.get_or_init(|| now);
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        Some(self.times.end(number, &work, now, first))
    }

    fn profile(&self, inner: Profile) -> Profile {
        Profile {
            volatile_cache: inner.volatile_cache || self.times.flush.is_some(),
            ..inner
        }
    }
}

/// Service times: constant, or from a two-point distribution, and optionally with stalls. Apart from stalls,
/// the time of a request depends only on its number and the seed, so runs are reproducible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTime {
    /// Service time of most requests.
    pub usual: Duration,
    /// Slow requests, if any.
    pub tail: Option<Tail>,
    /// Service time of a flush, which is added to the service time of writes to stable storage (FUA). `None`
    /// means the same time as for other requests.
    pub flush: Option<Duration>,
    /// Periods in which the device completes nothing.
    pub stalls: Option<Stalls>,
    /// Seed for the random choice of slow requests.
    pub seed: u64,
}

/// The second point of a two-point distribution. Every request is slow with the same probability,
/// independently of other requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Service time of a slow request.
    pub time: Duration,
    /// Number of slow requests per million.
    pub per_million: u32,
}

/// Periods in which the device completes nothing, as during garbage collection or failover. A request that
/// would complete during a stall completes when the stall ends.
///
/// ```text
///    first request
///    |<------ every ------>|<- length ->|         |<- length ->|
///    |.....................|############|.........|############|....
///                          |<------- every ------>|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    length: Duration,
    every: Duration,
}

impl Stalls {
    /// Creates periodic stalls. Returns `None` unless `length` is shorter than `every`.
    pub fn new(length: Duration, every: Duration) -> Option<Stalls> {
        (length < every).then_some(Stalls { length, every })
    }

    /// Returns the length of each stall.
    pub fn length(self) -> Duration {
        self.length
    }

    /// Returns the time from the start of one stall to the start of the next.
    pub fn every(self) -> Duration {
        self.every
    }

    /// Returns the completion time of a request that would complete at `end` without stalls, on a device
    /// whose first request arrived at `first`.
    fn defer(self, end: Instant, first: Instant) -> Instant {
        let since = end.saturating_duration_since(first).as_nanos();
        let into = since % self.every.as_nanos();
        let stalled = since >= self.every.as_nanos() && into < self.length.as_nanos();
        // `into` is shorter than `length`, so it fits.
        let rest = self
            .length
            .saturating_sub(Duration::from_nanos(into as u64));
        debug_assert!(!stalled || rest <= self.length);
        if stalled { later(end, rest) } else { end }
    }
}

impl ServiceTime {
    /// Creates a service time that is the same for all requests.
    pub fn fixed(usual: Duration) -> ServiceTime {
        ServiceTime {
            usual,
            tail: None,
            flush: None,
            stalls: None,
            seed: 0,
        }
    }

    /// Returns the completion time of request `number`, which arrived at `now`, on a device whose first
    /// request arrived at `first`.
    fn end(&self, number: u64, work: &Work, now: Instant, first: Instant) -> Instant {
        let end = later(now, self.service_time(number, work));
        self.stalls.map_or(end, |stalls| stalls.defer(end, first))
    }

    fn service_time(&self, number: u64, work: &Work) -> Duration {
        match (work, self.flush) {
            (Work::Write(_, Durability::Stable), Some(flush)) => {
                self.base_time(number).saturating_add(flush)
            }
            (Work::Flush, Some(flush)) => flush,
            _ => self.base_time(number),
        }
    }

    fn base_time(&self, number: u64) -> Duration {
        match self.tail {
            Some(tail) if per_million(self.seed, number) < tail.per_million => tail.time,
            Some(_) | None => self.usual,
        }
    }
}

/// Returns a pseudo-random number below a million, which depends only on the seed and this position.
fn per_million(seed: u64, number: u64) -> u32 {
    let nth = Random::new(seed.wrapping_add(number.wrapping_mul(GOLDEN_GAMMA))).below(1_000_000);
    nth as u32
}

impl From<Duration> for ServiceTime {
    fn from(usual: Duration) -> ServiceTime {
        ServiceTime::fixed(usual)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::buffer::Buffer;
    use crate::extent::{Extent, Geometry};
    use crate::testing::{ManualClock, Memory, poll, ready};

    use super::*;

    #[test]
    fn a_request_reaches_the_device_when_its_time_is_over_and_not_before() {
        let clock = Arc::new(ManualClock::default());
        let delay = Delay::new(
            Memory::new(64),
            Duration::from_millis(5),
            Arc::clone(&clock) as _,
        );
        let mut write = delay.write(
            Extent::new(0, 1),
            Buffer::from(&[7; 512][..]).share(),
            Durability::Cached,
        );
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
        let times = ServiceTime {
            flush: Some(ms(20)),
            ..ServiceTime::fixed(ms(5))
        };
        let delay = Delay::new(Memory::new(64), times, Arc::clone(&clock) as _);
        let data = || Buffer::zeroed(512).share();
        let mut cached = delay.write(Extent::new(0, 1), data(), Durability::Cached);
        let mut stable = delay.write(Extent::new(1, 1), data(), Durability::Stable);
        let mut flush = delay.flush();
        let mut ended = || {
            [&mut cached, &mut stable, &mut flush].map(|request| poll(request.as_mut()).is_some())
        };
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
            Delay::new(crate::Null::new(shape), times, Arc::clone(&clock) as _)
                .profile()
                .volatile_cache
        };
        let quick = ServiceTime::fixed(Duration::ZERO);
        assert!(!over_ram(quick));
        assert!(over_ram(ServiceTime {
            flush: Some(Duration::from_millis(1)),
            ..quick
        }));
    }

    #[test]
    fn delays_of_several_requests_overlap() {
        let clock = Arc::new(ManualClock::default());
        let delay = Delay::new(
            Memory::new(64),
            Duration::from_millis(5),
            Arc::clone(&clock) as _,
        );
        let (mut first, mut second) = (delay.flush(), delay.flush());
        assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
        clock.pass(Duration::from_millis(5));
        assert!(poll(first.as_mut()).is_some() && poll(second.as_mut()).is_some());
    }

    #[test]
    fn a_dropped_request_never_reaches_the_device() {
        let clock = Arc::new(ManualClock::default());
        let delay = Delay::new(
            Memory::new(64),
            Duration::from_millis(5),
            Arc::clone(&clock) as _,
        );
        let mut unmap = delay.write_zeroes(Extent::new(0, 1), true);
        assert!(poll(unmap.as_mut()).is_none());
        drop(unmap);
        clock.pass(Duration::from_millis(5));
        assert_eq!(delay.inner.requests(), 0);
        assert_eq!(ready(delay.quiesced()), Ok(()));
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn as_many_requests_are_slow_as_were_asked_for() {
        let tail = Tail {
            time: 20 * MS,
            per_million: 10_000,
        };
        let times = ServiceTime {
            tail: Some(tail),
            ..ServiceTime::fixed(MS)
        };
        let slow = (0..1_000_000)
            .filter(|number| times.base_time(*number) == tail.time)
            .count();
        // The limit is four standard deviations of a binomial distribution: sqrt(10^6 * 0.01 * 0.99) is 99.5.
        assert!(slow.abs_diff(10_000) < 400, "{slow}");
    }

    #[test]
    fn a_seed_gives_the_same_requests_again_and_another_seed_others() {
        let tail = Some(Tail {
            time: 20 * MS,
            per_million: 500_000,
        });
        let slow = |seed| {
            let times = ServiceTime {
                tail,
                seed,
                ..ServiceTime::fixed(MS)
            };
            (0..100)
                .map(|number| times.base_time(number))
                .collect::<Vec<_>>()
        };
        assert_eq!(slow(7), slow(7));
        assert_ne!(slow(7), slow(8));
    }

    #[test]
    fn what_would_end_in_a_stall_ends_with_it() {
        let stalls = Stalls::new(100 * MS, 1000 * MS);
        let times = ServiceTime {
            stalls,
            ..ServiceTime::fixed(5 * MS)
        };
        let first = Instant::now();
        let end =
            |came: u32| (times.end(0, &Work::Manage, first + came * MS, first) - first).as_millis();
        assert_eq!(
            [0, 994, 995, 1050, 1094, 1095, 1999].map(end),
            [5, 999, 1100, 1100, 1100, 1100, 2100]
        );
    }

    #[test]
    fn stalls_without_time_between_them_are_refused() {
        assert_eq!(Stalls::new(MS, MS), None);
    }
}
