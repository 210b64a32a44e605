//! Compares rates and CPU loads with those of the document that the suite repeats, if the document prints
//! both (only 004 does). The layout is the same as in the document: each row's rates are above its loads.

use published::{Row, comparable};
use readable::figures::megabytes;

use super::Report;
use crate::beside::conditions;
use crate::summary::CellSummary;

/// A table of rates and CPU loads.
pub(super) struct Loads<'a> {
    /// The number of the document.
    pub(super) document: &'a str,
    /// The names of the measured cells of the same class as a test of the document.
    pub(super) cells: Vec<&'a str>,
    /// The name of each row, with its value for each cell.
    pub(super) rows: Vec<(String, Vec<String>)>,
    /// A note for readers.
    pub(super) note: String,
}

impl<'a> Loads<'a> {
    /// Creates the table; `None` if the document prints no CPU loads, or if none of its tests were measured.
    pub(super) fn of(report: &'a Report<'_>) -> Option<Loads<'a>> {
        let document = report.record.suite.document.as_deref()?;
        let mut measured: Vec<(&CellSummary, Vec<&Row>)> = Vec::new();
        for summary in report.summaries.iter().filter(|summary| summary.runs > 0) {
            let Some(conditions) = conditions(&report.record.subject, &summary.cell) else {
                continue;
            };
            let rows: Vec<&Row> = comparable(&conditions)
                .filter(|row| row.document == document)
                .collect();
            if rows.iter().any(|row| row.metric == "cpu_load_client") {
                measured.push((summary, rows));
            }
        }
        if measured.is_empty() {
            return None;
        }
        let of_each = |of: &dyn Fn(&CellSummary) -> String| {
            measured.iter().map(|(summary, _)| of(summary)).collect()
        };
        let mut rows: Vec<(String, Vec<String>)> = vec![
            (
                "measured here, MB/s".to_owned(),
                of_each(&|summary| megabytes(summary.bytes_per_s.median)),
            ),
            (
                "CPU load of the client".to_owned(),
                of_each(&|summary| percent(summary.cpu_load.client)),
            ),
            (
                "CPU load of the server".to_owned(),
                of_each(&|summary| percent(summary.cpu_load.server)),
            ),
        ];
        let mut systems: Vec<(&str, &str)> = Vec::new();
        for row in measured.iter().flat_map(|(_, rows)| rows) {
            let system = (row.table.as_str(), row.system.as_str());
            if !systems.contains(&system) {
                systems.push(system);
            }
        }
        for (table, system) in systems {
            let printed = |metric: &str, unit: &str| {
                let of = |rows: &[&Row]| {
                    let is_it = |row: &&&Row| {
                        (row.table.as_str(), row.system.as_str()) == (table, system)
                            && row.metric == metric
                    };
                    let row = rows.iter().find(is_it);
                    row.map_or_else(|| "-".to_owned(), |row| format!("{}{unit}", row.printed))
                };
                measured.iter().map(|(_, rows)| of(rows)).collect()
            };
            let name = system.rsplit_once(", ").map_or(system, |(_, name)| name);
            let number = table.split(' ').next().unwrap_or_default();
            rows.push((format!("{number} {name}, MB/s"), printed("throughput", "")));
            rows.push((
                "CPU load of the client".to_owned(),
                printed("cpu_load_client", " %"),
            ));
        }
        let is_remote = measured.iter().flat_map(|(_, rows)| rows).any(|row| {
            row.class
                .as_ref()
                .is_some_and(|class| class.path.is_network())
        });
        let cells = measured
            .iter()
            .map(|(summary, _)| summary.cell.name.as_str())
            .collect();
        let is_shared = measured
            .iter()
            .any(|(summary, _)| summary.cpu_load.is_shared);
        let is_known = measured
            .iter()
            .any(|(summary, _)| summary.cpu_load.server.is_some());
        Some(Loads {
            document,
            cells,
            rows,
            note: note(is_shared, is_known, is_remote),
        })
    }
}

fn note(is_shared: bool, is_known: bool, is_remote: bool) -> String {
    let says = "Loads are percentages of all CPUs of a machine; the document's loads were measured with vmstat.";
    let more = match (is_shared, is_known) {
        (true, _) => {
            " Server and client run on this machine: each load is the share of that process."
        }
        (false, true) => " Our loads include all programs on both machines.",
        (false, false) if is_remote => {
            " The server's load is unknown, because the server is on another machine or not accessible. To \
             measure it, run an agent on its machine (--server-agent)."
        }
        (false, false) => "",
    };
    format!("{says}{more}")
}

fn percent(load: Option<f64>) -> String {
    load.map_or_else(|| "-".to_owned(), |load| format!("{load:.0} %"))
}
