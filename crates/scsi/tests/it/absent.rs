//! LUNs with nothing behind them, and the REPORT LUNS well-known logical unit.

use crate::support::*;
use scsi::{absent, well_known};

#[test]
fn inquiry_says_that_nothing_can_be_here() {
    let data = Answer::of(absent(&inquiry(None, 96), &TwoLuns, 96)).good().data;
    assert_eq!((data[0], data.len()), (0x7f, 96));
    assert_eq!(Answer::of(absent(&inquiry(None, 5), &TwoLuns, 96)).good().data.len(), 5);
    Answer::of(absent(&inquiry(Some(0x83), 96), &TwoLuns, 96)).invalid_field(1);
}

#[test]
fn report_luns_and_request_sense_are_answered() {
    assert_eq!(Answer::of(absent(&twelve(0xa0, 0, 0, 256), &TwoLuns, 256)).good().data.len(), 24);
    let sense = Answer::of(absent(&[3, 0, 0, 0, 18, 0], &TwoLuns, 18)).good().data;
    assert_eq!((sense[2], sense[12]), (5, 0x25));
}

#[test]
fn anything_else_is_not_supported_there() {
    for cdb in [sized(0x28, 0, 0, 1), TEST_UNIT_READY.to_vec(), vec![]] {
        Answer::of(absent(&cdb, &TwoLuns, 512)).check(5, 0x2500);
    }
}

#[test]
fn the_well_known_logical_unit_is_of_its_own_kind() {
    assert_eq!(Answer::of(well_known(&inquiry(None, 96), &TwoLuns, 96)).good().data[0], 0x1e);
    Answer::of(well_known(&TEST_UNIT_READY, &TwoLuns, 0)).good();
    Answer::of(well_known(&sized(0x28, 0, 0, 1), &TwoLuns, 512)).unknown();
    let sense = Answer::of(well_known(&[3, 0, 0, 0, 18, 0], &TwoLuns, 18)).good().data;
    assert_eq!(sense[2], 0);
}
