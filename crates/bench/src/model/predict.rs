//! From a path to what it gives: the smallest of its limits.

use serde::Serialize;

use super::{Keys, Load, Path, Term, Traffic};

/// What a load comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Bytes of data a second, all sessions together. Infinite if nothing that is known limits.
    pub bytes_per_s: f64,
    /// How long a request takes with that many under way, in seconds (Little's law).
    pub latency_s: f64,
    /// How long a request takes that is alone, in seconds.
    pub alone_s: f64,
    /// How often a request waits for the other side.
    pub exchanges: u32,
    /// Every limit that is known, in bytes a second, the tightest first.
    pub terms: Vec<(Term, f64)>,
}

impl Prediction {
    /// What limits; `None` if nothing that is known does.
    pub fn binding(&self) -> Option<Term> {
        self.terms.first().map(|(term, _)| *term)
    }

    /// Requests a second.
    pub fn requests_per_s(&self, load: &Load) -> f64 {
        self.bytes_per_s / f64::from(load.block_bytes.max(1))
    }

    /// A limit by itself, if it is known.
    pub fn term(&self, term: Term) -> Option<f64> {
        self.terms.iter().find(|(other, _)| *other == term).map(|(_, bytes_per_s)| *bytes_per_s)
    }
}

/// What a load comes to on a path, with what its sessions agreed on.
///
/// A request that is alone takes T = n (RTT + r) + a + B / b: n exchanges, and what the ends take for each, for the command
/// and for its data. So many at once give so many times B / T, unless something is used up before.
pub fn predict(path: &Path, keys: &Keys, load: &Load) -> Prediction {
    of_limits(limits(path, keys, load), path, keys, load)
}

/// What a load comes to with limits that may have been changed since.
pub(super) fn of_limits(limits: [(Term, f64); 6], path: &Path, keys: &Keys, load: &Load) -> Prediction {
    let mut terms: Vec<(Term, f64)> =
        limits.into_iter().filter(|(_, bytes_per_s)| bytes_per_s.is_finite()).collect();
    terms.sort_by(|one, other| one.1.total_cmp(&other.1));
    let bytes_per_s = terms.first().map_or(f64::INFINITY, |(_, bytes_per_s)| *bytes_per_s);
    let alone_s = alone(path, keys, load);
    let under_way = f64::from(load.depth.max(1)) * f64::from(load.sessions.max(1));
    let shared_s = under_way * f64::from(load.block_bytes) / bytes_per_s;
    Prediction {
        bytes_per_s,
        // With nothing to move there is no rate, and a request takes what it takes alone.
        latency_s: if shared_s.is_finite() { shared_s.max(alone_s) } else { alone_s },
        alone_s,
        exchanges: keys.exchanges(load.direction, load.block_bytes),
        terms,
    }
}

/// The same, only the rate, and without the list: a fit asks many thousand times.
pub(super) fn rate(path: &Path, keys: &Keys, load: &Load) -> f64 {
    limits(path, keys, load).into_iter().fold(f64::INFINITY, |least, (_, limit)| least.min(limit))
}

/// How long a request takes that is alone, in seconds.
fn alone(path: &Path, keys: &Keys, load: &Load) -> f64 {
    let exchanges = f64::from(keys.exchanges(load.direction, load.block_bytes));
    let data = path.copy_per_s.map_or(0.0, |copy| f64::from(load.block_bytes) / copy);
    exchanges * (path.round_trip_s + path.exchange_s) + path.command_s + data
}

/// Every limit, infinite where nothing is known.
pub(super) fn limits(path: &Path, keys: &Keys, load: &Load) -> [(Term, f64); 6] {
    use super::Direction::{Read, Write};
    let block = f64::from(load.block_bytes);
    let sessions = f64::from(load.sessions.max(1));
    let traffic = Traffic::of(load.direction, load.block_bytes, keys);
    // What of TCP's payload in the fuller direction is data.
    let data_share = block / (traffic.more() as f64).max(1.0);
    let or_none = |limit: Option<f64>| limit.unwrap_or(f64::INFINITY);

    let connections = u32::from(path.connections.max(1)) * u32::from(load.sessions.max(1));
    let depth = f64::from(load.depth.max(1)).min(or_none(path.commands_at_once));
    let one_way_s = path.round_trip_s + path.exchange_s;
    let under_way = match load.direction {
        Read => None,
        Write => path.writes_under_way_bytes,
    };
    let exchanges = f64::from(keys.exchanges(load.direction, load.block_bytes));
    [
        (Term::Link, or_none(path.payload_per_s) * data_share),
        (Term::Window, path.window_per_s(connections) * data_share),
        (Term::Depth, sessions * depth * block / alone(path, keys, load)),
        (Term::WritesUnderWay, or_none(under_way) * sessions / one_way_s),
        (Term::Exchanges, or_none(path.exchanges_per_s) * block / exchanges),
        (Term::Medium, or_none(path.medium_per_s)),
    ]
}
