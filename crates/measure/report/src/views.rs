//! Cells as curves: which of them differ in nothing but the length of their requests, or in nothing but their load.

use crate::summary::{CellSummary, Estimate, Latencies};
use bench::plan::{Cell, Pace, Percent, Workload};
use bench::record::Limit;

/// Which way the data of a cell go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
    Both,
}

/// Cells that make a curve.
#[derive(Clone, Debug)]
pub(super) struct Series<'a> {
    /// What they have in common.
    pub(super) name: String,
    /// In the order of what they differ in.
    pub(super) cells: Vec<&'a CellSummary>,
}

impl Direction {
    pub(super) fn of(cell: &Cell) -> Direction {
        let workloads = || cell.roles.iter().map(|role| &role.workload);
        match (workloads().any(Workload::reads), workloads().any(Workload::writes)) {
            (true, false) => Direction::Read,
            (false, true) => Direction::Write,
            _ => Direction::Both,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Both => "both",
        }
    }
}

/// The length of a cell's requests, in bytes; the mean of a mix.
pub(super) fn block_bytes(cell: &Cell) -> f64 {
    let of = |role: &bench::plan::Role| role.workload.block_bytes_mean();
    cell.roles.iter().map(of).sum::<f64>() / cell.roles.len().max(1) as f64
}

/// How many clients take part.
pub(super) fn clients(cell: &Cell) -> usize {
    let mut clients: Vec<u16> = cell.roles.iter().map(|role| role.client).collect();
    clients.sort_unstable();
    clients.dedup();
    clients.len()
}

/// The rate that is asked for, if the cell is an open loop.
pub(super) fn asked_rate(cell: &Cell) -> Option<f64> {
    let rates: Vec<f64> = cell.roles.iter().filter_map(|role| role.workload.pace.per_second()).collect();
    (!rates.is_empty()).then(|| rates.iter().sum())
}

/// What a request takes for who waits for it: in an open loop from when it was meant to be made.
pub(super) fn latencies(summary: &CellSummary) -> &Latencies {
    summary.response.as_ref().unwrap_or(&summary.service)
}

/// How far the farther end of an estimate's interval is from its median, in percent of that, as flags say it; nothing if
/// there is no interval.
pub(super) fn plus_minus(estimate: Estimate) -> String {
    estimate.percent().map(|percent| format!("{percent:.1}")).unwrap_or_default()
}

/// The ends of an estimate's interval, written as the estimate itself; nothing if there is no interval.
pub(super) fn interval(estimate: Estimate, written: fn(f64) -> String) -> String {
    let end = |end: f64| if end == 0.0 { "0".to_owned() } else { written(end) };
    let ends = |interval: stats::Interval| format!("{} to {}", end(interval.low), end(interval.high));
    estimate.interval.map(ends).unwrap_or_default()
}

/// The ends of what is known of an estimate; itself if nothing is.
pub(super) fn ends(estimate: Estimate) -> (f64, f64) {
    estimate.interval.map_or((estimate.median, estimate.median), |interval| (interval.low, interval.high))
}

/// A tick of an axis of things that are counted: there is no half client.
pub(super) fn whole(count: f64) -> String {
    if count.fract() == 0.0 { readable::figures::round(count) } else { String::new() }
}

/// A cell's load in words: `depth 32`, `5,000 a second`.
pub(super) fn load(summary: &CellSummary) -> String {
    bench::plan::pace(summary.depth, asked_rate(&summary.cell))
}

/// Curves over the length of requests: cells of one series and one load. At least two lengths each.
pub(super) fn over_size(summaries: &[CellSummary]) -> Vec<Series<'_>> {
    let same = |one: &CellSummary, other: &CellSummary| {
        one.cell.series == other.cell.series
            && one.depth == other.depth
            && clients(&one.cell) == clients(&other.cell)
            && asked_rate(&one.cell).is_none()
            && asked_rate(&other.cell).is_none()
    };
    named(curves(summaries, same, |summary| block_bytes(&summary.cell)), load)
}

