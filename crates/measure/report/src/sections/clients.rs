//! The section on the results of each client, and on how the total grows with the number of clients.

use readable::figures::{latency, megabytes, round, short, significant, size};

use crate::Report;
use crate::chart::{Axis, Bar, Bars, Curve, Group, Look, Plot, Point, Scale};
use crate::document::{Block, Section, Table};
use crate::summary::{CellSummary, ClientSummary, CpuCost, Over, Scaling, scaling};
use crate::views::{Series, block_bytes, clients, ends, over_clients, over_size, whole};

pub(super) fn section(report: &Report<'_>) -> Option<Section> {
    let shared: Vec<&CellSummary> = report
        .summaries
        .iter()
        .filter(|s| s.clients.len() > 1)
        .collect();
    if shared.is_empty() {
        return None;
    }
    let says = "Percentages are relative to the same workload running alone. Fairness is Jain's index: 1 if \
                all clients have the same rate, 1/n if one of n clients has the total rate.";
    let mut blocks = vec![Block::Bars(bars(&shared), says.to_owned())];
    blocks.extend(growth(report));
    blocks.extend(sentences(&report.summaries, Over::Clients));
    blocks.push(Block::Table(table(&shared)));
    Some(Section {
        id: "clients",
        title: "Clients",
        blocks,
    })
}

fn bars(shared: &[&CellSummary]) -> Bars {
    /// Maximum number of groups. A bar for each client of every cell would fill pages.
    const GROUPS_MAX: usize = 12;
    let group = |summary: &&CellSummary| {
        let fairness = summary
            .fairness
            .map(|index| format!(", fairness {index:.3}"))
            .unwrap_or_default();
        let total = megabytes(summary.bytes_per_s.median);
        Group {
            name: format!("{}: {total} MB/s together{fairness}", summary.cell.name),
            bars: summary.clients.iter().enumerate().map(bar).collect(),
        }
    };
    let groups: Vec<Group> = shared.iter().take(GROUPS_MAX).map(group).collect();
    let longest = groups
        .iter()
        .flat_map(|group| &group.bars)
        .map(|bar| bar.value);
    Bars {
        title: "Throughput of each client".to_owned(),
        axis: Axis {
            title: "throughput in MB/s",
            scale: Scale::from_zero(longest),
            tick: short,
        },
        groups,
    }
}

fn bar((index, client): (usize, &ClientSummary)) -> Bar {
    let of_single = client
        .of_single
        .map(|share| format!(", {} % of alone", significant(share * 100.0)));
    let says = format!(
        "{} MB/s{}",
        megabytes(client.bytes_per_s),
        of_single.unwrap_or_default()
    );
    Bar::new(name(client), client.bytes_per_s / 1e6, says, index)
}

fn name(client: &ClientSummary) -> String {
    if client.role == client.client {
        client.role.clone()
    } else {
        format!("{} ({})", client.role, client.client)
    }
}

/// Returns a chart of all clients together over their number, with the ideal linear growth.
fn growth(report: &Report<'_>) -> Option<Block> {
    let series = over_clients(&report.summaries);
    series.first()?;
    let mut curves: Vec<Curve> = series.iter().enumerate().map(together).collect();
    curves.extend(series.iter().filter_map(as_many_alone));
    let laws = laws(&report.summaries, Over::Clients);
    curves.extend(laws.iter().filter_map(|law| fitted(&report.summaries, law)));
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let plot = Plot {
        title: "Total throughput against number of clients".to_owned(),
        x: Axis {
            title: "clients",
            scale: Scale::over(1.0, points().map(|point| point.x).fold(1.0, f64::max)),
            tick: whole,
        },
        y: Axis {
            title: "throughput in MB/s",
            scale: Scale::from_zero(points().map(|point| point.high)),
            tick: short,
        },
        curves,
        bands: Vec::new(),
    };
    let says = "Total of all clients. Dashed: the rate of one client times the number of clients, and the \
                universal scalability law if it could be fitted.";
    Some(Block::Plot(Box::new(plot), says.to_owned(), None))
}

