//! The output at the end of a suite: the best numbers, every cell, and warnings. No text is cut: text wraps,
//! and if a terminal is too narrow for all columns, some columns are omitted and their names are listed.

use bench::plan::{Part, Way};
use readable::figures::{bar, grouped, latency, megabytes, size};
use readable::table::{Align, Column, fitted, hanging, wrapped};

use crate::document::Verdict;
use crate::loads::Loads;
use crate::markup::is_hidden;
use crate::sections::beside::{Beside, COLUMNS as COMPARED, Compared, comparisons};
use crate::summary::CellSummary;
use crate::views::{latencies, listed, load, plus_minus};
use crate::wan::{Row, Wan};
use crate::{Report, sections};

/// Maximum width. Longer lines are hard to read, even on a wide terminal.
const WIDTH_MAX: usize = 100;
/// The minimum width of a table.
const WIDTH_MIN: usize = 60;

/// Returns the number of columns to use on a terminal of this width.
pub(super) fn used(width: usize) -> usize {
    width.clamp(WIDTH_MIN, WIDTH_MAX)
}

/// Returns the summary for a terminal with this number of columns.
pub(super) fn summary(report: &Report<'_>, width: usize) -> String {
    let width = used(width);
    let verdict = sections::verdict(report);
    let table = match &report.wan {
        Some(wan) => distance_table(wan, width),
        None => table(&report.summaries, width),
    };
    let title = wrapped(&sections::title(report), width);
    let loads = Loads::of(report)
        .map(|loads| beside_published(&loads, width))
        .unwrap_or_default();
    let besides = comparisons(report)
        .into_iter()
        .map(|beside| compared(&beside, width));
    let parts = [title, headlines(&verdict, width), table].into_iter();
    let parts = parts.chain(besides).chain([loads, trust(&verdict, width)]);
    let parts: Vec<Vec<String>> = parts.filter(|part| !part.is_empty()).collect();
    printed(&parts.join(&String::new()))
}

/// Joins lines for output, and replaces letters that could move the cursor.
pub(super) fn printed(lines: &[String]) -> String {
    let clean = |line: &str| -> String {
        line.trim_end()
            .chars()
            .map(|letter| if is_hidden(letter) { '?' } else { letter })
            .collect()
    };
    lines.iter().map(|line| clean(line) + "\n").collect()
}

fn headlines(verdict: &Verdict, width: usize) -> Vec<String> {
    let columns = [Align::Left, Align::Right, Align::Left].map(|align| Column { align, rank: 0 });
    let rows: Vec<[String; 3]> = verdict
        .headlines
        .iter()
        .map(|headline| {
            [
                headline.what.clone(),
                headline.value.clone(),
                headline.note.clone(),
            ]
        })
        .collect();
    indented("  ", &["what", "value", "where"], &columns, &rows, width)
}

fn trust(verdict: &Verdict, width: usize) -> Vec<String> {
    let mut lines = hanging(&format!("{} ", verdict.tone.sign()), &verdict.says, width);
    lines.extend(
        verdict
            .reservations
            .iter()
            .flat_map(|sentence| hanging("  - ", sentence, width)),
    );
    lines
}

