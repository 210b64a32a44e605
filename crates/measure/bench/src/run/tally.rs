//! Counters of a run: samples of equal length, and their total.
//!
//! ```text
//!   0        warm-up       │ sample │ sample │ sample │      times in nanoseconds
//!   └──────────────────────┴────────┴────────┴────────┘
//!     counted like a sample,  each closed by the first request that completes after it,
//!     and discarded           or otherwise by the clock
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use block::DeviceError;
use stats::Latencies;

use crate::Failure;
use crate::access::Kind;
use crate::record::{Flow, Run, Sample};

/// The times and limits of a run. The run ends at the first limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    /// The warm-up time, which is not counted.
    pub warm_up: Duration,
    /// The longest time that is counted.
    pub max: Duration,
    /// The length of a sample.
    pub interval: Duration,
    /// The run ends with the request that reaches this number of bytes.
    pub bytes: Option<u64>,
    /// The run ends with the request that reaches this number of requests.
    pub requests: Option<u64>,
    /// The start time, so that several runs start together. If it is `None` or in the past, the run starts
    /// immediately.
    pub start: Option<Instant>,
    /// Timeout of requests that are outstanding at the end. After it, they count as failed.
    pub patience: Duration,
}

impl Orders {
    /// Creates orders that count for this time, in samples of a tenth of a second.
    pub fn for_time(time: Duration) -> Orders {
        Orders {
            warm_up: Duration::ZERO,
            max: time,
            interval: Duration::from_millis(100),
            bytes: None,
            requests: None,
            start: None,
            patience: PATIENCE,
        }
    }
}

/// Whether a run continues after a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// The run continues.
    On,
    /// The run ends with the current sample.
    Stop,
}

/// The number of failures after which the run ends.
pub const FAILURES_MAX: u64 = 100;
/// Default timeout of requests that are outstanding at the end.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The counted part of a run, in nanoseconds from its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    warm_up: u64,
    end: u64,
    interval: u64,
    bytes_max: u64,
    requests_max: u64,
}

/// Minimum length of a sample. Shorter samples would cost more CPU time than the requests that they count.
const INTERVAL_NS_MIN: u128 = 1_000_000;

impl Window {
    pub(super) fn of(orders: &Orders) -> Window {
        // Limit each time to more than a hundred years, so that sums do not overflow.
        let ns = |ns: u128| u64::try_from(ns).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        let warm_up = ns(orders.warm_up.as_nanos());
        Window {
            warm_up,
            end: warm_up + ns(orders.max.as_nanos()),
            interval: ns(orders.interval.as_nanos().max(INTERVAL_NS_MIN)),
            bytes_max: orders.bytes.unwrap_or(u64::MAX),
            requests_max: orders.requests.unwrap_or(u64::MAX),
        }
    }
}

/// A request that succeeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completed {
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    /// Latency from submission to the device, in nanoseconds.
    pub(super) service: u64,
    /// Latency from the due time; open loop only.
    pub(super) response: Option<u64>,
}

/// The counters of a run.
pub(super) struct Tally {
    window: Window,
    phase: Phase,
    /// The start of the current sample, and its scheduled end.
    from: u64,
    boundary: u64,
    sample: Counts,
    total: Counts,
    /// The time that `total` covers.
    counted: u64,
    open: bool,
    samples: Vec<Sample>,
    closed: VecDeque<Sample>,
    under_way: u64,
    /// The time at which `under_way` last changed.
    changed: u64,
    errors: u64,
    mismatches: u64,
    first_failure: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    WarmingUp,
    Counting,
    Over,
}

