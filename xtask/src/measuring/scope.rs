//! What every measurement can be told: which cells, how often, and for how long.

use super::cell::Cell;

/// How much of a table is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Scope {
    /// Only cells whose name contains this; may be repeated
    #[arg(long, value_name = "TEXT")]
    cells: Vec<String>,
    /// Rounds; each figure is the median of them
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Seconds for each figure in each round [default: 1 to 3, by what is measured]
    #[arg(long)]
    seconds: Option<f64>,
    /// Leave the page in docs as it is
    #[arg(long)]
    dry: bool,
}

impl Scope {
    /// Whether this cell is meant.
    pub(crate) fn has(&self, cell: &Cell) -> bool {
        cell.is_named(&self.cells)
    }

    /// How long each figure is measured for; `usual` if nobody says.
    pub(crate) fn seconds(&self, usual: f64) -> f64 {
        self.seconds.unwrap_or(usual)
    }

    /// Whether the page may be written: the whole of a table was measured, and nobody minds.
    pub(crate) fn is_for_the_page(&self) -> bool {
        !self.dry && self.cells.is_empty()
    }
}
