//! The sections on distance: document 002's tables with measured, modelled and published results, and the
//! parameters that the document mentions without results.

use bench::plan::{Part, Way};
use model::Direction;
use readable::figures::{counted, grouped, latency, megabytes, round, short, significant, size};

use crate::chart::{Axis, Bar, Bars, Curve, Group, Heat, Look, Panel, Plot, Point, Scale, Square};
use crate::diagnosis::term;
use crate::document::{Block, Column, Headline, Section, Table};
use crate::wan::{Constants, Met, Off, Row, Verdict, Wan};

/// Returns the sections on distance, in reading order.
pub(super) fn sections(wan: &Wan) -> Vec<Section> {
    let parts: [(&'static str, &'static str, Vec<Block>); 5] = [
        ("wan", "Requests over distance", over_distance(wan)),
        ("tcp", "TCP alone", tcp(wan)),
        ("lan", "Gigabit Ethernet, without a delay", lan(wan)),
        (
            "axes",
            "Connections, sessions, packets, windows and loss",
            axes_blocks(wan),
        ),
        (
            "model",
            "The model, and unreachable results",
            model_blocks(wan),
        ),
    ];
    let sections = parts
        .into_iter()
        .map(|(id, title, blocks)| Section { id, title, blocks });
    sections
        .filter(|section| !section.blocks.is_empty())
        .collect()
}

// Parameters that the document mentions without results: one small chart for each, with its numbers.

/// A parameter whose numeric values double from cell to cell.
struct Doubling {
    part: Part,
    title: &'static str,
    axis: &'static str,
    value: fn(&Row) -> f64,
    says: &'static str,
}

const DOUBLING: [Doubling; 3] = [
    Doubling {
        part: Part::Connections,
        title: "Throughput against connections per session",
        axis: "connections",
        value: |row| f64::from(row.setting.connections),
        says: "Each connection has its own window. If it is the limit, more connections help.",
    },
    Doubling {
        part: Part::Sessions,
        title: "Throughput against sessions",
        axis: "sessions",
        value: |row| f64::from(row.setting.sessions),
        says: "Each session has its own queue depth. If it is the limit, more sessions help.",
    },
    Doubling {
        part: Part::CommandWindow,
        title: "Throughput against the command window",
        axis: "command window",
        value: |row| f64::from(row.setting.command_window.unwrap_or(0)),
        says: "The target limits the number of outstanding commands; a higher queue depth does not help.",
    },
];

fn axes_blocks(wan: &Wan) -> Vec<Block> {
    let doubling = DOUBLING.iter().filter_map(|axis| curves(wan, axis));
    let mtu = bars(
        wan,
        Part::Mtu,
        "Throughput by MTU",
        |row| format!("MTU {}", row.setting.mtu),
        "Longer packets have a larger share of data, and fewer packets have to be processed.",
    );
    let congestion = bars(
        wan,
        Part::Congestion,
        "Throughput by congestion control and loss",
        |row| match row.setting.loss {
            loss if loss > 0.0 => {
                format!("{}, {} % lost", row.setting.congestion, round(loss * 100.0))
            }
            _ => format!("{}, nothing lost", row.setting.congestion),
        },
        "BBR tolerates the loss of one packet in a thousand, but each loss makes Reno halve its congestion \
         window. The model contains only the maximum window of each congestion control, not its dynamics.",
    );
    doubling
        .chain(mtu.into_iter().flatten())
        .chain(congestion.into_iter().flatten())
        .collect()
}

fn of_part(wan: &Wan, part: Part) -> Vec<&Row> {
    wan.part(part)
        .filter(|row| row.measured.is_some())
        .collect()
}

