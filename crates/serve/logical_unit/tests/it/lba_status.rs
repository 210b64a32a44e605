//! GET LBA STATUS.

use crate::support::*;

/// Returns the LBA, the number of blocks and the provisioning status of each descriptor.
fn descriptors(data: &[u8]) -> Vec<(u64, u32, u8)> {
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    data[8..]
        .chunks_exact(16)
        .map(|d| (number(&d[..8]), number(&d[8..12]) as u32, d[12]))
        .collect()
}

#[test]
fn runs_are_as_long_as_they_can_be_and_cover_the_rest_of_the_medium() {
    let mut bench = Bench::new();
    bench.write(10, &[1; 257 * 512]);
    let answer = bench.command(&get_lba_status(0, 256)).good();
    assert_eq!(
        descriptors(&answer.data),
        [(0, 10, 1), (10, 257, 0), (267, 4096 - 267, 1)]
    );
    assert_eq!(answer.data[..4], (4 + 3 * 16u32).to_be_bytes());
}

#[test]
fn the_first_descriptor_begins_at_the_block_asked_for() {
    let mut bench = Bench::new();
    bench.write(10, &[1; 257 * 512]);
    let (cdb, list) = unmap(&[(20, 1)]);
    bench.send(&cdb, &list).good();
    let answer = bench.command(&get_lba_status(15, 40)).good();
    assert_eq!(descriptors(&answer.data), [(15, 5, 0), (20, 1, 1)]);
}

#[test]
fn truncation() {
    let mut bench = Bench::new();
    for length in 0..32 {
        let answer = bench.command(&get_lba_status(0, length)).good();
        assert_eq!(answer.data.len(), length.min(24) as usize);
        assert_eq!(answer.expected_bytes, u64::from(length.min(24)));
    }
}

#[test]
fn beyond_end() {
    for lba in [4096, 4097, 1 << 63, u64::MAX] {
        Bench::new()
            .command(&get_lba_status(lba, 24))
            .out_of_range();
    }
}

#[test]
fn a_volume_that_is_not_thin_is_mapped_all_over() {
    let mut bench = Bench::of_unit(|unit| unit.thin = Some(false));
    let answer = bench.command(&get_lba_status(1, 256)).good();
    assert_eq!(descriptors(&answer.data), [(1, 4095, 0)]);
}
