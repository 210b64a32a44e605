//! Latencies: a histogram with three significant digits.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// How long something took, each time it happened, to two digits.
///
/// Most parts of most latencies are nothing at all; those are only counted, and a histogram is allocated for
/// the first that is not.
#[derive(Clone, Default)]
pub struct Latency {
    zeros: u64,
    /// In nanoseconds.
    above: Option<Box<Histogram<u64>>>,
    sum_ns: u128,
}

/// 18 minutes: longer than any command is waited for. What takes longer counts as this.
const HIGHEST_NS: u64 = 1 << 40;
/// 28 KiB of counters.
const DIGITS: u8 = 2;

impl Latency {
    /// How often it happened.
    pub fn count(&self) -> u64 {
        self.zeros + self.above.as_ref().map_or(0, |above| above.len())
    }

    /// How long it took on average; nothing if it never happened.
    pub fn mean(&self) -> Duration {
        nanoseconds(self.sum_ns.checked_div(self.count().into()).unwrap_or(0))
    }

    /// How long it took together.
    pub fn sum(&self) -> Duration {
        nanoseconds(self.sum_ns)
    }

    /// What so many of a hundred took no longer than; nothing if it never happened.
    pub fn percentile(&self, percent: f64) -> Duration {
        let Some(above) = &self.above else { return Duration::ZERO };
        let rank = (percent / 100.0).clamp(0.0, 1.0) * self.count() as f64;
        let within = rank - self.zeros as f64;
        if within <= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_nanos(above.value_at_quantile(within / above.len() as f64))
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.above.as_ref().map_or(0, |above| above.max()))
    }

    #[inline]
    pub(super) fn record(&mut self, ns: u64) {
        match ns {
            0 => self.zeros += 1,
            _ => self.record_some(ns),
        }
    }

    fn record_some(&mut self, ns: u64) {
        self.sum_ns += u128::from(ns);
        self.above.get_or_insert_with(|| Box::new(histogram())).saturating_record(ns);
    }

    /// What was recorded after `earlier`, an earlier state of the same.
    pub(super) fn since(&self, earlier: &Latency) -> Latency {
        let above = self.above.clone().map(|mut above| match &earlier.above {
            // Fails if `earlier` has recorded what this has not: it is not of the same session.
            Some(earlier) if above.subtract(&**earlier).is_err() => Box::new(histogram()),
            Some(_) | None => above,
        });
        Latency {
            zeros: self.zeros.saturating_sub(earlier.zeros),
            above: above.filter(|above| !above.is_empty()),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_NS, DIGITS)
        .expect("1 is below the maximum, and 2 digits are allowed")
}

fn nanoseconds(ns: u128) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latency")
            .field("count", &self.count())
            .field("mean", &self.mean())
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}
