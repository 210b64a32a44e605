//! The order of runs.
//!
//! A [`Schedule`] is a state machine without a clock. The caller requests the [`due`](Schedule::due) task,
//! executes it and reports it as done, until no task is due. The results affect only the number of rounds:
//! interleaved steps run until the median of every cell is precise enough, and steady rounds run until the
//! tracked cell is steady. To resume an interrupted record, pass its runs to a new schedule.

use std::collections::BTreeMap;
use std::time::Duration;

use block::{Random, mix};
use stats::{median, median_interval, steady};

use crate::plan::{Cell, Order, Rule, Step, Stop, Suite};
use crate::record::{CellRun, Ended};

/// The order of a suite's tasks, and the progress so far.
#[derive(Clone, Debug)]
pub struct Schedule {
    suite: Suite,
    seed: u64,
    /// All purges and fills before this step are complete.
    prepared: usize,
    /// Requests per second of completed runs, by cell and round.
    rates: BTreeMap<String, BTreeMap<u32, f64>>,
}

/// A task of the schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The number of the step in the suite, from 0.
    pub step: usize,
    /// The round, from 0; the caller must record it in [`CellRun::round`].
    pub round: u32,
    /// The work.
    pub work: Work,
}

/// The kind of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Execute [`Step::Purge`], then call [`Schedule::prepared`].
    Purge,
    /// Execute [`Step::Fill`], then call [`Schedule::prepared`].
    Fill {
        /// The length of each request.
        block_bytes: u32,
        /// The queue depth.
        depth: u32,
        /// The number of passes over the span.
        passes: u32,
    },
    /// Run a cell, then call [`Schedule::done`].
    Measure {
        /// The cell to run.
        cell: Cell,
        /// The condition that ends the run.
        stop: Stop,
    },
}

/// The required precision of a median of repeats: half of its 95 % interval, in percent of the median. The
/// stop of a cell can override it. netperf's usual precision (`-I 99,5`: 2.5 % to each side) is not
/// achievable with three or five runs on storage.
pub const MEDIAN_PERCENT: f64 = 5.0;

impl Schedule {
    /// Creates the schedule of a suite whose runs in `done` already exist. The same seed produces the same
    /// order.
    ///
    /// Interrupted runs are repeated. Purges and fills count as done if a cell after them has been run, since
    /// the data is still there. Steady rounds continue after a pause: rounds from before and after the pause
    /// are compared. If the pause changed the results, these rounds are not steady, and further rounds
    /// follow.
    pub fn new(suite: &Suite, done: &[CellRun], seed: u64) -> Schedule {
        let mut schedule = Schedule {
            suite: suite.clone(),
            seed,
            prepared: 0,
            rates: BTreeMap::new(),
        };
        done.iter().for_each(|run| schedule.done(run));
        let begun = |step: &Step| {
            cells(step)
                .iter()
                .any(|cell| schedule.rates.contains_key(&cell.name))
        };
        schedule.prepared = schedule.suite.steps.iter().rposition(begun).unwrap_or(0);
        schedule
    }

    /// Returns the next task, and the same task again until it is reported as done. Returns `None` at the
    /// end.
    pub fn due(&self) -> Option<Task> {
        self.suite
            .steps
            .iter()
            .enumerate()
            .find_map(|(number, step)| {
                let task = |round, work| Task {
                    step: number,
                    round,
                    work,
                };
                match step {
                    Step::Purge => (number >= self.prepared).then(|| task(0, Work::Purge)),
                    Step::Fill {
                        block_bytes,
                        depth,
                        passes,
                    } => {
                        let fill = Work::Fill {
                            block_bytes: *block_bytes,
                            depth: *depth,
                            passes: *passes,
                        };
                        (number >= self.prepared).then(|| task(0, fill))
                    }
                    Step::Measure { stop, order, cells } => {
                        let (round, cell) = self.next_cell(number, *stop, order, cells)?;
                        let stop = cell.stop(*stop);
                        Some(task(
                            round,
                            Work::Measure {
                                cell: cell.clone(),
                                stop,
                            },
                        ))
                    }
                }
            })
    }

    /// Reports that the purge or fill of this step is complete.
    pub fn prepared(&mut self, step: usize) {
        self.prepared = self.prepared.max(step + 1);
    }

    /// Reports the run of a cell. An interrupted run is due again.
    pub fn done(&mut self, run: &CellRun) {
        if run.ended != Ended::Interrupted {
            self.rates
                .entry(run.cell.clone())
                .or_default()
                .insert(run.round, run.iops());
        }
    }

