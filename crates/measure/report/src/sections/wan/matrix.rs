//! The document's tables, and the two largest of them as pictures.

use super::numbers::{LEGEND, all, load, rate, says, way};
use crate::chart::{Heat, Panel, Square};
use crate::document::{Block, Table};
use crate::wan::{Row, Wan};
use bench::plan::{Part, Way};
use readable::figures::{significant, size};

/// Reads and both ways of writing, over the round trip.
pub(super) fn over_distance(wan: &Wan) -> Vec<Block> {
    let rows: Vec<&Row> = wan.part(Part::Wan).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![
        Block::Heat(measured(&rows), "Measured, in MB/s: the fuller the colour, the more of the link.".to_owned()),
        Block::Heat(
            of_model(&rows),
            "Measured, in percent of the model. Blue is more than the model says, orange less; the fullest colour is \
             10 % and beyond."
                .to_owned(),
        ),
        Block::Text(LEGEND.to_owned()),
    ];
    blocks.extend(ways(&rows).into_iter().map(|way| Block::Table(of_way(&rows, way))));
    blocks
}

/// Plain TCP.
pub(super) fn tcp(wan: &Wan) -> Vec<Block> {
    let rows: Vec<&Row> = wan.part(Part::Tcp).collect();
    let trips = round_trips(&rows);
    let mut lines: Vec<(Way, Option<u32>)> = Vec::new();
    for row in &rows {
        push(&mut lines, (row.setting.way, row.setting.tcp_window_bytes));
    }
    lines.sort_by_key(|(way, window)| (*window, std::cmp::Reverse(*way)));
    let mut table = Table::of("", &["window", "direction"]);
    table.columns.extend(trips.iter().map(|trip| column(format!("{trip} ms"))));
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
    let says = "One connection without iSCSI: its window is what it may have on the way.";
    if rows.is_empty() { Vec::new() } else { vec![Block::Text(says.to_owned()), Block::Table(table)] }
}

/// The same requests without a delay, on Gigabit Ethernet.
pub(super) fn lan(wan: &Wan) -> Vec<Block> {
    let rows: Vec<&Row> = wan.part(Part::Lan).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let ways = ways(&rows);
    let mut table = Table::of("", &["request", "#at once"]);
    table.columns.extend(ways.iter().map(|way| column(self::way(*way).to_owned())));
    for (block_bytes, depth) in loads(&rows) {
        let of = |way: &Way| find(&rows, block_bytes, depth, |row| row.setting.way == *way);
        line(&mut table, [size(f64::from(block_bytes)), depth.to_string()], ways.iter().map(of));
    }
    vec![Block::Table(table)]
}

fn of_way(rows: &[&Row], way: Way) -> Table {
    let mut caption = self::way(way).to_owned();
    caption[..1].make_ascii_uppercase();
    let trips = round_trips(rows);
    let mut table = Table::of(&caption, &["request", "#at once"]);
    table.columns.extend(trips.iter().map(|trip| column(format!("{trip} ms"))));
    for (block_bytes, depth) in loads(rows) {
        let of = |trip: &f64| {
            find(rows, block_bytes, depth, |row| row.setting.way == way && row.setting.rtt_ms == *trip)
        };
        line(&mut table, [size(f64::from(block_bytes)), depth.to_string()], trips.iter().map(of));
    }
    table
}

/// A line of a table, marked if one of its cells was missed.
fn line<'a>(table: &mut Table, head: [String; 2], cells: impl Iterator<Item = Option<&'a &'a Row>>) {
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
        Some(Square { text: rate(row.measured), says: says(row), shade: share })
    };
    heat(rows, "Throughput over round trip, request size and number", square)
}

fn of_model(rows: &[&Row]) -> Heat {
    /// Beyond this all are alike: the model is wrong.
    const FULL: f64 = 0.10;
    let square = |row: &Row| {
        let ratio = row.measured? / row.model?;
        let shade = (ratio - 1.0) / FULL;
        Some(Square { text: significant(100.0 * ratio), says: says(row), shade })
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
        find(rows, *block_bytes, *depth, |_| true).map(|row| load(row)).unwrap_or_default()
    };
    Heat {
        title: title.to_owned(),
        x_title: "round trip in ms",
        y_title: "request size × number at once",
        columns: trips.iter().map(f64::to_string).collect(),
        rows: loads.iter().map(name).collect(),
        panels: ways(rows).into_iter().map(panel).collect(),
    }
}

fn find<'a>(
    rows: &'a [&'a Row],
    block_bytes: u32,
    depth: u32,
    is: impl Fn(&Row) -> bool,
) -> Option<&'a &'a Row> {
    rows.iter().find(|row| row.asked.block_bytes == block_bytes && row.asked.depth == depth && is(row))
}

fn column(title: String) -> crate::document::Column {
    crate::document::Column { title, numbers: true }
}

fn round_trips(rows: &[&Row]) -> Vec<f64> {
    let mut trips = Vec::new();
    rows.iter().for_each(|row| push(&mut trips, row.setting.rtt_ms));
    trips.sort_by(f64::total_cmp);
    trips
}

fn loads(rows: &[&Row]) -> Vec<(u32, u32)> {
    let mut loads = Vec::new();
    rows.iter().for_each(|row| push(&mut loads, (row.asked.block_bytes, row.asked.depth)));
    loads.sort_unstable();
    loads
}

fn ways(rows: &[&Row]) -> Vec<Way> {
    let mut ways = Vec::new();
    rows.iter().for_each(|row| push(&mut ways, row.setting.way));
    ways.sort_unstable();
    ways
}

/// Adds what is not there yet.
fn push<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if !all.contains(&one) {
        all.push(one);
    }
}