/// The columns, with the order in which they are omitted if they do not all fit.
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
    let measured: Vec<&CellSummary> = summaries
        .iter()
        .filter(|summary| summary.runs > 0)
        .collect();
    if measured.is_empty() {
        return Vec::new();
    }
    let most = measured
        .iter()
        .map(|summary| summary.bytes_per_s.median)
        .fold(0.0, f64::max);
    let names = COLUMNS.map(|(name, ..)| name);
    let mut rows = vec![names.map(str::to_owned)];
    rows.extend(measured.iter().map(|summary| {
        let times = latencies(summary);
        let share = if most > 0.0 {
            summary.bytes_per_s.median / most
        } else {
            0.0
        };
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
    indented(
        "  ",
        &names,
        &COLUMNS.map(|(_, align, rank)| Column { align, rank }),
        &rows,
        width,
    )
}

/// Returns measured and published rates with their ratio, followed by the sources of the published ones.
fn compared(beside: &Beside, width: usize) -> Vec<String> {
    let mut lines = wrapped(&beside.title, width);
    let names = COMPARED.map(|name| name.trim_start_matches('#'));
    let columns = COMPARED.map(|name| match name.strip_prefix('#') {
        Some(_) => Column {
            align: Align::Right,
            rank: 0,
        },
        None => Column {
            align: Align::Left,
            rank: 0,
        },
    });
    let mut sources: Vec<(&str, Vec<&str>)> = Vec::new();
    for Compared {
        cells: [cell, ..],
        source,
    } in &beside.rows
    {
        match sources.iter_mut().find(|(known, _)| known == source) {
            Some((_, those)) => those.push(cell),
            None => sources.push((source, vec![cell])),
        }
    }
    if !beside.rows.is_empty() {
        let rows = beside.rows.iter().map(|row| row.cells.clone());
        let rows: Vec<[String; 4]> = [names.map(str::to_owned)].into_iter().chain(rows).collect();
        lines.extend(indented("  ", &names, &columns, &rows, width));
    }
    let sources = sources
        .iter()
        .map(|(source, those)| format!("{source}: {}.", listed(those)));
    let notes = sources.chain(beside.notes.iter().cloned());
    lines.extend(notes.flat_map(|note| hanging("  - ", &note, width)));
    lines
}

/// Returns rates and CPU loads, with those of the document.
fn beside_published(loads: &Loads<'_>, width: usize) -> Vec<String> {
    let head = format!("vs document {}", loads.document);
    let names: Vec<&str> = std::iter::once(head.as_str())
        .chain(loads.cells.iter().copied())
        .collect();
    let mut rows: Vec<Vec<String>> = vec![names.iter().map(|name| (*name).to_owned()).collect()];
    rows.extend(
        loads
            .rows
            .iter()
            .map(|(name, values)| std::iter::once(name).chain(values).cloned().collect()),
    );
    let column = |at: usize| match at {
        0 => Column {
            align: Align::Left,
            rank: 0,
        },
        _ => Column {
            align: Align::Right,
            rank: u8::try_from(at).unwrap_or(u8::MAX),
        },
    };
    let columns: Vec<Column> = (0..names.len()).map(column).collect();
    let mut lines = indented("  ", &names, &columns, &rows, width);
    lines.extend(hanging("  ", &loads.note, width));
    lines
}

/// Returns an indented table, and the names of the omitted columns.
pub(super) fn indented<R: AsRef<[String]>>(
    indent: &str,
    names: &[&str],
    columns: &[Column],
    rows: &[R],
    width: usize,
) -> Vec<String> {
    let table = fitted(columns, rows, width.saturating_sub(indent.len()));
    let mut lines: Vec<String> = table
        .rows
        .concat()
        .iter()
        .map(|line| format!("{indent}{line}"))
        .collect();
    lines.extend(
        table
            .note(names)
            .iter()
            .flat_map(|note| hanging(indent, note, width)),
    );
    lines
}

// A WAN record in a few lines: the results of 32 outstanding requests over each round trip, with published
// results.

/// Returns a line for each length and direction, at the high queue depth. At least the shortest and the
/// longest round trip are shown on any terminal.
fn distance_table(wan: &Wan, width: usize) -> Vec<String> {
    let measured: Vec<&Row> = wan
        .part(Part::Wan)
        .filter(|row| row.measured.is_some())
        .collect();
    let many = measured.iter().map(|row| row.asked.depth).max();
    let mut trips: Vec<f64> = measured.iter().map(|row| row.setting.rtt_ms).collect();
    trips.sort_by(f64::total_cmp);
    trips.dedup();
    let mut kinds: Vec<(Way, u32)> = measured
        .iter()
        .filter(|row| Some(row.asked.depth) == many)
        .map(|row| (row.setting.way, row.asked.block_bytes))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.is_empty() {
        return Vec::new();
    }
    let head = row(
        "MB/s, measured (published)",
        trips.iter().map(|trip| format!("{trip} ms")),
    );
    let lines = kinds.into_iter().map(|(way, block_bytes)| {
        let name = format!(
            "{}, {} × {}",
            name(way),
            size(f64::from(block_bytes)),
            many.unwrap_or(0)
        );
        let cell = |trip: &f64| {
            let is = |row: &&&Row| {
                row.setting.way == way
                    && row.asked.block_bytes == block_bytes
                    && Some(row.asked.depth) == many
                    && row.setting.rtt_ms == *trip
            };
            measured
                .iter()
                .find(is)
                .map(|row| cell(row))
                .unwrap_or_default()
        };
        row(&name, trips.iter().map(cell))
    });
    let rows: Vec<Vec<String>> = [head].into_iter().chain(lines).collect();
    let names: Vec<&str> = rows[0].iter().map(String::as_str).collect();
    let column = |at: usize| match at {
        0 => Column {
            align: Align::Left,
            rank: 0,
        },
        at => Column {
            align: Align::Right,
            rank: u8::from(at > 1 && at < trips.len()),
        },
    };
    let columns: Vec<Column> = (0..names.len()).map(column).collect();
    indented("  ", &names, &columns, &rows, width)
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Reads => "read",
        Way::MostSolicited => "solicited write",
        Way::MostUnsolicited => "unsolicited write",
        Way::Tcp { .. } => "TCP",
    }
}

fn cell(row: &Row) -> String {
    let published = row
        .published
        .as_ref()
        .map(|published| format!(" ({})", published.printed));
    row.measured.map(megabytes).unwrap_or_default() + &published.unwrap_or_default()
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    [name.to_owned()].into_iter().chain(cells).collect()
}
