//! How latencies are spread: each nine of the requests has as much room as the one before.

use crate::Report;
use crate::chart::{Axis, Curve, Look, Plot, Point, Scale, nines};
use crate::document::{Block, Section, Table};
use crate::summary::CellSummary;
use crate::views::{latencies, load};
use bench::record::{Flow, Histogram, Record, Run};
use readable::figures::{latency, latency_tick, round};

/// More curves than this cannot be told apart.
const CURVES_MAX: usize = 6;

pub(super) fn section(report: &Report<'_>) -> Option<Section> {
    let seen = |summary: &&CellSummary| summary.runs > 0 && latencies(summary).max_us > 0.0;
    let all: Vec<&CellSummary> = report.summaries.iter().filter(seen).collect();
    // Where there is a response time, each cell has two curves.
    let most = if all.iter().any(|summary| summary.response.is_some()) { CURVES_MAX / 2 } else { CURVES_MAX };
    let chosen = chosen(&all, most);
    let curves: Vec<Curve> =
        chosen.iter().enumerate().flat_map(|(n, cell)| curves(report, n, cell)).collect();
    if curves.is_empty() {
        return None;
    }
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let count = points().map(|point| nines(point.x)).fold(1.0, f64::max).ceil();
    let plot = Plot {
        title: "Latency percentiles".to_owned(),
        x: Axis { title: "share of requests", scale: Scale::Nines { count }, tick: share },
        y: Axis { title: "latency", scale: Scale::log10(points().map(|point| point.y)), tick: latency_tick },
        curves,
        bands: Vec::new(),
    };
    let mut says = "A curve that stays flat to the right has no outliers.".to_owned();
    if chosen.len() < all.len() {
        says += " Only some cells are drawn, the first and the last of a series before others; the table has all.";
    }
    if chosen.iter().any(|summary| summary.response.is_some()) {
        says +=
            " Response time runs from when a request was meant to be made, service time from when it was.";
    }
    let block = Block::Plot(Box::new(plot), says, Some(table(&all)));
    Some(Section { id: "percentiles", title: "Latency percentiles", blocks: vec![block] })
}

/// All cells, or the first and the last of each series, or the first of each, as far as there is room.
fn chosen<'a>(all: &[&'a CellSummary], most: usize) -> Vec<&'a CellSummary> {
    if all.len() <= most {
        return all.to_vec();
    }
    let series = |summary: &CellSummary| summary.cell.series.clone();
    let is_first = |n: usize| all[..n].iter().all(|other| series(other) != series(all[n]));
    let is_last = |n: usize| all[n + 1..].iter().all(|other| series(other) != series(all[n]));
    let first: Vec<usize> = (0..all.len()).filter(|n| is_first(*n)).collect();
    let ends: Vec<usize> = (0..all.len()).filter(|n| is_first(*n) || is_last(*n)).collect();
    let few = if ends.len() <= most { ends } else { first };
    few.into_iter().take(most).map(|n| all[n]).collect()
}

fn curves(report: &Report<'_>, colour: usize, summary: &CellSummary) -> Vec<Curve> {
    let name = &summary.cell.name;
    let service = merged(report.record, name, |flow| &flow.service);
    let mut curves = Vec::new();
    if summary.response.is_some() {
        let response = merged(report.record, name, |flow| &flow.response);
        curves.push(curve(&format!("{name}, response"), Look::Measured, colour, &response));
        curves.push(curve(&format!("{name}, service"), Look::Companion, colour, &service));
    } else {
        curves.push(curve(name, Look::Measured, colour, &service));
    }
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

/// The latencies of all runs of a cell, both directions together.
fn merged(record: &Record, cell: &str, of: fn(&Flow) -> &Histogram) -> Histogram {
    let runs = record.runs.iter().filter(|run| run.cell == cell).flat_map(|run| &run.clients);
    let both = |run: &Run| of(&run.reads).merged(of(&run.writes));
    runs.fold(Histogram::default(), |all, client| all.merged(&both(&client.run)))
}

/// Points at quantiles that lie evenly on the axis, as far as there are requests to tell them apart.
fn curve(name: &str, look: Look, colour: usize, histogram: &Histogram) -> Curve {
    const FINEST: f64 = 6.0;
    let most = (histogram.count() as f64).max(1.0).log10().min(FINEST);
    let steps = (most * 8.0).floor() as i32;
    let point = |step: i32| {
        let share = 1.0 - 10_f64.powf(-f64::from(step) / 8.0);
        let us = histogram.quantile_ns(share) as f64 / 1e3;
        Point::exact(share, us, format!("{name}: {} took at most {}", self::share(share), latency(us)))
    };
    let points = if histogram.is_empty() {
        Vec::new()
    } else {
        (0..=steps).map(point).filter(|p| p.y > 0.0).collect()
    };
    Curve { name: name.to_owned(), look, colour, points }
}

fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        percent if percent < 99.0 => format!("{} %", round(percent)),
        percent => {
            let digits = (nines(share) - 2.0).round().max(0.0) as usize;
            format!("{percent:.digits$} %")
        }
    }
}

fn table(all: &[&CellSummary]) -> Table {
    let columns = ["cell", "load", "#mean", "#p50", "#p90", "#p99", "#p99.9", "#p99.99", "#longest"];
    let mut table = Table::of("", &columns);
    for summary in all {
        let times = latencies(summary);
        let values = [
            times.mean_us,
            times.p50_us,
            times.p90_us,
            times.p99_us,
            times.p999_us,
            times.p9999_us,
            times.max_us,
        ];
        table.row([summary.cell.name.clone(), load(summary)].into_iter().chain(values.map(latency)));
    }
    table.folded(all.len() > 20)
}