impl Tally {
    pub(super) fn new(window: Window, open: bool) -> Tally {
        Tally {
            window,
            phase: Phase::WarmingUp,
            from: 0,
            boundary: window.warm_up,
            sample: Counts::new(),
            total: Counts::new(),
            counted: 0,
            open,
            samples: Vec::new(),
            closed: VecDeque::new(),
            under_way: 0,
            changed: 0,
            errors: 0,
            mismatches: 0,
            first_failure: None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(super) fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Returns the next time at which samples may have to be closed, or `None` once the run is over.
    pub(super) fn boundary(&self) -> Option<u64> {
        (!self.is_over()).then_some(self.boundary)
    }

    /// Counts a request that has been submitted to a device.
    pub(super) fn handed(&mut self, now: u64) {
        self.advance(now);
        self.hold(now);
        self.under_way += 1;
    }

    /// Counts a request that has completed, successfully or not.
    pub(super) fn returned(&mut self, now: u64) {
        self.advance(now);
        self.hold(now);
        self.under_way -= 1;
    }

    /// Counts a successful request.
    pub(super) fn completed(&mut self, now: u64, completed: Completed) {
        if self.is_over() {
            return;
        }
        self.sample.add(completed);
        let (ios, bytes) = (
            self.total.ios() + self.sample.ios(),
            self.total.bytes() + self.sample.bytes(),
        );
        if self.phase == Phase::Counting
            && (ios >= self.window.requests_max || bytes >= self.window.bytes_max)
        {
            self.end(now);
        }
    }

    /// Counts a failed request.
    pub(super) fn failed(&mut self, now: u64, failure: Failure) {
        if failure.is_mismatch() {
            self.mismatches += 1;
        } else {
            self.errors += 1;
        }
        self.first_failure.get_or_insert(failure);
        if !self.is_over() && self.errors + self.mismatches >= FAILURES_MAX {
            self.end(now);
        }
    }

    /// Stops waiting for outstanding requests, and counts them as failed.
    pub(super) fn give_up(&mut self) {
        self.errors += self.under_way;
        if self.under_way > 0 {
            self.first_failure
                .get_or_insert(Failure::Device(DeviceError::TimedOut));
        }
        self.under_way = 0;
    }

    /// Closes all samples whose interval has ended.
    pub(super) fn advance(&mut self, now: u64) {
        while now >= self.boundary && !self.is_over() {
            self.close(self.boundary);
        }
    }

    /// Ends the run with the last closed sample.
    pub(super) fn stop(&mut self) {
        self.phase = Phase::Over;
    }

    /// Returns the next closed sample that has not been returned yet.
    pub(super) fn next_closed(&mut self) -> Option<Sample> {
        self.closed.pop_front()
    }

    /// Ends the run now, with a shorter last sample.
    fn end(&mut self, now: u64) {
        self.hold(now);
        self.close(now);
        self.phase = Phase::Over;
    }

    fn close(&mut self, at: u64) {
        self.hold(at);
        if self.phase == Phase::Counting {
            self.total.merge(&self.sample);
            self.counted = at - self.window.warm_up;
            // A sample of less than half the interval would be noise among the others. Its requests are in
            // the total.
            let long = at - self.from >= self.window.interval / 2;
            if long || (self.samples.is_empty() && at > self.from) {
                let sample = self
                    .sample
                    .sample(self.from..at, self.window.warm_up, self.open);
                self.samples.push(sample);
                self.closed.push_back(sample);
            }
        }
        self.sample.clear();
        self.from = at;
        self.boundary = (at + self.window.interval).min(self.window.end);
        self.phase = if at >= self.window.end {
            Phase::Over
        } else {
            Phase::Counting
        };
    }

    /// Adds the time since `under_way` last changed to the time of outstanding requests.
    fn hold(&mut self, now: u64) {
        // Often, no time has passed because a request starts when another one ends.
        if now > self.changed {
            self.sample.held_ns += u128::from(self.under_way) * u128::from(now - self.changed);
            self.changed = now;
        }
    }

    /// Returns the result of the run, and leaves the tally empty.
    pub(super) fn take_run(&mut self, backlog_max: u64) -> Run {
        let under_way_mean = self.total.held_ns as f64 / self.counted.max(1) as f64;
        Run {
            seconds: self.counted as f64 / 1e9,
            under_way_mean,
            reads: self.total.reads.flow(),
            writes: self.total.writes.flow(),
            backlog_max,
            errors: self.errors,
            mismatches: self.mismatches,
            first_failure: self.first_failure.map(|failure| failure.to_string()),
            samples: std::mem::take(&mut self.samples),
        }
    }
}

/// The counters of an interval.
struct Counts {
    reads: Direction,
    writes: Direction,
    /// The sum of the times for which requests were outstanding.
    held_ns: u128,
}

/// The counters of one direction.
struct Direction {
    ios: u64,
    bytes: u64,
    service: Latencies,
    response: Latencies,
}

impl Counts {
    fn new() -> Counts {
        Counts {
            reads: Direction::new(),
            writes: Direction::new(),
            held_ns: 0,
        }
    }

    fn add(&mut self, completed: Completed) {
        let direction = match completed.kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
        };
        direction.ios += 1;
        direction.bytes += completed.bytes;
        direction.service.record(completed.service);
        if let Some(response) = completed.response {
            direction.response.record(response);
        }
    }

    fn ios(&self) -> u64 {
        self.reads.ios + self.writes.ios
    }

    fn bytes(&self) -> u64 {
        self.reads.bytes + self.writes.bytes
    }

    fn merge(&mut self, other: &Counts) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.held_ns += other.held_ns;
    }

    fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.held_ns = 0;
    }

    /// Converts the counters to the sample of a time range. `counting_from` is the start of the first sample.
    fn sample(&self, time: std::ops::Range<u64>, counting_from: u64, open: bool) -> Sample {
        let latencies = self
            .reads
            .seen(open)
            .histogram()
            .merged(&self.writes.seen(open).histogram());
        let us = |ns: u64| ns as f64 / 1e3;
        let seconds = (time.end - time.start) as f64 / 1e9;
        Sample {
            at_s: (time.end - counting_from) as f64 / 1e9,
            seconds,
            reads: self.reads.ios,
            writes: self.writes.ios,
            read_bytes: self.reads.bytes,
            written_bytes: self.writes.bytes,
            p50_us: us(latencies.quantile_ns(0.5)),
            p99_us: us(latencies.quantile_ns(0.99)),
            max_us: us(latencies.max_ns()),
            under_way: self.held_ns as f64 / 1e9 / seconds,
        }
    }
}

