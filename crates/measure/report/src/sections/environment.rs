//! What has to be known of the machines and the way between them, with what would be better.

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
    let improvable = facts.iter().any(|fact| fact.better.is_some());
    let mut table = Table::of("", &["", "", "value", "better"]);
    if !improvable {
        table.columns.pop();
    }
    for (group, title) in GROUPS {
        for (index, fact) in facts.iter().filter(|fact| fact.group == group).enumerate() {
            let title = if index == 0 { title } else { "" };
            let mut cells = vec![title.to_owned(), fact.name.clone(), fact.value.clone()];
            if improvable {
                cells.push(fact.better.clone().unwrap_or_default());
            }
            table.marked_row(fact.better.is_some(), cells);
        }
    }
    Some(Section { id: "environment", title: "Environment", blocks: vec![Block::Table(table)] })
}
