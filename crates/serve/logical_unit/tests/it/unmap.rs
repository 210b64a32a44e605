//! UNMAP.

use crate::support::*;

fn filled() -> Bench {
    let mut bench = Bench::new();
    bench.write(0, &[0xff; 16 * 512]);
    bench
}

#[test]
fn blocks_given_back_read_as_zeros() {
    let mut bench = filled();
    let (cdb, list) = unmap(&[(1, 2), (5, 1)]);
    bench.send(&cdb, &list).good();
    let zeros: Vec<u64> = (0..8)
        .filter(|lba| bench.read(*lba, 1) == vec![0; 512])
        .collect();
    assert_eq!(zeros, [1, 2, 5]);
}

#[test]
fn nothing_to_unmap_is_good() {
    let mut bench = Bench::new();
    bench.send(&ten(0x42, 0, 0, 0), &[]).good();
    let (cdb, list) = unmap(&[]);
    bench.send(&cdb, &list).good();
    let (cdb, list) = unmap(&[(4096, 0), (0, 0)]);
    bench.send(&cdb, &list).good();
}

#[test]
fn one_extent_beyond_the_end_and_none_is_unmapped() {
    let mut bench = filled();
    let (cdb, list) = unmap(&[(1, 2), (4095, 2)]);
    bench.send(&cdb, &list).out_of_range();
    assert_eq!(bench.read(1, 1), vec![0xff; 512]);
}

#[test]
fn limits() {
    let mut bench = Bench::new();
    let (cdb, list) = unmap(&[(0, 1); 256]);
    bench.send(&cdb, &list).good();
    let (cdb, list) = unmap(&[(0, 1); 257]);
    bench.send(&cdb, &list).check(5, 0x2600);
    let mut bench = Bench::of_disk(DiskOptions {
        blocks: 8192,
        ..DiskOptions::default()
    });
    let (cdb, list) = unmap(&[(0, 8192); 129]);
    bench.send(&cdb, &list).check(5, 0x2600);
}

#[test]
fn a_list_shorter_than_its_header_is_refused() {
    Bench::new()
        .send(&ten(0x42, 0, 0, 7), &[0; 7])
        .check(5, 0x1a00);
    let (cdb, list) = unmap(&[(0, 1)]);
    Bench::new().send(&cdb, &list[..4]).check(5, 0x1a00);
}

#[test]
fn anchor_is_refused() {
    Bench::new()
        .send(&ten(0x42, 1, 0, 8), &[0; 8])
        .invalid_field(1);
}

#[test]
fn a_volume_that_is_not_thin_does_not_know_it() {
    let (cdb, list) = unmap(&[(0, 1)]);
    Bench::of_unit(|unit| unit.thin = Some(false))
        .send(&cdb, &list)
        .unknown();
}
