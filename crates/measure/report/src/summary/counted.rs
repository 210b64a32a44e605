//! Which runs of a cell count.

use bench::plan::{Cell, Order, Step, Stop};
use bench::record::{CellRun, ClientRun, Ended, Record};
use stats::drained_mean;
use stats::steady::{self, Window};

/// A cell with those of its runs that count.
pub(super) struct Counted<'a> {
    pub(super) cell: &'a Cell,
    /// When a run of it ends.
    pub(super) stop: Stop,
    /// The order of its step.
    pub(super) order: &'a Order,
    /// In the order of their rounds; at least one.
    pub(super) runs: Vec<&'a CellRun>,
    /// In a step that has to become steady: whether it has.
    pub(super) steady: Option<bool>,
}

impl<'a> Counted<'a> {
    /// The cells that have been run, in the order of the suite.
    pub(super) fn of(record: &'a Record) -> Vec<Counted<'a>> {
        let steps = record.suite.steps.iter().filter_map(|step| match step {
            Step::Purge | Step::Fill { .. } => None,
            Step::Measure { stop, order, cells } => Some((stop, order, cells)),
        });
        let counted = steps.flat_map(|(stop, order, cells)| {
            let rounds = Rounds::of(record, order);
            cells.iter().map(move |cell| Counted {
                cell,
                stop: cell.stop(*stop),
                order,
                runs: rounds.counted(ended(record, &cell.name)),
                steady: rounds.steady,
            })
        });
        counted.filter(|counted| !counted.runs.is_empty()).collect()
    }

    /// What each client did in each run.
    pub(super) fn clients(&self) -> impl Iterator<Item = &'a ClientRun> {
        self.runs.iter().flat_map(|run| &run.clients)
    }

    /// Requests under way by the configuration.
    pub(super) fn depth(&self) -> u32 {
        let roles = self.cell.roles.iter();
        roles.fold(0, |sum, role| {
            sum.saturating_add(role.workload.depth.saturating_mul(u32::from(role.sessions)))
        })
    }

    /// The same on average, which is less where all come to their end now and then.
    pub(super) fn depth_mean(&self) -> f64 {
        let of = |role: &bench::plan::Role| {
            let workload = &role.workload;
            let depth = workload.drain_after.map(|transactions| drained_mean(workload.depth, transactions));
            f64::from(role.sessions) * depth.unwrap_or(f64::from(workload.depth))
        };
        self.cell.roles.iter().map(of).sum()
    }
}

/// The runs of a cell by rounds, each once. One that was interrupted counts only if there is no other.
pub(super) fn ended<'a>(record: &'a Record, cell: &str) -> Vec<&'a CellRun> {
    let mut runs: Vec<&CellRun> = record.runs.iter().filter(|run| run.cell == cell).collect();
    if runs.iter().any(|run| run.ended != Ended::Interrupted) {
        runs.retain(|run| run.ended != Ended::Interrupted);
    }
    runs.sort_by_key(|run| run.round);
    runs.dedup_by_key(|run| run.round);
    runs
}

/// Which rounds of a step count.
struct Rounds {
    first: u32,
    steady: Option<bool>,
}

impl Rounds {
    fn of(record: &Record, order: &Order) -> Rounds {
        let Order::SteadyRounds { tracked, .. } = order else { return Rounds { first: 0, steady: None } };
        let runs = ended(record, tracked);
        let window = tracked_window(&runs);
        let first = runs.len().saturating_sub(steady::WINDOW);
        Rounds {
            first: runs.get(first).map_or(0, |run| run.round),
            steady: Some(window.is_some_and(|window| window.is_steady())),
        }
    }

    fn counted<'a>(&self, mut runs: Vec<&'a CellRun>) -> Vec<&'a CellRun> {
        runs.retain(|run| run.round >= self.first);
        runs
    }
}

fn tracked_window(runs: &[&CellRun]) -> Option<Window> {
    let rates: Vec<f64> = runs.iter().map(|run| run.iops()).collect();
    steady::window(&rates)
}
