//! READ CAPACITY(10) and (16).

use crate::support::*;
use block::BlockSize;

#[test]
fn read_capacity_10() {
    assert_eq!(
        Bench::new().command(&ten(0x25, 0, 0, 0)).good().data,
        [0, 0, 0x0f, 0xff, 0, 0, 2, 0]
    );
}

#[test]
fn read_capacity_16() {
    let disk = DiskOptions {
        block_size: BlockSize::B4096,
        blocks: 64,
        physical_exponent: 0,
        ..DiskOptions::default()
    };
    let data = Bench::of_disk(disk)
        .command(&sixteen(0x9e, 0x10, 0, 32))
        .good()
        .data;
    assert_eq!(
        data[..16],
        [0, 0, 0, 0, 0, 0, 0, 63, 0, 0, 0x10, 0, 0, 0, 0xc0, 0]
    );
    let disk = DiskOptions {
        physical_exponent: 3,
        thin: false,
        ..DiskOptions::default()
    };
    let data = Bench::of_disk(disk)
        .command(&sixteen(0x9e, 0x10, 0, 32))
        .good()
        .data;
    assert_eq!(data[12..16], [0, 3, 0, 0]);
}

#[test]
fn truncation() {
    let mut bench = Bench::new();
    for length in 0..40 {
        let answer = bench.command(&sixteen(0x9e, 0x10, 0, length)).good();
        assert_eq!(answer.data.len(), length.min(32) as usize);
    }
}

#[test]
fn another_service_action_is_an_invalid_field() {
    Bench::new()
        .command(&sixteen(0x9e, 0x1f, 0, 32))
        .invalid_field(1);
}
