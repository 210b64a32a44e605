//! What requests cost in CPU time, here and at the server.

use crate::Report;
use crate::chart::{Axis, Bar, Bars, Curve, Group, Look, Plot, Point, Scale};
use crate::document::{Block, Section, Table};
use crate::summary::{CellSummary, CpuCost};
use crate::views::{Series, block_bytes, over_size};
use readable::figures::{short, significant, size};

pub(super) fn section(report: &Report<'_>) -> Option<Section> {
    let costs = |summary: &CellSummary| summary.client_cpu.is_some() || summary.server_cpu.is_some();
    let known: Vec<&CellSummary> = report.summaries.iter().filter(|s| s.runs > 0 && costs(s)).collect();
    if known.is_empty() {
        return None;
    }
    let says = "IOPS per % CPU is Iometer's measure, against all CPUs of the \
                machine: more is better. µs per MiB tells copying from handling, where requests are long.";
    let mut blocks = vec![Block::Text(says.to_owned())];
    let series = over_size(&report.summaries);
    if !series.is_empty() {
        blocks.push(effectiveness(&series));
    } else if known.len() <= BARS_MAX {
        blocks.push(Block::Bars(bars(&known), String::new()));
    }
    blocks.push(Block::Table(table(&known)));
    Some(Section { id: "cpu", title: "CPU cost", blocks })
}

/// More cells than this would be pages of bars.
const BARS_MAX: usize = 16;

/// IOPS per % CPU against the length of requests, as document 003 draws it.
fn effectiveness(series: &[Series<'_>]) -> Block {
    let sides: [(&str, Look, Side); 2] = [
        ("client", Look::Measured, |summary| summary.client_cpu),
        ("server", Look::Companion, |summary| summary.server_cpu),
    ];
    let curves: Vec<Curve> = series
        .iter()
        .enumerate()
        .flat_map(|(index, series)| sides.map(|(side, look, cost)| curve(index, series, side, look, cost)))
        .filter(|curve| !curve.points.is_empty())
        .collect();
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let plot = Plot {
        title: "IOPS per % CPU against block size".to_owned(),
        x: Axis { title: "block size", scale: Scale::log2(points().map(|point| point.x)), tick: size },
        y: Axis { title: "IOPS per % CPU", scale: Scale::log10(points().map(|point| point.y)), tick: short },
        curves,
        bands: Vec::new(),
    };
    Block::Plot(Box::new(plot), String::new(), None)
}

fn curve(index: usize, series: &Series<'_>, side: &str, look: Look, cost: Side) -> Curve {
    let name = format!("{}, {side}", series.name);
    let point = |summary: &&CellSummary| {
        let per_percent = cost(summary)?.iops_per_percent;
        let length = block_bytes(&summary.cell);
        let says = format!("{name}, {}: {} IOPS per % CPU", size(length), significant(per_percent));
        (per_percent > 0.0).then(|| Point::exact(length, per_percent, says))
    };
    let points = series.cells.iter().filter_map(point).collect();
    Curve { points, name, look, colour: index }
}

type Side = fn(&CellSummary) -> Option<CpuCost>;

fn bars(known: &[&CellSummary]) -> Bars {
    let group = |(name, colour, cost): (&str, usize, Side)| {
        let bar = |summary: &&CellSummary| {
            let cost = cost(summary)?;
            let says = format!("{} µs per request", significant(cost.us_per_io));
            Some(Bar::new(summary.cell.name.clone(), cost.us_per_io, says, colour))
        };
        Group { name: name.to_owned(), bars: known.iter().filter_map(bar).collect() }
    };
    let sides: [(&str, usize, Side); 2] = [
        ("Client: the threads that made the requests", 0, |summary| summary.client_cpu),
        ("Server", 1, |summary| summary.server_cpu),
    ];
    let groups: Vec<Group> = sides.into_iter().map(group).filter(|group| !group.bars.is_empty()).collect();
    let longest = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value);
    Bars {
        title: "CPU time per request".to_owned(),
        axis: Axis { title: "CPU time per request in µs", scale: Scale::from_zero(longest), tick: short },
        groups,
    }
}

fn table(known: &[&CellSummary]) -> Table {
    let columns = ["cell", "side", "#% of one CPU", "#µs per request", "#µs per MiB", "#IOPS per % CPU"];
    let mut table = Table::of("", &columns);
    for summary in known {
        for (side, cost) in [("client", summary.client_cpu), ("server", summary.server_cpu)] {
            let Some(cost) = cost else { continue };
            let values = [cost.percent, cost.us_per_io, cost.us_per_mib, cost.iops_per_percent];
            table
                .row([summary.cell.name.clone(), side.to_owned()].into_iter().chain(values.map(significant)));
        }
    }
    let many = table.rows.len() > 40;
    table.folded(many)
}
