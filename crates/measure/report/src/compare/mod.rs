//! Compares two records, and finds statistically significant differences.
//!
//! One figure of each cell is compared: the rate in a closed loop, or the median response time in an open
//! loop, whose rate is configured. Differences are computed from logarithms, so they are ratios: half the
//! speed and twice the speed have the same distance from 0.
//!
//! If both sides have two or more runs, Welch's test compares the runs, so the autocorrelation of the samples
//! within a run does not matter. If a side has only one run, the test uses the error of its samples,
//! corrected for autocorrelation ([`series_mean`](stats::series_mean)). This error does not include the
//! variation between runs, which [`Basis`] indicates. Holm's rule ([`holm`]) covers all cells together: if
//! two systems are equal, a comparison of many cells reports any difference in at most 5 of 100 cases.

#[cfg(test)]
mod tests;
mod words;

use bench::Extent;
use bench::plan::{Cell, Span};
use bench::record::{CellRun, Fact, Group, Histogram, Record};
use serde::{Serialize, Serializer};
use stats::{Interval, MeanEstimate, Welch, holm, mean, series_mean, standard_deviation, welch};

use crate::summary;
use crate::summary::{CellSummary, Flag};
pub use words::listed;

/// A comparison of two records, A and B. "Better" and "worse" describe B relative to A.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Cells in both records, in the order of A.
    pub cells: Vec<CellComparison>,
    /// Names of cells only in A.
    pub only_a: Vec<String>,
    /// Names of cells only in B.
    pub only_b: Vec<String>,
    /// Differences in the environment.
    pub environment: Vec<Difference>,
}

/// The comparison of a cell that is in both records.
#[derive(Clone, Debug, Serialize)]
pub struct CellComparison {
    /// The name of the cell.
    pub cell: String,
    /// The compared figure.
    pub figure: Figure,
    /// The figure in A.
    pub a: Side,
    /// The figure in B.
    pub b: Side,
    /// The result of the comparison.
    pub judgement: Judgement,
}

/// The figures of a cell in one of the records.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// The compared figure: requests per second, or microseconds. With several runs, this is their geometric
    /// mean.
    pub value: f64,
    /// Bytes per second: the median of the runs.
    pub bytes_per_s: f64,
    /// The 99th percentile of the latency (in an open loop, of the response time), in microseconds. It is
    /// shown, but not part of the test.
    pub p99_us: f64,
    /// The number of runs.
    pub runs: usize,
    /// The number of requests that failed or returned wrong data.
    pub faults: u64,
    /// Warnings; in JSON, as sentences.
    #[serde(serialize_with = "sentences")]
    pub flags: Vec<Flag>,
}

/// The result for a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "change")]
pub enum Judgement {
    /// B is significantly better.
    Better(Change),
    /// B is significantly worse.
    Worse(Change),
    /// The difference is not significant. There may be a difference smaller than
    /// [`Change::detectable_percent`].
    Undecided(Change),
    /// The cells have the same name, but different workloads.
    OtherWorkload,
    /// One side was not measured, or has too few measurements for an estimate of its error.
    TooLittle,
}

/// The difference between two figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The difference of B from A, in percent of A; negative if B is less.
    pub percent: f64,
    /// The lower end of the confidence interval of the difference, at this cell's significance level, in
    /// percent.
    pub low_percent: f64,
    /// The upper end of the interval, in percent.
    pub high_percent: f64,
    /// The p-value: the probability of a difference at least this large if there is no true difference.
    pub p: f64,
    /// The significance level for `p`: 0.05, reduced according to the number of cells.
    pub alpha: f64,
    /// The smallest change for the worse that four of five such comparisons would detect, in percent of A:
    /// negative for a rate, positive for a time.
    pub detectable_percent: f64,
    /// The basis of the error estimates.
    pub basis: Basis,
}

