//! What is counted.

/// Commands of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    operation: &'static str,
    bytes: u32,
    depth: u32,
    volume: &'static str,
    digests: &'static str,
}

/// Instructions for one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) target: u64,
    pub(super) initiator: u64,
}

const PLAIN: Cell = Cell { operation: "read", bytes: 4096, depth: 32, volume: "ram", digests: "plain" };

/// All cells. Depth 1 counts what a wake-up costs; a cached file's data go through a buffer at once, and the null device's
/// by a request that ends when it is first looked at.
pub(super) const CELLS: &[Cell] = &[
    PLAIN,
    Cell { operation: "write", ..PLAIN },
    Cell { depth: 1, ..PLAIN },
    Cell { operation: "write", depth: 1, ..PLAIN },
    Cell { volume: "cached", ..PLAIN },
    Cell { operation: "write", volume: "cached", ..PLAIN },
    Cell { volume: "null", ..PLAIN },
    Cell { operation: "write", volume: "null", ..PLAIN },
    Cell { digests: "digests", ..PLAIN },
    Cell { operation: "write", digests: "digests", ..PLAIN },
    Cell { bytes: 65536, depth: 8, ..PLAIN },
    Cell { operation: "write", bytes: 65536, depth: 8, ..PLAIN },
];

impl Cell {
    /// As people read it, and as the baseline calls it.
    pub(super) fn name(&self) -> String {
        let Cell { operation, bytes, depth, volume, digests } = self;
        let digests = if *digests == "plain" { "" } else { ", both digests" };
        format!("{} KiB {operation}, depth {depth}, {volume}{digests}", bytes >> 10)
    }

    /// The program's arguments for so many commands.
    pub(super) fn arguments(&self, commands: u64) -> [String; 6] {
        let Cell { operation, bytes, depth, volume, digests } = *self;
        [
            operation.to_owned(),
            bytes.to_string(),
            depth.to_string(),
            volume.to_owned(),
            digests.to_owned(),
            commands.to_string(),
        ]
    }
}

impl Counts {
    /// By how many percent each end's is above what it was.
    pub(super) fn percent_above(self, before: Counts) -> [f64; 2] {
        // The difference first: whole numbers stay exact, and five percent are five.
        let percent = |now: u64, before: u64| (now as f64 - before as f64) * 100.0 / before.max(1) as f64;
        [percent(self.target, before.target), percent(self.initiator, before.initiator)]
    }
}
