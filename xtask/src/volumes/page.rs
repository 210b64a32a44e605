//! The figures as tables, a section of the page and JSON.

use std::fmt::Write;

use anyhow::Result;
use serde_json::json;

use super::served::{Figures, Served};
use super::{GOALS, Goal, Results};
use crate::measuring::cell::Cell;
use crate::measuring::figures::middle;

fn of(cell: &Cell, served: Served, results: &Results) -> Option<Figures> {
    let rounds = results.measured.get(&(cell.name, served))?;
    let middle_of = |figure: fn(&Figures) -> f64| middle(rounds.iter().map(figure).collect());
    Some(Figures { iops: middle_of(|it| it.iops)?, cpu_us_per_io: middle_of(|it| it.cpu_us_per_io)? })
}

/// What of the other's rate ours is, by the medians; `None` where one was not measured or nothing is asked for.
fn share(cell: &Cell, goal: &Goal, results: &Results) -> Option<f64> {
    let asked = cell.name.contains(goal.cells);
    let (ours, beside) = (of(cell, goal.ours, results)?, of(cell, goal.beside, results)?);
    asked.then(|| ours.iops / beside.iops)
}

/// Whether every goal is reached in every cell that it is about.
pub(super) fn all_reached(cells: &[&'static Cell], results: &Results) -> bool {
    let reached = |cell: &Cell, goal: &Goal| share(cell, goal, results).is_none_or(|it| it >= goal.at_least);
    cells.iter().all(|cell| GOALS.iter().all(|goal| reached(cell, goal)))
}

/// What was measured, then what was asked for.
pub(super) fn tables(cells: &[&'static Cell], results: &Results) -> String {
    let mut text = String::from(
        "| cell | served | IOPS | MB/s | CPU µs/IO | slowest – fastest |\n|---|---|---:|---:|---:|---|\n",
    );
    for (cell, served) in cells.iter().flat_map(|cell| Served::ALL.map(|served| (cell, served))) {
        let Some(figures) = of(cell, served, results) else { continue };
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} | {:.2} | {} |",
            cell.name,
            served.name(),
            figures.iops,
            figures.iops * cell.block_bytes as f64 / 1e6,
            figures.cpu_us_per_io,
            results.measured.get(&(cell.name, served)).map_or_else(String::new, |all| spread(all)),
        );
    }
    text.push_str("\n| goal | cell | share | |\n|---|---|---:|---|\n");
    for (goal, cell) in GOALS.iter().flat_map(|goal| cells.iter().map(move |cell| (goal, cell))) {
        let Some(share) = share(cell, goal, results) else { continue };
        let verdict = if share >= goal.at_least { "reached" } else { "**missed**" };
        let (ours, beside) = (goal.ours.name(), goal.beside.name());
        let _ = writeln!(
            text,
            "| {ours}: ≥ {:.1} of {beside} | {} | {share:.2} | {verdict} |",
            goal.at_least, cell.name
        );
    }
    text
}

fn spread(rounds: &[Figures]) -> String {
    let slowest = rounds.iter().map(|round| round.iops).fold(f64::INFINITY, f64::min);
    let fastest = rounds.iter().map(|round| round.iops).fold(0.0, f64::max);
    format!("{slowest:.0} – {fastest:.0}")
}

/// The section of the page.
pub(super) fn section(cells: &[&'static Cell], results: &Results) -> String {
    let setting = &results.setting;
    format!(
        "`cargo xtask volumes` measures this and writes this section: `linerate serve` with one volume of 1 GiB, written \
         before, one session, by `linerate bench`; server pinned to core 0, client to core 1, in a network namespace of \
         their own ({}). fio's engine is io_uring with `O_DIRECT` on the same file, on core 1 and without a network; \
         {} has a file of its own. Medians of {} alternating rounds of {} s a cell, and the slowest and the fastest. MB \
         are 10^6 bytes; the CPU time is that of the server, or of fio.\n\n\
         What the page cache has is copied by the reactor itself, without io_uring, a task or a thread; what it does not \
         have, direct I/O, and writes to file systems that cannot tell whether they would wait (ext4) go by io_uring or, \
         where that is forbidden, by threads. Which of them it is the server logs at its start (level info).\n\n{}{}",
        setting.congestion,
        setting.tgt,
        setting.rounds,
        setting.seconds,
        setting.line(),
        tables(cells, results),
    )
}

/// Every round's figures.
pub(super) fn json(results: &Results) -> Result<String> {
    let runs: Vec<_> = results
        .measured
        .iter()
        .map(|((cell, served), rounds)| json!({"cell": cell, "served": served, "rounds": rounds}))
        .collect();
    let goals: Vec<_> = GOALS
        .iter()
        .map(|goal| json!({"ours": goal.ours, "beside": goal.beside, "at_least": goal.at_least, "cells": goal.cells}))
        .collect();
    Ok(serde_json::to_string_pretty(&json!({"setting": results.setting, "goals": goals, "runs": runs}))?)
}
