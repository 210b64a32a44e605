//! The prediction for a path: the lowest of its limits, for one session or several. Also a search for the
//! values of constants.

use serde::Serialize;
use stats::Scalability;

use crate::{Keys, Load, Path, Term, Traffic};

/// The prediction for a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The data rate of all sessions together, in bytes per second. Infinite if no limit is known.
    pub bytes_per_s: f64,
    /// The time of a request at this queue depth, in seconds, by Little's law.
    pub latency_s: f64,
    /// The time of a single request, in seconds.
    pub alone_s: f64,
    /// The number of times that a request waits for the peer.
    pub exchanges: u32,
    /// Every known limit, in bytes per second, the lowest first.
    pub terms: Vec<(Term, f64)>,
}

impl Prediction {
    /// Returns the lowest limit, or `None` if no limit is known.
    pub fn binding(&self) -> Option<Term> {
        self.terms.first().map(|(term, _)| *term)
    }

    /// Returns requests per second.
    pub fn requests_per_s(&self, load: &Load) -> f64 {
        self.bytes_per_s / f64::from(load.block_bytes.max(1))
    }

    /// Returns a single limit, if it is known.
    pub fn term(&self, term: Term) -> Option<f64> {
        self.terms
            .iter()
            .find(|(other, _)| *other == term)
            .map(|(_, bytes_per_s)| *bytes_per_s)
    }
}

/// Predicts the rate of a load on a path, with the negotiated keys of its sessions.
///
/// A single request takes T = n (RTT + r) + a + B / b. In this formula, n is the number of exchanges, r the time
/// of both ends for an exchange, and a their additional time for the command. B is the length of the data,
/// and b its rate.
/// With the depth d, the rate is d B / T, unless another limit is lower.
pub fn predict(path: &Path, keys: &Keys, load: &Load) -> Prediction {
    let demand = Demand::new(keys, load);
    demand.on(path, demand.limits(path))
}

/// The properties of a load that do not depend on the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    load: Load,
    exchanges: u32,
    /// The share of data in TCP's payload, in the direction with more bytes.
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

    /// Returns the number of times that a request waits for the peer.
    pub(super) fn exchanges(&self) -> u32 {
        self.exchanges
    }

    /// Converts bytes per second to requests per second.
    pub(super) fn requests(&self, bytes_per_s: f64) -> f64 {
        bytes_per_s / f64::from(self.load.block_bytes.max(1))
    }

    /// Returns the lowest limit of a path, in bytes per second.
    pub(super) fn rate(&self, path: &Path) -> f64 {
        self.limits(path)
            .into_iter()
            .fold(f64::INFINITY, |least, (_, limit)| least.min(limit))
    }

    /// Returns every limit of a path, in bytes per second. An unknown limit is infinite.
    pub(super) fn limits(&self, path: &Path) -> [(Term, f64); 6] {
        use crate::Direction::{Read, Write};
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
            (
                Term::Window,
                path.window_per_s(connections) * self.data_share,
            ),
            (Term::Depth, sessions * depth * block / self.alone(path)),
            (
                Term::WritesUnderWay,
                or_none(under_way) * sessions / (path.round_trip_s + path.exchange_s),
            ),
            (
                Term::Exchanges,
                or_none(path.exchanges_per_s) * block / f64::from(self.exchanges),
            ),
            (Term::Medium, or_none(path.medium_per_s)),
        ]
    }

    /// Returns the time of a single request, in seconds.
    fn alone(&self, path: &Path) -> f64 {
        let data = path
            .copy_per_s
            .map_or(0.0, |copy| f64::from(self.load.block_bytes) / copy);
        f64::from(self.exchanges) * (path.round_trip_s + path.exchange_s) + path.command_s + data
    }

    /// Returns the prediction from these limits of a path.
    pub(super) fn on(&self, path: &Path, limits: [(Term, f64); 6]) -> Prediction {
        let mut terms: Vec<(Term, f64)> = limits
            .into_iter()
            .filter(|(_, bytes_per_s)| bytes_per_s.is_finite())
            .collect();
        terms.sort_by(|one, other| one.1.total_cmp(&other.1));
        let bytes_per_s = terms
            .first()
            .map_or(f64::INFINITY, |(_, bytes_per_s)| *bytes_per_s);
        let alone_s = self.alone(path);
        let under_way = f64::from(self.load.depth.max(1)) * f64::from(self.load.sessions.max(1));
        let shared_s = under_way * f64::from(self.load.block_bytes) / bytes_per_s;
        Prediction {
            bytes_per_s,
            // A load without data has no rate; its requests take the time of a single request.
            latency_s: if shared_s.is_finite() {
                shared_s.max(alone_s)
            } else {
                alone_s
            },
            alone_s,
            exchanges: self.exchanges,
            terms,
        }
    }
}

