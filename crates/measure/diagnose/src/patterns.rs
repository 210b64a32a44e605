//! Finds patterns in the distribution of times that a median does not show: an end that is repeatedly
//! unresponsive, and delayed acknowledgements.

use bench::record::Histogram;

use crate::Timed;

/// A distribution in which most times are normal, and some are many times as long, as if the peer had been
/// suspended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// The mean of the normal times, in seconds.
    pub(super) usual_s: f64,
    pub(super) mean_s: f64,
    pub(super) longest_s: f64,
    /// The excess of the long times, as a share of the total time: the share of the time in which the peer is
    /// unresponsive.
    pub(super) away: f64,
}

/// The quantile that determines the normal time. The shortest tenth is normal even if most requests are late.
const USUAL_QUANTILE: f64 = 0.1;
/// A time is late if it exceeds the normal time by this factor plus `SLICE_S`, which is shorter than a
/// scheduler's time slice.
const USUAL_FACTOR: f64 = 3.0;
const SLICE_S: f64 = 0.000_2;
/// Minimum number of times in a distribution.
const COUNT_MIN: u64 = 20;

/// Returns `None` if there are too few times.
pub(super) fn spread(times: &Histogram) -> Option<Spread> {
    if times.count() < COUNT_MIN {
        return None;
    }
    let bound_s = seconds(times.quantile_ns(USUAL_QUANTILE)) * USUAL_FACTOR + SLICE_S;
    let (usual, late): (Vec<_>, Vec<_>) = times
        .0
        .iter()
        .copied()
        .partition(|(ns, _)| seconds(*ns) <= bound_s);
    let usual_s = mean_s(&usual)?;
    let mean_s = mean_s(&times.0)?;
    let more_s: f64 = late
        .iter()
        .map(|(ns, count)| (seconds(*ns) - usual_s) * *count as f64)
        .sum();
    let longest_s = seconds(times.max_ns());
    (mean_s > 0.0).then(|| Spread {
        usual_s,
        mean_s,
        longest_s,
        away: more_s / (mean_s * times.count() as f64),
    })
}

/// Returns the share of the time of all requests for which they stood still, and the longest time in seconds. A request
/// stood still if it took many times as long as the median.
pub(super) fn stood_still(times: &Histogram) -> Option<(f64, f64)> {
    if times.count() < COUNT_MIN {
        return None;
    }
    let median_s = seconds(times.quantile_ns(0.5));
    let bound_s = (median_s * STOOD_STILL_FACTOR).max(median_s + STOOD_STILL_MIN_S);
    let (longer, _): (Vec<_>, Vec<_>) = times
        .0
        .iter()
        .copied()
        .partition(|(ns, _)| seconds(*ns) > median_s * BETWEEN_FACTOR);
    let (still, between): (Vec<_>, Vec<_>) = longer
        .into_iter()
        .partition(|(ns, _)| seconds(*ns) > bound_s);
    let excess_s = |of: &[(u64, u64)]| -> f64 {
        of.iter()
            .map(|(ns, count)| (seconds(*ns) - median_s) * *count as f64)
            .sum()
    };
    let (lost_s, all_s) = (excess_s(&still), mean_s(&times.0)? * times.count() as f64);
    (lost_s > excess_s(&between)).then(|| (lost_s / all_s, seconds(times.max_ns())))
}

/// The minimum time of a request that stood still: a multiple of the median, and longer than the median by this time.
const STOOD_STILL_FACTOR: f64 = 3.5;
const STOOD_STILL_MIN_S: f64 = 0.1;
/// Between this multiple of the median and the minimum, requests lose less time. A disk that serves many random requests
/// together also takes several times as long for the unlucky ones, but its times have no gap.
const BETWEEN_FACTOR: f64 = 2.0;

/// Times of which some cluster at the delay of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stalls {
    /// The share of times in the cluster or above it.
    pub(super) share: f64,
    /// The median of the cluster, in seconds.
    pub(super) held_s: f64,
    /// The mean of the other, much shorter times; `None` if there are too few.
    pub(super) others_s: Option<f64>,
}

impl Stalls {
    pub(super) fn mean_s(&self) -> f64 {
        self.share * self.held_s + (1.0 - self.share) * self.others_s.unwrap_or(self.held_s)
    }
}

/// Ranges of the delay of an acknowledgement. Linux delays it for 40 ms (TCP_DELACK_MIN) and up to a few
/// ticks, Windows and others for 200 ms.
const HELD_BACK_S: [(f64, f64); 2] = [(0.036, 0.056), (0.19, 0.225)];
/// The minimum share of stalled requests. With one of twenty, the mean is more than twice the normal time.
const SHARE_MIN: f64 = 0.05;
/// The minimum share of other requests. If there are fewer, they date from the time before the receiver
/// started to delay acknowledgements (quick acknowledgements, `tcp(7)`).
const OTHERS_MIN: f64 = 0.1;

/// Returns `None` if there is no such cluster, or if an exchange could take that long without a stall.
pub(super) fn stalls(times: &Histogram, exchange_s: f64) -> Option<Stalls> {
    HELD_BACK_S
        .into_iter()
        .filter(|(from_s, _)| exchange_s < from_s / 2.0)
        .find_map(|(from_s, to_s)| {
            let within = |range: std::ops::Range<f64>| -> Vec<(u64, u64)> {
                times
                    .0
                    .iter()
                    .copied()
                    .filter(|(ns, _)| range.contains(&seconds(*ns)))
                    .collect()
            };
            let (from_s, to_s) = (from_s + exchange_s, to_s + exchange_s);
            let (shorter, beside) = (within(0.0..from_s / 2.0), within(from_s / 2.0..from_s));
            let (crowd, later) = (within(from_s..to_s), within(to_s..f64::INFINITY));
            let share = (count(&crowd) + count(&later)) / times.count().max(COUNT_MIN / 2) as f64;
            let others = count(&shorter) / times.count().max(1) as f64 >= OTHERS_MIN;
            let others_s = mean_s(&shorter).filter(|_| others);
            // The cluster must be isolated; otherwise it may be the middle of a wide distribution.
            let crowded = count(&crowd) >= 4.0 * count(&beside) && count(&crowd) >= count(&later);
            let held_s = Histogram(crowd).quantile_ns(0.5) as f64 / 1e9;
            (share >= SHARE_MIN && crowded).then_some(Stalls {
                share: share.min(1.0),
                held_s,
                others_s,
            })
        })
}

