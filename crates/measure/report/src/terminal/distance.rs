//! The matrix of a WAN record in as many lines as there are: what 32 requests at once come to over each round trip, beside what
//! was published.

use super::indented;
use crate::wan::{Row, Wan};
use bench::plan::{Part, Way};
use readable::figures::{megabytes, size};
use readable::table::{Align, Column};

/// A line for each length and way, many at once. Of the round trips the shortest and the longest are shown on any terminal.
pub(super) fn table(wan: &Wan, width: usize) -> Vec<String> {
    let measured: Vec<&Row> = wan.part(Part::Wan).filter(|row| row.measured.is_some()).collect();
    let many = measured.iter().map(|row| row.asked.depth).max();
    let mut trips: Vec<f64> = measured.iter().map(|row| row.setting.rtt_ms).collect();
    trips.sort_by(f64::total_cmp);
    trips.dedup();
    let mut kinds: Vec<(Way, u32)> = measured
        .iter()
        .filter(|row| Some(row.asked.depth) == many)
        .map(|row| (row.setting.way, row.asked.block_bytes))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.is_empty() {
        return Vec::new();
    }
    let head = row("MB/s, measured (published)", trips.iter().map(|trip| format!("{trip} ms")));
    let lines = kinds.into_iter().map(|(way, block_bytes)| {
        let name = format!("{}, {} × {}", name(way), size(f64::from(block_bytes)), many.unwrap_or(0));
        let cell = |trip: &f64| {
            let is = |row: &&&Row| {
                row.setting.way == way
                    && row.asked.block_bytes == block_bytes
                    && Some(row.asked.depth) == many
                    && row.setting.rtt_ms == *trip
            };
            measured.iter().find(is).map(|row| cell(row)).unwrap_or_default()
        };
        row(&name, trips.iter().map(cell))
    });
    let rows: Vec<Vec<String>> = [head].into_iter().chain(lines).collect();
    let names: Vec<&str> = rows[0].iter().map(String::as_str).collect();
    let column = |at: usize| match at {
        0 => Column { align: Align::Left, rank: 0 },
        at => Column { align: Align::Right, rank: u8::from(at > 1 && at < trips.len()) },
    };
    let columns: Vec<Column> = (0..names.len()).map(column).collect();
    indented("  ", &names, &columns, &rows, width)
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Reads => "read",
        Way::MostSolicited => "solicited write",
        Way::MostUnsolicited => "unsolicited write",
        Way::Tcp { .. } => "TCP",
    }
}

fn cell(row: &Row) -> String {
    let published = row.published.as_ref().map(|published| format!(" ({})", published.printed));
    row.measured.map(megabytes).unwrap_or_default() + &published.unwrap_or_default()
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    [name.to_owned()].into_iter().chain(cells).collect()
}
