//! Groups cells into curves: sets of cells that differ only in the length of their requests, or only in their
//! load.

use crate::summary::{CellSummary, Estimate, Latencies};
use bench::plan::{Cell, Workload, WorkloadKind};
use bench::record::Limit;

/// The direction of a cell's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
    Both,
}

/// The cells of a curve.
#[derive(Clone, Debug)]
pub(super) struct Series<'a> {
    /// The name of the curve: the properties that its cells have in common.
    pub(super) name: String,
    /// The cells, in the order of the number that varies.
    pub(super) cells: Vec<&'a CellSummary>,
}

impl Direction {
    pub(super) fn of(cell: &Cell) -> Direction {
        let workloads = || cell.roles.iter().map(|role| &role.workload);
        match (
            workloads().any(Workload::reads),
            workloads().any(Workload::writes),
        ) {
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

/// Returns the length of a cell's requests in bytes, or the mean length of a mix.
pub(super) fn block_bytes(cell: &Cell) -> f64 {
    let of = |role: &bench::plan::Role| role.workload.block_bytes_mean();
    cell.roles.iter().map(of).sum::<f64>() / cell.roles.len().max(1) as f64
}

/// Returns the number of clients.
pub(super) fn clients(cell: &Cell) -> usize {
    let mut clients: Vec<u16> = cell.roles.iter().map(|role| role.client).collect();
    clients.sort_unstable();
    clients.dedup();
    clients.len()
}

/// Returns the configured rate, if the cell is an open loop.
pub(super) fn asked_rate(cell: &Cell) -> Option<f64> {
    let rates: Vec<f64> = cell
        .roles
        .iter()
        .filter_map(|role| role.workload.pace.per_second())
        .collect();
    (!rates.is_empty()).then(|| rates.iter().sum())
}

/// Returns the latencies that users experience: in an open loop, from the due times.
pub(super) fn latencies(summary: &CellSummary) -> &Latencies {
    summary.response.as_ref().unwrap_or(&summary.service)
}

/// Formats the distance of the farther end of an estimate's interval from its median, in percent of the
/// median, as in flags. Returns an empty text if there is no interval.
pub(super) fn plus_minus(estimate: Estimate) -> String {
    estimate
        .percent()
        .map(|percent| format!("{percent:.1}"))
        .unwrap_or_default()
}

/// Formats the ends of an estimate's interval in the same way as the estimate itself. Returns an empty text
/// if there is no interval.
pub(super) fn interval(estimate: Estimate, written: fn(f64) -> String) -> String {
    let end = |end: f64| {
        if end == 0.0 {
            "0".to_owned()
        } else {
            written(end)
        }
    };
    let ends =
        |interval: stats::Interval| format!("{} to {}", end(interval.low), end(interval.high));
    estimate.interval.map(ends).unwrap_or_default()
}

/// Returns the ends of an estimate's interval, or twice the estimate itself without an interval.
pub(super) fn ends(estimate: Estimate) -> (f64, f64) {
    estimate
        .interval
        .map_or((estimate.median, estimate.median), |interval| {
            (interval.low, interval.high)
        })
}

/// Formats a tick of an axis of integers. Other values stay empty, since there is no half client.
pub(super) fn whole(count: f64) -> String {
    if count.fract() == 0.0 {
        readable::figures::round(count)
    } else {
        String::new()
    }
}

/// Describes a cell's load: `depth 32`, `5,000 a second`.
pub(super) fn load(summary: &CellSummary) -> String {
    bench::plan::pace(summary.depth, asked_rate(&summary.cell))
}

/// Returns curves over the length of requests: cells with the same series and load. Each curve has at least
/// two lengths.
pub(super) fn over_size(summaries: &[CellSummary]) -> Vec<Series<'_>> {
    let same = |one: &CellSummary, other: &CellSummary| {
        one.depth == other.depth
            && clients(&one.cell) == clients(&other.cell)
            && kinds(&one.cell) == kinds(&other.cell)
            && asked_rate(&one.cell).is_none()
    };
    named(
        curves(summaries, same, |summary| block_bytes(&summary.cell)),
        load,
    )
}

/// Returns curves over the load: cells with the same series and request length. Each curve has at least two
/// loads, and contains only closed or only open loops.
pub(super) fn over_load(summaries: &[CellSummary]) -> Vec<Series<'_>> {
    let same = |one: &CellSummary, other: &CellSummary| {
        block_bytes(&one.cell) == block_bytes(&other.cell)
            && clients(&one.cell) == clients(&other.cell)
            && kinds(&one.cell) == kinds(&other.cell)
    };
    let along =
        |summary: &CellSummary| asked_rate(&summary.cell).unwrap_or(f64::from(summary.depth));
    named(curves(summaries, same, along), length)
}

/// Returns curves over the number of clients: cells with the same series and request length, whose first
/// clients run the same workload. Each curve has at least two numbers.
pub(super) fn over_clients(summaries: &[CellSummary]) -> Vec<Series<'_>> {
    let same = |one: &CellSummary, other: &CellSummary| {
        block_bytes(&one.cell) == block_bytes(&other.cell)
            && kinds(&one.cell).first() == kinds(&other.cell).first()
    };
    named(
        curves(summaries, same, |summary| clients(&summary.cell) as f64),
        length,
    )
}

/// Returns the bytes per second that the limit permits with requests of this length. Between its points, a
/// limit is linear in the logarithm of the length.
pub(super) fn allowed(limit: &Limit, block_bytes: f64) -> Option<f64> {
    let above = limit
        .points
        .iter()
        .position(|(size, _)| f64::from(*size) >= block_bytes)?;
    let (high, rate) = limit.points[above];
    if f64::from(high) == block_bytes {
        return Some(rate);
    }
    let (low, lower_rate) = *limit.points.get(above.checked_sub(1)?)?;
    let part = (block_bytes / f64::from(low)).ln() / (f64::from(high) / f64::from(low)).ln();
    Some(lower_rate + part * (rate - lower_rate))
}

