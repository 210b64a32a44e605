//! The comparison of a diagnosis with an earlier one of the same storage: did a change help?

use diagnose::{Diagnosis, LoadRun};
use model::Load;
use readable::figures::megabytes;
use readable::table::{Align, Column, wrapped};
use serde::Serialize;

use crate::diagnosis::words::{self, rate};
use crate::document::{Block, Section, Table};
use crate::terminal::indented;

/// A load of both diagnoses.
#[derive(Debug, Serialize)]
pub(super) struct ComparedLoad {
    load: Load,
    /// The median rate of the earlier diagnosis, in bytes per second.
    before_bytes_per_s: f64,
    /// The median rate of this diagnosis, in bytes per second.
    bytes_per_s: f64,
    /// The new rate divided by the earlier one, and its 95 % interval (Welch's test on the logarithms of the
    /// rounds' rates); `None` if no data passed in a round.
    ratio: Option<Ratio>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Ratio {
    mean: f64,
    low: f64,
    high: f64,
}

/// The significance level of a ratio's interval.
const ALPHA: f64 = 0.05;

/// Returns the loads of both diagnoses, in the order of this one.
pub(super) fn compared(before: &Diagnosis, now: &Diagnosis) -> Vec<ComparedLoad> {
    let earlier = |load: Load| {
        let runs = &before.evidence.loads;
        runs.iter().find(|run| run.load == load)
    };
    let pairs = now
        .evidence
        .loads
        .iter()
        .filter_map(|run| Some((earlier(run.load)?, run)));
    pairs
        .filter_map(|(before, now)| {
            Some(ComparedLoad {
                load: now.load,
                before_bytes_per_s: rate(before)?,
                bytes_per_s: rate(now)?,
                ratio: ratio(before, now),
            })
        })
        .collect()
}

fn ratio(before: &LoadRun, now: &LoadRun) -> Option<Ratio> {
    let mean = |run: &LoadRun| {
        let logarithms: Vec<f64> = run.bytes_per_s.iter().map(|rate| rate.ln()).collect();
        stats::series_mean(&logarithms).filter(|mean| mean.mean.is_finite())
    };
    let difference = stats::welch(mean(before)?, mean(now)?);
    let interval = difference.interval(ALPHA);
    Some(Ratio {
        mean: difference.difference.exp(),
        low: interval.low.exp(),
        high: interval.high.exp(),
    })
}

/// The columns, with a mark for numbers.
const COLUMNS: [&str; 4] = ["load", "#MB/s before", "#MB/s now", "ratio"];

fn row(load: &ComparedLoad) -> [String; 4] {
    let ratio = match load.ratio {
        None => "?".to_owned(),
        Some(Ratio { mean, low, high }) => format!(
            "{} ({} to {})",
            words::times(mean),
            words::bare(low),
            words::bare(high)
        ),
    };
    [
        words::load(&load.load),
        megabytes(load.before_bytes_per_s),
        megabytes(load.bytes_per_s),
        ratio,
    ]
}

/// Returns the earlier verdict, and the earlier storage if it was another one.
fn introduction(before: &Diagnosis, now: &Diagnosis) -> Vec<String> {
    let mut lines = vec![format!("Before: {}.", words::verdict(before))];
    if before.evidence.place != now.evidence.place {
        lines.push(format!(
            "The earlier diagnosis is of {}.",
            before.evidence.place
        ));
    }
    lines.push(
        match compared(before, now).is_empty() {
            true => "The two diagnoses have no load in common.",
            false => "If an interval contains 1, there is no clear difference.",
        }
        .to_owned(),
    );
    lines
}

/// Returns the lines for a terminal.
pub(super) fn lines(before: &Diagnosis, now: &Diagnosis, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = introduction(before, now)
        .iter()
        .flat_map(|line| wrapped(line, width))
        .collect();
    let loads = compared(before, now);
    if !loads.is_empty() {
        let names = COLUMNS.map(|name| name.trim_start_matches('#'));
        let rows: Vec<[String; 4]> = std::iter::once(names.map(str::to_owned))
            .chain(loads.iter().map(row))
            .collect();
        let columns = [Align::Left, Align::Right, Align::Right, Align::Left]
            .map(|align| Column { align, rank: 0 });
        lines.extend(indented("  ", &names, &columns, &rows, width));
    }
    lines
}

/// Returns the section of a report.
pub(super) fn section(before: &Diagnosis, now: &Diagnosis) -> Section {
    let mut blocks: Vec<Block> = introduction(before, now)
        .into_iter()
        .map(Block::Text)
        .collect();
    let loads = compared(before, now);
    if !loads.is_empty() {
        let mut table = Table::of("", &COLUMNS);
        loads.iter().for_each(|load| table.row(row(load)));
        blocks.push(Block::Table(table));
    }
    Section {
        id: "before",
        title: "Compared with the earlier diagnosis",
        blocks,
    }
}
