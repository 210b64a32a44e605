//! Scales: where on an axis a value is, and which values are written beside it.

/// How values are spread along an axis. Positions run from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// Equal differences are equally far apart.
    Linear {
        /// The value at 0.
        low: f64,
        /// The value at 1.
        high: f64,
    },
    /// Equal ratios are equally far apart.
    Log {
        /// 2 for lengths, 10 for all else: what its ticks are powers of.
        base: f64,
        /// The value at 0, above 0.
        low: f64,
        /// The value at 1.
        high: f64,
    },
    /// Shares of all requests, each nine as long as the one before: 0, 90 %, 99 %, 99.9 %. What is rare and slow gets
    /// as much room as what is common and fast.
    Nines {
        /// Nines up to the end.
        count: f64,
    },
}

impl Scale {
    /// From 0 to a round number above all values.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>) -> Scale {
        let most = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let step = nice_step(if most > 0.0 { most } else { 1.0 }, 5);
        Scale::Linear { low: 0.0, high: (most / step).ceil().max(1.0) * step }
    }

    /// Over the values, as they are.
    pub(crate) fn over(low: f64, high: f64) -> Scale {
        Scale::Linear { low, high: if high > low { high } else { low + 1.0 } }
    }

    /// Over all values above 0, to powers of two.
    pub(crate) fn log2(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = ends(values);
        let (low, high) = (low.log2().floor(), high.log2().ceil());
        Scale::Log { base: 2.0, low: low.exp2(), high: if high > low { high } else { low + 1.0 }.exp2() }
    }

    /// Over all values above 0, to 1, 2 or 5 times a power of ten.
    pub(crate) fn log10(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = ends(values);
        let (low, high) = (one_two_five(low, f64::floor), one_two_five(high, f64::ceil));
        Scale::Log { base: 10.0, low, high: if high > low { high } else { low * 10.0 } }
    }

    /// Logarithmic where a linear axis would press the small values into one line, linear otherwise.
    pub(crate) fn from_zero_or_log(values: &[f64]) -> Scale {
        let (low, high) = ends(values.iter().copied());
        if high / low > 40.0 { Scale::log10([low, high]) } else { Scale::from_zero(values.iter().copied()) }
    }

    /// Where a value is, from 0 to 1; what is beyond an end is at that end.
    pub(crate) fn at(self, value: f64) -> f64 {
        let at = match self {
            Scale::Linear { low, high } => (value - low) / (high - low),
            Scale::Log { low, high, .. } => {
                if value <= 0.0 {
                    return 0.0;
                }
                (value / low).ln() / (high / low).ln()
            }
            Scale::Nines { count } => nines(value) / count,
        };
        if at.is_finite() { at.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Values to be written beside the axis, about `about` of them, in rising order.
    pub(crate) fn ticks(self, about: usize) -> Vec<f64> {
        let about = about.max(2);
        match self {
            Scale::Linear { low, high } => {
                let step = nice_step(high - low, about);
                let first = (low / step).ceil() as i64;
                let last = (high / step + 1e-9).floor() as i64;
                (first..=last).map(|index| index as f64 * step).collect()
            }
            Scale::Log { base, low, high } => log_ticks(base, low, high, about),
            Scale::Nines { count } => {
                (0..=count.floor() as i32).map(|nine| 1.0 - 10_f64.powi(-nine)).collect()
            }
        }
    }
}

/// Nines of a share: 1 for 90 %, 2 for 99 %.
pub(crate) fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-12).log10()
}

/// The smallest and the largest value above 0.
fn ends(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let positive = values.into_iter().filter(|value| value.is_finite() && *value > 0.0);
    let (low, high) = positive.fold((f64::MAX, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    if high > 0.0 { (low, high) } else { (1.0, 10.0) }
}

/// The next of 1, 2, 5 times a power of ten, below or above.
fn one_two_five(value: f64, towards: fn(f64) -> f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let up = towards(0.5) > 0.0;
    // A value that is such a number but for rounding is taken for it.
    let slack = 1e-9 * value;
    let found = if up {
        steps.iter().find(|step| **step >= value - slack)
    } else {
        steps.iter().rev().find(|step| **step <= value + slack)
    };
    found.copied().unwrap_or(value)
}

/// 1, 2 or 5 times a power of ten, so that about `about` of them fill the range.
fn nice_step(range: f64, about: usize) -> f64 {
    one_two_five(range / about as f64, f64::ceil)
}

fn log_ticks(base: f64, low: f64, high: f64, about: usize) -> Vec<f64> {
    let powers = |step: f64| {
        let count = ((high / low).log(base) / step).floor() as i32;
        let first = low.log(base).ceil();
        (0..=count).map(|n| base.powf(first + f64::from(n) * step)).filter(|v| *v <= high * 1.001).collect()
    };
    let decades = (high / low).log(base);
    if base == 10.0 && decades * 3.0 <= about as f64 * 1.5 {
        let multiples = |power: i32| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power));
        let all = (low.log10().floor() as i32..=high.log10().ceil() as i32).flat_map(multiples);
        return all.filter(|value| *value >= low * 0.999 && *value <= high * 1.001).collect();
    }
    powers((decades / about as f64).ceil().max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_ends_at_a_round_number() {
        let scale = Scale::from_zero([3.0, 87.0]);
        assert_eq!(scale, Scale::Linear { low: 0.0, high: 100.0 });
        assert_eq!(scale.ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(scale.at(50.0), 0.5);
    }

    #[test]
    fn lengths_are_at_powers_of_two() {
        let scale = Scale::log2([512.0, 8_388_608.0]);
        assert_eq!(
            scale.ticks(8),
            [512.0, 2048.0, 8192.0, 32768.0, 131072.0, 524288.0, 2097152.0, 8388608.0]
        );
        assert!((scale.at(65536.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn short_logarithmic_axes_have_ticks_between_powers_of_ten() {
        let ticks = Scale::log10([60.0, 900.0]).ticks(6);
        assert_eq!(
            ticks.iter().map(|tick| tick.round() as u32).collect::<Vec<_>>(),
            [50, 100, 200, 500, 1000]
        );
        assert_eq!(Scale::log10([1e-3, 1e6]).ticks(5).len(), 5);
    }

    #[test]
    fn each_nine_is_as_long_as_the_one_before() {
        let scale = Scale::Nines { count: 4.0 };
        let places = [0.0, 0.9, 0.99, 0.999, 0.9999].map(|share| (scale.at(share) * 100.0).round());
        assert_eq!(places, [0.0, 25.0, 50.0, 75.0, 100.0]);
    }

    #[test]
    fn values_that_are_no_values_stay_on_the_chart() {
        for scale in
            [Scale::from_zero([]), Scale::log10([0.0, f64::NAN]), Scale::log2([]), Scale::over(5.0, 5.0)]
        {
            let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e300];
            assert!(values.iter().all(|value| (0.0..=1.0).contains(&scale.at(*value))), "{scale:?}");
            assert!((2..40).contains(&scale.ticks(5).len()), "{scale:?}");
        }
    }
}
