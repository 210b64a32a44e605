//! Samples over time, summed over all clients, and thinned for a drawing.

use crate::chart::Point;
use bench::record::CellRun;

/// One interval, all clients together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moment {
    /// When it ended, in seconds since counting began.
    pub(super) at_s: f64,
    pub(super) bytes_per_s: f64,
    /// The maximum over the clients: percentiles cannot be added.
    pub(super) p99_us: f64,
}

/// The samples of a run, summed over its clients.
pub(super) fn over_time(run: &CellRun) -> Vec<Moment> {
    let longest = run.clients.iter().map(|client| client.run.samples.len()).max().unwrap_or(0);
    let moment = |index: usize| {
        let samples = run.clients.iter().filter_map(|client| client.run.samples.get(index));
        samples.fold(Moment::default(), |sum, sample| Moment {
            at_s: sum.at_s.max(sample.at_s),
            bytes_per_s: sum.bytes_per_s + sample.bytes_per_s(),
            p99_us: sum.p99_us.max(sample.p99_us),
        })
    };
    (0..longest).map(moment).collect()
}

/// Reduces the points to `most`: the mean of adjacent ones, with their minimum and maximum, so that no spike
/// is lost.
pub(super) fn thinned(series: &[(f64, f64)], most: usize) -> Vec<Point> {
    let together = series.len().div_ceil(most.max(1)).max(1);
    let point = |part: &[(f64, f64)]| {
        let mean = |of: fn(&(f64, f64)) -> f64| part.iter().map(of).sum::<f64>() / part.len() as f64;
        Point {
            x: mean(|(x, _)| *x),
            y: mean(|(_, y)| *y),
            low: part.iter().map(|(_, y)| *y).fold(f64::MAX, f64::min),
            high: part.iter().map(|(_, y)| *y).fold(0.0, f64::max),
            says: String::new(),
        }
    };
    series.chunks(together).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spike_is_seen_however_few_points_are_drawn() {
        let series: Vec<_> =
            (0..10_000).map(|n| (f64::from(n), if n == 777 { 1000.0 } else { 1.0 })).collect();
        let drawn = thinned(&series, 100);
        assert_eq!(drawn.len(), 100);
        assert_eq!(drawn.iter().map(|point| point.high).fold(0.0, f64::max), 1000.0);
        assert!(drawn.windows(2).all(|pair| pair[0].x < pair[1].x));
    }
}
