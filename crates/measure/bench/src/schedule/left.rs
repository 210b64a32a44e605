//! How much is still to be done, for whoever shows the time that is left.

use std::time::Duration;

use super::{Schedule, cells, rounds_max};
use crate::plan::{Cell, Order, Step, Stop};
use stats::steady;

/// What is left of a schedule: at least and at most, since most stops depend on what will be measured. Purges and fills
/// take what they take, and are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Runs that are needed in any case.
    pub runs_min: u64,
    /// Runs if nothing becomes known or steady earlier.
    pub runs_max: u64,
    /// The time of those that are needed in any case, each as short as its stop allows.
    pub time_min: Duration,
    /// The time of all of them, each as long as its stop allows.
    pub time_max: Duration,
}

impl Schedule {
    /// What is left now.
    pub fn left(&self) -> Left {
        let none = Left { runs_min: 0, runs_max: 0, time_min: Duration::ZERO, time_max: Duration::ZERO };
        self.suite.steps.iter().enumerate().fold(none, |left, (number, step)| match step {
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
            let done = self.rates.get(&cell.name).map_or(0, |rounds| rounds.len() as u64);
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

/// The shortest and the longest time of a run, in seconds.
fn times(cell: &Cell, step: Stop) -> (f64, f64) {
    let stop = cell.stop(step);
    let shortest = if cell.takes_fixed_time(step) { stop.max_s } else { stop.min_s };
    (stop.warm_up_s + shortest, stop.warm_up_s + stop.max_s.max(stop.min_s))
}

/// Nonsense in a suite (negative, endless) is no reason to panic: it is as long as can be.
fn times_over(seconds: f64, runs: u64) -> Duration {
    Duration::try_from_secs_f64(seconds * runs as f64).unwrap_or(Duration::MAX)
}
