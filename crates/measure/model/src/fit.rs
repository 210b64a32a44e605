//! The inverse of the model: estimates the constants of a path from measurements.

use super::predict::Demand;
use super::{Direction, Keys, Load, Path};
use crate::predict::{self, FROM_ANYWHERE, FROM_NEARBY, Range};

/// A measured rate, with the conditions of its measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The load, or `None` for plain TCP at full speed in one direction.
    pub load: Option<Load>,
    /// The negotiated keys.
    pub keys: Keys,
    /// The round trip during the measurement, in seconds.
    pub round_trip_s: f64,
    /// TCP connections of each session.
    pub connections: u16,
    /// The measured rate, in bytes per second.
    pub bytes_per_s: f64,
    /// The rounding error: half a unit of the last printed digit, in bytes per second. Do not use it for a
    /// confidence interval. All values within the rounding count as equally good, so a fit would adapt to a
    /// few bad measurements within the intervals of many good ones.
    pub rounding_per_s: f64,
}

/// A constant of a [`Path`] that can be fitted to measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Constant {
    /// [`Path::payload_per_s`].
    Link,
    /// [`Path::window_bytes`].
    Window,
    /// [`Path::window_delay_s`].
    WindowDelay,
    /// [`Path::exchange_s`]. It can be distinguished from the command's time only by writes with different
    /// numbers of exchanges.
    Exchange,
    /// [`Path::command_s`].
    Command,
    /// [`Path::copy_per_s`].
    Copy,
    /// [`Path::commands_at_once`].
    CommandsAtOnce,
    /// [`Path::writes_under_way_bytes`].
    WritesUnderWay,
    /// [`Path::exchanges_per_s`].
    Exchanges,
    /// [`Path::medium_per_s`].
    Medium,
}

/// The fitted constants of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The path. A limit that applies in no measurement is unknown, and is `None`. A time without an effect
    /// is 0. The round trip and the connections are those of the known path.
    pub path: Path,
    /// The relative error of the model for each measurement, in order: 0.05 means that the model is 5 % too
    /// high. The error is infinite if the path has no limit.
    pub off: Vec<f64>,
    /// The median of the absolute errors.
    pub median_off: f64,
}

/// Fits the free constants of a path to the measurements. The other constants keep their values from `known`.
/// Returns `None` if no measurement is usable; a usable one is a positive number.
///
/// The fit minimises the relative error beyond the rounding. A few measurements that the model cannot explain
/// have little weight (Cauchy's loss), so that a transition that is too abrupt in the model does not distort
/// all other constants. Reads and writes have different limits, so each direction needs a separate path.
pub fn fit(known: &Path, measured: &[Measured], free: &[Constant]) -> Option<Fitted> {
    let usable: Vec<Cell> = measured
        .iter()
        .filter(|one| one.is_usable())
        .map(Cell::new)
        .collect();
    if usable.is_empty() {
        return None;
    }
    let mut free = free.to_vec();
    free.sort();
    free.dedup();
    let mut best = search(known, &usable, &free, None);
    // Remove constants if possible: one that another can replace, or that only slightly improves a single
    // cell, would mislead in all other conditions.
    for constant in free.clone().into_iter().rev() {
        let others: Vec<Constant> = free
            .iter()
            .copied()
            .filter(|other| *other != constant)
            .collect();
        let mut without = best;
        constant.forget(&mut without);
        // A time always exists, even if it is small. A limit may not exist; the other constants may then have
        // been distorted to make it possible, so they are fitted again without it.
        let worth = if constant.is_limit() { WORTH } else { 0.0 };
        let least = loss(&best, &usable) + worth;
        if constant.is_limit() && loss(&without, &usable) > least {
            without = search(&without, &usable, &others, Some(&best));
        }
        if loss(&without, &usable) <= least {
            (best, free) = (without, others);
        }
    }
    let off: Vec<f64> = measured
        .iter()
        .map(|one| one.modelled(&best) / one.bytes_per_s - 1.0)
        .collect();
    let mut sizes: Vec<f64> = off
        .iter()
        .map(|off| off.abs())
        .filter(|off| !off.is_nan())
        .collect();
    sizes.sort_by(f64::total_cmp);
    Some(Fitted {
        path: best,
        off,
        median_off: sizes[sizes.len() / 2],
    })
}