/// Curves along the load: cells of one series and one length of requests. At least two loads each, all closed loops or all
/// open ones.
pub(super) fn over_load(summaries: &[CellSummary]) -> Vec<Series<'_>> {
    let same = |one: &CellSummary, other: &CellSummary| {
        one.cell.series == other.cell.series
            && block_bytes(&one.cell) == block_bytes(&other.cell)
            && clients(&one.cell) == clients(&other.cell)
            && asked_rate(&one.cell).is_some() == asked_rate(&other.cell).is_some()
            && access(&one.cell) == access(&other.cell)
    };
    let along = |summary: &CellSummary| asked_rate(&summary.cell).unwrap_or(f64::from(summary.depth));
    named(curves(summaries, same, along), |cell| readable::figures::size(block_bytes(&cell.cell)))
}

/// Bytes a second that the limit allows with requests of this length; between its points a limit is a straight line over the
/// logarithm of the length.
pub(super) fn allowed(limit: &Limit, block_bytes: f64) -> Option<f64> {
    let above = limit.points.iter().position(|(size, _)| f64::from(*size) >= block_bytes)?;
    let (high, rate) = limit.points[above];
    if f64::from(high) == block_bytes {
        return Some(rate);
    }
    let (low, lower_rate) = *limit.points.get(above.checked_sub(1)?)?;
    let part = (block_bytes / f64::from(low)).ln() / (f64::from(high) / f64::from(low)).ln();
    Some(lower_rate + part * (rate - lower_rate))
}

/// The lowest of the limits that hold for a cell, and its name.
pub(super) fn lowest_limit<'a>(limits: &'a [Limit], summary: &CellSummary) -> Option<(&'a str, f64)> {
    let direction = Direction::of(&summary.cell).name();
    let holds = |limit: &&Limit| {
        limit.direction == direction && limit.depth.is_none_or(|depth| depth == summary.depth)
    };
    let known = limits
        .iter()
        .filter(holds)
        .filter_map(|limit| Some((limit.name.as_str(), allowed(limit, block_bytes(&summary.cell))?)));
    known.filter(|(_, rate)| *rate > 0.0).min_by(|one, other| one.1.total_cmp(&other.1))
}

/// A result in percent of a limit. A result above the limit has none: the limit was measured too low.
pub(super) fn percent_of_limit(rate: f64, limit: f64) -> Option<f64> {
    Some(rate / limit * 100.0).filter(|percent| *percent <= 100.0)
}

/// What makes cells of one series different tests, apart from length and load.
fn access(cell: &Cell) -> Vec<(Percent, Percent, bool)> {
    let of = |role: &bench::plan::Role| {
        let access = role.workload.accesses.first();
        let (read, random) = access.map_or((Percent::NONE, Percent::NONE), |a| (a.read, a.random));
        (read, random, matches!(role.workload.pace, Pace::Poisson { .. }))
    };
    cell.roles.iter().map(of).collect()
}

fn curves(
    summaries: &[CellSummary],
    same: impl Fn(&CellSummary, &CellSummary) -> bool,
    along: impl Fn(&CellSummary) -> f64,
) -> Vec<Vec<&CellSummary>> {
    let mut curves: Vec<Vec<&CellSummary>> = Vec::new();
    for summary in summaries.iter().filter(|summary| summary.runs > 0) {
        match curves.iter_mut().find(|curve| same(curve[0], summary)) {
            Some(curve) => curve.push(summary),
            None => curves.push(vec![summary]),
        }
    }
    for curve in &mut curves {
        curve.sort_by(|one, other| along(one).total_cmp(&along(other)));
        curve.dedup_by(|later, earlier| along(later) == along(earlier));
    }
    curves.retain(|curve| curve.len() > 1);
    curves
}

/// Gives each curve the name of its series, and what else it has in common where the series has several.
fn named<'a>(curves: Vec<Vec<&'a CellSummary>>, besides: impl Fn(&CellSummary) -> String) -> Vec<Series<'a>> {
    let alone = |name: &str| curves.iter().filter(|curve| curve[0].cell.series == name).count() == 1;
    let name = |curve: &[&CellSummary]| {
        let (series, first) = (&curve[0].cell.series, curve[0]);
        match (alone(series), clients(&first.cell)) {
            (true, _) => series.clone(),
            (false, 1) => format!("{series}, {}", besides(first)),
            (false, several) => format!("{series}, {}, {several} clients", besides(first)),
        }
    };
    let names: Vec<String> = curves.iter().map(|curve| name(curve)).collect();
    names.into_iter().zip(curves).map(|(name, cells)| Series { name, cells }).collect()
}

/// A few names, and how many more there are.
pub(crate) fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 4;
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}
