//! Latency against load: what more requests at once bring, and what they cost.

use super::scaling;
use crate::Report;
use crate::chart::{Axis, Curve, Look, Plot, Point, Scale};
use crate::document::{Block, Section, Table};
use crate::summary::{CellSummary, Latencies, Over};
use crate::views::{Series, asked_rate, interval, latencies, load, over_load};
use readable::figures::{latency, latency_tick, megabytes, short, significant};

pub(super) fn section(report: &Report<'_>) -> Option<Section> {
    let all = over_load(&report.summaries);
    let (open, closed): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|series| asked_rate(&series.cells[0].cell).is_some());
    let mut blocks = Vec::new();
    if !closed.is_empty() {
        let says = "Each point is a depth; to the right is better, up is worse. Where the p99 climbs and the rate does not, \
                    more requests at once only wait.";
        blocks.push(figure(&closed, "Latency against requests a second, closed loop", says));
        blocks.extend(scaling::sentences(&report.summaries, Over::Depth));
    }
    if !open.is_empty() {
        let says = "Each point is a rate that was asked for. Latency is response time, from when a request was meant to be \
                    made: what a stall keeps from being made counts.";
        blocks.push(figure(&open, "Latency against requests a second, open loop", says));
    }
    (!blocks.is_empty()).then_some(Section { id: "load", title: "Latency against load", blocks })
}

fn figure(series: &[Series<'_>], title: &str, says: &str) -> Block {
    let curves: Vec<Curve> = series
        .iter()
        .enumerate()
        .flat_map(|(index, series)| {
            [
                curve(index, series, "p50", Look::Measured, |times| times.p50_us),
                curve(index, series, "p99", Look::Companion, |times| times.p99_us),
            ]
        })
        .collect();
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let rates: Vec<f64> = points().map(|point| point.x).collect();
    let plot = Plot {
        title: title.to_owned(),
        x: Axis { title: "requests a second (IOPS)", scale: Scale::from_zero_or_log(&rates), tick: short },
        y: Axis { title: "latency", scale: Scale::log10(points().map(|point| point.y)), tick: latency_tick },
        curves,
        bands: Vec::new(),
    };
    Block::Plot(Box::new(plot), says.to_owned(), Some(table(series)))
}

fn curve(
    index: usize,
    series: &Series<'_>,
    name: &str,
    look: Look,
    quantile: fn(&Latencies) -> f64,
) -> Curve {
    let point = |summary: &&CellSummary| {
        let us = quantile(latencies(summary));
        let says = format!(
            "{}, {}: {} IOPS, {name} {}",
            series.name,
            load(summary),
            significant(summary.iops.median),
            latency(us)
        );
        Point::exact(summary.iops.median, us, says)
    };
    let points = series.cells.iter().map(point).collect();
    Curve { name: format!("{} {name}", series.name), look, colour: index, points }
}

fn table(series: &[Series<'_>]) -> Table {
    let mut table = Table::of(
        "",
        &["series", "load", "#under way", "#IOPS", "#95 % interval", "#MB/s", "#p50", "#p99", "#p99.9"],
    );
    for (name, summary) in series.iter().flat_map(|s| s.cells.iter().map(move |summary| (&s.name, summary))) {
        let times = latencies(summary);
        table.row([
            name.clone(),
            load(summary),
            significant(summary.under_way),
            significant(summary.iops.median),
            interval(summary.iops, significant),
            megabytes(summary.bytes_per_s.median),
            latency(times.p50_us),
            latency(times.p99_us),
            latency(times.p999_us),
        ]);
    }
    table
}
