//! What the distribution of times shows, and their median does not: an end that is away again and again, and an
//! acknowledgement that is held back.

use crate::record::Histogram;

/// Times of which some are as usual and some many times as long, as if nobody had been there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// The mean of those that are as usual, in seconds.
    pub(super) usual_s: f64,
    /// The mean of all.
    pub(super) mean_s: f64,
    /// The longest.
    pub(super) longest_s: f64,
    /// What the long ones took more than usual, as a share of the time of all: whoever is asked all the time finds nobody
    /// there for this share of the time.
    pub(super) away: f64,
}

/// The shortest tenth says what is usual, even where most are late.
const USUAL_QUANTILE: f64 = 0.1;
/// What is as usual scatters by this factor; a scheduler's time slice is longer than the time on top.
const USUAL_FACTOR: f64 = 3.0;
const SLICE_S: f64 = 0.000_2;
/// Fewer show no distribution.
const COUNT_MIN: u64 = 20;

/// `None` if there are too few to tell.
pub(super) fn spread(times: &Histogram) -> Option<Spread> {
    if times.count() < COUNT_MIN {
        return None;
    }
    let bound_s = seconds(times.quantile_ns(USUAL_QUANTILE)) * USUAL_FACTOR + SLICE_S;
    let (usual, late): (Vec<_>, Vec<_>) =
        times.0.iter().copied().partition(|(ns, _)| seconds(*ns) <= bound_s);
    let usual_s = mean_s(&usual)?;
    let mean_s = mean_s(&times.0)?;
    let more_s: f64 = late.iter().map(|(ns, count)| (seconds(*ns) - usual_s) * *count as f64).sum();
    let longest_s = seconds(times.max_ns());
    (mean_s > 0.0).then(|| Spread {
        usual_s,
        mean_s,
        longest_s,
        away: more_s / (mean_s * times.count() as f64),
    })
}

/// Times that crowd where an acknowledgement is held back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stalls {
    /// Those that are there, of all.
    pub(super) share: f64,
    /// Between these they are, in seconds.
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    /// The mean of the others that are much shorter; 0 if there are none.
    pub(super) others_s: f64,
}

/// Linux holds an acknowledgement back for 40 ms (TCP_DELACK_MIN) and what the next tick adds, Windows and others for 200
/// ms.
const HELD_BACK_S: [(f64, f64); 2] = [(0.038, 0.054), (0.195, 0.225)];
/// One of twenty, and the mean is more than twice what it should be.
const SHARE_MIN: f64 = 0.05;

/// `None` if there is no such crowd, or if a round trip could take that long by itself.
pub(super) fn stalls(times: &Histogram, round_trip_s: f64) -> Option<Stalls> {
    let all = times.count().max(COUNT_MIN) as f64;
    HELD_BACK_S.into_iter().filter(|(from_s, _)| round_trip_s < from_s / 2.0).find_map(|(from_s, to_s)| {
        let within = |ns: u64| (from_s..to_s).contains(&seconds(ns));
        let crowd: u64 = times.0.iter().filter(|(ns, _)| within(*ns)).map(|(_, count)| count).sum();
        let shorter: Vec<_> = times.0.iter().copied().filter(|(ns, _)| seconds(*ns) < from_s / 2.0).collect();
        // Around it there is nothing: otherwise it is just the middle of something wide.
        let beside: u64 = times
            .0
            .iter()
            .filter(|(ns, _)| (from_s / 2.0..from_s).contains(&seconds(*ns)))
            .map(|(_, count)| count)
            .sum();
        let share = crowd as f64 / all;
        (share >= SHARE_MIN && beside < crowd / 4).then(|| Stalls {
            share,
            from_s,
            to_s,
            others_s: mean_s(&shorter).unwrap_or(0.0),
        })
    })
}

fn mean_s(times: &[(u64, u64)]) -> Option<f64> {
    let count: f64 = times.iter().map(|(_, count)| *count as f64).sum();
    let sum_s: f64 = times.iter().map(|(ns, count)| seconds(*ns) * *count as f64).sum();
    (count > 0.0).then(|| sum_s / count)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(of: &[(u64, u64)]) -> Histogram {
        Histogram(of.iter().map(|(us, count)| (us * 1000, *count)).collect())
    }

    #[test]
    fn an_end_that_is_there_for_half_of_the_time_is_away_for_the_other() {
        // In 10 ms: fifty answers in 100 µs each, then one that takes 5 ms more.
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
        assert!((stalls.share - 0.4).abs() < 1e-9 && stalls.others_s < 0.001, "{stalls:?}");
    }

    #[test]
    fn a_wide_distribution_and_a_long_way_have_no_such_crowd() {
        let wide: Vec<(u64, u64)> = (1..80).map(|ms| (ms * 1000, 10)).collect();
        assert_eq!(stalls(&times(&wide), 0.0002), None);
        assert_eq!(stalls(&times(&[(40_500, 100)]), 0.04), None);
    }
}
