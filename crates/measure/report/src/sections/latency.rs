//! The sections on latency: against the load, as a distribution, and over the time of a run.

use bench::plan::{Order, Step};
use bench::record::{CellRun, Flow, Histogram, Record, Run};
use readable::figures::{counted, latency, latency_tick, megabytes, round, short, significant};
use stats::steady;
use stats::steady::Window;

use crate::Report;
use crate::chart::{Axis, Band, Curve, Look, Plot, Point, Scale, nines};
use crate::document::{Block, Section, Table};
use crate::sections::clients;
use crate::summary::{CellSummary, Convergence, Latencies, Over, convergence};
use crate::views::{Series, asked_rate, interval, latencies, load, over_load, whole};

/// Returns the section on latency against load, which shows the gain and the cost of a higher queue depth.
pub(super) fn load_section(report: &Report<'_>) -> Option<Section> {
    let all = over_load(&report.summaries);
    let (open, closed): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|series| asked_rate(&series.cells[0].cell).is_some());
    let mut blocks = Vec::new();
    if !closed.is_empty() {
        let says = "Each point is a queue depth. Further right is faster; higher is slower. Where the p99 \
                    rises but the rate does not, additional requests only wait.";
        blocks.push(load_figure(
            &closed,
            "Latency against requests per second, closed loop",
            says,
        ));
        blocks.extend(clients::sentences(&report.summaries, Over::Depth));
    }
    if !open.is_empty() {
        let says = "Each point is a requested rate. Latency is the response time, measured from the time a \
                    request was due, so it includes the delays of requests during a stall.";
        blocks.push(load_figure(
            &open,
            "Latency against requests per second, open loop",
            says,
        ));
    }
    (!blocks.is_empty()).then_some(Section {
        id: "load",
        title: "Latency against load",
        blocks,
    })
}

