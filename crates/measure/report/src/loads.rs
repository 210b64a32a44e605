//! Rates and CPU loads beside those of the document that the suite repeats, where it prints both (004): laid out as there, the
//! rates of a row above its loads.

use published::{Direction as Way, Row};
use readable::figures::megabytes;

use super::Report;
use super::views::Direction;
use crate::summary::CellSummary;
use bench::plan::Percent;

/// The table.
pub(super) struct Loads<'a> {
    /// The document's number.
    pub(super) document: &'a str,
    /// The names of the cells that were measured, and whose requests the document's tests made.
    pub(super) cells: Vec<&'a str>,
    /// What each row is, and what it says of each cell.
    pub(super) rows: Vec<(String, Vec<String>)>,
    /// What is to be known of it.
    pub(super) note: String,
}

/// Storage that is reached over a network stands beside networks, and other storage beside disks.
const OVER_A_NETWORK: &str = "3.";

/// Whether storage of this kind, which a URL's scheme begins, is reached over a network.
fn is_remote(kind: &str) -> bool {
    let protocol = kind.split_once('+').map_or(kind, |(protocol, _)| protocol);
    ["iscsi", "nbd", "nbds", "hyperscsi", "aoe", "rbd"].contains(&protocol)
}

impl<'a> Loads<'a> {
    /// Nothing if the document prints no CPU loads, or nothing of it was measured.
    pub(super) fn of(report: &'a Report<'_>) -> Option<Loads<'a>> {
        let document = report.record.suite.document.as_deref()?;
        let is_remote = is_remote(&report.record.subject.kind);
        let is_wanted =
            |row: &&Row| row.document == document && row.table.starts_with(OVER_A_NETWORK) == is_remote;
        let loads =
            || published::rows().iter().filter(is_wanted).filter(|row| row.metric == "cpu_load_client");
        let mut measured: Vec<(&CellSummary, &str)> = Vec::new();
        for summary in report.summaries.iter().filter(|summary| summary.runs > 0) {
            // Where several cells make the same requests, the first is the test's: bonnie++ goes through the cache.
            let test = loads().find(|row| is_same(summary, row)).map(|row| row.test.as_str());
            measured.extend(
                test.filter(|test| measured.iter().all(|(_, known)| known != test))
                    .map(|test| (summary, test)),
            );
        }
        if measured.is_empty() {
            return None;
        }
        let of_each =
            |of: &dyn Fn(&CellSummary) -> String| measured.iter().map(|(summary, _)| of(summary)).collect();
        let mut rows: Vec<(String, Vec<String>)> = vec![
            ("measured here, MB/s".to_owned(), of_each(&|summary| megabytes(summary.bytes_per_s.median))),
            ("CPU load of the client".to_owned(), of_each(&|summary| percent(summary.cpu_load.client))),
            ("CPU load of the server".to_owned(), of_each(&|summary| percent(summary.cpu_load.server))),
        ];
        let mut systems: Vec<(&str, &str)> =
            loads().map(|row| (row.table.as_str(), row.system.as_str())).collect();
        systems.dedup();
        for (table, system) in systems {
            let printed = |metric: &str, unit: &str| {
                let of = |test: &str| {
                    let mut rows = published::rows().iter().filter(is_wanted);
                    let row = rows.find(|row| {
                        row.table == table && row.system == system && row.test == test && row.metric == metric
                    });
                    row.map_or_else(|| "-".to_owned(), |row| format!("{}{unit}", row.printed))
                };
                measured.iter().map(|(_, test)| of(test)).collect()
            };
            let name = system.rsplit_once(", ").map_or(system, |(_, name)| name);
            let number = table.split(' ').next().unwrap_or_default();
            rows.push((format!("{number} {name}, MB/s"), printed("throughput", "")));
            rows.push(("CPU load of the client".to_owned(), printed("cpu_load_client", " %")));
        }
        let cells = measured.iter().map(|(summary, _)| summary.cell.name.as_str()).collect();
        let is_shared = measured.iter().any(|(summary, _)| summary.cpu_load.is_shared);
        let is_known = measured.iter().any(|(summary, _)| summary.cpu_load.server.is_some());
        Some(Loads { document, cells, rows, note: note(is_shared, is_known, is_remote) })
    }
}

fn note(is_shared: bool, is_known: bool, is_remote: bool) -> String {
    let says = "Loads are percent of all CPUs of a machine; the document's are by vmstat.";
    let more = match (is_shared, is_known) {
        (true, _) => " Server and client share this machine: each load is what that process used of it.",
        (false, true) => " Ours are those of both machines, whatever runs there.",
        (false, false) if is_remote => {
            " The server's is not known: it is on another machine, or may not be looked at. An agent on its machine tells \
             it (--server-agent)."
        }
        (false, false) => "",
    };
    format!("{says}{more}")
}

fn percent(load: Option<f64>) -> String {
    load.map_or_else(|| "-".to_owned(), |load| format!("{load:.0} %"))
}

/// Whether a cell makes the requests of a published row.
fn is_same(summary: &CellSummary, row: &Row) -> bool {
    let [role] = &summary.cell.roles[..] else { return false };
    let [access] = &role.workload.accesses[..] else { return false };
    let direction = match Direction::of(&summary.cell) {
        Direction::Read => Way::Read,
        Direction::Write => Way::Write,
        Direction::Both => return false,
    };
    let pattern = match access.random {
        Percent::NONE => "sequential",
        Percent::ALL => "random",
        _ => return false,
    };
    row.direction == Some(direction) && row.block_bytes == Some(access.block_bytes) && row.pattern == pattern
}

#[cfg(test)]
mod tests {
    use super::is_remote;

    #[test]
    fn every_protocol_stands_beside_networks_and_layers_and_files_beside_disks() {
        for kind in ["iscsi", "nbd", "nbd+unix", "nbds", "hyperscsi", "hyperscsi+udp", "aoe"] {
            assert!(is_remote(kind), "{kind}");
        }
        for kind in ["file", "ram", "block device", "raid5"] {
            assert!(!is_remote(kind), "{kind}");
        }
    }
}
