//! The section on throughput against the length of requests, with limits and published results.

use crate::Report;
use crate::beside::Counterpart;
use crate::chart::{Axis, Curve, Look, Plot, Point, Scale};
use crate::document::{Block, Section, Table};
use crate::summary::CellSummary;
use crate::views::{
    Direction, Series, block_bytes, ends, interval, lowest_limit, over_size, percent_of_limit,
};
use bench::record::Limit;
use readable::figures::{megabytes, short, significant, size};

pub(super) fn section(report: &Report<'_>) -> Option<Section> {
    let series = over_size(&report.summaries);
    if series.is_empty() {
        return None;
    }
    let blocks = vec![Block::Plot(
        Box::new(plot(report, &series)),
        says(report),
        Some(table(report, &series)),
    )];
    Some(Section {
        id: "sizes",
        title: "Throughput against block size",
        blocks,
    })
}

fn plot(report: &Report<'_>, series: &[Series<'_>]) -> Plot {
    let mut curves: Vec<Curve> = series.iter().enumerate().map(measured).collect();
    let range = measured_range(series);
    let limits = limits(report, series);
    curves.extend(limits.iter().enumerate().filter_map(|(n, limit)| {
        // If both directions have the same limits, draw only one line for them.
        let alike = |other: &&&Limit| other.name == limit.name && other.points == limit.points;
        let is_first = !limits[..n].iter().any(|other| alike(&other));
        let is_alone = limits.iter().filter(alike).count() == 1;
        is_first.then(|| limit_curve(limit, is_alone, range))
    }));
    curves.extend(published_curves(report, series));
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let rates: Vec<f64> = points().flat_map(|point| [point.y, point.high]).collect();
    Plot {
        title: "Throughput against block size".to_owned(),
        x: Axis {
            title: "block size",
            scale: Scale::log2(points().map(|point| point.x)),
            tick: size,
        },
        y: Axis {
            title: "throughput in MB/s",
            scale: Scale::from_zero_or_log(&rates),
            tick: short,
        },
        curves,
        bands: Vec::new(),
    }
}

fn says(report: &Report<'_>) -> String {
    let mut says = "Medians of the runs; the bars are 95 % intervals.".to_owned();
    if !report.record.limits.is_empty() {
        let is_above = |summary: &CellSummary| {
            let limit = lowest_limit(&report.record.limits, summary);
            limit.is_some_and(|(_, most)| {
                percent_of_limit(summary.bytes_per_s.median, most).is_none()
            })
        };
        says += match report.summaries.iter().any(is_above) {
            false => " Dashed lines are ceilings.",
            true => {
                " Dashed lines are measured ceilings; if a result is above a ceiling, the ceiling was \
                 measured too low."
            }
        };
    }
    if !report.beside.is_empty() {
        says += " Dotted lines are results published by others.";
    }
    says
}