/// Predicts the rate of all sessions of a load combined. The law describes the losses between them; it was
/// fitted to the rates of 1, 2, … sessions ([`scalability`](stats::scalability)).
///
/// The law reduces the limits of the depth, of outstanding write data, and of exchanges. The limits of the
/// link, the TCP window and the medium do not change. With a law without contention and coherency, the result
/// is the same as that of [`predict`](crate::predict()).
pub fn predict_sessions(path: &Path, keys: &Keys, load: &Load, law: &Scalability) -> Prediction {
    let sessions = f64::from(load.sessions.max(1));
    let alike = sessions * law.at(1.0);
    let share = if alike > 0.0 {
        law.at(sessions) / alike
    } else {
        1.0
    };
    let demand = Demand::new(keys, load);
    let shrunk = demand.limits(path).map(|(term, limit)| match term {
        Term::Depth | Term::WritesUnderWay | Term::Exchanges => (term, limit * share),
        Term::Link | Term::Window | Term::Medium => (term, limit),
    });
    demand.on(path, shrunk)
}

// Minimisation of a function of several positive numbers, by a deterministic search without derivatives.
//
// The function is based on the lowest of several limits (`predict`), so its surface has edges and flat areas:
// a limit that does not apply has no effect. Therefore the search first varies each number over its whole
// range while the others are fixed, and then all numbers together with the simplex method of Nelder and Mead
// (1965). Both steps are repeated until they no longer improve the result.

/// A number to find. The search works on logarithms, so it adds where its callers multiply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// The value at which the search starts.
    pub(super) start: f64,
    /// The minimum; above 0.
    pub(super) least: f64,
    /// The maximum.
    pub(super) most: f64,
}

/// Number of rounds of both steps that is sufficient from any starting point.
pub(super) const FROM_ANYWHERE: usize = 6;
/// Number of rounds that is sufficient near the result.
pub(super) const FROM_NEARBY: usize = 2;
/// The number of intervals on each axis, and the number of times that the range around the best value is
/// narrowed.
const PLACES: usize = 24;
const NARROWINGS: usize = 3;
/// Maximum number of steps of a simplex for each of its dimensions.
const STEPS: usize = 150;
/// A simplex has converged if the values at its corners differ by less than this share.
const SAME: f64 = 1e-12;

/// Returns the minimum of `cost`, as found in this number of rounds.
pub(super) fn least(ranges: &[Range], rounds: usize, cost: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let bounds: Vec<(f64, f64)> = ranges
        .iter()
        .map(|range| (range.least.ln(), range.most.ln()))
        .collect();
    let cost = |place: &[f64]| {
        let values: Vec<f64> = place.iter().map(|x| x.exp()).collect();
        let cost = cost(&values);
        if cost.is_nan() { f64::INFINITY } else { cost }
    };
    let mut best: Vec<f64> = ranges
        .iter()
        .zip(&bounds)
        .map(|(range, (low, high))| range.start.ln().clamp(*low, *high))
        .collect();
    let mut found = cost(&best);
    for round in 0..rounds {
        let before = found;
        (best, found) = along_the_axes(best, found, &bounds, &cost);
        // The simplex becomes smaller in each round: the first ones explore, and the last ones converge.
        (best, found) = simplex(
            &best,
            found,
            0.5 / f64::powi(3.0, round as i32),
            &bounds,
            &cost,
        );
        if before.is_finite() && before - found <= SAME * before.abs() {
            break;
        }
    }
    best.iter().map(|x| x.exp()).collect()
}

fn along_the_axes(
    mut best: Vec<f64>,
    mut found: f64,
    bounds: &[(f64, f64)],
    cost: &impl Fn(&[f64]) -> f64,
) -> (Vec<f64>, f64) {
    for axis in 0..best.len() {
        let (mut low, mut high) = bounds[axis];
        for _ in 0..NARROWINGS {
            let width = (high - low) / PLACES as f64;
            for place in 0..=PLACES {
                let mut tried = best.clone();
                tried[axis] = low + width * place as f64;
                let value = cost(&tried);
                if value < found {
                    (best, found) = (tried, value);
                }
            }
            (low, high) = (
                (best[axis] - width).max(bounds[axis].0),
                (best[axis] + width).min(bounds[axis].1),
            );
        }
    }
    (best, found)
}