/// Returns the lowest of the limits that apply to a cell, with its name.
pub(super) fn lowest_limit<'a>(
    limits: &'a [Limit],
    summary: &CellSummary,
) -> Option<(&'a str, f64)> {
    let direction = Direction::of(&summary.cell).name();
    let holds = |limit: &&Limit| {
        limit.direction == direction && limit.depth.is_none_or(|depth| depth == summary.depth)
    };
    let known = limits.iter().filter(holds).filter_map(|limit| {
        Some((
            limit.name.as_str(),
            allowed(limit, block_bytes(&summary.cell))?,
        ))
    });
    known
        .filter(|(_, rate)| *rate > 0.0)
        .min_by(|one, other| one.1.total_cmp(&other.1))
}

/// Returns a result in percent of a limit. Returns `None` for a result above the limit, which was then
/// measured too low.
pub(super) fn percent_of_limit(rate: f64, limit: f64) -> Option<f64> {
    Some(rate / limit * 100.0).filter(|percent| *percent <= 100.0)
}

/// Returns the kinds of workload that a cell's clients run. Cells of one series with different kinds are
/// different tests, even if their length and load are equal.
pub(super) fn kinds(cell: &Cell) -> Vec<WorkloadKind> {
    cell.roles.iter().map(|role| role.workload.kind()).collect()
}

fn curves(
    summaries: &[CellSummary],
    same: impl Fn(&CellSummary, &CellSummary) -> bool,
    along: impl Fn(&CellSummary) -> f64,
) -> Vec<Vec<&CellSummary>> {
    let mut curves: Vec<Vec<&CellSummary>> = Vec::new();
    for summary in summaries.iter().filter(|summary| summary.runs > 0) {
        let is_one = |of: &CellSummary| of.cell.series == summary.cell.series && same(of, summary);
        match curves.iter_mut().find(|curve| is_one(curve[0])) {
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

/// Names each curve after its series and, if the series has several curves, after the property that
/// distinguishes it.
fn named<'a>(
    curves: Vec<Vec<&'a CellSummary>>,
    besides: impl Fn(&CellSummary) -> String,
) -> Vec<Series<'a>> {
    let name = |curve: &Vec<&CellSummary>| {
        let cell = &curve[0].cell;
        let others: Vec<_> = curves
            .iter()
            .filter(|other| other[0].cell.series == cell.series)
            .collect();
        if others.len() == 1 {
            return cell.series.clone();
        }
        let mut name = format!("{}, {}", cell.series, besides(curve[0]));
        let count = clients(cell);
        if count > 1 && curve.iter().all(|point| clients(&point.cell) == count) {
            name += &format!(", {count} clients");
        }
        let kind = |cell: &Cell| kinds(cell).first().map(|kind| kind.words());
        if others
            .iter()
            .any(|other| kind(&other[0].cell) != kind(cell))
        {
            name += &kind(cell)
                .map(|kind| format!(", {kind}"))
                .unwrap_or_default();
        }
        name
    };
    let names: Vec<String> = curves.iter().map(name).collect();
    names
        .into_iter()
        .zip(curves)
        .map(|(name, cells)| Series { name, cells })
        .collect()
}

fn length(summary: &CellSummary) -> String {
    readable::figures::size(block_bytes(&summary.cell))
}

/// Lists a few names, and the number of further ones.
pub(crate) fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 4;
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary;
    use bench::plan::{Distribution, Percent};
    use bench::test_record::{clients, record, run};

    /// Returns cells with a uniform and with another distribution, all of one series.
    fn summaries(cells: &[(u32, u32, u16)]) -> Vec<CellSummary> {
        let of = |distribution: Distribution| {
            cells.iter().map(move |&(block_bytes, depth, count)| {
                let simple = Workload::simple(block_bytes, depth, Percent::ALL, Percent::ALL);
                let name = format!("{distribution} {block_bytes} {depth} {count}");
                clients(
                    &name,
                    count,
                    &Workload {
                        distribution,
                        ..simple
                    },
                )
            })
        };
        let cells: Vec<Cell> = of(Distribution::Uniform)
            .chain(of(Distribution::Zipf { theta: 0.99 }))
            .collect();
        let runs = cells
            .iter()
            .map(|cell| run(cell, 0, &vec![1000.0; cell.roles.len()]))
            .collect();
        summary::of(&record(cells, runs))
    }

    fn names(series: Vec<Series<'_>>) -> Vec<String> {
        assert!(series.iter().all(|series| series.cells.len() == 2));
        series.into_iter().map(|series| series.name).collect()
    }

    #[test]
    fn cells_of_different_distributions_are_not_points_of_one_curve() {
        let named = |besides: &str| {
            ["", ", zipf:0.99"]
                .map(|of| format!("read, {besides}, random read{of}"))
                .to_vec()
        };
        assert_eq!(
            names(over_size(&summaries(&[(4096, 8, 1), (65_536, 8, 1)]))),
            named("depth 8")
        );
        assert_eq!(
            names(over_load(&summaries(&[(4096, 1, 1), (4096, 8, 1)]))),
            named("4 KiB")
        );
        assert_eq!(
            names(over_load(&summaries(&[(4096, 1, 2), (4096, 8, 2)]))),
            named("4 KiB, 2 clients")
        );
        assert_eq!(
            names(over_clients(&summaries(&[(4096, 8, 1), (4096, 8, 2)]))),
            named("4 KiB")
        );
    }
}