/// The scale of the loss: an error of this size is usual. An error ten times as large counts hardly more than
/// one five times as large.
const USUAL: f64 = 0.05;
/// The improvement of the loss that justifies a limit: half an error of the usual size in one measurement, ln
/// (1 + 0.5²).
const WORTH: f64 = 0.22;
/// The factor by which search ranges extend beyond the values that the measurements suggest.
const BEYOND: f64 = 1000.0;

/// Returns the best path that differs from the known one only in these constants. `near` is a starting point
/// that contains most of them.
fn search(known: &Path, cells: &[Cell], free: &[Constant], near: Option<&Path>) -> Path {
    let ranges: Vec<Range> = free
        .iter()
        .map(|constant| constant.range(cells, near.and_then(|near| constant.value_in(near))))
        .collect();
    let with = |values: &[f64]| {
        let mut path = *known;
        free.iter()
            .zip(values)
            .for_each(|(constant, value)| constant.set(&mut path, *value));
        path
    };
    let rounds = if near.is_some() {
        FROM_NEARBY
    } else {
        FROM_ANYWHERE
    };
    with(&predict::least(&ranges, rounds, |values| {
        loss(&with(values), cells)
    }))
}

fn loss(path: &Path, cells: &[Cell]) -> f64 {
    let of = |cell: &Cell| {
        let modelled = cell.modelled(path);
        let Measured {
            bytes_per_s,
            rounding_per_s,
            ..
        } = cell.measured;
        // The distance from the nearest end of the rounding interval.
        let (low, high) = (bytes_per_s - rounding_per_s, bytes_per_s + rounding_per_s);
        let beyond = match modelled {
            less if less < low => (low / less).ln(),
            more if more > high => (more / high).ln(),
            _ => 0.0,
        };
        // Within the rounding interval, slightly prefer the middle.
        let hint = (modelled / bytes_per_s).ln();
        (beyond / USUAL).powi(2).ln_1p() + 1e-3 * (hint / USUAL).powi(2).ln_1p()
    };
    cells.iter().map(of).sum()
}

/// A measurement, with its demand, which is evaluated for many thousands of paths.
struct Cell {
    measured: Measured,
    demand: Option<Demand>,
}

impl Cell {
    fn new(measured: &Measured) -> Cell {
        let demand = measured.load.map(|load| Demand::new(&measured.keys, &load));
        Cell {
            measured: *measured,
            demand,
        }
    }

    /// Returns the rate of a path under the same conditions, in bytes per second.
    fn modelled(&self, path: &Path) -> f64 {
        let Measured {
            round_trip_s,
            connections,
            ..
        } = self.measured;
        let path = Path {
            round_trip_s,
            connections,
            ..*path
        };
        match &self.demand {
            Some(demand) => demand.rate(&path),
            None => path.tcp_per_s(u32::from(connections)),
        }
    }

    fn exchanges_per_s(&self) -> f64 {
        let Some(demand) = &self.demand else {
            return 0.0;
        };
        demand.requests(self.measured.bytes_per_s) * f64::from(demand.exchanges())
    }
}

impl Measured {
    fn is_usable(&self) -> bool {
        let number = |x: f64| x.is_finite() && x >= 0.0;
        number(self.round_trip_s)
            && number(self.rounding_per_s)
            && number(self.bytes_per_s)
            && self.bytes_per_s > self.rounding_per_s
    }

    /// Returns the rate of a path under the same conditions, in bytes per second.
    pub fn modelled(&self, path: &Path) -> f64 {
        Cell::new(self).modelled(path)
    }
}

impl Constant {
    fn set(self, path: &mut Path, value: f64) {
        match self {
            Constant::Link => path.payload_per_s = Some(value),
            Constant::Window => path.window_bytes = Some(value),
            Constant::WindowDelay => path.window_delay_s = value,
            Constant::Exchange => path.exchange_s = value,
            Constant::Command => path.command_s = value,
            Constant::Copy => path.copy_per_s = Some(value),
            Constant::CommandsAtOnce => path.commands_at_once = Some(value),
            Constant::WritesUnderWay => path.writes_under_way_bytes = Some(value),
            Constant::Exchanges => path.exchanges_per_s = Some(value),
            Constant::Medium => path.medium_per_s = Some(value),
        }
    }

