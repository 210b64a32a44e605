//! What is measured: request length, how many at once, which way, and where to.

/// One workload.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) name: &'static str,
    pub(crate) block_bytes: u64,
    /// Requests under way in each session.
    pub(crate) depth: u32,
    pub(crate) sessions: u32,
    pub(crate) direction: Direction,
    pub(crate) places: Places,
    /// How many times the peer's figure is asked for; which figure that is, the comparison says.
    pub(crate) goal: Option<f64>,
}

/// All requests go one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Places {
    Random,
    Sequential,
}

impl Cell {
    pub(crate) fn is_read(&self) -> bool {
        self.direction == Direction::Read
    }

    /// Whether its name contains one of these; nothing asked for is everything.
    pub(crate) fn is_named(&self, texts: &[String]) -> bool {
        texts.is_empty() || texts.iter().any(|text| self.name.contains(text))
    }
}

/// The names of all cells, for messages.
pub(crate) fn names<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> String {
    cells.into_iter().map(|cell| cell.name).collect::<Vec<_>>().join("; ")
}
