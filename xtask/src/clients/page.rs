//! The figures as tables, a section of the page and JSON.

use std::fmt::Write;

use anyhow::Result;
use serde_json::json;

use super::{CLIENTS, Results, SERVERS};
use crate::measuring::cell::Cell;
use crate::measuring::client::{Client, Measured};
use crate::measuring::figures::{median, spread};
use crate::serving::Peer;

/// What a goal is a multiple of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Requests for each second of the client's CPU, where its CPU is what runs out.
    IopsPerClientCpu,
    /// Requests a second, where each waits for the one before it.
    Iops,
}

impl Figure {
    fn of(cell: &Cell) -> Figure {
        if cell.depth == 1 { Figure::Iops } else { Figure::IopsPerClientCpu }
    }

    fn in_words(self) -> &'static str {
        match self {
            Figure::IopsPerClientCpu => "IOPS per CPU second",
            Figure::Iops => "IOPS",
        }
    }

    fn value(self, measured: &Measured) -> f64 {
        match self {
            Figure::IopsPerClientCpu => measured.iops_per_client_cpu(),
            Figure::Iops => measured.iops,
        }
    }
}

/// Whether every goal is reached beside every other client that was measured.
pub(super) fn all_reached(cells: &[&'static Cell], results: &Results) -> bool {
    let reached = |cell: &Cell, server, client| {
        let ours = of(cell, server, Client::Linerate, results);
        let theirs = of(cell, server, client, results);
        ours.zip(theirs).is_none_or(|(ours, theirs)| is_reached(cell, server, &ours, &theirs))
    };
    let others = || CLIENTS.into_iter().filter(|client| *client != Client::Linerate);
    let against = |cell: &Cell, server| others().all(|client| reached(cell, server, client));
    cells.iter().all(|cell| SERVERS.into_iter().all(|server| against(cell, server)))
}

/// What is asked for against this server. Against the raw one, where the client alone limits, it is twice libiscsi's
/// requests for each second of CPU.
fn goal(cell: &Cell, server: Peer) -> Option<f64> {
    let is_cpu = Figure::of(cell) == Figure::IopsPerClientCpu;
    cell.goal.map(|goal| if server == Peer::RawSpinning && is_cpu { 2.0 } else { goal })
}

fn is_reached(cell: &Cell, server: Peer, ours: &Measured, theirs: &Measured) -> bool {
    let figure = Figure::of(cell);
    goal(cell, server).is_none_or(|goal| figure.value(ours) >= goal * figure.value(theirs))
}

fn of(cell: &Cell, server: Peer, client: Client, results: &Results) -> Option<Measured> {
    results.measured.get(&(cell.name, server, client)).and_then(|rounds| median(rounds))
}

/// A row for each client in each cell against one server; ours first, the others with how many times theirs ours is.
pub(super) fn table(cells: &[&'static Cell], server: Peer, results: &Results) -> String {
    let mut text = String::from(
        "| cell | client | IOPS | MB/s | client CPU µs/IO | IOPS per client CPU s | server CPU µs/IO | ours: IOPS | ours: per CPU | goal | spread |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---|---|\n",
    );
    for cell in cells {
        let Some(ours) = of(cell, server, Client::Linerate, results) else { continue };
        for client in CLIENTS {
            let Some(measured) = of(cell, server, client, results) else { continue };
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} | {:.0} | {:.2} | {:.0} | {:.2} | {} | {} |",
                cell.name,
                client.name(),
                measured.iops,
                measured.mb_per_s,
                measured.client_cpu_us_per_io,
                measured.iops_per_client_cpu(),
                measured.server_cpu_us_per_io,
                if client == Client::Linerate {
                    "| |".to_owned()
                } else {
                    times(cell, server, &ours, &measured)
                },
                results
                    .measured
                    .get(&(cell.name, server, client))
                    .map_or_else(String::new, |all| spread(all)),
            );
        }
    }
    text
}