    fn next_cell<'a>(
        &self,
        step: usize,
        stop: Stop,
        order: &Order,
        cells: &'a [Cell],
    ) -> Option<(u32, &'a Cell)> {
        for round in 0..rounds_max(order) {
            let missing = |cell: &&Cell| {
                !self
                    .rates
                    .get(&cell.name)
                    .is_some_and(|rounds| rounds.contains_key(&round))
            };
            let next = match order {
                Order::Once | Order::SteadyRounds { .. } => cells.iter().find(missing),
                Order::Interleaved { .. } => {
                    self.shuffled(step, round, cells).into_iter().find(missing)
                }
            };
            if let Some(cell) = next {
                return Some((round, cell));
            }
            if self.is_enough(stop, order, cells, round + 1) {
                return None;
            }
        }
        None
    }

    /// Returns whether this number of complete rounds is sufficient.
    fn is_enough(&self, stop: Stop, order: &Order, cells: &[Cell], rounds: u32) -> bool {
        match order {
            _ if cells.is_empty() => true,
            Order::Once => true,
            Order::Interleaved { repeats_min, .. } => {
                rounds >= *repeats_min
                    && cells
                        .iter()
                        .all(|cell| self.median_is_known(cell, stop, rounds))
            }
            Order::SteadyRounds { tracked, .. } => steady::window(&self.rates_of(tracked, rounds))
                .is_some_and(|window| window.is_steady()),
        }
    }

    fn median_is_known(&self, cell: &Cell, stop: Stop, rounds: u32) -> bool {
        let rates = self.rates_of(&cell.name, rounds);
        let percent =
            median_interval(&rates).map(|interval| interval.half_percent_of(median(&rates)));
        percent.is_some_and(|percent| percent <= percent_wanted(cell, stop))
    }

    fn rates_of(&self, cell: &str, rounds: u32) -> Vec<f64> {
        self.rates.get(cell).map_or(Vec::new(), |all| {
            all.range(..rounds).map(|(_, rate)| *rate).collect()
        })
    }

    /// Returns the cells in a random order for this round (a Fisher-Yates shuffle).
    fn shuffled<'a>(&self, step: usize, round: u32, cells: &'a [Cell]) -> Vec<&'a Cell> {
        let mut random = Random::new(mix(self.seed ^ mix(step as u64 + 1)) ^ u64::from(round));
        let mut cells: Vec<&Cell> = cells.iter().collect();
        for last in (1..cells.len()).rev() {
            cells.swap(last, random.below(last as u64 + 1) as usize);
        }
        cells
    }
}

/// Returns the required precision of the median of a cell's runs: half of the interval, in percent of the
/// median.
pub fn percent_wanted(cell: &Cell, stop: Stop) -> f64 {
    match cell.stop(stop).rule {
        Rule::Confidence { percent } => percent,
        Rule::Time | Rule::Bytes { .. } | Rule::Requests { .. } => MEDIAN_PERCENT,
    }
}

fn rounds_max(order: &Order) -> u32 {
    match order {
        Order::Once => 1,
        Order::Interleaved {
            repeats_min,
            repeats_max,
        } => (*repeats_max).max(*repeats_min),
        Order::SteadyRounds { rounds_max, .. } => *rounds_max,
    }
}

fn cells(step: &Step) -> &[Cell] {
    match step {
        Step::Measure { cells, .. } => cells,
        Step::Purge | Step::Fill { .. } => &[],
    }
}

/// The remaining part of a schedule, as a minimum and a maximum, since most stop conditions depend on the
/// measurements. Purges and fills are not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Minimum number of runs.
    pub runs_min: u64,
    /// Maximum number of runs, which are needed if no median becomes precise and no cell becomes steady
    /// earlier.
    pub runs_max: u64,
    /// Time of the minimum number of runs, if each is as short as its stop allows.
    pub time_min: Duration,
    /// Time of the maximum number of runs, if each is as long as its stop allows.
    pub time_max: Duration,
}

impl Schedule {
    /// Returns the remaining work.
    pub fn left(&self) -> Left {
        let none = Left {
            runs_min: 0,
            runs_max: 0,
            time_min: Duration::ZERO,
            time_max: Duration::ZERO,
        };
        self.suite
            .steps
            .iter()
            .enumerate()
            .fold(none, |left, (number, step)| match step {
                Step::Purge | Step::Fill { .. } => left,
                Step::Measure { stop, order, .. } => self.left_of(left, number, step, *stop, order),
            })
    }

    fn left_of(&self, left: Left, number: usize, step: &Step, stop: Stop, order: &Order) -> Left {
        let cells = cells(step);
        if self.next_cell(number, stop, order, cells).is_none() {
            return left;
        }
        cells.iter().fold(left, |left, cell| {
            let done = self
                .rates
                .get(&cell.name)
                .map_or(0, |rounds| rounds.len() as u64);
            let (least, most) = (u64::from(rounds_min(order)), u64::from(rounds_max(order)));
            let (least, most) = (least.saturating_sub(done), most.saturating_sub(done));
            let (shortest, longest) = times(cell, stop);
            Left {
                runs_min: left.runs_min.saturating_add(least),
                runs_max: left.runs_max.saturating_add(most),
                time_min: left.time_min.saturating_add(times_over(shortest, least)),
                time_max: left.time_max.saturating_add(times_over(longest, most)),
            }
        })
    }
}

fn rounds_min(order: &Order) -> u32 {
    match order {
        Order::Once => 1,
        Order::Interleaved { repeats_min, .. } => (*repeats_min).max(1),
        Order::SteadyRounds { rounds_max, .. } => (*rounds_max).min(steady::WINDOW as u32),
    }
}

/// Returns the shortest and the longest time of a run, in seconds.
fn times(cell: &Cell, step: Stop) -> (f64, f64) {
    let stop = cell.stop(step);
    let shortest = if cell.takes_fixed_time(step) {
        stop.max_s
    } else {
        stop.min_s
    };
    (
        stop.warm_up_s + shortest,
        stop.warm_up_s + stop.max_s.max(stop.min_s),
    )
}

/// Returns the time of several runs. An invalid time in a suite (negative or infinite) counts as the maximum,
/// and does not cause a panic.
fn times_over(seconds: f64, runs: u64) -> Duration {
    Duration::try_from_secs_f64(seconds * runs as f64).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
