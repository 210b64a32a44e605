//! How it went over time: samples within runs, and rounds on their way to the steady state.

use crate::Report;
use crate::chart::{Axis, Band, Curve, Look, Plot, Point, Scale};
use crate::document::{Block, Section};
use crate::series::{Moment, over_time, thinned};
use crate::summary::{Convergence, convergence};
use crate::views::whole;
use bench::plan::{Order, Step};
use readable::figures::{counted, latency, latency_tick, megabytes, round, short, significant};
use stats::steady::{self, Window};

/// More curves than this cannot be told apart.
const CURVES_MAX: usize = 6;

pub(super) fn section(report: &Report<'_>) -> Option<Section> {
    let mut blocks: Vec<Block> = report.record.suite.steps.iter().filter_map(|s| rounds(report, s)).collect();
    let runs = chosen(report);
    if !runs.is_empty() {
        let says = format!(
            "{} of the record that began {}, without its warm-up; the band goes from the least to the most of the samples \
             that share a point.",
            shown(report, &runs),
            report.record.begun
        );
        blocks.push(figure(&runs, "throughput in MB/s", &says, |moment| moment.bytes_per_s / 1e6));
        if runs.iter().any(|(_, moments)| moments.iter().any(|moment| moment.p99_us > 0.0)) {
            blocks.push(figure(&runs, "p99 latency", "", |moment| moment.p99_us));
        }
    }
    (!blocks.is_empty()).then_some(Section { id: "times", title: "Over time", blocks })
}

/// One run of each of a few cells: those that have something to show first, then the others from the first on.
fn chosen<'a>(report: &'a Report<'_>) -> Vec<(&'a str, Vec<Moment>)> {
    let flagged = report.summaries.iter().filter(|summary| !summary.flags.is_empty());
    let series_ends = report.summaries.iter().enumerate().filter(|(n, summary)| {
        report.summaries.get(n + 1).is_none_or(|next| next.cell.series != summary.cell.series)
    });
    let mut names: Vec<&str> = Vec::new();
    for summary in flagged.chain(series_ends.map(|(_, summary)| summary)).chain(&report.summaries) {
        if names.len() < CURVES_MAX && !names.contains(&summary.cell.name.as_str()) {
            names.push(&summary.cell.name);
        }
    }
    let run = |name: &'a str| {
        let run = report.record.runs.iter().rev().find(|run| run.cell == name)?;
        Some((name, over_time(run)))
    };
    names.into_iter().filter_map(run).filter(|(_, moments)| moments.len() > 1).collect()
}

