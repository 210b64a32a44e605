//! Rates that do not depend on the length of requests.
//!
//! DPMETERM's RAM drive made 4,933 to 4,986 requests a second whether they were of 4 KiB or of 512 KiB (document 000,
//! table 4): 202 µs were the loop's, and nothing of the RAM's speed is in the numbers. A difference of a hundred times
//! in what has to be copied cannot cost nothing, so that such a row is recognized by itself.

use std::ops::Range;

use super::{CellSummary, Flag};
use bench::plan::{Access, Cell, Role, Workload};

/// The points of a curve, by rising length, whose rate is the same within a tenth over lengths that differ at least 32 times
/// and reach 64 KiB. Below, equal rates are what storage is like: the fixed cost of a request is more than that of moving
/// some KiB.
pub fn loop_rate(points: &[(u32, f64)]) -> Option<Range<usize>> {
    const LENGTHS_MIN: f64 = 32.0;
    const LONGEST_MIN: u32 = 65_536;
    const APART_MAX: f64 = 1.1;
    let flat = |range: &Range<usize>| {
        let rates = points[range.clone()].iter().map(|(_, iops)| *iops);
        let (low, high) =
            rates.fold((f64::INFINITY, 0.0), |(low, high), rate| (low.min(rate), f64::max(high, rate)));
        low > 0.0 && high <= APART_MAX * low
    };
    let wide = |range: &Range<usize>| {
        let (shortest, longest) = (points[range.start].0, points[range.end - 1].0);
        longest >= LONGEST_MIN && f64::from(longest) >= LENGTHS_MIN * f64::from(shortest)
    };
    let ranges = (0..points.len()).flat_map(|start| (start + 1..=points.len()).map(move |end| start..end));
    ranges.filter(|range| wide(range) && flat(range)).max_by_key(ExactSizeIterator::len)
}

/// Flags the cells of such curves among those that were measured.
pub(super) fn flag(cells: &mut [CellSummary]) {
    let mut left: Vec<usize> =
        (0..cells.len()).filter(|&index| length(&cells[index].cell).is_some()).collect();
    while let Some(first) = left.first().copied() {
        let (mut curve, others) = left
            .into_iter()
            .partition::<Vec<usize>, _>(|&index| differ_in_length(&cells[first].cell, &cells[index].cell));
        left = others;
        curve.sort_by_key(|&index| length(&cells[index].cell));
        let points: Vec<(u32, f64)> = curve
            .iter()
            .filter_map(|&index| Some((length(&cells[index].cell)?, cells[index].iops.median)))
            .collect();
        for index in loop_rate(&points).map_or(&[][..], |range| &curve[range]) {
            let iops = cells[*index].iops.median;
            cells[*index].flags.push(Flag::LoopRate { iops });
        }
    }
}

/// The length of a cell's requests, if it has one role, one length, and a closed loop without pauses: what is paced has the
/// rate that it was given.
fn length(cell: &Cell) -> Option<u32> {
    let [Role { workload, .. }] = cell.roles.as_slice() else { return None };
    let [access] = workload.accesses.as_slice() else { return None };
    // Over a distance the same time for each request is what is to be expected.
    let near = cell.setting.as_ref().is_none_or(|setting| setting.rtt_ms <= 0.0);
    let free = !workload.pace.is_open() && access.delay_ms == 0 && near;
    free.then_some(access.block_bytes)
}

fn differ_in_length(one: &Cell, other: &Cell) -> bool {
    let rest = |cell: &Cell| {
        let role = cell.roles.first()?;
        let accesses = role.workload.accesses.iter();
        let accesses = accesses.map(|access| Access { block_bytes: 0, ..access.clone() }).collect();
        let workload = Workload { accesses, seed: 0, ..role.workload.clone() };
        Some(Role { workload, name: String::new(), ..role.clone() })
    };
    one.series == other.series && rest(one) == rest(other)
}
