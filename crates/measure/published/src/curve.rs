//! Published numbers as curves of bytes per second over the length of requests, for comparison with
//! measurements.

use super::row::{Direction, Row};

/// The results of one system in one test, over the length of requests. Often, there is only one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The number of the document.
    pub document: String,
    /// The name of the table.
    pub table: String,
    /// The system and the test: `iSCSI to RAM drive`.
    pub name: String,
    /// The direction of the data.
    pub direction: Option<Direction>,
    /// The order of requests, in the document's words.
    pub pattern: String,
    /// The queue depth, if the document states it.
    pub depth: Option<u32>,
    /// The added delay, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// The points, in ascending order of length: the length of requests in bytes, and bytes per second.
    pub points: Vec<(u32, f64)>,
}

/// Returns the curves of a document's rows, in order. If only requests per second were published (figures 7
/// to 9 of 003), bytes per second are computed from them.
pub(super) fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows {
        let Some((block_bytes, rate)) = point(row) else { continue };
        let start = Curve::of(row, block_bytes);
        let curve = match curves.iter_mut().position(|curve| curve.goes_on_with(&start)) {
            Some(known) => &mut curves[known],
            None => {
                curves.push(start);
                // The curve was pushed in the line above.
                curves.last_mut().expect("a curve")
            }
        };
        // If both were published, the throughput comes first and is used.
        if !curve.points.iter().any(|(known, _)| *known == block_bytes) {
            curve.points.push((block_bytes, rate));
        }
    }
    curves.iter_mut().for_each(|curve| curve.points.sort_by_key(|(block_bytes, _)| *block_bytes));
    curves
}

fn point(row: &Row) -> Option<(u32, f64)> {
    let block_bytes = row.block_bytes?;
    let rate = match row.metric.as_str() {
        "throughput" => row.bytes_per_s()?,
        "iops" => row.si?.value * f64::from(block_bytes),
        _ => return None,
    };
    Some((block_bytes, rate))
}

impl Curve {
    fn of(row: &Row, block_bytes: u32) -> Curve {
        Curve {
            document: row.document.clone(),
            table: row.table.clone(),
            name: name(row, block_bytes),
            direction: row.direction,
            pattern: row.pattern.clone(),
            depth: row.depth,
            rtt_ms: row.rtt_ms,
            points: Vec::new(),
        }
    }

    fn goes_on_with(&self, other: &Curve) -> bool {
        let settings = |curve: &Curve| (curve.direction, curve.depth, curve.rtt_ms);
        settings(self) == settings(other)
            && self.table == other.table
            && self.name == other.name
            && self.pattern == other.pattern
    }
}

/// Returns the name of the test without the request length that some names include. For 004, whose systems
/// differ, the name of the system precedes it.
fn name(row: &Row, block_bytes: u32) -> String {
    let size = short_size(block_bytes);
    let test = row.test.strip_suffix(&size).map_or(row.test.as_str(), str::trim_end);
    match row.document.as_str() {
        "004" => format!("{}: {test}", row.system),
        _ => test.to_owned(),
    }
}

/// Formats a length in the notation of the documents: `0.5K`, `4K`, `8M`.
fn short_size(bytes: u32) -> String {
    match bytes {
        at_least if at_least >= 1 << 20 => format!("{}M", f64::from(bytes) / f64::from(1 << 20)),
        _ => format!("{}K", f64::from(bytes) / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Direction, curves};

    #[test]
    fn a_curve_has_all_lengths_of_a_test() {
        let dd =
            curves("000").into_iter().find(|curve| curve.table == "Table 2" && curve.name.contains("RAM"));
        let dd = dd.expect("dd to the RAM drive");
        assert_eq!(dd.points.len(), 11);
        assert_eq!(dd.points[0], (4096, 21.5e6));
        assert_eq!(dd.points[10], (4 << 20, 114e6));
    }

    #[test]
    fn a_length_in_a_name_does_not_cut_a_curve_to_pieces() {
        let atto: Vec<_> =
            curves("001").into_iter().filter(|curve| curve.name == "Super ATTO Clone").collect();
        let directions: Vec<_> = atto.iter().map(|curve| (curve.direction, curve.points.len())).collect();
        assert_eq!(directions, [(Some(Direction::Read), 15), (Some(Direction::Write), 15)]);
    }

    #[test]
    fn depth_and_round_trip_make_curves_of_their_own() {
        let wan = curves("002");
        assert!(wan.iter().all(|curve| curve.points.len() == 4), "{wan:?}");
        // There are three kinds of requests with depths of 1 and 32, on a LAN and over four round trips.
        assert_eq!(wan.len(), 3 * 2 * (1 + 4));
    }

    #[test]
    fn requests_a_second_are_a_point_where_nothing_else_was_published() {
        let transactions = curves("003").into_iter().find(|curve| curve.name == "read transactions");
        assert_eq!(transactions.expect("figure 8").points, [(512, 46_000.0 * 512.0)]);
    }
}
