//! How it went.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Failure;

/// What a run of a workload measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Requests that ended well, per second.
    pub iops: f64,
    /// Data they moved, in 10^6 bytes per second.
    pub mb_per_s: f64,
    /// How long they took.
    pub latency_us: Latency,
    /// CPU time of this side per request that ended well, in microseconds; `None` until
    /// [`Measurement::with_cpu`] says it.
    pub client_cpu_us_per_io: Option<f64>,
    /// Requests that ended well.
    pub ios: u64,
    /// Those of them that read.
    pub reads: u64,
    /// Requests that failed or never ended.
    pub errors: u64,
    /// Requests that ended well, as the device said, and returned wrong data.
    pub mismatches: u64,
    /// What was wrong first.
    pub first_failure: Option<Failure>,
    /// How long requests were counted, in seconds.
    pub seconds: f64,
}

/// How long requests took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Half of them took no longer.
    pub p50: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
    /// 999 of 1000 took no longer.
    pub p999: f64,
    /// On average.
    pub mean: f64,
    /// The longest.
    pub max: f64,
}

impl Measurement {
    /// The same with the CPU time that this side spent on the run.
    pub fn with_cpu(mut self, spent: Duration) -> Measurement {
        self.client_cpu_us_per_io = (self.ios > 0).then(|| spent.as_secs_f64() * 1e6 / self.ios as f64);
        self
    }
}

/// What is counted while a run goes on.
pub(crate) struct Tally {
    latency_ns: Histogram<u64>,
    reads: u64,
    errors: u64,
    mismatches: u64,
    first_failure: Option<Failure>,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS);
        Tally {
            latency_ns: latency_ns.expect("1 is below the maximum, and 3 digits are allowed"),
            reads: 0,
            errors: 0,
            mismatches: 0,
            first_failure: None,
        }
    }

    pub(crate) fn ended(&mut self, read: bool, took: Duration) {
        self.reads += u64::from(read);
        self.latency_ns.saturating_record(took.as_nanos().min(u128::from(LATENCY_NS_MAX)) as u64);
    }

    pub(crate) fn failed(&mut self, failure: Failure) {
        if failure.is_mismatch() {
            self.mismatches += 1;
        } else {
            self.errors += 1;
        }
        self.first_failure.get_or_insert(failure);
    }

    /// So many requests were still under way when nobody wanted to wait any longer.
    pub(crate) fn never_ended(&mut self, requests: u64) {
        self.errors += requests;
        if requests > 0 {
            self.first_failure.get_or_insert(Failure::Device(block::DeviceError::TimedOut));
        }
    }

    pub(crate) fn failures(&self) -> u64 {
        self.errors + self.mismatches
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        self.latency_ns.add(&other.latency_ns).expect("all tallies have the same bounds");
        self.reads += other.reads;
        self.errors += other.errors;
        self.mismatches += other.mismatches;
        self.first_failure = self.first_failure.or(other.first_failure);
    }

    pub(crate) fn measurement(&self, elapsed: Duration, block_bytes: u32) -> Measurement {
        let ios = self.latency_ns.len();
        let seconds = elapsed.as_secs_f64();
        let iops = if seconds > 0.0 { ios as f64 / seconds } else { 0.0 };
        Measurement {
            iops,
            mb_per_s: iops * f64::from(block_bytes) / 1e6,
            latency_us: self.latency(),
            client_cpu_us_per_io: None,
            ios,
            reads: self.reads,
            errors: self.errors,
            mismatches: self.mismatches,
            first_failure: self.first_failure,
            seconds,
        }
    }

    fn latency(&self) -> Latency {
        if self.latency_ns.is_empty() {
            return Latency::default();
        }
        let at = |quantile| self.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            mean: self.latency_ns.mean() / 1e3,
            max: self.latency_ns.max() as f64 / 1e3,
        }
    }
}

/// Longer than any command may take; longer ones count as this.
const LATENCY_NS_MAX: u64 = 100_000_000_000;
/// A latency is known to one part in a thousand, which takes 220 kB a histogram.
const SIGNIFICANT_DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use block::DeviceError;

    #[test]
    fn rates_and_percentiles_follow_from_the_requests() {
        let mut tally = Tally::new();
        (1..=1000).for_each(|us| tally.ended(true, Duration::from_micros(us)));
        let measured = tally.measurement(Duration::from_secs(2), 4096).with_cpu(Duration::from_millis(5));
        assert_eq!((measured.ios, measured.iops, measured.mb_per_s), (1000, 500.0, 2.048));
        assert!((measured.latency_us.p50 - 500.0).abs() < 1.0, "{:?}", measured.latency_us);
        assert!((measured.latency_us.p99 - 990.0).abs() < 1.0, "{:?}", measured.latency_us);
        assert_eq!(measured.client_cpu_us_per_io, Some(5.0));
    }

    #[test]
    fn nothing_measured_is_not_a_division_by_zero() {
        let measured = Tally::new().measurement(Duration::ZERO, 4096).with_cpu(Duration::from_secs(1));
        assert_eq!((measured.iops, measured.client_cpu_us_per_io), (0.0, None));
    }

    #[test]
    fn the_first_failure_is_kept_and_wrong_data_is_not_an_error_of_the_device() {
        let mut tally = Tally::new();
        tally.failed(Failure::Device(DeviceError::NotReady));
        tally.failed(Failure::Damaged { lba: block::Lba(3) });
        let measured = tally.measurement(Duration::from_secs(1), 512);
        assert_eq!((measured.errors, measured.mismatches), (1, 1));
        assert_eq!(measured.first_failure, Some(Failure::Device(DeviceError::NotReady)));
    }
}
