//! Service times of requests.

use std::time::{Duration, Instant};

use crate::random::{GOLDEN_GAMMA, Random};
use crate::sleeper::later;

/// Service times: constant, or from a two-point distribution, with stalls if wanted. The time of a request
/// depends on its number and the seed alone, so that a run can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTime {
    /// Service time of most requests.
    pub usual: Duration,
    /// Service time of the slow ones.
    pub tail: Option<Tail>,
    /// Service time of a flush, which a write to stable storage (FUA) takes in addition; `None`: the same as
    /// other requests.
    pub flush: Option<Duration>,
    /// When the device completes nothing.
    pub stalls: Option<Stalls>,
    /// Random seed for the choice of slow requests.
    pub seed: u64,
}

/// Whether a request makes data durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncKind {
    /// No.
    None,
    /// It writes to stable storage (FUA).
    Fua,
    /// It is a flush.
    Flush,
}

/// The second point of a two-point distribution. Every request is slow with the same probability, independent
/// of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Service time of a slow request.
    pub time: Duration,
    /// Slow requests per million.
    pub per_million: u32,
}

/// Periods in which the device completes nothing, as during garbage collection or failover: a request that
/// would complete in one completes at its end.
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
    /// `None` unless `length` is shorter than `every`.
    pub fn new(length: Duration, every: Duration) -> Option<Stalls> {
        (length < every).then_some(Stalls { length, every })
    }

    /// Length of each stall.
    pub fn length(self) -> Duration {
        self.length
    }

    /// Time from the start of one stall to the start of the next.
    pub fn every(self) -> Duration {
        self.every
    }

    /// The completion time of a request that would complete at `end`, on a device whose first request came at
    /// `first`.
    fn defer(self, end: Instant, first: Instant) -> Instant {
        let since = end.saturating_duration_since(first).as_nanos();
        let into = since % self.every.as_nanos();
        let stalled = since >= self.every.as_nanos() && into < self.length.as_nanos();
        // Shorter than `length`, so it fits.
        let rest = self.length.saturating_sub(Duration::from_nanos(into as u64));
        if stalled { later(end, rest) } else { end }
    }
}

impl ServiceTime {
    /// The same time for all requests.
    pub fn fixed(usual: Duration) -> ServiceTime {
        ServiceTime { usual, tail: None, flush: None, stalls: None, seed: 0 }
    }

    /// The completion time of request `number`, which came at `now`, on a device whose first request came at
    /// `first`.
    pub(super) fn end(&self, number: u64, sync: SyncKind, now: Instant, first: Instant) -> Instant {
        let end = later(now, self.service_time(number, sync));
        self.stalls.map_or(end, |stalls| stalls.defer(end, first))
    }

    fn service_time(&self, number: u64, sync: SyncKind) -> Duration {
        match (sync, self.flush) {
            (SyncKind::None, _) | (_, None) => self.base_time(number),
            (SyncKind::Fua, Some(flush)) => self.base_time(number).saturating_add(flush),
            (SyncKind::Flush, Some(flush)) => flush,
        }
    }

    fn base_time(&self, number: u64) -> Duration {
        match self.tail {
            Some(tail) if per_million(self.seed, number) < tail.per_million => tail.time,
            Some(_) | None => self.usual,
        }
    }
}

/// The pseudo-random number of this position, below a million.
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
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn as_many_requests_are_slow_as_were_asked_for() {
        let tail = Tail { time: 20 * MS, per_million: 10_000 };
        let times = ServiceTime { tail: Some(tail), ..ServiceTime::fixed(MS) };
        let slow = (0..1_000_000).filter(|number| times.base_time(*number) == tail.time).count();
        // Four standard deviations of a binomial distribution: sqrt(10^6 * 0.01 * 0.99) is 99.5.
        assert!(slow.abs_diff(10_000) < 400, "{slow}");
    }

    #[test]
    fn a_seed_gives_the_same_requests_again_and_another_seed_others() {
        let tail = Some(Tail { time: 20 * MS, per_million: 500_000 });
        let slow = |seed| {
            let times = ServiceTime { tail, seed, ..ServiceTime::fixed(MS) };
            (0..100).map(|number| times.base_time(number)).collect::<Vec<_>>()
        };
        assert_eq!(slow(7), slow(7));
        assert_ne!(slow(7), slow(8));
    }

    #[test]
    fn what_would_end_in_a_stall_ends_with_it() {
        let stalls = Stalls::new(100 * MS, 1000 * MS);
        let times = ServiceTime { stalls, ..ServiceTime::fixed(5 * MS) };
        let first = Instant::now();
        let end = |came: u32| (times.end(0, SyncKind::None, first + came * MS, first) - first).as_millis();
        assert_eq!([0, 994, 995, 1050, 1094, 1095, 1999].map(end), [5, 999, 1100, 1100, 1100, 1100, 2100]);
    }

    #[test]
    fn stalls_without_time_between_them_are_refused() {
        assert_eq!(Stalls::new(MS, MS), None);
    }
}
