//! What is to be seen while it goes on.

mod line;
mod watch;

use crate::output::remark;

pub(crate) use line::Line;
pub(super) use watch::Watch;

pub(crate) use bench_runner::view::{RunStart, View};

/// Nobody looks, but notes may be read later.
pub(super) struct Notes;

impl View for Notes {
    fn note(&mut self, sentence: &str) {
        remark(sentence);
    }
}
