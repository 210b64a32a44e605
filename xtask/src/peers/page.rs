//! The figures as a table, a section of the page and JSON.

use std::fmt::Write;

use anyhow::Result;
use serde_json::json;

use super::Results;
use crate::measuring::cell::Cell;
use crate::measuring::client::Measured;
use crate::measuring::figures::{median, spread};
use crate::serving::Peer;

/// A cell's medians for both, and what they say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    tgt: Measured,
    linerate: Measured,
    goal: Option<f64>,
}

impl Comparison {
    /// How many times tgt's rate.
    fn ratio(&self) -> f64 {
        self.linerate.iops / self.tgt.iops
    }

    /// Our CPU time for a request, as a share of tgt's.
    fn cpu_ratio(&self) -> f64 {
        self.linerate.server_cpu_us_per_io / self.tgt.server_cpu_us_per_io
    }

    /// Faster by as much as asked for, with no more CPU for a request.
    pub(super) fn is_reached(&self) -> bool {
        self.goal.is_none_or(|goal| self.ratio() >= goal && self.cpu_ratio() <= 1.0)
    }
}

/// Both medians of a cell, if both were measured.
pub(super) fn comparison(cell: &Cell, results: &Results) -> Option<Comparison> {
    let median_of = |peer| results.measured.get(&(cell.name, peer)).and_then(|rounds| median(rounds));
    Some(Comparison { tgt: median_of(Peer::Tgt)?, linerate: median_of(Peer::Linerate)?, goal: cell.goal })
}

/// The table, for the terminal and for the page.
pub(super) fn table(cells: &[&'static Cell], results: &Results) -> String {
    let mut text = String::from(
        "| cell | tgt IOPS | MB/s | CPU µs/IO | linerate IOPS | MB/s | CPU µs/IO | client µs/IO | times tgt | CPU of tgt's | goal |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for cell in cells {
        let Some(found) = comparison(cell, results) else { continue };
        let Comparison { tgt, linerate, .. } = found;
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} | {:.2} | {:.1} | **{:.2}** | {:.2} | {} |",
            cell.name,
            tgt.iops,
            tgt.mb_per_s,
            tgt.server_cpu_us_per_io,
            linerate.iops,
            linerate.mb_per_s,
            linerate.server_cpu_us_per_io,
            linerate.client_cpu_us_per_io,
            found.ratio(),
            found.cpu_ratio(),
            goal(&found),
        );
    }
    text
}

fn goal(found: &Comparison) -> String {
    match found.goal {
        Some(goal) if found.is_reached() => format!("≥ {goal:.0}: reached"),
        Some(goal) => format!("≥ {goal:.0}: **missed**"),
        None => String::new(),
    }
}

/// The section of the page.
pub(super) fn section(cells: &[&'static Cell], results: &Results) -> String {
    let setting = &results.setting;
    let mut page = format!(
        "`cargo xtask peers` measures this and writes this section: {}, against `linerate serve --volume ram0=ram:1GiB` \
         with default settings, one session each. Server pinned to core 0, client (`linerate bench`, the same for \
         both) to core 1, in a network namespace of their own ({}). Medians of {} alternating \
         rounds of {} s a cell; each server started afresh and its whole volume written first. MB are 10^6 bytes. CPU \
         is the server process's user and system time for each request, the client's likewise, its start included.\n\n",
        setting.tgt, setting.congestion, setting.rounds, setting.seconds,
    );
    page.push_str(&setting.line());
    page.push_str(&table(cells, results));
    page.push_str(
        "\nSpread of the rounds (slowest and fastest, IOPS):\n\n| cell | tgt | linerate |\n|---|---|---|\n",
    );
    for cell in cells {
        let of = |peer| results.measured.get(&(cell.name, peer)).map_or(&[][..], Vec::as_slice);
        let (tgt, linerate) = (spread(of(Peer::Tgt)), spread(of(Peer::Linerate)));
        let _ = writeln!(page, "| {} | {tgt} | {linerate} |", cell.name);
    }
    page
}

/// Every round's figures.
pub(super) fn json(cells: &[&'static Cell], results: &Results) -> Result<String> {
    let rounds = |cell: &Cell, peer| results.measured.get(&(cell.name, peer)).cloned().unwrap_or_default();
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| json!({"cell": cell.name, "tgt": rounds(cell, Peer::Tgt), "linerate": rounds(cell, Peer::Linerate)}))
        .collect();
    Ok(serde_json::to_string_pretty(&json!({"setting": results.setting, "cells": cells}))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(iops: f64, cpu: f64) -> Measured {
        Measured { iops, mb_per_s: iops, server_cpu_us_per_io: cpu, client_cpu_us_per_io: cpu }
    }

    #[test]
    fn speed_bought_with_cpu_is_no_goal_reached() {
        let tgt = measured(100.0, 10.0);
        let comparison = |linerate| Comparison { tgt, linerate, goal: Some(4.0) };
        assert!(comparison(measured(400.0, 10.0)).is_reached());
        assert!(!comparison(measured(399.0, 10.0)).is_reached());
        assert!(!comparison(measured(400.0, 10.5)).is_reached());
    }
}
