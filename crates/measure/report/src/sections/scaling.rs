//! Where more requests or more clients stop to help, in a sentence: the universal scalability law, fitted.

use crate::document::Block;
use crate::summary::{CellSummary, Over, Scaling, scaling};
use readable::figures::{round, significant};

/// A sentence for each curve over this number, if there are any.
pub(super) fn sentences(summaries: &[CellSummary], over: Over) -> Option<Block> {
    let sentences: Vec<String> = laws(summaries, over).iter().map(|law| sentence(summaries, law)).collect();
    (!sentences.is_empty()).then_some(Block::List(sentences))
}

/// The fits over this number.
pub(super) fn laws(summaries: &[CellSummary], over: Over) -> Vec<Scaling> {
    scaling(summaries).into_iter().filter(|scaling| scaling.over == over).collect()
}

fn sentence(summaries: &[CellSummary], scaling: &Scaling) -> String {
    let law = &scaling.law;
    let of = |summary: &&CellSummary| scaling.cells.first() == Some(&summary.cell.name);
    let series = summaries.iter().find(of).map_or("", |summary| summary.cell.series.as_str());
    let number = match scaling.over {
        Over::Clients => "clients",
        Over::Depth => "requests at once",
    };
    let measured = scaling.points.last().map_or(1.0, |(number, _)| *number);
    let peak = match law.peak() {
        Some(peak) if peak <= measured => {
            let most = significant(law.at(peak));
            format!("the rate is highest with {} {number} ({most} IOPS)", round(peak.round()))
        }
        Some(peak) => format!("the rate would be highest with {} {number}", significant(peak)),
        None => format!("the rate grows with every one of the {} {number}", round(measured)),
    };
    format!(
        "{series}: {peak}. Universal scalability law: contention {:.4}, coherency {:.6}; it is off by {} %.",
        law.contention,
        law.coherency,
        significant(law.off_percent)
    )
}