fn simplex(
    start: &[f64],
    found: f64,
    size: f64,
    bounds: &[(f64, f64)],
    cost: &impl Fn(&[f64]) -> f64,
) -> (Vec<f64>, f64) {
    let dimensions = start.len();
    let held = |place: Vec<f64>| -> (Vec<f64>, f64) {
        let place: Vec<f64> = place
            .iter()
            .zip(bounds)
            .map(|(x, (low, high))| x.clamp(*low, *high))
            .collect();
        let value = cost(&place);
        (place, value)
    };
    let mut corners = vec![(start.to_vec(), found)];
    for axis in 0..dimensions {
        let mut corner = start.to_vec();
        // If the corner would be outside the bounds, move it inward.
        let inward = if corner[axis] + size > bounds[axis].1 {
            -size
        } else {
            size
        };
        corner[axis] += inward;
        corners.push(held(corner));
    }
    for _ in 0..STEPS * dimensions {
        corners.sort_by(|one, other| one.1.total_cmp(&other.1));
        let (best, worst) = (corners[0].1, corners[dimensions].1);
        if worst - best <= SAME * best.abs() {
            break;
        }
        let middle: Vec<f64> = (0..dimensions)
            .map(|axis| {
                corners[..dimensions]
                    .iter()
                    .map(|(place, _)| place[axis])
                    .sum::<f64>()
                    / dimensions as f64
            })
            .collect();
        // A point on the line from the worst corner through the centre of the others: 1 reflects the corner,
        // 2 expands beyond the reflection, -0.5 contracts towards the centre.
        let beyond = |by: f64, from: &[f64]| -> Vec<f64> {
            middle
                .iter()
                .zip(from)
                .map(|(middle, from)| middle + by * (middle - from))
                .collect()
        };
        let from = corners[dimensions].0.clone();
        let mirrored = held(beyond(1.0, &from));
        let better = if mirrored.1 < best {
            let further = held(beyond(2.0, &from));
            Some(if further.1 < mirrored.1 {
                further
            } else {
                mirrored
            })
        } else if mirrored.1 < corners[dimensions - 1].1 {
            Some(mirrored)
        } else {
            let nearer = held(beyond(if mirrored.1 < worst { 0.5 } else { -0.5 }, &from));
            (nearer.1 < worst.min(mirrored.1)).then_some(nearer)
        };
        match better {
            Some(corner) => corners[dimensions] = corner,
            None => {
                let nearest = corners[0].0.clone();
                for corner in &mut corners[1..] {
                    let halfway = corner
                        .0
                        .iter()
                        .zip(&nearest)
                        .map(|(x, best)| (x + best) / 2.0)
                        .collect();
                    *corner = held(halfway);
                }
            }
        }
    }
    corners.sort_by(|one, other| one.1.total_cmp(&other.1));
    corners.swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::scalability;

    use crate::{Direction, predict};

    fn load(sessions: u16) -> Load {
        let direction = Direction::Read;
        Load {
            direction,
            block_bytes: 4096,
            depth: 1,
            sessions,
            random: true,
            durable: false,
        }
    }

    fn path() -> Path {
        Path {
            payload_per_s: Some(100e6),
            command_s: 100e-6,
            ..Path::of_round_trip(0.0)
        }
    }

    #[test]
    fn sessions_that_share_a_thread_gain_less_and_less() {
        // A single session has 10,000 requests per second, and a fifth of the work is serial.
        let law = Scalability {
            one: 1e4,
            contention: 0.2,
            coherency: 0.0,
            off_percent: 0.0,
        };
        let iops = |sessions| {
            predict_sessions(&path(), &Keys::default(), &load(sessions), &law)
                .requests_per_s(&load(sessions))
        };
        assert!((iops(1) / 1e4 - 1.0).abs() < 1e-9);
        assert!((iops(2) / (1e4 * 2.0 / 1.2) - 1.0).abs() < 1e-9);
        // With more sessions, the link is the limit.
        let many = predict_sessions(&path(), &Keys::default(), &load(32), &law);
        assert_eq!(many.binding(), Some(Term::Link));
        assert!((many.bytes_per_s / 100e6 - 4096.0 / 4144.0).abs() < 1e-9);
    }

    #[test]
    fn a_law_that_costs_nothing_changes_nothing() {
        let linear = scalability(&[(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)]).expect("a fit");
        for sessions in [1, 3, 9] {
            let together = predict_sessions(&path(), &Keys::default(), &load(sessions), &linear);
            let apart = predict(&path(), &Keys::default(), &load(sessions));
            assert!((together.bytes_per_s / apart.bytes_per_s - 1.0).abs() < 1e-9);
        }
    }

    const WIDE: Range = Range {
        start: 1.0,
        least: 1e-6,
        most: 1e6,
    };

    #[test]
    fn the_bottom_of_a_bent_valley_is_found() {
        // Rosenbrock's function of the logarithms. Its minimum is at (e, e).
        let cost = |values: &[f64]| {
            let (x, y) = (values[0].ln(), values[1].ln());
            (1.0 - x).powi(2) + 100.0 * (y - x * x).powi(2)
        };
        let found = least(&[WIDE, WIDE], FROM_ANYWHERE, cost);
        assert!(
            found
                .iter()
                .all(|value| (value / 1f64.exp() - 1.0).abs() < 1e-3),
            "{found:?}"
        );
    }

    #[test]
    fn a_plain_leaves_the_start_and_nothing_leaves_the_range() {
        assert_eq!(least(&[WIDE], FROM_ANYWHERE, |_| 1.0), [1.0]);
        let narrow = Range {
            start: 5.0,
            least: 2.0,
            most: 8.0,
        };
        let found = least(&[narrow], FROM_ANYWHERE, |values| values[0]);
        assert!((found[0] - 2.0).abs() < 1e-9, "{found:?}");
        let found = least(&[narrow], FROM_ANYWHERE, |_| f64::NAN);
        assert!((found[0] - 5.0).abs() < 1e-9, "{found:?}");
        assert!(least(&[], FROM_ANYWHERE, |_| 0.0).is_empty());
    }
}
