//! Compares rates and CPU loads with those of the document that the suite repeats, if the document prints
//! both (only 004 does). The layout is the same as in the document: each row's rates are above its loads.

use published::{Direction, Row};
use readable::figures::megabytes;

use super::Report;
use crate::summary::CellSummary;
use bench::plan::{Percent, Role, Workload};

/// A table of rates and CPU loads.
pub(super) struct Loads<'a> {
    /// The number of the document.
    pub(super) document: &'a str,
    /// The names of the measured cells that make the same requests as a test of the document.
    pub(super) cells: Vec<&'a str>,
    /// The name of each row, with its value for each cell.
    pub(super) rows: Vec<(String, Vec<String>)>,
    /// A note for readers.
    pub(super) note: String,
}

/// The prefix of the document's tests over networks. Storage over a network is compared with these, and other
/// storage with the document's tests of disks.
const OVER_A_NETWORK: &str = "3.";

/// Returns whether storage of this kind is accessed over a network. A kind starts with the scheme of a URL.
fn is_remote(kind: &str) -> bool {
    let protocol = kind.split_once('+').map_or(kind, |(protocol, _)| protocol);
    ["iscsi", "nbd", "nbds", "hyperscsi", "aoe", "rbd"].contains(&protocol)
}

impl<'a> Loads<'a> {
    /// Creates the table; `None` if the document prints no CPU loads, or if none of its tests were measured.
    pub(super) fn of(report: &'a Report<'_>) -> Option<Loads<'a>> {
        let document = report.record.suite.document.as_deref()?;
        let is_remote = is_remote(&report.record.subject.kind);
        let is_wanted =
            |row: &&Row| row.document == document && row.table.starts_with(OVER_A_NETWORK) == is_remote;
        let loads =
            || published::rows().iter().filter(is_wanted).filter(|row| row.metric == "cpu_load_client");
        let mut measured: Vec<(&CellSummary, &str)> = Vec::new();
        for summary in report.summaries.iter().filter(|summary| summary.runs > 0) {
            // If several cells make the same requests, the first one corresponds to the test: bonnie++ uses
            // the cache.
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
    let says =
        "Loads are percentages of all CPUs of a machine; the document's loads were measured with vmstat.";
    let more = match (is_shared, is_known) {
        (true, _) => " Server and client run on this machine: each load is the share of that process.",
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

/// Returns whether a cell makes the same requests as a published row.
fn is_same(summary: &CellSummary, row: &Row) -> bool {
    let [Role { workload, .. }] = &summary.cell.roles[..] else { return false };
    let [access] = &workload.accesses[..] else { return false };
    let (read, random) = match (row.direction, &*row.pattern) {
        (Some(Direction::Read), "sequential") => (Percent::ALL, Percent::NONE),
        (Some(Direction::Read), "random") => (Percent::ALL, Percent::ALL),
        (Some(Direction::Write), "sequential") => (Percent::NONE, Percent::NONE),
        (Some(Direction::Write), "random") => (Percent::NONE, Percent::ALL),
        _ => return false,
    };
    let published = Workload::simple(access.block_bytes, 1, read, random).kind();
    row.block_bytes == Some(access.block_bytes) && workload.kind() == published
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary;
    use bench::plan::{Distribution, Pace};
    use bench::test_record::{clients, record, run};

    #[test]
    fn only_a_cell_that_makes_the_requests_of_a_row_stands_beside_it() {
        let rows = || published::rows().iter().filter(|row| row.document == "004");
        let row = |pattern| {
            let read = |row: &&Row| row.direction == Some(Direction::Read) && row.block_bytes.is_some();
            rows().filter(read).find(|row| row.pattern == pattern).expect("a row")
        };
        let (random, sequential) = (row("random"), row("sequential"));
        let is_same = |workload: &Workload, row| {
            let cell = clients("c", 1, workload);
            let runs = vec![run(&cell, 0, &[1000.0])];
            super::is_same(&summary::of(&record(vec![cell], runs))[0], row)
        };
        let reads =
            |row: &Row, random| Workload::simple(row.block_bytes.expect("a length"), 1, Percent::ALL, random);
        let workload = reads(random, Percent::ALL);
        assert!(is_same(&workload, random) && is_same(&reads(sequential, Percent::NONE), sequential));
        assert!(!is_same(&reads(random, Percent::NONE), random));
        let distribution = Distribution::Hot { requests: Percent::ALL, span: Percent::ALL };
        assert!(!is_same(&Workload { distribution, ..workload.clone() }, random));
        let pace = Pace::Constant { per_second: 10.0 };
        assert!(!is_same(&Workload { pace, ..workload }, random), "a rate that was asked for is no result");
    }

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