fn measured((index, series): (usize, &Series<'_>)) -> Curve {
    let point = |summary: &&CellSummary| {
        let rate = summary.bytes_per_s;
        let (low, high) = ends(rate);
        Point {
            x: block_bytes(&summary.cell),
            y: rate.median / 1e6,
            low: low / 1e6,
            high: high / 1e6,
            says: format!(
                "{}, {}: {} MB/s, {} IOPS",
                series.name,
                size(block_bytes(&summary.cell)),
                megabytes(rate.median),
                significant(summary.iops.median)
            ),
        }
    };
    let points = series.cells.iter().map(point).collect();
    Curve {
        name: series.name.clone(),
        look: Look::Measured,
        colour: index,
        points,
    }
}

/// Returns the limits in the chart, for the directions and depths of the curves.
fn limits<'a>(report: &Report<'a>, series: &[Series<'_>]) -> Vec<&'a Limit> {
    let concerns = |limit: &&Limit| {
        series
            .iter()
            .flat_map(|series| &series.cells)
            .any(|summary| {
                Direction::of(&summary.cell).name() == limit.direction
                    && limit.depth.is_none_or(|depth| depth == summary.depth)
            })
    };
    report.record.limits.iter().filter(concerns).collect()
}

fn measured_range(series: &[Series<'_>]) -> (f64, f64) {
    let sizes = series
        .iter()
        .flat_map(|series| &series.cells)
        .map(|summary| block_bytes(&summary.cell));
    sizes.fold((f64::MAX, 0.0), |(low, high), size| {
        (low.min(size), high.max(size))
    })
}

/// Returns the part of a limit within the range of the measurements.
fn limit_curve(limit: &Limit, with_direction: bool, (low, high): (f64, f64)) -> Curve {
    let inside = |(size, _): &&(u32, f64)| (low..=high).contains(&f64::from(*size));
    let point =
        |(length, rate): &(u32, f64)| Point::exact(f64::from(*length), rate / 1e6, String::new());
    let mut name = limit.name.clone();
    if with_direction {
        name = format!("{name}, {}", limit.direction);
    }
    if let Some(depth) = limit.depth {
        name = format!("{name}, depth {depth}");
    }
    Curve {
        name,
        look: Look::Limit,
        colour: 0,
        points: limit.points.iter().filter(inside).map(point).collect(),
    }
}

/// Returns one published curve for each series and document, in the colour of the series.
fn published_curves(report: &Report<'_>, series: &[Series<'_>]) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for document in &report.beside {
        let counterparts = report.counterparts(document);
        for (colour, series) in series.iter().enumerate() {
            let of_series = counterparts.iter().filter(|counterpart| {
                let is_same = |cell: &&CellSummary| cell.cell.name == counterpart.summary.cell.name;
                counterpart.client.is_none() && series.cells.iter().any(is_same)
            });
            curves.extend(published_curve(colour, &of_series.collect::<Vec<_>>()));
        }
    }
    curves
}

fn published_curve(colour: usize, counterparts: &[&Counterpart<'_>]) -> Option<Curve> {
    let name = counterparts.first()?.row.citation();
    let point = |counterpart: &&Counterpart<'_>| {
        let length = block_bytes(&counterpart.summary.cell);
        let says = format!(
            "{name}, {}: {} MB/s",
            size(length),
            megabytes(counterpart.published)
        );
        Point::exact(length, counterpart.published / 1e6, says)
    };
    let points = counterparts.iter().map(point).collect();
    Some(Curve {
        points,
        name,
        look: Look::Published,
        colour,
    })
}

fn table(report: &Report<'_>, series: &[Series<'_>]) -> Table {
    let ceilings = report
        .summaries
        .iter()
        .any(|s| lowest_limit(&report.record.limits, s).is_some());
    let mut columns = vec![
        "series",
        "#block",
        "#depth",
        "#MB/s",
        "#95 % interval",
        "#IOPS",
    ];
    if ceilings {
        columns.extend(["#% of limit", "limit"]);
    }
    let mut table = Table::of("", &columns);
    for (name, summary) in series
        .iter()
        .flat_map(|s| s.cells.iter().map(move |summary| (&s.name, summary)))
    {
        let rate = summary.bytes_per_s;
        let mut cells = vec![
            name.clone(),
            size(block_bytes(&summary.cell)),
            summary.depth.to_string(),
            megabytes(rate.median),
            interval(rate, megabytes),
            significant(summary.iops.median),
        ];
        if ceilings {
            let limit = lowest_limit(&report.record.limits, summary);
            cells.push(
                limit
                    .and_then(|(_, most)| percent_of_limit(rate.median, most))
                    .map(significant)
                    .unwrap_or_default(),
            );
            cells.push(
                limit
                    .map(|(name, most)| match percent_of_limit(rate.median, most) {
                        Some(_) => name.to_owned(),
                        None => format!("exceeds {name}"),
                    })
                    .unwrap_or_default(),
            );
        }
        table.row(cells);
    }
    table
}
