//! The sum by itself: how long CRC32C takes for so many bytes that are in the cache.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::figures::{Figure, Figures};
use super::table::Cell;

/// The fastest of so many slots counts: others on the machine can only make it slower.
const SLOTS: usize = 25;
/// Long beside the clock's own cost.
const SLOT: Duration = Duration::from_micros(400);

/// Sums a second, and how long one takes.
pub(super) fn measure(cell: &Cell) -> Figures {
    let data: Vec<u8> = (0..cell.block_bytes).map(|at| (at * 31 / 7) as u8).collect();
    let seconds = (0..SLOTS).map(|_| slot(&data)).fold(f64::INFINITY, f64::min);
    let mb_per_s = cell.block_bytes as f64 / seconds / 1e6;
    Figures::from([(Figure::Iops, 1.0 / seconds), (Figure::MbPerS, mb_per_s), (Figure::SumNs, seconds * 1e9)])
}

/// Seconds for each sum, over one slot.
fn slot(data: &[u8]) -> f64 {
    const AT_ONCE: u32 = 16;
    let (begun, mut sums) = (Instant::now(), 0);
    while begun.elapsed() < SLOT {
        for _ in 0..AT_ONCE {
            black_box(iscsi::framing::digest(black_box(data)));
        }
        sums += AT_ONCE;
    }
    begun.elapsed().as_secs_f64() / f64::from(sums)
}