fn curves(wan: &Wan, axis: &Doubling) -> Option<Block> {
    let mut rows = of_part(wan, axis.part);
    rows.sort_by(|one, other| (axis.value)(one).total_cmp(&(axis.value)(other)));
    let ways = axes_ways(&rows);
    let of = |way: Way| {
        rows.iter()
            .copied()
            .filter(move |row| row.setting.way == way)
    };
    let mut curves: Vec<Curve> = Vec::new();
    for (colour, way) in ways.iter().enumerate() {
        let curve = |look: Look, name: String, rate: fn(&Row) -> Option<f64>| {
            let point =
                |row: &Row| Some(Point::exact((axis.value)(row), rate(row)? / 1e6, says(row)));
            Curve {
                name,
                look,
                colour,
                points: of(*way).filter_map(point).collect(),
            }
        };
        let name = self::way(*way);
        curves.push(curve(Look::Measured, name.to_owned(), |row| row.measured));
        curves.push(curve(Look::Limit, format!("{name}, model"), |row| {
            row.model
        }));
    }
    curves.retain(|curve| curve.points.len() > 1);
    if curves.is_empty() {
        return None;
    }
    // Draw measured curves on top, and place their labels first.
    curves.sort_by_key(|curve| curve.look == Look::Limit);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let plot = Plot {
        title: axis.title.to_owned(),
        x: Axis {
            title: axis.axis,
            scale: Scale::log2(points().map(|point| point.x)),
            tick: round,
        },
        y: Axis {
            title: "throughput in MB/s",
            scale: Scale::from_zero(points().map(|point| point.y)),
            tick: short,
        },
        curves,
        bands: Vec::new(),
    };
    let says = format!("{} {}. Dashed: the model.", axis.says, setup(&rows));
    let numbers = table(axis.title, axis.axis, &rows, |row| round((axis.value)(row)));
    Some(Block::Plot(Box::new(plot), says, Some(numbers)))
}

fn bars(
    wan: &Wan,
    part: Part,
    title: &str,
    name: fn(&Row) -> String,
    says: &str,
) -> Option<[Block; 2]> {
    let rows = of_part(wan, part);
    if rows.is_empty() {
        return None;
    }
    let bar = |colour: usize, row: &Row| {
        let rate = row.measured.unwrap_or(0.0);
        let model = row
            .model
            .map(|model| format!(" (model {})", megabytes(model)));
        Bar::new(
            name(row),
            rate / 1e6,
            format!("{} MB/s{}", megabytes(rate), model.unwrap_or_default()),
            colour,
        )
    };
    let group = |(colour, way): (usize, Way)| Group {
        name: self::way(way).to_owned(),
        bars: rows
            .iter()
            .filter(|row| row.setting.way == way)
            .map(|row| bar(colour, row))
            .collect(),
    };
    let groups: Vec<Group> = axes_ways(&rows)
        .into_iter()
        .enumerate()
        .map(group)
        .collect();
    let longest = groups
        .iter()
        .flat_map(|group| &group.bars)
        .map(|bar| bar.value);
    let axis = Axis {
        title: "throughput in MB/s",
        scale: Scale::from_zero(longest),
        tick: short,
    };
    let bars = Bars {
        title: title.to_owned(),
        axis,
        groups,
    };
    let says = format!("{says} {}.", setup(&rows));
    Some([
        Block::Bars(bars, says),
        Block::Table(table(title, "", &rows, name)),
    ])
}

/// Describes the properties that all cells of a parameter have in common: `64 KiB × 32 over 10 ms`.
fn setup(rows: &[&Row]) -> String {
    rows.first().map_or_else(String::new, |row| {
        format!("{} over {} ms", load(row), row.setting.rtt_ms)
    })
}

/// Returns a table of measurement and model for each direction, with a line for each value.
fn table(title: &str, axis: &str, rows: &[&Row], value: impl Fn(&Row) -> String) -> Table {
    let ways = axes_ways(rows);
    let mut table = Table::of(&format!("{title}, in MB/s: measured / model"), &[axis]);
    table.columns.extend(ways.iter().map(|way| Column {
        title: self::way(*way).to_owned(),
        numbers: true,
    }));
    let mut lines: Vec<String> = Vec::new();
    rows.iter().map(|row| value(row)).for_each(|line| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    });
    for line in lines {
        let of = |way: &Way| {
            rows.iter()
                .find(|row| row.setting.way == *way && value(row) == line)
        };
        let cells: Vec<String> = ways
            .iter()
            .map(|way| of(way).map(|row| both(row)).unwrap_or_default())
            .collect();
        table.row([line].into_iter().chain(cells));
    }
    table
}

fn axes_ways(rows: &[&Row]) -> Vec<Way> {
    let mut ways: Vec<Way> = rows.iter().map(|row| row.setting.way).collect();
    ways.sort_unstable();
    ways.dedup();
    ways
}

// The document's tables, and charts of the two largest.