    fn forget(self, path: &mut Path) {
        match self {
            Constant::Link => path.payload_per_s = None,
            Constant::Window => path.window_bytes = None,
            Constant::WindowDelay => path.window_delay_s = 0.0,
            Constant::Exchange => path.exchange_s = 0.0,
            Constant::Command => path.command_s = 0.0,
            Constant::Copy => path.copy_per_s = None,
            Constant::CommandsAtOnce => path.commands_at_once = None,
            Constant::WritesUnderWay => path.writes_under_way_bytes = None,
            Constant::Exchanges => path.exchanges_per_s = None,
            Constant::Medium => path.medium_per_s = None,
        }
    }

    /// Whether the constant is a limit, which may not exist.
    fn is_limit(self) -> bool {
        match self {
            Constant::WindowDelay | Constant::Exchange | Constant::Command | Constant::Copy => {
                false
            }
            Constant::Link
            | Constant::Window
            | Constant::CommandsAtOnce
            | Constant::WritesUnderWay
            | Constant::Exchanges
            | Constant::Medium => true,
        }
    }

    /// Returns the value of the constant in a path.
    fn value_in(self, path: &Path) -> Option<f64> {
        match self {
            Constant::Link => path.payload_per_s,
            Constant::Window => path.window_bytes,
            Constant::WindowDelay => Some(path.window_delay_s),
            Constant::Exchange => Some(path.exchange_s),
            Constant::Command => Some(path.command_s),
            Constant::Copy => path.copy_per_s,
            Constant::CommandsAtOnce => path.commands_at_once,
            Constant::WritesUnderWay => path.writes_under_way_bytes,
            Constant::Exchanges => path.exchanges_per_s,
            Constant::Medium => path.medium_per_s,
        }
    }

    /// Returns the search range and the starting point. A limit starts at the highest value that any
    /// measurement reached, at which it has no effect yet. A time starts at a tenth of a millisecond.
    fn range(self, cells: &[Cell], start: Option<f64>) -> Range {
        let seen = self.most_seen(cells);
        let (least, most) = match self {
            Constant::WindowDelay | Constant::Exchange | Constant::Command => (LEAST_TIME_S, 1.0),
            // The number of concurrent commands is at least one, and at most the configured depth.
            Constant::CommandsAtOnce => (1.0, seen),
            _ => (seen / BEYOND, seen * BEYOND),
        };
        Range {
            start: start.unwrap_or(seen).clamp(least, most),
            least,
            most,
        }
    }

    fn most_seen(self, cells: &[Cell]) -> f64 {
        let most = |of: &dyn Fn(&Cell) -> f64| cells.iter().map(of).fold(1.0, f64::max);
        let on_the_way = |one: &Measured| one.bytes_per_s * one.round_trip_s.max(LEAST_TIME_S);
        match self {
            Constant::Link | Constant::Copy | Constant::Medium => {
                most(&|cell| cell.measured.bytes_per_s)
            }
            Constant::Window => most(&|cell| {
                on_the_way(&cell.measured) / f64::from(cell.measured.connections.max(1))
            }),
            Constant::WritesUnderWay => most(&|cell| match cell.measured.load {
                Some(load) if load.direction == Direction::Write => on_the_way(&cell.measured),
                _ => 0.0,
            }),
            Constant::CommandsAtOnce => {
                most(&|cell| cell.measured.load.map_or(1.0, |load| f64::from(load.depth)))
            }
            Constant::Exchanges => most(&Cell::exchanges_per_s),
            Constant::WindowDelay | Constant::Exchange | Constant::Command => USUAL_TIME_S,
        }
    }
}

/// The usual time of the two ends for a command: the time of systems in 2004, and of busy systems today.
const USUAL_TIME_S: f64 = 1e-4;
/// The shortest time with an effect.
const LEAST_TIME_S: f64 = 1e-7;