fn together((index, series): (usize, &Series<'_>)) -> Curve {
    let point = |summary: &&CellSummary| {
        let rate = summary.bytes_per_s;
        let (low, high) = ends(rate);
        Point {
            x: clients(&summary.cell) as f64,
            y: rate.median / 1e6,
            low: low / 1e6,
            high: high / 1e6,
            says: format!(
                "{}: {} MB/s together",
                summary.cell.name,
                megabytes(rate.median)
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

fn as_many_alone(Series { name, cells }: &Series<'_>) -> Option<Curve> {
    let alone = cells
        .iter()
        .find(|summary| clients(&summary.cell) == 1)?
        .bytes_per_s
        .median
        / 1e6;
    let most = cells.iter().map(|summary| clients(&summary.cell)).max()? as f64;
    let points = [1.0, most]
        .map(|count| Point::exact(count, alone * count, String::new()))
        .to_vec();
    Some(Curve {
        name: format!("{name}, linear"),
        look: Look::Limit,
        colour: 0,
        points,
    })
}

/// Returns a curve of the fitted universal scalability law, in bytes per second.
fn fitted(summaries: &[CellSummary], scaling: &Scaling) -> Option<Curve> {
    /// Number of points, which is enough for a smooth curve.
    const STEPS: u32 = 24;
    let first = summaries
        .iter()
        .find(|summary| scaling.cells.first() == Some(&summary.cell.name))?;
    let most = scaling.points.last()?.0;
    let point = |step: u32| {
        let count = 1.0 + (most - 1.0) * f64::from(step) / f64::from(STEPS);
        Point::exact(
            count,
            scaling.law.at(count) * block_bytes(&first.cell) / 1e6,
            String::new(),
        )
    };
    let name = format!("{}, law", first.cell.series);
    Some(Curve {
        name,
        look: Look::Limit,
        colour: 0,
        points: (0..=STEPS).map(point).collect(),
    })
}

fn table(shared: &[&CellSummary]) -> Table {
    let columns = [
        "cell",
        "client",
        "#IOPS",
        "#MB/s",
        "#% of alone",
        "#p50",
        "#p99",
    ];
    let mut table = Table::of("", &columns);
    for (cell, client) in shared
        .iter()
        .flat_map(|s| s.clients.iter().map(move |client| (&s.cell, client)))
    {
        table.row([
            cell.name.clone(),
            name(client),
            significant(client.iops),
            megabytes(client.bytes_per_s),
            client
                .of_single
                .map(|share| significant(share * 100.0))
                .unwrap_or_default(),
            latency(client.service.p50_us),
            latency(client.service.p99_us),
        ]);
    }
    table
}

// Sentences about the depth or the number of clients above which the rate no longer grows, from the fitted
// universal scalability law.

/// Returns a sentence for each curve over this number, if there are any.
pub(super) fn sentences(summaries: &[CellSummary], over: Over) -> Option<Block> {
    let sentences: Vec<String> = laws(summaries, over)
        .iter()
        .map(|law| sentence(summaries, law))
        .collect();
    (!sentences.is_empty()).then_some(Block::List(sentences))
}

/// Returns the fits over this number.
pub(super) fn laws(summaries: &[CellSummary], over: Over) -> Vec<Scaling> {
    scaling(summaries)
        .into_iter()
        .filter(|scaling| scaling.over == over)
        .collect()
}

fn sentence(summaries: &[CellSummary], scaling: &Scaling) -> String {
    /// The multiple of the largest measured number up to which a peak is extrapolated.
    const BEYOND_MAX: f64 = 10.0;
    let law = &scaling.law;
    let of = |summary: &&CellSummary| scaling.cells.first() == Some(&summary.cell.name);
    let series = summaries
        .iter()
        .find(of)
        .map_or("", |summary| summary.cell.series.as_str());
    let (one, many) = match scaling.over {
        Over::Clients => ("client", "clients"),
        Over::Depth => ("outstanding request", "outstanding requests"),
    };
    let count = |number: f64| {
        format!(
            "{} {}",
            round(number),
            if number == 1.0 { one } else { many }
        )
    };
    let measured = scaling.points.last().map_or(1.0, |(number, _)| *number);
    let best = scaling
        .points
        .iter()
        .max_by(|(_, one), (_, other)| one.total_cmp(other));
    let (at, most) = best.copied().unwrap_or((1.0, 0.0));
    // The measured rates decide within their range, and the law only beyond it.
    let is_last = at == measured;
    let up_to = if is_last { "the maximum of " } else { "" };
    let mut peak = format!(
        "the rate is highest with {up_to}{} ({} IOPS)",
        count(at),
        significant(most)
    );
    let may_follow = measured..=BEYOND_MAX * measured;
    if let Some(beyond) = law
        .peak()
        .filter(|peak| is_last && may_follow.contains(peak))
    {
        peak += &format!("; by the law, it peaks at {}", count(beyond.round()));
    }
    format!(
        "{series}: {peak}. Universal scalability law: contention {:.4}, coherency {:.6}; its error is {} %.",
        law.contention,
        law.coherency,
        significant(law.off_percent)
    )
}

/// Returns the section on the CPU time of requests, on the clients and on the server.
pub(super) fn cpu_section(report: &Report<'_>) -> Option<Section> {
    let costs =
        |summary: &CellSummary| summary.client_cpu.is_some() || summary.server_cpu.is_some();
    let known: Vec<&CellSummary> = report
        .summaries
        .iter()
        .filter(|s| s.runs > 0 && costs(s))
        .collect();
    if known.is_empty() {
        return None;
    }
    let says = "IOPS per % CPU, as in document 003, is the rate divided by the CPU utilisation of that end, in \
                percent of all CPUs of its machine, including other programs; if both ends share a machine, the \
                utilisation of each is that of its process. µs are CPU time of the threads that sent the \
                requests, and of the server process or, if an agent measured it, of all programs on the \
                server's machine. For long requests, µs per MiB mainly shows the cost of copying.";
    let mut blocks = vec![Block::Text(says.to_owned())];
    let series = over_size(&report.summaries);
    if !series.is_empty() {
        blocks.push(effectiveness(&series));
    } else if known.len() <= BARS_MAX {
        blocks.push(Block::Bars(cpu_bars(&known), String::new()));
    }
    blocks.push(Block::Table(cpu_table(&known)));
    Some(Section {
        id: "cpu",
        title: "CPU cost",
        blocks,
    })
}

/// Maximum number of cells with bars. More would fill pages.
const BARS_MAX: usize = 16;

/// Returns a chart of IOPS per percent of CPU over the length of requests, as in document 003.
fn effectiveness(series: &[Series<'_>]) -> Block {
    let sides: [(&str, Look, Load); 2] = [
        ("client", Look::Measured, |summary| summary.cpu_load.client),
        ("server", Look::Companion, |summary| summary.cpu_load.server),
    ];
    let curves: Vec<Curve> = series
        .iter()
        .enumerate()
        .flat_map(|(index, series)| {
            sides.map(|(side, look, load)| curve(index, series, side, look, load))
        })
        .filter(|curve| !curve.points.is_empty())
        .collect();
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let plot = Plot {
        title: "IOPS per % CPU against block size".to_owned(),
        x: Axis {
            title: "block size",
            scale: Scale::log2(points().map(|point| point.x)),
            tick: size,
        },
        y: Axis {
            title: "IOPS per % CPU",
            scale: Scale::log10(points().map(|point| point.y)),
            tick: short,
        },
        curves,
        bands: Vec::new(),
    };
    Block::Plot(Box::new(plot), String::new(), None)
}

fn curve(index: usize, series: &Series<'_>, side: &str, look: Look, load: Load) -> Curve {
    let name = format!("{}, {side}", series.name);
    let point = |summary: &&CellSummary| {
        let per_percent = summary.iops_per_percent(load(summary))?;
        let length = block_bytes(&summary.cell);
        let says = format!(
            "{name}, {}: {} IOPS per % CPU",
            size(length),
            significant(per_percent)
        );
        (per_percent > 0.0).then(|| Point::exact(length, per_percent, says))
    };
    let points = series.cells.iter().filter_map(point).collect();
    Curve {
        points,
        name,
        look,
        colour: index,
    }
}

/// Returns the CPU utilisation of one end.
type Load = fn(&CellSummary) -> Option<f64>;

/// Returns the CPU cost of one end.
type Side = fn(&CellSummary) -> Option<CpuCost>;

fn cpu_bars(known: &[&CellSummary]) -> Bars {
    let group = |(name, colour, cost): (&str, usize, Side)| {
        let bar = |summary: &&CellSummary| {
            let cost = cost(summary)?;
            let says = format!("{} µs per request", significant(cost.us_per_io));
            Some(Bar::new(
                summary.cell.name.clone(),
                cost.us_per_io,
                says,
                colour,
            ))
        };
        Group {
            name: name.to_owned(),
            bars: known.iter().filter_map(bar).collect(),
        }
    };
    let sides: [(&str, usize, Side); 2] = [
        ("Client: the threads that sent the requests", 0, |summary| {
            summary.client_cpu
        }),
        ("Server", 1, |summary| summary.server_cpu),
    ];
    let groups: Vec<Group> = sides
        .into_iter()
        .map(group)
        .filter(|group| !group.bars.is_empty())
        .collect();
    let longest = groups
        .iter()
        .flat_map(|group| &group.bars)
        .map(|bar| bar.value);
    Bars {
        title: "CPU time per request".to_owned(),
        axis: Axis {
            title: "CPU time per request in µs",
            scale: Scale::from_zero(longest),
            tick: short,
        },
        groups,
    }
}

fn cpu_table(known: &[&CellSummary]) -> Table {
    let columns = [
        "cell",
        "side",
        "#% CPU",
        "#µs per request",
        "#µs per MiB",
        "#IOPS per % CPU",
    ];
    let mut table = Table::of("", &columns);
    for summary in known {
        let load = summary.cpu_load;
        let sides = [
            ("client", summary.client_cpu, load.client),
            ("server", summary.server_cpu, load.server),
        ];
        for (side, cost, load) in sides {
            let Some(cost) = cost else { continue };
            let values = [
                load,
                Some(cost.us_per_io),
                Some(cost.us_per_mib),
                summary.iops_per_percent(load),
            ];
            let values = values.map(|value| value.map(significant).unwrap_or_default());
            table.row(
                [summary.cell.name.clone(), side.to_owned()]
                    .into_iter()
                    .chain(values),
            );
        }
    }
    let many = table.rows.len() > 40;
    table.folded(many)
}
