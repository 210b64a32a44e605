//! How long each request takes.

use std::time::{Duration, Instant};

use crate::sleeper::later;

/// How long requests take: all as long, or a few of them longer, with pauses in between if that is wanted. What a
/// request takes depends on its number and the seed alone, so that a run can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTime {
    /// What a request takes.
    pub usual: Duration,
    /// What a few of them take instead.
    pub tail: Option<Tail>,
    /// What a flush takes instead, and a write that is to be on stable storage (FUA) beside, if that is not the same as
    /// for any other request.
    pub flush: Option<Duration>,
    /// When nothing ends at all.
    pub stalls: Option<Stalls>,
    /// Which of the requests are the slow ones.
    pub seed: u64,
}

/// Whether a request is to make data last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasting {
    /// It is not.
    No,
    /// What it writes is to be on stable storage when it ends.
    Too,
    /// It is a flush, and nothing else.
    Only,
}

/// The second point of a two-point distribution. Each request is one of the slow ones with the same chance, whatever
/// those before it were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// What a slow request takes.
    pub time: Duration,
    /// How many of a million requests are slow.
    pub per_million: u32,
}

/// Pauses of a device that has stopped for a while, as one does that collects garbage or fails over: nothing ends in
/// them, and what would have ended in one ends with it.
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
    /// `None` unless there is time between two of them.
    pub fn new(length: Duration, every: Duration) -> Option<Stalls> {
        (length < every).then_some(Stalls { length, every })
    }

    /// How long each is.
    pub fn length(self) -> Duration {
        self.length
    }

    /// From the beginning of one to that of the next.
    pub fn every(self) -> Duration {
        self.every
    }

    /// When a request ends that would have ended at `end`, on a device whose first request came at `first`.
    fn put_off(self, end: Instant, first: Instant) -> Instant {
        let since = end.saturating_duration_since(first).as_nanos();
        let into = since % self.every.as_nanos();
        let stalled = since >= self.every.as_nanos() && into < self.length.as_nanos();
        // Shorter than `length`, so that it fits.
        let rest = self.length.saturating_sub(Duration::from_nanos(into as u64));
        if stalled { later(end, rest) } else { end }
    }
}

impl ServiceTime {
    /// The same for all.
    pub fn fixed(usual: Duration) -> ServiceTime {
        ServiceTime { usual, tail: None, flush: None, stalls: None, seed: 0 }
    }

    /// When request `number` ends, which came at `now`, on a device whose first request came at `first`.
    pub(super) fn end(&self, number: u64, lasting: Lasting, now: Instant, first: Instant) -> Instant {
        let end = later(now, self.takes(number, lasting));
        self.stalls.map_or(end, |stalls| stalls.put_off(end, first))
    }

    fn takes(&self, number: u64, lasting: Lasting) -> Duration {
        match (lasting, self.flush) {
            (Lasting::No, _) | (_, None) => self.of(number),
            (Lasting::Too, Some(flush)) => self.of(number).saturating_add(flush),
            (Lasting::Only, Some(flush)) => flush,
        }
    }

    fn of(&self, number: u64) -> Duration {
        match self.tail {
            Some(tail) if per_million(self.seed, number) < tail.per_million => tail.time,
            Some(_) | None => self.usual,
        }
    }
}

/// A number below a million, as good as drawn by lot: SplitMix64 (Steele, Lea and Flood, 2014), whose outputs are a
/// function of their position.
fn per_million(seed: u64, number: u64) -> u32 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let share = (u128::from(z ^ (z >> 31)) * 1_000_000) >> 64;
    share as u32
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
        let slow = (0..1_000_000).filter(|number| times.of(*number) == tail.time).count();
        // Four standard deviations of a binomial distribution: sqrt(10^6 * 0.01 * 0.99) is 99.5.
        assert!(slow.abs_diff(10_000) < 400, "{slow}");
    }

    #[test]
    fn a_seed_gives_the_same_requests_again_and_another_seed_others() {
        let tail = Some(Tail { time: 20 * MS, per_million: 500_000 });
        let slow = |seed| {
            let times = ServiceTime { tail, seed, ..ServiceTime::fixed(MS) };
            (0..100).map(|number| times.of(number)).collect::<Vec<_>>()
        };
        assert_eq!(slow(7), slow(7));
        assert_ne!(slow(7), slow(8));
    }

    #[test]
    fn what_would_end_in_a_stall_ends_with_it() {
        let stalls = Stalls::new(100 * MS, 1000 * MS);
        let times = ServiceTime { stalls, ..ServiceTime::fixed(5 * MS) };
        let first = Instant::now();
        let end = |came: u32| (times.end(0, Lasting::No, first + came * MS, first) - first).as_millis();
        assert_eq!([0, 994, 995, 1050, 1094, 1095, 1999].map(end), [5, 999, 1100, 1100, 1100, 1100, 2100]);
    }

    #[test]
    fn stalls_without_time_between_them_are_refused() {
        assert_eq!(Stalls::new(MS, MS), None);
    }
}