/// Which run of each cell is drawn: the last, by its number among the cell's.
fn shown(report: &Report<'_>, drawn: &[(&str, Vec<Moment>)]) -> String {
    let count = |name: &str| report.record.runs.iter().filter(|run| run.cell == name).count();
    let counts: Vec<usize> = drawn.iter().map(|(name, _)| count(name)).collect();
    match counts.split_first() {
        Some((first, others)) if others.iter().all(|count| count == first) => {
            format!("Run {first} of {first} of each cell")
        }
        _ => {
            let each = drawn.iter().zip(&counts);
            let each = each.map(|((name, _), count)| format!("{name}: run {count} of {count}"));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

fn figure(runs: &[(&str, Vec<Moment>)], title: &'static str, says: &str, value: fn(&Moment) -> f64) -> Block {
    /// As many as a chart is wide, by far: more points only make the file longer.
    const POINTS_MAX: usize = 200;
    let is_latency = title.contains("latency");
    let say =
        |value: f64| if is_latency { latency(value) } else { format!("{} MB/s", megabytes(value * 1e6)) };
    let curve = |(index, (name, moments)): (usize, &(&str, Vec<Moment>))| {
        let series: Vec<(f64, f64)> = moments.iter().map(|moment| (moment.at_s, value(moment))).collect();
        let mut points = thinned(&series, POINTS_MAX);
        for point in &mut points {
            point.says = format!("{name}, {} s: {}", round(point.x), say(point.y));
        }
        Curve { name: (*name).to_owned(), look: Look::Fine, colour: index, points }
    };
    let curves: Vec<Curve> = runs.iter().enumerate().map(curve).collect();
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let values: Vec<f64> = points().map(|point| point.high).collect();
    let end = points().map(|point| point.x).fold(0.0, f64::max);
    let y = if is_latency {
        let lows = points().map(|point| point.low).filter(|low| *low > 0.0);
        Axis { title, scale: Scale::log10(lows.chain(values.iter().copied())), tick: latency_tick }
    } else {
        let means: Vec<f64> = points().map(|point| point.y).chain(values).collect();
        Axis { title, scale: Scale::from_zero_or_log(&means), tick: short }
    };
    let plot = Plot {
        title: format!("Over time: {title}"),
        x: Axis { title: "time in s", scale: Scale::over(0.0, end), tick: round },
        y,
        curves,
        bands: Vec::new(),
    };
    Block::Plot(Box::new(plot), says.to_owned(), None)
}

/// The tracked cell from round to round, with the window that counts and what it may differ by.
fn rounds(report: &Report<'_>, step: &Step) -> Option<Block> {
    let Step::Measure { order: Order::SteadyRounds { tracked, rounds_max }, .. } = step else { return None };
    let mut steps = convergence(report.record).into_iter();
    let Convergence { iops: rates, window, .. } = steps.find(|rounds| rounds.tracked == *tracked)?;
    if rates.len() < 2 {
        return None;
    }
    let point = |(n, rate): (usize, &f64)| {
        let says = format!("round {}: {} IOPS", n + 1, significant(*rate));
        Point::exact((n + 1) as f64, *rate, says)
    };
    let mut curves = vec![Curve {
        name: tracked.clone(),
        look: Look::Measured,
        colour: 0,
        points: rates.iter().enumerate().map(point).collect(),
    }];
    let mut bands = Vec::new();
    if let Some(window) = &window {
        curves.extend(around(window));
        let (from, to) = ends(window);
        bands.push(Band { from, to, name: "steady-state window".to_owned() });
    }
    let most = curves.iter().flat_map(|curve| &curve.points).map(|point| point.y);
    let plot = Plot {
        title: format!("Rounds of {tracked}"),
        x: Axis { title: "round", scale: Scale::over(1.0, rates.len() as f64), tick: whole },
        y: Axis { title: "requests a second (IOPS)", scale: Scale::from_zero(most), tick: short },
        curves,
        bands,
    };
    let run = format!("{} of at most {rounds_max} of {tracked} were run.", counted(rates.len(), "round"));
    let says = window.map_or(run.clone(), |window| format!("{run} {}", judged(&window)));
    Some(Block::Plot(Box::new(plot), says, None))
}

/// The mean of a window, what it may differ by, and the line fitted to it.
fn around(window: &Window) -> [Curve; 4] {
    let (first, last) = ends(window);
    let line = |name: &str, from: f64, to: f64| Curve {
        name: name.to_owned(),
        look: Look::Limit,
        colour: 0,
        points: vec![Point::exact(first, from, String::new()), Point::exact(last, to, String::new())],
    };
    let level = |name: &str, factor: f64| line(name, window.mean * factor, window.mean * factor);
    let rise = window.line.slope * (steady::WINDOW - 1) as f64;
    let trend = line("trend", window.mean - rise / 2.0, window.mean + rise / 2.0);
    [level("+10 %", 1.1), level("mean", 1.0), level("-10 %", 0.9), trend]
}

/// Rounds are counted from 1 where people read them.
fn ends(window: &Window) -> (f64, f64) {
    ((window.first + 1) as f64, (window.first + steady::WINDOW) as f64)
}

fn judged(window: &Window) -> String {
    format!(
        "In the last {} the largest differs from the smallest by {} % of the mean (SNIA allows {} %), and the fitted line rises \
         or falls by {} % (allowed: {} %): {}.",
        steady::WINDOW,
        significant(window.range_percent),
        steady::RANGE_PERCENT_MAX,
        significant(window.excursion_percent),
        steady::EXCURSION_PERCENT_MAX,
        if window.is_steady() { "steady" } else { "not steady" }
    )
}
