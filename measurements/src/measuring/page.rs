//! The figures of a table as a section of its command's page, and as JSON.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Result;
use serde_json::json;

use super::figures::{Figure, median, spread};
use super::goal::{self, Judged};
use super::table::{Multiples, Run, Table};
use super::{Results, Setting};

pub(super) fn section(table: &Table, results: &Results, goals: &[Judged]) -> String {
    let mut text = about(table, &results.setting);
    text.push_str(&goal::rows(goals));
    if let Some(multiples) = &table.multiples {
        text.push_str(&times(table, multiples, results));
    }
    text + &figures(table, results)
}

fn about(table: &Table, setting: &Setting) -> String {
    let Setting { rounds, seconds, congestion, tgt, istgt, nbd, fio, .. } = setting;
    let command = table.name.replacen('-', " --part ", 1);
    let own = table
        .about
        .replace("{tgt}", tgt)
        .replace("{istgt}", istgt)
        .replace("{nbd}", nbd)
        .replace("{fio}", fio);
    let others = match table.together {
        true => "all servers are started together and paused (SIGSTOP) but for the one that is measured",
        false => "each server is started when the one before it has ended",
    };
    let places = match table.servers.iter().all(|server| server.pinned) {
        true => "Server pinned to core 0, client to core 1",
        false => "Where nothing else is said, server pinned to core 0, client to core 1",
    };
    format!(
        "`cargo measure {command}` measures this and writes this section. {}\n\n{places}, in a network namespace of their \
         own ({congestion}). In each of {rounds} rounds every server is started afresh, all of its \
         volume written, and left alone until it is idle; {others}. Each figure takes {seconds} s after 0.2 s that do not count, and another one comes first in every round. \
         Figures are medians of the rounds, ratios medians of the rounds' ratios. MB are 10^6 bytes. CPU time is the \
         user and system time of a whole process for each request, the client's start and login included.\n\n{}",
        own.trim(),
        setting.line()
    )
}

/// A row for each cell, a column for each server.
fn times(table: &Table, multiples: &Multiples, results: &Results) -> String {
    let Some(base) = table.server(&multiples.of) else { return String::new() };
    let (heading, places) = multiples.figure.column();
    let bases: Vec<Run> = results.runs.keys().filter(|run| run.server == base).copied().collect();
    let is_there = |server: usize| bases.iter().any(|run| results.runs.contains_key(&Run { server, ..*run }));
    let others = || (0..table.servers.len()).filter(|server| *server != base && is_there(*server));
    let names: Vec<&str> = others().map(|server| table.servers[server].name.as_str()).collect();
    let mut text = format!(
        "{heading} as multiples of those of {of}:\n\n| cell | {of} | {} |\n|---|---:|{}\n",
        names.join(" | "),
        "---:|".repeat(names.len()),
        of = multiples.of,
    );
    for run in &bases {
        let Some(figure) = results.median(*run, multiples.figure) else { continue };
        let client = match table.clients.len() > 1 {
            true => format!(", {}", table.clients[run.client].name),
            false => String::new(),
        };
        let _ = write!(text, "| {}{client} | {figure:.places$} |", table.cells[run.cell].name);
        for server in others() {
            let times = results.times(Run { server, ..*run }, *run, multiples.figure);
            let _ = write!(text, " {} |", number(times, 2));
        }
        text.push('\n');
    }
    text + "\n"
}

/// A row for each run.
fn figures(table: &Table, results: &Results) -> String {
    let (servers, clients) = (table.servers.len() > 1, table.clients.len() > 1);
    let mut head = vec!["cell"];
    head.extend(servers.then_some("server"));
    head.extend(clients.then_some("client"));
    let names = head.len();
    head.extend(table.columns.iter().map(|figure| figure.column().0));
    let mut text = format!(
        "| {} | slowest – fastest, IOPS |\n|{}{}---|\n",
        head.join(" | "),
        "---|".repeat(names),
        "---:|".repeat(table.columns.len())
    );
    for (run, rounds) in &results.runs {
        let median = median(rounds);
        let mut row = vec![table.cells[run.cell].name.clone()];
        row.extend(servers.then(|| table.servers[run.server].name.clone()));
        row.extend(clients.then(|| table.clients[run.client].name.clone()));
        row.extend(table.columns.iter().map(|figure| number(median.get(figure).copied(), figure.column().1)));
        let _ = writeln!(text, "| {} | {} |", row.join(" | "), spread(rounds));
    }
    text
}

fn number(figure: Option<f64>, places: usize) -> String {
    figure.map_or_else(String::new, |figure| format!("{figure:.places$}"))
}

/// Every round's figures.
pub(super) fn json(table: &Table, results: &Results) -> Result<String> {
    let runs: Vec<_> = results
        .runs
        .iter()
        .map(|(run, rounds)| {
            let (cell, server, client) = (
                &table.cells[run.cell].name,
                &table.servers[run.server].name,
                &table.clients[run.client].name,
            );
            json!({"cell": cell, "server": server, "client": client, "rounds": rounds})
        })
        .collect();
    Ok(serde_json::to_string_pretty(&json!({"setting": results.setting, "runs": runs}))?)
}

impl Results {
    fn median(&self, run: Run, figure: Figure) -> Option<f64> {
        median(self.runs.get(&run)?).get(&figure).copied()
    }
}

/// The names of all cells of these runs, for messages.
pub(super) fn cells(table: &Table, runs: &BTreeSet<Run>) -> String {
    let cells: BTreeSet<usize> = runs.iter().map(|run| run.cell).collect();
    cells.into_iter().map(|cell| table.cells[cell].name.as_str()).collect::<Vec<_>>().join("; ")
}
