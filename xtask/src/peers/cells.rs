//! The cells of the comparison, and what is asked of our server in each.

use crate::measuring::cell::{Cell, Direction, Places};
use crate::measuring::client::Measured;

/// A cell and its floors. The cell's own goal is how many times tgt's rate our server as it is shipped must reach.
#[derive(Debug)]
pub(super) struct Contest {
    pub(super) cell: Cell,
    pub(super) raw: Ceiling,
}

/// How near our server must come to the raw one where both never sleep.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ceiling {
    /// Its rate, as a share of the raw server's at least.
    Rate(f64),
    /// Its median latency, as a multiple of the raw server's at most.
    Latency(f64),
}

impl Ceiling {
    /// The figure that the ceiling is about: ours beside raw's.
    pub(super) fn ratio(self, ours: &Measured, raw: &Measured) -> Option<f64> {
        match self {
            Ceiling::Rate(_) => Some(ours.iops / raw.iops),
            Ceiling::Latency(_) => Some(ours.latency_us?.p50 / raw.latency_us?.p50),
        }
    }

    pub(super) fn is_reached(self, ratio: f64) -> bool {
        match self {
            Ceiling::Rate(floor) => ratio >= floor,
            Ceiling::Latency(most) => ratio <= most,
        }
    }

    pub(super) fn in_words(self) -> String {
        match self {
            Ceiling::Rate(floor) => format!("rate ≥ {floor:.2}"),
            Ceiling::Latency(most) => format!("p50 ≤ {most:.2}"),
        }
    }
}

/// The one that questions of CPU time are asked in.
pub(super) const DEEP_READ: &str = "4 KiB random read, depth 32";

/// As the issue has them. Against tgt each floor is a little above what SPDK reaches by polling on this kind of machine.
pub(super) const CONTESTS: &[Contest] = &[
    random("4 KiB random read, depth 1", 1, 1, Direction::Read, 3.6, Ceiling::Latency(1.15)),
    random(DEEP_READ, 32, 1, Direction::Read, 6.9, Ceiling::Rate(0.88)),
    random("4 KiB random read, 8 sessions of depth 8", 8, 8, Direction::Read, 9.0, Ceiling::Rate(0.6)),
    random("4 KiB random write, depth 1", 1, 1, Direction::Write, 3.8, Ceiling::Latency(1.15)),
    random("4 KiB random write, depth 32", 32, 1, Direction::Write, 8.0, Ceiling::Rate(0.45)),
    sequential("64 KiB sequential read, depth 8", 64 << 10, 8, Direction::Read, 5.0, 0.75),
    sequential("64 KiB sequential write, depth 8", 64 << 10, 8, Direction::Write, 2.4, 0.8),
    sequential("256 KiB sequential read, depth 32", 256 << 10, 32, Direction::Read, 3.0, 0.9),
    sequential("256 KiB sequential write, depth 32", 256 << 10, 32, Direction::Write, 2.0, 0.9),
    sequential("512 B sequential read, depth 6", 512, 6, Direction::Read, 3.2, 0.9),
];

const fn random(
    name: &'static str,
    depth: u32,
    sessions: u32,
    direction: Direction,
    tgt: f64,
    raw: Ceiling,
) -> Contest {
    let places = Places::Random;
    Contest {
        cell: Cell { name, block_bytes: 4 << 10, depth, sessions, direction, places, goal: Some(tgt) },
        raw,
    }
}

const fn sequential(
    name: &'static str,
    block_bytes: u64,
    depth: u32,
    direction: Direction,
    tgt: f64,
    raw: f64,
) -> Contest {
    let places = Places::Sequential;
    let cell = Cell { name, block_bytes, depth, sessions: 1, direction, places, goal: Some(tgt) };
    Contest { cell, raw: Ceiling::Rate(raw) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measuring::client::Latency;

    fn with_p50(p50: f64) -> Measured {
        let latency_us = Some(Latency { p50, p99: p50, p999: p50 });
        Measured { latency_us, ..Measured::of_rate(1e6 / p50, 1.0) }
    }

    #[test]
    fn a_latency_must_be_low_and_a_rate_high() {
        let (quick, slow) = (with_p50(10.0), with_p50(12.0));
        let latency = Ceiling::Latency(1.15);
        assert!(latency.ratio(&slow, &quick).is_some_and(|ratio| !latency.is_reached(ratio)));
        assert!(latency.ratio(&quick, &slow).is_some_and(|ratio| latency.is_reached(ratio)));
        let rate = Ceiling::Rate(0.9);
        assert!(rate.ratio(&slow, &quick).is_some_and(|ratio| !rate.is_reached(ratio)));
        assert_eq!(
            latency.ratio(&slow, &Measured::of_rate(1.0, 1.0)),
            None,
            "who tells no latency has no ratio"
        );
    }
}