/// Returns the tables of reads and of both kinds of writes, over the round trip.
fn over_distance(wan: &Wan) -> Vec<Block> {
    let rows: Vec<&Row> = wan.part(Part::Wan).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![
        Block::Heat(
            measured(&rows),
            "Measured, in MB/s. A stronger colour is a larger share of the link.".to_owned(),
        ),
        Block::Heat(
            of_model(&rows),
            "Measured, in percent of the model. Blue is above the model, orange below; the strongest colours \
             mean 10 % or more."
                .to_owned(),
        ),
        Block::Text(LEGEND.to_owned()),
    ];
    blocks.extend(
        matrix_ways(&rows)
            .into_iter()
            .map(|way| Block::Table(of_way(&rows, way))),
    );
    blocks
}

/// Returns the table of plain TCP.
fn tcp(wan: &Wan) -> Vec<Block> {
    let rows: Vec<&Row> = wan.part(Part::Tcp).collect();
    let trips = round_trips(&rows);
    let mut lines: Vec<(Way, Option<u32>)> = Vec::new();
    for row in &rows {
        push(&mut lines, (row.setting.way, row.setting.tcp_window_bytes));
    }
    lines.sort_by_key(|(way, window)| (*window, std::cmp::Reverse(*way)));
    let mut table = Table::of("", &["window", "direction"]);
    table
        .columns
        .extend(trips.iter().map(|trip| column(format!("{trip} ms"))));
    for (way, window) in lines {
        let of = |trip: &f64| {
            rows.iter().find(|row| {
                let setting = &row.setting;
                setting.way == way && setting.tcp_window_bytes == window && setting.rtt_ms == *trip
            })
        };
        let head = [
            window.map_or("the system's".to_owned(), |bytes| size(f64::from(bytes))),
            self::way(way).to_owned(),
        ];
        line(&mut table, head, trips.iter().map(of));
    }
    let says = "One connection without iSCSI: its window is the maximum amount of data in transit.";
    if rows.is_empty() {
        Vec::new()
    } else {
        vec![Block::Text(says.to_owned()), Block::Table(table)]
    }
}

/// Returns the table of the same requests on Gigabit Ethernet, without a delay.
fn lan(wan: &Wan) -> Vec<Block> {
    let rows: Vec<&Row> = wan.part(Part::Lan).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let ways = matrix_ways(&rows);
    let mut table = Table::of("", &["request", "#depth"]);
    table
        .columns
        .extend(ways.iter().map(|way| column(self::way(*way).to_owned())));
    for (block_bytes, depth) in loads(&rows) {
        let of = |way: &Way| find(&rows, block_bytes, depth, |row| row.setting.way == *way);
        line(
            &mut table,
            [size(f64::from(block_bytes)), depth.to_string()],
            ways.iter().map(of),
        );
    }
    vec![Block::Table(table)]
}

fn of_way(rows: &[&Row], way: Way) -> Table {
    let mut caption = self::way(way).to_owned();
    caption[..1].make_ascii_uppercase();
    let trips = round_trips(rows);
    let mut table = Table::of(&caption, &["request", "#depth"]);
    table
        .columns
        .extend(trips.iter().map(|trip| column(format!("{trip} ms"))));
    for (block_bytes, depth) in loads(rows) {
        let of = |trip: &f64| {
            find(rows, block_bytes, depth, |row| {
                row.setting.way == way && row.setting.rtt_ms == *trip
            })
        };
        line(
            &mut table,
            [size(f64::from(block_bytes)), depth.to_string()],
            trips.iter().map(of),
        );
    }
    table
}

/// Adds a line to a table. It is marked if one of its cells was slower than published although the path
/// permits more.
fn line<'a>(
    table: &mut Table,
    head: [String; 2],
    cells: impl Iterator<Item = Option<&'a &'a Row>>,
) {
    let mut missed = false;
    let cells: Vec<String> = cells
        .map(|row| {
            missed |= row.is_some_and(|row| row.met == Some(crate::wan::Met::No));
            row.map(|row| all(row)).unwrap_or_default()
        })
        .collect();
    table.marked_row(missed, head.into_iter().chain(cells));
}

fn measured(rows: &[&Row]) -> Heat {
    let square = |row: &Row| {
        let share = row.share_of_link()?;
        Some(Square {
            text: rate(row.measured),
            says: says(row),
            shade: share,
        })
    };
    heat(
        rows,
        "Throughput over round trip, request size and number",
        square,
    )
}

