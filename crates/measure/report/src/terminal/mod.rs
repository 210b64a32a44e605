//! What is seen at the end of a suite: the best numbers, every cell, and what is to be thought of them. Nothing is cut: text
//! wraps, and a terminal that is too narrow for all columns loses some as a whole, which are named.

mod distance;

use super::Report;
use super::document::Verdict;
use super::loads::Loads;
use super::markup::is_hidden;
use super::sections;
use super::views::{latencies, load, plus_minus};
use crate::summary::CellSummary;
use readable::figures::{bar, grouped, latency, megabytes};
use readable::table::{Align, Column, fitted, hanging, wrapped};

/// Longer lines are hard to read, however wide a terminal is.
const WIDTH_MAX: usize = 100;
/// Less than this no table fits in.
const WIDTH_MIN: usize = 60;

/// The columns that are used of a terminal of so many.
pub(super) fn used(width: usize) -> usize {
    width.clamp(WIDTH_MIN, WIDTH_MAX)
}

/// The summary, for a terminal of so many columns.
pub(super) fn summary(report: &Report<'_>, width: usize) -> String {
    let width = used(width);
    let verdict = sections::verdict(report);
    let table = match &report.wan {
        Some(wan) => distance::table(wan, width),
        None => table(&report.summaries, width),
    };
    let title = wrapped(&sections::title(report), width);
    let loads = Loads::of(report).map(|loads| beside_published(&loads, width)).unwrap_or_default();
    let parts = [title, headlines(&verdict, width), table, loads, trust(&verdict, width)];
    let parts: Vec<Vec<String>> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    printed(&parts.join(&String::new()))
}

/// Lines as they are printed, without anything that moves a cursor.
pub(super) fn printed(lines: &[String]) -> String {
    let clean = |line: &str| -> String {
        line.trim_end().chars().map(|letter| if is_hidden(letter) { '?' } else { letter }).collect()
    };
    lines.iter().map(|line| clean(line) + "\n").collect()
}

fn headlines(verdict: &Verdict, width: usize) -> Vec<String> {
    let columns = [Align::Left, Align::Right, Align::Left].map(|align| Column { align, rank: 0 });
    let rows: Vec<[String; 3]> = verdict
        .headlines
        .iter()
        .map(|headline| [headline.what.clone(), headline.value.clone(), headline.note.clone()])
        .collect();
    indented("  ", &["what", "value", "where"], &columns, &rows, width)
}

fn trust(verdict: &Verdict, width: usize) -> Vec<String> {
    let mut lines = hanging(&format!("{} ", verdict.tone.sign()), &verdict.says, width);
    lines.extend(verdict.reservations.iter().flat_map(|sentence| hanging("  - ", sentence, width)));
    lines
}

/// Columns, with what is left out first where they do not all fit in.
const COLUMNS: [(&str, Align, u8); 8] = [
    ("cell", Align::Left, 0),
    ("load", Align::Right, 4),
    ("IOPS", Align::Right, 1),
    ("MB/s", Align::Right, 0),
    ("± %", Align::Right, 5),
    ("p50", Align::Right, 3),
    ("p99", Align::Right, 2),
    ("", Align::Left, 6), // a bar
];
const BAR: usize = 10;

fn table(summaries: &[CellSummary], width: usize) -> Vec<String> {
    let measured: Vec<&CellSummary> = summaries.iter().filter(|summary| summary.runs > 0).collect();
    if measured.is_empty() {
        return Vec::new();
    }
    let most = measured.iter().map(|summary| summary.bytes_per_s.median).fold(0.0, f64::max);
    let names = COLUMNS.map(|(name, ..)| name);
    let mut rows = vec![names.map(str::to_owned)];
    rows.extend(measured.iter().map(|summary| {
        let times = latencies(summary);
        let share = if most > 0.0 { summary.bytes_per_s.median / most } else { 0.0 };
        [
            summary.cell.name.clone(),
            load(summary),
            grouped(summary.iops.median.round() as u64),
            megabytes(summary.bytes_per_s.median),
            plus_minus(summary.iops),
            latency(times.p50_us),
            latency(times.p99_us),
            bar(share, BAR),
        ]
    }));
    indented("  ", &names, &COLUMNS.map(|(_, align, rank)| Column { align, rank }), &rows, width)
}

/// Rates and CPU loads, and those of the document.
fn beside_published(loads: &Loads<'_>, width: usize) -> Vec<String> {
    let head = format!("beside document {}", loads.document);
    let names: Vec<&str> = std::iter::once(head.as_str()).chain(loads.cells.iter().copied()).collect();
    let mut rows: Vec<Vec<String>> = vec![names.iter().map(|name| (*name).to_owned()).collect()];
    rows.extend(
        loads.rows.iter().map(|(name, values)| std::iter::once(name).chain(values).cloned().collect()),
    );
    let column = |at: usize| match at {
        0 => Column { align: Align::Left, rank: 0 },
        _ => Column { align: Align::Right, rank: u8::try_from(at).unwrap_or(u8::MAX) },
    };
    let columns: Vec<Column> = (0..names.len()).map(column).collect();
    let mut lines = indented("  ", &names, &columns, &rows, width);
    lines.extend(hanging("  ", &loads.note, width));
    lines
}

/// A table behind an indent, and the names of the columns that it has no room for.
pub(super) fn indented<R: AsRef<[String]>>(
    indent: &str,
    names: &[&str],
    columns: &[Column],
    rows: &[R],
    width: usize,
) -> Vec<String> {
    let table = fitted(columns, rows, width.saturating_sub(indent.len()));
    let mut lines: Vec<String> = table.rows.concat().iter().map(|line| format!("{indent}{line}")).collect();
    lines.extend(table.note(names).iter().flat_map(|note| hanging(indent, note, width)));
    lines
}