/// Compares two records.
pub fn compare(a: &Record, b: &Record) -> Comparison {
    let (of_a, of_b) = (summary::of(a), summary::of(b));
    let runs = [summary::counted_runs(a), summary::counted_runs(b)];
    let pairs: Vec<Pair<'_>> = of_a
        .iter()
        .filter_map(|one| {
            let other = of_b.iter().find(|other| other.cell.name == one.cell.name)?;
            let figure = Figure::of(&one.cell);
            let sides = runs
                .each_ref()
                .map(|runs| measured(runs.get(one.cell.name.as_str())?, figure));
            Some(Pair::new(one, other, figure, sides))
        })
        .collect();
    let ps: Vec<f64> = pairs
        .iter()
        .filter_map(|pair| pair.test.map(Welch::p))
        .collect();
    let mut levels = holm(&ps).into_iter();
    let cells = pairs.iter().map(|pair| pair.judged(&mut levels)).collect();
    Comparison {
        cells,
        only_a: missing(&of_a, &of_b),
        only_b: missing(&of_b, &of_a),
        environment: differences(a, b, &pairs),
    }
}

impl Comparison {
    /// Returns the cells that are significantly worse in B by more than this percentage, and the cells with
    /// failed requests or wrong data only in B.
    pub fn worse(&self, above_percent: f64) -> impl Iterator<Item = &CellComparison> {
        self.cells
            .iter()
            .filter(move |cell| cell.is_worse(above_percent))
    }

    /// Returns a table with remarks, for a terminal with this number of columns.
    pub fn terminal(&self, width: usize) -> String {
        words::terminal(self, width)
    }

    /// Returns the table and remarks as Markdown, for a merge request.
    pub fn markdown(&self) -> String {
        words::markdown(self)
    }

    /// Returns the number of cells that could be compared.
    pub fn judged(&self) -> usize {
        self.cells
            .iter()
            .filter(|cell| cell.judgement.change().is_some())
            .count()
    }
}

impl CellComparison {
    /// Returns whether the cell is worse in B, as in [`Comparison::worse`].
    pub fn is_worse(&self, above_percent: f64) -> bool {
        let slower = match self.judgement {
            Judgement::Worse(change) => change.percent.abs() > above_percent,
            Judgement::Better(_)
            | Judgement::Undecided(_)
            | Judgement::OtherWorkload
            | Judgement::TooLittle => false,
        };
        slower || self.has_new_faults()
    }

    /// Returns whether requests failed or returned wrong data only in B.
    pub fn has_new_faults(&self) -> bool {
        self.b.faults > 0 && self.a.faults == 0
    }
}

impl Judgement {
    /// Returns the difference, if the cell could be compared.
    pub fn change(&self) -> Option<Change> {
        match self {
            Judgement::Better(change) | Judgement::Worse(change) | Judgement::Undecided(change) => {
                Some(*change)
            }
            Judgement::OtherWorkload | Judgement::TooLittle => None,
        }
    }
}

/// The same cell in both records, before the significance levels of all cells are known.
struct Pair<'a> {
    a: &'a CellSummary,
    b: &'a CellSummary,
    figure: Figure,
    sides: [Option<Measured>; 2],
    alike: bool,
    /// The comparison of the logarithms; `None` without an estimate of the error.
    test: Option<Welch>,
}

impl<'a> Pair<'a> {
    fn new(
        a: &'a CellSummary,
        b: &'a CellSummary,
        figure: Figure,
        sides: [Option<Measured>; 2],
    ) -> Pair<'a> {
        let alike = a.cell.is_comparable(&b.cell);
        let test = match &sides {
            [Some(one), Some(other)] if alike => {
                one.log.zip(other.log).map(|(one, other)| welch(one, other))
            }
            _ => None,
        };
        Pair {
            a,
            b,
            figure,
            sides,
            alike,
            test,
        }
    }

    fn judged(&self, levels: &mut impl Iterator<Item = f64>) -> CellComparison {
        let judgement = match self.test {
            None if !self.alike => Judgement::OtherWorkload,
            None => Judgement::TooLittle,
            // Each test has its own level.
            Some(test) => self.judgement(test, levels.next().unwrap_or_default()),
        };
        let [a, b] = [(self.a, &self.sides[0]), (self.b, &self.sides[1])]
            .map(|(summary, measured)| side(summary, measured));
        CellComparison {
            cell: self.a.cell.name.clone(),
            figure: self.figure,
            a,
            b,
            judgement,
        }
    }

    fn judgement(&self, test: Welch, alpha: f64) -> Judgement {
        let Interval { low, high } = test.interval(alpha);
        let single = self
            .sides
            .iter()
            .flatten()
            .any(|side| side.basis == Basis::Samples);
        let change = Change {
            percent: percent(test.difference),
            low_percent: percent(low),
            high_percent: percent(high),
            p: test.p(),
            alpha,
            detectable_percent: percent(self.figure.worse_by(test.detectable(alpha))),
            basis: if single { Basis::Samples } else { Basis::Runs },
        };
        match (test.p() <= alpha, self.figure.is_better(test.difference)) {
            (false, _) => Judgement::Undecided(change),
            (true, true) => Judgement::Better(change),
            (true, false) => Judgement::Worse(change),
        }
    }
}

