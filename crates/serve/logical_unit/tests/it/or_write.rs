//! ORWRITE(16).

use crate::support::*;

const ORWRITE: u8 = 0x8b;

#[test]
fn bits_are_set_and_none_cleared() {
    let mut bench = Bench::new();
    bench.write(0, &[0x0f; 1024]);
    bench.send(&sixteen(ORWRITE, 0, 0, 2), &[0x3c; 1024]).good();
    assert_eq!(
        bench.read(0, 3),
        [[0x3f; 512], [0x3f; 512], [0; 512]].concat()
    );
}

#[test]
fn beyond_end_zero_blocks_and_protection() {
    let mut bench = Bench::new();
    bench
        .send(&sixteen(ORWRITE, 0, 4095, 2), &[0; 1024])
        .out_of_range();
    bench.send(&sixteen(ORWRITE, 0, 0, 0), &[]).good();
    bench
        .send(&sixteen(ORWRITE, 0, 4097, 0), &[])
        .out_of_range();
    bench
        .send(&sixteen(ORWRITE, 0x20, 0, 1), &[0; 512])
        .invalid_field(1);
}

#[test]
fn fua_makes_it_stable() {
    let mut bench = Bench::new();
    bench.send(&sixteen(ORWRITE, 0x08, 0, 1), &[4; 512]).good();
    assert_eq!(bench.disk.stable_byte(0), 4);
}
