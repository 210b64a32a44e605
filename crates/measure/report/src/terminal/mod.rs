//! What is seen at the end of a run: at most [`LINES`] lines.

mod distance;

use super::Report;
use super::document::Verdict;
use super::markup::is_hidden;
use super::sections;
use super::views::{latencies, load, plus_minus};
use crate::summary::CellSummary;
use stats::figures::{bar, counted, grouped, latency, megabytes};

/// A terminal of the usual height shows all of it.
const LINES: usize = 25;
/// Longer lines are hard to read, however wide a terminal is.
pub(super) const WIDTH_MAX: usize = 100;
/// Less than this no table fits in.
pub(super) const WIDTH_MIN: usize = 60;
/// For what is to be known beside the numbers.
const RESERVATION_LINES: usize = 5;

/// The summary, for a terminal of so many columns.
pub(super) fn summary(report: &Report<'_>, width: usize) -> String {
    let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
    let verdict = sections::verdict(report);
    let mut above = vec![fitted(&sections::title(report), width), String::new()];
    above.extend(headlines(&verdict, width));
    let below = trust(&verdict, width);
    // Blank lines before the table and before the verdict.
    let room = LINES - above.len() - below.len() - 2;
    let table = match &report.wan {
        Some(wan) => distance::table(wan, room, width),
        None => table(&report.summaries, room, width),
    };
    let parts = [above, vec![String::new()], table, vec![String::new()], below];
    parts.into_iter().flatten().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn headlines(verdict: &Verdict, width: usize) -> Vec<String> {
    let longest = |of: fn(&super::document::Headline) -> &str| {
        verdict.headlines.iter().map(|headline| of(headline).chars().count()).max().unwrap_or(0)
    };
    let (what, value) = (longest(|headline| &headline.what), longest(|headline| &headline.value));
    let line = |headline: &super::document::Headline| {
        let line = format!("  {:<what$}  {:>value$}   {}", headline.what, headline.value, headline.note);
        fitted(&line, width)
    };
    verdict.headlines.iter().map(line).collect()
}

fn trust(verdict: &Verdict, width: usize) -> Vec<String> {
    let mut lines = vec![format!("{} {}", verdict.tone.sign(), verdict.says)];
    for (index, sentence) in verdict.reservations.iter().enumerate() {
        let wrapped = wrapped(sentence, width - 2);
        let left = verdict.reservations.len() - index;
        // The last line is for what has none.
        let free = RESERVATION_LINES - (lines.len() - 1);
        if wrapped.len() > free || (left > 1 && wrapped.len() == free) {
            lines.push(format!("  and {left} more, in the report"));
            break;
        }
        lines.extend(wrapped.iter().map(|line| format!("  {line}")));
    }
    lines
}

/// Lines of at most this width; what is longer than two is cut.
fn wrapped(sentence: &str, width: usize) -> Vec<String> {
    let sentence = fitted(sentence, usize::MAX);
    let mut first = String::new();
    let mut words = sentence.split(' ').peekable();
    while let Some(word) =
        words.next_if(|word| first.is_empty() || first.chars().count() + 1 + word.chars().count() <= width)
    {
        first += if first.is_empty() { "" } else { " " };
        first += word;
    }
    let rest = words.collect::<Vec<_>>().join(" ");
    let lines = [fitted(&first, width), fitted(&rest, width)];
    lines.into_iter().filter(|line| !line.is_empty()).collect()
}

/// Columns but for the cell's name, with their widths.
const COLUMNS: [(&str, usize); 6] =
    [("load", 14), ("IOPS", 10), ("MB/s", 8), ("± %", 6), ("p50", 8), ("p99", 8)];

fn table(summaries: &[CellSummary], room: usize, width: usize) -> Vec<String> {
    let measured: Vec<&CellSummary> = summaries.iter().filter(|summary| summary.runs > 0).collect();
    if measured.is_empty() {
        return Vec::new();
    }
    let fits = room.saturating_sub(1); // the heading
    let shown =
        if measured.len() <= fits { measured.clone() } else { chosen(&measured, fits.saturating_sub(1)) };
    let columns: usize = COLUMNS.iter().map(|(_, width)| width + 1).sum();
    let name = shown.iter().map(|summary| summary.cell.name.chars().count()).max().unwrap_or(0);
    let name = name.clamp(4, width.saturating_sub(columns + 2).max(8));
    let bars = width.saturating_sub(columns + name + 4).min(16);
    let most = shown.iter().map(|summary| summary.bytes_per_s.median).fold(0.0, f64::max);
    let mut lines = vec![line("cell", name, &COLUMNS.map(|(title, _)| title.to_owned()), "")];
    lines.extend(shown.iter().map(|summary| {
        let share = if most > 0.0 { summary.bytes_per_s.median / most } else { 0.0 };
        line(&summary.cell.name, name, &values(summary), &bar(share, bars))
    }));
    if shown.len() < measured.len() {
        lines.push(format!("  and {} more", counted(measured.len() - shown.len(), "cell")));
    }
    lines.into_iter().map(|line| fitted(&line, width)).collect()
}

fn values(summary: &CellSummary) -> [String; 6] {
    let times = latencies(summary);
    [
        load(summary),
        grouped(summary.iops.median.round() as u64),
        megabytes(summary.bytes_per_s.median),
        plus_minus(summary.iops),
        latency(times.p50_us),
        latency(times.p99_us),
    ]
}

fn line(cell: &str, name: usize, values: &[String; 6], bar: &str) -> String {
    let mut line = format!("  {:<name$}", fitted(cell, name));
    for (value, (_, width)) in values.iter().zip(COLUMNS) {
        line += &format!(" {value:>width$}");
    }
    line + "  " + bar
}

/// As many as there is room for: of each series some, evenly spread, its first and last among them.
fn chosen<'a>(all: &[&'a CellSummary], room: usize) -> Vec<&'a CellSummary> {
    let mut series: Vec<Vec<usize>> = Vec::new();
    for (index, summary) in all.iter().enumerate() {
        match series.iter_mut().find(|known| all[known[0]].cell.series == summary.cell.series) {
            Some(known) => known.push(index),
            None => series.push(vec![index]),
        }
    }
    let each = (room / series.len()).max(1);
    let spread = |members: &Vec<usize>| -> Vec<usize> {
        let wanted = each.min(members.len());
        let at = |n: usize| members[n * (members.len() - 1) / wanted.saturating_sub(1).max(1)];
        if wanted == 1 { vec![members[members.len() - 1]] } else { (0..wanted).map(at).collect() }
    };
    let mut indices: Vec<usize> = series.iter().take(room).flat_map(spread).collect();
    indices.sort_unstable();
    indices.into_iter().map(|index| all[index]).collect()
}

/// As much of a line as fits, without anything that moves a cursor.
pub(super) fn fitted(line: &str, width: usize) -> String {
    let clean = line.chars().map(|letter| if is_hidden(letter) { '?' } else { letter });
    if line.chars().count() <= width {
        return clean.collect();
    }
    clean.take(width.saturating_sub(1)).chain(['…']).collect()
}