fn count(times: &[(u64, u64)]) -> f64 {
    times.iter().map(|(_, count)| *count as f64).sum()
}

fn mean_s(times: &[(u64, u64)]) -> Option<f64> {
    let count: f64 = times.iter().map(|(_, count)| *count as f64).sum();
    let sum_s: f64 = times
        .iter()
        .map(|(ns, count)| seconds(*ns) * *count as f64)
        .sum();
    (count > 0.0).then(|| sum_s / count)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

// Numbers with their measurement uncertainty.

/// A number that was measured, or computed from measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) value: f64,
    /// The lower end of the 95 % interval.
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The relative uncertainty of a rate that was measured in only one round. On a quiet machine, rounds of a
/// second scatter by less.
const ONE_ROUND: f64 = 0.2;

impl Estimate {
    /// Returns the median of rounds, or `None` if no data was transferred in half of them.
    pub(super) fn of_rounds(rates: &[f64]) -> Option<Estimate> {
        let value = stats::median(rates);
        let known = stats::median_interval(rates);
        let (low, high) = known.map_or(
            (value * (1.0 - ONE_ROUND), value * (1.0 + ONE_ROUND)),
            |i| (i.low, i.high),
        );
        (value > 0.0 && value.is_finite()).then_some(Estimate {
            value,
            low: low.max(0.0),
            high,
        })
    }

    /// Returns the median of times, in seconds, or `None` if it is implausible: a target may return anything.
    pub(super) fn of_times(timed: &Timed) -> Option<Estimate> {
        let seconds = |us: f64| us / 1e6;
        let sound = timed.median_us > 0.0
            && [timed.median_us, timed.low_us, timed.high_us]
                .iter()
                .all(|us| us.is_finite());
        sound.then(|| Estimate {
            value: seconds(timed.median_us),
            low: seconds(timed.low_us.clamp(0.0, timed.median_us)),
            high: seconds(timed.high_us.max(timed.median_us)),
        })
    }

    /// Returns the distance to the farther end of the interval, as a share of the value.
    pub(super) fn uncertainty(self) -> f64 {
        (self.high - self.value).max(self.value - self.low) / self.value
    }

    /// Returns half of the interval, as a share of the value.
    pub(super) fn relative_error(self) -> f64 {
        if self.value > 0.0 {
            (self.high - self.low) / 2.0 / self.value
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::record::Histogram;

    fn times(of: &[(u64, u64)]) -> Histogram {
        Histogram(of.iter().map(|(us, count)| (us * 1000, *count)).collect())
    }

    #[test]
    fn an_end_that_is_there_for_half_of_the_time_is_away_for_the_other() {
        // In each period of 10 ms, about fifty responses take 100 µs, and then one takes 5 ms longer.
        let spread = spread(&times(&[(100, 490), (5100, 10)])).unwrap();
        assert!((spread.away - 0.5).abs() < 0.02, "{spread:?}");
        assert!((spread.usual_s - 0.0001).abs() < 1e-9);
    }

    #[test]
    fn a_few_times_show_no_distribution() {
        assert_eq!(spread(&times(&[(100, 10), (9000, 5)])), None);
        assert_eq!(stalls(&times(&[]), 0.0), None);
    }

    #[test]
    fn a_crowd_at_40_ms_is_an_acknowledgement_held_back() {
        let stalls = stalls(&times(&[(300, 60), (40_500, 40)]), 0.0002).unwrap();
        assert!(
            (stalls.share - 0.4).abs() < 1e-9 && stalls.others_s < Some(0.001),
            "{stalls:?}"
        );
    }

    #[test]
    fn a_wide_distribution_and_a_long_way_have_no_such_crowd() {
        let wide: Vec<(u64, u64)> = (1..80).map(|ms| (ms * 1000, 10)).collect();
        assert_eq!(stalls(&times(&wide), 0.0002), None);
        assert_eq!(stalls(&times(&[(40_500, 100)]), 0.04), None);
    }

    #[test]
    fn nothing_that_moved_is_no_rate() {
        assert_eq!(Estimate::of_rounds(&[]), None);
        assert_eq!(Estimate::of_rounds(&[0.0, 0.0, 5.0]), None);
        assert_eq!(Estimate::of_rounds(&[f64::NAN]), None);
    }

    #[test]
    fn one_round_says_little() {
        assert_eq!(
            Estimate::of_rounds(&[100.0]),
            Some(Estimate {
                value: 100.0,
                low: 80.0,
                high: 120.0
            })
        );
    }

    #[test]
    fn times_that_nothing_can_take_are_not_believed() {
        let timed = |median_us| Timed {
            times: Histogram::default(),
            median_us,
            low_us: median_us,
            high_us: median_us,
        };
        assert_eq!(Estimate::of_times(&timed(0.0)), None);
        assert_eq!(Estimate::of_times(&timed(f64::INFINITY)), None);
        assert_eq!(
            Estimate::of_times(&timed(250.0)).map(|time| time.value),
            Some(0.000_25)
        );
    }
}
