//! Which differences between two records are real.
//!
//! Cell by cell, the figure that the cell is about is set beside the other: the rate in a closed loop, the median response
//! time in an open one, whose rate was given. Differences are taken between logarithms, so that they are ratios: half as
//! fast and twice as fast are equally far from 0.
//!
//! Two or more runs on both sides are compared by Welch's test on the runs; how samples depend on each other within a run
//! does not matter then. With a single run on either side there is only its series of samples, and the test uses its
//! error corrected for autocorrelation ([`series_mean`](stats::series_mean)). That cannot see by how much another run would have differed, and
//! says so ([`Basis`]). All cells are judged together by Holm's rule ([`holm`]), so that a comparison of many cells of equal
//! storage finds any difference at all in at most 5 of 100 cases.

#[cfg(test)]
mod tests;
mod words;

use bench::plan::{Cell, Role, Workload};
use bench::record::{CellRun, Fact, Group, Histogram, Record};
use serde::{Serialize, Serializer};
use stats::{Interval, MeanEstimate, Welch, holm, mean, series_mean, standard_deviation, welch};

use crate::summary;
use crate::summary::{CellSummary, Flag};
pub use words::listed;

/// Two records beside each other. The second is judged: what is better or worse is so in B.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Cells of both, in the order of A.
    pub cells: Vec<CellComparison>,
    /// Names of cells that only A has.
    pub only_a: Vec<String>,
    /// Names of cells that only B has.
    pub only_b: Vec<String>,
    /// What else is different.
    pub environment: Vec<Difference>,
}

/// A cell in both records.
#[derive(Clone, Debug, Serialize)]
pub struct CellComparison {
    /// Its name.
    pub cell: String,
    /// What is compared.
    pub figure: Figure,
    /// In the first record.
    pub a: Side,
    /// In the second.
    pub b: Side,
    /// What came of it.
    pub judgement: Judgement,
}

/// A cell in one of the records.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// The figure: requests a second, or microseconds. Of several runs their geometric mean.
    pub value: f64,
    /// Bytes a second, the median of the runs.
    pub bytes_per_s: f64,
    /// The 99th percentile of latency in microseconds (response time in an open loop), shown and not judged.
    pub p99_us: f64,
    /// Runs.
    pub runs: usize,
    /// Requests that failed or returned wrong data.
    pub faults: u64,
    /// What is to be thought of it; for programs in sentences.
    #[serde(serialize_with = "sentences")]
    pub flags: Vec<Flag>,
}

/// What came of comparing a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "change")]
pub enum Judgement {
    /// B is better, and not by chance.
    Better(Change),
    /// B is worse, and not by chance.
    Worse(Change),
    /// No difference was found. There may be one that is less than [`Change::detectable_percent`].
    Undecided(Change),
    /// The cells have one name and different workloads.
    OtherWorkload,
    /// Nothing was measured on one side, or too little to tell how sure it is.
    TooLittle,
}

/// A difference, in percent of A.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// B is so many percent more than A (less if negative).
    pub percent: f64,
    /// The interval that the true difference lies in, at the level by which this cell was judged.
    pub low_percent: f64,
    /// The other end of it.
    pub high_percent: f64,
    /// The chance of a difference at least as large if there is none in truth.
    pub p: f64,
    /// What `p` was held against: 0.05, made smaller for the number of cells.
    pub alpha: f64,
    /// The smallest change for the worse, in percent of A, that would have been found in four of five such comparisons:
    /// negative for a rate, positive for a time.
    pub detectable_percent: f64,
    /// What the errors were estimated from.
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
            let sides = runs.each_ref().map(|runs| measured(runs.get(one.cell.name.as_str())?, figure));
            Some(Pair::new(one, other, figure, sides))
        })
        .collect();
    let ps: Vec<f64> = pairs.iter().filter_map(|pair| pair.test.map(Welch::p)).collect();
    let mut levels = holm(&ps).into_iter();
    let cells = pairs.iter().map(|pair| pair.judged(&mut levels)).collect();
    Comparison {
        cells,
        only_a: missing(&of_a, &of_b),
        only_b: missing(&of_b, &of_a),
        environment: differences(a, b),
    }
}

impl Comparison {
    /// Cells that are worse in B by more than so many percent, and not by chance, or in which B has requests that failed or
    /// returned wrong data and A has none.
    pub fn worse(&self, above_percent: f64) -> impl Iterator<Item = &CellComparison> {
        self.cells.iter().filter(move |cell| cell.is_worse(above_percent))
    }

    /// A table for a terminal of so many columns, and what has to be known beside it.
    pub fn terminal(&self, width: usize) -> String {
        words::terminal(self, width)
    }

    /// The same as Markdown, for a merge request.
    pub fn markdown(&self) -> String {
        words::markdown(self)
    }

    /// Cells that could be judged.
    pub fn judged(&self) -> usize {
        self.cells.iter().filter(|cell| cell.judgement.change().is_some()).count()
    }
}

impl CellComparison {
    /// Whether it is worse in B: [`Comparison::worse`].
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

    /// Whether requests failed or returned wrong data in B only.
    pub fn has_new_faults(&self) -> bool {
        self.b.faults > 0 && self.a.faults == 0
    }
}

