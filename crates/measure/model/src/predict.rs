//! The prediction for a path: the smallest of its limits.

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
/// A request that is alone takes T = n (RTT + r) + a + B / b: n exchanges, and what the ends take for each,
/// for the command and for its data. So many at once give so many times B / T, unless something is used up
/// before.
pub fn predict(path: &Path, keys: &Keys, load: &Load) -> Prediction {
    let demand = Demand::new(keys, load);
    demand.on(path, demand.limits(path))
}

/// What a load asks of any path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    load: Load,
    exchanges: u32,
    /// What of TCP's payload in the fuller direction is data.
    data_share: f64,
}

impl Demand {
    pub(super) fn new(keys: &Keys, load: &Load) -> Demand {
        let traffic = Traffic::of_request(load.direction, load.block_bytes, keys);
        Demand {
            load: *load,
            exchanges: keys.exchanges(load.direction, load.block_bytes),
            data_share: f64::from(load.block_bytes) / (traffic.more() as f64).max(1.0),
        }
    }

    /// How often a request waits for the other side.
    pub(super) fn exchanges(&self) -> u32 {
        self.exchanges
    }

    /// Requests a second at so many bytes a second.
    pub(super) fn requests(&self, bytes_per_s: f64) -> f64 {
        bytes_per_s / f64::from(self.load.block_bytes.max(1))
    }

    /// The smallest limit of a path, in bytes a second.
    pub(super) fn rate(&self, path: &Path) -> f64 {
        self.limits(path).into_iter().fold(f64::INFINITY, |least, (_, limit)| least.min(limit))
    }

    /// Every limit of a path, in bytes a second; infinite where nothing is known.
    pub(super) fn limits(&self, path: &Path) -> [(Term, f64); 6] {
        use super::Direction::{Read, Write};
        let load = &self.load;
        let block = f64::from(load.block_bytes);
        let sessions = f64::from(load.sessions.max(1));
        let or_none = |limit: Option<f64>| limit.unwrap_or(f64::INFINITY);

        let connections = u32::from(path.connections.max(1)) * u32::from(load.sessions.max(1));
        let depth = f64::from(load.depth.max(1)).min(or_none(path.commands_at_once));
        let under_way = match load.direction {
            Read => None,
            Write => path.writes_under_way_bytes,
        };
        [
            (Term::Link, or_none(path.payload_per_s) * self.data_share),
            (Term::Window, path.window_per_s(connections) * self.data_share),
            (Term::Depth, sessions * depth * block / self.alone(path)),
            (Term::WritesUnderWay, or_none(under_way) * sessions / (path.round_trip_s + path.exchange_s)),
            (Term::Exchanges, or_none(path.exchanges_per_s) * block / f64::from(self.exchanges)),
            (Term::Medium, or_none(path.medium_per_s)),
        ]
    }

    /// How long a request takes that is alone, in seconds.
    fn alone(&self, path: &Path) -> f64 {
        let data = path.copy_per_s.map_or(0.0, |copy| f64::from(self.load.block_bytes) / copy);
        f64::from(self.exchanges) * (path.round_trip_s + path.exchange_s) + path.command_s + data
    }

    /// What comes of these limits of a path.
    pub(super) fn on(&self, path: &Path, limits: [(Term, f64); 6]) -> Prediction {
        let mut terms: Vec<(Term, f64)> =
            limits.into_iter().filter(|(_, bytes_per_s)| bytes_per_s.is_finite()).collect();
        terms.sort_by(|one, other| one.1.total_cmp(&other.1));
        let bytes_per_s = terms.first().map_or(f64::INFINITY, |(_, bytes_per_s)| *bytes_per_s);
        let alone_s = self.alone(path);
        let under_way = f64::from(self.load.depth.max(1)) * f64::from(self.load.sessions.max(1));
        let shared_s = under_way * f64::from(self.load.block_bytes) / bytes_per_s;
        Prediction {
            bytes_per_s,
            // With nothing to move there is no rate, and a request takes what it takes alone.
            latency_s: if shared_s.is_finite() { shared_s.max(alone_s) } else { alone_s },
            alone_s,
            exchanges: self.exchanges,
            terms,
        }
    }
}
