//! The figures as tables, a section of the page and JSON.

use std::fmt::Write;

use anyhow::Result;
use serde_json::json;

use super::{Case, Digests, Results};
use crate::measuring::client::Measured;
use crate::measuring::figures::{median, spread};

/// A cell's medians without digests and with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    without: Measured,
    with: Measured,
    goal: Option<f64>,
}

impl Comparison {
    /// The share of the rate that is left.
    fn share(&self) -> f64 {
        self.with.iops / self.without.iops
    }

    pub(super) fn is_reached(&self) -> bool {
        self.goal.is_none_or(|goal| self.share() >= goal)
    }
}

/// Both medians of a cell, if both were measured.
pub(super) fn comparison(case: &Case, results: &Results) -> Option<Comparison> {
    let median_of =
        |digests| results.measured.get(&(case.cell.name, digests)).and_then(|rounds| median(rounds));
    Some(Comparison {
        without: median_of(Digests::None)?,
        with: median_of(case.digests)?,
        goal: case.cell.goal,
    })
}

/// Rates and CPU with and without.
pub(super) fn table(cases: &[&'static Case], results: &Results) -> String {
    let mut text = String::from(
        "| cell | digests | IOPS without | MB/s | server µs/IO | client µs/IO | IOPS with | MB/s | server µs/IO | client µs/IO | share | goal |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for case in cases {
        let Some(found) = comparison(case, results) else { continue };
        let digests = match case.digests {
            Digests::None => "none",
            Digests::Data => "data",
            Digests::Both => "header, data",
        };
        let _ = writeln!(
            text,
            "| {} | {digests} | {} | {} | **{:.2}** | {} |",
            case.cell.name,
            figures(&found.without),
            figures(&found.with),
            found.share(),
            goal(&found),
        );
    }
    text
}

fn figures(measured: &Measured) -> String {
    format!(
        "{:.0} | {:.0} | {:.2} | {:.2}",
        measured.iops, measured.mb_per_s, measured.server_cpu_us_per_io, measured.client_cpu_us_per_io
    )
}

fn goal(found: &Comparison) -> String {
    match found.goal {
        Some(goal) if found.is_reached() => format!("≥ {goal}: reached"),
        Some(goal) => format!("≥ {goal}: **missed**"),
        None => String::new(),
    }
}

/// The section of the page.
pub(super) fn section(cases: &[&'static Case], results: &Results) -> String {
    let setting = &results.setting;
    let mut page = format!(
        "`cargo xtask digests` measures this and writes this section: `linerate bench` against `linerate serve --volume \
         ram0=ram:1GiB`, one session, with CRC32C digests and without, one right after the other on the same server. \
         Server pinned to core 0, client to core 1, in a network namespace of their own ({}). Medians of {} rounds of \
         {} s; each round has a server of its own, filled first. Both ends are ours, and both sum: the share is what is \
         left of the rate. CPU is user and system time for each request.\n\n",
        setting.congestion, setting.rounds, setting.seconds,
    );
    page.push_str(&setting.line());
    page.push_str(&table(cases, results));
    page.push_str(
        "\nSpread of the rounds (slowest and fastest, IOPS):\n\n| cell | without | with |\n|---|---|---|\n",
    );
    for case in cases {
        let of = |digests| results.measured.get(&(case.cell.name, digests)).map_or(&[][..], Vec::as_slice);
        let (without, with) = (spread(of(Digests::None)), spread(of(case.digests)));
        let _ = writeln!(page, "| {} | {without} | {with} |", case.cell.name);
    }
    page.push_str("\nOne CRC32C of bytes that are in the cache, the fastest of 25 slots:\n\n");
    page.push_str(&costs(results));
    page
}

fn costs(results: &Results) -> String {
    let mut text = String::from("| bytes | ns | GB/s |\n|---:|---:|---:|\n");
    for cost in &results.costs {
        let _ = writeln!(text, "| {} | {:.1} | {:.1} |", cost.bytes, cost.nanoseconds, cost.gb_per_s());
    }
    text
}

/// Every round's figures.
pub(super) fn json(cases: &[&'static Case], results: &Results) -> Result<String> {
    let rounds =
        |case: &Case, digests| results.measured.get(&(case.cell.name, digests)).cloned().unwrap_or_default();
    let cells: Vec<_> = cases
        .iter()
        .map(|case| {
            let (without, with) = (rounds(case, Digests::None), rounds(case, case.digests));
            json!({"cell": case.cell.name, "digests": case.digests, "without": without, "with": with})
        })
        .collect();
    let all = json!({"setting": results.setting, "cells": cells, "crc32c": results.costs});
    Ok(serde_json::to_string_pretty(&all)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_below_the_goal_is_a_miss() {
        let comparison = |with| Comparison {
            without: Measured::of_rate(100.0, 1.0),
            with: Measured::of_rate(with, 1.0),
            goal: Some(0.85),
        };
        assert!(comparison(85.0).is_reached());
        assert!(!comparison(84.9).is_reached());
    }
}