impl Judgement {
    /// The difference, where there could be one.
    pub fn change(&self) -> Option<Change> {
        match self {
            Judgement::Better(change) | Judgement::Worse(change) | Judgement::Undecided(change) => {
                Some(*change)
            }
            Judgement::OtherWorkload | Judgement::TooLittle => None,
        }
    }
}

/// The same cell in both records, before it is judged with the others.
struct Pair<'a> {
    a: &'a CellSummary,
    b: &'a CellSummary,
    figure: Figure,
    sides: [Option<Measured>; 2],
    alike: bool,
    /// Between logarithms; `None` if there can be none.
    test: Option<Welch>,
}

impl<'a> Pair<'a> {
    fn new(a: &'a CellSummary, b: &'a CellSummary, figure: Figure, sides: [Option<Measured>; 2]) -> Pair<'a> {
        let alike = same_work(&a.cell, &b.cell);
        let test = match &sides {
            [Some(one), Some(other)] if alike => one.log.zip(other.log).map(|(one, other)| welch(one, other)),
            _ => None,
        };
        Pair { a, b, figure, sides, alike, test }
    }

    fn judged(&self, levels: &mut impl Iterator<Item = f64>) -> CellComparison {
        let judgement = match self.test {
            None if !self.alike => Judgement::OtherWorkload,
            None => Judgement::TooLittle,
            // As many levels as tests were asked for.
            Some(test) => self.judgement(test, levels.next().unwrap_or_default()),
        };
        let [a, b] = [(self.a, &self.sides[0]), (self.b, &self.sides[1])]
            .map(|(summary, measured)| side(summary, measured));
        CellComparison { cell: self.a.cell.name.clone(), figure: self.figure, a, b, judgement }
    }

    fn judgement(&self, test: Welch, alpha: f64) -> Judgement {
        let Interval { low, high } = test.interval(alpha);
        let single = self.sides.iter().flatten().any(|side| side.basis == Basis::Samples);
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

/// A difference of logarithms in percent.
fn percent(log: f64) -> f64 {
    // What is beyond any measurement is shown as that, and stays a number in JSON.
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

/// Whether two cells ask the same of the storage, whatever numbers and names they use for it.
fn same_work(one: &Cell, other: &Cell) -> bool {
    let what = |cell: &Cell| -> Vec<Role> {
        let plain = |role: &Role| {
            let workload = Workload { seed: 0, ..role.workload.clone() };
            Role { name: String::new(), workload, ..role.clone() }
        };
        cell.roles.iter().map(plain).collect()
    };
    what(one) == what(other)
}

fn missing(from: &[CellSummary], among: &[CellSummary]) -> Vec<String> {
    let is_missing = |cell: &&CellSummary| !among.iter().any(|other| other.cell.name == cell.cell.name);
    from.iter().filter(is_missing).map(|cell| cell.cell.name.clone()).collect()
}

// What is different around two measurements.

/// One thing that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What it is: `kernel`, `MTU`, `FirstBurstLength`.
    pub name: String,
    /// In A, if it is known there.
    pub a: Option<String>,
    /// In B.
    pub b: Option<String>,
}

/// What was measured, what measured, and every fact that differs, in the order of A; what only B knows comes last.
fn differences(a: &Record, b: &Record) -> Vec<Difference> {
    let about = |name: &str, of: fn(&Record) -> String| Difference {
        name: name.to_owned(),
        a: Some(of(a)),
        b: Some(of(b)),
    };
    let head = [
        about("storage", |record| record.subject.place.clone()),
        about("kind of storage", |record| record.subject.kind.clone()),
        about("product", |record| record.subject.product.clone().unwrap_or_else(|| "unknown".to_owned())),
        about("capacity in bytes", |record| record.subject.bytes.to_string()),
        about("logical block in bytes", |record| record.subject.block_bytes.to_string()),
        about("suite", |record| record.suite.name.clone()),
        about("linerate", |record| record.version.clone()),
    ];
    let known: Vec<(Group, &str)> = a.environment.0.iter().map(key).collect();
    let added = b.environment.0.iter().map(key).filter(|key| !known.contains(key));
    let facts = known.iter().copied().chain(added).map(|(group, name)| Difference {
        name: name.to_owned(),
        a: a.environment.value(group, name).map(str::to_owned),
        b: b.environment.value(group, name).map(str::to_owned),
    });
    head.into_iter().chain(facts).filter(|one| one.a != one.b).collect()
}

fn key(fact: &Fact) -> (Group, &str) {
    (fact.group, &fact.name)
}

// The figure that a cell is about, with its error.

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
struct Measured {
    /// As it is shown.
    value: f64,
    /// Its logarithm with the error; `None` if that cannot be told.
    log: Option<MeanEstimate>,
    basis: Basis,
}

impl Figure {
    /// What a cell is about: if any of its roles has a rate that is given, time.
    fn of(cell: &Cell) -> Figure {
        let open = cell.roles.iter().any(|role| role.workload.pace.is_open());
        if open { Figure::ResponseUs } else { Figure::Iops }
    }

    /// Whether a change in this direction is for the better.
    fn is_better(self, difference: f64) -> bool {
        match self {
            Figure::Iops => difference > 0.0,
            Figure::ResponseUs => difference < 0.0,
        }
    }

    /// A difference of this size for the worse.
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
fn measured(runs: &[&CellRun], figure: Figure) -> Option<Measured> {
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