/// Three columns: how many times their rate, how many times their rate per CPU, and what was asked for.
fn times(cell: &Cell, server: Peer, ours: &Measured, theirs: &Measured) -> String {
    let figure = Figure::of(cell);
    let goal = goal(cell, server).map_or_else(String::new, |goal| {
        let verdict = if is_reached(cell, server, ours, theirs) { "reached" } else { "**missed**" };
        format!("{} ≥ {goal:.1}: {verdict}", figure.in_words())
    });
    let [rate, per_cpu] =
        [Figure::Iops, Figure::IopsPerClientCpu].map(|figure| figure.value(ours) / figure.value(theirs));
    format!("{rate:.2} | {per_cpu:.2} | {goal}")
}

/// The section of the page.
pub(super) fn section(cells: &[&'static Cell], results: &Results) -> String {
    let setting = &results.setting;
    let mut page = format!(
        "`cargo xtask clients` measures this and writes this section: `linerate bench` beside the two programs with \
         libiscsi inside that its users know, `iscsi-perf` (which has no writes) and `qemu-img bench`, one session \
         each with default settings. Server pinned to core 0, client to core 1, in a network namespace of their own \
         ({}). Medians of {} alternating rounds of {} s a cell; each server started afresh and its whole volume \
         written first. MB are 10^6 bytes. A client's CPU is the user and system time of its whole process, start and \
         login included, for each request; \"ours\" is how many times the figure of that row ours is.\n\n\
         Random places are drawn by `linerate bench` and `iscsi-perf`; `qemu-img bench` knows only a step from each \
         request to the next, and has one of 0.618 of the volume here, which scatters them as evenly. `iscsi-perf` reads \
         everything into one buffer, which stays in the processor's cache; the others have a buffer for each request \
         under way. Ours takes the time of each request besides, and looks for answers for up to 50 µs before it goes \
         to sleep: at depth 1 that is most of its CPU time.\n\n",
        setting.congestion, setting.rounds, setting.seconds,
    );
    page.push_str(&setting.line());
    for server in SERVERS {
        let what = match server {
            Peer::Tgt => &setting.tgt,
            Peer::RawSpinning => "`linerate raw serve --poll always`, which is never what limits a client",
            _ => "`linerate serve --volume ram0=ram:1GiB`",
        };
        let _ = writeln!(page, "Against {what}:\n\n{}", table(cells, server, results));
    }
    page
}

/// Every round's figures.
pub(super) fn json(cells: &[&'static Cell], results: &Results) -> Result<String> {
    let mut runs = Vec::new();
    for (cell, server) in cells.iter().flat_map(|cell| SERVERS.map(|server| (cell, server))) {
        for client in CLIENTS {
            let Some(rounds) = results.measured.get(&(cell.name, server, client)) else { continue };
            runs.push(json!({"cell": cell.name, "server": server, "client": client, "rounds": rounds}));
        }
    }
    Ok(serde_json::to_string_pretty(&json!({"setting": results.setting, "runs": runs}))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::CELLS;

    fn measured(iops: f64, cpu: f64) -> Measured {
        Measured::of_rate(iops, cpu)
    }

    fn cell(name: &str) -> &'static Cell {
        CELLS.iter().find(|cell| cell.name == name).expect("it is in the table")
    }

    #[test]
    fn many_at_once_are_judged_by_what_they_cost() {
        let deep = cell("4 KiB random read, depth 32");
        let [ours, dear, cheap] = [measured(90.0, 1.0), measured(100.0, 1.5), measured(100.0, 1.4)];
        assert!(is_reached(deep, Peer::Tgt, &ours, &dear));
        assert!(!is_reached(deep, Peer::Tgt, &ours, &cheap));
        assert!(!is_reached(deep, Peer::RawSpinning, &ours, &dear), "twice as much is asked for there");
    }

    #[test]
    fn one_after_the_other_are_judged_by_their_rate() {
        let single = cell("4 KiB random write, depth 1");
        assert!(is_reached(single, Peer::Tgt, &measured(100.0, 9.0), &measured(100.0, 1.0)));
        assert!(!is_reached(single, Peer::Tgt, &measured(99.0, 1.0), &measured(100.0, 9.0)));
    }
}
