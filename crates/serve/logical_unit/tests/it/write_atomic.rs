//! WRITE ATOMIC(16).

use crate::support::*;

#[test]
fn up_to_the_maximum_is_written() {
    for blocks in [1, 256, 4096] {
        let mut bench = Bench::new();
        let data = vec![3; usize::from(blocks) * 512];
        bench
            .send(&write_atomic(4096 - u64::from(blocks), blocks), &data)
            .good();
        assert_eq!(bench.read(4095, 1), vec![3; 512]);
    }
}

#[test]
fn above_the_maximum_is_refused_but_beyond_the_end_comes_first() {
    let mut bench = Bench::of_disk(DiskOptions {
        blocks: 1 << 14,
        ..DiskOptions::default()
    });
    bench
        .send(&write_atomic(0, 4097), &vec![0; 4097 * 512])
        .invalid_field(12);
    bench
        .send(&write_atomic(1 << 14, 4097), &vec![0; 4097 * 512])
        .out_of_range();
}

#[test]
fn zero_blocks() {
    let mut bench = Bench::new();
    bench.send(&write_atomic(0, 0), &[]).good();
    for lba in [4097, 1 << 63, u64::MAX] {
        bench.send(&write_atomic(lba, 0), &[]).out_of_range();
    }
}

#[test]
fn a_boundary_or_protection_is_refused() {
    let mut cdb = write_atomic(0, 1);
    cdb[11] = 1;
    Bench::new().send(&cdb, &[0; 512]).invalid_field(10);
    let mut cdb = write_atomic(0, 1);
    cdb[1] = 0x20;
    Bench::new().send(&cdb, &[0; 512]).invalid_field(1);
}

#[test]
fn a_part_is_never_written() {
    let mut bench = Bench::new();
    bench.send(&write_atomic(0, 2), &[1; 512]).check(5, 0x0e03);
    assert_eq!(bench.read(0, 1), vec![0; 512]);
}
