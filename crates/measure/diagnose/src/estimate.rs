//! A number with what its measurement leaves open.

use super::Timed;

/// A number that was measured, or follows from some that were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) value: f64,
    /// From here to `high` is the 95 % interval.
    pub(super) low: f64,
    pub(super) high: f64,
}

/// How far a rate may be off that was measured in one round only: rounds of a second scatter by less on a quiet machine.
const ONE_ROUND: f64 = 0.2;

impl Estimate {
    /// The median of rounds; `None` if nothing moved in half of them.
    pub(super) fn of_rounds(rates: &[f64]) -> Option<Estimate> {
        let value = stats::median(rates);
        let known = stats::median_interval(rates);
        let (low, high) =
            known.map_or((value * (1.0 - ONE_ROUND), value * (1.0 + ONE_ROUND)), |i| (i.low, i.high));
        (value > 0.0 && value.is_finite()).then_some(Estimate { value, low: low.max(0.0), high })
    }

    /// The median of times, in seconds; `None` if it is no time that anything takes: a target may lie.
    pub(super) fn of_times(timed: &Timed) -> Option<Estimate> {
        let seconds = |us: f64| us / 1e6;
        let sound = timed.median_us > 0.0
            && [timed.median_us, timed.low_us, timed.high_us].iter().all(|us| us.is_finite());
        sound.then(|| Estimate {
            value: seconds(timed.median_us),
            low: seconds(timed.low_us.clamp(0.0, timed.median_us)),
            high: seconds(timed.high_us.max(timed.median_us)),
        })
    }

    /// How far the farther end of the interval is from it, as a share of it.
    pub(super) fn uncertainty(self) -> f64 {
        (self.high - self.value).max(self.value - self.low) / self.value
    }

    /// By how much it may be off, as a share of it.
    pub(super) fn relative_error(self) -> f64 {
        if self.value > 0.0 { (self.high - self.low) / 2.0 / self.value } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::record::Histogram;

    #[test]
    fn nothing_that_moved_is_no_rate() {
        assert_eq!(Estimate::of_rounds(&[]), None);
        assert_eq!(Estimate::of_rounds(&[0.0, 0.0, 5.0]), None);
        assert_eq!(Estimate::of_rounds(&[f64::NAN]), None);
    }

    #[test]
    fn one_round_says_little() {
        assert_eq!(Estimate::of_rounds(&[100.0]), Some(Estimate { value: 100.0, low: 80.0, high: 120.0 }));
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
        assert_eq!(Estimate::of_times(&timed(250.0)).map(|time| time.value), Some(0.000_25));
    }
}
