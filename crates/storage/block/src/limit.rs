//! A device with a rate limit: a link, a disk or a quota of known rate.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::BlockDevice;
use crate::lock::Lock;
use crate::paced::{Pace, Paced, Work};
use crate::tasks::{Sleeper, later};

/// The rate of a [`Limit`]. `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Number of requests of all kinds per second.
    pub requests_per_s: Option<NonZeroU64>,
    /// Number of bytes read and written per second. Zeroing and deallocating blocks does not count.
    pub bytes_per_s: Option<NonZeroU64>,
}

/// Serves requests in order of arrival, each in the time that the rate determines. While it is busy, the
/// device achieves exactly its rate. A request to an idle device waits only for its own service time; idle
/// time earns no credit for later requests. If both requests and bytes are limited, each request waits for
/// the slower of the two limits.
///
/// A dropped request keeps its place in the queue, so later requests are not served earlier.
pub type Limit<D> = Paced<D, RateLimit>;

/// The pace of a [`Limit`].
pub struct RateLimit(Lock<Servers>);

struct Servers {
    requests: Option<Server>,
    bytes: Option<Server>,
}

/// A server with a queue. It computes times from the start of the busy period, so that rounding errors do not
/// accumulate.
struct Server {
    per_s: NonZeroU64,
    /// Start of the busy period, and the work accepted in it.
    busy: Option<(Instant, u128)>,
}

impl Server {
    fn new(per_s: NonZeroU64) -> Server {
        Server { per_s, busy: None }
    }

    /// Accepts more work, and returns its completion time.
    fn serve(&mut self, now: Instant, work: u64) -> Instant {
        let still_busy = self
            .busy
            .filter(|(since, done)| self.end(*since, *done) > now);
        let (since, before) = still_busy.unwrap_or((now, 0));
        // The busy period may start after `now`: another core may have read its clock later, and taken the lock
        // earlier.
        let all = before.saturating_add(work.into());
        debug_assert!(all >= before);
        self.busy = Some((since, all));
        self.end(since, all)
    }

    fn end(&self, since: Instant, work: u128) -> Instant {
        let per_s = u128::from(self.per_s.get());
        let seconds = u64::try_from(work / per_s).unwrap_or(u64::MAX);
        let nanoseconds = (work % per_s) * 1_000_000_000 / per_s;
        // Less than a second, because the remainder is less than `per_s`.
        later(since, Duration::new(seconds, nanoseconds as u32))
    }
}

impl<D: BlockDevice> Limit<D> {
    /// Limits `inner` to `rate`.
    pub fn new(inner: D, rate: Rate, sleeper: Arc<dyn Sleeper>) -> Limit<D> {
        let requests = rate.requests_per_s.map(Server::new);
        let bytes = rate.bytes_per_s.map(Server::new);
        Paced {
            inner,
            pace: RateLimit(Lock::new(Servers { requests, bytes })),
            sleeper,
        }
    }
}

impl Pace for RateLimit {
    fn begin(&self, now: Instant, work: Work, _: u64) -> Option<Instant> {
        let bytes = match work {
            Work::Read(bytes) | Work::Write(bytes, _) => bytes.end - bytes.start,
            Work::Zero(_) | Work::Flush | Work::Manage => 0,
        };
        let mut servers = self.0.lock();
        let requests = servers.requests.as_mut().map(|server| server.serve(now, 1));
        let bytes = servers
            .bytes
            .as_mut()
            .map(|server| server.serve(now, bytes));
        Some(requests.max(bytes).unwrap_or(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::device::{Durability, Pending};
    use crate::extent::Extent;
    use crate::testing::{ManualClock, Memory, poll, ready};

    const MS: Duration = Duration::from_millis(1);

    fn limited(requests: u64, bytes: u64) -> (Limit<Memory>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        let (requests_per_s, bytes_per_s) = (NonZeroU64::new(requests), NonZeroU64::new(bytes));
        let rate = Rate {
            requests_per_s,
            bytes_per_s,
        };
        (
            Limit::new(Memory::new(64), rate, Arc::clone(&clock) as _),
            clock,
        )
    }

    fn write(limit: &Limit<Memory>, blocks: u64) -> Pending<'_, ()> {
        let data = Buffer::zeroed(blocks as usize * 512).share();
        let mut write = limit.write(Extent::new(0, blocks), data, Durability::Cached);
        assert!(poll(write.as_mut()).is_none());
        write
    }

    #[test]
    fn requests_that_come_together_end_one_service_time_apart() {
        let (limit, clock) = limited(1000, 0);
        let mut writes: Vec<_> = (0..3).map(|_| write(&limit, 1)).collect();
        for ended in 1..=3 {
            clock.pass(MS);
            let now = writes
                .iter_mut()
                .filter_map(|write| poll(write.as_mut()))
                .count();
            assert_eq!((now, limit.inner.requests()), (1, ended));
            drop(writes.remove(0));
        }
    }

    #[test]
    fn bytes_take_as_long_as_their_number_says() {
        let (limit, clock) = limited(0, 512_000);
        let mut long = write(&limit, 3);
        clock.pass(3 * MS - Duration::from_nanos(1));
        assert!(poll(long.as_mut()).is_none());
        clock.pass(Duration::from_nanos(1));
        assert_eq!(poll(long.as_mut()), Some(Ok(())));
    }

    #[test]
    fn of_two_limits_the_slower_one_counts() {
        let (limit, clock) = limited(1000, 512_000);
        let (mut long, mut short) = (write(&limit, 4), write(&limit, 1));
        clock.pass(4 * MS);
        assert!(poll(long.as_mut()).is_some() && poll(short.as_mut()).is_none());
        clock.pass(MS);
        assert!(poll(short.as_mut()).is_some());
    }

    #[test]
    fn an_idle_device_saves_nothing_up() {
        let (limit, clock) = limited(1000, 0);
        clock.pass(1000 * MS);
        let (mut first, mut second) = (write(&limit, 1), write(&limit, 1));
        clock.pass(MS);
        assert!(poll(first.as_mut()).is_some() && poll(second.as_mut()).is_none());
    }

    /// Cores read the time before they take the lock, so their requests can arrive in another order.
    #[test]
    fn a_request_with_an_earlier_time_waits_for_the_one_before_it() {
        let start = Instant::now();
        let mut server = Server::new(NonZeroU64::new(1000).expect("not 0"));
        assert_eq!(server.serve(start + MS, 1), start + 2 * MS);
        assert_eq!(server.serve(start, 1), start + 3 * MS);
    }

    #[test]
    fn no_rounding_adds_up() {
        let start = Instant::now();
        let mut server = Server::new(NonZeroU64::new(7_000_000_000).expect("not 0"));
        let end = (0..7_000_000)
            .map(|_| server.serve(start, 1000))
            .last()
            .expect("served");
        assert_eq!(end - start, Duration::from_secs(1));
    }

    #[test]
    fn a_request_given_up_never_reaches_the_device() {
        let (limit, clock) = limited(1000, 0);
        drop(write(&limit, 1));
        clock.pass(MS);
        assert_eq!(
            (limit.inner.requests(), ready(limit.quiesced())),
            (0, Ok(()))
        );
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let (limit, _) = limited(0, 0);
        assert_eq!(ready(limit.flush()), Ok(()));
    }
}
