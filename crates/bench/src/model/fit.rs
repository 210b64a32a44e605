//! The inverse: from what was measured to what the path and its ends are like.

use super::predict::rate;
use super::search::{Range, least};
use super::{Direction, Keys, Load, Path};

/// Something that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// What was asked; `None` is plain TCP, one way, as much as goes.
    pub load: Option<Load>,
    /// What the session agreed on.
    pub keys: Keys,
    /// The round trip meanwhile, in seconds.
    pub round_trip_s: f64,
    /// TCP connections of each session.
    pub connections: u16,
    /// What it came to, in bytes a second.
    pub bytes_per_s: f64,
    /// So far the truth may be from that, in bytes a second: half of the last digit that was printed, or half of a
    /// confidence interval.
    pub doubt_per_s: f64,
}

/// A number of a [`Path`] that can be found from measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Constant {
    /// [`Path::payload_per_s`].
    Link,
    /// [`Path::window_bytes`].
    Window,
    /// [`Path::window_delay_s`].
    WindowDelay,
    /// [`Path::exchange_s`]. Only writes with different numbers of exchanges tell it from the command's time.
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

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The path. A limit that binds in no measurement is not known, and `None`; a time that explains nothing is 0. The
    /// round trip and the connections are those of the path that the search was told.
    pub path: Path,
    /// How far the model is from each measurement, in their order: 0.05 is 5 % too much. Infinite where the path limits
    /// nothing.
    pub off: Vec<f64>,
    /// The median of their sizes.
    pub median_off: f64,
}

/// Finds those numbers of a path which explain what was measured best; the others stay as `known` has them. `None` if
/// there is nothing to go by: no measurement that is a positive number.
///
/// What counts is by which factor the model is off, as far as the measurement's own doubt does not explain it, and a few
/// measurements that the model cannot explain count little (Cauchy's loss): a knee that it makes too sharp is no reason to
/// be wrong everywhere else. What limits reads and writes differs, so that each have a path of their own.
pub fn fit(known: &Path, measured: &[Measured], free: &[Constant]) -> Option<Fitted> {
    let usable: Vec<Measured> = measured.iter().copied().filter(Measured::is_usable).collect();
    if usable.is_empty() {
        return None;
    }
    let mut free = free.to_vec();
    free.sort();
    free.dedup();
    let mut best = search(known, &usable, &free);
    // The fewer constants, the better: what changes nothing was not found.
    for constant in free.iter().rev() {
        let mut without = best;
        constant.forget(&mut without);
        if loss(&without, &usable) <= loss(&best, &usable) * (1.0 + NOTHING) {
            best = without;
        }
    }
    let off: Vec<f64> = measured.iter().map(|one| one.modelled(&best) / one.bytes_per_s - 1.0).collect();
    let mut sizes: Vec<f64> = off.iter().map(|off| off.abs()).filter(|off| !off.is_nan()).collect();
    sizes.sort_by(f64::total_cmp);
    Some(Fitted { path: best, off, median_off: sizes[sizes.len() / 2] })
}

/// An error of so much is a usual one, and ten times that counts hardly more than five times.
const USUAL: f64 = 0.05;
/// A loss that grows by less is the same.
const NOTHING: f64 = 1e-9;
/// Ranges end so far beyond what the measurements themselves suggest.
const BEYOND: f64 = 1000.0;

fn search(known: &Path, measured: &[Measured], free: &[Constant]) -> Path {
    let ranges: Vec<Range> = free.iter().map(|constant| constant.range(measured)).collect();
    let with = |values: &[f64]| {
        let mut path = *known;
        free.iter().zip(values).for_each(|(constant, value)| constant.set(&mut path, *value));
        path
    };
    with(&least(&ranges, |values| loss(&with(values), measured)))
}

fn loss(path: &Path, measured: &[Measured]) -> f64 {
    let of = |one: &Measured| {
        let modelled = one.modelled(path);
        // From the nearest end of what the measurement may mean.
        let (low, high) = (one.bytes_per_s - one.doubt_per_s, one.bytes_per_s + one.doubt_per_s);
        let beyond = match modelled {
            less if less < low => (low / less).ln(),
            more if more > high => (more / high).ln(),
            _ => 0.0,
        };
        // Within the doubt the middle is still the best guess, by very little.
        let hint = (modelled / one.bytes_per_s).ln();
        (beyond / USUAL).powi(2).ln_1p() + 1e-3 * (hint / USUAL).powi(2).ln_1p()
    };
    measured.iter().map(of).sum()
}

impl Measured {
    fn is_usable(&self) -> bool {
        let number = |x: f64| x.is_finite() && x >= 0.0;
        number(self.round_trip_s)
            && number(self.doubt_per_s)
            && number(self.bytes_per_s)
            && self.bytes_per_s > self.doubt_per_s
    }

    /// What a path gives under the same conditions, in bytes a second.
    pub fn modelled(&self, path: &Path) -> f64 {
        let path = Path { round_trip_s: self.round_trip_s, connections: self.connections, ..*path };
        match &self.load {
            Some(load) => rate(&path, &self.keys, load),
            None => path.tcp_per_s(u32::from(self.connections)),
        }
    }

    fn exchanges(&self) -> f64 {
        self.load.map_or(1.0, |load| f64::from(self.keys.exchanges(load.direction, load.block_bytes)))
    }

    fn requests_per_s(&self) -> Option<f64> {
        self.load.map(|load| self.bytes_per_s / f64::from(load.block_bytes.max(1)))
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

    /// Where to look for it, and where to begin: a limit begins where it was last seen not to limit, the most that was
    /// reached; a time at a tenth of a millisecond.
    fn range(self, measured: &[Measured]) -> Range {
        let most = |of: &dyn Fn(&Measured) -> f64| measured.iter().map(of).fold(0.0, f64::max);
        let bytes_per_s = most(&|one| one.bytes_per_s);
        let round_trip_s = |one: &Measured| one.round_trip_s.max(LEAST_TIME_S);
        let start = match self {
            Constant::Link | Constant::Copy | Constant::Medium => bytes_per_s,
            Constant::Window => {
                most(&|one| one.bytes_per_s / f64::from(one.connections.max(1)) * round_trip_s(one))
            }
            Constant::WritesUnderWay => most(&|one| match one.load {
                Some(load) if load.direction == Direction::Write => one.bytes_per_s * round_trip_s(one),
                _ => 0.0,
            }),
            Constant::CommandsAtOnce => most(&|one| one.load.map_or(1.0, |load| f64::from(load.depth))),
            Constant::Exchanges => most(&|one| one.requests_per_s().unwrap_or(0.0) * one.exchanges()),
            Constant::WindowDelay | Constant::Exchange | Constant::Command => {
                return Range { start: 1e-4, least: LEAST_TIME_S, most: 1.0 };
            }
        };
        let start = start.max(1.0);
        match self {
            // More than are asked are never under way, and less than one never either.
            Constant::CommandsAtOnce => Range { start, least: 1.0, most: start },
            _ => Range { start, least: start / BEYOND, most: start * BEYOND },
        }
    }
}

/// Below this a time explains nothing: a tenth of a microsecond.
const LEAST_TIME_S: f64 = 1e-7;
