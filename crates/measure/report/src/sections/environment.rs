//! What has to be known of the machines and the way between them: what would be better in sight, everything folded.

use crate::Report;
use crate::document::{Block, Section, Table};
use bench::record::{Facts, Group};

const GROUPS: [(Group, &str); 5] = [
    (Group::Negotiated, "Negotiated"),
    (Group::Network, "Network"),
    (Group::Storage, "Storage"),
    (Group::Client, "Client"),
    (Group::Tool, "Tool"),
];

pub(super) fn section(report: &Report<'_>) -> Option<Section> {
    table(&report.record.environment)
}

/// All facts, by their groups.
pub(crate) fn table(facts: &Facts) -> Option<Section> {
    let facts = &facts.0;
    if facts.is_empty() {
        return None;
    }
    let mut blocks = Vec::new();
    if facts.iter().any(|fact| fact.better.is_some()) {
        let mut table = Table::of("What would be better", &["", "value", "better"]);
        for fact in facts {
            let Some(better) = &fact.better else { continue };
            table.marked_row(true, [fact.name.clone(), fact.value.clone(), better.clone()]);
        }
        blocks.push(Block::Table(table));
    }
    let mut table = Table::of("Everything that is known of it", &["", "", "value"]);
    for (group, title) in GROUPS {
        for (index, fact) in facts.iter().filter(|fact| fact.group == group).enumerate() {
            let title = if index == 0 { title } else { "" };
            table.row([title.to_owned(), fact.name.clone(), fact.value.clone()]);
        }
    }
    blocks.push(Block::Table(table.folded(true)));
    Some(Section { id: "environment", title: "Environment", blocks })
}