fn load_figure(series: &[Series<'_>], title: &str, says: &str) -> Block {
    let curves: Vec<Curve> = series
        .iter()
        .enumerate()
        .flat_map(|(index, series)| {
            [
                load_curve(index, series, "p50", Look::Measured, |times| times.p50_us),
                load_curve(index, series, "p99", Look::Companion, |times| times.p99_us),
            ]
        })
        .collect();
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let rates: Vec<f64> = points().map(|point| point.x).collect();
    let plot = Plot {
        title: title.to_owned(),
        x: Axis {
            title: "requests a second (IOPS)",
            scale: Scale::from_zero_or_log(&rates),
            tick: short,
        },
        y: Axis {
            title: "latency",
            scale: Scale::log10(points().map(|point| point.y)),
            tick: latency_tick,
        },
        curves,
        bands: Vec::new(),
    };
    Block::Plot(Box::new(plot), says.to_owned(), Some(load_table(series)))
}

fn load_curve(
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
    Curve {
        name: format!("{} {name}", series.name),
        look,
        colour: index,
        points,
    }
}

fn load_table(series: &[Series<'_>]) -> Table {
    let mut table = Table::of(
        "",
        &[
            "series",
            "load",
            "#in flight",
            "#IOPS",
            "#95 % interval",
            "#MB/s",
            "#p50",
            "#p99",
            "#p99.9",
        ],
    );
    for (name, summary) in series
        .iter()
        .flat_map(|s| s.cells.iter().map(move |summary| (&s.name, summary)))
    {
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

// The distribution of latencies. On the axis, each additional nine of the requests has the same width.

/// Maximum number of curves. More would be indistinguishable.
const PERCENTILES_CURVES_MAX: usize = 6;

pub(super) fn percentiles_section(report: &Report<'_>) -> Option<Section> {
    let seen = |summary: &&CellSummary| summary.runs > 0 && latencies(summary).max_us > 0.0;
    let all: Vec<&CellSummary> = report.summaries.iter().filter(seen).collect();
    // If there are response times, each cell has two curves.
    let most = if all.iter().any(|summary| summary.response.is_some()) {
        PERCENTILES_CURVES_MAX / 2
    } else {
        PERCENTILES_CURVES_MAX
    };
    let chosen = percentiles_chosen(&all, most);
    let curves: Vec<Curve> = chosen
        .iter()
        .enumerate()
        .flat_map(|(n, cell)| curves(report, n, cell))
        .collect();
    if curves.is_empty() {
        return None;
    }
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let count = points()
        .map(|point| nines(point.x))
        .fold(1.0, f64::max)
        .ceil();
    let plot = Plot {
        title: "Latency percentiles".to_owned(),
        x: Axis {
            title: "share of requests",
            scale: Scale::Nines { count },
            tick: share,
        },
        y: Axis {
            title: "latency",
            scale: Scale::log10(points().map(|point| point.y)),
            tick: latency_tick,
        },
        curves,
        bands: Vec::new(),
    };
    let mut says = "A curve that stays flat towards the right has no outliers.".to_owned();
    if chosen.len() < all.len() {
        says += " Only some cells are drawn, preferably the first and last of a series; the table contains \
                 all cells.";
    }
    if chosen.iter().any(|summary| summary.response.is_some()) {
        says += " Response time starts when a request is due, and service time when it is sent.";
    }
    let block = Block::Plot(Box::new(plot), says, Some(percentiles_table(&all)));
    Some(Section {
        id: "percentiles",
        title: "Latency percentiles",
        blocks: vec![block],
    })
}

/// Returns the cells to show: all of them, or the first and last of each series, or only the first of each,
/// depending on the space.
fn percentiles_chosen<'a>(all: &[&'a CellSummary], most: usize) -> Vec<&'a CellSummary> {
    if all.len() <= most {
        return all.to_vec();
    }
    let series = |summary: &CellSummary| summary.cell.series.clone();
    let is_first = |n: usize| all[..n].iter().all(|other| series(other) != series(all[n]));
    let is_last = |n: usize| {
        all[n + 1..]
            .iter()
            .all(|other| series(other) != series(all[n]))
    };
    let first: Vec<usize> = (0..all.len()).filter(|n| is_first(*n)).collect();
    let ends: Vec<usize> = (0..all.len())
        .filter(|n| is_first(*n) || is_last(*n))
        .collect();
    let few = if ends.len() <= most { ends } else { first };
    few.into_iter().take(most).map(|n| all[n]).collect()
}

fn curves(report: &Report<'_>, colour: usize, summary: &CellSummary) -> Vec<Curve> {
    let name = &summary.cell.name;
    let service = merged(report.record, name, |flow| &flow.service);
    let mut curves = Vec::new();
    if summary.response.is_some() {
        let response = merged(report.record, name, |flow| &flow.response);
        curves.push(percentiles_curve(
            &format!("{name}, response"),
            Look::Measured,
            colour,
            &response,
        ));
        curves.push(percentiles_curve(
            &format!("{name}, service"),
            Look::Companion,
            colour,
            &service,
        ));
    } else {
        curves.push(percentiles_curve(name, Look::Measured, colour, &service));
    }
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

/// Returns the latencies of all runs of a cell, for both directions together.
fn merged(record: &Record, cell: &str, of: fn(&Flow) -> &Histogram) -> Histogram {
    let runs = record
        .runs
        .iter()
        .filter(|run| run.cell == cell)
        .flat_map(|run| &run.clients);
    let both = |run: &Run| of(&run.reads).merged(of(&run.writes));
    runs.fold(Histogram::default(), |all, client| {
        all.merged(&both(&client.run))
    })
}

/// Returns a curve with points at quantiles that are evenly spaced on the axis, as far as the number of
/// requests allows.
fn percentiles_curve(name: &str, look: Look, colour: usize, histogram: &Histogram) -> Curve {
    const FINEST: f64 = 6.0;
    let most = (histogram.count() as f64).max(1.0).log10().min(FINEST);
    let steps = (most * 8.0).floor() as i32;
    let point = |step: i32| {
        let share = 1.0 - 10_f64.powf(-f64::from(step) / 8.0);
        let us = histogram.quantile_ns(share) as f64 / 1e3;
        Point::exact(
            share,
            us,
            format!(
                "{name}: {} took {} or less",
                self::share(share),
                latency(us)
            ),
        )
    };
    let points = if histogram.is_empty() {
        Vec::new()
    } else {
        (0..=steps).map(point).filter(|p| p.y > 0.0).collect()
    };
    Curve {
        name: name.to_owned(),
        look,
        colour,
        points,
    }
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

fn percentiles_table(all: &[&CellSummary]) -> Table {
    let columns = [
        "cell", "load", "#mean", "#p50", "#p90", "#p99", "#p99.9", "#p99.99", "#longest",
    ];
    let mut table = Table::of("", &columns);
    let mut add = |name: String, load: String, times: &Latencies| {
        let values = [
            times.mean_us,
            times.p50_us,
            times.p90_us,
            times.p99_us,
            times.p999_us,
            times.p9999_us,
            times.max_us,
        ];
        table.row([name, load].into_iter().chain(values.map(latency)));
    };
    for summary in all {
        let name = &summary.cell.name;
        add(name.clone(), load(summary), latencies(summary));
        if let Some([reads, writes]) = &summary.directions {
            add(format!("{name}, reads"), String::new(), reads);
            add(format!("{name}, writes"), String::new(), writes);
        }
    }
    table.folded(all.len() > 20)
}

// Changes over time: samples within runs, and rounds until the steady state.

/// Maximum number of curves. More would be indistinguishable.
const TIMES_CURVES_MAX: usize = 6;

pub(super) fn times_section(report: &Report<'_>) -> Option<Section> {
    let mut blocks: Vec<Block> = report
        .record
        .suite
        .steps
        .iter()
        .filter_map(|s| rounds(report, s))
        .collect();
    let runs = times_chosen(report);
    if !runs.is_empty() {
        let says = format!(
            "{} in the measurement started at {}, without its warm-up. If several samples share a point, the band \
             spans their minimum and maximum.",
            shown(report, &runs),
            report.record.begun
        );
        blocks.push(times_figure(&runs, "throughput in MB/s", &says, |moment| {
            moment.bytes_per_s / 1e6
        }));
        if runs
            .iter()
            .any(|(_, moments)| moments.iter().any(|moment| moment.p99_us > 0.0))
        {
            blocks.push(times_figure(&runs, "p99 latency", "", |moment| {
                moment.p99_us
            }));
        }
    }
    (!blocks.is_empty()).then_some(Section {
        id: "times",
        title: "Over time",
        blocks,
    })
}

/// Returns one run for each of a few cells: first the cells with flags, then the others in order.
fn times_chosen<'a>(report: &'a Report<'_>) -> Vec<(&'a str, Vec<Moment>)> {
    let flagged = report
        .summaries
        .iter()
        .filter(|summary| !summary.flags.is_empty());
    let series_ends = report.summaries.iter().enumerate().filter(|(n, summary)| {
        report
            .summaries
            .get(n + 1)
            .is_none_or(|next| next.cell.series != summary.cell.series)
    });
    let mut names: Vec<&str> = Vec::new();
    for summary in flagged
        .chain(series_ends.map(|(_, summary)| summary))
        .chain(&report.summaries)
    {
        if names.len() < TIMES_CURVES_MAX && !names.contains(&summary.cell.name.as_str()) {
            names.push(&summary.cell.name);
        }
    }
    let run = |name: &'a str| {
        let run = report
            .record
            .runs
            .iter()
            .rev()
            .find(|run| run.cell == name)?;
        Some((name, over_time(run)))
    };
    names
        .into_iter()
        .filter_map(run)
        .filter(|(_, moments)| moments.len() > 1)
        .collect()
}

/// Returns a sentence that states which run of each cell is drawn: the last one, with its number among the
/// cell's runs.
fn shown(report: &Report<'_>, drawn: &[(&str, Vec<Moment>)]) -> String {
    let count = |name: &str| {
        report
            .record
            .runs
            .iter()
            .filter(|run| run.cell == name)
            .count()
    };
    let counts: Vec<usize> = drawn.iter().map(|(name, _)| count(name)).collect();
    match counts.split_first() {
        Some((first, others)) if others.iter().all(|count| count == first) => {
            format!("Run {first} of {first} for each cell")
        }
        _ => {
            let each = drawn.iter().zip(&counts);
            let each = each.map(|((name, _), count)| format!("{name}: run {count} of {count}"));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

fn times_figure(
    runs: &[(&str, Vec<Moment>)],
    title: &'static str,
    says: &str,
    value: fn(&Moment) -> f64,
) -> Block {
    /// Maximum number of points. More would be finer than the resolution of a chart, and only make the file
    /// larger.
    const POINTS_MAX: usize = 200;
    let is_latency = title.contains("latency");
    let say = |value: f64| {
        if is_latency {
            latency(value)
        } else {
            format!("{} MB/s", megabytes(value * 1e6))
        }
    };
    let curve = |(index, (name, moments)): (usize, &(&str, Vec<Moment>))| {
        let series: Vec<(f64, f64)> = moments
            .iter()
            .map(|moment| (moment.at_s, value(moment)))
            .collect();
        let mut points = thinned(&series, POINTS_MAX);
        for point in &mut points {
            point.says = format!("{name}, {} s: {}", round(point.x), say(point.y));
        }
        Curve {
            name: (*name).to_owned(),
            look: Look::Fine,
            colour: index,
            points,
        }
    };
    let curves: Vec<Curve> = runs.iter().enumerate().map(curve).collect();
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let values: Vec<f64> = points().map(|point| point.high).collect();
    let end = points().map(|point| point.x).fold(0.0, f64::max);
    let y = if is_latency {
        let lows = points().map(|point| point.low).filter(|low| *low > 0.0);
        Axis {
            title,
            scale: Scale::log10(lows.chain(values.iter().copied())),
            tick: latency_tick,
        }
    } else {
        let means: Vec<f64> = points().map(|point| point.y).chain(values).collect();
        Axis {
            title,
            scale: Scale::from_zero_or_log(&means),
            tick: short,
        }
    };
    let plot = Plot {
        title: format!("Over time: {title}"),
        x: Axis {
            title: "time in s",
            scale: Scale::over(0.0, end),
            tick: round,
        },
        y,
        curves,
        bands: Vec::new(),
    };
    Block::Plot(Box::new(plot), says.to_owned(), None)
}

/// Returns a chart of the tracked cell over the rounds, with the window that counts and its tolerance.
fn rounds(report: &Report<'_>, step: &Step) -> Option<Block> {
    let Step::Measure {
        order: Order::SteadyRounds {
            tracked,
            rounds_max,
        },
        ..
    } = step
    else {
        return None;
    };
    let mut steps = convergence(report.record).into_iter();
    let Convergence {
        iops: rates,
        window,
        ..
    } = steps.find(|rounds| rounds.tracked == *tracked)?;
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
        bands.push(Band {
            from,
            to,
            name: "steady-state window".to_owned(),
        });
    }
    let most = curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|point| point.y);
    let plot = Plot {
        title: format!("Rounds of {tracked}"),
        x: Axis {
            title: "round",
            scale: Scale::over(1.0, rates.len() as f64),
            tick: whole,
        },
        y: Axis {
            title: "requests a second (IOPS)",
            scale: Scale::from_zero(most),
            tick: short,
        },
        curves,
        bands,
    };
    let run = format!(
        "{} of {tracked} were run, of at most {rounds_max}.",
        counted(rates.len(), "round")
    );
    let says = window.map_or(run.clone(), |window| format!("{run} {}", judged(&window)));
    Some(Block::Plot(Box::new(plot), says, None))
}

/// Returns the mean of a window, its tolerance, and the line fitted to it.
fn around(window: &Window) -> [Curve; 4] {
    let (first, last) = ends(window);
    let line = |name: &str, from: f64, to: f64| Curve {
        name: name.to_owned(),
        look: Look::Limit,
        colour: 0,
        points: vec![
            Point::exact(first, from, String::new()),
            Point::exact(last, to, String::new()),
        ],
    };
    let level = |name: &str, factor: f64| line(name, window.mean * factor, window.mean * factor);
    let rise = window.line.slope * (steady::WINDOW - 1) as f64;
    let trend = line("trend", window.mean - rise / 2.0, window.mean + rise / 2.0);
    [
        level("+10 %", 1.1),
        level("mean", 1.0),
        level("-10 %", 0.9),
        trend,
    ]
}

/// Returns the first and last round of the window; displayed round numbers start from 1.
fn ends(window: &Window) -> (f64, f64) {
    (
        (window.first + 1) as f64,
        (window.first + steady::WINDOW) as f64,
    )
}

fn judged(window: &Window) -> String {
    format!(
        "In the last {} rounds, the largest and smallest values differ by {} % of the mean (SNIA permits {} \
         %), and the fitted line rises or falls by {} % (permitted: {} %): {}.",
        steady::WINDOW,
        significant(window.range_percent),
        steady::RANGE_PERCENT_MAX,
        significant(window.excursion_percent),
        steady::EXCURSION_PERCENT_MAX,
        if window.is_steady() {
            "steady"
        } else {
            "not steady"
        }
    )
}

// Samples over time, summed over all clients, and reduced in number for a drawing.

/// One interval of a run, for all clients combined.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Moment {
    /// The end of the interval, in seconds since counting started.
    at_s: f64,
    bytes_per_s: f64,
    /// The maximum over the clients, since percentiles cannot be added.
    p99_us: f64,
}

/// Returns the samples of a run, summed over its clients.
fn over_time(run: &CellRun) -> Vec<Moment> {
    let longest = run
        .clients
        .iter()
        .map(|client| client.run.samples.len())
        .max()
        .unwrap_or(0);
    let moment = |index: usize| {
        let samples = run
            .clients
            .iter()
            .filter_map(|client| client.run.samples.get(index));
        samples.fold(Moment::default(), |sum, sample| Moment {
            at_s: sum.at_s.max(sample.at_s),
            bytes_per_s: sum.bytes_per_s + sample.bytes_per_s(),
            p99_us: sum.p99_us.max(sample.p99_us),
        })
    };
    (0..longest).map(moment).collect()
}

/// Reduces the number of points to `most`. Each result is the mean of adjacent points, with their minimum and
/// maximum, so that all peaks remain visible.
fn thinned(series: &[(f64, f64)], most: usize) -> Vec<Point> {
    let together = series.len().div_ceil(most.max(1)).max(1);
    let point = |part: &[(f64, f64)]| {
        let mean =
            |of: fn(&(f64, f64)) -> f64| part.iter().map(of).sum::<f64>() / part.len() as f64;
        Point {
            x: mean(|(x, _)| *x),
            y: mean(|(_, y)| *y),
            low: part.iter().map(|(_, y)| *y).fold(f64::MAX, f64::min),
            high: part.iter().map(|(_, y)| *y).fold(0.0, f64::max),
            says: String::new(),
        }
    };
    series.chunks(together).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spike_is_seen_however_few_points_are_drawn() {
        let series: Vec<_> = (0..10_000)
            .map(|n| (f64::from(n), if n == 777 { 1000.0 } else { 1.0 }))
            .collect();
        let drawn = thinned(&series, 100);
        assert_eq!(drawn.len(), 100);
        assert_eq!(
            drawn.iter().map(|point| point.high).fold(0.0, f64::max),
            1000.0
        );
        assert!(drawn.windows(2).all(|pair| pair[0].x < pair[1].x));
    }
}
