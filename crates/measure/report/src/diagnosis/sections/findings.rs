//! What is wrong, the greatest gain first: what shows it, what mending it would bring, and what to change.

use crate::diagnosis::gain::{confirmed, predicted, rates};
use crate::diagnosis::words;
use crate::document::{Block, Section, Table};
use diagnose::{Diagnosis, Finding};

pub(super) fn section(diagnosis: &Diagnosis) -> Option<Section> {
    let findings = diagnosis.findings.iter().enumerate();
    let blocks: Vec<Block> =
        findings.flat_map(|(index, finding)| blocks(diagnosis, index, finding)).collect();
    (!blocks.is_empty()).then_some(Section { id: "findings", title: "Findings", blocks })
}

fn blocks(diagnosis: &Diagnosis, index: usize, finding: &Finding) -> Vec<Block> {
    let title =
        format!("{}. {}: {}", index + 1, words::cause(diagnosis, finding.cause), predicted(&finding.gain));
    let mut blocks = vec![Block::Heading(title)];
    let load = diagnosis.evidence.loads.get(finding.load).map(|run| words::load(&run.load));
    if let Some((load, rates)) = load.zip(rates(diagnosis, finding)) {
        blocks.push(Block::Text(format!("{load}: {rates}.")));
    }
    blocks.push(Block::List(finding.because.clone()));
    blocks.extend(remedies(finding));
    blocks.push(Block::Text(tried(finding)));
    blocks
}

fn remedies(finding: &Finding) -> Option<Block> {
    let mut table = Table::of("", &["where", "what to change"]);
    for remedy in &finding.remedies {
        table.row([words::at(remedy.at).to_owned(), remedy.change.clone()]);
    }
    (!table.rows.is_empty()).then_some(Block::Table(table))
}

/// What came of trying it, or how it can be tried.
fn tried(finding: &Finding) -> String {
    match (&finding.gain.confirmed, &finding.trial) {
        (Some(tried), _) => format!("Tried, in turns with and without: {}.", confirmed(tried)),
        (None, Some(change)) => {
            format!("Not tried yet: --confirm measures with {} and without, in turns.", words::change(change))
        }
        (None, None) => "This cannot be tried from here: change it, and diagnose again.".to_owned(),
    }
}