fn of_model(rows: &[&Row]) -> Heat {
    /// The error of the model with the full shade. Larger errors have the same shade.
    const FULL: f64 = 0.10;
    let square = |row: &Row| {
        let ratio = row.measured? / row.model?;
        let shade = (ratio - 1.0) / FULL;
        Some(Square {
            text: significant(100.0 * ratio),
            says: says(row),
            shade,
        })
    };
    heat(rows, "Throughput in percent of the model", square)
}

fn heat(rows: &[&Row], title: &str, square: impl Fn(&Row) -> Option<Square>) -> Heat {
    let (trips, loads) = (round_trips(rows), loads(rows));
    let panel = |way: Way| Panel {
        name: self::way(way).to_owned(),
        squares: loads
            .iter()
            .map(|(block_bytes, depth)| {
                let of = |trip: &f64| {
                    let is = |row: &Row| row.setting.way == way && row.setting.rtt_ms == *trip;
                    find(rows, *block_bytes, *depth, is).and_then(|row| square(row))
                };
                trips.iter().map(of).collect()
            })
            .collect(),
    };
    let name = |(block_bytes, depth): &(u32, u32)| {
        find(rows, *block_bytes, *depth, |_| true)
            .map(|row| load(row))
            .unwrap_or_default()
    };
    Heat {
        title: title.to_owned(),
        x_title: "round trip in ms",
        y_title: "request size × queue depth",
        columns: trips.iter().map(f64::to_string).collect(),
        rows: loads.iter().map(name).collect(),
        panels: matrix_ways(rows).into_iter().map(panel).collect(),
    }
}

fn find<'a>(
    rows: &'a [&'a Row],
    block_bytes: u32,
    depth: u32,
    is: impl Fn(&Row) -> bool,
) -> Option<&'a &'a Row> {
    rows.iter()
        .find(|row| row.asked.block_bytes == block_bytes && row.asked.depth == depth && is(row))
}

fn column(title: String) -> crate::document::Column {
    crate::document::Column {
        title,
        numbers: true,
    }
}

fn round_trips(rows: &[&Row]) -> Vec<f64> {
    let mut trips = Vec::new();
    rows.iter()
        .for_each(|row| push(&mut trips, row.setting.rtt_ms));
    trips.sort_by(f64::total_cmp);
    trips
}

fn loads(rows: &[&Row]) -> Vec<(u32, u32)> {
    let mut loads = Vec::new();
    rows.iter()
        .for_each(|row| push(&mut loads, (row.asked.block_bytes, row.asked.depth)));
    loads.sort_unstable();
    loads
}

fn matrix_ways(rows: &[&Row]) -> Vec<Way> {
    let mut ways = Vec::new();
    rows.iter().for_each(|row| push(&mut ways, row.setting.way));
    ways.sort_unstable();
    ways
}

/// Adds an item if it is not present yet.
fn push<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if !all.contains(&one) {
        all.push(one);
    }
}

/// Returns the constants of the model, its accuracy, and the published numbers that are not possible over
/// this path.
fn model_blocks(wan: &Wan) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !wan.constants.is_empty() {
        blocks.push(Block::Text(WHAT.to_owned()));
        blocks.push(Block::List(how_well(wan)));
        blocks.push(Block::Table(constants(wan)));
    }
    let impossible = impossible(wan);
    if !impossible.rows.is_empty() {
        blocks.push(Block::Table(impossible));
    }
    blocks
}

const WHAT: &str = "A single request takes n (RTT + r) + a + B / b: n exchanges, each with the time r at \
                    both ends; the time a for the command; and its B bytes at the rate b. At a queue depth \
                    of d, the rate is d times as high, unless another limit applies first: the link, a TCP \
                    window per round trip, exchanges per second, or outstanding bytes of writes. The \
                    constants are fitted to the document's cells in this record, and predict the other \
                    cells.";

fn how_well(wan: &Wan) -> Vec<String> {
    let verdict = wan.verdict();
    let sentence = |what: &str, off: &Off| {
        format!(
            "{what} ({}): the median error is {} %, the largest {} % ({}).",
            counted(off.cells, "cell"),
            significant(off.median * 100.0),
            significant(off.worst * 100.0),
            off.worst_cell
        )
    };
    let fitted = verdict
        .fitted
        .as_ref()
        .map(|off| sentence("In the cells to which the constants were fitted", off));
    let predicted = verdict
        .predicted
        .as_ref()
        .map(|off| sentence("In the predicted cells", off));
    fitted.into_iter().chain(predicted).collect()
}

