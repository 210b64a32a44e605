//! The matrix of a WAN record in as many lines as there are: what 32 requests at once come to over each round trip, beside what
//! was published.

use super::fitted;
use crate::wan::{Row, Wan};
use bench::plan::{Part, Way};
use stats::figures::{megabytes, size};

/// Wide enough for `18.8 (19.3)`.
const COLUMN: usize = 13;
/// Enough for the longest `solicited write, 256 KiB × 32`.
const NAME: usize = 31;

/// A line for each length and way, many at once; the longest requests of each way first if there is not room for all.
pub(super) fn table(wan: &Wan, room: usize, width: usize) -> Vec<String> {
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
    // By length first, so that what is cut off is the shortest of every way.
    kinds.sort_unstable_by_key(|(way, block_bytes)| (std::cmp::Reverse(*block_bytes), *way));
    kinds.dedup();
    kinds.truncate(room.saturating_sub(1));
    kinds.sort_unstable();
    if kinds.is_empty() {
        return Vec::new();
    }
    let head = line("MB/s, measured (published)", trips.iter().map(|trip| format!("{trip} ms")));
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
        line(&name, trips.iter().map(cell))
    });
    [head].into_iter().chain(lines).map(|line| fitted(&line, width)).collect()
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

fn line(name: &str, cells: impl Iterator<Item = String>) -> String {
    let mut line = format!("  {:<NAME$}", fitted(name, NAME));
    cells.for_each(|cell| line += &format!(" {cell:>COLUMN$}"));
    line
}
