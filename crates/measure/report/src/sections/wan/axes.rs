//! What the document names and does not print: one small chart for each axis, with its numbers.

use super::numbers::{both, load, says, way};
use crate::chart::{Axis, Bar, Bars, Curve, Group, Look, Plot, Point, Scale};
use crate::document::{Block, Column, Table};
use crate::wan::{Row, Wan};
use bench::plan::{Part, Way};
use readable::figures::{megabytes, round, short};

/// An axis whose values are numbers that double.
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
        title: "Throughput against connections of a session",
        axis: "connections",
        value: |row| f64::from(row.setting.connections),
        says: "Each connection has a window of its own: where a small one limits, more of them help until the link is full.",
    },
    Doubling {
        part: Part::Sessions,
        title: "Throughput against sessions",
        axis: "sessions",
        value: |row| f64::from(row.setting.sessions),
        says: "Each session has requests of its own under way: where those limit, more sessions help.",
    },
    Doubling {
        part: Part::CommandWindow,
        title: "Throughput against the command window",
        axis: "command window",
        value: |row| f64::from(row.setting.command_window.unwrap_or(0)),
        says: "The target says how many commands may be under way. More than it allows do not help, whatever is asked.",
    },
];

pub(super) fn blocks(wan: &Wan) -> Vec<Block> {
    let doubling = DOUBLING.iter().filter_map(|axis| curves(wan, axis));
    let mtu = bars(
        wan,
        Part::Mtu,
        "Throughput by the largest packet",
        |row| format!("MTU {}", row.setting.mtu),
        "Longer packets carry a larger share of data, and fewer of them have to be handled.",
    );
    let congestion = bars(
        wan,
        Part::Congestion,
        "Throughput by congestion control and loss",
        |row| match row.setting.loss {
            loss if loss > 0.0 => format!("{}, {} % lost", row.setting.congestion, round(loss * 100.0)),
            _ => format!("{}, nothing lost", row.setting.congestion),
        },
        "One lost packet in a thousand is nothing to BBR, and halves what Reno has on the way again and again. The \
         model knows what a congestion control can have on the way at best, not how it gets there.",
    );
    doubling.chain(mtu.into_iter().flatten()).chain(congestion.into_iter().flatten()).collect()
}

fn of_part(wan: &Wan, part: Part) -> Vec<&Row> {
    wan.part(part).filter(|row| row.measured.is_some()).collect()
}

fn curves(wan: &Wan, axis: &Doubling) -> Option<Block> {
    let mut rows = of_part(wan, axis.part);
    rows.sort_by(|one, other| (axis.value)(one).total_cmp(&(axis.value)(other)));
    let ways = ways(&rows);
    let of = |way: Way| rows.iter().copied().filter(move |row| row.setting.way == way);
    let mut curves: Vec<Curve> = Vec::new();
    for (colour, way) in ways.iter().enumerate() {
        let curve = |look: Look, name: String, rate: fn(&Row) -> Option<f64>| {
            let point = |row: &Row| Some(Point::exact((axis.value)(row), rate(row)? / 1e6, says(row)));
            Curve { name, look, colour, points: of(*way).filter_map(point).collect() }
        };
        let name = self::way(*way);
        curves.push(curve(Look::Measured, name.to_owned(), |row| row.measured));
        curves.push(curve(Look::Limit, format!("{name}, model"), |row| row.model));
    }
    curves.retain(|curve| curve.points.len() > 1);
    if curves.is_empty() {
        return None;
    }
    // What was measured on top, and named first.
    curves.sort_by_key(|curve| curve.look == Look::Limit);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let plot = Plot {
        title: axis.title.to_owned(),
        x: Axis { title: axis.axis, scale: Scale::log2(points().map(|point| point.x)), tick: round },
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

fn bars(wan: &Wan, part: Part, title: &str, name: fn(&Row) -> String, says: &str) -> Option<[Block; 2]> {
    let rows = of_part(wan, part);
    if rows.is_empty() {
        return None;
    }
    let bar = |colour: usize, row: &Row| {
        let rate = row.measured.unwrap_or(0.0);
        let model = row.model.map(|model| format!(" (model {})", megabytes(model)));
        Bar::new(
            name(row),
            rate / 1e6,
            format!("{} MB/s{}", megabytes(rate), model.unwrap_or_default()),
            colour,
        )
    };
    let group = |(colour, way): (usize, Way)| Group {
        name: self::way(way).to_owned(),
        bars: rows.iter().filter(|row| row.setting.way == way).map(|row| bar(colour, row)).collect(),
    };
    let groups: Vec<Group> = ways(&rows).into_iter().enumerate().map(group).collect();
    let longest = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value);
    let axis = Axis { title: "throughput in MB/s", scale: Scale::from_zero(longest), tick: short };
    let bars = Bars { title: title.to_owned(), axis, groups };
    let says = format!("{says} {}.", setup(&rows));
    Some([Block::Bars(bars, says), Block::Table(table(title, "", &rows, name))])
}

/// What all cells of an axis have in common: `64 KiB × 32 over 10 ms`.
fn setup(rows: &[&Row]) -> String {
    rows.first().map_or_else(String::new, |row| format!("{} over {} ms", load(row), row.setting.rtt_ms))
}

/// Measured and model of each way, a line for each value.
fn table(title: &str, axis: &str, rows: &[&Row], value: impl Fn(&Row) -> String) -> Table {
    let ways = ways(rows);
    let mut table = Table::of(&format!("{title}, in MB/s: measured / model"), &[axis]);
    table.columns.extend(ways.iter().map(|way| Column { title: self::way(*way).to_owned(), numbers: true }));
    let mut lines: Vec<String> = Vec::new();
    rows.iter().map(|row| value(row)).for_each(|line| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    });
    for line in lines {
        let of = |way: &Way| rows.iter().find(|row| row.setting.way == *way && value(row) == line);
        let cells: Vec<String> =
            ways.iter().map(|way| of(way).map(|row| both(row)).unwrap_or_default()).collect();
        table.row([line].into_iter().chain(cells));
    }
    table
}

fn ways(rows: &[&Row]) -> Vec<Way> {
    let mut ways: Vec<Way> = rows.iter().map(|row| row.setting.way).collect();
    ways.sort_unstable();
    ways.dedup();
    ways
}
