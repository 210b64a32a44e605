//! What is to be seen while it goes on.

mod line;
mod watch;

use bench::record::{CellRun, Sample};

use crate::output::remark;

pub(super) use line::Line;
pub(super) use watch::Watch;

use conduct::crew::Purged;
use conduct::now::{Now, Rates};
pub(super) use conduct::view::{RunStart, View};

/// Nobody looks, but notes may be read later.
pub(super) struct Nobody {
    /// Notes are not wanted either.
    pub(super) quiet: bool,
}

impl View for Nobody {
    fn begins(&mut self, _: &RunStart<'_>) {}
    fn sample(&mut self, _: usize, _: &Sample) {}
    fn purged(&mut self, _: Purged) {}
    fn ended(&mut self, _: &CellRun) {}

    fn note(&mut self, sentence: &str) {
        if !self.quiet {
            remark(sentence);
        }
    }
}
