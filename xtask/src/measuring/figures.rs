//! What came of the rounds: medians and spreads.

use super::client::{Latency, Measured};

/// The median of each figure by itself.
pub(crate) fn median(rounds: &[Measured]) -> Option<Measured> {
    let of = |figure: fn(&Measured) -> f64| middle(rounds.iter().map(figure).collect());
    Some(Measured {
        iops: of(|round| round.iops)?,
        mb_per_s: of(|round| round.mb_per_s)?,
        latency_us: median_latency(rounds),
        idle_looks_per_io: middle(rounds.iter().filter_map(|round| round.idle_looks_per_io).collect()),
        server_cpu_us_per_io: of(|round| round.server_cpu_us_per_io)?,
        client_cpu_us_per_io: of(|round| round.client_cpu_us_per_io)?,
    })
}

fn median_latency(rounds: &[Measured]) -> Option<Latency> {
    let of = |figure: fn(Latency) -> f64| {
        middle(rounds.iter().filter_map(|round| round.latency_us.map(figure)).collect())
    };
    Some(Latency {
        p50: of(|latency| latency.p50)?,
        p99: of(|latency| latency.p99)?,
        p999: of(|latency| latency.p999)?,
    })
}

/// The slowest and the fastest round.
pub(crate) fn spread(rounds: &[Measured]) -> String {
    let slowest = rounds.iter().map(|round| round.iops).fold(f64::INFINITY, f64::min);
    let fastest = rounds.iter().map(|round| round.iops).fold(0.0, f64::max);
    format!("{slowest:.0} – {fastest:.0}")
}

/// The median.
pub(crate) fn middle(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let upper = figures.get(figures.len() / 2)?;
    let lower = figures.get((figures.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_round_does_not_count() {
        let measured = |iops, cpu| Measured::of_rate(iops, cpu);
        let rounds = [measured(100.0, 1.0), measured(3.0, 9.0), measured(110.0, 2.0)];
        let median = median(&rounds).expect("three rounds");
        assert_eq!((median.iops, median.server_cpu_us_per_io), (100.0, 2.0));
        assert_eq!(middle(vec![1.0, 3.0]), Some(2.0));
        assert_eq!(middle(Vec::new()), None);
    }
}