impl Direction {
    fn new() -> Direction {
        Direction {
            ios: 0,
            bytes: 0,
            service: Latencies::default(),
            response: Latencies::default(),
        }
    }

    /// Returns the latency that users experience.
    fn seen(&self, open: bool) -> &Latencies {
        if open { &self.response } else { &self.service }
    }

    fn merge(&mut self, other: &Direction) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.service.add(&other.service);
        self.response.add(&other.response);
    }

    fn clear(&mut self) {
        self.ios = 0;
        self.bytes = 0;
        self.service.clear();
        self.response.clear();
    }

    fn flow(&self) -> Flow {
        Flow {
            ios: self.ios,
            bytes: self.bytes,
            service: self.service.histogram(),
            response: self.response.histogram(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn tally(warm_up_ms: u64, max_ms: u64) -> Tally {
        let ms = Duration::from_millis;
        let orders = Orders {
            warm_up: ms(warm_up_ms),
            interval: ms(10),
            ..Orders::for_time(ms(max_ms))
        };
        Tally::new(Window::of(&orders), false)
    }

    fn read(tally: &mut Tally, from: u64, to: u64) {
        tally.handed(from);
        tally.returned(to);
        let service = to - from;
        tally.completed(
            to,
            Completed {
                kind: Kind::Read,
                bytes: 512,
                service,
                response: None,
            },
        );
    }

    #[test]
    fn a_request_belongs_to_the_sample_it_ends_in() {
        let mut tally = tally(0, 30);
        tally.advance(0);
        read(&mut tally, MS, 9 * MS);
        read(&mut tally, 9 * MS, 10 * MS);
        tally.advance(30 * MS);
        let samples = tally.take_run(0).samples;
        let seen: Vec<_> = samples
            .iter()
            .map(|sample| (sample.at_s, sample.reads))
            .collect();
        assert_eq!(seen, [(0.01, 1), (0.02, 1), (0.03, 0)]);
    }

    #[test]
    fn what_is_under_way_counts_for_as_long_as_it_is() {
        let mut tally = tally(0, 40);
        tally.advance(0);
        tally.handed(5 * MS);
        read(&mut tally, 20 * MS, 22 * MS);
        tally.advance(40 * MS);
        let run = tally.take_run(0);
        let under_way: Vec<f64> = run.samples.iter().map(|sample| sample.under_way).collect();
        assert_eq!(under_way, [0.5, 1.0, 1.2, 1.0]);
        assert!(
            (run.under_way_mean - 0.925).abs() < 1e-9,
            "{}",
            run.under_way_mean
        );
    }

    #[test]
    fn the_warm_up_is_forgotten() {
        let mut tally = tally(20, 20);
        read(&mut tally, 0, 19 * MS);
        read(&mut tally, 19 * MS, 25 * MS);
        tally.advance(40 * MS);
        let run = tally.take_run(0);
        assert_eq!(
            (run.reads.ios, run.seconds, run.samples[0].at_s),
            (1, 0.02, 0.01)
        );
        assert_eq!(run.under_way_mean, 0.25);
    }

    #[test]
    fn a_last_sample_may_be_shorter_and_what_is_much_shorter_is_none() {
        for (max_ms, seconds) in [
            (25, [0.01, 0.01, 0.005].as_slice()),
            (24, &[0.01, 0.01]),
            (4, &[0.004]),
        ] {
            let mut tally = tally(0, max_ms);
            tally.advance(0);
            read(&mut tally, (max_ms - 2) * MS, (max_ms - 1) * MS);
            tally.advance(99 * MS);
            let run = tally.take_run(0);
            assert_eq!(
                run.samples
                    .iter()
                    .map(|sample| sample.seconds)
                    .collect::<Vec<_>>(),
                seconds
            );
            assert_eq!((run.ios(), run.seconds), (1, max_ms as f64 / 1e3));
        }
    }

    #[test]
    fn the_first_failure_is_kept_and_wrong_data_is_not_an_error_of_the_device() {
        let mut tally = tally(0, 10);
        tally.failed(0, Failure::Device(DeviceError::NotReady));
        tally.failed(0, Failure::Damaged { lba: block::Lba(3) });
        let run = tally.take_run(0);
        assert_eq!((run.errors, run.mismatches), (1, 1));
        assert_eq!(
            run.first_failure,
            Some(Failure::Device(DeviceError::NotReady).to_string())
        );
    }
}
