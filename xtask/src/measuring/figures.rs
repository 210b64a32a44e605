//! What came of the rounds: medians and spreads.

use super::client::Measured;

/// The median of each figure by itself.
pub(crate) fn median(rounds: &[Measured]) -> Option<Measured> {
    let of = |figure: fn(&Measured) -> f64| middle(rounds.iter().map(figure).collect());
    Some(Measured {
        iops: of(|round| round.iops)?,
        mb_per_s: of(|round| round.mb_per_s)?,
        server_cpu_us_per_io: of(|round| round.server_cpu_us_per_io)?,
        client_cpu_us_per_io: of(|round| round.client_cpu_us_per_io)?,
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
        let measured = |iops, cpu| Measured {
            iops,
            mb_per_s: iops,
            server_cpu_us_per_io: cpu,
            client_cpu_us_per_io: cpu,
        };
        let rounds = [measured(100.0, 1.0), measured(3.0, 9.0), measured(110.0, 2.0)];
        let median = median(&rounds).expect("three rounds");
        assert_eq!((median.iops, median.server_cpu_us_per_io), (100.0, 2.0));
        assert_eq!(middle(vec![1.0, 3.0]), Some(2.0));
        assert_eq!(middle(Vec::new()), None);
    }
}