/// Converts a difference of logarithms to percent.
fn percent(log: f64) -> f64 {
    // Larger values are clamped, so that JSON can represent the result as a number.
    const PERCENT_MAX: f64 = 1e6;
    (100.0 * log.exp_m1()).min(PERCENT_MAX)
}

fn side(summary: &CellSummary, measured: &Option<Measured>) -> Side {
    Side {
        value: measured.as_ref().map_or(0.0, |measured| measured.value),
        bytes_per_s: summary.bytes_per_s.median,
        p99_us: summary.response.as_ref().unwrap_or(&summary.service).p99_us,
        runs: summary.runs,
        faults: summary.errors.saturating_add(summary.mismatches),
        flags: summary.flags.clone(),
    }
}

fn sentences<S: Serializer>(flags: &[Flag], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(flags.iter().map(Flag::to_string))
}

fn missing(from: &[CellSummary], among: &[CellSummary]) -> Vec<String> {
    let is_missing =
        |cell: &&CellSummary| !among.iter().any(|other| other.cell.name == cell.cell.name);
    from.iter()
        .filter(is_missing)
        .map(|cell| cell.cell.name.clone())
        .collect()
}

// Differences between the environments of two measurements.

/// A fact that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The name of the fact: `kernel`, `MTU`, `FirstBurstLength`.
    pub name: String,
    /// The value in A, if known.
    pub a: Option<String>,
    /// The value in B, if known.
    pub b: Option<String>,
}

/// Compares the storage, the program, the place of the requests and all facts. Returns those that differ, in
/// the order of A, followed by facts that are known only in B.
fn differences(a: &Record, b: &Record, pairs: &[Pair<'_>]) -> Vec<Difference> {
    let about = |name: &str, of: fn(&Record) -> String| Difference {
        name: name.to_owned(),
        a: Some(of(a)),
        b: Some(of(b)),
    };
    let head = [
        about("storage", |record| record.subject.place.clone()),
        about("kind of storage", |record| record.subject.kind.clone()),
        about("product", |record| {
            record
                .subject
                .product
                .clone()
                .unwrap_or_else(|| "unknown".to_owned())
        }),
        about("capacity in bytes", |record| {
            record.subject.bytes.to_string()
        }),
        about("logical block in bytes", |record| {
            record.subject.block_bytes.to_string()
        }),
        about("suite", |record| record.suite.name.clone()),
        about("linerate", |record| record.version.clone()),
    ];
    let known: Vec<(Group, &str)> = a.environment.0.iter().map(key).collect();
    let added = b
        .environment
        .0
        .iter()
        .map(key)
        .filter(|key| !known.contains(key));
    let facts = known
        .iter()
        .copied()
        .chain(added)
        .map(|(group, name)| Difference {
            name: name.to_owned(),
            a: a.environment.value(group, name).map(str::to_owned),
            b: b.environment.value(group, name).map(str::to_owned),
        });
    let alike = || pairs.iter().filter(|pair| pair.alike);
    let sides: [(u64, Vec<&Cell>); 2] = [
        (a.subject.bytes, alike().map(|pair| &pair.a.cell).collect()),
        (b.subject.bytes, alike().map(|pair| &pair.b.cell).collect()),
    ];
    let place = [
        placed("part of the storage", part, &sides),
        placed("alignment", alignment, &sides),
    ];
    head.into_iter()
        .chain(place)
        .chain(facts)
        .filter(|one| one.a != one.b)
        .collect()
}

/// Compares a property of the compared cells, for the size of each storage and the cells measured there. Each
/// value is listed once.
fn placed(name: &str, of: fn(&Cell, u64) -> String, sides: &[(u64, Vec<&Cell>); 2]) -> Difference {
    let [a, b] = sides.each_ref().map(|(device_bytes, cells)| {
        let mut values: Vec<String> = Vec::new();
        for value in cells.iter().map(|cell| of(cell, *device_bytes)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        Some(values.join(", "))
    });
    Difference {
        name: name.to_owned(),
        a,
        b,
    }
}

/// Returns the smallest part of the storage that contains the parts of all clients.
fn part(cell: &Cell, device_bytes: u64) -> String {
    let whole = Extent::of(Span::default(), device_bytes);
    let parts = cell
        .roles
        .iter()
        .map(|role| Extent::of(role.workload.span, device_bytes));
    let part = parts.reduce(Extent::around).filter(|part| *part != whole);
    part.unwrap_or(Extent::ALL).to_string()
}

fn alignment(cell: &Cell, _: u64) -> String {
    let accesses = cell.roles.iter().flat_map(|role| &role.workload.accesses);
    let mut aligns: Vec<String> = accesses.map(|access| access.align.to_string()).collect();
    aligns.dedup();
    aligns.join(", ")
}

fn key(fact: &Fact) -> (Group, &str) {
    (fact.group, &fact.name)
}

// The compared figure of a cell, with its error.

/// The figure to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Requests per second: more is better.
    Iops,
    /// The median response time in microseconds, if the rate is configured: less is better.
    ResponseUs,
}

/// The basis of an error estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The variation between the runs of each side.
    Runs,
    /// The samples of a single run, on one side or on both. The variation between runs is unknown, so a
    /// significant difference may be one between two runs, and not one between two systems.
    Samples,
}