/// Returns a table with a line for each constant, and a column for each link and direction.
fn constants(wan: &Wan) -> Table {
    let found: Vec<&Constants> = wan
        .constants
        .iter()
        .filter(|one| !one.small_window)
        .collect();
    let mut table = Table::of("Constants", &[""]);
    table.columns.extend(found.iter().map(|one| Column {
        title: head(one),
        numbers: true,
    }));
    let mut line = |name: &str, value: &dyn Fn(&Constants) -> String| {
        table.row(
            [name.to_owned()]
                .into_iter()
                .chain(found.iter().map(|one| value(one))),
        );
    };
    line("link carries", &|one| {
        with_unit(one.path.payload_per_s.map(megabytes), "MB/s")
    });
    line("exchange, r", &|one| time(one.path.exchange_s));
    line("command, a", &|one| time(one.path.command_s));
    line("data, b", &|one| {
        with_unit(one.path.copy_per_s.map(megabytes), "MB/s")
    });
    line("exchanges", &|one| {
        with_unit(
            one.path
                .exchanges_per_s
                .map(|rate| grouped(rate.round() as u64)),
            "/s",
        )
    });
    line("outstanding writes", &|one| {
        with_unit(one.path.writes_under_way_bytes.map(size), "")
    });
    let small = |one: &Constants| {
        let same = |other: &&Constants| {
            other.small_window
                && other.direction == one.direction
                && other.link_bits_per_s == one.link_bits_per_s
        };
        wan.constants.iter().find(same)
    };
    line("small window", &|one| {
        with_unit(
            small(one).and_then(|one| one.path.window_bytes).map(size),
            "",
        )
    });
    line("its delay", &|one| {
        time(small(one).map_or(0.0, |one| one.path.window_delay_s))
    });
    line("found in", &|one| {
        counted(one.cells + small(one).map_or(0, |one| one.cells), "cell")
    });
    line("median error", &|one| {
        format!("{} %", significant(one.median_off * 100.0))
    });
    table
}

/// Returns the heading of a column: `reads, 160 Mbit/s`.
fn head(found: &Constants) -> String {
    let direction = match found.direction {
        Direction::Read => "reads",
        Direction::Write => "writes",
    };
    let rate = match found.link_bits_per_s {
        bits if bits >= 1e9 => format!("{} Gbit/s", round(bits / 1e9)),
        bits => format!("{} Mbit/s", round(bits / 1e6)),
    };
    format!("{direction}, {rate}")
}

/// Formats a constant with its unit. An unknown constant means that there is no limit.
fn with_unit(value: Option<String>, unit: &str) -> String {
    value.map_or_else(
        || NOTHING.to_owned(),
        |value| format!("{value} {unit}").trim_end().to_owned(),
    )
}

fn time(seconds: f64) -> String {
    with_unit((seconds > 0.0).then(|| latency(seconds * 1e6)), "")
}

/// Returns a table of published results that are not possible, by reason. The same reason often applies to
/// many cells.
fn impossible(wan: &Wan) -> Table {
    let mut reasons: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &wan.rows {
        let Some(Met::CannotBe(why)) = &row.met else {
            continue;
        };
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, rows)) => rows.push(row),
            None => reasons.push((why, vec![row])),
        }
    }
    // Sort by frequency, the most frequent reason first.
    reasons.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    let mut table = Table::of(
        "Published results that this path does not permit",
        &[
            "why",
            "cells: measured of published, in MB/s (in percent of the maximum)",
        ],
    );
    for (why, rows) in reasons {
        let cells: Vec<String> = rows.iter().map(|row| cell(row)).collect();
        table.row([why.to_owned(), cells.join("; ")]);
    }
    table
}

/// Below this share of the possible rate, the share is shown.
const NEAR: f64 = 0.9;

fn cell(row: &Row) -> String {
    let published = row
        .published
        .as_ref()
        .map_or("", |published| published.printed.as_str());
    let share = row.share_of_most().filter(|share| *share < NEAR);
    let share = share.map(|share| format!(" ({} %)", significant(share * 100.0)));
    format!(
        "{}: {} of {published}{}",
        row.cell,
        rate(row.measured),
        share.unwrap_or_default()
    )
}

// A cell of a table or chart, which contains measurement, model and published result.

/// The placeholder for missing values.
const NOTHING: &str = "–";

