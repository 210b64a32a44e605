//! REQUEST SENSE.

use crate::support::*;

#[test]
fn with_nothing_to_tell_it_says_so_in_either_format() {
    let fixed = Bench::new().command(&[3, 0, 0, 0, 252, 0]).good().data;
    assert_eq!((fixed.len(), fixed[0], fixed[2]), (18, 0x70, 0));
    let descriptor = Bench::new().command(&[3, 1, 0, 0, 252, 0]).good().data;
    assert_eq!(descriptor, [0x72, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn truncation() {
    for length in 0..18 {
        assert_eq!(
            Bench::new()
                .command(&[3, 0, 0, 0, length, 0])
                .good()
                .data
                .len(),
            usize::from(length)
        );
    }
}

#[test]
fn a_missing_medium_can_be_polled() {
    let mut bench = Bench::of_unit(|unit| unit.removable = true);
    bench.command(&start_stop(2)).good();
    let sense = bench.command(&[3, 0, 0, 0, 18, 0]).good().data;
    assert_eq!((sense[2], sense[12]), (2, 0x3a));
}
