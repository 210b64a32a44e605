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

mod environment;
mod figure;
mod words;

use serde::{Serialize, Serializer};

use crate::summary::{self, CellSummary, Flag};
use bench::plan::{Cell, Role, Workload};
use bench::record::Record;
use stats::{Interval, Welch, holm, welch};

pub use environment::Difference;
pub use figure::{Basis, Figure};
pub use words::listed;

use figure::Measured;

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
            let sides =
                runs.each_ref().map(|runs| figure::measured(runs.get(one.cell.name.as_str())?, figure));
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
        environment: environment::differences(a, b),
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

#[cfg(test)]
mod tests;
