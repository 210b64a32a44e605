//! Arbitrary bytes as a series of commands: the input of property tests and the fuzzer for a logical unit.

use super::{Bench, DiskOptions, unit_options};

/// Parses `bytes` as commands and executes them: a CDB of 16 bytes, the lengths of Data-Out and Data-In (2
/// bytes each), and the data. Panics only if the logical unit does.
pub fn feed(bytes: &[u8]) {
    let disk = DiskOptions {
        blocks: 64,
        in_memory: bytes.len().is_multiple_of(2),
        ..DiskOptions::default()
    };
    let mut options = unit_options();
    options.removable = bytes.len().is_multiple_of(3);
    let mut bench = Bench::with(disk, options);
    let mut rest = bytes;
    while let Some((command, tail)) = rest.split_first_chunk::<20>() {
        let length = |at: usize| usize::from(u16::from_be_bytes([command[at], command[at + 1]]));
        let (data, tail) = tail.split_at(length(16).min(tail.len()));
        bench.exchange(&command[..16], data, length(18) as u32);
        rest = tail;
    }
}
