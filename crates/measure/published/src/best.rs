//! The highest published results, for a first comparison with one's own numbers.

use super::row::{Direction, Row};

/// The row with the highest rate over a network for requests of this length in this direction: any storage,
/// depth and order, but without an added delay. `None` if no document has one.
pub fn best(direction: Direction, block_bytes: u32) -> Option<&'static Row> {
    let fits = |row: &&Row| {
        row.direction == Some(direction)
            && row.block_bytes == Some(block_bytes)
            && row.metric == "throughput"
            && row.rtt_ms.unwrap_or(0.0) == 0.0
            && is_over_a_network(row)
    };
    let rows = super::rows().iter().filter(fits).filter_map(|row| Some((row, row.bytes_per_s()?)));
    rows.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(row, _)| row)
}

/// 000 includes drives measured locally, and the second part of 004 is about local RAID sets.
fn is_over_a_network(row: &Row) -> bool {
    let is_about_raid = row.document == "004" && row.table.starts_with("4.");
    !row.test.starts_with("local") && !is_about_raid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_several_documents_is_found() {
        let read = best(Direction::Read, 65_536).expect("several have it");
        assert_eq!((read.document.as_str(), read.printed.as_str()), ("002", "91.9"));
        let write = best(Direction::Write, 1 << 20).expect("000 has it");
        assert_eq!((write.document.as_str(), write.printed.as_str()), ("000", "107.0"));
        assert_eq!(best(Direction::Read, 12_345), None);
    }

    #[test]
    fn what_never_crossed_a_network_is_not_compared_with() {
        // 000's table 4 has 2,525 MB/s for a RAM drive without iSCSI.
        assert_eq!(best(Direction::Read, 524_288).expect("001 has it").document, "001");
    }
}