/// The figure of a cell in one record.
struct Measured {
    /// The displayed value.
    value: f64,
    /// The logarithm of the figure with its error; `None` if the error is unknown.
    log: Option<MeanEstimate>,
    basis: Basis,
}

impl Figure {
    /// Returns the figure to compare: a time if any role of the cell has a configured rate.
    fn of(cell: &Cell) -> Figure {
        let open = cell.roles.iter().any(|role| role.workload.pace.is_open());
        if open {
            Figure::ResponseUs
        } else {
            Figure::Iops
        }
    }

    /// Returns whether a change in this direction is an improvement.
    fn is_better(self, difference: f64) -> bool {
        match self {
            Figure::Iops => difference > 0.0,
            Figure::ResponseUs => difference < 0.0,
        }
    }

    /// Returns a difference of this size in the direction that is worse.
    fn worse_by(self, size: f64) -> f64 {
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

    /// Returns the figure for each sample. With several clients, it is the mean of their medians.
    fn of_samples(self, run: &CellRun) -> Vec<f64> {
        match self {
            Figure::Iops => run.iops_samples(),
            Figure::ResponseUs => {
                let clients = run.clients.len().max(1) as f64;
                let sums = run.sample_by_sample(|sample| sample.p50_us);
                // A sample without completed requests has no median.
                sums.into_iter()
                    .map(|sum| sum / clients)
                    .filter(|us| *us > 0.0)
                    .collect()
            }
        }
    }
}

/// Returns the figure of a cell in one record, from the runs that count. Returns `None` if nothing was
/// measured.
fn measured(runs: &[&CellRun], figure: Figure) -> Option<Measured> {
    let values: Vec<f64> = runs.iter().map(|run| figure.of_run(run)).collect();
    if values
        .iter()
        .any(|value| !value.is_finite() || *value <= 0.0)
    {
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
    let log = MeanEstimate {
        mean: mean(&logs),
        error,
        freedom: count - 1.0,
    };
    Measured {
        value: log.mean.exp(),
        log: Some(log),
        basis: Basis::Runs,
    }
}

/// Returns the value of the whole run, with the relative error of the mean of its samples.
fn of_samples(value: f64, samples: &[f64]) -> Measured {
    let log = series_mean(samples)
        .filter(|series| series.mean > 0.0 && series.freedom >= 1.0)
        .map(|series| MeanEstimate {
            mean: value.ln(),
            error: series.error / series.mean,
            freedom: series.freedom,
        });
    Measured {
        value,
        log,
        basis: Basis::Samples,
    }
}

fn response(run: &CellRun) -> Histogram {
    let flows = run
        .clients
        .iter()
        .flat_map(|client| [&client.run.reads, &client.run.writes]);
    flows.fold(Histogram::default(), |sum, flow| sum.merged(&flow.response))
}
