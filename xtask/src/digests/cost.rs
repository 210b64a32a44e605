//! The sum by itself: how long CRC32C takes for a header, a block, a segment, with the bytes in the cache.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;

/// One length.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    pub(super) bytes: usize,
    pub(super) nanoseconds: f64,
}

/// A header, a block, what most requests are long, and parts of a long one.
const LENGTHS: &[usize] = &[48, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// The fastest of so many slots counts: others on the machine can only make it slower.
const SLOTS: usize = 25;
/// Long beside the clock's own cost.
const SLOT: Duration = Duration::from_micros(400);

impl Cost {
    /// 10^9 bytes a second.
    pub(super) fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.nanoseconds
    }
}

/// All lengths.
pub(super) fn measure() -> Vec<Cost> {
    LENGTHS.iter().map(|&bytes| Cost { bytes, nanoseconds: fastest(bytes) }).collect()
}

fn fastest(bytes: usize) -> f64 {
    let data: Vec<u8> = (0..bytes).map(|at| (at * 31 / 7) as u8).collect();
    (0..SLOTS).map(|_| slot(&data)).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds for each sum, over one slot.
fn slot(data: &[u8]) -> f64 {
    const AT_ONCE: u32 = 16;
    let (begun, mut sums) = (Instant::now(), 0);
    while begun.elapsed() < SLOT {
        for _ in 0..AT_ONCE {
            black_box(iscsi::digest::digest(black_box(data)));
        }
        sums += AT_ONCE;
    }
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabyte_in_a_second_is_a_byte_in_a_nanosecond() {
        assert_eq!(Cost { bytes: 4096, nanoseconds: 4096.0 }.gb_per_s(), 1.0);
    }
}
