//! The figure that a cell is about, with its error.

use serde::Serialize;

use bench::plan::Cell;
use bench::record::{CellRun, Histogram};
use stats::{MeanEstimate, mean, series_mean, standard_deviation};

/// What is compared of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Requests a second: more are better.
    Iops,
    /// The median response time in microseconds, where the rate was given: less is better.
    ResponseUs,
}

/// What an error was estimated from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// From how the runs of each side differ.
    Runs,
    /// From the samples of a single run on one of the sides, or on both. It does not tell how much another run would
    /// have differed, so that what it calls real may be the difference of two runs and not of two systems.
    Samples,
}

/// A figure in one record.
pub(super) struct Measured {
    /// As it is shown.
    pub(super) value: f64,
    /// Its logarithm with the error; `None` if that cannot be told.
    pub(super) log: Option<MeanEstimate>,
    pub(super) basis: Basis,
}

impl Figure {
    /// What a cell is about: if any of its roles has a rate that is given, time.
    pub(super) fn of(cell: &Cell) -> Figure {
        let open = cell.roles.iter().any(|role| role.workload.pace.is_open());
        if open { Figure::ResponseUs } else { Figure::Iops }
    }

    /// Whether a change in this direction is for the better.
    pub(super) fn is_better(self, difference: f64) -> bool {
        match self {
            Figure::Iops => difference > 0.0,
            Figure::ResponseUs => difference < 0.0,
        }
    }

    /// A difference of this size for the worse.
    pub(super) fn worse_by(self, size: f64) -> f64 {
        match self {
            Figure::Iops => -size,
            Figure::ResponseUs => size,
        }
    }

    fn of_run(self, run: &CellRun) -> f64 {
        match self {
            Figure::Iops => run.iops(),
            Figure::ResponseUs => response(run).quantile_ns(0.5) as f64 / 1000.0,
        }
    }

    /// The same, sample by sample. Of several clients' medians the mean stands for all of them.
    fn of_samples(self, run: &CellRun) -> Vec<f64> {
        match self {
            Figure::Iops => run.iops_samples(),
            Figure::ResponseUs => {
                let clients = run.clients.len().max(1) as f64;
                let sums = run.sample_by_sample(|sample| sample.p50_us);
                // Where nothing ended there is no median.
                sums.into_iter().map(|sum| sum / clients).filter(|us| *us > 0.0).collect()
            }
        }
    }
}

/// The figure of a cell in one record, of the runs that count; `None` where nothing was measured.
pub(super) fn measured(runs: &[&CellRun], figure: Figure) -> Option<Measured> {
    let values: Vec<f64> = runs.iter().map(|run| figure.of_run(run)).collect();
    if values.iter().any(|value| !value.is_finite() || *value <= 0.0) {
        return None;
    }
    match runs {
        [] => None,
        [run] => Some(of_samples(values[0], &figure.of_samples(run))),
        _ => Some(of_runs(&values)),
    }
}

fn of_runs(values: &[f64]) -> Measured {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let count = logs.len() as f64;
    let error = standard_deviation(&logs) / count.sqrt();
    let log = MeanEstimate { mean: mean(&logs), error, freedom: count - 1.0 };
    Measured { value: log.mean.exp(), log: Some(log), basis: Basis::Runs }
}

/// The whole run's value, with the error in proportion that the mean of its samples has.
fn of_samples(value: f64, samples: &[f64]) -> Measured {
    let log =
        series_mean(samples).filter(|series| series.mean > 0.0 && series.freedom >= 1.0).map(|series| {
            MeanEstimate { mean: value.ln(), error: series.error / series.mean, freedom: series.freedom }
        });
    Measured { value, log, basis: Basis::Samples }
}

fn response(run: &CellRun) -> Histogram {
    let flows = run.clients.iter().flat_map(|client| [&client.run.reads, &client.run.writes]);
    flows.fold(Histogram::default(), |sum, flow| sum.merged(&flow.response))
}
