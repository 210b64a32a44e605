//! What is measured: request length, how many at once, which way, and where to.

/// One workload.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) name: &'static str,
    pub(super) block_bytes: u64,
    pub(super) depth: u32,
    pub(super) direction: Direction,
    pub(super) places: Places,
    /// How many times tgt's rate is asked for, with no more CPU per request.
    pub(super) goal: Option<f64>,
}

/// All requests go one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    Random,
    Sequential,
}

/// The cells of the comparison. The goals are half to two thirds of what SPDK reaches by polling (6.5 and 2.45 times
/// tgt on this kind of machine).
pub(super) const ALL: &[Cell] = &[
    Cell {
        name: "4 KiB random read, depth 32",
        block_bytes: 4 << 10,
        depth: 32,
        direction: Direction::Read,
        places: Places::Random,
        goal: Some(4.0),
    },
    Cell {
        name: "256 KiB sequential read, depth 32",
        block_bytes: 256 << 10,
        depth: 32,
        direction: Direction::Read,
        places: Places::Sequential,
        goal: Some(2.0),
    },
    Cell {
        name: "4 KiB random read, depth 1",
        block_bytes: 4 << 10,
        depth: 1,
        direction: Direction::Read,
        places: Places::Random,
        goal: None,
    },
    Cell {
        name: "4 KiB random write, depth 32",
        block_bytes: 4 << 10,
        depth: 32,
        direction: Direction::Write,
        places: Places::Random,
        goal: None,
    },
    Cell {
        name: "64 KiB sequential write, depth 8",
        block_bytes: 64 << 10,
        depth: 8,
        direction: Direction::Write,
        places: Places::Sequential,
        goal: None,
    },
];

impl Cell {
    pub(super) fn is_read(&self) -> bool {
        self.direction == Direction::Read
    }
}

/// Their names, for messages.
pub(super) fn names() -> String {
    ALL.iter().map(|cell| cell.name).collect::<Vec<_>>().join("; ")
}
