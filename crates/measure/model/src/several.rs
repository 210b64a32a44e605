//! Contention of several sessions: the model combined with the universal scalability law.

use super::predict::Demand;
use super::{Keys, Load, Path, Prediction, Term};
use stats::Scalability;

/// What the sessions of a load come to together, if several lose something to each other as the law says: a
/// fit of it to the rates of 1, 2, … sessions ([`scalability`](stats::scalability)).
///
/// What each session can have under way, and the exchanges that the ends manage, shrink with the law. Link
/// and medium are the same for one and for many. A law without contention and coherency gives
/// [`predict`](super::predict()).
pub fn predict_sessions(path: &Path, keys: &Keys, load: &Load, law: &Scalability) -> Prediction {
    let sessions = f64::from(load.sessions.max(1));
    let alike = sessions * law.at(1.0);
    let share = if alike > 0.0 { law.at(sessions) / alike } else { 1.0 };
    let demand = Demand::new(keys, load);
    let shrunk = demand.limits(path).map(|(term, limit)| match term {
        Term::Depth | Term::WritesUnderWay | Term::Exchanges => (term, limit * share),
        Term::Link | Term::Window | Term::Medium => (term, limit),
    });
    demand.on(path, shrunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, predict};
    use stats::scalability;

    fn load(sessions: u16) -> Load {
        let direction = Direction::Read;
        Load { direction, block_bytes: 4096, depth: 1, sessions, random: true, durable: false }
    }

    fn path() -> Path {
        Path { payload_per_s: Some(100e6), command_s: 100e-6, ..Path::of_round_trip(0.0) }
    }

    #[test]
    fn sessions_that_share_a_thread_gain_less_and_less() {
        // Each alone 10,000 a second; a fifth of the work is one thread's.
        let law = Scalability { one: 1e4, contention: 0.2, coherency: 0.0, off_percent: 0.0 };
        let iops = |sessions| {
            predict_sessions(&path(), &Keys::default(), &load(sessions), &law).requests_per_s(&load(sessions))
        };
        assert!((iops(1) / 1e4 - 1.0).abs() < 1e-9);
        assert!((iops(2) / (1e4 * 2.0 / 1.2) - 1.0).abs() < 1e-9);
        // The link ends it, however many.
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
}
