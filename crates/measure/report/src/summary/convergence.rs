//! How rounds became steady, for a report that shows it.

use super::counted::ended;
use bench::plan::{Order, Step};
use bench::record::Record;
use stats::steady::{self, Window};

/// The rounds of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Convergence {
    /// The number of the step in the suite, from 0.
    pub step: usize,
    /// The name of the cell that is tracked.
    pub tracked: String,
    /// Its requests a second, round by round.
    pub iops: Vec<f64>,
    /// The last five rounds, steady or not; `None` if there are fewer.
    pub window: Option<Window>,
}

/// The steps of a record that had to become steady, and how far they have come.
pub fn convergence(record: &Record) -> Vec<Convergence> {
    let steps = record.suite.steps.iter().enumerate();
    let rounds = steps.filter_map(|(number, step)| match step {
        Step::Measure { order: Order::SteadyRounds { tracked, .. }, .. } => Some((number, tracked)),
        Step::Measure { order: Order::Once | Order::Interleaved { .. }, .. }
        | Step::Purge
        | Step::Fill { .. } => None,
    });
    let converged = rounds.map(|(step, tracked)| {
        let iops: Vec<f64> = ended(record, tracked).iter().map(|run| run.iops()).collect();
        Convergence { step, tracked: tracked.clone(), window: steady::window(&iops), iops }
    });
    converged.filter(|rounds| !rounds.iops.is_empty()).collect()
}
