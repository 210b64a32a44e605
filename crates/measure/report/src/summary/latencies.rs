//! Latencies out of histograms.

use super::Latencies;
use bench::record::{ClientRun, Flow, Histogram};

/// How long requests took, of all clients and both directions together.
pub(super) fn service<'a>(clients: impl Iterator<Item = &'a ClientRun>) -> Latencies {
    Latencies::of(&merged(clients, |flow| &flow.service))
}

/// The same from when they were meant to be made; `None` in a closed loop.
pub(super) fn response<'a>(clients: impl Iterator<Item = &'a ClientRun>) -> Option<Latencies> {
    let all = merged(clients, |flow| &flow.response);
    (!all.is_empty()).then(|| Latencies::of(&all))
}

fn merged<'a>(clients: impl Iterator<Item = &'a ClientRun>, of: fn(&Flow) -> &Histogram) -> Histogram {
    clients
        .flat_map(|client| [of(&client.run.reads), of(&client.run.writes)])
        .fold(Histogram::default(), |sum, histogram| sum.merged(histogram))
}

impl Latencies {
    /// The quantiles that are shown: not a number if no request completed.
    pub fn of(histogram: &Histogram) -> Latencies {
        let us = |ns: u64| if histogram.is_empty() { f64::NAN } else { ns as f64 / 1000.0 };
        let quantile = |share| us(histogram.quantile_ns(share));
        Latencies {
            mean_us: if histogram.is_empty() { f64::NAN } else { histogram.mean_ns() / 1000.0 },
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            p9999_us: quantile(0.9999),
            max_us: us(histogram.max_ns()),
        }
    }
}