/// Explains the table cells that [`all`] formats.
const LEGEND: &str = "Each cell contains measured / model / published, in MB/s (10^6 bytes). † less than \
                      published, because this path does not permit more (the section on the model has the \
                      reasons); ✗ less than published, although the path permits more.";

/// Formats the measured, modelled and published rates.
fn all(row: &Row) -> String {
    let published = row
        .published
        .as_ref()
        .map_or(NOTHING, |published| published.printed.as_str());
    let sign = match row.met {
        Some(Met::CannotBe(_)) => " †",
        Some(Met::No) => " ✗",
        Some(Met::Beaten | Met::Yes) | None => "",
    };
    format!("{} / {published}{sign}", both(row))
}

/// Formats the measured and modelled rates.
fn both(row: &Row) -> String {
    format!("{} / {}", rate(row.measured), rate(row.model))
}

/// Formats a rate in MB/s, if it is known.
fn rate(bytes_per_s: Option<f64>) -> String {
    bytes_per_s.map_or_else(|| NOTHING.to_owned(), megabytes)
}

/// Returns the tooltip of a cell.
fn says(row: &Row) -> String {
    let published = row
        .published
        .as_ref()
        .map(|published| format!(", published {}", published.printed));
    let limit = row.binding.map(|term| format!(" ({})", self::term(term)));
    format!(
        "{}: measured {} MB/s, model {}{}{}",
        row.cell,
        rate(row.measured),
        rate(row.model),
        limit.unwrap_or_default(),
        published.unwrap_or_default()
    )
}

/// Formats a load: `64 KiB × 32`.
fn load(row: &Row) -> String {
    format!(
        "{} × {}",
        size(f64::from(row.asked.block_bytes)),
        row.asked.depth
    )
}

/// Returns the direction and kind of the data, for a heading.
fn way(way: Way) -> &'static str {
    match way {
        Way::Reads => "reads",
        Way::MostSolicited => "most solicited writes",
        Way::MostUnsolicited => "most unsolicited writes",
        Way::Tcp { to_target: true } => "to the target",
        Way::Tcp { to_target: false } => "from the target",
    }
}

// The summary at the start of the report of a WAN record.

/// Returns the share of the link at the longest round trip, the comparison with the document's cells, and the
/// error of the model.
pub(super) fn headlines(wan: &Wan) -> Vec<Headline> {
    let verdict = wan.verdict();
    let mut headlines = shares(wan, &verdict);
    if verdict.published > 0 {
        let reached = verdict.beaten + verdict.met;
        headlines.push(Headline {
            what: "published numbers met or exceeded".to_owned(),
            value: format!("{reached} of {}", verdict.published - verdict.cannot_be),
            note: format!(
                "of those that this path permits; it does not permit {}",
                verdict.cannot_be
            ),
        });
    }
    headlines.extend(verdict.fitted.map(|off| Headline {
        what: "model, median error".to_owned(),
        value: format!("{} %", significant(off.median * 100.0)),
        note: format!("over {}", counted(off.cells, "cell")),
    }));
    headlines
}

/// Returns the shares of the longest requests of each kind.
fn shares(wan: &Wan, verdict: &Verdict) -> Vec<Headline> {
    let longest = verdict.shares.iter().map(|share| share.block_bytes).max();
    let of_longest = verdict
        .shares
        .iter()
        .filter(|share| Some(share.block_bytes) == longest);
    let headline = |share: &crate::wan::Share| {
        let row = wan.rows.iter().find(|row| row.cell == share.cell)?;
        let published = row
            .published
            .as_ref()
            .map(|published| format!("; published {}", published.printed));
        Some(Headline {
            what: format!("{} over {} ms", way(share.way), row.setting.rtt_ms),
            value: format!("{} %", significant(share.of_link * 100.0)),
            note: format!(
                "of the link: {} MB/s of {}{}",
                rate(row.measured),
                load(row),
                published.unwrap_or_default()
            ),
        })
    };
    of_longest.filter_map(headline).collect()
}

/// Returns a sentence about published numbers that were not reached, although the path permits them.
pub(super) fn missed(wan: &Wan) -> Option<String> {
    let verdict = wan.verdict();
    let missed: Vec<&str> = verdict.missed.iter().map(String::as_str).collect();
    (!missed.is_empty()).then(|| {
        format!(
            "Slower than published, although the path permits more: {}.",
            crate::views::listed(&missed)
        )
    })
}
