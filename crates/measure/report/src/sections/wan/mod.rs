//! Distance: document 002's tables with what was measured and what the model expects beside what was printed, and the axes
//! that it names and does not print.

mod axes;
mod matrix;
mod model;
mod numbers;
mod verdict;

pub(super) use verdict::{headlines, missed};

use crate::document::{Block, Section};
use crate::wan::Wan;

/// All that is said of distance, in the order of reading.
pub(super) fn sections(wan: &Wan) -> Vec<Section> {
    let parts: [(&'static str, &'static str, Vec<Block>); 5] = [
        ("wan", "Requests over distance", matrix::over_distance(wan)),
        ("tcp", "TCP alone", matrix::tcp(wan)),
        ("lan", "Gigabit Ethernet, without a delay", matrix::lan(wan)),
        ("axes", "Connections, sessions, packets, windows and loss", axes::blocks(wan)),
        ("model", "The model, and what cannot be", model::blocks(wan)),
    ];
    let sections = parts.into_iter().map(|(id, title, blocks)| Section { id, title, blocks });
    sections.filter(|section| !section.blocks.is_empty()).collect()
}
